//! Training: the loss's gradient by a hand-written backward pass.

use crate::Model;

/// Buffers of one training thread, reused from call to call.
#[derive(Default)]
pub struct TrainWorkspace {}

impl TrainWorkspace {
    /// An empty workspace; it grows to what the largest call needs.
    pub fn new() -> TrainWorkspace {
        TrainWorkspace::default()
    }
}

/// Adds the gradient of a loss over packed sequences to `grads` (same layout as [`Model::params`]).
///
/// `rows[i]` are the positions of `sequences[i]` whose logits are wanted, ascending. `loss` is called once a sequence, in
/// order, with that sequence's logits, row-major `rows[i].len() x vocab_size`, and replaces them by the derivative of the
/// loss with respect to them.
pub fn gradient(
    model: &Model,
    workspace: &mut TrainWorkspace,
    sequences: &[&[u32]],
    rows: &[&[u32]],
    loss: &mut dyn FnMut(usize, &mut [f32]),
    grads: &mut [f32],
) {
    let _ = (model, workspace, sequences, rows, loss, grads);
}

/// The wanted logits of each sequence, without a backward pass; `visit` gets them once a sequence, in order.
pub fn logits(
    model: &Model,
    workspace: &mut TrainWorkspace,
    sequences: &[&[u32]],
    rows: &[&[u32]],
    visit: &mut dyn FnMut(usize, &[f32]),
) {
    let _ = (model, workspace, sequences, rows, visit);
}
