//! A second opinion: a model that watches events and actions, keeps everything in plain lists, finds everything by
//! looking at all of it, and objects to any action that breaks a promise.

use crate::order::Order;
use std::collections::BTreeMap;
use venus_core::ids::{AttemptId, BatchId, GroupId, TrajectoryId, Version, WorkerId};
use venus_core::message::engine::Class;
use venus_core::schedule::{Action, DiscardReason, Event, Policy, SchedulerConfig, SchedulerStats};
use venus_core::units::Tokens;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    Waiting,
    Starting,
    Ready,
    Queued,
    Running(AttemptId),
    Acting,
    Finished,
    /// Must not stay as it is: it failed, or spans too many versions.
    Doomed,
}

#[derive(Clone, Debug)]
pub struct Member {
    pub id: TrajectoryId,
    pub group: GroupId,
    pub at: At,
    /// Order in which its turn was first queued.
    pub seniority: Option<u64>,
    pub holds: Option<WorkerId>,
    /// Its running turn was told to stop.
    pub stopping: bool,
    /// Tokens drawn and tokens predicted to be left, since it was started.
    pub tokens: u64,
    pub remaining: Option<u64>,
    /// Version in use when the first turn was sent, until tokens are drawn.
    sent_at: Option<u64>,
    /// First and last version that drew tokens.
    pub drawn: Option<(u64, u64)>,
    restarts: u32,
    failures: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Offered,
    Started,
    /// Complete since this many completions.
    Complete(usize),
    Delivered,
    Consumed,
    Dropped,
}

#[derive(Debug)]
pub struct Batch {
    pub id: BatchId,
    groups: Vec<GroupId>,
    delivered_at: u64,
    pub trained: bool,
    pub published: bool,
}

pub struct Auditor {
    pub config: SchedulerConfig,
    pub order: Order,
    pub version: u64,
    pub members: Vec<Member>,
    /// In the order offered.
    pub groups: Vec<(GroupId, Fate)>,
    pub workers: BTreeMap<WorkerId, u32>,
    pub batches: Vec<Batch>,
    demanded: bool,
    draining: bool,
    clock: u64,
    last_attempt: Option<AttemptId>,
    completions: usize,
}

impl Auditor {
    pub fn new(config: SchedulerConfig) -> Self {
        Self {
            config,
            order: Order::default(),
            version: 0,
            members: Vec::new(),
            groups: Vec::new(),
            workers: BTreeMap::new(),
            batches: Vec::new(),
            demanded: false,
            draining: false,
            clock: 0,
            last_attempt: None,
            completions: 0,
        }
    }

    /// Watches one step.
    pub fn watch(&mut self, event: &Event, actions: &[Action]) {
        self.clock += 1;
        self.take_in(event);
        self.order.settled = false;
        for (index, action) in actions.iter().enumerate() {
            if matches!(action, Action::Dispatch { .. } | Action::Preempt { .. }) {
                self.settle();
            }
            self.judge(action, &actions[..index]);
        }
        self.settle();
        self.judge_rest();
        self.judge_classes();
        self.judge_victims();
    }

    pub fn member(&mut self, id: TrajectoryId) -> Option<&mut Member> {
        self.members.iter_mut().find(|member| member.id == id)
    }

    fn group(&mut self, id: GroupId) -> &mut Fate {
        &mut self.groups.iter_mut().find(|(group, _)| *group == id).expect("a group that was offered").1
    }

    fn keeps_slot(&self) -> bool {
        self.config.policy == Policy::TrajectoryLevel
    }

    fn age(&self, member: &Member) -> Option<u64> {
        let start = member.drawn.map(|(first, _)| first).or(member.sent_at)?;
        Some(self.version.saturating_sub(start))
    }

    pub fn expired(&self, member: &Member) -> bool {
        self.age(member).is_some_and(|age| age >= u64::from(self.config.version_span_limit))
    }

    pub fn at_boundary(&self, member: &Member) -> bool {
        self.age(member).is_some_and(|age| age + 1 >= u64::from(self.config.version_span_limit))
    }

    fn used(&self, worker: WorkerId) -> u32 {
        self.members.iter().filter(|member| member.holds == Some(worker)).count() as u32
    }

    fn in_window(&self) -> usize {
        let held = |fate: Fate| matches!(fate, Fate::Started | Fate::Complete(_) | Fate::Delivered);
        self.groups.iter().filter(|(_, fate)| held(*fate)).count()
    }

    fn take_in(&mut self, event: &Event) {
        let (clock, keeps_slot) = (self.clock, self.keeps_slot());
        match *event {
            Event::GroupOffered { group, ref members } => {
                if self.groups.iter().all(|(known, _)| *known != group) {
                    self.groups.push((group, Fate::Offered));
                    self.members.extend(members.iter().map(|&id| Member::new(id, group)));
                }
            }
            Event::SandboxReady { trajectory } => self.step(trajectory, &[At::Starting], |m| m.at = At::Ready),
            Event::ToolEnded { trajectory } => self.step(trajectory, &[At::Acting], |m| {
                m.at = At::Ready;
                m.seniority = m.seniority.filter(|_| keeps_slot);
            }),
            Event::TurnQueued { trajectory, .. } => self.step(trajectory, &[At::Ready, At::Acting], |m| {
                m.at = At::Queued;
                m.seniority = m.seniority.or(Some(clock));
            }),
            Event::TurnEnded { trajectory, attempt, generated: Tokens(generated), versions } => {
                let limit = u64::from(self.config.version_span_limit);
                self.step(trajectory, &[At::Running(attempt)], |m| {
                    m.stopping = false;
                    m.tokens += generated;
                    m.remaining = m.remaining.map(|remaining| remaining.saturating_sub(generated));
                    m.turn_ended(versions, keeps_slot, limit);
                });
            }
            Event::TrajectoryFinished { trajectory } => self.finished(trajectory),
            Event::TrajectoryFailed { trajectory } => {
                let Some(member) = self.member(trajectory) else { return };
                if !matches!(member.at, At::Waiting | At::Finished) {
                    member.failures += 1;
                    member.at = At::Doomed;
                }
            }
            Event::VersionPublished { version } => self.published(version),
            Event::WorkerJoined { worker, slots } => drop(self.workers.insert(worker, slots)),
            Event::WorkerLost { worker } => self.worker_lost(worker),
            Event::TrainerDemand => self.demanded = true,
            Event::BatchTrained { batch } => {
                self.batches.iter_mut().filter(|b| b.id == batch).for_each(|b| b.trained = true);
                self.consume();
            }
            Event::Drain => self.draining = true,
            Event::Prediction { trajectory, remaining, .. } => {
                if let Some(member) = self.member(trajectory).filter(|member| member.at != At::Finished) {
                    member.remaining = Some(remaining.0);
                }
            }
            Event::WorkerReport { .. } => {}
        }
    }

    fn step(&mut self, id: TrajectoryId, from: &[At], change: impl FnOnce(&mut Member)) {
        if let Some(member) = self.member(id).filter(|member| from.contains(&member.at)) {
            change(member);
        }
    }

    fn finished(&mut self, id: TrajectoryId) {
        let Some(member) = self.member(id) else { return };
        if member.at != At::Acting && (member.at != At::Ready || member.drawn.is_none()) {
            return;
        }
        (member.at, member.holds) = (At::Finished, None);
        let group = member.group;
        self.order.told.remove(&id);
        if self.members.iter().all(|m| m.group != group || m.at == At::Finished) {
            self.completions += 1;
            *self.group(group) = Fate::Complete(self.completions);
        }
    }

    fn published(&mut self, Version(version): Version) {
        if version <= self.version {
            return;
        }
        self.version = version;
        let acknowledged = self.batches.iter().any(|b| b.trained && !b.published);
        let made_it = |b: &&mut Batch| !b.published && (b.trained || !acknowledged);
        let count = if acknowledged { usize::MAX } else { 1 };
        self.batches.iter_mut().filter(made_it).take(count).for_each(|b| b.published = true);
        self.consume();
    }

    fn consume(&mut self) {
        let (done, rest) = std::mem::take(&mut self.batches).into_iter().partition(|b| b.trained && b.published);
        self.batches = rest;
        let done: Vec<Batch> = done;
        for batch in done {
            assert!(self.version > batch.delivered_at, "{:?} was consumed under the weights that drew it", batch.id);
            for group in batch.groups {
                *self.group(group) = Fate::Consumed;
                self.members.retain(|member| member.group != group);
            }
        }
    }

    fn worker_lost(&mut self, worker: WorkerId) {
        self.workers.remove(&worker);
        self.order.told.retain(|_, (_, at)| *at != worker);
        for member in self.members.iter_mut().filter(|member| member.holds == Some(worker)) {
            member.holds = None;
            if matches!(member.at, At::Running(_)) {
                member.stopping = false;
                (member.at, member.sent_at) = (At::Queued, None);
            }
        }
    }

    fn judge(&mut self, action: &Action, earlier: &[Action]) {
        match *action {
            Action::Start { trajectory, restart } => self.judge_start(trajectory, restart, earlier),
            Action::Dispatch { trajectory, attempt, worker, class } => {
                self.judge_dispatch(trajectory, attempt, worker, class);
            }
            Action::SetClass { trajectory, class, worker } => {
                assert!(self.workers.contains_key(&worker));
                let before = self.order.told.insert(trajectory, (class, worker));
                assert_ne!(before.map(|(class, _)| class), Some(class), "{trajectory} had this class");
            }
            Action::Discard { trajectory, reason } => self.judge_discard(trajectory, reason),
            Action::DropGroup { group, .. } => {
                *self.group(group) = Fate::Dropped;
                assert!(self.members.iter().all(|m| m.group != group || m.at == At::Waiting), "each discarded before");
                self.members.retain(|member| member.group != group);
            }
            Action::Deliver { batch, ref groups } => self.judge_delivery(batch, groups),
            Action::Preempt { trajectory, attempt, worker } => self.judge_preemption(trajectory, attempt, worker),
        }
    }

    fn judge_start(&mut self, id: TrajectoryId, restart: u32, earlier: &[Action]) {
        let member = self.member(id).expect("a live trajectory");
        assert_eq!(restart, member.restarts);
        assert_eq!(member.at, At::Waiting);
        member.at = At::Starting;
        let group = member.group;
        if restart > 0 {
            let discarded = matches!(earlier.last(), Some(Action::Discard { trajectory, .. }) if *trajectory == id);
            return assert!(discarded, "{id} was started without being discarded");
        }
        if *self.group(group) == Fate::Offered {
            let first = self.groups.iter().find(|(_, fate)| *fate == Fate::Offered);
            assert_eq!(first.map(|(id, _)| *id), Some(group), "groups start in the order offered");
            assert!(!self.draining);
            *self.group(group) = Fate::Started;
            self.order.begun.push((group, self.version));
            assert!(self.in_window() <= self.config.window(), "the async window is exceeded");
        }
    }

    fn judge_dispatch(&mut self, id: TrajectoryId, attempt: AttemptId, worker: WorkerId, class: Class) {
        let member = self.member(id).expect("a live trajectory").clone();
        assert_eq!(member.at, At::Queued);
        assert!(self.last_attempt.is_none_or(|last| attempt > last), "attempts are never used twice");
        self.last_attempt = Some(attempt);
        if member.holds.is_none() {
            assert!(self.used(worker) < self.workers[&worker], "{worker} has no free slot");
            assert_eq!(self.waiting().first().map(|m| m.id), Some(id), "greater classes first, then by seniority");
        } else {
            assert_eq!(member.holds, Some(worker));
        }
        let version = self.version;
        let member = self.member(id).expect("a live trajectory");
        (member.at, member.holds) = (At::Running(attempt), Some(worker));
        member.sent_at = member.sent_at.or(Some(version));
        let member = member.clone();
        assert!(!self.expired(&member), "{id} would span too many versions");
        assert_eq!(class, self.class(&member));
        self.order.told.insert(id, (class, worker));
    }

    fn judge_discard(&mut self, id: TrajectoryId, reason: DiscardReason) {
        let limit = self.config.max_restarts;
        let member = self.member(id).expect("a live trajectory").clone();
        match reason {
            DiscardReason::StaleSpan => assert!(member.at == At::Doomed || self.expired(&member), "{member:?}"),
            DiscardReason::Retry => assert!(member.at == At::Doomed && member.failures <= limit),
            DiscardReason::Failed => assert!(member.at == At::Doomed && member.failures > limit),
            DiscardReason::GroupDropped => {
                let culprit = |m: &Member| m.group == member.group && m.failures > limit;
                assert!(self.members.iter().any(culprit));
            }
            DiscardReason::Malformed => panic!("no malformed group was offered"),
        }
        let again =
            Member { restarts: member.restarts + 1, failures: member.failures, ..Member::new(id, member.group) };
        *self.member(id).expect("a live trajectory") = again;
        self.order.told.remove(&id);
    }

    fn judge_delivery(&mut self, batch: BatchId, groups: &[GroupId]) {
        assert!(std::mem::take(&mut self.demanded), "the trainer did not ask");
        assert_eq!(groups.len(), self.config.groups_per_batch);
        let mut complete: Vec<(usize, GroupId)> = Vec::new();
        for (id, fate) in &self.groups {
            if let Fate::Complete(order) = fate {
                complete.push((*order, *id));
            }
        }
        complete.sort_unstable();
        let first: Vec<GroupId> = complete.iter().take(groups.len()).map(|(_, id)| *id).collect();
        assert_eq!(groups, first, "whole groups, once, in the order they completed");
        for member in self.members.iter().filter(|member| groups.contains(&member.group)) {
            let versions = member.drawn.map_or(0, |(first, last)| last - first + 1);
            assert!(versions <= u64::from(self.config.version_span_limit), "{member:?}");
        }
        groups.iter().for_each(|&group| *self.group(group) = Fate::Delivered);
        let delivered_at = self.version;
        self.batches.push(Batch { id: batch, groups: groups.to_vec(), delivered_at, trained: false, published: false });
    }

    /// What must not be left behind after a step.
    fn judge_rest(&self) {
        let free = self.workers.iter().any(|(&worker, &slots)| self.used(worker) < slots);
        for member in &self.members {
            assert_ne!(member.at, At::Doomed, "{member:?}");
            let drawing = matches!(member.at, At::Queued | At::Running(_));
            assert!(!(drawing && self.expired(member)), "{member:?} may not draw at {}", self.version);
            assert!(member.at != At::Queued || !free, "{member:?} waits beside a free slot");
        }
        let complete = self.groups.iter().filter(|(_, fate)| matches!(fate, Fate::Complete(_))).count();
        assert!(!self.demanded || complete < self.config.groups_per_batch, "the trainer waits for nothing");
        let waiting = self.groups.iter().any(|(_, fate)| *fate == Fate::Offered);
        assert!(!waiting || self.draining || self.in_window() >= self.config.window(), "a group waits for nothing");
    }

    /// Compares the scheduler's books with these.
    pub fn compare(&self, stats: &SchedulerStats) {
        let at = |wanted: fn(At) -> bool| self.members.iter().filter(|member| wanted(member.at)).count();
        let stages = stats.stages;
        assert_eq!(stages.waiting, at(|at| at == At::Waiting));
        assert_eq!(stages.starting, at(|at| at == At::Starting));
        assert_eq!(stages.ready, at(|at| at == At::Ready));
        assert_eq!(stages.queued, at(|at| at == At::Queued));
        assert_eq!(stages.running, at(|at| matches!(at, At::Running(_))));
        assert_eq!(stages.acting, at(|at| at == At::Acting));
        assert_eq!(stages.finished, at(|at| at == At::Finished));
        let unfinished = || self.members.iter().filter(|member| member.at != At::Finished);
        let of_class = |class| unfinished().filter(|member| self.class(member) == class).count();
        assert_eq!(stats.classes.boundary, of_class(Class::Boundary));
        assert_eq!(stats.classes.high, of_class(Class::High));
        assert_eq!(stats.classes.low, of_class(Class::Low));
        assert_eq!(stats.critical_groups, self.order.critical.len());
        assert_eq!(stats.preempting, self.members.iter().filter(|member| member.stopping).count());
        let free = self.workers.iter().map(|(&worker, &slots)| u64::from(slots.saturating_sub(self.used(worker))));
        assert_eq!(stats.free_slots, free.sum::<u64>());
        let fate = |wanted: fn(Fate) -> bool| self.groups.iter().filter(|(_, fate)| wanted(*fate)).count();
        assert_eq!(stats.groups.offered, fate(|fate| fate == Fate::Offered));
        assert_eq!(stats.groups.in_flight, fate(|fate| fate == Fate::Started));
        assert_eq!(stats.groups.ready, fate(|fate| matches!(fate, Fate::Complete(_))));
        assert_eq!(stats.groups.delivered, fate(|fate| fate == Fate::Delivered));
        assert_eq!(stats.totals.groups_consumed as usize, fate(|fate| fate == Fate::Consumed));
        assert_eq!(stats.totals.groups_dropped as usize, fate(|fate| fate == Fate::Dropped));
    }
}

impl Member {
    fn new(id: TrajectoryId, group: GroupId) -> Self {
        Self {
            id,
            group,
            at: At::Waiting,
            seniority: None,
            holds: None,
            stopping: false,
            tokens: 0,
            remaining: None,
            sent_at: None,
            drawn: None,
            restarts: 0,
            failures: 0,
        }
    }

    fn turn_ended(&mut self, versions: Option<(Version, Version)>, keeps_slot: bool, limit: u64) {
        self.at = At::Acting;
        self.holds = self.holds.filter(|_| keeps_slot);
        self.sent_at = None;
        let Some((Version(first), Version(last))) = versions else { return };
        let (oldest, newest) = self.drawn.unwrap_or((first, last));
        let (oldest, newest) = (oldest.min(first), newest.max(last));
        self.drawn = Some((oldest, newest));
        if newest - oldest >= limit {
            self.at = At::Doomed;
        }
    }
}
