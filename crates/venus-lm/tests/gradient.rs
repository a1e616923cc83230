//! The backward pass against finite differences.

use venus_lm::{Config, Model, TrainWorkspace, gradient, logits};

/// A smooth loss with curvature in every logit: mean of `c sin(z)` with varied `c`, plus cross entropy.
struct Loss {
    vocab: usize,
}

impl Loss {
    fn value(&self, sequence: usize, logits: &[f32]) -> f64 {
        logits.chunks(self.vocab).enumerate().map(|(row, logits)| self.row(sequence + row, logits)).sum()
    }

    fn row(&self, salt: usize, logits: &[f32]) -> f64 {
        let target = (salt * 5 + 2) % self.vocab;
        let sum: f64 = logits.iter().map(|z| f64::from(*z).exp()).sum();
        sum.ln() - f64::from(logits[target])
    }

    fn derivative(&self, sequence: usize, logits: &mut [f32]) {
        for (row, logits) in logits.chunks_mut(self.vocab).enumerate() {
            let target = ((sequence + row) * 5 + 2) % self.vocab;
            let sum: f64 = logits.iter().map(|z| f64::from(*z).exp()).sum();
            for (i, z) in logits.iter_mut().enumerate() {
                *z = (f64::from(*z).exp() / sum) as f32 - f32::from(u8::from(i == target));
            }
        }
    }
}

const SEQUENCES: [&[u32]; 3] = [&[3, 1, 4, 1, 5, 9, 2, 6, 5], &[7, 7, 2], &[11]];
const ROWS: [&[u32]; 3] = [&[0, 2, 3, 7, 8], &[1], &[0]];

fn total(model: &Model, workspace: &mut TrainWorkspace, loss: &Loss) -> f64 {
    let mut sum = 0.0;
    logits(model, workspace, &SEQUENCES, &ROWS, &mut |i, logits| sum += loss.value(i, logits));
    sum
}

fn config(qk_norm: bool, tied: bool) -> Config {
    Config {
        hidden_size: 12,
        intermediate_size: 20,
        num_hidden_layers: 2,
        num_attention_heads: 4,
        num_key_value_heads: 2,
        head_dim: 6,
        rope_theta: 100.0,
        qk_norm,
        tie_word_embeddings: tied,
        ..Config::tiny(17)
    }
}

/// In every tensor, the derivative along the gradient itself (sum of squares) and along single parameters.
#[test]
fn the_gradient_is_that_of_finite_differences_in_every_tensor() {
    for (qk_norm, tied) in [(false, true), (true, false), (true, true), (false, false)] {
        let mut model = Model::random(config(qk_norm, tied), 5);
        // Norm weights away from 1, so that their place in the chain shows.
        for (i, value) in model.params_mut().iter_mut().enumerate() {
            *value += 0.05 * ((i * 7 % 13) as f32 / 6.0 - 1.0);
        }
        let loss = Loss { vocab: model.config.vocab_size };
        let (mut workspace, mut grads) = (TrainWorkspace::new(), vec![0.0; model.params().len()]);
        let call = &mut |i: usize, logits: &mut [f32]| loss.derivative(i, logits);
        gradient(&model, &mut workspace, &SEQUENCES, &ROWS, call, &mut grads);
        for tensor in model.layout().clone().tensors() {
            let along = grads[tensor.range.clone()].to_vec();
            let length = along.iter().map(|g| f64::from(*g).powi(2)).sum::<f64>().sqrt();
            assert!(length > 1e-4, "{} has no gradient", tensor.name);
            check_direction(&mut model, &mut workspace, &loss, tensor.range.clone(), &along, length, &tensor.name);
            // Single parameters: those with the largest derivative, where a difference stands above rounding.
            let mut order: Vec<usize> = (0..along.len()).collect();
            order.sort_by(|a, b| along[*b].abs().total_cmp(&along[*a].abs()));
            for &index in order.iter().take(3) {
                let mut one = vec![0.0; along.len()];
                one[index] = along[index].signum();
                let slope = f64::from(along[index].abs());
                check_direction(&mut model, &mut workspace, &loss, tensor.range.clone(), &one, slope, &tensor.name);
            }
        }
    }
}

/// The slope along a direction, by central differences with step 1e-2 in units of the direction's length.
fn check_direction(
    model: &mut Model,
    workspace: &mut TrainWorkspace,
    loss: &Loss,
    range: std::ops::Range<usize>,
    direction: &[f32],
    slope: f64,
    name: &str,
) {
    let length = direction.iter().map(|d| d * d).sum::<f32>().sqrt();
    let before = model.params()[range.clone()].to_vec();
    let mut at = |step: f32| {
        for ((param, before), d) in model.params_mut()[range.clone()].iter_mut().zip(&before).zip(direction) {
            *param = before + step * d / length;
        }
        total(model, workspace, loss)
    };
    let step = 4e-3;
    // Richardson: cancels the cubic term of the central difference.
    let difference = |d: f64, h: f64| d / (2.0 * h);
    let (one, two) = (at(step) - at(-step), at(2.0 * step) - at(-2.0 * step));
    at(0.0);
    let (one, two) = (difference(one, f64::from(step)), difference(two, 2.0 * f64::from(step)));
    let numeric = (4.0 * one - two) / 3.0;
    assert!((numeric - slope).abs() < 2e-3 * slope.max(0.1), "{name}: difference {numeric}, gradient {slope}");
}

#[test]
fn gradients_accumulate_and_repeat_bit_for_bit() {
    let model = Model::random(config(true, true), 5);
    let loss = Loss { vocab: model.config.vocab_size };
    let run = |workspace: &mut TrainWorkspace, grads: &mut [f32]| {
        gradient(&model, workspace, &SEQUENCES, &ROWS, &mut |i, z| loss.derivative(i, z), grads);
    };
    let mut workspace = TrainWorkspace::new();
    let (mut once, mut again) = (vec![0.0; model.params().len()], vec![0.0; model.params().len()]);
    run(&mut workspace, &mut once);
    run(&mut workspace, &mut again);
    assert!(once == again);
    run(&mut workspace, &mut again);
    for (twice, once) in again.iter().zip(&once) {
        assert!((twice - 2.0 * once).abs() <= 1e-5 * (1.0 + once.abs()), "{twice} for twice {once}");
    }
}

#[test]
fn a_call_without_tokens_or_rows_changes_nothing() {
    let model = Model::random(config(false, true), 5);
    let (mut workspace, mut grads) = (TrainWorkspace::new(), vec![0.0; model.params().len()]);
    let mut calls = 0;
    gradient(&model, &mut workspace, &[&[], &[1, 2]], &[&[], &[]], &mut |_, z| calls += 1 + z.len(), &mut grads);
    gradient(&model, &mut workspace, &[], &[], &mut |_, _| (), &mut grads);
    assert_eq!(calls, 2);
    assert!(grads.iter().all(|g| *g == 0.0));
}
