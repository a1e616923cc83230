//! The forward pass of the layers, one code for generation and training.

use crate::attention::{self, Queries};
use crate::config::Config;
use crate::elementwise;
use crate::inference::Segment;
use crate::kernel::Matrix;
use crate::kv::Kv;
use crate::rope::RopeTable;
use crate::tape::LayerTape;
use crate::workers::Workers;

/// One layer's weights.
pub(crate) struct LayerWeights<'a> {
    pub input_norm: &'a [f32],
    pub qkv: Matrix<'a>,
    /// Query norm, then key norm; empty without them.
    pub qk_norm: &'a [f32],
    pub attention_output: Matrix<'a>,
    pub post_norm: &'a [f32],
    pub gate_up: Matrix<'a>,
    pub down: Matrix<'a>,
}

/// What stays the same through the layers of a pass.
pub(crate) struct Pass<'a> {
    pub config: &'a Config,
    pub workers: &'a Workers,
    pub rope: &'a RopeTable,
    /// Tokens of all segments follow each other as rows.
    pub segments: &'a [Segment<'a>],
}

/// Activations of a pass, `[tokens, width]`; they grow to the largest pass and stay.
#[derive(Default)]
pub(crate) struct Activations {
    /// The residual stream.
    pub x: Vec<f32>,
    pub normed: Vec<f32>,
    pub qkv: Vec<f32>,
    pub attended: Vec<f32>,
    pub gate_up: Vec<f32>,
    pub inner: Vec<f32>,
}

impl Activations {
    /// Sizes all buffers for so many tokens.
    pub(crate) fn resize(&mut self, config: &Config, tokens: usize) {
        let qkv = config.query_width() + 2 * config.key_width();
        let sizes = [
            (&mut self.x, config.hidden_size),
            (&mut self.normed, config.hidden_size),
            (&mut self.qkv, qkv),
            (&mut self.attended, config.query_width()),
            (&mut self.gate_up, 2 * config.intermediate_size),
            (&mut self.inner, config.intermediate_size),
        ];
        for (buffer, width) in sizes {
            buffer.resize(tokens * width, 0.0);
        }
    }
}

impl Pass<'_> {
    /// Number of tokens.
    pub(crate) fn tokens(&self) -> usize {
        self.segments.iter().map(|segment| segment.tokens.len()).sum()
    }

    /// Runs one layer on the residual stream `acts.x` and stores its keys and values in layer `kv_layer` of `kv`. The tape
    /// keeps what the backward pass needs.
    pub(crate) fn layer(
        &self,
        weights: &LayerWeights,
        kv: &mut Kv,
        kv_layer: usize,
        acts: &mut Activations,
        mut tape: Option<&mut LayerTape>,
    ) {
        let (tokens, workers) = (self.tokens(), self.workers);
        if let Some(tape) = tape.as_deref_mut() {
            tape.keep_input(&acts.x);
        }
        self.norm(&acts.x, weights.input_norm, &mut acts.normed);
        weights.qkv.apply(workers, tokens, &acts.normed, &mut acts.qkv, false);
        if let Some(tape) = tape.as_deref_mut() {
            tape.keep_unnormed(self.config, &acts.qkv);
        }
        self.place_heads(weights.qk_norm, &mut acts.qkv, kv, kv_layer);
        let queries =
            Queries { qkv: &acts.qkv, stride: acts.qkv.len() / tokens, query_heads: self.config.num_attention_heads };
        let lse = tape.as_deref_mut().map(|tape| tape.lse(tokens * self.config.num_attention_heads));
        attention::attend(workers, kv, kv_layer, self.segments, &queries, &mut acts.attended, lse);
        weights.attention_output.apply(workers, tokens, &acts.attended, &mut acts.x, true);
        self.norm(&acts.x, weights.post_norm, &mut acts.normed);
        weights.gate_up.apply(workers, tokens, &acts.normed, &mut acts.gate_up, false);
        self.gate(&acts.gate_up, &mut acts.inner);
        if let Some(tape) = tape {
            tape.keep_rest(acts);
        }
        weights.down.apply(workers, tokens, &acts.inner, &mut acts.x, true);
    }

    /// RMS norm of every row.
    pub(crate) fn norm(&self, x: &[f32], weight: &[f32], out: &mut [f32]) {
        for (x, out) in x.chunks_exact(weight.len()).zip(out.chunks_exact_mut(weight.len())) {
            elementwise::rms_norm(self.workers.isa(), x, weight, self.config.rms_norm_eps, out);
        }
    }

    /// The gated unit of every row.
    pub(crate) fn gate(&self, gate_up: &[f32], inner: &mut [f32]) {
        let width = self.config.intermediate_size;
        for (gate_up, inner) in gate_up.chunks_exact(2 * width).zip(inner.chunks_exact_mut(width)) {
            elementwise::swiglu(self.workers.isa(), gate_up, inner);
        }
    }

    /// Normalises (Qwen3) and rotates queries and keys in place, and stores keys and values.
    fn place_heads(&self, qk_norm: &[f32], qkv: &mut [f32], kv: &mut Kv, kv_layer: usize) {
        let (config, isa, dim) = (self.config, self.workers.isa(), self.config.head_dim);
        let (query_width, key_width) = (config.query_width(), config.key_width());
        let mut rows = qkv.chunks_exact_mut(query_width + 2 * key_width);
        for segment in self.segments {
            for (position, row) in (segment.start..segment.start + segment.tokens.len()).zip(&mut rows) {
                let angles = self.rope.at(position);
                let (turned, values) = row.split_at_mut(query_width + key_width);
                for (head, values_of_head) in turned.chunks_exact_mut(dim).enumerate() {
                    if !qk_norm.is_empty() {
                        let which = usize::from(head >= config.num_attention_heads);
                        let weight = &qk_norm[which * dim..][..dim];
                        elementwise::rms_norm_in_place(isa, values_of_head, weight, config.rms_norm_eps);
                    }
                    elementwise::rotate(isa, values_of_head, angles, 1.0);
                }
                let (page, slot) = (segment.pages[position / kv.page_size()], position % kv.page_size());
                let keys = turned[query_width..].chunks_exact(dim);
                for (head, (key, value)) in keys.zip(values.chunks_exact(dim)).enumerate() {
                    kv.store(page, slot, kv_layer, head, key, value);
                }
            }
        }
    }
}
