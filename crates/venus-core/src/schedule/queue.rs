//! The queue of turns that wait for a slot.

use super::stats::ClassCounts;
use crate::ids::TrajectoryId;
use crate::message::engine::Class;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Seniority: handed out once when a turn is first queued, and kept however often it has to be queued again
/// (vllm#41951: a preempted request that lost its place was overtaken by newcomers).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ticket(u64);

/// Where a turn stands in the queue; the smallest place goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub class: Reverse<Class>,
    /// 0 unless the policy orders by rank.
    pub rank: u64,
    pub ticket: Ticket,
}

/// Waiting turns by place. Tickets are unique, so places are.
#[derive(Debug, Default)]
pub(super) struct TurnQueue {
    turns: BTreeMap<Place, TrajectoryId>,
    classes: ClassCounts,
    next: Ticket,
}

impl TurnQueue {
    /// A ticket junior to all handed out so far.
    pub fn ticket(&mut self) -> Ticket {
        let ticket = self.next;
        self.next.0 += 1;
        ticket
    }

    pub fn insert(&mut self, place: Place, trajectory: TrajectoryId) {
        if self.turns.insert(place, trajectory).is_none() {
            *self.classes.of(place.class.0) += 1;
        }
    }

    pub fn remove(&mut self, place: Place) -> Option<TrajectoryId> {
        let trajectory = self.turns.remove(&place)?;
        *self.classes.of(place.class.0) -= 1;
        Some(trajectory)
    }

    /// The class of the turn that goes after `ahead` others, if so many wait. Costs nothing.
    pub fn class_after(&self, ahead: usize) -> Option<Class> {
        let ClassCounts { low, high, boundary } = self.classes;
        let up_to = [(Class::Boundary, boundary), (Class::High, boundary + high), (Class::Low, boundary + high + low)];
        up_to.into_iter().find(|&(_, count)| ahead < count).map(|(class, _)| class)
    }

    /// The place of the turn that goes after `ahead` others. Costs O(ahead).
    pub fn place_after(&self, ahead: usize) -> Option<Place> {
        self.turns.keys().nth(ahead).copied()
    }

    /// The turn that goes next.
    pub fn first(&self) -> Option<(Place, TrajectoryId)> {
        self.turns.first_key_value().map(|(&place, &trajectory)| (place, trajectory))
    }

    pub fn get(&self, place: Place) -> Option<TrajectoryId> {
        self.turns.get(&place).copied()
    }

    pub fn len(&self) -> usize {
        self.turns.len()
    }
}
