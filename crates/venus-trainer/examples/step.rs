//! Tokens a second of one GRPO step on the default tiny shape.
//!
//! ```text
//! cargo run --release -p venus-trainer --example step [THREADS]
//! ```
//!
//! `reference/throughput.py` measures the same step in PyTorch. On a busy AMD EPYC, one thread each, a step took
//! 1.5 CPU seconds here (`time`, over five steps) and 2.4-2.6 in PyTorch 2.15; outside `venus-lm` it spends under 2 %.

use std::error::Error;
use std::time::Instant;
use venus_core::ids::{BatchId, GroupId, TrajectoryId, Version};
use venus_core::message::engine::VersionSpan;
use venus_core::message::trainer::{TrainBatch, TrainGroup, TrainTrajectory};
use venus_lm::{Config, Model};
use venus_trainer::{Trainer, TrainerOptions};

const VOCAB: u32 = 600;
const GROUPS: u64 = 12;
const MEMBERS: u64 = 8;
const STEPS: u32 = 5;

fn main() -> Result<(), Box<dyn Error>> {
    let threads = std::env::args().nth(1).map_or(Ok(0), |threads| threads.parse())?;
    let dir = tempfile::tempdir()?;
    let start = dir.path().join("start");
    Model::random(Config::tiny(VOCAB as usize), 0).save(&start)?;
    std::fs::write(start.join("tokenizer.json"), "{}")?;
    let options = TrainerOptions { threads, minibatches: 1, ..TrainerOptions::default() };
    let mut trainer = Trainer::new(options, &start)?;
    let parameters = trainer.model().params().len();
    println!("{parameters} parameters, {} sequences, one update a step; best of {STEPS}", GROUPS * MEMBERS);
    let (mut best, mut best_whole, mut tokens) = (f64::INFINITY, f64::INFINITY, 0);
    for step in 0..u64::from(STEPS) {
        let batch = batch(step);
        let started = Instant::now();
        let metrics = trainer.step(&batch, dir.path())?.metrics;
        best_whole = best_whole.min(started.elapsed().as_secs_f64());
        (best, tokens) = (best.min(metrics.seconds), metrics.tokens);
    }
    let rate = |seconds: f64| tokens as f64 / seconds;
    println!(
        "{tokens} tokens: {:.0} tokens/s without, {:.0} with writing the checkpoint",
        rate(best),
        rate(best_whole)
    );
    Ok(())
}

/// Sequences of 150 to 350 tokens, half of them drawn, in turns of 10 tokens and tool output of 10.
fn batch(step: u64) -> TrainBatch {
    let trajectory = |id: u64| {
        let length = 150 + (id * 37 % 201) as usize;
        let mask: Vec<u8> = (0..length).map(|position| (position / 10 % 2) as u8).collect();
        let tokens = (0..length as u64).map(|position| ((position * 31 + id * 17) % u64::from(VOCAB)) as u32).collect();
        let logprobs = mask.iter().map(|&mask| if mask == 1 { -6.4 } else { 0.0 }).collect();
        let spans = vec![VersionSpan { version: Version(step), start: 0, end: length as u32 }];
        TrainTrajectory { trajectory: TrajectoryId(id), tokens, mask, logprobs, spans, reward: (id % 3) as f32 }
    };
    let group = |group: u64| TrainGroup {
        group: GroupId(step * GROUPS + group),
        trajectories: (group * MEMBERS..(group + 1) * MEMBERS).map(trajectory).collect(),
    };
    TrainBatch { batch: BatchId(step), temperature: 1.0, groups: (0..GROUPS).map(group).collect() }
}
