//! The paper's FCFS-based priority (Fig. 15): critical groups without a predictor.
//!
//! Everything is as with the priority policy, preemption and hysteresis included, but groups are ordered by when they
//! started. The paper measures what length prediction adds over this (up to 58 % of throughput).

/// All groups score alike, so that the order in which they started decides.
pub fn score() -> u64 {
    0
}
