//! Random histories, with events that are late, doubled or about nothing, watched by the [`Auditor`].

use crate::auditor::{At, Auditor, Fate, Member};
use proptest::prelude::*;
use venus_core::ids::{AttemptId, BatchId, GroupId, TrajectoryId, Version, WorkerId};
use venus_core::schedule::{Action, Event, GroupScore, Policy, PriorityConfig, Scheduler, SchedulerConfig};
use venus_core::units::{Instant, Tokens};

/// A step of a history; the numbers choose among what is possible when it is taken.
#[derive(Clone, Debug)]
enum Step {
    Offer,
    Sandbox(usize),
    Queue(usize),
    EndTurn(usize, VersionsOf),
    EndTool(usize),
    CutShort(usize),
    /// A turn that was told to stop does.
    Yield(usize, VersionsOf),
    Predict(usize, u64),
    Finish(usize),
    Fail(usize),
    Publish(u64),
    Resize(u32, u32),
    Lose(u32),
    Demand,
    Train,
    Drain,
    /// Any event about any trajectory, group, batch or attempt, whatever its state.
    Stray(u8, u64),
}

#[derive(Clone, Copy, Debug)]
enum VersionsOf {
    Nothing,
    InUse,
    /// The engine lags behind or is ahead of what was published.
    Other(u64, u64),
}

fn step() -> impl Strategy<Value = Step> {
    let pick = || 0..64_usize;
    let versions = prop_oneof![
        1 => Just(VersionsOf::Nothing),
        6 => Just(VersionsOf::InUse),
        1 => (0..2_u64, 0..3_u64).prop_map(|(behind, length)| VersionsOf::Other(behind, length)),
    ];
    let remaining = prop_oneof![8 => 0..12_u64, 2 => 0..3000_u64, 1 => Just(u64::MAX)];
    prop_oneof![
        8 => Just(Step::Offer),
        20 => pick().prop_map(Step::Sandbox),
        24 => pick().prop_map(Step::Queue),
        30 => (pick(), versions.clone()).prop_map(|(pick, versions)| Step::EndTurn(pick, versions)),
        8 => (pick(), versions).prop_map(|(pick, versions)| Step::Yield(pick, versions)),
        16 => (pick(), remaining).prop_map(|(pick, remaining)| Step::Predict(pick, remaining)),
        12 => pick().prop_map(Step::EndTool),
        4 => pick().prop_map(Step::CutShort),
        14 => pick().prop_map(Step::Finish),
        2 => pick().prop_map(Step::Fail),
        5 => (0..3_u64).prop_map(Step::Publish),
        6 => (0..3_u32, 0..4_u32).prop_map(|(worker, slots)| Step::Resize(worker, slots)),
        2 => (0..3_u32).prop_map(Step::Lose),
        8 => Just(Step::Demand),
        6 => Just(Step::Train),
        8 => (any::<u8>(), 0..24_u64).prop_map(|(kind, id)| Step::Stray(kind, id)),
    ]
}

fn config() -> impl Strategy<Value = SchedulerConfig> {
    let policy = prop_oneof![4 => Just(Policy::Priority), 4 => prop::sample::select(Policy::ALL.to_vec())];
    let score = prop::sample::select(vec![GroupScore::Auto, GroupScore::Max, GroupScore::Sum, GroupScore::Mixed]);
    let priority = (score, prop_oneof![Just(1.0), Just(1.25), Just(2.0)])
        .prop_map(|(score, hysteresis)| PriorityConfig { score, hysteresis, ..PriorityConfig::default() });
    let async_factor = prop_oneof![Just(1.0), Just(1.5), Just(2.0)];
    (policy, priority, 1..5_usize, 1..4_usize, async_factor, 1..4_u32, 0..3_u32).prop_map(
        |(policy, priority, groups_per_batch, group_size, async_factor, version_span_limit, max_restarts)| {
            SchedulerConfig {
                policy,
                groups_per_batch,
                group_size,
                async_factor,
                version_span_limit,
                max_restarts,
                priority,
            }
        },
    )
}

/// The scheduler and its auditor, fed the same events.
struct Trial {
    scheduler: Scheduler,
    auditor: Auditor,
    group_size: u64,
    offered: u64,
    now: u64,
}

impl Trial {
    fn new(config: &SchedulerConfig) -> Self {
        let mut trial = Self {
            scheduler: Scheduler::new(config.clone()).expect("the strategy makes valid settings"),
            auditor: Auditor::new(config.clone()),
            group_size: config.group_size as u64,
            offered: 0,
            now: 0,
        };
        trial.tell(Event::WorkerJoined { worker: WorkerId(0), slots: 2 });
        trial
    }

    fn tell(&mut self, event: Event) -> Vec<Action> {
        let mut actions = Vec::new();
        self.now += 1;
        self.scheduler.on(Instant(self.now), event.clone(), &mut actions);
        self.scheduler.check().unwrap_or_else(|violation| panic!("after {event:?}: {violation}"));
        self.auditor.watch(&event, &actions);
        self.auditor.compare(&self.scheduler.stats());
        actions
    }

    fn offer(&self, group: u64) -> Event {
        let members = (group * self.group_size..(group + 1) * self.group_size).map(TrajectoryId).collect();
        Event::GroupOffered { group: GroupId(group), members }
    }

    /// The `pick`-th member for which `wanted` holds, counted round and round.
    fn choose(&self, pick: usize, wanted: impl Fn(&Member) -> bool) -> Option<TrajectoryId> {
        let fitting: Vec<_> = self.auditor.members.iter().filter(|member| wanted(member)).collect();
        (!fitting.is_empty()).then(|| fitting[pick % fitting.len()].id)
    }

    fn at(&self, pick: usize, at: At) -> Option<TrajectoryId> {
        self.choose(pick, |member| member.at == at)
    }

    fn take(&mut self, step: &Step) {
        if let Some(event) = self.event(step) {
            self.tell(event);
        }
    }

    fn event(&mut self, step: &Step) -> Option<Event> {
        let version = self.auditor.version;
        Some(match *step {
            Step::Offer => {
                self.offered += 1;
                self.offer(self.offered - 1)
            }
            Step::Sandbox(pick) => Event::SandboxReady { trajectory: self.at(pick, At::Starting)? },
            Step::Queue(pick) => queued(self.at(pick, At::Ready)?),
            Step::CutShort(pick) => queued(self.at(pick, At::Acting)?),
            Step::Yield(pick, versions) => {
                let trajectory = self.choose(pick, |member| member.stopping)?;
                self.end_turn(trajectory, versions)?
            }
            Step::Predict(pick, remaining) => Event::Prediction {
                trajectory: self.choose(pick, |_| true)?,
                remaining: Tokens(remaining),
                spread: Tokens(1),
            },
            Step::EndTool(pick) => Event::ToolEnded { trajectory: self.at(pick, At::Acting)? },
            Step::EndTurn(pick, versions) => {
                let trajectory = self.choose(pick, |member| matches!(member.at, At::Running(_)))?;
                self.end_turn(trajectory, versions)?
            }
            Step::Finish(pick) => {
                let trajectory = self.choose(pick, |m| m.at == At::Acting || m.at == At::Ready && m.drawn.is_some())?;
                Event::TrajectoryFinished { trajectory }
            }
            Step::Fail(pick) => Event::TrajectoryFailed { trajectory: self.choose(pick, |_| true)? },
            Step::Publish(ahead) => Event::VersionPublished { version: Version(version + ahead) },
            Step::Resize(worker, slots) => Event::WorkerJoined { worker: WorkerId(worker), slots },
            Step::Lose(worker) => Event::WorkerLost { worker: WorkerId(worker) },
            Step::Demand => Event::TrainerDemand,
            Step::Train => Event::BatchTrained { batch: self.auditor.batches.iter().find(|b| !b.trained)?.id },
            Step::Drain => Event::Drain,
            Step::Stray(kind, id) => self.stray(kind, id),
        })
    }

    fn end_turn(&self, trajectory: TrajectoryId, versions: VersionsOf) -> Option<Event> {
        let member = self.auditor.members.iter().find(|member| member.id == trajectory)?;
        let At::Running(attempt) = member.at else { return None };
        let version = self.auditor.version;
        let versions = match versions {
            VersionsOf::Nothing => None,
            VersionsOf::InUse => Some((Version(version), Version(version))),
            VersionsOf::Other(behind, length) => {
                let first = version.saturating_sub(behind);
                Some((Version(first), Version(first + length)))
            }
        };
        let generated = versions.map_or(0, |_| 1 + self.now % 4);
        Some(Event::TurnEnded { trajectory, attempt, generated: Tokens(generated), versions })
    }

    fn stray(&self, kind: u8, id: u64) -> Event {
        let trajectory = TrajectoryId(id);
        match kind % 10 {
            0 => self.offer(id % self.offered.max(1)),
            1 => Event::SandboxReady { trajectory },
            2 => queued(trajectory),
            3 => Event::ToolEnded { trajectory },
            4 => Event::TrajectoryFinished { trajectory },
            5 => Event::VersionPublished { version: Version(id % (self.auditor.version + 1)) },
            6 => Event::WorkerLost { worker: WorkerId(40 + id as u32) },
            7 => Event::BatchTrained { batch: BatchId(id) },
            8 => Event::Prediction { trajectory, remaining: Tokens(id), spread: Tokens(1) },
            _ => {
                let (attempt, versions) = (AttemptId(id), Some((Version(0), Version(9))));
                let current = self.auditor.members.iter().any(|member| member.at == At::Running(attempt));
                let attempt = if current { AttemptId(u64::MAX) } else { attempt };
                Event::TurnEnded { trajectory, attempt, generated: Tokens(1), versions }
            }
        }
    }

    /// Lets every trajectory, tool and trainer do its part until nothing is left to do.
    fn run_out(&mut self) {
        self.tell(Event::WorkerJoined { worker: WorkerId(1), slots: 2 });
        while self.round() {}
        let undelivered = |fate: Fate| matches!(fate, Fate::Offered | Fate::Started | Fate::Complete(_));
        let left = self.auditor.groups.iter().filter(|(_, fate)| undelivered(*fate)).count();
        assert!(left < self.scheduler.config().groups_per_batch, "{left} groups are left and nothing happens");
    }

    fn round(&mut self) -> bool {
        let mut moved = false;
        for member in self.auditor.members.clone() {
            let Some(now) = self.auditor.members.iter().find(|m| m.id == member.id) else { continue };
            let trajectory = member.id;
            let event = match now.at {
                At::Starting => Event::SandboxReady { trajectory },
                At::Ready if now.drawn.is_some() => Event::TrajectoryFinished { trajectory },
                At::Ready => queued(trajectory),
                At::Running(_) => self.end_turn(trajectory, VersionsOf::InUse).expect("it runs"),
                At::Acting => Event::TrajectoryFinished { trajectory },
                At::Waiting | At::Queued | At::Finished | At::Doomed => continue,
            };
            self.tell(event);
            moved = true;
        }
        self.tell(Event::TrainerDemand);
        if let Some(batch) = self.auditor.batches.iter().find(|batch| !batch.trained) {
            self.tell(Event::BatchTrained { batch: batch.id });
            moved = true;
        }
        if self.auditor.batches.iter().any(|batch| !batch.published) {
            self.tell(Event::VersionPublished { version: Version(self.auditor.version + 1) });
            moved = true;
        }
        moved
    }
}

fn queued(trajectory: TrajectoryId) -> Event {
    Event::TurnQueued { trajectory, context: Tokens(1) }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Promises 1, 2 and 5: whatever happens and however late it is reported, no group is lost, doubled or
    /// torn, no sample spans too many versions, no slot is overcommitted or idle beside a waiting turn, and
    /// once the world behaves again everything is delivered.
    #[test]
    fn any_history_keeps_the_promises_and_ends_with_everything_delivered(
        config in config(),
        steps in prop::collection::vec(step(), 0..250),
    ) {
        let mut trial = Trial::new(&config);
        steps.iter().for_each(|step| trial.take(step));
        trial.run_out();
    }

    /// Nothing new starts once the run drains, and what was started still ends.
    #[test]
    fn a_draining_run_starts_no_group(config in config(), steps in prop::collection::vec(step(), 0..120), at in 0..60_usize) {
        let mut trial = Trial::new(&config);
        for (index, step) in steps.iter().enumerate() {
            if index == at {
                trial.take(&Step::Drain);
            }
            trial.take(step);
        }
    }

    /// The same events give the same actions, in the same order.
    #[test]
    fn the_same_history_gives_the_same_decisions(config in config(), steps in prop::collection::vec(step(), 0..120)) {
        let mut first = Trial::new(&config);
        let mut second = Scheduler::new(config).expect("the strategy makes valid settings");
        second.on(Instant(1), Event::WorkerJoined { worker: WorkerId(0), slots: 2 }, &mut Vec::new());
        for step in &steps {
            let Some(event) = first.event(step) else { continue };
            let mut actions = Vec::new();
            second.on(Instant(0), event.clone(), &mut actions);
            prop_assert_eq!(first.tell(event), actions);
        }
    }
}
