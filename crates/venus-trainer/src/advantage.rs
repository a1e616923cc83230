//! How much better than expected a trajectory was: the one place where the algorithms differ in their baseline.

use crate::loss::{Aggregation, Clip, RatioLevel};
use serde::{Deserialize, Serialize};

/// A policy-gradient algorithm on groups of K trajectories: which advantage, which ratio, which mean.
///
/// `r_i` is the reward of trajectory i, `mean` and `std` (population) are over its group unless said otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Algorithm {
    /// GRPO (DeepSeekMath, arXiv 2402.03300, section 4.1): `A_i = (r_i - mean) / (std + epsilon)`. The loss is the
    /// mean over tokens (DAPO, arXiv 2503.14476, section 3.3); the first paper's mean of each trajectory's mean is
    /// [`Aggregation::SequenceMean`].
    #[default]
    Grpo,
    /// Dr. GRPO (arXiv 2503.20783, section 3.2): `A_i = r_i - mean`, and token losses are summed and divided by a
    /// constant: neither the spread of a group nor the length of a trajectory changes its weight.
    DrGrpo,
    /// GSPO (arXiv 2507.18071, section 4): GRPO's advantage with the ratio of whole trajectories,
    /// `s_i = exp(mean over its tokens of (new - old log-probability))`, clipped far closer to 1.
    Gspo,
    /// RLOO (arXiv 2402.14740, section 3.2): `A_i = r_i - mean of the other K - 1 rewards`; a trajectory is one
    /// action, so the log-probabilities of its tokens are summed.
    Rloo,
    /// REINFORCE++ (arXiv 2501.03262, section 3): `A_i = (r_i - mean) / (std + epsilon)` over the whole batch. A
    /// group of equal rewards still carries signal here: it is better or worse than the batch.
    ReinforcePlusPlus,
}

impl Algorithm {
    /// Every algorithm.
    pub const ALL: [Self; 5] = [Self::Grpo, Self::DrGrpo, Self::Gspo, Self::Rloo, Self::ReinforcePlusPlus];

    /// The advantage of every trajectory, in the shape of `rewards` (one inner slice a group).
    ///
    /// `epsilon` is added to the standard deviation where one divides. A group of equal rewards gets exact zeros
    /// (except under REINFORCE++): sums of equal `f32` are exact in the `f64` used here.
    #[must_use]
    pub fn advantages(self, rewards: &[Vec<f32>], epsilon: f32) -> Vec<Vec<f32>> {
        match self {
            Self::ReinforcePlusPlus => {
                let batch = Moments::of(rewards.iter().flatten().copied());
                rewards.iter().map(|group| group.iter().map(|&r| batch.normalise(r, epsilon)).collect()).collect()
            }
            _ => rewards.iter().map(|group| self.group_advantages(group, epsilon)).collect(),
        }
    }

    fn group_advantages(self, rewards: &[f32], epsilon: f32) -> Vec<f32> {
        let group = Moments::of(rewards.iter().copied());
        let advantage = |&r: &f32| match self {
            Self::Grpo | Self::Gspo | Self::ReinforcePlusPlus => group.normalise(r, epsilon),
            Self::DrGrpo => group.centre(r),
            Self::Rloo => group.leave_one_out(r),
        };
        rewards.iter().map(advantage).collect()
    }

    /// Trajectories a group must have at least: a baseline from one's own group needs somebody to compare with.
    #[must_use]
    pub fn least_group_size(self) -> usize {
        if self == Self::ReinforcePlusPlus { 1 } else { 2 }
    }

    /// Over what the importance ratio is taken.
    #[must_use]
    pub fn ratio_level(self) -> RatioLevel {
        if self == Self::Gspo { RatioLevel::Sequence } else { RatioLevel::Token }
    }

    /// The clip range of the algorithm's paper; for the token ratio DAPO's raised upper bound.
    #[must_use]
    pub fn default_clip(self) -> Clip {
        match self.ratio_level() {
            RatioLevel::Sequence => Clip { low: 3e-4, high: 4e-4 },
            RatioLevel::Token => Clip { low: 0.2, high: 0.28 },
        }
    }

    /// How the algorithm's paper weighs tokens against trajectories.
    #[must_use]
    pub fn default_aggregation(self) -> Aggregation {
        match self {
            Self::Grpo | Self::ReinforcePlusPlus => Aggregation::TokenMean,
            Self::Gspo => Aggregation::SequenceMean,
            Self::DrGrpo | Self::Rloo => Aggregation::ConstantLength { tokens: 256 },
        }
    }
}

/// Whether all rewards of a group are equal: it says nothing about which member did better.
#[must_use]
pub fn zero_variance(rewards: &[f32]) -> bool {
    rewards.windows(2).all(|pair| pair[0] == pair[1])
}

/// Count, sum and spread of rewards.
struct Moments {
    count: f64,
    sum: f64,
    std: f64,
}

impl Moments {
    fn of(rewards: impl Iterator<Item = f32> + Clone) -> Self {
        let count = rewards.clone().count() as f64;
        let sum: f64 = rewards.clone().map(f64::from).sum();
        let squares: f64 = rewards.map(|r| (f64::from(r) - sum / count).powi(2)).sum();
        Self { count, sum, std: (squares / count).sqrt() }
    }

    fn centre(&self, reward: f32) -> f32 {
        (f64::from(reward) - self.sum / self.count) as f32
    }

    fn normalise(&self, reward: f32, epsilon: f32) -> f32 {
        let centred = f64::from(reward) - self.sum / self.count;
        // Equal rewards and no epsilon: 0/0 is no advantage, not NaN.
        if centred == 0.0 { 0.0 } else { (centred / (self.std + f64::from(epsilon))) as f32 }
    }

    fn leave_one_out(&self, reward: f32) -> f32 {
        let others = (self.sum - f64::from(reward)) / (self.count - 1.0);
        (f64::from(reward) - others) as f32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rewards_of_one_group_by_hand() {
        let rewards = vec![vec![1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0]];
        let std = (0.25f32 * 0.75).sqrt();
        let first = |algorithm: Algorithm| algorithm.advantages(&rewards, 0.0)[0][0];
        assert!((first(Algorithm::Grpo) - 0.75 / std).abs() < 1e-6);
        assert_eq!(first(Algorithm::DrGrpo), 0.75);
        assert!((first(Algorithm::Rloo) - (1.0 - 1.0 / 7.0)).abs() < 1e-6);
    }

    #[test]
    fn a_group_of_equal_rewards_has_exactly_no_advantage() {
        for algorithm in [Algorithm::Grpo, Algorithm::DrGrpo, Algorithm::Gspo, Algorithm::Rloo] {
            for size in 2..12 {
                assert_eq!(algorithm.advantages(&[vec![0.1; size]], 0.0), [vec![0.0; size]], "{algorithm:?}");
            }
        }
    }

    #[test]
    fn reinforce_plus_plus_compares_with_the_batch_not_the_group() {
        let advantages = Algorithm::ReinforcePlusPlus.advantages(&[vec![1.0, 1.0], vec![0.0, 0.0]], 0.0);
        assert_eq!(advantages, [vec![1.0, 1.0], vec![-1.0, -1.0]]);
    }
}
