//! A policy small enough to train in a test, and batches drawn from it.

use std::path::Path;
use venus_core::ids::{BatchId, GroupId, TrajectoryId, Version};
use venus_core::message::engine::VersionSpan;
use venus_core::message::trainer::{TrainBatch, TrainGroup, TrainTrajectory};
use venus_lm::{Config, Model, TrainWorkspace};

/// A prompt is two tokens, a turn two drawn tokens, and between the two turns stands one token of tool output.
const LENGTH: usize = 7;
const MASK: [u8; LENGTH] = [0, 0, 1, 1, 0, 1, 1];
const TOOL_OUTPUT: u32 = 7;

pub fn tiny_model() -> Model {
    let config = Config {
        hidden_size: 16,
        intermediate_size: 32,
        num_hidden_layers: 1,
        num_attention_heads: 2,
        num_key_value_heads: 1,
        head_dim: 8,
        ..Config::tiny(12)
    };
    Model::random(config, 1)
}

/// Writes what a trainer starts from.
pub fn write_model(model: &Model, dir: &Path) {
    model.save(dir).unwrap();
    std::fs::write(dir.join("tokenizer.json"), "{}").unwrap();
}

/// Which tokens to draw from which weights.
#[derive(Clone, Copy)]
pub struct Rollout {
    pub batch: u64,
    pub version: u64,
    pub groups: u64,
    pub members: u64,
    pub temperature: f32,
}

impl Rollout {
    pub fn new(batch: u64) -> Self {
        Self { batch, version: batch, groups: 4, members: 8, temperature: 1.0 }
    }

    /// A batch drawn from `model`, rewarded by the share of drawn tokens that are `wanted`.
    pub fn draw(&self, model: &Model, wanted: u32) -> TrainBatch {
        let groups = (0..self.groups).map(|group| {
            let trajectories = (0..self.members).map(|member| self.trajectory(model, group, member, wanted)).collect();
            TrainGroup { group: GroupId(self.batch * self.groups + group), trajectories }
        });
        let groups = groups.collect();
        TrainBatch { batch: BatchId(self.batch), temperature: self.temperature, groups }
    }

    fn trajectory(&self, model: &Model, group: u64, member: u64, wanted: u32) -> TrainTrajectory {
        let id = (self.batch * self.groups + group) * self.members + member;
        let mut random = Random(id + 1);
        let mut tokens = vec![group as u32 % 4, 5];
        let mut logprobs = vec![0.0; 2];
        for mask in &MASK[2..] {
            let (token, logprob) = match mask {
                0 => (TOOL_OUTPUT, 0.0),
                _ => random.draw(&next_logits(model, &tokens), self.temperature),
            };
            tokens.push(token);
            logprobs.push(logprob);
        }
        let drawn = || (0..LENGTH).filter(|&position| MASK[position] == 1);
        let reward = drawn().filter(|&position| tokens[position] == wanted).count() as f32 / drawn().count() as f32;
        let spans = [(2, 4), (5, 7)].map(|(start, end)| VersionSpan { version: Version(self.version), start, end });
        let (trajectory, mask) = (TrajectoryId(id), MASK.to_vec());
        TrainTrajectory { trajectory, tokens, mask, logprobs, spans: spans.to_vec(), reward }
    }
}

fn next_logits(model: &Model, tokens: &[u32]) -> Vec<f32> {
    let mut logits = Vec::new();
    let row = [tokens.len() as u32 - 1];
    let mut keep = |_: usize, row: &[f32]| logits = row.to_vec();
    venus_lm::logits(model, &mut TrainWorkspace::new(), &[tokens], &[&row], &mut keep);
    logits
}

struct Random(u64);

impl Random {
    /// A number in 0..1 (xorshift).
    fn uniform(&mut self) -> f64 {
        for _ in 0..4 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
        }
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    fn draw(&mut self, logits: &[f32], temperature: f32) -> (u32, f32) {
        let scaled: Vec<f64> = logits.iter().map(|&logit| f64::from(logit / temperature)).collect();
        let total: f64 = scaled.iter().map(|logit| logit.exp()).sum();
        let mut left = self.uniform() * total;
        let found = scaled.iter().position(|logit| {
            left -= logit.exp();
            left < 0.0
        });
        let token = found.unwrap_or(logits.len() - 1);
        (token as u32, (scaled[token] - total.ln()) as f32)
    }
}
