//! The [`Auditor`]'s naive view of classes, of the order of groups and of who is preempted: everything is sorted anew
//! after every event.

use crate::auditor::{At, Auditor, Fate, Member};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use venus_core::ids::{AttemptId, GroupId, TrajectoryId, WorkerId};
use venus_core::message::engine::Class;
use venus_core::schedule::{GroupScore, Policy};

#[derive(Default)]
pub struct Order {
    /// Whether the order was made since the last event.
    pub settled: bool,
    /// Groups in the order they started, with the version in use then.
    pub begun: Vec<(GroupId, u64)>,
    pub critical: BTreeSet<GroupId>,
    /// What each trajectory's worker was last told of its class.
    pub told: BTreeMap<TrajectoryId, (Class, WorkerId)>,
    ranks: BTreeMap<TrajectoryId, Rank>,
}

/// Class, then how the policy orders within it.
type Rank = (u8, u64);

impl Auditor {
    /// Makes the order once an event was taken in.
    pub fn settle(&mut self) {
        if std::mem::replace(&mut self.order.settled, true) {
            return;
        }
        let fates = self.groups.clone();
        self.order.begun.retain(|(group, _)| fates.contains(&(*group, Fate::Started)));
        let mut keys: Vec<_> = self.order.begun.iter().enumerate().map(|(i, &(g, _))| (self.key(g), i, g)).collect();
        keys.sort_unstable();
        if matches!(self.config.policy, Policy::Priority | Policy::GroupFcfs) {
            self.mark(&keys.iter().map(|&((young, _), _, group)| (group, !young)).collect::<Vec<_>>());
        }
        let ranks: Vec<_> = self.members.iter().map(|member| (member.id, self.rank(member))).collect();
        self.order.ranks = ranks.into_iter().collect();
    }

    fn mark(&mut self, order: &[(GroupId, bool)]) {
        let size = self.config.groups_per_batch;
        let complete = self.groups.iter().filter(|(_, fate)| matches!(fate, Fate::Complete(_))).count();
        let need = size - complete % size;
        let keep = (need as f64 * self.config.priority.hysteresis).floor() as usize;
        let before = std::mem::take(&mut self.order.critical);
        for (rank, &(group, due)) in order.iter().enumerate() {
            if rank < need || rank < keep && (due || before.contains(&group)) {
                self.order.critical.insert(group);
            }
        }
    }

    fn unfinished(&self, group: GroupId) -> Vec<&Member> {
        self.members.iter().filter(|member| member.group == group && member.at != At::Finished).collect()
    }

    fn due(&self, group: GroupId) -> bool {
        let begun =
            self.order.begun.iter().find(|(begun, _)| *begun == group).map_or(self.version, |(_, version)| *version);
        self.version - begun + 1 >= u64::from(self.config.version_span_limit)
            || self.unfinished(group).iter().any(|member| self.at_boundary(member))
    }

    fn remaining(&self, member: &Member) -> u64 {
        member.remaining.unwrap_or(self.config.priority.default_remaining)
    }

    fn key(&self, group: GroupId) -> (bool, u64) {
        let young = !self.due(group);
        let remaining: Vec<u64> = self.unfinished(group).iter().map(|member| self.remaining(member)).collect();
        let max = remaining.iter().max().copied().unwrap_or(0);
        let sum = remaining.iter().fold(0_u64, |sum, remaining| sum.saturating_add(*remaining));
        let slots = self.workers.values().map(|&slots| slots as usize).sum::<usize>();
        let lanes = (slots / self.config.groups_per_batch).clamp(1, self.config.group_size);
        let score = match (self.config.policy, self.config.priority.score) {
            (Policy::Priority, GroupScore::Max) => max,
            (Policy::Priority, GroupScore::Auto) if lanes == self.config.group_size => max,
            (Policy::Priority, GroupScore::Sum) => sum,
            (Policy::Priority, _) => (1..lanes).fold(sum, |score, _| score.saturating_add(max)),
            _ => 0,
        };
        (young, if young { score } else { 0 })
    }

    fn rank(&self, member: &Member) -> Rank {
        match self.config.policy {
            Policy::TrajectoryLevel | Policy::ActionLevel => (0, 0),
            Policy::Priority | Policy::GroupFcfs => (0, self.key(member.group).1),
            Policy::LongestFirst => (0, u64::MAX - self.remaining(member)),
            Policy::GroupProbe if self.due(member.group) => (0, 0),
            Policy::GroupProbe => {
                let group = || self.members.iter().filter(|other| other.group == member.group);
                let longest = group().filter(|other| other.at == At::Finished).map(|other| other.tokens).max();
                let leads = group().next().map(|first| first.id) == Some(member.id);
                match longest {
                    None if leads => (1, member.tokens.max(1)),
                    None => (2, 0),
                    Some(length) => (3, u64::MAX - length),
                }
            }
        }
    }

    pub fn class(&self, member: &Member) -> Class {
        match (self.at_boundary(member), self.order.critical.contains(&member.group)) {
            (true, _) => Class::Boundary,
            (false, true) => Class::High,
            (false, false) => Class::Low,
        }
    }

    fn standing(&self, member: &Member) -> (Reverse<Class>, Rank) {
        (Reverse(self.class(member)), self.order.ranks.get(&member.id).copied().unwrap_or_default())
    }

    /// The turns that wait for a slot, in the order in which they get one.
    pub fn waiting(&self) -> Vec<&Member> {
        let mut waiting: Vec<_> = self.members.iter().filter(|m| m.at == At::Queued && m.holds.is_none()).collect();
        let by_rank = matches!(self.config.policy, Policy::LongestFirst | Policy::GroupProbe);
        waiting.sort_by_key(|member| {
            let (class, rank) = self.standing(member);
            (class, if by_rank { rank } else { (0, 0) }, member.seniority)
        });
        waiting
    }

    /// The turn to be stopped next, if a waiting one for which no slot is on its way outranks it.
    fn victim(&self) -> Option<&Member> {
        let stopping = self.members.iter().filter(|member| member.stopping).count();
        let claim = self.standing(self.waiting().get(stopping)?);
        let running = |m: &&Member| matches!(m.at, At::Running(_)) && !m.stopping;
        let attempt = |m: &Member| if let At::Running(attempt) = m.at { Some(attempt) } else { None };
        let last = self.members.iter().filter(running).max_by_key(|m| (self.standing(m), attempt(m)))?;
        let outranked = match self.config.policy {
            Policy::TrajectoryLevel | Policy::ActionLevel | Policy::GroupProbe => false,
            Policy::Priority | Policy::GroupFcfs => claim.0 < self.standing(last).0,
            Policy::LongestFirst => claim < self.standing(last) && !self.at_boundary(last),
        };
        outranked.then_some(last)
    }

    pub fn judge_preemption(&mut self, id: TrajectoryId, attempt: AttemptId, worker: WorkerId) {
        let victim = self.victim().map(|victim| (victim.id, victim.at, victim.holds));
        assert_eq!(victim, Some((id, At::Running(attempt), Some(worker))));
        let victim = self.member(id).expect("a live trajectory");
        victim.stopping = true;
        let victim = victim.clone();
        assert!(!self.at_boundary(&victim), "nothing overtakes a trajectory in its last version");
    }

    pub fn judge_victims(&self) {
        let victim = self.victim();
        assert!(victim.is_none(), "a turn waits though it outranks {victim:?}");
    }

    /// Workers know the class of what they hold.
    pub fn judge_classes(&self) {
        for (id, (class, _)) in &self.order.told {
            let member = self.members.iter().find(|member| member.id == *id);
            assert_eq!(member.map(|member| self.class(member)), Some(*class), "{member:?}");
        }
    }
}
