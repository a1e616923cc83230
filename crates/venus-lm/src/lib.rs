//! A decoder-only language model on the CPU: tokenizer, weights, one forward pass and its backward.
