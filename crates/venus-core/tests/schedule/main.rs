//! The scheduler's contract, seen from outside: events in, actions out.

mod auditor;
mod faults;
mod groups;
mod order;
mod overtaking;
mod priority;
mod property;
mod toy;
mod turns;
mod versions;

use std::collections::BTreeMap;
use venus_core::ids::{AttemptId, BatchId, GroupId, TrajectoryId, Version, WorkerId};
use venus_core::schedule::{Action, Event, Scheduler, SchedulerConfig, Stage};
use venus_core::units::{Instant, Tokens};

/// A shell that does as it is told and remembers what it was told. After every event the invariants are checked.
struct Shell {
    scheduler: Scheduler,
    group_size: u64,
    now: u64,
    attempts: BTreeMap<TrajectoryId, (AttemptId, WorkerId)>,
}

impl Shell {
    fn new(config: SchedulerConfig) -> Self {
        let group_size = config.group_size as u64;
        Self {
            scheduler: Scheduler::new(config).expect("the test chose valid settings"),
            group_size,
            now: 0,
            attempts: BTreeMap::new(),
        }
    }

    fn tell(&mut self, event: Event) -> Vec<Action> {
        self.now += 1;
        let mut actions = Vec::new();
        self.scheduler.on(Instant(self.now), event.clone(), &mut actions);
        self.scheduler.check().unwrap_or_else(|violation| panic!("after {event:?}: {violation}"));
        for action in &actions {
            if let &Action::Dispatch { trajectory, attempt, worker, .. } = action {
                self.attempts.insert(trajectory, (attempt, worker));
            }
        }
        actions
    }

    /// Group `g` has the members `g * K .. (g + 1) * K`.
    fn offer(&mut self, group: u64) -> Vec<Action> {
        let members = (group * self.group_size..(group + 1) * self.group_size).map(TrajectoryId).collect();
        self.tell(Event::GroupOffered { group: GroupId(group), members })
    }

    fn worker(&mut self, worker: u32, slots: u32) -> Vec<Action> {
        self.tell(Event::WorkerJoined { worker: WorkerId(worker), slots })
    }

    fn sandbox(&mut self, trajectory: u64) -> Vec<Action> {
        self.tell(Event::SandboxReady { trajectory: TrajectoryId(trajectory) })
    }

    fn queue(&mut self, trajectory: u64) -> Vec<Action> {
        self.tell(Event::TurnQueued { trajectory: TrajectoryId(trajectory), context: Tokens(10) })
    }

    /// Sandbox up and first turn queued.
    fn begin(&mut self, trajectory: u64) -> Vec<Action> {
        self.sandbox(trajectory);
        self.queue(trajectory)
    }

    /// The turn that runs ends, drawn by the versions `first..=last`.
    fn turn_by(&mut self, trajectory: u64, first: u64, last: u64) -> Vec<Action> {
        let trajectory = TrajectoryId(trajectory);
        let (attempt, _) = self.attempts[&trajectory];
        let versions = Some((Version(first), Version(last)));
        self.tell(Event::TurnEnded { trajectory, attempt, generated: Tokens(5), versions })
    }

    /// The turn that runs ends, drawn by the version in use.
    fn turn(&mut self, trajectory: u64) -> Vec<Action> {
        let Version(version) = self.scheduler.version();
        self.turn_by(trajectory, version, version)
    }

    fn tool(&mut self, trajectory: u64) -> Vec<Action> {
        self.tell(Event::ToolEnded { trajectory: TrajectoryId(trajectory) })
    }

    fn finish(&mut self, trajectory: u64) -> Vec<Action> {
        self.tell(Event::TrajectoryFinished { trajectory: TrajectoryId(trajectory) })
    }

    fn fail(&mut self, trajectory: u64) -> Vec<Action> {
        self.tell(Event::TrajectoryFailed { trajectory: TrajectoryId(trajectory) })
    }

    /// From an empty sandbox to a verdict in one turn.
    fn complete(&mut self, trajectory: u64) -> Vec<Action> {
        self.begin(trajectory);
        self.turn(trajectory);
        self.finish(trajectory)
    }

    fn publish(&mut self, version: u64) -> Vec<Action> {
        self.tell(Event::VersionPublished { version: Version(version) })
    }

    fn demand(&mut self) -> Vec<Action> {
        self.tell(Event::TrainerDemand)
    }

    fn trained(&mut self, batch: u64) -> Vec<Action> {
        self.tell(Event::BatchTrained { batch: BatchId(batch) })
    }

    fn stage(&self, trajectory: u64) -> Stage {
        self.scheduler.stage_of(TrajectoryId(trajectory)).expect("a live trajectory")
    }

    fn attempt_of(&self, trajectory: u64) -> AttemptId {
        self.attempts[&TrajectoryId(trajectory)].0
    }
}

/// The trajectories dispatched by these actions, in order.
fn dispatched(actions: &[Action]) -> Vec<u64> {
    let of = |action: &Action| match action {
        Action::Dispatch { trajectory, .. } => Some(trajectory.0),
        _ => None,
    };
    actions.iter().filter_map(of).collect()
}

/// The workers dispatched to by these actions, in order.
fn workers(actions: &[Action]) -> Vec<u32> {
    let of = |action: &Action| match action {
        Action::Dispatch { worker, .. } => Some(worker.0),
        _ => None,
    };
    actions.iter().filter_map(of).collect()
}

/// The trajectories started by these actions, in order.
fn started(actions: &[Action]) -> Vec<u64> {
    let of = |action: &Action| match action {
        Action::Start { trajectory, .. } => Some(trajectory.0),
        _ => None,
    };
    actions.iter().filter_map(of).collect()
}

fn deliver(batch: u64, groups: &[u64]) -> Vec<Action> {
    vec![Action::Deliver { batch: BatchId(batch), groups: groups.iter().copied().map(GroupId).collect() }]
}
