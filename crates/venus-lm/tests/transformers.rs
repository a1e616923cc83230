//! Models written by Hugging Face transformers: our logits, loss and gradients against those of PyTorch
//! (`reference/torch_fixture.py` makes the fixtures).
#![expect(clippy::unwrap_used, reason = "the tests' helpers fail like the tests")]

use safetensors::SafeTensors;
use std::fs;
use std::path::PathBuf;
use venus_lm::{Model, TrainWorkspace, gradient};

fn floats(file: &SafeTensors, name: &str) -> Vec<f32> {
    file.tensor(name).unwrap().data().as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
}

/// Largest difference, relative to the largest expected number.
fn difference(got: &[f32], expected: &[f32]) -> f32 {
    assert_eq!(got.len(), expected.len());
    let scale = expected.iter().fold(0.0f32, |max, x| max.max(x.abs()));
    got.iter().zip(expected).fold(0.0f32, |max, (a, b)| max.max((a - b).abs())) / scale
}

/// Sum of `-log p(next token)`; the logits become its derivative.
fn cross_entropy(logits: &mut [f32], vocab: usize, tokens: &[u32]) -> f64 {
    let rows = logits.chunks_exact_mut(vocab).zip(&tokens[1..]);
    rows.map(|(logits, &target)| {
        let sum: f64 = logits.iter().map(|z| f64::from(*z).exp()).sum();
        let loss = sum.ln() - f64::from(logits[target as usize]);
        for z in logits.iter_mut() {
            *z = (f64::from(*z).exp() / sum) as f32;
        }
        logits[target as usize] -= 1.0;
        loss
    })
    .sum()
}

fn agrees_with_pytorch(name: &str) {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    let model = Model::load(&dir).unwrap();
    let bytes = fs::read(dir.join("expected.safetensors")).unwrap();
    let expected = SafeTensors::deserialize(&bytes).unwrap();
    let text = fs::read_to_string(dir.join("sequences.json")).unwrap();
    let texts: Vec<Vec<u32>> = serde_json::from_str(&text).unwrap();
    let sequences: Vec<&[u32]> = texts.iter().map(Vec::as_slice).collect();
    let rows: Vec<Vec<u32>> = texts.iter().map(|tokens| (0..tokens.len() as u32 - 1).collect()).collect();
    let rows: Vec<&[u32]> = rows.iter().map(Vec::as_slice).collect();
    let (mut grads, mut loss, vocab) = (vec![0.0; model.params().len()], 0.0, model.config.vocab_size);
    let mut on_logits = |i: usize, logits: &mut [f32]| {
        let all = floats(&expected, &format!("logits.{i}"));
        let off = difference(logits, &all[..logits.len()]);
        assert!(off < 2e-6, "{name}, logits of sequence {i} are off by {off}");
        loss += cross_entropy(logits, vocab, sequences[i]);
    };
    gradient(&model, &mut TrainWorkspace::new(), &sequences, &rows, &mut on_logits, &mut grads);
    assert!((loss - f64::from(floats(&expected, "loss")[0])).abs() < 1e-4, "{name}, loss {loss}");
    for tensor in model.layout().tensors() {
        let off = difference(&grads[tensor.range.clone()], &floats(&expected, &format!("gradient.{}", tensor.name)));
        assert!(off < 1e-5, "{name}, gradient of {} is off by {off}", tensor.name);
    }
}

#[test]
fn a_llama_agrees_with_pytorch() {
    agrees_with_pytorch("llama");
}

#[test]
fn a_qwen3_agrees_with_pytorch() {
    agrees_with_pytorch("qwen3");
}
