//! The queue of turns that wait for a slot.

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
    pub ticket: Ticket,
}

/// Waiting turns by place. Tickets are unique, so places are.
#[derive(Debug, Default)]
pub(super) struct TurnQueue {
    turns: BTreeMap<Place, TrajectoryId>,
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
        self.turns.insert(place, trajectory);
    }

    pub fn remove(&mut self, place: Place) -> Option<TrajectoryId> {
        self.turns.remove(&place)
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
