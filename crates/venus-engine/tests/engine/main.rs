//! The engine against a plain recompute of every token, without batches, pages or cache.

mod equality;
mod fixture;
mod lifecycle;
mod residency;
mod thread;
mod weights;
