//! The comparison of a converted SmolLM2-135M-Instruct with what Hugging Face transformers made of the same GGUF file.

use serde::Deserialize;
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use venus_lm::{Inference, Kv, LogitRows, Model, Segment, Tokenizer};

/// Largest absolute difference of a logit. Logits reach 30; two f32 implementations of 30 layers differ by some 1e-4.
pub const TOLERANCE: f32 = 2e-3;

#[derive(Deserialize)]
struct Golden {
    prompts: Vec<Prompt>,
}

#[derive(Deserialize)]
struct Prompt {
    text: String,
    tokens: Vec<u32>,
    greedy: Vec<u32>,
    positions: Vec<usize>,
    top_ids: Vec<Vec<usize>>,
    top_logits: Vec<Vec<f32>>,
}

/// What was found over all prompts.
#[derive(Debug, Default)]
pub struct Findings {
    pub prompts: usize,
    pub same_tokens: usize,
    pub greedy_tokens: usize,
    pub same_greedy_tokens: usize,
    pub logits: usize,
    pub largest_difference: f32,
}

impl Findings {
    /// Whether everything agrees within [`TOLERANCE`].
    pub fn agree(&self) -> bool {
        self.same_tokens == self.prompts
            && self.same_greedy_tokens == self.greedy_tokens
            && self.largest_difference <= TOLERANCE
    }
}

/// Compares the model in `dir` with the committed file.
pub fn compare(dir: &Path) -> Result<Findings, Box<dyn Error>> {
    let golden: Golden = serde_json::from_str(include_str!("../fixtures/smollm2.json"))?;
    let tokenizer = Tokenizer::load(dir)?;
    let model = Arc::new(Model::load(dir)?);
    let mut inference = Inference::new(model.clone(), 2);
    drop(model);
    let mut findings = Findings { prompts: golden.prompts.len(), ..Findings::default() };
    for prompt in &golden.prompts {
        let tokens = tokenizer.encode(&prompt.text)?;
        findings.same_tokens += usize::from(tokens == prompt.tokens && tokenizer.decode(&tokens)? == prompt.text);
        let greedy = generate(&mut inference, &prompt.tokens, prompt.greedy.len());
        findings.greedy_tokens += greedy.len();
        findings.same_greedy_tokens += greedy.iter().zip(&prompt.greedy).take_while(|(a, b)| a == b).count();
        let all: Vec<u32> = prompt.tokens.iter().chain(&prompt.greedy).copied().collect();
        let logits = whole(&mut inference, &all);
        let vocab = inference.config().vocab_size;
        for (position, (ids, expected)) in prompt.positions.iter().zip(prompt.top_ids.iter().zip(&prompt.top_logits)) {
            for (id, expected) in ids.iter().zip(expected) {
                let difference = (logits[position * vocab + id] - expected).abs();
                findings.largest_difference = findings.largest_difference.max(difference);
                findings.logits += 1;
            }
        }
    }
    Ok(findings)
}

fn whole(inference: &mut Inference, tokens: &[u32]) -> Vec<f32> {
    let pages: Vec<u32> = (0..tokens.len().div_ceil(16) as u32).collect();
    let mut kv = Kv::new(inference.config(), pages.len(), 16);
    inference.forward(&mut kv, &[Segment { tokens, start: 0, pages: &pages, logits: LogitRows::All }]).to_vec()
}

/// Greedy continuation, the prompt in chunks of 7 over pages in descending order.
fn generate(inference: &mut Inference, prompt: &[u32], count: usize) -> Vec<u32> {
    let pages: Vec<u32> = (0..(prompt.len() + count).div_ceil(16) as u32).rev().collect();
    let mut kv = Kv::new(inference.config(), pages.len(), 16);
    let (mut all, mut done) = (prompt.to_vec(), 0);
    while all.len() < prompt.len() + count {
        let chunk = &all[done..all.len().min(done + 7)];
        let segment = Segment { tokens: chunk, start: done, pages: &pages, logits: LogitRows::Last };
        let logits = inference.forward(&mut kv, &[segment]);
        done += chunk.len();
        if done == all.len() {
            let best = (0..logits.len()).max_by(|a, b| logits[*a].total_cmp(&logits[*b]));
            all.push(best.map_or(0, |id| id as u32));
        }
    }
    all.split_off(prompt.len())
}
