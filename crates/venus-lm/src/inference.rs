//! Generation: many sequences in one pass over paged keys and values.

use crate::decoder::{Activations, LayerWeights, Pass};
use crate::elementwise;
use crate::kernel::{Matrix, Packed};
use crate::rope::RopeTable;
use crate::workers::Workers;
use crate::{Config, Kv, Model};
use std::ops::Range;
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
///
/// A token's logits are the same bits whatever else is in the pass, however its prompt was cut into chunks, in whichever
/// pages its keys and values lie, and on however many threads.
pub struct Inference {
    config: Config,
    /// Absent when tied: the rows are then read from `output`.
    embedding: Option<Vec<f32>>,
    layers: Vec<PackedLayer>,
    final_norm: Vec<f32>,
    output: Packed,
    workers: Workers,
    rope: RopeTable,
    acts: Activations,
    wanted: Vec<f32>,
    logits: Vec<f32>,
}

struct PackedLayer {
    input_norm: Vec<f32>,
    qkv: Packed,
    qk_norm: Vec<f32>,
    attention_output: Packed,
    post_norm: Vec<f32>,
    gate_up: Packed,
    down: Packed,
}

impl Inference {
    /// Lays the weights out for generation on `threads` threads. The model is not kept.
    pub fn new(model: Arc<Model>, threads: usize) -> Inference {
        let config = model.config.clone();
        let (layout, hidden) = (model.layout(), config.hidden_size);
        let part = |range: &Range<usize>| model.params()[range.clone()].to_vec();
        let pack = |range: &Range<usize>, inputs: usize| {
            Packed::new(&model.params()[range.clone()], range.len() / inputs, inputs)
        };
        let layers = layout.layers.iter().map(|layer| PackedLayer {
            input_norm: part(&layer.input_norm),
            qkv: pack(&layer.qkv, hidden),
            qk_norm: part(&layer.qk_norm),
            attention_output: pack(&layer.attention_output, config.query_width()),
            post_norm: part(&layer.post_norm),
            gate_up: pack(&layer.gate_up, hidden),
            down: pack(&layer.down, config.intermediate_size),
        });
        Inference {
            embedding: (!config.tie_word_embeddings).then(|| part(&layout.embedding)),
            layers: layers.collect(),
            final_norm: part(&layout.final_norm),
            output: pack(&layout.output, hidden),
            workers: Workers::new(threads),
            rope: RopeTable::new(config.head_dim, config.rope_theta),
            acts: Activations::default(),
            wanted: Vec::new(),
            logits: Vec::new(),
            config,
        }
    }

    /// The model's shape.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Runs the segments' tokens through the model: writes their keys and values into the pages and returns the wanted
    /// logits, rows in segment order, `vocab_size` floats a row. A position is written once a pass and read only by
    /// segments whose block table names its page, so segments of one pass must not share the pages they write.
    ///
    /// # Panics
    /// On a token outside the vocabulary, an empty segment, a block table that is too short or names a page that `kv`
    /// lacks, or a `kv` made for another shape.
    pub fn forward(&mut self, kv: &mut Kv, segments: &[Segment]) -> &[f32] {
        self.check(kv, segments);
        let tokens: usize = segments.iter().map(|segment| segment.tokens.len()).sum();
        let end = segments.iter().map(|segment| segment.start + segment.tokens.len()).max();
        self.rope.cover(end.unwrap_or(0));
        self.acts.resize(&self.config, tokens);
        self.embed(segments);
        if tokens > 0 {
            self.run_layers(kv, segments, tokens);
        }
        self.project(segments);
        &self.logits
    }

    fn check(&self, kv: &Kv, segments: &[Segment]) {
        let config = &self.config;
        let shape = (config.num_hidden_layers, config.num_key_value_heads, config.head_dim);
        let found = (kv.shape().layers, kv.shape().heads, kv.shape().head_dim);
        assert_eq!(shape, found, "the Kv was made for another (layers, heads, head_dim)");
        for segment in segments {
            assert!(!segment.tokens.is_empty(), "a segment has at least one token");
            let pages = (segment.start + segment.tokens.len()).div_ceil(kv.page_size());
            assert!(segment.pages.len() >= pages, "{} pages given, {pages} needed", segment.pages.len());
            let absent = segment.pages[..pages].iter().find(|page| **page as usize >= kv.pages());
            assert!(absent.is_none(), "page {absent:?} of {}", kv.pages());
            let unknown = segment.tokens.iter().find(|token| **token as usize >= config.vocab_size);
            assert!(unknown.is_none(), "token {unknown:?} is outside the vocabulary of {}", config.vocab_size);
        }
    }

    fn embed(&mut self, segments: &[Segment]) {
        let hidden = self.config.hidden_size;
        let tokens = segments.iter().flat_map(|segment| segment.tokens);
        for (token, x) in tokens.zip(self.acts.x.chunks_exact_mut(hidden)) {
            match &self.embedding {
                Some(rows) => x.copy_from_slice(&rows[*token as usize * hidden..][..hidden]),
                None => self.output.row(*token as usize, x),
            }
        }
    }

    fn run_layers(&mut self, kv: &mut Kv, segments: &[Segment], tokens: usize) {
        let Inference { config, layers, workers, rope, acts, .. } = self;
        let pass = Pass { config, workers, rope, segments };
        let operations = layers.first().map_or(0, |layer| 2 * tokens * layer.gate_up.len());
        workers.enter(operations, || {
            for (index, layer) in layers.iter().enumerate() {
                pass.layer(&layer.weights(), kv, index, acts, None);
            }
        });
    }

    /// The output projection of the wanted rows only.
    fn project(&mut self, segments: &[Segment]) {
        let Config { hidden_size, vocab_size, rms_norm_eps, .. } = self.config;
        self.wanted.clear();
        let mut end = 0;
        for segment in segments {
            let start = end;
            end += segment.tokens.len();
            let rows = match segment.logits {
                LogitRows::None => end..end,
                LogitRows::Last => end - 1..end,
                LogitRows::All => start..end,
            };
            self.wanted.extend_from_slice(&self.acts.x[rows.start * hidden_size..rows.end * hidden_size]);
        }
        for row in self.wanted.chunks_exact_mut(hidden_size) {
            elementwise::rms_norm_in_place(self.workers.isa(), row, &self.final_norm, rms_norm_eps);
        }
        let rows = self.wanted.len() / hidden_size;
        self.logits.resize(rows * vocab_size, 0.0);
        Matrix::Packed(&self.output).apply(&self.workers, rows, &self.wanted, &mut self.logits, false);
    }
}

impl PackedLayer {
    fn weights(&self) -> LayerWeights<'_> {
        LayerWeights {
            input_norm: &self.input_norm,
            qkv: Matrix::Packed(&self.qkv),
            qk_norm: &self.qk_norm,
            attention_output: Matrix::Packed(&self.attention_output),
            post_norm: &self.post_norm,
            gate_up: Matrix::Packed(&self.gate_up),
            down: Matrix::Packed(&self.down),
        }
    }
}
