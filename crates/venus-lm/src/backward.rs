//! The backward pass of one layer.

use crate::attention_backward::AttentionBackward;
use crate::config::Config;
use crate::decoder::{Activations, Pass};
use crate::elementwise;
use crate::kernel::{View, ViewMut, gemm};
use crate::layout::LayerRanges;
use crate::tape::LayerTape;
use std::ops::Range;

/// Derivatives with respect to activations, `[tokens, width]`.
#[derive(Default)]
pub(crate) struct Backward {
    /// Of the residual stream: after a layer when it goes in, before it when it comes out.
    pub dx: Vec<f32>,
    d_normed: Vec<f32>,
    d_qkv: Vec<f32>,
    d_attended: Vec<f32>,
    d_gate_up: Vec<f32>,
    d_inner: Vec<f32>,
    attention: AttentionBackward,
}

impl Backward {
    /// Sizes the buffers and sets the stream's derivative to 0.
    pub(crate) fn begin(&mut self, config: &Config, tokens: usize) {
        self.dx.clear();
        self.dx.resize(tokens * config.hidden_size, 0.0);
        let sizes = [
            (&mut self.d_normed, config.hidden_size),
            (&mut self.d_qkv, config.query_width() + 2 * config.key_width()),
            (&mut self.d_attended, config.query_width()),
            (&mut self.d_gate_up, 2 * config.intermediate_size),
            (&mut self.d_inner, config.intermediate_size),
        ];
        for (buffer, width) in sizes {
            buffer.resize(tokens * width, 0.0);
        }
    }

    /// Takes `dx` back through a layer and adds the derivatives of its weights to `grads`.
    #[expect(clippy::too_many_arguments, reason = "a layer's weights, activations and both kinds of derivative")]
    pub(crate) fn layer(
        &mut self,
        pass: &Pass,
        sequences: &[&[u32]],
        params: &[f32],
        layer: &LayerRanges,
        tape: &LayerTape,
        acts: &mut Activations,
        grads: &mut [f32],
    ) {
        self.feed_forward(pass, params, layer, tape, acts, grads);
        self.attention(pass, sequences, params, layer, tape, acts, grads);
    }

    fn feed_forward(
        &mut self,
        pass: &Pass,
        params: &[f32],
        layer: &LayerRanges,
        tape: &LayerTape,
        acts: &mut Activations,
        grads: &mut [f32],
    ) {
        let (isa, width) = (pass.workers.isa(), pass.config.intermediate_size);
        pass.gate(&tape.gate_up, &mut acts.inner);
        linear_backward(&self.dx, &acts.inner, params, &layer.down, width, &mut self.d_inner, grads);
        let rows = self.d_inner.chunks_exact(width).zip(self.d_gate_up.chunks_exact_mut(2 * width));
        for (gate_up, (d_inner, d_gate_up)) in tape.gate_up.chunks_exact(2 * width).zip(rows) {
            elementwise::swiglu_backward(isa, gate_up, d_inner, d_gate_up);
        }
        let hidden = pass.config.hidden_size;
        pass.norm(&tape.middle, &params[layer.post_norm.clone()], &mut acts.normed);
        let d_normed = &mut self.d_normed;
        linear_backward(&self.d_gate_up, &acts.normed, params, &layer.gate_up, hidden, d_normed, grads);
        self.norm(pass, params, &layer.post_norm, &tape.middle, grads);
    }

    #[expect(clippy::too_many_arguments, reason = "as `layer`")]
    fn attention(
        &mut self,
        pass: &Pass,
        sequences: &[&[u32]],
        params: &[f32],
        layer: &LayerRanges,
        tape: &LayerTape,
        acts: &mut Activations,
        grads: &mut [f32],
    ) {
        let (config, hidden) = (pass.config, pass.config.hidden_size);
        let (output, width) = (&layer.attention_output, config.query_width());
        linear_backward(&self.dx, &tape.attended, params, output, width, &mut self.d_attended, grads);
        let isa = pass.workers.isa();
        self.attention.run(isa, config, sequences, tape, &self.d_attended, &mut self.d_qkv);
        self.unplace_heads(pass, sequences, params, layer, tape, grads);
        pass.norm(&tape.input, &params[layer.input_norm.clone()], &mut acts.normed);
        linear_backward(&self.d_qkv, &acts.normed, params, &layer.qkv, hidden, &mut self.d_normed, grads);
        self.norm(pass, params, &layer.input_norm, &tape.input, grads);
    }

    /// From `d_normed` to `dx` and the norm's weight.
    fn norm(&mut self, pass: &Pass, params: &[f32], range: &Range<usize>, x: &[f32], grads: &mut [f32]) {
        let (isa, hidden, eps) = (pass.workers.isa(), pass.config.hidden_size, pass.config.rms_norm_eps);
        let (weight, d_weight) = (&params[range.clone()], &mut grads[range.clone()]);
        let rows = self.d_normed.chunks_exact(hidden).zip(self.dx.chunks_exact_mut(hidden));
        for (x, (d_normed, dx)) in x.chunks_exact(hidden).zip(rows) {
            elementwise::rms_norm_backward(isa, x, weight, eps, d_normed, dx, d_weight);
        }
    }

    /// Turns the derivatives of queries and keys back and takes them through their norms.
    fn unplace_heads(
        &mut self,
        pass: &Pass,
        sequences: &[&[u32]],
        params: &[f32],
        layer: &LayerRanges,
        tape: &LayerTape,
        grads: &mut [f32],
    ) {
        let (config, isa, dim) = (pass.config, pass.workers.isa(), pass.config.head_dim);
        let turned = config.query_width() + config.key_width();
        let weights = &params[layer.qk_norm.clone()];
        let d_weights = &mut grads[layer.qk_norm.clone()];
        let positions = sequences.iter().flat_map(|sequence| 0..sequence.len());
        let rows = self.d_qkv.chunks_exact_mut(turned + config.key_width());
        for (token, (position, row)) in positions.zip(rows).enumerate() {
            for (head, d_head) in row[..turned].chunks_exact_mut(dim).enumerate() {
                elementwise::rotate(isa, d_head, pass.rope.at(position), -1.0);
                if weights.is_empty() {
                    continue;
                }
                let part = usize::from(head >= config.num_attention_heads) * dim;
                let (weight, d_weight) = (&weights[part..part + dim], &mut d_weights[part..part + dim]);
                let x = &tape.unnormed[token * turned + head * dim..][..dim];
                let normed = &mut self.d_normed[..2 * dim];
                let (d_out, dx) = normed.split_at_mut(dim);
                d_out.copy_from_slice(d_head);
                dx.fill(0.0);
                elementwise::rms_norm_backward(isa, x, weight, config.rms_norm_eps, d_out, dx, d_weight);
                d_head.copy_from_slice(dx);
            }
        }
    }
}

/// Of `y = x W^T` with `W` at `range`: `dx = dy W`, and `dW += dy^T x`.
fn linear_backward(
    dy: &[f32],
    x: &[f32],
    params: &[f32],
    range: &Range<usize>,
    inputs: usize,
    dx: &mut [f32],
    grads: &mut [f32],
) {
    let (outputs, tokens) = (range.len() / inputs, x.len() / inputs);
    let dy = View::new(dy, tokens, outputs, outputs);
    let weight = View::new(&params[range.clone()], outputs, inputs, inputs);
    gemm(ViewMut::new(dx, tokens, inputs, inputs), dy, weight, false);
    let d_weight = ViewMut::new(&mut grads[range.clone()], outputs, inputs, inputs);
    gemm(d_weight, dy.t(), View::new(x, tokens, inputs, inputs), true);
}
