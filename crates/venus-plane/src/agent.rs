//! The agent loop: one trajectory from its prompt to its reward.
//!
//! The protocol is ChatML with one tool, a shell. The prompt is a `user` message, each turn an `assistant` message that is one
//! command, each result a `tool` message (see [`Protocol`]). The turn `done` ends the trajectory.
//!
//! What the engine drew is appended to the [`Transcript`] as token ids and never encoded again; tool output is encoded
//! once, when it is appended.

mod episode;
mod observation;
mod protocol;
mod seed;
mod transcript;

pub(crate) use episode::{Episode, EpisodeOptions, Line, News, Report, TurnOrder, Who};
pub use observation::{observation, shorten};
pub use protocol::{Protocol, ProtocolError, Step};
pub use seed::draw_seed;
pub(crate) use seed::mix;
pub use transcript::{Transcript, TranscriptError};

use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::time::Duration;
use venus_core::message::trainer::TrainTrajectory;
use venus_core::units::Tokens;

/// What an agent may do. All limits are per trajectory unless they say otherwise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AgentOptions {
    /// Most turns.
    pub max_turns: u32,
    /// Longest context, prompt and everything after it, tokens.
    pub max_context: u32,
    /// Most tokens of one turn, its stop token included.
    pub max_turn_tokens: u32,
    /// Characters of one tool result that the agent gets to see.
    pub max_output_chars: u32,
    /// A command is killed after this, seconds.
    pub tool_timeout: f64,
    /// The engine is given this long for one turn once it has been dispatched, seconds.
    pub turn_timeout: f64,
    /// A sandbox must be there after this, seconds; a full node is asked again until then.
    pub create_timeout: f64,
    /// What a call to a sandbox may take beyond its own time-out before the sandbox counts as lost, seconds.
    pub call_grace: f64,
    /// The node removes a sandbox after this even if nobody tells it to, seconds. Waiting for slots counts.
    pub sandbox_lifetime: f64,
    /// Runs a command: `[shell, "-c", command]`.
    pub shell: String,
    /// Whether an agent that a limit stopped is graded as it stands. Otherwise it has a reward of 0: a policy that is paid
    /// for what it did before a limit cut it off unlearns to stop by itself.
    pub grade_unfinished: bool,
}

impl Default for AgentOptions {
    fn default() -> Self {
        Self {
            max_turns: 12,
            max_context: 2048,
            max_turn_tokens: 64,
            max_output_chars: 800,
            tool_timeout: 10.0,
            turn_timeout: 600.0,
            create_timeout: 60.0,
            call_grace: 10.0,
            sandbox_lifetime: 3600.0,
            shell: "bash".to_owned(),
            grade_unfinished: false,
        }
    }
}

impl AgentOptions {
    /// Says which value cannot work, if one cannot.
    ///
    /// # Errors
    /// The option, what is wrong and what is allowed.
    pub fn validate(&self) -> Result<(), String> {
        if self.max_turns == 0 {
            return Err("agent.max_turns is 0: allow at least one turn".to_owned());
        }
        if self.max_turn_tokens == 0 || self.max_turn_tokens >= self.max_context {
            return Err(format!(
                "agent.max_turn_tokens is {}: it must be at least 1 and less than agent.max_context ({})",
                self.max_turn_tokens, self.max_context
            ));
        }
        if self.max_output_chars < 80 {
            return Err(format!(
                "agent.max_output_chars is {}: at least 80 are needed to say that something was left out",
                self.max_output_chars
            ));
        }
        let times = [
            ("tool_timeout", self.tool_timeout),
            ("turn_timeout", self.turn_timeout),
            ("create_timeout", self.create_timeout),
            ("call_grace", self.call_grace),
            ("sandbox_lifetime", self.sandbox_lifetime),
        ];
        for (name, seconds) in times {
            if !(seconds > 0.0 && seconds <= 1e6) {
                return Err(format!("agent.{name} is {seconds}: give seconds, more than 0 and at most 1e6"));
            }
        }
        if self.shell.is_empty() {
            return Err("agent.shell is empty: name a program such as \"bash\"".to_owned());
        }
        Ok(())
    }
}

/// Why an agent stopped. All but the first have a reward of 0 unless [`AgentOptions::grade_unfinished`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// It said `done`.
    Done,
    /// It used all its turns.
    TurnLimit,
    /// A turn reached its token limit without a stop token. It is not run: half a command could do anything.
    TurnCut,
    /// The context is full.
    ContextLimit,
    /// Its time is up: that of its generations and tools; waiting for a slot does not count.
    Deadline,
}

impl End {
    /// The word used in exports.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::TurnLimit => "turn_limit",
            Self::TurnCut => "turn_cut",
            Self::ContextLimit => "context_limit",
            Self::Deadline => "deadline",
        }
    }
}

/// Why a trajectory has no reward. It is tried again; none of these is ever read as a reward (rllm#811).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case", tag = "type", content = "reason")]
pub enum Failure {
    /// No sandbox could be had, or the task's environment could not be set up in it.
    #[error("no sandbox: {0}")]
    NoSandbox(String),
    /// The sandbox went away or did not answer.
    #[error("the sandbox was lost: {0}")]
    ToolLost(String),
    /// The grader broke, took too long or left no valid reward.
    #[error("the grader failed: {0}")]
    Grader(String),
    /// The engine refused a turn or returned one that does not fit together.
    #[error("the engine failed: {0}")]
    Engine(String),
    /// The prompt cannot be told to the model.
    #[error("the prompt cannot be used: {0}")]
    Prompt(String),
    /// The agent loop itself broke.
    #[error("the agent loop broke: {0}")]
    Loop(String),
}

impl Failure {
    /// The word used in counts.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::NoSandbox(_) => "no_sandbox",
            Self::ToolLost(_) => "tool_lost",
            Self::Grader(_) => "grader",
            Self::Engine(_) => "engine",
            Self::Prompt(_) => "prompt",
            Self::Loop(_) => "loop",
        }
    }
}

/// One turn, for people: the record for the trainer is the tokens.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    /// Its drawn tokens, as a range of the trajectory's tokens.
    pub drawn: Range<usize>,
    /// The message drawn, without its stop token.
    pub message: String,
    /// The command run, if one was.
    pub command: Option<String>,
    /// What the agent was told of its result.
    pub output: Option<String>,
    /// Seconds between wanting a slot and having one.
    pub queued: f64,
    /// Seconds of generation.
    pub generation: f64,
    /// Seconds the command ran.
    pub tool: f64,
    /// Context tokens given to the engine, over all attempts.
    pub context: Tokens,
    /// Of these, found cached.
    pub cached: Tokens,
    /// Of these, computed more than once.
    pub recomputed: Tokens,
}

/// A graded trajectory: what the trainer gets, and what people want to know about it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FinishedTrajectory {
    /// Tokens, mask, logprobs, version spans and reward.
    pub train: TrainTrajectory,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Why it stopped.
    pub end: End,
    /// How often it had been started before.
    pub restart: u32,
    /// Its turns.
    pub turns: Vec<Turn>,
    /// Seconds until its sandbox was there.
    pub create: f64,
    /// Seconds of grading.
    pub grading: f64,
    /// Seconds from start to reward.
    pub total: f64,
}

impl FinishedTrajectory {
    /// Tokens the engine drew for it.
    #[must_use]
    pub fn drawn(&self) -> u64 {
        self.train.mask.iter().map(|&m| u64::from(m)).sum()
    }
}

pub(crate) fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}
