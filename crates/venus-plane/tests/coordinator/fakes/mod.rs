//! A world without engines, sandboxes and trainers: fakes that keep the contracts, and break them on request.

mod engine;
mod sandbox;
mod storage;
mod trainer;

pub use engine::{EngineFake, text};
pub use sandbox::{Nodes, SandboxPlan};
pub use storage::Disk;
pub use trainer::Trainers;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use venus_core::ids::{TokenId, WorkerId};
use venus_core::message::sandbox::Limits;
use venus_core::schedule::SchedulerConfig;
use venus_plane::agent::AgentOptions;
use venus_plane::coordinator::{CoordinatorOptions, EvaluationOptions, Parts, RunError, run};
use venus_plane::engine::connect;
use venus_plane::record::{Identity, Record, RecordError, Resume};
use venus_plane::report::{RunEvent, RunSummary};
use venus_plane::stop::{StopHandle, stop};
use venus_plane::task::{Environment, File, Source, Split, Task, Verifier};
use venus_plane::tokenize::{Tokenize, TokenizeError};

pub const IM_START: TokenId = 256;
pub const IM_END: TokenId = 257;

/// One token a byte, and two special ones.
pub struct Bytes;

impl Tokenize for Bytes {
    fn encode(&self, text: &str) -> Result<Vec<TokenId>, TokenizeError> {
        let mut tokens = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.find("<|im_") {
            tokens.extend(rest[..at].bytes().map(TokenId::from));
            rest = &rest[at..];
            if let Some(after) = rest.strip_prefix("<|im_start|>") {
                (tokens, rest) = ([tokens, vec![IM_START]].concat(), after);
            } else if let Some(after) = rest.strip_prefix("<|im_end|>") {
                (tokens, rest) = ([tokens, vec![IM_END]].concat(), after);
            } else {
                (tokens, rest) = ([tokens, vec![u32::from(b'<')]].concat(), &rest[1..]);
            }
        }
        tokens.extend(rest.bytes().map(TokenId::from));
        Ok(tokens)
    }

    fn decode(&self, tokens: &[TokenId]) -> Result<String, TokenizeError> {
        let byte = |&token: &TokenId| u8::try_from(token).map_err(|_| TokenizeError(format!("{token} is no byte")));
        let bytes = tokens.iter().map(byte).collect::<Result<Vec<_>, _>>()?;
        String::from_utf8(bytes).map_err(|e| TokenizeError(e.to_string()))
    }

    fn token_id(&self, token: &str) -> Option<TokenId> {
        match token {
            "<|im_start|>" => Some(IM_START),
            "<|im_end|>" => Some(IM_END),
            _ => None,
        }
    }
}

/// SplitMix64, for whatever a fake decides by chance.
#[derive(Clone)]
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % below
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.roll(100) < percent
    }
}

pub fn task(name: &str) -> Arc<Task> {
    Arc::new(Task {
        name: name.to_owned(),
        source: Source::Harbor { dir: "tasks".into() },
        split: Split::Train,
        instruction: format!("Solve {name}"),
        environment: Environment { workdir: "/work".to_owned(), ..Environment::default() },
        tests: vec![File::held("test.sh", 0o755, "#!/bin/sh\n")],
        verifier: Verifier { timeout: Duration::from_secs(5), env: Default::default() },
        limits: Limits::default(),
        agent_timeout: Duration::from_secs(120),
        oracle: None,
        notices: Vec::new(),
    })
}

/// Everything outside the coordinator. It survives a crash of the coordinator.
pub struct World {
    pub options: CoordinatorOptions,
    pub disk: Disk,
    pub nodes: Nodes,
    pub trainers: Trainers,
    pub engines: Vec<EngineFake>,
    pub tasks: Vec<Arc<Task>>,
    pub heldout: Vec<Arc<Task>>,
}

impl World {
    /// Two groups of two a batch, one engine with three slots, everything well-behaved.
    pub fn new() -> Self {
        let scheduler = SchedulerConfig { groups_per_batch: 2, group_size: 2, async_factor: 1.0, ..Default::default() };
        let agent = AgentOptions { max_turns: 4, max_context: 1024, ..AgentOptions::default() };
        let evaluation = EvaluationOptions { tasks: 0, ..EvaluationOptions::default() };
        Self {
            options: CoordinatorOptions {
                steps: 3,
                seed: 7,
                scheduler,
                agent,
                evaluation,
                progress_every: 60.0,
                ..CoordinatorOptions::default()
            },
            disk: Disk::default(),
            nodes: Nodes::default(),
            trainers: Trainers::default(),
            engines: vec![EngineFake::default()],
            tasks: (0..5).map(|n| task(&format!("task-{n}"))).collect(),
            heldout: (0..4).map(|n| task(&format!("heldout-{n}"))).collect(),
        }
    }

    pub fn record(&self) -> Result<(Record, Resume), RecordError> {
        let identity = Identity { config: "test".to_owned(), seed: self.options.seed };
        let checkpoints = self.trainers.checkpoints();
        Record::with_storage(Path::new("run/log.venus"), Box::new(self.disk.clone()), &identity, &checkpoints)
    }

    /// Runs the coordinator in this world.
    pub async fn run(&self) -> Result<RunSummary, RunError> {
        self.start().1.await
    }

    /// A run to be polled, with its events and its stop handle.
    pub fn start(&self) -> (Watch, impl Future<Output = Result<RunSummary, RunError>> + use<>) {
        let (record, resume) = self.record().unwrap();
        self.trainers.restart(resume.version, resume.trained.keys().copied());
        let mut ports = Vec::new();
        for (index, fake) in self.engines.iter().enumerate() {
            let (port, socket) = connect(WorkerId(index as u32), 3);
            tokio::spawn(fake.clone().serve(socket, resume.version));
            ports.push(port);
        }
        let (sender, events) = unbounded_channel();
        let (handle, signal) = stop();
        let parts = Parts {
            options: self.options.clone(),
            tokenizer: Arc::new(Bytes),
            train: self.tasks.clone(),
            heldout: self.heldout.clone(),
            sandboxes: self.nodes.clone(),
            trainer: self.trainers.clone(),
            engines: ports,
            record,
            resume,
            events: sender,
            stop: signal,
        };
        (Watch { events, stop: handle }, run(parts))
    }
}

/// The outside view of a run.
pub struct Watch {
    pub events: UnboundedReceiver<RunEvent>,
    pub stop: StopHandle,
}

impl Watch {
    pub fn seen(&mut self) -> Vec<RunEvent> {
        std::iter::from_fn(|| self.events.try_recv().ok()).collect()
    }
}
