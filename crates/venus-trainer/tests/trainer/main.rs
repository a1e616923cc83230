//! The crate's contract, by part. One binary, so that what the parts share is built once.

#![expect(clippy::unwrap_used, reason = "a helper of tests may panic, too")]

mod batch;
mod loss;
mod optimizer;
mod sft;
mod step;
mod support;
