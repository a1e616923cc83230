//! A decoder-only language model on the CPU: tokenizer, weights, one forward pass and its backward.
//!
//! Models of the Llama and Qwen3 family in f32, read from and written as Hugging Face directories. [`Inference`] generates
//! for many sequences at once over paged keys and values ([`Kv`]); [`gradient()`] trains. Both run the same layer code, and
//! the logits of a token are the same bits in both, in any batch.

mod attention;
mod attention_backward;
mod backward;
mod checkpoint;
mod config;
mod decoder;
mod elementwise;
pub mod gguf;
mod gradient;
mod inference;
mod kernel;
mod kv;
mod layout;
mod model;
mod rope;
mod tape;
mod tokenizer;
mod workers;

pub use checkpoint::ModelError;
pub use config::{Config, ConfigError};
pub use gradient::{TrainWorkspace, gradient, logits};
pub use inference::{Inference, LogitRows, Segment};
pub use kv::Kv;
pub use layout::{Layout, Tensor};
pub use model::Model;
pub use tokenizer::{Tokenizer, TokenizerError};
