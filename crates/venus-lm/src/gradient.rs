//! Training: the loss's gradient by a hand-written backward pass.

use crate::backward::Backward;
use crate::decoder::{Activations, LayerWeights, Pass};
use crate::elementwise;
use crate::inference::{LogitRows, Segment};
use crate::kernel::{Matrix, View, ViewMut, gemm};
use crate::kv::{Kv, KvShape};
use crate::layout::LayerRanges;
use crate::rope::RopeTable;
use crate::tape::LayerTape;
use crate::workers::Workers;
use crate::{Config, Model};

/// Positions of a page of the scratch keys and values.
const PAGE: usize = 64;

/// Buffers of one training thread, reused from call to call. They grow to what the largest call needs: per token about
/// `layers * (2 * hidden + 2 * query_width + 2 * key_width + 2 * intermediate)` floats for the tape.
#[derive(Default)]
pub struct TrainWorkspace {
    workers: Workers,
    rope: Option<RopeTable>,
    /// Keys and values of the layer at hand.
    kv: Option<Kv>,
    acts: Activations,
    tapes: Vec<LayerTape>,
    backward: Backward,
    head: Head,
}

/// Buffers of the output projection of one sequence's wanted rows.
#[derive(Default)]
struct Head {
    normed: Vec<f32>,
    d_normed: Vec<f32>,
    logits: Vec<f32>,
}

impl TrainWorkspace {
    /// An empty workspace.
    pub fn new() -> TrainWorkspace {
        TrainWorkspace::default()
    }
}

/// Adds the gradient of a loss over packed sequences to `grads` (same layout as [`Model::params`]).
///
/// `rows[i]` are the positions of `sequences[i]` whose logits are wanted, ascending; row `p` predicts token `p + 1`. `loss`
/// is called once a sequence, in order, with that sequence's logits, row-major `rows[i].len() x vocab_size`, and replaces
/// them by the derivative of the loss with respect to them. All sequences go through the layers together, so the cost per
/// token hardly depends on how tokens are cut into sequences; the memory grows with the tokens of a call.
///
/// The logits are bit for bit those [`Inference`](crate::Inference) computes from the same weights. The gradient of the same
/// call is always the same bits.
///
/// # Panics
/// On a token outside the vocabulary, a row outside its sequence, or a `grads` of another length than the parameters.
pub fn gradient(
    model: &Model,
    workspace: &mut TrainWorkspace,
    sequences: &[&[u32]],
    rows: &[&[u32]],
    loss: &mut dyn FnMut(usize, &mut [f32]),
    grads: &mut [f32],
) {
    assert_eq!(grads.len(), model.params().len(), "gradients have the layout of the parameters");
    let config = &model.config;
    forward(model, workspace, sequences, rows, true);
    let TrainWorkspace { workers, rope, acts, tapes, backward, head, .. } = workspace;
    let Some(rope) = rope else { return };
    let tokens: usize = sequences.iter().map(|sequence| sequence.len()).sum();
    backward.begin(config, tokens);
    let mut first = 0;
    for (index, (sequence, rows)) in sequences.iter().zip(rows).enumerate() {
        let span = first * config.hidden_size..(first + sequence.len()) * config.hidden_size;
        head.project(model, workers, &acts.x[span.clone()], rows);
        loss(index, &mut head.logits);
        head.backward(model, workers, &acts.x[span.clone()], rows, &mut backward.dx[span], grads);
        first += sequence.len();
    }
    if tokens == 0 {
        return;
    }
    for (layer, tape) in model.layout().layers.iter().zip(&*tapes).rev() {
        let pass = Pass { config, workers, rope, segments: &[] };
        backward.layer(&pass, sequences, model.params(), layer, tape, acts, grads);
    }
    let embedding = &mut grads[model.layout().embedding.clone()];
    let tokens = sequences.iter().copied().flatten();
    for (token, dx) in tokens.zip(backward.dx.chunks_exact(config.hidden_size)) {
        elementwise::add(workers.isa(), dx, &mut embedding[*token as usize * dx.len()..][..dx.len()]);
    }
}

/// The wanted logits of each sequence, without a backward pass; `visit` gets them once a sequence, in order.
///
/// # Panics
/// As [`gradient`].
pub fn logits(
    model: &Model,
    workspace: &mut TrainWorkspace,
    sequences: &[&[u32]],
    rows: &[&[u32]],
    visit: &mut dyn FnMut(usize, &[f32]),
) {
    forward(model, workspace, sequences, rows, false);
    let TrainWorkspace { workers, acts, head, .. } = workspace;
    let mut rest = &acts.x[..];
    for (index, (sequence, rows)) in sequences.iter().zip(rows).enumerate() {
        let (x, others) = rest.split_at(sequence.len() * model.config.hidden_size);
        head.project(model, workers, x, rows);
        visit(index, &head.logits);
        rest = others;
    }
}

/// Runs all layers; the residual stream after the last one is in `acts.x`.
fn forward(model: &Model, workspace: &mut TrainWorkspace, sequences: &[&[u32]], rows: &[&[u32]], keep: bool) {
    let config = &model.config;
    check(config, sequences, rows);
    let pages: Vec<u32> = (0..sequences.iter().map(|s| s.len().div_ceil(PAGE) as u32).sum()).collect();
    let mut free = &pages[..];
    let segments: Vec<Segment> = sequences
        .iter()
        .filter(|tokens| !tokens.is_empty())
        .map(|tokens| {
            let (pages, rest) = free.split_at(tokens.len().div_ceil(PAGE));
            free = rest;
            Segment { tokens, start: 0, pages, logits: LogitRows::None }
        })
        .collect();
    let TrainWorkspace { workers, rope, kv, acts, tapes, .. } = workspace;
    let rope = match rope {
        Some(rope) if rope.is_for(config.head_dim, config.rope_theta) => rope,
        other => other.insert(RopeTable::new(config.head_dim, config.rope_theta)),
    };
    rope.cover(sequences.iter().map(|s| s.len()).max().unwrap_or(0));
    let shape = KvShape { layers: 1, heads: config.num_key_value_heads, head_dim: config.head_dim, page_size: PAGE };
    let kv = match kv {
        Some(kv) if kv.shape() == shape => kv,
        other => other.insert(Kv::of_shape(shape)),
    };
    kv.grow(pages.len());
    acts.resize(config, segments.iter().map(|segment| segment.tokens.len()).sum());
    if segments.is_empty() {
        return;
    }
    let embedding = &model.params()[model.layout().embedding.clone()];
    let tokens = sequences.iter().copied().flatten();
    for (token, x) in tokens.zip(acts.x.chunks_exact_mut(config.hidden_size)) {
        x.copy_from_slice(&embedding[*token as usize * config.hidden_size..][..config.hidden_size]);
    }
    tapes.resize_with(if keep { config.num_hidden_layers } else { tapes.len() }, LayerTape::default);
    let pass = Pass { config, workers, rope, segments: &segments };
    for (index, layer) in model.layout().layers.iter().enumerate() {
        let tape = if keep { Some(&mut tapes[index]) } else { None };
        pass.layer(&weights(config, model.params(), layer), kv, 0, acts, tape);
    }
}

fn check(config: &Config, sequences: &[&[u32]], rows: &[&[u32]]) {
    assert_eq!(sequences.len(), rows.len(), "wanted rows are given for each sequence");
    for (sequence, rows) in sequences.iter().zip(rows) {
        let unknown = sequence.iter().find(|token| **token as usize >= config.vocab_size);
        assert!(unknown.is_none(), "token {unknown:?} is outside the vocabulary of {}", config.vocab_size);
        let outside = rows.iter().find(|row| **row as usize >= sequence.len());
        assert!(outside.is_none(), "row {outside:?} is outside a sequence of {}", sequence.len());
    }
}

fn weights<'a>(config: &Config, params: &'a [f32], layer: &LayerRanges) -> LayerWeights<'a> {
    LayerWeights {
        input_norm: &params[layer.input_norm.clone()],
        qkv: Matrix::plain(&params[layer.qkv.clone()], config.hidden_size),
        qk_norm: &params[layer.qk_norm.clone()],
        attention_output: Matrix::plain(&params[layer.attention_output.clone()], config.query_width()),
        post_norm: &params[layer.post_norm.clone()],
        gate_up: Matrix::plain(&params[layer.gate_up.clone()], config.hidden_size),
        down: Matrix::plain(&params[layer.down.clone()], config.intermediate_size),
    }
}

impl Head {
    /// The wanted rows' logits, from the residual stream of one sequence.
    fn project(&mut self, model: &Model, workers: &Workers, x: &[f32], rows: &[u32]) {
        let Config { hidden_size, vocab_size, rms_norm_eps, .. } = model.config;
        let weight = &model.params()[model.layout().final_norm.clone()];
        self.normed.resize(rows.len() * hidden_size, 0.0);
        for (row, out) in rows.iter().zip(self.normed.chunks_exact_mut(hidden_size)) {
            let x = &x[*row as usize * hidden_size..][..hidden_size];
            elementwise::rms_norm(workers.isa(), x, weight, rms_norm_eps, out);
        }
        self.logits.resize(rows.len() * vocab_size, 0.0);
        let output = Matrix::plain(&model.params()[model.layout().output.clone()], hidden_size);
        output.apply(workers, rows.len(), &self.normed, &mut self.logits, false);
    }

    /// From the derivative that replaced the logits: adds those of the output matrix, the final norm and the stream.
    fn backward(
        &mut self,
        model: &Model,
        workers: &Workers,
        x: &[f32],
        rows: &[u32],
        dx: &mut [f32],
        grads: &mut [f32],
    ) {
        let Config { hidden_size, vocab_size, rms_norm_eps, .. } = model.config;
        let (params, layout, count) = (model.params(), model.layout(), rows.len());
        if count == 0 {
            return;
        }
        self.d_normed.resize(count * hidden_size, 0.0);
        let d_logits = View::new(&self.logits, count, vocab_size, vocab_size);
        let output = View::new(&params[layout.output.clone()], vocab_size, hidden_size, hidden_size);
        gemm(ViewMut::new(&mut self.d_normed, count, hidden_size, hidden_size), d_logits, output, false);
        let d_output = ViewMut::new(&mut grads[layout.output.clone()], vocab_size, hidden_size, hidden_size);
        gemm(d_output, d_logits.t(), View::new(&self.normed, count, hidden_size, hidden_size), true);
        let weight = &params[layout.final_norm.clone()];
        let d_weight = &mut grads[layout.final_norm.clone()];
        for (row, d_normed) in rows.iter().zip(self.d_normed.chunks_exact(hidden_size)) {
            let span = *row as usize * hidden_size..(*row as usize + 1) * hidden_size;
            let (x, dx) = (&x[span.clone()], &mut dx[span]);
            elementwise::rms_norm_backward(workers.isa(), x, weight, rms_norm_eps, d_normed, dx, d_weight);
        }
    }
}
