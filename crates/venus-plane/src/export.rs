//! Finished trajectories as JSON lines, for programs.

use crate::agent::{End, FinishedTrajectory, Turn};
use crate::record::{Entry, LogError, entries};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use venus_core::ids::{GroupId, TokenId, TrajectoryId, Version};
use venus_core::message::engine::VersionSpan;

/// One line: a trajectory of a complete group. All per-token arrays have one entry a token.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Step whose batch it was in; none if it was not trained.
    pub step: Option<Version>,
    /// Its group.
    pub group: GroupId,
    /// Which trajectory.
    pub trajectory: TrajectoryId,
    /// How often it had been started before.
    pub restart: u32,
    /// Name of its task.
    pub task: String,
    /// The task's family.
    pub family: String,
    /// What the agent was told.
    pub instruction: String,
    /// The grader's verdict.
    pub reward: f32,
    /// Why the agent stopped.
    pub end: End,
    /// Turns for people.
    pub turns: Vec<TurnLine>,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Prompt, drawn tokens and tool output.
    pub tokens: Vec<TokenId>,
    /// 1 where the token was drawn.
    pub mask: Vec<u8>,
    /// Logprob with which it was; 0 elsewhere.
    pub logprobs: Vec<f32>,
    /// Which weights drew which tokens.
    pub spans: Vec<VersionSpan>,
    /// Seconds until the sandbox was there.
    pub create_seconds: f64,
    /// Seconds of grading.
    pub grading_seconds: f64,
    /// Seconds from start to reward.
    pub total_seconds: f64,
}

/// One turn of a [`Line`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TurnLine {
    /// The message drawn.
    pub message: String,
    /// The command in it; the message where none was run.
    pub command: String,
    /// What the agent was told of the result; none where no command was run.
    pub output: Option<String>,
    /// Tokens drawn.
    pub tokens: usize,
    /// The same, as a range of the line's tokens.
    pub drawn: Range<usize>,
    /// Context tokens found cached.
    pub cached_tokens: u64,
    /// Seconds the command ran.
    pub seconds: Option<f64>,
    /// Seconds between wanting a slot and having one.
    pub queued_seconds: f64,
    /// Seconds of generation.
    pub generation_seconds: f64,
}

impl From<Turn> for TurnLine {
    fn from(turn: Turn) -> Self {
        Self {
            command: turn.command.unwrap_or_else(|| turn.message.clone()),
            message: turn.message,
            seconds: turn.output.is_some().then_some(turn.tool),
            output: turn.output,
            tokens: turn.drawn.len(),
            drawn: turn.drawn,
            cached_tokens: turn.cached.0,
            queued_seconds: turn.queued,
            generation_seconds: turn.generation,
        }
    }
}

/// What keeps an export from being written.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The log cannot be read.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The export cannot be written.
    #[error("cannot write {path}: {source}; the record is untouched, export again once there is space", path = path.display())]
    Write {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// A group as the log tells it.
#[derive(Default)]
struct Group {
    task: String,
    family: String,
    instruction: String,
    members: Vec<TrajectoryId>,
    finished: BTreeMap<TrajectoryId, FinishedTrajectory>,
    step: Option<Version>,
}

/// The trajectories of all complete groups in a log, by group and trajectory. Of a trajectory that ran again after a crash
/// the last result counts, as it does for training.
///
/// # Errors
/// When the log cannot be read.
pub fn lines(log: &Path) -> Result<Vec<Line>, LogError> {
    let mut groups: BTreeMap<GroupId, Group> = BTreeMap::new();
    let mut owner: BTreeMap<TrajectoryId, GroupId> = BTreeMap::new();
    for entry in entries(log)? {
        match entry {
            Entry::GroupOpened { group, task, family, instruction, members } => {
                owner.extend(members.iter().map(|&member| (member, group)));
                groups.insert(group, Group { task, family, instruction, members, ..Group::default() });
            }
            Entry::TrajectoryFinished(trajectory) => {
                let id = trajectory.train.trajectory;
                if let Some(group) = owner.get(&id).and_then(|group| groups.get_mut(group)) {
                    group.finished.insert(id, *trajectory);
                }
            }
            Entry::StepCommitted { groups: trained, version, .. } => {
                let step = |id: GroupId| groups.get_mut(&id).map(|group| group.step = Some(version));
                trained.into_iter().filter_map(step).for_each(drop);
            }
            Entry::RunResumed { version } => {
                groups.values_mut().for_each(|group| group.step = group.step.filter(|step| *step <= version));
            }
            _ => {}
        }
    }
    let complete = groups.into_iter().filter(|(_, group)| group.finished.len() == group.members.len());
    Ok(complete.flat_map(|(id, group)| group.into_lines(id)).collect())
}

impl Group {
    fn into_lines(self, id: GroupId) -> impl Iterator<Item = Line> {
        let Self { task, family, instruction, finished, step, .. } = self;
        finished.into_values().map(move |trajectory| Line {
            step,
            group: id,
            trajectory: trajectory.train.trajectory,
            restart: trajectory.restart,
            task: task.clone(),
            family: family.clone(),
            instruction: instruction.clone(),
            reward: trajectory.train.reward,
            end: trajectory.end,
            turns: trajectory.turns.into_iter().map(TurnLine::from).collect(),
            prompt_tokens: trajectory.prompt_tokens,
            tokens: trajectory.train.tokens,
            mask: trajectory.train.mask,
            logprobs: trajectory.train.logprobs,
            spans: trajectory.train.spans,
            create_seconds: trajectory.create,
            grading_seconds: trajectory.grading,
            total_seconds: trajectory.total,
        })
    }
}

/// Writes the [`lines`] of a log, and returns how many they are. The file is complete or as it was.
///
/// # Errors
/// When the log cannot be read or the file not be written.
pub fn write_jsonl(log: &Path, path: &Path) -> Result<u64, ExportError> {
    let lines = lines(log)?;
    let partial = path.with_extension("partial");
    let write = || -> io::Result<()> {
        let mut file = BufWriter::new(std::fs::File::create(&partial)?);
        for line in &lines {
            serde_json::to_writer(&mut file, line)?;
            file.write_all(b"\n")?;
        }
        file.flush()?;
        std::fs::rename(&partial, path)
    };
    write().map_err(|source| {
        let _ = std::fs::remove_file(&partial);
        ExportError::Write { path: path.to_owned(), source }
    })?;
    Ok(lines.len() as u64)
}
