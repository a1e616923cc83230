//! The sections of the configuration, their defaults and their ranges. The defaults suit one machine with two cores.

use serde::{Deserialize, Serialize};
use std::fmt::Display;
use std::ops::RangeInclusive;
use toml::{Table, Value};
use venus_core::schedule::Policy;
use venus_plane::task::Family;
use venus_trainer::{Aggregation, Clip, TrainerOptions};

/// Everything a run can be told.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// How long, where to, how often measured.
    pub run: Run,
    /// The tasks.
    pub data: Data,
    /// How trajectories are made.
    pub rollout: Rollout,
    /// The embedded inference engine.
    pub engine: Engine,
    /// The embedded trainer, as it defines its options.
    pub trainer: TrainerOptions,
    /// What each trajectory's sandbox may use.
    pub sandbox: Sandbox,
}

/// `[run]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Run {
    /// Trainer steps.
    pub steps: u64,
    /// Seed of everything that is drawn.
    pub seed: u64,
    /// Directory of the run; `auto` takes the next free `runs/NNNN`.
    pub out: String,
    /// Directory with `config.json`, `tokenizer.json` and `model.safetensors`; `built-in` is the shipped warm start.
    pub model: String,
    /// Held-out tasks of one measurement, each attempted once; 0 measures nothing.
    pub eval_tasks: u32,
    /// Steps between two measurements; the first and the last weights are measured in any case, and alone if this is 0.
    pub eval_every: u64,
    /// Newest checkpoints kept.
    pub keep_checkpoints: u32,
}

/// `[data]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Data {
    /// `generated`, or a directory of Harbor tasks.
    pub source: String,
    /// Generated families to draw from; empty means all (`venus tasks list`).
    pub families: Vec<String>,
}

/// `[rollout]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Rollout {
    /// Groups the trainer takes in one step (B).
    pub groups_per_batch: u32,
    /// Trajectories of one prompt (K).
    pub group_size: u32,
    /// Groups in flight, as a multiple of B; 1 trains and rolls out in turns, more overlaps them.
    pub async_factor: f64,
    /// Most weight versions one trajectory may span.
    pub version_span_limit: u32,
    /// Who is served first.
    pub policy: Policy,
    /// Most turns of a trajectory.
    pub max_turns: u32,
    /// Most tokens of a turn.
    pub max_turn_tokens: u32,
    /// Most tokens of a trajectory, prompt and tool output included.
    pub max_context: u32,
    /// Softmax temperature of training rollouts.
    pub temperature: f64,
    /// Nucleus: keep the smallest set of tokens whose probability reaches this; 1 keeps all.
    pub top_p: f64,
    /// Keep this many most likely tokens; 0 keeps all.
    pub top_k: u32,
    /// Seconds a command may run.
    pub tool_timeout: f64,
    /// Characters of a command's output shown to the model.
    pub max_output: u32,
}

/// `[engine]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Engine {
    /// Engines side by side.
    pub workers: u32,
    /// Memory for KV pages of one engine, MiB.
    pub kv_mib: u32,
    /// Tokens in a page.
    pub page_size: u32,
    /// Turns generated at once by one engine.
    pub max_running: u32,
    /// Most prompt tokens computed in one iteration.
    pub prefill_budget: u32,
    /// Threads of one engine; 0 shares the machine's cores between engines and trainer.
    pub threads: u32,
}

/// Which isolation to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// The best this host allows.
    #[default]
    Auto,
    /// Namespaces and cgroups, made by root.
    Root,
    /// Namespaces of an unprivileged user.
    Userns,
    /// Landlock, seccomp and resource limits alone.
    Confined,
}

/// `[sandbox]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Sandbox {
    /// Which isolation to use.
    pub level: Level,
    /// Memory of all processes of a sandbox, MiB.
    pub memory_mib: u32,
    /// Processes and threads at once.
    pub pids: u32,
    /// CPU time per wall time, thousandths of a core; 0 sets no limit.
    pub cpu_millis: u32,
    /// Largest file written, MiB.
    pub file_mib: u32,
    /// Sandboxes at once; 0 takes the node's own bound.
    pub max_live: u32,
    /// Seconds after which a sandbox is removed whatever happens to its owner.
    pub deadline: f64,
}

impl Default for Run {
    fn default() -> Self {
        Self {
            steps: 150,
            seed: 1,
            out: "auto".to_owned(),
            model: "built-in".to_owned(),
            eval_tasks: 200,
            eval_every: 25,
            keep_checkpoints: 2,
        }
    }
}

impl Default for Data {
    fn default() -> Self {
        Self { source: "generated".to_owned(), families: Vec::new() }
    }
}

impl Default for Rollout {
    fn default() -> Self {
        Self {
            groups_per_batch: 8,
            group_size: 8,
            async_factor: 1.0,
            version_span_limit: 2,
            policy: Policy::default(),
            max_turns: 16,
            max_turn_tokens: 64,
            max_context: 2048,
            temperature: 1.0,
            top_p: 1.0,
            top_k: 0,
            tool_timeout: 10.0,
            max_output: 800,
        }
    }
}

impl Default for Engine {
    fn default() -> Self {
        Self { workers: 1, kv_mib: 256, page_size: 16, max_running: 64, prefill_budget: 512, threads: 0 }
    }
}

impl Default for Sandbox {
    fn default() -> Self {
        Self {
            level: Level::Auto,
            memory_mib: 256,
            pids: 64,
            cpu_millis: 0,
            file_mib: 64,
            max_live: 0,
            deadline: 3600.0,
        }
    }
}

/// A value outside its range.
pub(super) struct OutOfRange {
    /// Full key.
    pub key: String,
    /// What it is.
    pub value: String,
    /// What it must be.
    pub allowed: String,
}

impl Config {
    /// The first value, in the order of the sections, that is outside its range.
    pub(super) fn check(&self) -> Result<(), OutOfRange> {
        let (run, rollout, engine, sandbox) = (&self.run, &self.rollout, &self.engine, &self.sandbox);
        within("run.steps", run.steps, 1..=10_000_000)?;
        within("run.eval_tasks", run.eval_tasks, 0..=100_000)?;
        within("run.eval_every", run.eval_every, 0..=10_000_000)?;
        within("run.keep_checkpoints", run.keep_checkpoints, 1..=10_000)?;
        families(&self.data.families)?;
        within("rollout.groups_per_batch", rollout.groups_per_batch, 1..=10_000)?;
        within("rollout.group_size", rollout.group_size, 2..=1024)?;
        within("rollout.async_factor", rollout.async_factor, 1.0..=16.0)?;
        within("rollout.version_span_limit", rollout.version_span_limit, 1..=64)?;
        within("rollout.max_turns", rollout.max_turns, 1..=10_000)?;
        within("rollout.max_turn_tokens", rollout.max_turn_tokens, 1..=rollout.max_context.saturating_sub(1))?;
        within("rollout.max_context", rollout.max_context, 16..=10_000_000)?;
        within("rollout.temperature", rollout.temperature, 0.01..=10.0)?;
        within("rollout.top_p", rollout.top_p, 0.01..=1.0)?;
        within("rollout.tool_timeout", rollout.tool_timeout, 0.1..=86_400.0)?;
        within("rollout.max_output", rollout.max_output, 80..=1_048_576)?;
        within("engine.workers", engine.workers, 1..=64)?;
        within("engine.kv_mib", engine.kv_mib, 1..=1_048_576)?;
        within("engine.page_size", engine.page_size, 1..=1024)?;
        within("engine.max_running", engine.max_running, 1..=65_536)?;
        within("engine.prefill_budget", engine.prefill_budget, 1..=1_048_576)?;
        within("engine.threads", engine.threads, 0..=1024)?;
        within("sandbox.memory_mib", sandbox.memory_mib, 1..=16_777_216)?;
        within("sandbox.pids", sandbox.pids, 2..=4_194_304)?;
        within("sandbox.file_mib", sandbox.file_mib, 1..=16_777_216)?;
        within("sandbox.deadline", sandbox.deadline, 1.0..=864_000.0)
    }
}

fn families(names: &[String]) -> Result<(), OutOfRange> {
    let known = Family::ALL.map(Family::name);
    let wrong = names.iter().find(|name| !known.contains(&name.as_str()));
    wrong.map_or(Ok(()), |name| {
        let allowed = format!("names from {}", known.join(", "));
        Err(OutOfRange { key: "data.families".to_owned(), value: format!("[.. {name:?} ..]"), allowed })
    })
}

fn within<T: PartialOrd + Display>(key: &str, value: T, range: RangeInclusive<T>) -> Result<(), OutOfRange> {
    if range.contains(&value) {
        return Ok(());
    }
    let allowed = format!("between {} and {}", range.start(), range.end());
    Err(OutOfRange { key: key.to_owned(), value: value.to_string(), allowed })
}

/// `config` as a TOML table, all keys present.
pub(super) fn table(config: &Config) -> Table {
    match Value::try_from(config) {
        Ok(Value::Table(table)) => table,
        other => unreachable!("plain structs of numbers, text and lists are a TOML table, not {other:?}"),
    }
}

/// The defaults as a TOML table; keys that are not set by default are absent.
pub(super) fn defaults() -> Table {
    table(&Config::default())
}

/// A table that has every key there is, those not set by default included.
pub(super) fn every_key() -> Table {
    let mut config = Config::default();
    let loss = &mut config.trainer.loss;
    loss.clip = Some(Clip { low: 0.2, high: 0.28 });
    loss.reference = Some("DIR".into());
    loss.aggregation = Some(Aggregation::TokenMean);
    table(&config)
}
