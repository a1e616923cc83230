//! The cycle of a step: batch, training, loading, evaluation, publishing.

use super::{Coordinator, RunError};
use crate::agent::seconds;
use crate::record::Entry;
use crate::report::{Phase, Progress, RunEvent, StepReport};
use crate::sandbox::SandboxClient;
use crate::stop::Urgency;
use crate::trainer::{TrainError, TrainerClient};
use std::collections::BTreeSet;
use std::path::Path;
use tokio::time::timeout;
use venus_core::ids::{BatchId, GroupId, Version, WorkerId};
use venus_core::message::engine::EngineCommand;
use venus_core::message::trainer::StepResult;
use venus_core::schedule::Event;
use venus_core::units::Instant;

/// Where the run is. Rollout goes on beside it as far as the async factor allows.
#[derive(Debug)]
pub(super) enum Cycle {
    /// Nothing has begun.
    Idle,
    /// The trainer waits for a batch.
    Rollout { since: Instant },
    /// The trainer works.
    Training { since: Instant, batch: BatchId },
    /// Engines load the version; the report is that of the step which made it.
    Loading { since: Instant, waiting: BTreeSet<WorkerId>, report: Option<Box<StepReport>> },
    /// Held-out tasks run on the version, which is published when they are done.
    Evaluating { batch: Option<BatchId> },
    /// The run is over.
    Ended,
}

impl Cycle {
    /// Whether groups may be offered. Not before the first version is in use everywhere and evaluated.
    pub fn offers(&self) -> bool {
        matches!(self, Self::Rollout { .. } | Self::Training { .. })
    }

    fn phase(&self) -> Phase {
        match self {
            Self::Idle | Self::Rollout { .. } | Self::Ended => Phase::Rollout,
            Self::Training { .. } => Phase::Training,
            Self::Loading { .. } => Phase::Loading,
            Self::Evaluating { .. } => Phase::Evaluating,
        }
    }
}

impl<C: SandboxClient, T: TrainerClient> Coordinator<C, T> {
    /// The first move: a resumed run has its weights loaded, a new one is there.
    pub(super) fn begin(&mut self) -> Result<(), RunError> {
        match self.checkpoint.clone() {
            Some(dir) => self.load(&dir, None),
            None => self.in_use(None),
        }
    }

    /// Hands a batch to the trainer.
    pub(super) fn deliver(&mut self, batch: BatchId, groups: Vec<GroupId>) -> Result<(), RunError> {
        let Cycle::Rollout { since } = self.cycle else {
            return Err(RunError::Impossible(format!("batch {batch} was delivered to a busy trainer")));
        };
        let payload = self.ledger.deliver(batch, self.options.sampling.temperature, groups.clone())?;
        self.note(&Entry::BatchDelivered { batch, groups })?;
        let now = self.now();
        self.tally.waited(now.as_secs_f64() - since.as_secs_f64());
        self.cycle = Cycle::Training { since: now, batch };
        let (trainer, limit) = (self.trainer.clone(), seconds(self.options.train_timeout));
        self.training.spawn(async move {
            let late = || TrainError(format!("no answer within {limit:?}: raise train_timeout if that is normal"));
            timeout(limit, trainer.train(payload)).await.unwrap_or_else(|_| Err(late()))
        });
        Ok(())
    }

    /// The trainer answered. Its checkpoint is on disk, so the commit is recorded first of all.
    pub(super) fn trained(&mut self, result: Result<StepResult, TrainError>) -> Result<(), RunError> {
        let Cycle::Training { since, batch } = self.cycle else {
            return Err(RunError::Impossible("the trainer answered without having been asked".to_owned()));
        };
        let result = result.map_err(|source| RunError::Train { batch, source })?;
        let due = Version(self.version.0 + 1);
        if (result.batch, result.version) != (batch, due) {
            let what = format!("it made {} of {}, due was {due} of {batch}", result.version, result.batch);
            return Err(RunError::Train { batch, source: TrainError(what) });
        }
        let groups = self.ledger.batch(batch).unwrap_or_default().to_vec();
        self.note(&Entry::StepCommitted { batch, groups, version: due, dir: result.dir.clone() })?;
        self.record.sync()?;
        let now = self.now();
        self.tally.trained(now.as_secs_f64() - since.as_secs_f64());
        (self.version, self.checkpoint) = (due, Some(result.dir.clone()));
        let dir = result.dir.clone();
        let groups = self.ledger.commit(batch, due)?;
        let mut report = self.tally.close(now, result, groups);
        report.classes = self.scheduler.stats().classes;
        self.load(&dir, Some(Box::new(report)))
    }

    /// Has all engines load the newest version. What is in flight goes on.
    fn load(&mut self, dir: &Path, report: Option<Box<StepReport>>) -> Result<(), RunError> {
        for &worker in self.engines.keys() {
            self.command(worker, EngineCommand::LoadWeights { version: self.version, dir: dir.to_owned() });
        }
        let waiting = self.engines.keys().copied().collect();
        self.cycle = Cycle::Loading { since: self.now(), waiting, report };
        Ok(())
    }

    pub(super) fn loaded(&mut self, worker: WorkerId, version: Version) -> Result<(), RunError> {
        if version == self.version { self.not_loading(worker) } else { Ok(()) }
    }

    pub(super) fn load_failed(&self, worker: WorkerId, version: Version, reason: String) -> Result<(), RunError> {
        let dir = self.checkpoint.clone().unwrap_or_default();
        Err(RunError::Load { worker, version, dir, reason })
    }

    /// One engine less to wait for.
    pub(super) fn not_loading(&mut self, worker: WorkerId) -> Result<(), RunError> {
        let now = self.now();
        let Cycle::Loading { since, waiting, report, .. } = &mut self.cycle else { return Ok(()) };
        waiting.remove(&worker);
        if !waiting.is_empty() {
            return Ok(());
        }
        let took = now.as_secs_f64() - since.as_secs_f64();
        let Some(report) = report.take() else { return self.in_use(None) };
        self.tally.loaded(took);
        let batch = report.batch;
        self.note(&Entry::StepReported(report.clone()))?;
        self.emit(RunEvent::StepFinished(report.clone()));
        self.steps.push(*report);
        self.in_use(Some(batch))
    }

    /// All engines run the newest version: it is evaluated if that is due, then published.
    fn in_use(&mut self, batch: Option<BatchId>) -> Result<(), RunError> {
        if self.evaluation_due() {
            self.cycle = Cycle::Evaluating { batch };
            return self.evaluate();
        }
        self.publish(batch)
    }

    pub(super) fn publish(&mut self, batch: Option<BatchId>) -> Result<(), RunError> {
        if self.version >= self.target {
            self.record.sync()?;
            self.cycle = Cycle::Ended;
            return Ok(());
        }
        self.cycle = Cycle::Rollout { since: self.now() };
        if let Some(batch) = batch {
            self.tell(Event::VersionPublished { version: self.version })?;
            self.tell(Event::BatchTrained { batch })?;
        }
        self.offer()?;
        self.tell(Event::TrainerDemand)
    }

    /// Lowers the target to the end of the step in progress. An evaluation is no step and ends at once.
    pub(super) fn stop_after_step(&mut self, urgency: Urgency) -> Result<(), RunError> {
        self.urgency = urgency;
        let target = match self.cycle {
            Cycle::Rollout { .. } | Cycle::Training { .. } => Version(self.version.0 + 1),
            _ => self.version,
        };
        self.target = self.target.min(target);
        self.notice(format!("stopping: the run ends after step {}; stop again to end it now", self.target.0));
        match self.cycle {
            Cycle::Evaluating { batch } => {
                self.cancel_evaluation();
                self.publish(batch)
            }
            _ => Ok(()),
        }
    }

    /// Progress for people, and the time-out of loading.
    pub(super) fn tick(&mut self) -> Result<(), RunError> {
        self.engines.keys().for_each(|&worker| self.command(worker, EngineCommand::Stats));
        self.emit(RunEvent::Progress(self.progress()));
        let limit = self.options.load_timeout;
        let late = match &self.cycle {
            Cycle::Loading { since, waiting, .. } if self.now().since(*since) as f64 > limit * 1e9 => waiting.clone(),
            _ => return Ok(()),
        };
        for worker in late {
            self.notice(format!("engine {worker} did not load {} within {limit} s", self.version));
            self.engine_lost(worker)?;
        }
        Ok(())
    }

    fn progress(&self) -> Progress {
        let stats = self.scheduler.stats();
        let (evaluated, to_evaluate) = self.evaluation_progress();
        Progress {
            elapsed: self.now().as_secs_f64(),
            phase: self.cycle.phase(),
            version: self.version,
            groups_complete: stats.groups.ready,
            groups_wanted: self.options.scheduler.groups_per_batch,
            trajectories: self.live.len(),
            sandboxes: self.tally.sandboxes,
            generating: stats.stages.running,
            queued: stats.stages.queued,
            acting: stats.stages.acting,
            evaluated,
            to_evaluate,
            generated_tokens: self.tally.generated,
        }
    }
}
