//! The embedded parts behind the plane's doors: engine, env node and trainer in this process.
//!
//! Everything that passes is a message of `venus_core::message`, so that each part can move into a process of its own.

mod engine;
mod sandbox;
mod tokenizer;
mod trainer;

pub use engine::start_engine;
pub use sandbox::{EmbeddedNode, EmbeddedSandbox};
pub use tokenizer::ModelTokenizer;
pub use trainer::EmbeddedTrainer;
