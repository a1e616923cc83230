//! Slots: the right to generate on a worker.

use crate::ids::{TrajectoryId, WorkerId};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Default)]
struct Worker {
    slots: u32,
    holders: BTreeSet<TrajectoryId>,
    /// Holders beyond `slots`, left over from a cut.
    excess: u32,
}

impl Worker {
    fn used(&self) -> u32 {
        u32::try_from(self.holders.len()).unwrap_or(u32::MAX)
    }
}

/// The slots of all workers and who holds them.
#[derive(Debug, Default)]
pub(super) struct Slots {
    workers: BTreeMap<WorkerId, Worker>,
    /// Workers with a free slot, by slots in use.
    open: BTreeSet<(u32, WorkerId)>,
}

impl Slots {
    /// Adds a worker, or changes its number of slots. Who holds a slot keeps it: after a cut the worker gets
    /// nothing new until enough came back.
    pub fn resize(&mut self, id: WorkerId, slots: u32) {
        self.change(id, |worker| {
            worker.slots = slots;
            worker.excess = worker.used().saturating_sub(slots);
        });
    }

    /// Removes a worker; who held its slots, if it was known.
    pub fn lose(&mut self, id: WorkerId) -> Option<BTreeSet<TrajectoryId>> {
        let worker = self.workers.remove(&id)?;
        self.open.remove(&(worker.used(), id));
        Some(worker.holders)
    }

    /// The worker that a turn should go to: its home if that has a free slot, else the one with the fewest
    /// slots in use.
    ///
    /// Staying home reuses the prefix, but a turn never waits for its home while another worker has a free
    /// slot: strict affinity left engines idle beside a crowded one (prime-rl#3255). A turn without a home
    /// goes by load alone, never by what some cache might hold (sglang#14532).
    pub fn choose(&self, home: Option<WorkerId>) -> Option<WorkerId> {
        let at_home = home.filter(|id| self.workers.get(id).is_some_and(|worker| worker.used() < worker.slots));
        at_home.or_else(|| self.open.first().map(|&(_, id)| id))
    }

    /// Gives a slot of a worker to a trajectory.
    pub fn take(&mut self, id: WorkerId, holder: TrajectoryId) {
        self.change(id, |worker| {
            worker.holders.insert(holder);
        });
    }

    /// Takes the slot back.
    pub fn release(&mut self, id: WorkerId, holder: TrajectoryId) {
        self.change(id, |worker| {
            worker.holders.remove(&holder);
            worker.excess = worker.excess.min(worker.used().saturating_sub(worker.slots));
        });
    }

    /// Changes a worker and keeps `open` true to it.
    fn change(&mut self, id: WorkerId, change: impl FnOnce(&mut Worker)) {
        let worker = self.workers.entry(id).or_default();
        self.open.remove(&(worker.used(), id));
        change(worker);
        if worker.used() < worker.slots {
            self.open.insert((worker.used(), id));
        }
    }

    pub fn knows(&self, id: WorkerId) -> bool {
        self.workers.contains_key(&id)
    }

    pub fn holds(&self, id: WorkerId, holder: TrajectoryId) -> bool {
        self.workers.get(&id).is_some_and(|worker| worker.holders.contains(&holder))
    }

    /// Whether some worker has a free slot.
    pub fn any_free(&self) -> bool {
        !self.open.is_empty()
    }

    /// Slots in all and slots free, over all workers.
    pub fn totals(&self) -> (u64, u64) {
        self.workers.values().fold((0, 0), |(all, free), worker| {
            (all + u64::from(worker.slots), free + u64::from(worker.slots.saturating_sub(worker.used())))
        })
    }

    /// Slots held, over all workers.
    pub fn held(&self) -> usize {
        self.workers.values().map(|worker| worker.holders.len()).sum()
    }

    /// A worker that was given more turns than it has slots; what a cut left over does not count.
    pub fn overcommitted(&self) -> Option<WorkerId> {
        let over = |worker: &Worker| worker.used() > worker.slots + worker.excess;
        self.workers.iter().find(|(_, worker)| over(worker)).map(|(&id, _)| id)
    }

    /// Whether `open` lists exactly the workers with a free slot.
    pub fn index_is_true(&self) -> bool {
        let open = self.workers.iter().filter(|(_, worker)| worker.used() < worker.slots);
        open.map(|(&id, worker)| (worker.used(), id)).collect::<BTreeSet<_>>() == self.open
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_stays_home_while_home_has_a_slot_and_moves_when_only_others_do() {
        let mut slots = Slots::default();
        slots.resize(WorkerId(0), 1);
        slots.resize(WorkerId(1), 2);
        slots.take(WorkerId(1), TrajectoryId(1));
        assert_eq!(slots.choose(Some(WorkerId(1))), Some(WorkerId(1)), "home, though busier");
        slots.take(WorkerId(1), TrajectoryId(2));
        assert_eq!(slots.choose(Some(WorkerId(1))), Some(WorkerId(0)), "home is full");
        slots.take(WorkerId(0), TrajectoryId(3));
        assert_eq!(slots.choose(Some(WorkerId(1))), None);
    }

    // sglang#14532: turns whose prefix is cached nowhere all went to the same worker.
    #[test]
    fn turns_without_a_home_spread_by_load() {
        let mut slots = Slots::default();
        (0..4).for_each(|id| slots.resize(WorkerId(id), 8));
        for turn in 0..16 {
            let worker = slots.choose(None).unwrap();
            slots.take(worker, TrajectoryId(turn));
        }
        assert!(slots.workers.values().all(|worker| worker.used() == 4));
    }

    #[test]
    fn a_worker_whose_slots_were_cut_gets_nothing_new_until_enough_came_back() {
        let mut slots = Slots::default();
        slots.resize(WorkerId(0), 2);
        slots.take(WorkerId(0), TrajectoryId(0));
        slots.take(WorkerId(0), TrajectoryId(1));
        slots.resize(WorkerId(0), 1);
        slots.release(WorkerId(0), TrajectoryId(0));
        assert_eq!(slots.choose(Some(WorkerId(0))), None);
        slots.release(WorkerId(0), TrajectoryId(1));
        assert_eq!(slots.choose(None), Some(WorkerId(0)));
    }
}
