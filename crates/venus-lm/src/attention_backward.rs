//! Attention, backward, with the weights recomputed from the tape (as FlashAttention does, in blocks of queries).

use crate::config::Config;
use crate::elementwise;
use crate::kernel::{Isa, View, ViewMut, gemm};
use crate::tape::LayerTape;

/// Queries of a block. Its scores reach to the last key any of them sees, so that about half the square is computed.
const BLOCK: usize = 64;

/// Scores of a block of queries and their derivatives.
#[derive(Default)]
pub(crate) struct AttentionBackward {
    weights: Vec<f32>,
    d_weights: Vec<f32>,
}

/// Where the heads of a sequence lie in rows of queries, keys and values.
struct Heads {
    first_row: usize,
    tokens: usize,
    stride: usize,
    query: usize,
    key: usize,
    value: usize,
    dim: usize,
}

impl AttentionBackward {
    /// Fills `d_qkv` from the derivative of the mixed values.
    pub(crate) fn run(
        &mut self,
        isa: Isa,
        config: &Config,
        sequences: &[&[u32]],
        tape: &LayerTape,
        d_attended: &[f32],
        d_qkv: &mut [f32],
    ) {
        d_qkv.fill(0.0);
        let (query_width, key_width, dim) = (config.query_width(), config.key_width(), config.head_dim);
        let group = config.num_attention_heads / config.num_key_value_heads;
        let mut first_row = 0;
        for sequence in sequences {
            for head in 0..config.num_attention_heads {
                let key = query_width + head / group * dim;
                let stride = query_width + 2 * key_width;
                let heads = Heads {
                    first_row,
                    tokens: sequence.len(),
                    stride,
                    query: head * dim,
                    key,
                    value: key + key_width,
                    dim,
                };
                self.head(isa, &heads, head, config, tape, d_attended, d_qkv);
            }
            first_row += sequence.len();
        }
    }

    #[expect(clippy::too_many_arguments, reason = "a head's place and both sides' activations")]
    fn head(
        &mut self,
        isa: Isa,
        h: &Heads,
        head: usize,
        config: &Config,
        tape: &LayerTape,
        d_attended: &[f32],
        d_qkv: &mut [f32],
    ) {
        let scale = 1.0 / (h.dim as f32).sqrt();
        let width = config.query_width();
        for start in (0..h.tokens).step_by(BLOCK) {
            let end = (start + BLOCK).min(h.tokens);
            let rows = end - start;
            self.weights.resize(rows * end, 0.0);
            self.d_weights.resize(rows * end, 0.0);
            let (query, key, value) = (h.at(h.query, start), h.at(h.key, 0), h.at(h.value, 0));
            let q = View::new(&tape.qkv[query..], rows, h.dim, h.stride);
            let k = View::new(&tape.qkv[key..], end, h.dim, h.stride);
            let v = View::new(&tape.qkv[value..], end, h.dim, h.stride);
            let out_start = (h.first_row + start) * width + head * h.dim;
            let d_out = View::new(&d_attended[out_start..], rows, h.dim, width);
            gemm(ViewMut::new(&mut self.weights, rows, end, end), q, k.t(), false);
            gemm(ViewMut::new(&mut self.d_weights, rows, end, end), d_out, v.t(), false);
            let rows_of_both = self.weights.chunks_exact_mut(end).zip(self.d_weights.chunks_exact_mut(end));
            for (row, (weights, d_weights)) in rows_of_both.enumerate() {
                let token = h.first_row + start + row;
                let (weights, hidden) = weights.split_at_mut(start + row + 1);
                let (d_weights, d_hidden) = d_weights.split_at_mut(start + row + 1);
                let lse = tape.lse[token * config.num_attention_heads + head];
                elementwise::exp_shifted(isa, weights, scale, lse);
                let at = token * width + head * h.dim;
                let delta = elementwise::dot(isa, &d_attended[at..][..h.dim], &tape.attended[at..][..h.dim]);
                elementwise::softmax_backward(isa, weights, d_weights, delta, scale);
                hidden.fill(0.0);
                d_hidden.fill(0.0);
            }
            let weights = View::new(&self.weights, rows, end, end);
            let d_scores = View::new(&self.d_weights, rows, end, end);
            gemm(ViewMut::new(&mut d_qkv[value..], end, h.dim, h.stride), weights.t(), d_out, true);
            gemm(ViewMut::new(&mut d_qkv[query..], rows, h.dim, h.stride), d_scores, k, false);
            gemm(ViewMut::new(&mut d_qkv[key..], end, h.dim, h.stride), d_scores.t(), q, true);
        }
    }
}

impl Heads {
    /// Offset of a column in the row of a token of the sequence.
    fn at(&self, column: usize, token: usize) -> usize {
        (self.first_row + token) * self.stride + column
    }
}
