//! A batch as handed over, checked, and as trained.

use crate::advantage::{Algorithm, zero_variance};
use crate::error::TrainerError;
use std::collections::BTreeSet;
use venus_core::ids::Version;
use venus_core::message::trainer::{TrainBatch, TrainGroup, TrainTrajectory};

/// What a batch must fit.
#[derive(Clone, Copy, Debug)]
pub struct Expectation {
    /// Token ids are below this.
    pub vocab_size: usize,
    /// The weights to be trained; no token is drawn by later ones.
    pub version: Version,
    /// Its advantage decides how large a group is at least.
    pub algorithm: Algorithm,
}

/// Refuses a batch that would train on something nobody meant: arrays that do not cover each other, missing tokens or
/// log-probabilities, incomplete or repeated groups, a reward that is not a number.
///
/// # Errors
/// [`TrainerError::Data`] names the trajectory and what is wrong with it.
pub fn check(batch: &TrainBatch, expected: &Expectation) -> Result<(), TrainerError> {
    let place = batch.batch.to_string();
    let refuse = |problem: String| Err(TrainerError::Data { place: format!("batch {place}"), problem });
    if !(batch.temperature.is_finite() && batch.temperature > 0.0) {
        return refuse(format!("temperature {} has no gradient: draw with one above 0", batch.temperature));
    }
    let Some(size) = batch.groups.first().map(|group| group.trajectories.len()) else {
        return refuse("it has no groups".into());
    };
    let least = expected.algorithm.least_group_size();
    if size < least {
        let algorithm = expected.algorithm;
        return refuse(format!("groups of {size}; {algorithm:?} needs at least {least} trajectories a group"));
    }
    let mut groups = BTreeSet::new();
    let mut trajectories = BTreeSet::new();
    for group in &batch.groups {
        let id = group.group;
        let found = group.trajectories.len();
        if !groups.insert(id) {
            return refuse(format!("group {id} is there twice"));
        }
        if found != size {
            return refuse(format!("group {id} has {found} trajectories, others have {size}: it is not complete"));
        }
        for trajectory in &group.trajectories {
            if !trajectories.insert(trajectory.trajectory) {
                return refuse(format!("trajectory {} is there twice", trajectory.trajectory));
            }
            check_trajectory(trajectory, expected).map_err(|problem| TrainerError::Data {
                place: format!("batch {place}, group {id}, trajectory {}", trajectory.trajectory),
                problem,
            })?;
        }
    }
    Ok(())
}

fn check_trajectory(trajectory: &TrainTrajectory, expected: &Expectation) -> Result<(), String> {
    if !trajectory.reward.is_finite() {
        return Err(format!("reward {} is not a number: a failed grader is no verdict", trajectory.reward));
    }
    check_tokens(&trajectory.tokens, &trajectory.mask, expected.vocab_size)?;
    let (tokens, logprobs) = (trajectory.tokens.len(), trajectory.logprobs.len());
    if tokens != logprobs {
        return Err(format!("{tokens} tokens but {logprobs} logprobs: record them with the tokens"));
    }
    for (position, (&mask, &logprob)) in trajectory.mask.iter().zip(&trajectory.logprobs).enumerate() {
        // Rounding may leave a certain token a hair above probability 1.
        let drawn = logprob.is_finite() && logprob <= 1e-3;
        if mask == 1 && !drawn {
            return Err(format!("position {position}: {logprob} is not the logprob of a drawn token"));
        }
        if mask == 0 && logprob != 0.0 {
            return Err(format!(
                "position {position}: logprob {logprob} of a token that was not drawn: shifted arrays?"
            ));
        }
    }
    check_spans(trajectory, expected.version)
}

/// Tokens and mask alone: what a demonstration has, too.
pub(crate) fn check_tokens(tokens: &[u32], mask: &[u8], vocab_size: usize) -> Result<(), String> {
    if tokens.len() != mask.len() {
        return Err(format!("{} tokens but a mask of {}", tokens.len(), mask.len()));
    }
    if let Some(position) = tokens.iter().position(|&token| token as usize >= vocab_size) {
        let token = tokens[position];
        return Err(format!("position {position}: token {token} is not in the vocabulary of {vocab_size}"));
    }
    if let Some(position) = mask.iter().position(|&mask| mask > 1) {
        return Err(format!("position {position}: mask {} is neither 0 nor 1", mask[position]));
    }
    if mask.first() == Some(&1) {
        return Err("the first token is masked as drawn, but nothing precedes it: keep the prompt".into());
    }
    if !mask.contains(&1) {
        return Err("no drawn token: nothing to train on (were the token ids lost?)".into());
    }
    Ok(())
}

fn check_spans(trajectory: &TrainTrajectory, newest: Version) -> Result<(), String> {
    let mut covered = 0;
    for span in &trajectory.spans {
        let (start, end) = (span.start as usize, span.end as usize);
        if start >= end || start < covered || end > trajectory.tokens.len() {
            return Err(format!("span {start}..{end} of {} is empty, out of order or too long", span.version));
        }
        if span.version > newest {
            return Err(format!("drawn by {}, but the weights here are {newest}: wrong checkpoint?", span.version));
        }
        refuse_uncovered(trajectory, covered, start)?;
        covered = end;
    }
    refuse_uncovered(trajectory, covered, trajectory.tokens.len())
}

fn refuse_uncovered(trajectory: &TrainTrajectory, start: usize, end: usize) -> Result<(), String> {
    match trajectory.mask[start..end].iter().position(|&mask| mask == 1) {
        None => Ok(()),
        Some(offset) => Err(format!("position {}: no span says which weights drew the token", start + offset)),
    }
}

/// A sequence and the positions whose logits predict its loss tokens.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sequence {
    /// Up to the last token that predicts another; what follows takes no part.
    pub tokens: Vec<u32>,
    /// Ascending positions; row `r` predicts `targets` at the same index.
    pub rows: Vec<u32>,
    /// The tokens with loss.
    pub targets: Vec<u32>,
}

impl Sequence {
    /// Of checked tokens and mask.
    pub(crate) fn new(tokens: &[u32], mask: &[u8]) -> Self {
        let drawn = || (0..tokens.len()).filter(|&position| mask[position] == 1);
        let rows: Vec<u32> = drawn().map(|position| position as u32 - 1).collect();
        let targets = drawn().map(|position| tokens[position]).collect();
        let used = rows.last().map_or(0, |&row| row as usize + 1);
        Self { tokens: tokens[..used].to_vec(), rows, targets }
    }
}

/// One trajectory that is trained.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub sequence: Sequence,
    /// Log-probability with which each target was drawn.
    pub behaviour: Vec<f32>,
    /// Whether each target was drawn by the weights that are trained.
    pub current: Vec<bool>,
    pub advantage: f32,
}

/// The trajectories of a checked batch that carry a gradient, and what was left out.
#[derive(Clone, Debug)]
pub(crate) struct Samples {
    pub list: Vec<Sample>,
    /// Trajectories of the batch, those left out included.
    pub sequences: usize,
    /// Drawn tokens of the batch, those left out included.
    pub tokens: usize,
    pub reward_mean: f64,
    pub zero_variance_groups: u32,
}

impl Samples {
    /// A group in which no advantage differs from 0 is left out unless `keep_idle`: it adds nothing to the policy
    /// gradient, only time. It stays in `sequences` and `tokens`, over which losses are averaged, so leaving it out
    /// changes no other trajectory's weight.
    pub(crate) fn of(batch: &TrainBatch, expected: &Expectation, epsilon: f32, keep_idle: bool) -> Self {
        let rewards: Vec<Vec<f32>> = batch.groups.iter().map(rewards).collect();
        let advantages = expected.algorithm.advantages(&rewards, epsilon);
        let idle = |group: &[f32]| group.iter().all(|&advantage| advantage == 0.0);
        let list = batch
            .groups
            .iter()
            .zip(&advantages)
            .filter(|(_, advantages)| keep_idle || !idle(advantages))
            .flat_map(|(group, advantages)| group.trajectories.iter().zip(advantages))
            .map(|(trajectory, &advantage)| Sample::new(trajectory, advantage, expected.version))
            .collect();
        let trajectories = || batch.groups.iter().flat_map(|group| &group.trajectories);
        let sequences = trajectories().count();
        Self {
            list,
            sequences,
            tokens: trajectories().map(drawn_tokens).sum(),
            reward_mean: trajectories().map(|trajectory| f64::from(trajectory.reward)).sum::<f64>() / sequences as f64,
            zero_variance_groups: rewards.iter().filter(|rewards| zero_variance(rewards)).count() as u32,
        }
    }
}

impl Sample {
    fn new(trajectory: &TrainTrajectory, advantage: f32, newest: Version) -> Self {
        let mut current = vec![false; trajectory.tokens.len()];
        for span in trajectory.spans.iter().filter(|span| span.version == newest) {
            current[span.start as usize..span.end as usize].fill(true);
        }
        let drawn = |position: &usize| trajectory.mask[*position] == 1;
        let positions = || (0..trajectory.tokens.len()).filter(drawn);
        Self {
            sequence: Sequence::new(&trajectory.tokens, &trajectory.mask),
            behaviour: positions().map(|position| trajectory.logprobs[position]).collect(),
            current: positions().map(|position| current[position]).collect(),
            advantage,
        }
    }
}

fn rewards(group: &TrainGroup) -> Vec<f32> {
    group.trajectories.iter().map(|trajectory| trajectory.reward).collect()
}

fn drawn_tokens(trajectory: &TrainTrajectory) -> usize {
    trajectory.mask.iter().filter(|&&mask| mask == 1).count()
}
