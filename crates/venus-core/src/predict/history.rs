//! How each prompt went before: finished siblings and earlier epochs, fading as the policy moves.

use super::features::Level;
use super::trail::Progress;
use super::{Violation, log, require};
use crate::ids::{PromptId, Version};
use std::collections::BTreeMap;

/// How one prompt went before, as logarithms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Past {
    /// Finished trajectories, each counting less the further the policy has moved since.
    pub weight: f64,
    /// Mean `ln(1 + tokens generated)`.
    pub total: f64,
    /// Mean `ln(1 + turns)`.
    pub turns: f64,
    /// Mean `ln(1 + tool seconds)`.
    pub seconds: f64,
    /// The largest `ln(1 + tokens generated)`, drawn to the mean as it fades.
    pub longest: f64,
    version: Version,
}

/// The weight at which a prompt's own history counts for half. The task explains about two thirds of the variance
/// of a trajectory's length (`docs/predictor.md`), so one sibling already counts for more than all other prompts.
const HALF_TRUSTED: f64 = 0.5;

impl Past {
    /// A prompt of which nothing is known.
    pub fn like(level: Level) -> Self {
        let Level { total, turns, seconds } = level;
        Self { weight: 0.0, total, turns, seconds, longest: total, version: Version(0) }
    }

    /// How far to trust this over what all prompts have in common: 0 not at all, 1 wholly.
    pub fn trust(&self) -> f64 {
        self.weight / (self.weight + HALF_TRUSTED)
    }

    fn at(mut self, version: Version, half_life: f64) -> Self {
        let kept = fade(self.version, version, half_life);
        self.weight *= kept;
        self.longest = self.total + (self.longest - self.total) * kept;
        self.version = self.version.max(version);
        self
    }

    fn add(&mut self, progress: &Progress) {
        self.weight += 1.0;
        let total = log(progress.generated.0);
        let share = 1.0 / self.weight;
        self.total += (total - self.total) * share;
        self.turns += (f64::from(progress.turns).ln_1p() - self.turns) * share;
        self.seconds += (progress.seconds.ln_1p() - self.seconds) * share;
        self.longest = self.longest.max(total).max(self.total);
    }
}

/// What is left of something after the policy moved from one version to another.
pub(super) fn fade(from: Version, to: Version, half_life: f64) -> f64 {
    (-(to.0.saturating_sub(from.0) as f64) / half_life).exp2()
}

/// The history of every prompt that was worked on not too long ago.
#[derive(Clone, Debug)]
pub(super) struct History {
    half_life: f64,
    prompts: BTreeMap<PromptId, Past>,
    sweep_at: usize,
}

/// Prompts below which nothing is swept.
const FEW: usize = 1024;
/// The weight at which a prompt is forgotten: five half-lives after its last trajectory.
const FADED: f64 = 1.0 / 32.0;

impl History {
    /// No history. What is added loses half its weight every `half_life` versions.
    pub fn new(half_life: f64) -> Self {
        Self { half_life, prompts: BTreeMap::new(), sweep_at: FEW }
    }

    /// How the prompt went, as seen under `version`.
    pub fn get(&self, prompt: PromptId, version: Version) -> Option<Past> {
        self.prompts.get(&prompt).map(|past| past.at(version, self.half_life))
    }

    /// A trajectory of the prompt finished.
    pub fn add(&mut self, prompt: PromptId, progress: &Progress, version: Version) {
        let mut past = match self.get(prompt, version) {
            Some(past) => past,
            None => Past { version, longest: 0.0, ..Past::like(Level::default()) },
        };
        past.add(progress);
        self.prompts.insert(prompt, past);
        if self.prompts.len() >= self.sweep_at {
            self.sweep(version);
        }
    }

    /// Forgets what has faded, each time the number of prompts has doubled: O(1) an addition.
    fn sweep(&mut self, version: Version) {
        let half_life = self.half_life;
        self.prompts.retain(|_, past| past.at(version, half_life).weight > FADED);
        self.sweep_at = FEW.max(2 * self.prompts.len());
    }

    pub fn check(&self) -> Result<(), Violation> {
        for (prompt, past) in &self.prompts {
            let finite =
                [past.weight, past.total, past.turns, past.seconds, past.longest].iter().all(|x| x.is_finite());
            let holds = finite && past.weight > 0.0 && past.longest >= past.total - 1e-9 && past.total >= 0.0;
            require(holds, "the history of a prompt is a mean of something", || format!("{prompt}: {past:?}"))?;
        }
        require(self.prompts.len() < self.sweep_at, "faded prompts are forgotten", || {
            format!("{} prompts, to be swept at {}", self.prompts.len(), self.sweep_at)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Tokens;

    fn went(generated: u64) -> Progress {
        Progress { generated: Tokens(generated), turns: 3, ..Progress::default() }
    }

    #[test]
    fn old_history_counts_for_less_than_new() {
        let mut history = History::new(4.0);
        history.add(PromptId(1), &went(100), Version(0));
        history.add(PromptId(1), &went(10_000), Version(8));
        let past = history.get(PromptId(1), Version(8)).unwrap();
        assert!((past.weight - 1.25).abs() < 1e-12);
        let mean = (0.25 * log(100) + log(10_000)) / 1.25;
        assert!((past.total - mean).abs() < 1e-12);
        assert_eq!(past.longest, log(10_000));
    }

    #[test]
    fn a_long_outlier_is_forgotten_along_with_its_weight() {
        let mut history = History::new(1.0);
        history.add(PromptId(1), &went(100), Version(0));
        history.add(PromptId(1), &went(10_000), Version(0));
        let later = history.get(PromptId(1), Version(20)).unwrap();
        assert!(later.trust() < 1e-5 && later.longest - later.total < 1e-4);
    }

    #[test]
    fn a_stream_of_prompts_that_never_return_does_not_grow_the_history() {
        let mut history = History::new(1.0);
        for n in 0..100_000 {
            history.add(PromptId(n), &went(100), Version(n / 64));
            assert!(history.prompts.len() <= FEW);
        }
        history.check().unwrap();
    }
}
