//! A toy world around the scheduler: turns that draw a token a tick, tools that take ticks, a trainer. No KV, no batch
//! effects, one worker; it shows the effect of an order, not a speed.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use venus_core::ids::{AttemptId, BatchId, GroupId, TrajectoryId, Version, WorkerId};
use venus_core::schedule::{Action, Event, Scheduler, SchedulerConfig, SchedulerStats};
use venus_core::units::{Instant, Tokens};

/// A trajectory's turns: tokens, then ticks of the tool after them.
pub type Turns = Vec<(u64, u64)>;

/// Says how many tokens a trajectory has left; given its id, how often it was asked, and the truth.
pub type Predictor = Box<dyn FnMut(u64, u64, u64) -> Option<u64>>;

pub struct World {
    pub config: SchedulerConfig,
    pub slots: u32,
    /// Ticks of one trainer step.
    pub trainer: u64,
    pub groups: u64,
    /// The turns of a trajectory.
    pub turns: Box<dyn Fn(u64) -> Turns>,
    pub predictor: Predictor,
}

/// What became of a world.
pub struct Outcome {
    /// When each group was complete, in the order of completion.
    pub complete: Vec<(u64, GroupId)>,
    /// Groups in the order they started.
    pub started: Vec<GroupId>,
    pub stats: SchedulerStats,
}

impl Outcome {
    /// When each batch of this size was ready: when its last group was complete.
    pub fn ready(&self, size: usize) -> Vec<u64> {
        self.complete.chunks_exact(size).map(|batch| batch[size - 1].0).collect()
    }

    /// How many groups that started after this one were complete before it.
    pub fn overtaken(&self, group: GroupId) -> usize {
        let started = |of: GroupId| self.started.iter().position(|&group| group == of);
        let before = self.complete.iter().take_while(|&&(_, complete)| complete != group);
        before.filter(|&&(_, complete)| started(complete) > started(group)).count()
    }
}

struct Life {
    turns: Turns,
    /// The turn it is at, and how much of it was drawn.
    turn: usize,
    drawn: u64,
    restart: u32,
    running: Option<(AttemptId, u64, Version)>,
}

impl Life {
    fn left(&self) -> u64 {
        self.turns[self.turn..].iter().map(|(tokens, _)| tokens).sum::<u64>() - self.drawn
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Drawn(TrajectoryId, AttemptId),
    Stopped(TrajectoryId, AttemptId),
    Returned(TrajectoryId, u32),
    Trained(BatchId),
}

struct Run {
    world: World,
    scheduler: Scheduler,
    now: u64,
    due: BinaryHeap<Reverse<(u64, u64, Due)>>,
    order: u64,
    lives: BTreeMap<TrajectoryId, Life>,
    unfinished: BTreeMap<GroupId, usize>,
    asked: u64,
    told: u64,
    outcome: Outcome,
}

impl World {
    /// Runs until every group is complete.
    pub fn run(self) -> Outcome {
        let scheduler = Scheduler::new(self.config.clone()).expect("the test chose valid settings");
        let outcome = Outcome { complete: Vec::new(), started: Vec::new(), stats: scheduler.stats() };
        let mut run = Run {
            scheduler,
            now: 0,
            due: BinaryHeap::new(),
            order: 0,
            lives: BTreeMap::new(),
            unfinished: BTreeMap::new(),
            asked: 0,
            told: 0,
            outcome,
            world: self,
        };
        run.begin();
        while let Some(Reverse((at, _, due))) = run.due.pop() {
            assert!(at < 10_000_000, "the world comes to no end");
            run.now = at;
            run.happen(due);
        }
        assert_eq!(run.outcome.complete.len() as u64, run.world.groups, "nothing is left to happen");
        run.outcome.stats = run.scheduler.stats();
        run.outcome
    }
}

impl Run {
    fn begin(&mut self) {
        self.tell(Event::WorkerJoined { worker: WorkerId(0), slots: self.world.slots });
        self.tell(Event::TrainerDemand);
        let size = self.world.config.group_size as u64;
        for group in 0..self.world.groups {
            self.unfinished.insert(GroupId(group), size as usize);
            let members = (group * size..(group + 1) * size).map(TrajectoryId).collect();
            self.tell(Event::GroupOffered { group: GroupId(group), members });
        }
    }

    fn tell(&mut self, event: Event) {
        let mut actions = Vec::new();
        self.scheduler.on(Instant(self.now), event.clone(), &mut actions);
        self.told += 1;
        // The property tests check after every event.
        if self.told.is_multiple_of(16) {
            self.scheduler.check().unwrap_or_else(|violation| panic!("after {event:?}: {violation}"));
        }
        actions.into_iter().for_each(|action| self.obey(action));
    }

    fn after(&mut self, ticks: u64, due: Due) {
        self.order += 1;
        self.due.push(Reverse((self.now + ticks, self.order, due)));
    }

    fn obey(&mut self, action: Action) {
        match action {
            Action::Start { trajectory, restart } => {
                let group = self.scheduler.group_of(trajectory).expect("a live group");
                if !self.outcome.started.contains(&group) {
                    self.outcome.started.push(group);
                }
                let turns = (self.world.turns)(trajectory.0);
                self.lives.insert(trajectory, Life { turns, turn: 0, drawn: 0, restart, running: None });
                // A sandbox takes a tick, and must not be up before this step of the scheduler is over.
                self.after(1, Due::Returned(trajectory, restart));
            }
            Action::Dispatch { trajectory, attempt, .. } => {
                let version = self.scheduler.version();
                let life = self.lives.get_mut(&trajectory).expect("it was started");
                life.running = Some((attempt, self.now, version));
                let ticks = life.turns[life.turn].0 - life.drawn;
                self.after(ticks, Due::Drawn(trajectory, attempt));
            }
            Action::Preempt { trajectory, attempt, .. } => self.after(1, Due::Stopped(trajectory, attempt)),
            Action::Deliver { batch, .. } => self.after(self.world.trainer, Due::Trained(batch)),
            Action::Discard { trajectory, .. } => drop(self.lives.remove(&trajectory)),
            Action::SetClass { .. } => {}
            Action::DropGroup { group, .. } => panic!("{group} was dropped and nothing failed"),
        }
    }

    fn happen(&mut self, due: Due) {
        match due {
            Due::Drawn(id, attempt) => self.drawn(id, attempt, false),
            Due::Stopped(id, attempt) => self.drawn(id, attempt, true),
            Due::Returned(id, restart) => self.returned(id, restart),
            Due::Trained(batch) => {
                self.tell(Event::BatchTrained { batch });
                self.tell(Event::VersionPublished { version: Version(batch.0 + 1) });
                self.tell(Event::TrainerDemand);
            }
        }
    }

    /// A turn ends, by itself or because it was told to.
    fn drawn(&mut self, id: TrajectoryId, attempt: AttemptId, stopped: bool) {
        let version = self.scheduler.version();
        let Some(life) = self.lives.get_mut(&id) else { return };
        let Some((_, since, first)) = life.running.take_if(|(current, ..)| *current == attempt) else { return };
        let tokens = self.now - since;
        let (all, tool) = life.turns[life.turn];
        life.drawn += tokens;
        let ended = life.drawn == all;
        if ended {
            (life.turn, life.drawn) = (life.turn + 1, 0);
        }
        let (last, restart) = (life.turn == life.turns.len(), life.restart);
        assert!(ended || stopped);
        let versions = (tokens > 0).then_some((first, version));
        self.tell(Event::TurnEnded { trajectory: id, attempt, generated: Tokens(tokens), versions });
        if self.lives.get(&id).is_none_or(|life| life.restart != restart) {
            return;
        }
        match (ended, last) {
            (true, true) => self.finish(id),
            (true, false) => {
                self.predict(id);
                self.after(tool.max(1), Due::Returned(id, restart));
            }
            (false, _) => self.tell(Event::TurnQueued { trajectory: id, context: Tokens(1) }),
        }
    }

    fn returned(&mut self, id: TrajectoryId, restart: u32) {
        let Some(life) = self.lives.get(&id).filter(|life| life.restart == restart) else { return };
        if (life.turn, life.drawn) == (0, 0) {
            self.tell(Event::SandboxReady { trajectory: id });
            self.predict(id);
        } else {
            self.tell(Event::ToolEnded { trajectory: id });
        }
        self.tell(Event::TurnQueued { trajectory: id, context: Tokens(1) });
    }

    fn predict(&mut self, trajectory: TrajectoryId) {
        self.asked += 1;
        let left = self.lives[&trajectory].left();
        if let Some(remaining) = (self.world.predictor)(trajectory.0, self.asked, left) {
            self.tell(Event::Prediction { trajectory, remaining: Tokens(remaining), spread: Tokens(0) });
        }
    }

    fn finish(&mut self, id: TrajectoryId) {
        let group = self.scheduler.group_of(id).expect("a live group");
        let left = self.unfinished.get_mut(&group).expect("a group of this world");
        *left -= 1;
        if *left == 0 {
            self.outcome.complete.push((self.now, group));
        }
        self.tell(Event::TrajectoryFinished { trajectory: id });
    }
}

/// A number that looks random and depends on `n` alone.
pub fn hash(n: u64) -> u64 {
    let n = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

/// Turns with a long tail: a few trajectories have many times the median of turns. Members of a group are alike.
pub fn long_tailed(trajectory: u64, group_size: u64, seed: u64) -> Turns {
    let of_group = hash(seed << 32 | (trajectory / group_size)) % 100;
    let scale = if of_group < 75 { 2 + of_group / 25 } else { 6 + (of_group - 75) / 2 };
    let turns = scale + hash(seed << 40 | trajectory) % 3;
    (0..turns).map(|turn| (10 + hash(trajectory << 8 | turn) % 20, 5 + hash(trajectory << 9 | turn) % 15)).collect()
}

/// Predictors as they are compared in the paper's figures.
pub fn oracle() -> Predictor {
    Box::new(|_, _, truth| Some(truth))
}

pub fn none() -> Predictor {
    Box::new(|_, _, _| None)
}

pub fn random() -> Predictor {
    Box::new(|trajectory, asked, _| Some(hash(trajectory << 20 | asked) % 2000))
}
