//! The embedded trainer: GRPO and its relatives on complete groups.
