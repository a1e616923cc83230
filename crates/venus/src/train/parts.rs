//! The parts of a run, started from its configuration and from what its directory already holds.

use super::tasks::TaskSet;
use crate::config::Config;
use crate::embedded::{EmbeddedNode, EmbeddedTrainer, ModelTokenizer, start_engine};
use crate::failure::Failure;
use crate::model;
use crate::progress::{Banner, Start};
use crate::run::RunDir;
use std::path::Path;
use std::sync::Arc;
use tokio::sync::mpsc::UnboundedSender;
use venus_core::ids::{Version, WorkerId};
use venus_plane::coordinator::Parts;
use venus_plane::engine::EnginePort;
use venus_plane::record::{Checkpoint, Identity, Record};
use venus_plane::report::RunEvent;
use venus_plane::stop::StopSignal;
use venus_sandbox::EnvNode;
use venus_trainer::{Trainer, checkpoint};

/// Everything a run is made of, started.
pub struct Assembly {
    /// For the coordinator.
    pub parts: Parts<EmbeddedNode, EmbeddedTrainer>,
    /// The env node.
    pub node: EmbeddedNode,
    parameters: usize,
}

impl Assembly {
    /// Starts the parts. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// Whatever keeps a part from starting, with what to do next.
    pub fn new(
        config: &Config,
        tasks: TaskSet,
        dir: &RunDir,
        events: UnboundedSender<RunEvent>,
        stop: StopSignal,
    ) -> anyhow::Result<Self> {
        let initial = model::locate(&config.run.model, dir)?;
        let checkpoints = dir.path().join("checkpoints");
        let (record, resume) = Record::open(dir.path(), &identity(config), &known_checkpoints(&checkpoints)?)
            .map_err(|e| Failure::failed(e, "the message says what to do; nothing was changed"))?;
        let weights = resume.checkpoint.as_ref().map_or(&initial, |checkpoint| &checkpoint.dir).clone();
        let next = "copy or convert the model again, or give another --model";
        let tokenizer =
            ModelTokenizer::load(&weights).map_err(|e| Failure::usage(format!("{}: {e}", weights.display()), next))?;
        let trainer = load_trainer(config, resume.checkpoint.as_ref(), &initial)?;
        model::check_tokenizer(&weights, tokenizer.vocab_size(), trainer.model().config.vocab_size)?;
        let parameters = trainer.model().params().len();
        let trainer = EmbeddedTrainer::start(trainer, checkpoints, config.run.keep_checkpoints as usize)?;
        let node = start_node(config)?;
        let parts = Parts {
            options: config.coordinator_options(),
            tokenizer: Arc::new(tokenizer),
            train: tasks.train,
            heldout: tasks.heldout,
            sandboxes: node.clone(),
            trainer,
            engines: start_engines(config, resume.version, &weights)?,
            record,
            resume,
            events,
            stop,
        };
        Ok(Self { parts, node, parameters })
    }

    /// What is said before the run starts.
    #[must_use]
    pub fn banner(&self, config: &Config, dir: &RunDir) -> Banner {
        let node = self.node.node();
        let isolation = (&*node.level().to_string(), node.level_reason());
        let missing = node.missing_limits();
        Banner::new(config, &Start { parameters: self.parameters, isolation, missing, out: dir.path() })
    }
}

/// What must stay the same for two starts to be parts of one run.
fn identity(config: &Config) -> Identity {
    let families = if config.data.families.is_empty() { "all".to_owned() } else { config.data.families.join("+") };
    let (source, model, k) = (&config.data.source, &config.run.model, config.rollout.group_size);
    let settings = format!("data.source={source} data.families={families} run.model={model} rollout.group_size={k}");
    Identity { config: settings, seed: config.run.seed }
}

fn known_checkpoints(dir: &Path) -> anyhow::Result<Vec<Checkpoint>> {
    let mut known = Vec::new();
    for (version, dir) in checkpoint::list(dir)? {
        let state = checkpoint::Checkpoint::read(&dir)?;
        known.push(Checkpoint { version, batch: state.batch, groups: state.groups, dir });
    }
    Ok(known)
}

fn load_trainer(config: &Config, from: Option<&Checkpoint>, initial: &Path) -> anyhow::Result<Trainer> {
    let options = config.trainer_options()?;
    let trainer = match from {
        Some(checkpoint) => Trainer::resume(options, &checkpoint.dir),
        None => Trainer::new(options, initial),
    };
    // The error tells its causes itself; a chain of them would repeat it.
    let next = "copy or convert the model again, or give another --model; remove a damaged checkpoint to go on from the one before";
    trainer.map_err(|error| Failure::usage(error, next).into())
}

/// Starts the env node at the configured level. Must be called within a tokio runtime.
///
/// # Errors
/// This host does not give that level.
pub fn start_node(config: &Config) -> anyhow::Result<EmbeddedNode> {
    let next = "`venus doctor` says what this host allows; sandbox.level chooses another level";
    let node = EnvNode::start(config.node_options()).map_err(|e| Failure::failed(e, next))?;
    EmbeddedNode::new(node, config.sandbox_limits())
}

fn start_engines(config: &Config, version: Version, weights: &Path) -> anyhow::Result<Vec<EnginePort>> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let start = |worker| {
        let options = config.engine_options(WorkerId(worker), version, cores);
        start_engine(WorkerId(worker), config.engine.max_running, options, weights)
    };
    (0..config.engine.workers).map(start).collect()
}
