//! The decision core of Venus.
//!
//! What the paper (VenusRL, arXiv 2610.03286) decides lives here as plain state machines: no clock, no
//! randomness, no IO, no async. The live system, the simulator and the tests drive the same code.

pub mod batch;
pub mod ids;
pub mod message;
pub mod predict;
pub mod residency;
pub mod schedule;
pub mod units;
