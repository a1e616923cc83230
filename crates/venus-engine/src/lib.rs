//! The embedded inference engine: continuous batching, paged KV and a radix prefix cache.
//!
//! Tokens in, tokens out. [`Engine`] is a synchronous machine: commands change what is queued, [`Engine::step`] runs one
//! iteration. [`EngineHandle`] runs one on a thread of its own behind two channels. Which turn runs which tokens in which
//! pages is decided by [`venus_core::batch`]; this crate runs the model, draws tokens and keeps the record of each turn.
//!
//! **Same in any batch.** What a turn draws depends on its tokens, its seed and the weights, not on what else runs, on the
//! cache, on chunking or on retractions: the forward pass gives the same bits in any batch, and random numbers are
//! a function of the seed and the position.

mod engine;
mod generation;
mod handle;
mod options;
mod sampler;

pub use engine::{Engine, Timing};
pub use handle::{EngineGone, EngineHandle};
pub use options::{EngineError, EngineOptions, KvSize};
pub use sampler::{Draw, Sampler, SamplingError};
