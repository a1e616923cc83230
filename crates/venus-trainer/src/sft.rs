//! Supervised training on demonstrations: the warm start of a policy.

use crate::batch::{Sequence, check_tokens};
use crate::error::TrainerError;
use crate::optimizer::AdamW;
use crate::options::{Decay, OptimizerOptions, at_least_one, thread_count};
use crate::random::SplitMix;
use crate::shard::Shards;
use crate::softmax;
use serde::{Deserialize, Serialize};
use std::ops::ControlFlow;
use std::time::Instant;
use venus_lm::Model;

/// Options of supervised training.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SftOptions {
    /// Passes over the demonstrations.
    pub epochs: u32,
    /// Tokens of one update, the prompts included: demonstrations are added until it is reached.
    pub batch_tokens: u32,
    /// Seed of the order, which differs from epoch to epoch.
    pub seed: u64,
    /// As [`crate::TrainerOptions::micro_batch_tokens`].
    pub micro_batch_tokens: u32,
    /// As [`crate::TrainerOptions::threads`].
    pub threads: u32,
    /// The optimizer. Its `decay` must be left at constant: the rate falls in a straight line over all updates.
    pub optimizer: OptimizerOptions,
    /// Share of the learning rate at the last update.
    pub end_rate: f64,
}

impl Default for SftOptions {
    /// What trained a model of a million parameters well; larger ones want a smaller learning rate.
    fn default() -> Self {
        let optimizer = OptimizerOptions { learning_rate: 4e-3, warmup_updates: 20, ..OptimizerOptions::default() };
        Self { epochs: 3, batch_tokens: 2048, seed: 0, micro_batch_tokens: 1024, threads: 0, optimizer, end_rate: 0.1 }
    }
}

impl SftOptions {
    /// Whether the options can work.
    ///
    /// # Errors
    /// [`TrainerError::Option`] names the first that cannot, and what is allowed.
    pub fn validate(&self) -> Result<(), TrainerError> {
        at_least_one("epochs", self.epochs)?;
        at_least_one("batch_tokens", self.batch_tokens)?;
        at_least_one("micro_batch_tokens", self.micro_batch_tokens)?;
        if !(0.0..=1.0).contains(&self.end_rate) {
            return Err(TrainerError::option("end_rate", format!("{} is not in 0..=1", self.end_rate)));
        }
        if self.optimizer.decay != Decay::Constant {
            return Err(TrainerError::option("optimizer.decay", "leave it out: end_rate says where the rate ends"));
        }
        self.optimizer.validate()
    }
}

/// A sequence to imitate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Demonstration {
    /// Prompt, demonstrated tokens and tool output, in order.
    pub tokens: Vec<u32>,
    /// 1 where the token is to be learnt, 0 for prompt and tool output.
    pub mask: Vec<u8>,
}

/// Where supervised training stands, after an update.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SftProgress {
    /// Updates made.
    pub update: u64,
    /// Updates in all.
    pub updates: u64,
    /// Mean loss of a learnt token in this update's batch, nats.
    pub loss: f64,
    /// Norm of the gradient before clipping.
    pub grad_norm: f64,
    /// Learning rate of this update.
    pub learning_rate: f64,
    /// Tokens trained a second, since the start.
    pub tokens_per_second: f64,
}

/// How well a model predicts demonstrations.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SftEvaluation {
    /// Mean loss of a learnt token, nats.
    pub loss: f64,
    /// Share of learnt tokens that are the model's most likely one.
    pub accuracy: f64,
    /// Share of demonstrations all of whose learnt tokens are.
    pub exact: f64,
}

/// Supervised training of one model. The same options, demonstrations and number of threads give bitwise the same model.
pub struct Sft {
    options: SftOptions,
    threads: usize,
    model: Model,
    shards: Shards,
}

impl Sft {
    /// Training of this model.
    ///
    /// # Errors
    /// The options cannot work.
    pub fn new(options: SftOptions, model: Model) -> Result<Self, TrainerError> {
        options.validate()?;
        let threads = thread_count(options.threads);
        let shards = Shards::new(threads, options.micro_batch_tokens as usize);
        Ok(Self { options, threads, model, shards })
    }

    /// The model as it is now.
    #[must_use]
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Gives the model back.
    #[must_use]
    pub fn into_model(self) -> Model {
        self.model
    }

    /// Trains for all epochs, with a fresh optimizer, until `progress` breaks off.
    ///
    /// # Errors
    /// A demonstration is wrong, or a gradient is not finite; the model keeps the updates before it.
    pub fn train(
        &mut self,
        demonstrations: &[Demonstration],
        progress: &mut dyn FnMut(&SftProgress) -> ControlFlow<()>,
    ) -> Result<(), TrainerError> {
        let sequences = self.sequences(demonstrations)?;
        let batches = self.batches(&sequences);
        let mut optimizer = AdamW::new(self.schedule(batches.len() as u64), self.model.layout());
        let (started, mut tokens) = (Instant::now(), 0);
        for batch in &batches {
            let chosen: Vec<&Sequence> = batch.iter().map(|&index| &sequences[index]).collect();
            let weight = 1.0 / chosen.iter().map(|sequence| sequence.targets.len()).sum::<usize>() as f64;
            let loss = |index: usize, logits: &mut [f32]| imitation(logits, &chosen[index].targets, weight);
            let (grads, losses) = self.shards.gradient(&self.model, &chosen, &loss);
            let update = optimizer.update(self.model.params_mut(), grads, self.threads)?;
            tokens += chosen.iter().map(|sequence| sequence.tokens.len()).sum::<usize>();
            let report = SftProgress {
                update: optimizer.updates(),
                updates: batches.len() as u64,
                loss: losses.iter().sum(),
                grad_norm: update.grad_norm,
                learning_rate: update.learning_rate,
                tokens_per_second: tokens as f64 / started.elapsed().as_secs_f64(),
            };
            if progress(&report).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// How well the model predicts these demonstrations, as it is now.
    ///
    /// # Errors
    /// A demonstration is wrong.
    pub fn evaluate(&mut self, demonstrations: &[Demonstration]) -> Result<SftEvaluation, TrainerError> {
        let sequences = self.sequences(demonstrations)?;
        let sequences: Vec<&Sequence> = sequences.iter().collect();
        let vocab_size = self.model.config.vocab_size;
        let scores = self.shards.forward(&self.model, &sequences, &|index, logits| {
            Score::of(logits.chunks_exact(vocab_size).zip(sequences[index].targets.iter().copied()))
        });
        let tokens: usize = scores.iter().map(|score| score.tokens).sum();
        let right: usize = scores.iter().map(|score| score.right).sum();
        let exact = scores.iter().filter(|score| score.right == score.tokens).count();
        Ok(SftEvaluation {
            loss: scores.iter().map(|score| score.loss).sum::<f64>() / tokens as f64,
            accuracy: right as f64 / tokens as f64,
            exact: exact as f64 / scores.len() as f64,
        })
    }

    fn sequences(&self, demonstrations: &[Demonstration]) -> Result<Vec<Sequence>, TrainerError> {
        if demonstrations.is_empty() {
            let place = "demonstrations".to_owned();
            return Err(TrainerError::Data { place, problem: "there are none".into() });
        }
        let checked = demonstrations.iter().enumerate().map(|(index, Demonstration { tokens, mask })| {
            check_tokens(tokens, mask, self.model.config.vocab_size)
                .map_err(|problem| TrainerError::Data { place: format!("demonstration {index}"), problem })?;
            Ok(Sequence::new(tokens, mask))
        });
        checked.collect()
    }

    /// The batches of all epochs. Known beforehand, so that the learning rate ends where it should.
    fn batches(&self, sequences: &[Sequence]) -> Vec<Vec<usize>> {
        let mut random = SplitMix(self.options.seed);
        let mut batches: Vec<Vec<usize>> = Vec::new();
        for _ in 0..self.options.epochs {
            let mut room = 0i64;
            for index in random.permutation(sequences.len()) {
                if room <= 0 {
                    batches.push(Vec::new());
                    room = i64::from(self.options.batch_tokens);
                }
                room -= sequences[index].tokens.len() as i64;
                batches.last_mut().expect("one was just begun").push(index);
            }
        }
        batches
    }

    fn schedule(&self, updates: u64) -> OptimizerOptions {
        let warmup_updates = self.options.optimizer.warmup_updates.min(updates / 2);
        let decay = Decay::Linear { updates: (updates - warmup_updates).max(1), end: self.options.end_rate };
        OptimizerOptions { warmup_updates, decay, ..self.options.optimizer.clone() }
    }
}

/// Cross entropy, each token times `weight`; the logits become its gradient.
fn imitation(logits: &mut [f32], targets: &[u32], weight: f64) -> f64 {
    let vocab_size = logits.len() / targets.len();
    let mut loss = 0.0;
    for (row, &target) in logits.chunks_exact_mut(vocab_size).zip(targets) {
        loss -= weight * f64::from(softmax::to_probabilities(row, target, 1.0).logprob);
        softmax::to_gradient(row, target, -weight as f32, 1.0);
    }
    loss
}

/// Sums over a demonstration's learnt tokens.
struct Score {
    tokens: usize,
    right: usize,
    loss: f64,
}

impl Score {
    fn of<'a>(rows: impl Iterator<Item = (&'a [f32], u32)>) -> Self {
        rows.fold(Self { tokens: 0, right: 0, loss: 0.0 }, |score, (row, target)| Self {
            tokens: score.tokens + 1,
            right: score.right + usize::from(row.iter().all(|&logit| logit <= row[target as usize])),
            loss: score.loss - f64::from(softmax::logprob(row, target, 1.0)),
        })
    }
}
