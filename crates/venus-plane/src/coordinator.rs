//! The coordinator: from tasks to groups, trajectories, batches and weight versions.
//!
//! One task owns the scheduler, the ledger and the record. Everything else (episodes, engines, the trainer) tells it facts through
//! one channel and holds none of its state:
//!
//! ```text
//! tasks -> group opened -> Start -> episode: sandbox -> turn queued -> Dispatch -> engine -> turn ended -> tool -> ...
//!       -> graded -> recorded -> group complete -> Deliver -> trainer -> committed -> LoadWeights on all engines
//!       -> (evaluation) -> VersionPublished -> ...
//! ```
//!
//! A fact about an episode names the start it belongs to, a fact about a turn its attempt; what is not current is
//! dropped. Whatever ends a run, its episodes are cancelled and their sandboxes freed before [`run`] returns.

mod crew;
mod cycle;
mod evaluation;
mod options;
mod rollout;
mod tally;

pub use options::{CoordinatorOptions, EvaluationOptions, SamplingOptions};

use crate::agent::{EpisodeOptions, Failure, Protocol, ProtocolError, Report, Who};
use crate::engine::EnginePort;
use crate::ledger::{Ledger, LedgerError};
use crate::record::{Audit, Entry, LogError, Record, Resume};
use crate::report::{Ending, EvalReport, RunEvent, RunSummary, StepReport};
use crate::sandbox::SandboxClient;
use crate::stop::{StopSignal, Urgency};
use crate::stream::TaskStream;
use crate::task::Task;
use crate::tokenize::Tokenize;
use crate::trainer::{TrainError, TrainerClient};
use crew::{Crew, Live};
use cycle::Cycle;
use evaluation::Evaluation;
use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use tally::Tally;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::{Interval, MissedTickBehavior};
use venus_core::ids::{BatchId, GroupId, TrajectoryId, Version, WorkerId};
use venus_core::message::engine::{EngineCommand, EngineEvent};
use venus_core::message::trainer::StepResult;
use venus_core::schedule::{ConfigError, ResumePoint, Scheduler, Violation};
use venus_core::units::Instant;

/// What a run is made of.
pub struct Parts<C, T> {
    /// Its settings.
    pub options: CoordinatorOptions,
    /// The tokenizer of the model.
    pub tokenizer: Arc<dyn Tokenize>,
    /// Tasks to train on; names must be unique.
    pub train: Vec<Arc<Task>>,
    /// Tasks to measure on.
    pub heldout: Vec<Arc<Task>>,
    /// Gives out sandboxes.
    pub sandboxes: C,
    /// Trains batches.
    pub trainer: T,
    /// Generate turns, with the weights that `resume` names or those of version 0 in use.
    pub engines: Vec<EnginePort>,
    /// The record.
    pub record: Record,
    /// Where the record says the run stands.
    pub resume: Resume,
    /// Is told what happens; may be closed.
    pub events: UnboundedSender<RunEvent>,
    /// Ends the run early.
    pub stop: StopSignal,
}

/// What ends a run before its time. What was recorded until then is safe, and the run can be resumed.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A setting cannot work.
    #[error("{0}")]
    Options(String),
    /// Likewise.
    #[error("scheduler.{0}")]
    Scheduler(#[from] ConfigError),
    /// There is nothing to train on.
    #[error("there are no training tasks: choose at least one family or task directory")]
    NoTasks,
    /// The record names a task that is not among the tasks.
    #[error(
        "the record has a group {group} of task {task:?}, which is not among the tasks now; use the tasks of that run"
    )]
    TaskGone {
        /// The group.
        group: GroupId,
        /// Its task.
        task: String,
    },
    /// The tokenizer cannot speak the protocol.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// The record cannot be written.
    #[error(transparent)]
    Record(#[from] LogError),
    /// A group would have been lost or trained twice.
    #[error("this is a bug in Venus, please report it: {0}")]
    Ledger(#[from] LedgerError),
    /// The scheduler contradicts itself.
    #[error("this is a bug in Venus, please report it: {0}")]
    Violation(#[from] Violation),
    /// Something happened that cannot.
    #[error("this is a bug in Venus, please report it: {0}")]
    Impossible(String),
    /// A batch could not be trained.
    #[error(
        "batch {batch} could not be trained: {source}; its groups are recorded and train again when the run is resumed"
    )]
    Train {
        /// Which.
        batch: BatchId,
        /// Why.
        source: TrainError,
    },
    /// An engine cannot use the new weights.
    #[error("engine {worker} cannot load {version} from {dir}: {reason}", dir = dir.display())]
    Load {
        /// Which engine.
        worker: WorkerId,
        /// Which weights.
        version: Version,
        /// Where they are.
        dir: PathBuf,
        /// Why.
        reason: String,
    },
    /// No engine is left.
    #[error("no inference engine is left; see the messages above, then resume the run")]
    NoEngine,
    /// Group after group fails.
    #[error("the last {groups} groups all had to be given up; the last failure: {last}")]
    GaveUp {
        /// How many.
        groups: u32,
        /// Why.
        last: Failure,
    },
}

/// Something the coordinator is told.
#[derive(Debug)]
pub(crate) enum Fact {
    /// By an episode.
    Report(Who, Report),
    /// By an engine; `None` when it is gone.
    Engine(WorkerId, Option<EngineEvent>),
}

/// What ended a wait.
enum Happening {
    Fact(Fact),
    Trained(Result<StepResult, TrainError>),
    Broken(Who, Failure),
    Stop(Urgency),
    Tick,
}

/// Runs until all steps are done, the run is stopped, or it cannot go on.
///
/// # Errors
/// [`RunError`] says what is wrong. All sandboxes are freed and everything that was complete is recorded.
pub async fn run<C: SandboxClient, T: TrainerClient>(parts: Parts<C, T>) -> Result<RunSummary, RunError> {
    let mut coordinator = Coordinator::new(parts)?;
    let ending = coordinator.work().await;
    coordinator.dismiss().await;
    coordinator.summary(ending?)
}

struct Coordinator<C, T> {
    options: CoordinatorOptions,
    scheduler: Scheduler,
    ledger: Ledger,
    record: Record,
    stream: TaskStream,
    heldout: Vec<Arc<Task>>,
    /// Tasks of the groups that are open.
    tasks: BTreeMap<GroupId, Arc<Task>>,
    /// Groups that an earlier part of the run opened and that start again.
    reopen: VecDeque<(GroupId, Vec<TrajectoryId>)>,
    next_group: GroupId,
    crew: Crew<C>,
    live: BTreeMap<TrajectoryId, Live>,
    training_episodes: Arc<EpisodeOptions>,
    trainer: Arc<T>,
    training: JoinSet<Result<StepResult, TrainError>>,
    engines: BTreeMap<WorkerId, Engine>,
    facts: UnboundedReceiver<Fact>,
    cycle: Cycle,
    /// Version of the newest commit.
    version: Version,
    checkpoint: Option<PathBuf>,
    target: Version,
    evaluation: Option<Evaluation>,
    tally: Tally,
    /// Groups given up since one was completed.
    drops: u32,
    last_failure: Option<Failure>,
    steps: Vec<StepReport>,
    evaluations: Vec<EvalReport>,
    resumed: bool,
    urgency: Urgency,
    stop: StopSignal,
    events: UnboundedSender<RunEvent>,
    origin: tokio::time::Instant,
    ticks: Interval,
    forwarders: JoinSet<()>,
}

struct Engine {
    slots: u32,
    commands: UnboundedSender<EngineCommand>,
}

impl<C: SandboxClient, T: TrainerClient> Coordinator<C, T> {
    fn new(parts: Parts<C, T>) -> Result<Self, RunError> {
        let Parts { options, tokenizer, train, heldout, sandboxes, trainer, engines, record, resume, events, stop } =
            parts;
        options.validate().map_err(RunError::Options)?;
        if engines.is_empty() {
            return Err(RunError::NoEngine);
        }
        let (sender, facts) = unbounded_channel();
        let protocol = Arc::new(Protocol::new(tokenizer)?);
        let heldout: Vec<_> = heldout.into_iter().take(options.evaluation.tasks).collect();
        let tasks = resumed_tasks(&train, &resume)?;
        let mut coordinator = Self {
            scheduler: Scheduler::resume(options.scheduler.clone(), resume_point(&resume))?,
            ledger: Ledger::default(),
            record,
            stream: TaskStream::new(train, options.seed).ok_or(RunError::NoTasks)?,
            heldout,
            tasks,
            reopen: VecDeque::new(),
            next_group: GroupId(0),
            crew: Crew::new(sandboxes, protocol, sender.clone()),
            live: BTreeMap::new(),
            training_episodes: Arc::new(episode_options(&options)),
            trainer: Arc::new(trainer),
            training: JoinSet::new(),
            engines: BTreeMap::new(),
            facts,
            cycle: Cycle::Idle,
            version: resume.version,
            checkpoint: resume.checkpoint.as_ref().map(|c| c.dir.clone()),
            target: Version(options.steps),
            evaluation: None,
            tally: Tally::default(),
            drops: 0,
            last_failure: None,
            steps: Vec::new(),
            evaluations: Vec::new(),
            resumed: resume.resumed,
            urgency: Urgency::None,
            stop,
            events,
            origin: tokio::time::Instant::now(),
            ticks: ticks(&options),
            forwarders: JoinSet::new(),
            options,
        };
        coordinator.restore(resume)?;
        coordinator.connect(engines, &sender)?;
        Ok(coordinator)
    }

    /// Takes over what the record knows.
    fn restore(&mut self, resume: Resume) -> Result<(), RunError> {
        for (&group, &version) in &resume.trained {
            self.ledger.remember_trained(group, version);
        }
        for &group in &resume.dropped {
            self.ledger.remember_dropped(group);
        }
        for notice in &resume.notices {
            self.notice(notice.clone());
        }
        for (group, open) in resume.open {
            self.ledger.open(group, open.members.clone())?;
            if open.is_complete() {
                for finished in open.finished.into_values() {
                    self.ledger.finish(finished)?;
                }
            } else {
                self.reopen.push_back((group, open.members));
            }
        }
        self.tally.resume(&resume.steps);
        self.steps = resume.steps;
        self.evaluations = resume.evaluations;
        Ok(())
    }

    fn connect(&mut self, engines: Vec<EnginePort>, facts: &UnboundedSender<Fact>) -> Result<(), RunError> {
        for EnginePort { worker, slots, commands, mut events } in engines {
            let facts = facts.clone();
            self.forwarders.spawn(async move {
                while let Some(event) = events.recv().await {
                    if facts.send(Fact::Engine(worker, Some(event))).is_err() {
                        return;
                    }
                }
                let _ = facts.send(Fact::Engine(worker, None));
            });
            self.engines.insert(worker, Engine { slots, commands });
            self.tell(venus_core::schedule::Event::WorkerJoined { worker, slots })?;
        }
        Ok(())
    }

    /// The loop: one happening at a time until the cycle ends.
    async fn work(&mut self) -> Result<Ending, RunError> {
        self.emit(RunEvent::Started { version: self.version, target: self.target, resumed: self.resumed });
        self.begin()?;
        while !matches!(self.cycle, Cycle::Ended) {
            match self.next().await {
                Happening::Fact(Fact::Report(who, report)) => self.report(who, report)?,
                Happening::Fact(Fact::Engine(worker, Some(event))) => self.engine_event(worker, event)?,
                Happening::Fact(Fact::Engine(worker, None)) => self.engine_lost(worker)?,
                Happening::Trained(result) => self.trained(result)?,
                Happening::Broken(who, failure) => self.report(who, Report::End(Err(failure)))?,
                Happening::Stop(Urgency::Now) => return Ok(Ending::Aborted),
                Happening::Stop(urgency) => self.stop_after_step(urgency)?,
                Happening::Tick => self.tick()?,
            }
            self.offer()?;
        }
        Ok(if self.urgency == Urgency::None { Ending::Finished } else { Ending::Stopped })
    }

    async fn next(&mut self) -> Happening {
        loop {
            tokio::select! {
                urgency = self.stop.changed() => return Happening::Stop(urgency),
                Some(fact) = self.facts.recv() => return Happening::Fact(fact),
                Some(result) = self.training.join_next() => {
                    let broken = |e| Err(TrainError(format!("the trainer broke: {e}")));
                    return Happening::Trained(result.unwrap_or_else(broken));
                }
                over = self.crew.over(), if !self.crew.is_empty() => {
                    if let Some((who, failure)) = over {
                        return Happening::Broken(who, failure);
                    }
                }
                _ = self.ticks.tick() => return Happening::Tick,
            }
        }
    }

    /// Cancels what still runs. The engines keep running; what they hold for this run is released.
    async fn dismiss(&mut self) {
        self.training.shutdown().await;
        let left: Vec<_> = self.live.keys().copied().collect();
        left.into_iter().for_each(|trajectory| self.remove(trajectory));
        self.crew.dismiss().await;
        self.forwarders.shutdown().await;
    }

    fn summary(mut self, ending: Ending) -> Result<RunSummary, RunError> {
        self.record.sync()?;
        let audit = Audit::of(self.record.entries()?);
        let lost = audit.pending.iter().filter(|&&group| self.ledger.state(group).is_none()).count();
        let gap = self.steps.iter().map(|s| s.metrics.logprob_gap_max).fold(0.0, f64::max);
        let success = |report: Option<&EvalReport>| report.map(|r| r.success);
        Ok(RunSummary {
            ending,
            steps: self.version.0,
            dir: self.checkpoint.clone(),
            rl_seconds: self.tally.elapsed(self.now()),
            heldout_success_first: success(self.evaluations.first()),
            heldout_success_last: success(self.evaluations.last()),
            groups_trained: audit.trained.len() as u64,
            groups_lost: lost as u64,
            groups_doubled: audit.doubled.len() as u64,
            groups_dropped: audit.dropped.len() as u64,
            logprob_gap_max: gap,
            tokens_generated: self.tally.generated,
        })
    }

    fn now(&self) -> Instant {
        Instant(u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn note(&mut self, entry: &Entry) -> Result<(), RunError> {
        Ok(self.record.append(entry)?)
    }

    fn notice(&self, text: String) {
        self.emit(RunEvent::Notice(text));
    }

    fn emit(&self, event: RunEvent) {
        // Nobody has to listen.
        let _ = self.events.send(event);
    }
}

fn episode_options(options: &CoordinatorOptions) -> EpisodeOptions {
    EpisodeOptions {
        agent: options.agent.clone(),
        seed: options.seed,
        temperature: options.sampling.temperature,
        top_p: options.sampling.top_p,
        top_k: options.sampling.top_k,
    }
}

fn ticks(options: &CoordinatorOptions) -> Interval {
    let mut ticks = tokio::time::interval(crate::agent::seconds(options.progress_every));
    // After a pause one tick says all that several would.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    ticks
}

fn resume_point(resume: &Resume) -> ResumePoint {
    let members = |group: &GroupId| Some((*group, resume.open.get(group)?.members.clone()));
    ResumePoint {
        version: resume.version,
        next_batch: resume.next_batch,
        complete: resume.complete.iter().filter_map(members).collect(),
        ended: resume.trained.keys().chain(&resume.dropped).copied().collect(),
    }
}

fn resumed_tasks(train: &[Arc<Task>], resume: &Resume) -> Result<BTreeMap<GroupId, Arc<Task>>, RunError> {
    let by_name = crate::stream::by_name(train);
    let find = |(&group, open): (&GroupId, &crate::record::OpenGroup)| match by_name.get(open.task.as_str()) {
        Some(&task) => Ok((group, task.clone())),
        None => Err(RunError::TaskGone { group, task: open.task.clone() }),
    };
    resume.open.iter().map(find).collect()
}
