//! The engine as a synchronous machine.

use crate::generation::Generation;
use crate::options::{EngineError, EngineOptions};
use crate::sampler::{self, Sampler, SamplingError};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use venus_core::batch::{Batch, Drawn, Ended, Submission};
use venus_core::ids::{AttemptId, TokenId, TrajectoryId, Version};
use venus_core::message::engine::{
    Class, EngineCommand, EngineEvent, EngineStats, FinishReason, TurnRequest, TurnResult,
};
use venus_core::residency::Tier;
use venus_core::units::{Pages, Tokens};
use venus_lm::{Config, Inference, Kv, LogitRows, Model, Segment};

/// Where the time of the iterations went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timing {
    /// All of it.
    pub busy: Duration,
    /// In the model's forward pass.
    pub forward: Duration,
    /// Drawing tokens from logits.
    pub sampling: Duration,
}

/// A request that means nothing to this model.
#[derive(Debug, thiserror::Error)]
enum BadRequest {
    #[error(transparent)]
    Sampling(#[from] SamplingError),
    #[error(
        "token {token} at position {position} of the context: the model knows tokens below {vocab}; was another tokenizer used?"
    )]
    Token { token: TokenId, position: usize, vocab: usize },
}

/// One engine: a model, its KV and the turns it generates. Nothing runs but inside [`step`](Self::step); everything else
/// takes effect with the next step.
pub struct Engine {
    inference: Inference,
    config: Config,
    kv: Kv,
    batch: Batch,
    sampler: Sampler,
    options: EngineOptions,
    version: Version,
    paused: bool,
    generations: HashMap<AttemptId, Generation>,
    events: Vec<EngineEvent>,
    ended: Vec<Ended>,
    drawn: Vec<Drawn>,
    iterations: u64,
    timing: Timing,
}

impl Engine {
    /// An engine of the model in `dir`.
    ///
    /// # Errors
    /// The model cannot be read, or the options leave no room for a page.
    pub fn load(options: EngineOptions, dir: &Path) -> Result<Self, EngineError> {
        Self::new(options, Model::load(dir)?)
    }

    /// An engine of `model`.
    ///
    /// # Errors
    /// The options leave no room for a page, or a limit is zero.
    pub fn new(options: EngineOptions, model: Model) -> Result<Self, EngineError> {
        let batch = options.batch(&model.config)?;
        let kv = Kv::new(&model.config, batch.pages.0 as usize, batch.page_size as usize);
        Ok(Self {
            config: model.config.clone(),
            inference: Inference::new(Arc::new(model), options.threads),
            kv,
            batch: Batch::new(batch),
            sampler: Sampler::default(),
            version: options.version,
            options,
            paused: false,
            generations: HashMap::new(),
            events: Vec::new(),
            ended: Vec::new(),
            drawn: Vec::new(),
            iterations: 0,
            timing: Timing::default(),
        })
    }

    /// Does what a command says. Returns whether to go on: false after [`EngineCommand::Shutdown`].
    pub fn command(&mut self, command: EngineCommand) -> bool {
        match command {
            EngineCommand::Submit(request) => self.submit(request),
            EngineCommand::Abort(attempt) => self.abort(attempt),
            EngineCommand::SetClass(trajectory, class) => self.set_class(trajectory, class),
            EngineCommand::Release(trajectory) => self.release(trajectory),
            EngineCommand::Pause => self.pause(),
            EngineCommand::Resume => self.resume(),
            EngineCommand::LoadWeights { version, dir } => self.load_weights(version, &dir),
            EngineCommand::Stats => self.events.push(EngineEvent::Stats(self.stats())),
            EngineCommand::Shutdown => return false,
        }
        true
    }

    /// Queues a turn. It is answered once by [`EngineEvent::Turn`], rejected if it can never be served. An output that the
    /// model's positions or the KV cannot hold to its `max_tokens` ends early with [`FinishReason::Length`].
    pub fn submit(&mut self, request: TurnRequest) {
        let TurnRequest { attempt, trajectory, class, context, sampling, .. } = request;
        if self.generations.contains_key(&attempt) {
            tracing::warn!(%attempt, "submitted twice: the second is ignored");
            return;
        }
        if let Err(bad) = self.check(&context, &sampling) {
            let finish = FinishReason::Rejected { reason: bad.to_string() };
            return self.events.push(EngineEvent::Turn(unserved(attempt, trajectory, finish)));
        }
        let max_tokens = sampling.max_tokens;
        self.generations.insert(attempt, Generation::new(sampling));
        self.batch.submit(Submission { attempt, trajectory, class, context, max_tokens });
    }

    /// Ends an attempt in whatever state it is. It is answered with what it has drawn; one that has ended is not answered
    /// again.
    pub fn abort(&mut self, attempt: AttemptId) {
        self.batch.abort(attempt);
    }

    /// A trajectory changed class.
    pub fn set_class(&mut self, trajectory: TrajectoryId, class: Class) {
        self.batch.set_class(trajectory, class);
    }

    /// The trajectory ended, however: the pages it would have come back for are kept for its sake no more. To be told of
    /// one that is not known, or twice, changes nothing.
    pub fn release(&mut self, trajectory: TrajectoryId) {
        self.batch.release(trajectory);
    }

    /// No further iteration until [`resume`](Self::resume); turns keep what they have. Aborts are still answered.
    pub fn pause(&mut self) {
        self.paused = true;
    }

    /// Goes on.
    pub fn resume(&mut self) {
        self.paused = false;
    }

    /// Replaces the weights; turns in flight go on with the KV they have (vLLM's pause with `mode=keep`). Answered by
    /// [`EngineEvent::Loaded`], or by [`EngineEvent::LoadFailed`] and nothing has changed. A version names its weights: the
    /// current version is answered at once and not read again.
    pub fn load_weights(&mut self, version: Version, dir: &Path) {
        if version != self.version {
            let model = match self.read(dir) {
                Ok(model) => model,
                Err(reason) => return self.events.push(EngineEvent::LoadFailed { version, reason }),
            };
            self.inference = Inference::new(Arc::new(model), self.options.threads);
            self.version = version;
            self.batch.activate(version);
        }
        self.events.push(EngineEvent::Loaded(version));
    }

    /// Whether [`step`](Self::step) would do anything.
    #[must_use]
    pub fn has_work(&self) -> bool {
        let runs = !self.paused && !self.batch.is_idle() && !self.batch.is_stalled();
        runs || self.batch.is_queued() || !self.events.is_empty()
    }

    /// One iteration: applies what was queued, runs the planned tokens through the model, draws. Returns what happened
    /// since the last step.
    pub fn step(&mut self) -> Vec<EngineEvent> {
        let start = Instant::now();
        if self.paused {
            self.batch.drain(&mut self.ended);
        } else {
            self.batch.plan(&mut self.ended);
        }
        if !self.batch.work().is_empty() {
            self.forward();
            self.batch.commit(&self.drawn, &mut self.ended);
            self.iterations += 1;
        }
        self.answer();
        self.timing.busy += start.elapsed();
        std::mem::take(&mut self.events)
    }

    /// State and counters.
    #[must_use]
    pub fn stats(&self) -> EngineStats {
        let (pages, counters) = (self.batch.residency(), self.batch.counters());
        let tiers = pages.tiers();
        EngineStats {
            running: self.batch.running() as u32,
            waiting: self.batch.waiting() as u32,
            pages: pages.capacity(),
            pages_free: pages.free(),
            pages_cached: pages.cached(),
            pages_unused: Pages(tiers[Tier::Unused]),
            pages_low: Pages(tiers[Tier::LowRef]),
            pages_high: Pages(tiers[Tier::HighRef]),
            generated_tokens: counters.generated,
            context_tokens: counters.context,
            cached_tokens: counters.cached,
            recomputed_tokens: counters.recomputed,
            retractions: counters.retractions + counters.preemptions,
            preemptions: counters.preemptions,
            demotions: counters.demotions,
            iterations: self.iterations,
            busy_nanos: self.timing.busy.as_nanos() as u64,
        }
    }

    /// Where the time went.
    #[must_use]
    pub fn timing(&self) -> Timing {
        self.timing
    }

    /// The batch, to look at: its counters, its pages, its invariants.
    #[must_use]
    pub fn batch(&self) -> &Batch {
        &self.batch
    }

    fn check(&self, context: &[TokenId], sampling: &venus_core::message::engine::Sampling) -> Result<(), BadRequest> {
        sampler::check(sampling)?;
        let vocab = self.config.vocab_size;
        match context.iter().position(|&token| token as usize >= vocab) {
            Some(position) => Err(BadRequest::Token { token: context[position], position, vocab }),
            None => Ok(()),
        }
    }

    /// A model that can take the place of the current one.
    fn read(&self, dir: &Path) -> Result<Model, String> {
        let model = Model::load(dir).map_err(|error| error.to_string())?;
        let Config { bos_token_id, ref eos_token_ids, max_position_embeddings, .. } = self.config;
        let eos_token_ids = eos_token_ids.clone();
        let shape = Config { bos_token_id, eos_token_ids, max_position_embeddings, ..model.config.clone() };
        if shape != self.config {
            let (new, old) = (&model.config, &self.config);
            return Err(format!(
                "{}: another shape than the model in use; found {new:?}, in use {old:?}",
                dir.display()
            ));
        }
        if !model.params().iter().all(|param| param.is_finite()) {
            return Err(format!(
                "{}: some weights are not finite; the training step that wrote them went wrong",
                dir.display()
            ));
        }
        Ok(model)
    }

    /// Runs the planned work and draws.
    fn forward(&mut self) {
        let start = Instant::now();
        let batch = &self.batch;
        let segments: Vec<Segment<'_>> = batch
            .work()
            .iter()
            .map(|work| Segment {
                tokens: batch.tokens(work),
                start: work.start,
                pages: batch.block_table(work),
                logits: if work.draws { LogitRows::Last } else { LogitRows::None },
            })
            .collect();
        let logits = self.inference.forward(&mut self.kv, &segments);
        let forward = start.elapsed();
        self.drawn.clear();
        let drawing = batch.work().iter().filter(|work| work.draws);
        for (work, row) in drawing.zip(logits.chunks_exact(self.config.vocab_size)) {
            let generation = self.generations.get_mut(&work.attempt).expect("a turn in the batch has its record");
            let draw = self.sampler.draw(row, &generation.sampling, work.end);
            self.drawn.push(draw.map_or(Drawn::Failed, |draw| generation.record(draw, self.version)));
        }
        self.timing.forward += forward;
        self.timing.sampling += start.elapsed() - forward;
    }

    fn answer(&mut self) {
        for ended in self.ended.drain(..) {
            let generation = self.generations.remove(&ended.attempt).expect("a turn in the batch has its record");
            self.events.push(EngineEvent::Turn(generation.finish(ended)));
        }
    }
}

fn unserved(attempt: AttemptId, trajectory: TrajectoryId, finish: FinishReason) -> TurnResult {
    TurnResult {
        attempt,
        trajectory,
        tokens: Vec::new(),
        logprobs: Vec::new(),
        spans: Vec::new(),
        finish,
        cached_tokens: Tokens::ZERO,
        recomputed_tokens: Tokens::ZERO,
    }
}
