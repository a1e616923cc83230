//! Heddle's progressive priority (arXiv 2603.28101): the longest predicted remainder first.
//!
//! Longest-processing-time-first keeps the makespan of *all* trajectories short, which is the right aim when the whole
//! batch is waited for (async factor 1.0); the priority policy aims at the next B groups instead.
//!
//! As published: the prediction is renewed every turn, a returning turn is inserted by it, and if the head of the queue
//! outranks the lowest active request, that one is preempted and keeps its prefix. Between equals nobody is preempted.
//!
//! Not here: placement of trajectories over workers by dynamic programming, migration of KV in tool gaps, and the
//! choice of parallelism per worker. They are not decisions about slots; turns go home as under the other policies.
//! The boundary class goes first here too, since versions are the host's business.

/// The rank of a trajectory with this many tokens left.
pub fn rank(remaining: u64) -> u64 {
    u64::MAX - remaining
}
