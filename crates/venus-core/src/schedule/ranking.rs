//! The order of the groups in flight, and which of them are critical.
//!
//! Three ordered sets, each before the next: as many groups as are needed, those that hysteresis keeps, and the rest.
//! A change moves few groups across the two borders, so it costs O(log n), and ranks never have to be counted.

use crate::ids::GroupId;
use std::collections::{BTreeMap, BTreeSet};

/// A group's place in the order; the smallest comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct GroupKey {
    /// Not yet due: it is younger than the staleness boundary. Due groups come first.
    pub young: bool,
    /// The policy's score; 0 for due groups, whom no prediction sets back.
    pub score: u64,
    /// Place in the order in which groups started. Unique.
    pub order: u64,
    pub group: GroupId,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    key: GroupKey,
    critical: bool,
}

/// The groups in flight in order, each critical or not.
#[derive(Debug, Default)]
pub(super) struct Ranking {
    entries: BTreeMap<GroupId, Entry>,
    /// The groups needed: critical.
    front: BTreeSet<GroupKey>,
    /// The groups just behind: critical if they were before, or due.
    margin: BTreeSet<GroupKey>,
    rest: BTreeSet<GroupKey>,
    /// Groups that may have changed sides since the last call of [`Ranking::settle`].
    moved: BTreeSet<GroupId>,
    critical: usize,
}

impl Ranking {
    /// Adds a group or moves it to another place.
    pub fn set(&mut self, key: GroupKey) {
        let known = self.entries.get(&key.group).copied();
        if known.is_some_and(|entry| entry.key == key) {
            return;
        }
        if let Some(entry) = known {
            self.take(&entry.key);
        }
        self.entries.insert(key.group, Entry { key, critical: known.is_some_and(|entry| entry.critical) });
        self.moved.insert(key.group);
        let before_last = |set: &BTreeSet<GroupKey>| set.last().is_some_and(|last| key < *last);
        if before_last(&self.front) {
            self.front.insert(key);
        } else if before_last(&self.margin) {
            self.margin.insert(key);
        } else {
            self.rest.insert(key);
        }
    }

    /// Forgets a group.
    pub fn remove(&mut self, group: GroupId) {
        let Some(entry) = self.entries.remove(&group) else { return };
        self.critical -= usize::from(entry.critical);
        self.moved.remove(&group);
        self.take(&entry.key);
    }

    fn take(&mut self, key: &GroupKey) {
        let _ = self.front.remove(key) || self.margin.remove(key) || self.rest.remove(key);
    }

    /// Makes the first `need` groups critical, and lets those that were stay so up to rank `keep`; the groups that
    /// changed sides, in the order of their ids.
    ///
    /// A due group within `keep` is critical whether it was or not: so whenever a group is critical, every due group
    /// before it is too, which is what bounds overtaking.
    pub fn settle(&mut self, need: usize, keep: usize) -> Vec<GroupId> {
        let Self { front, margin, rest, moved, .. } = self;
        fn pass(moved: &mut BTreeSet<GroupId>, key: Option<GroupKey>, to: &mut BTreeSet<GroupKey>) -> bool {
            key.is_some_and(|key| moved.insert(key.group) | to.insert(key))
        }
        while front.len() > need && pass(moved, front.pop_last(), margin) {}
        while front.len() < need && pass(moved, margin.pop_first().or_else(|| rest.pop_first()), front) {}
        while margin.len() > keep - need && pass(moved, margin.pop_last(), rest) {}
        while margin.len() < keep - need && pass(moved, rest.pop_first(), margin) {}
        let moved = std::mem::take(&mut self.moved);
        moved.into_iter().filter(|&group| self.decide(group)).collect()
    }

    /// Decides whether a group is critical by the set it is in; whether that changed.
    fn decide(&mut self, group: GroupId) -> bool {
        let Some(entry) = self.entries.get_mut(&group) else { return false };
        let critical =
            self.front.contains(&entry.key) || self.margin.contains(&entry.key) && (entry.critical || !entry.key.young);
        let before = std::mem::replace(&mut entry.critical, critical);
        self.critical = self.critical + usize::from(critical) - usize::from(before);
        before != critical
    }

    pub fn is_critical(&self, group: GroupId) -> bool {
        self.entries.get(&group).is_some_and(|entry| entry.critical)
    }

    /// How many groups are critical.
    pub fn critical(&self) -> usize {
        self.critical
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn key(&self, group: GroupId) -> Option<GroupKey> {
        self.entries.get(&group).map(|entry| entry.key)
    }

    /// All groups in order, each critical or not.
    pub fn iter(&self) -> impl Iterator<Item = (GroupKey, bool)> {
        let sets = self.front.iter().chain(&self.margin).chain(&self.rest);
        sets.map(|&key| (key, self.is_critical(key.group)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(group: u64, score: u64) -> GroupKey {
        GroupKey { young: true, score, order: group, group: GroupId(group) }
    }

    fn critical(ranking: &Ranking) -> Vec<u64> {
        ranking.iter().filter(|(_, critical)| *critical).map(|(key, _)| key.group.0).collect()
    }

    #[test]
    fn a_critical_group_stays_so_until_it_ranks_beyond_what_is_kept() {
        let mut ranking = Ranking::default();
        (0..8).for_each(|group| ranking.set(key(group, 10 * group)));
        assert_eq!(ranking.settle(4, 5).len(), 4);
        ranking.set(key(7, 5));
        assert_eq!(ranking.settle(4, 5), [GroupId(7)], "3 ranks fifth and stays");
        assert_eq!(critical(&ranking), [0, 7, 1, 2, 3]);
        ranking.set(key(6, 6));
        assert_eq!(ranking.settle(4, 5), [GroupId(3), GroupId(6)], "3 ranks sixth");
        ranking.set(key(3, 15));
        assert_eq!(ranking.settle(4, 5), [GroupId(2)], "3 ranks fifth and does not come back, 2 ranks sixth");
        assert_eq!(critical(&ranking), [0, 7, 6, 1]);
    }

    #[test]
    fn due_groups_come_first_whatever_their_score_and_are_critical_within_the_margin() {
        let mut ranking = Ranking::default();
        (0..6).for_each(|group| ranking.set(key(group, group)));
        ranking.settle(4, 5);
        for group in 0..5 {
            ranking.set(GroupKey { young: false, score: 0, ..key(group, 0) });
        }
        ranking.settle(4, 5);
        assert_eq!(critical(&ranking), [0, 1, 2, 3, 4]);
        assert_eq!(ranking.critical(), 5);
    }
}
