//! What the forward pass leaves for the backward pass. Norms, the gated unit and attention weights are recomputed: cheap.

use crate::Config;
use crate::decoder::Activations;

/// One layer's activations, `[tokens, width]`.
#[derive(Default)]
pub(crate) struct LayerTape {
    /// The residual stream before the layer.
    pub input: Vec<f32>,
    /// Queries and keys before their norm; empty without `qk_norm`.
    pub unnormed: Vec<f32>,
    /// Rotated queries and keys, and values.
    pub qkv: Vec<f32>,
    pub attended: Vec<f32>,
    /// Logarithm of the softmax's denominator, `[tokens, query heads]`.
    pub lse: Vec<f32>,
    /// The residual stream between attention and feed-forward.
    pub middle: Vec<f32>,
    pub gate_up: Vec<f32>,
}

impl LayerTape {
    pub(crate) fn keep_input(&mut self, x: &[f32]) {
        keep(&mut self.input, x);
    }

    pub(crate) fn keep_unnormed(&mut self, config: &Config, qkv: &[f32]) {
        self.unnormed.clear();
        if config.qk_norm {
            let turned = config.query_width() + config.key_width();
            for row in qkv.chunks_exact(turned + config.key_width()) {
                self.unnormed.extend_from_slice(&row[..turned]);
            }
        }
    }

    pub(crate) fn lse(&mut self, floats: usize) -> &mut [f32] {
        self.lse.resize(floats, 0.0);
        &mut self.lse
    }

    /// Keeps the rest; called before the down projection is added to the residual stream.
    pub(crate) fn keep_rest(&mut self, acts: &Activations) {
        keep(&mut self.qkv, &acts.qkv);
        keep(&mut self.attended, &acts.attended);
        keep(&mut self.middle, &acts.x);
        keep(&mut self.gate_up, &acts.gate_up);
    }
}

fn keep(to: &mut Vec<f32>, from: &[f32]) {
    to.clear();
    to.extend_from_slice(from);
}
