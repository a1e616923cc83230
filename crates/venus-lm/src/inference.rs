//! Generation: many sequences in one pass over paged keys and values.

use crate::{Kv, Model};
use std::sync::Arc;

/// Which rows of a segment's logits are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogitRows {
    /// None: a chunk of a prompt whose next token is not drawn yet.
    None,
    /// The last token's: what the next token is drawn from.
    Last,
    /// Every token's.
    All,
}

/// New tokens of one sequence in a pass.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    /// The new tokens; at least one.
    pub tokens: &'a [u32],
    /// Position of `tokens[0]`; positions before it are read from the pages.
    pub start: usize,
    /// Block table: page `i` holds positions `i * page_size ..`. Covers `start + tokens.len()` positions; may be longer.
    pub pages: &'a [u32],
    /// Which logits to compute.
    pub logits: LogitRows,
}

/// A model laid out for generation, with the buffers of a pass.
pub struct Inference {
    logits: Vec<f32>,
}

impl Inference {
    /// Lays the weights out for generation on `threads` threads. The model is not kept.
    pub fn new(model: Arc<Model>, threads: usize) -> Inference {
        let _ = (model, threads);
        Inference { logits: Vec::new() }
    }

    /// Runs the segments' tokens through the model: writes their keys and values into the pages and returns the wanted
    /// logits, rows in segment order, `vocab_size` floats a row.
    ///
    /// # Panics
    /// On a token outside the vocabulary, an empty segment, or a block table that is too short or names a page that
    /// `kv` lacks.
    pub fn forward(&mut self, kv: &mut Kv, segments: &[Segment]) -> &[f32] {
        let _ = (kv, segments);
        &self.logits
    }
}
