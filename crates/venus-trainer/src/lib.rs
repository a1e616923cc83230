//! The embedded trainer: GRPO and its relatives on complete groups.
//!
//! [`Trainer::step`] takes a batch of complete groups (`venus_core::message::trainer`) and makes the next weight version;
//! [`Sft`] makes the policy that reinforcement learning starts from. Where to read on:
//!
//! - [`Algorithm`]: what tells GRPO, Dr. GRPO, GSPO, RLOO and REINFORCE++ apart;
//! - [`loss`]: ratio, clip, importance weight, KL, and who `mu`, `old` and `new` are;
//! - [`batch`]: what is refused;
//! - [`checkpoint`]: versions on disk.

mod advantage;
pub mod batch;
pub mod checkpoint;
mod error;
pub mod loss;
mod objective;
mod optimizer;
mod options;
mod random;
mod sft;
mod shard;
mod softmax;
mod trainer;

pub use advantage::{Algorithm, zero_variance};
pub use checkpoint::{Checkpoint, prune};
pub use error::TrainerError;
pub use loss::{Aggregation, Clip, OldPolicy};
pub use optimizer::{AdamW, Update};
pub use options::{Decay, LossOptions, OptimizerOptions, TrainerOptions};
pub use sft::{Demonstration, Sft, SftEvaluation, SftOptions, SftProgress};
pub use trainer::Trainer;
