//! Weights as the right-hand side of a product.

use super::{PANEL, Panels, multiply, multiply_columns};
use crate::workers::Workers;

/// A weight `[outputs, inputs]` (row-major, as in a checkpoint) packed for `y = x W^T`.
pub(crate) struct Packed {
    outputs: usize,
    inputs: usize,
    data: Vec<f32>,
}

impl Packed {
    /// Packs a weight.
    pub(crate) fn new(weight: &[f32], outputs: usize, inputs: usize) -> Packed {
        let mut data = vec![0.0; outputs.next_multiple_of(PANEL) * inputs];
        pack(weight, outputs, inputs, &mut data);
        Packed { outputs, inputs, data }
    }

    /// Copies row `output` of the weight: an embedding's vector where the embedding is the output matrix too.
    pub(crate) fn row(&self, output: usize, out: &mut [f32]) {
        let panel = &self.data[output / PANEL * PANEL * self.inputs..];
        for (out, column) in out.iter_mut().zip(panel.as_chunks::<PANEL>().0) {
            *out = column[output % PANEL];
        }
    }

    /// Number of weights.
    pub(crate) fn len(&self) -> usize {
        self.outputs * self.inputs
    }

    pub(super) fn panels(&self) -> Panels<'_> {
        Panels { data: &self.data, k: self.inputs, n: self.outputs, stride: self.inputs * PANEL }
    }
}

/// Packs rows of a weight into panels; a last ragged panel is filled with zeros.
fn pack(weight: &[f32], outputs: usize, inputs: usize, data: &mut [f32]) {
    for (panel, data) in data.chunks_exact_mut(PANEL * inputs).enumerate().take(outputs.div_ceil(PANEL)) {
        let rows = PANEL.min(outputs - panel * PANEL);
        if rows < PANEL {
            data.fill(0.0);
        }
        let weight = &weight[panel * PANEL * inputs..][..rows * inputs];
        for (lane, row) in weight.chunks_exact(inputs).enumerate() {
            for (value, packed) in row.iter().zip(data.as_chunks_mut::<PANEL>().0) {
                packed[lane] = *value;
            }
        }
    }
}

/// A weight that is packed already, or packed while it is used (training, where it changes with each step).
#[derive(Clone, Copy)]
pub(crate) enum Matrix<'a> {
    Packed(&'a Packed),
    Plain { weight: &'a [f32], outputs: usize, inputs: usize },
}

impl<'a> Matrix<'a> {
    /// An unpacked weight `[outputs, inputs]`.
    pub(crate) fn plain(weight: &'a [f32], inputs: usize) -> Matrix<'a> {
        Matrix::Plain { weight, outputs: weight.len() / inputs, inputs }
    }

    /// `y[m, outputs] = x[m, inputs] W^T`, or `y += ...`.
    pub(crate) fn apply(&self, workers: &Workers, m: usize, x: &[f32], y: &mut [f32], accumulate: bool) {
        match *self {
            Matrix::Packed(packed) => split_product(workers, m, x, packed.panels(), y, accumulate),
            Matrix::Plain { weight, outputs, inputs } => {
                packed_on_the_way(workers, m, x, weight, outputs, inputs, y, accumulate);
            }
        }
    }
}

/// Packs a few panels at a time into a buffer that stays in the cache, and multiplies all rows by them.
#[expect(clippy::too_many_arguments, reason = "a matrix product has three operands with their shapes")]
fn packed_on_the_way(
    workers: &Workers,
    m: usize,
    x: &[f32],
    weight: &[f32],
    outputs: usize,
    inputs: usize,
    y: &mut [f32],
    accumulate: bool,
) {
    const CACHED_FLOATS: usize = 64 * 1024;
    let group = (CACHED_FLOATS / inputs).next_multiple_of(PANEL).min(outputs.next_multiple_of(PANEL));
    workers.with_packing_buffer(group * inputs, |buffer| {
        for (index, rows) in weight.chunks(group * inputs).enumerate() {
            let n = rows.len() / inputs;
            pack(rows, n, inputs, buffer);
            let panels = Panels { data: buffer, k: inputs, n, stride: inputs * PANEL };
            multiply(workers.isa(), m, x, inputs, panels, &mut y[index * group..], outputs, accumulate);
        }
    });
}

/// Splits the product over the threads: by rows if there are many, else by panels.
fn split_product(workers: &Workers, m: usize, x: &[f32], b: Panels, y: &mut [f32], accumulate: bool) {
    let isa = workers.isa();
    if !workers.worth_splitting(2 * m * b.k * b.n) {
        return multiply(isa, m, x, b.k, b, y, b.n, accumulate);
    }
    const MANY_ROWS: usize = 48;
    if m >= MANY_ROWS * workers.threads() {
        let rows = m.div_ceil(workers.threads());
        let parts = x[..m * b.k].chunks(rows * b.k).zip(y[..m * b.n].chunks_mut(rows * b.n));
        workers.scope(parts, |(x, y)| multiply(isa, x.len() / b.k, x, b.k, b, y, b.n, accumulate));
        return;
    }
    assert!(y.len() >= m * b.n, "output of {m} x {} is too short", b.n);
    let output = Shared(y.as_mut_ptr());
    let panels = b.n.div_ceil(PANEL);
    let step = panels.div_ceil(workers.threads());
    workers.scope((0..panels).step_by(step), |panel| {
        let output = &output;
        let n = (step * PANEL).min(b.n - panel * PANEL);
        let part = Panels { data: &b.data[panel * b.stride..], n, ..b };
        // SAFETY: the output was asserted to hold all columns, and each part has columns of its own.
        unsafe { multiply_columns(isa, m, x, b.k, part, output.0.add(panel * PANEL), b.n, accumulate) };
    });
}

/// An output that threads fill in disjoint parts.
struct Shared(*mut f32);
// SAFETY: the pointer is only used by `split_product`, whose parts write disjoint columns while it waits for them.
unsafe impl Sync for Shared {}
