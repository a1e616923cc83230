//! AdamW against its definition, and its state on disk.

use crate::support::tiny_model;
use venus_trainer::{AdamW, OptimizerOptions, TrainerError};

fn options() -> OptimizerOptions {
    OptimizerOptions { learning_rate: 0.1, weight_decay: 0.2, max_grad_norm: 1e9, ..Default::default() }
}

fn gradient(length: usize, update: usize) -> Vec<f32> {
    (0..length).map(|index| ((index * 7 + update * 13) % 11) as f32 - 5.0).collect()
}

#[test]
fn three_updates_are_those_of_the_definition() {
    let mut model = tiny_model();
    let options = options();
    let mut optimizer = AdamW::new(options.clone(), model.layout());
    let start = model.params().to_vec();
    for update in 0..3 {
        let grads = gradient(start.len(), update);
        optimizer.update(model.params_mut(), &grads, 2).unwrap();
    }
    for tensor in model.layout().tensors() {
        let decay = if tensor.shape.len() > 1 { options.weight_decay } else { 0.0 };
        for index in tensor.range.clone() {
            let (mut param, mut mean, mut square) = (f64::from(start[index]), 0.0, 0.0);
            for update in 0..3 {
                let grad = f64::from(gradient(start.len(), update)[index]);
                mean = options.beta1 * mean + (1.0 - options.beta1) * grad;
                square = options.beta2 * square + (1.0 - options.beta2) * grad * grad;
                let time = f64::from(update as u32 + 1);
                let mean_hat = mean / (1.0 - options.beta1.powf(time));
                let square_hat: f64 = square / (1.0 - options.beta2.powf(time));
                param -= options.learning_rate * (mean_hat / (square_hat.sqrt() + options.epsilon) + decay * param);
            }
            let found = f64::from(model.params()[index]);
            assert!((found - param).abs() < 1e-5, "{} {index}: {found} {param}", tensor.name);
        }
    }
}

#[test]
fn a_large_gradient_is_scaled_to_the_norm_allowed() {
    let moved = |max_grad_norm: f64, scale: f32| {
        let mut model = tiny_model();
        // A large epsilon makes the step proportional to the gradient.
        let options = OptimizerOptions { max_grad_norm, epsilon: 1e6, weight_decay: 0.0, ..options() };
        let grads: Vec<f32> = gradient(model.params().len(), 1).iter().map(|grad| grad * scale).collect();
        let norm = grads.iter().map(|&grad| f64::from(grad).powi(2)).sum::<f64>().sqrt();
        let update = AdamW::new(options, model.layout()).update(model.params_mut(), &grads, 1).unwrap();
        assert!((update.grad_norm / norm - 1.0).abs() < 1e-6);
        model.params().to_vec()
    };
    assert_eq!(moved(1.0, 1.0), moved(1.0, 1024.0));
    assert_ne!(moved(1e9, 1.0), moved(1.0, 1.0));
}

#[test]
fn a_gradient_that_is_not_finite_is_refused_before_anything_changes() {
    let mut model = tiny_model();
    let mut optimizer = AdamW::new(options(), model.layout());
    let (before, untouched) = (optimizer.clone(), model.clone());
    let mut grads = gradient(model.params().len(), 0);
    grads[17] = f32::INFINITY;
    let error = optimizer.update(model.params_mut(), &grads, 2).unwrap_err();
    assert!(matches!(error, TrainerError::NonFinite { .. }), "{error}");
    assert_eq!((optimizer, model), (before, untouched));
}

#[test]
fn the_state_comes_back_exactly_and_only_for_its_model() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("optimizer.safetensors");
    let mut model = tiny_model();
    let mut optimizer = AdamW::new(options(), model.layout());
    let grads = gradient(model.params().len(), 0);
    optimizer.update(model.params_mut(), &grads, 2).unwrap();
    optimizer.save(&path).unwrap();
    assert_eq!(AdamW::load(options(), model.layout(), &path).unwrap(), optimizer);

    let larger = venus_lm::Layout::new(&venus_lm::Config::tiny(12));
    let error = AdamW::load(options(), &larger, &path).unwrap_err().to_string();
    assert!(error.contains("optimizer.safetensors") && error.contains("shape"), "{error}");
    std::fs::write(&path, "nonsense").unwrap();
    assert!(AdamW::load(options(), model.layout(), &path).is_err());
}
