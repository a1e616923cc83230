//! The trainer: a batch of complete groups in, a weight version out.

use crate::batch::{self, Expectation, Samples, Sequence};
use crate::checkpoint::{self, Checkpoint, OPTIMIZER, Partial, TOKENIZER};
use crate::error::TrainerError;
use crate::objective::{Objective, Tally};
use crate::optimizer::AdamW;
use crate::options::{TrainerOptions, thread_count};
use crate::random::SplitMix;
use crate::shard::Shards;
use std::fs;
use std::path::Path;
use std::time::Instant;
use venus_core::ids::{BatchId, Version};
use venus_core::message::trainer::{StepMetrics, StepResult, TrainBatch};
use venus_lm::Model;

/// Trains a model on complete groups, one weight version a step.
///
/// A step either makes a version, on disk and in memory, or fails and leaves the trainer as it was. The same options,
/// model, batches and number of threads give bitwise the same weights, also across [`Trainer::resume`].
pub struct Trainer {
    options: TrainerOptions,
    threads: usize,
    model: Model,
    reference: Option<Model>,
    tokenizer: Vec<u8>,
    optimizer: AdamW,
    version: Version,
    last: Option<BatchId>,
    shards: Shards,
}

impl Trainer {
    /// A trainer that starts from a model's directory, as version 0.
    ///
    /// # Errors
    /// The options cannot work, or the directory lacks a readable model or `tokenizer.json`.
    pub fn new(options: TrainerOptions, model_dir: &Path) -> Result<Self, TrainerError> {
        options.validate()?;
        let model = load_model(model_dir)?;
        let optimizer = AdamW::new(options.optimizer.clone(), model.layout());
        Self::assemble(options, model_dir, model, optimizer)
    }

    /// A trainer that goes on from a checkpoint that [`Trainer::step`] wrote, with these options from now on.
    ///
    /// # Errors
    /// As [`Trainer::new`]; or the checkpoint's parts do not fit together.
    pub fn resume(options: TrainerOptions, checkpoint_dir: &Path) -> Result<Self, TrainerError> {
        options.validate()?;
        let checkpoint = Checkpoint::read(checkpoint_dir)?;
        if checkpoint.options != options {
            tracing::info!(version = %checkpoint.version, "training goes on with other options than before");
        }
        let model = load_model(checkpoint_dir)?;
        let state = checkpoint_dir.join(OPTIMIZER);
        let optimizer = AdamW::load(options.optimizer.clone(), model.layout(), &state)?;
        let trainer = Self::assemble(options, checkpoint_dir, model, optimizer)?;
        Ok(Self { version: checkpoint.version, last: Some(checkpoint.batch), ..trainer })
    }

    fn assemble(options: TrainerOptions, dir: &Path, model: Model, optimizer: AdamW) -> Result<Self, TrainerError> {
        let path = dir.join(TOKENIZER);
        let tokenizer = fs::read(&path).map_err(TrainerError::io("read", &path))?;
        let reference = match &options.loss.reference {
            Some(dir) if options.loss.kl_coefficient > 0.0 => Some(load_reference(dir, &model)?),
            _ => None,
        };
        let threads = thread_count(options.threads);
        let shards = Shards::new(threads, options.micro_batch_tokens as usize);
        let (version, last) = (Version(0), None);
        Ok(Self { options, threads, model, reference, tokenizer, optimizer, version, last, shards })
    }

    /// The version of the present weights.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// The present weights.
    #[must_use]
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Trains a batch and writes the next version to `out/v{N}`, complete or not at all.
    ///
    /// If no group has an advantage, the next version has the present weights. Clip, truncation and the KL in the
    /// metrics are over all updates of the step; `logprob_gap_max` is over tokens compared before the first update.
    ///
    /// # Errors
    /// The batch is wrong or was the last one trained, the gradient is not finite, or the version cannot be written.
    /// The trainer is as before in all cases.
    pub fn step(&mut self, batch: &TrainBatch, out: &Path) -> Result<StepResult, TrainerError> {
        let started = Instant::now();
        let version = Version(self.version.0 + 1);
        self.refuse_repeated(batch, out, version)?;
        let expected = self.expectation();
        batch::check(batch, &expected)?;
        let keep_idle = self.options.loss.kl_coefficient > 0.0;
        let samples = Samples::of(batch, &expected, self.options.loss.advantage_epsilon, keep_idle);
        let before = (self.model.params().to_vec(), self.optimizer.clone());
        let result = self.train(&samples, batch.temperature).and_then(|tally| {
            let metrics = tally.metrics(&samples, started.elapsed().as_secs_f64());
            self.write(batch, version, out, metrics)
        });
        match &result {
            Ok(_) => (self.version, self.last) = (version, Some(batch.batch)),
            Err(_) => {
                self.model.params_mut().copy_from_slice(&before.0);
                self.optimizer = before.1;
            }
        }
        result
    }

    fn expectation(&self) -> Expectation {
        let (vocab_size, version) = (self.model.config.vocab_size, self.version);
        Expectation { vocab_size, version, algorithm: self.options.algorithm }
    }

    fn refuse_repeated(&self, batch: &TrainBatch, out: &Path, version: Version) -> Result<(), TrainerError> {
        if self.last == Some(batch.batch) {
            return Err(TrainerError::AlreadyTrained { batch: batch.batch, version: self.version });
        }
        let dir = checkpoint::directory(out, version);
        if dir.exists() { Err(TrainerError::CheckpointExists { dir }) } else { Ok(()) }
    }

    fn train(&mut self, samples: &Samples, temperature: f32) -> Result<Tally, TrainerError> {
        let Self { options, threads, model, reference, optimizer, version, shards, .. } = self;
        let count = samples.list.len();
        let minibatches = (options.minibatches as usize).min(count);
        let several = minibatches > 1 || options.epochs > 1;
        let objective = Objective::new(options, samples, temperature, minibatches);
        let objective = objective.prepare(several, model, reference.as_ref(), shards);
        let mut tally = Tally::default();
        objective.compare_at_start(&mut tally);
        for epoch in 0..options.epochs {
            let order = SplitMix(options.seed ^ (version.0 << 16) ^ u64::from(epoch)).permutation(count);
            for part in 0..minibatches {
                let chosen = &order[part * count / minibatches..(part + 1) * count / minibatches];
                let sequences: Vec<&Sequence> = chosen.iter().map(|&index| &samples.list[index].sequence).collect();
                let evaluate = |at: usize, logits: &mut [f32]| objective.evaluate(chosen[at], logits);
                let (grads, outcomes) = shards.gradient(model, &sequences, &evaluate);
                let update = optimizer.update(model.params_mut(), grads, *threads)?;
                objective.tally(chosen, &outcomes, update, &mut tally);
            }
        }
        Ok(tally)
    }

    fn write(
        &self,
        batch: &TrainBatch,
        version: Version,
        out: &Path,
        metrics: StepMetrics,
    ) -> Result<StepResult, TrainerError> {
        let partial = Partial::begin(out, version)?;
        let dir = partial.dir();
        self.model.save(dir).map_err(TrainerError::model("write", dir))?;
        let tokenizer = dir.join(TOKENIZER);
        fs::write(&tokenizer, &self.tokenizer).map_err(TrainerError::io("write", &tokenizer))?;
        self.optimizer.save(&dir.join(OPTIMIZER))?;
        let groups = batch.groups.iter().map(|group| group.group).collect();
        Checkpoint::new(version, batch.batch, groups, self.options.clone(), metrics.clone()).write(dir)?;
        Ok(StepResult { batch: batch.batch, version, dir: partial.commit()?, metrics })
    }
}

fn load_model(dir: &Path) -> Result<Model, TrainerError> {
    Model::load(dir).map_err(TrainerError::model("read", dir))
}

fn load_reference(dir: &Path, model: &Model) -> Result<Model, TrainerError> {
    let reference = load_model(dir)?;
    let (found, expected) = (reference.config.vocab_size, model.config.vocab_size);
    if found == expected {
        return Ok(reference);
    }
    let problem = format!("{} has {found} tokens, the model {expected}: use the model's own start", dir.display());
    Err(TrainerError::option("loss.reference", problem))
}
