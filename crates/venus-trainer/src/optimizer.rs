//! AdamW (Loshchilov and Hutter, arXiv 1711.05101) on the model's flat parameters.

use crate::error::TrainerError;
use crate::options::OptimizerOptions;
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::thread;
use venus_lm::Layout;

/// Moments of the gradient and the number of updates made.
#[derive(Clone, Debug, PartialEq)]
pub struct AdamW {
    options: OptimizerOptions,
    updates: u64,
    mean: Vec<f32>,
    square: Vec<f32>,
    /// Ranges of the parameters that lie one after the other, and whether they are decayed.
    ranges: Vec<(Range<usize>, bool)>,
}

/// What an update did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Update {
    /// Norm of the gradient before clipping.
    pub grad_norm: f64,
    /// Learning rate applied.
    pub learning_rate: f64,
}

impl AdamW {
    /// A fresh optimizer for models of this layout. Matrices are decayed; vectors (norms) are not.
    #[must_use]
    pub fn new(options: OptimizerOptions, layout: &Layout) -> Self {
        let mut ranges: Vec<(Range<usize>, bool)> = Vec::new();
        for tensor in layout.tensors() {
            let decayed = tensor.shape.len() > 1;
            match ranges.last_mut() {
                Some((range, same)) if *same == decayed && range.end == tensor.range.start => {
                    range.end = tensor.range.end;
                }
                _ => ranges.push((tensor.range.clone(), decayed)),
            }
        }
        let zeros = vec![0.0; layout.len()];
        Self { options, updates: 0, mean: zeros.clone(), square: zeros, ranges }
    }

    /// Updates made so far.
    #[must_use]
    pub fn updates(&self) -> u64 {
        self.updates
    }

    /// Clips the gradient to the norm allowed and applies it. Bitwise the same for any number of threads.
    ///
    /// # Errors
    /// [`TrainerError::NonFinite`] if the gradient is not finite; nothing has changed then.
    pub fn update(&mut self, params: &mut [f32], grads: &[f32], threads: usize) -> Result<Update, TrainerError> {
        let grad_norm = norm(grads);
        let learning_rate = self.options.rate(self.updates);
        if !grad_norm.is_finite() {
            return Err(TrainerError::NonFinite { what: "the gradient".into(), learning_rate });
        }
        self.updates += 1;
        let step = self.step(learning_rate, grad_norm);
        let Self { mean, square, ranges, .. } = self;
        let chunk = params.len().div_ceil(threads.max(1)).max(SMALLEST_CHUNK);
        let moments = mean.chunks_mut(chunk).zip(square.chunks_mut(chunk));
        let lanes = params.chunks_mut(chunk).zip(grads.chunks(chunk)).zip(moments);
        thread::scope(|scope| {
            for (index, ((params, grads), (mean, square))) in lanes.enumerate() {
                let (ranges, mut lanes) = (&*ranges, Lanes { params, grads, mean, square });
                scope.spawn(move || lanes.apply_ranges(&step, index * chunk, ranges));
            }
        });
        Ok(Update { grad_norm, learning_rate })
    }

    fn step(&self, learning_rate: f64, grad_norm: f64) -> Step {
        let OptimizerOptions { beta1, beta2, epsilon, weight_decay, max_grad_norm, .. } = self.options;
        let corrected = |beta: f64| 1.0 - beta.powf(self.updates as f64);
        Step {
            scale: if grad_norm > max_grad_norm { (max_grad_norm / grad_norm) as f32 } else { 1.0 },
            beta1: beta1 as f32,
            beta2: beta2 as f32,
            rate: (learning_rate / corrected(beta1)) as f32,
            square_correction: (1.0 / corrected(beta2)) as f32,
            epsilon: epsilon as f32,
            decay: (learning_rate * weight_decay) as f32,
        }
    }

    /// The state as a safetensors file: `mean` and `square`, and the number of updates in the metadata.
    ///
    /// # Errors
    /// [`TrainerError::Io`] names the file.
    pub fn save(&self, path: &Path) -> Result<(), TrainerError> {
        let (mean, square) = (to_bytes(&self.mean), to_bytes(&self.square));
        let view = |bytes| TensorView::new(Dtype::F32, vec![self.mean.len()], bytes);
        let tensors = [("mean", view(&mean)), ("square", view(&square))];
        let tensors = tensors.map(|(name, view)| (name, view.expect("four bytes an element")));
        let metadata = HashMap::from([("updates".to_string(), self.updates.to_string())]);
        let bytes = safetensors::serialize(tensors, Some(metadata)).expect("two plain tensors can be serialized");
        std::fs::write(path, bytes).map_err(TrainerError::io("write", path))
    }

    /// Continues from a saved state, bit for bit.
    ///
    /// # Errors
    /// The file cannot be read, or is not of a model of this size.
    pub fn load(options: OptimizerOptions, layout: &Layout, path: &Path) -> Result<Self, TrainerError> {
        let bytes = std::fs::read(path).map_err(TrainerError::io("read", path))?;
        let broken = |problem: String| TrainerError::Checkpoint { path: path.to_owned(), problem };
        let (_, header) = SafeTensors::read_metadata(&bytes).map_err(|error| broken(error.to_string()))?;
        let updates = header.metadata().as_ref().and_then(|metadata| metadata.get("updates")?.parse().ok());
        let tensors = SafeTensors::deserialize(&bytes).map_err(|error| broken(error.to_string()))?;
        let mut state = Self::new(options, layout);
        state.updates = updates.ok_or_else(|| broken("it does not say how many updates were made".into()))?;
        for (name, values) in [("mean", &mut state.mean), ("square", &mut state.square)] {
            let tensor = tensors.tensor(name).map_err(|error| broken(format!("{name}: {error}")))?;
            if tensor.dtype() != Dtype::F32 || tensor.shape() != [values.len()] {
                let (found, expected) = (tensor.shape(), values.len());
                return Err(broken(format!("{name} has shape {found:?}, the model {expected} parameters")));
            }
            let (words, _) = tensor.data().as_chunks::<4>();
            values.iter_mut().zip(words).for_each(|(value, &word)| *value = f32::from_le_bytes(word));
        }
        Ok(state)
    }
}

/// A thread is not worth its start for fewer parameters.
const SMALLEST_CHUNK: usize = 1 << 17;

/// Constants of one update.
#[derive(Clone, Copy)]
struct Step {
    scale: f32,
    beta1: f32,
    beta2: f32,
    rate: f32,
    square_correction: f32,
    epsilon: f32,
    decay: f32,
}

/// The same range of all four vectors.
struct Lanes<'a> {
    params: &'a mut [f32],
    grads: &'a [f32],
    mean: &'a mut [f32],
    square: &'a mut [f32],
}

impl Lanes<'_> {
    /// Applies the step where the ranges overlap these lanes, which begin at parameter `start`.
    fn apply_ranges(&mut self, step: &Step, start: usize, ranges: &[(Range<usize>, bool)]) {
        for (range, decayed) in ranges {
            let from = range.start.max(start).min(start + self.params.len()) - start;
            let to = range.end.max(start).min(start + self.params.len()) - start;
            let mut part = Lanes {
                params: &mut self.params[from..to],
                grads: &self.grads[from..to],
                mean: &mut self.mean[from..to],
                square: &mut self.square[from..to],
            };
            part.apply(step, if *decayed { step.decay } else { 0.0 });
        }
    }

    fn apply(&mut self, step: &Step, decay: f32) {
        let moments = self.mean.iter_mut().zip(self.square.iter_mut());
        for ((param, grad), (mean, square)) in self.params.iter_mut().zip(self.grads).zip(moments) {
            let grad = grad * step.scale;
            *mean = step.beta1 * *mean + (1.0 - step.beta1) * grad;
            *square = step.beta2 * *square + (1.0 - step.beta2) * grad * grad;
            let root = (*square * step.square_correction).sqrt() + step.epsilon;
            *param -= decay * *param + step.rate * *mean / root;
        }
    }
}

/// Euclidean norm. Summed in eight lanes of f64: exact enough for millions of terms, and vectorisable.
pub(crate) fn norm(values: &[f32]) -> f64 {
    let (blocks, rest) = values.as_chunks::<8>();
    let mut lanes = [0.0f64; 8];
    for block in blocks {
        for (lane, &value) in lanes.iter_mut().zip(block) {
            *lane += f64::from(value) * f64::from(value);
        }
    }
    let rest: f64 = rest.iter().map(|&value| f64::from(value).powi(2)).sum();
    (lanes.iter().sum::<f64>() + rest).sqrt()
}

fn to_bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}
