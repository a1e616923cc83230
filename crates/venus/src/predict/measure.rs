//! How good a set of predictions is.

use std::collections::BTreeMap;

/// One prediction and what came of it.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Turns of the trajectory before.
    pub turn: u32,
    /// Tokens it was said to generate still.
    pub said: f64,
    /// Tokens it did.
    pub left: f64,
}

/// Turns at which figures are given one by one.
pub const TURNS: [u32; 5] = [0, 3, 5, 10, 20];
/// Turns at which the straggler's figure is given.
pub const STRAGGLER_TURNS: [u32; 4] = [3, 5, 10, 20];

/// A turn with fewer trajectories alive says nothing.
const FEW: usize = 10;

/// The figures of one set of predictions; absent where there are too few to tell.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    /// Spearman over all boundaries.
    pub pooled: Option<f64>,
    /// Mean over turns of Spearman among the trajectories alive, weighted by their number.
    pub fixed: Option<f64>,
    /// The same at some turns.
    pub at: [Option<f64>; TURNS.len()],
    /// Mean absolute error, tokens.
    pub mae: Option<f64>,
    /// The same in units of the mean of what was left.
    pub relative: Option<f64>,
    /// Area under the ROC curve of telling the tenth with the most left, at some turns.
    pub straggler: [Option<f64>; STRAGGLER_TURNS.len()],
}

impl Figures {
    /// Measures. `samples` may be empty.
    pub fn of(samples: &[Sample]) -> Self {
        let mut turns: BTreeMap<u32, Vec<Sample>> = BTreeMap::new();
        for sample in samples {
            turns.entry(sample.turn).or_default().push(*sample);
        }
        turns.retain(|_, alive| alive.len() >= FEW);
        let ranks: BTreeMap<u32, f64> = turns.iter().map(|(turn, alive)| (*turn, spearman(alive))).collect();
        let alive: f64 = turns.values().map(|alive| alive.len() as f64).sum();
        let weighted: f64 = turns.iter().map(|(turn, alive)| ranks[turn] * alive.len() as f64).sum();
        let count = samples.len() as f64;
        let some = |value: f64| (!samples.is_empty()).then_some(value);
        let mae = samples.iter().map(|s| (s.said - s.left).abs()).sum::<f64>() / count;
        let mean = samples.iter().map(|s| s.left).sum::<f64>() / count;
        Self {
            pooled: some(spearman(samples)),
            fixed: (alive > 0.0).then_some(weighted / alive),
            at: TURNS.map(|turn| ranks.get(&turn).copied()),
            mae: some(mae),
            relative: some(mae / mean),
            straggler: STRAGGLER_TURNS.map(|turn| turns.get(&turn).map(|alive| auc(alive))),
        }
    }
}

/// Rank correlation; 0 where one side is all the same.
fn spearman(samples: &[Sample]) -> f64 {
    let said = ranks(samples.iter().map(|sample| sample.said));
    let left = ranks(samples.iter().map(|sample| sample.left));
    let mean = (samples.len() as f64 + 1.0) / 2.0;
    let covariance = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - mean) * (b - mean)).sum::<f64>();
    let scale = (covariance(&said, &said) * covariance(&left, &left)).sqrt();
    if scale > 0.0 { covariance(&said, &left) / scale } else { 0.0 }
}

/// Ranks from 1, ties at the mean of theirs.
fn ranks(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let values: Vec<f64> = values.collect();
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut ranks = vec![0.0; values.len()];
    let mut before = 0;
    for tied in order.chunk_by(|&a, &b| values[a] == values[b]) {
        tied.iter().for_each(|&at| ranks[at] = before as f64 + (tied.len() as f64 + 1.0) / 2.0);
        before += tied.len();
    }
    ranks
}

/// How probable it is that one of the tenth with the most left was said to have more left than one of the others.
fn auc(alive: &[Sample]) -> f64 {
    let mut longest: Vec<usize> = (0..alive.len()).collect();
    longest.sort_by(|&a, &b| alive[b].left.total_cmp(&alive[a].left));
    longest.truncate(alive.len().div_ceil(10));
    let said = ranks(alive.iter().map(|sample| sample.said));
    let (hits, others) = (longest.len() as f64, (alive.len() - longest.len()) as f64);
    let sum: f64 = longest.iter().map(|&at| said[at]).sum();
    (sum - hits * (hits + 1.0) / 2.0) / (hits * others)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(pairs: &[(f64, f64)]) -> Vec<Sample> {
        pairs.iter().map(|&(said, left)| Sample { turn: 0, said, left }).collect()
    }

    #[test]
    fn rank_correlation_looks_at_order_alone_and_shares_ranks_among_ties() {
        assert!((spearman(&samples(&[(1.0, 10.0), (2.0, 200.0), (9.0, 201.0)])) - 1.0).abs() < 1e-12);
        assert!((spearman(&samples(&[(3.0, 1.0), (2.0, 2.0), (1.0, 9.0)])) + 1.0).abs() < 1e-12);
        assert_eq!(spearman(&samples(&[(5.0, 1.0), (5.0, 2.0), (5.0, 9.0)])), 0.0);
        // Ranks 1.5 1.5 3 4 against 1 2 3 4: 4.5 / sqrt(4.5 x 5).
        let tied = spearman(&samples(&[(1.0, 1.0), (1.0, 2.0), (2.0, 3.0), (3.0, 4.0)]));
        assert!((tied - 4.5 / (4.5_f64 * 5.0).sqrt()).abs() < 1e-12, "{tied}");
    }

    #[test]
    fn a_straggler_is_told_from_the_others_half_of_the_time_by_who_says_nothing() {
        let pairs: Vec<(f64, f64)> = (0..20).map(|n| (7.0, f64::from(n))).collect();
        assert_eq!(auc(&samples(&pairs)), 0.5);
        let pairs: Vec<(f64, f64)> = (0..20).map(|n| (f64::from(n % 19), f64::from(n))).collect();
        // Of the two longest one was said to be the longest, the other the shortest, tied with another: 18 + 0.5 of 36.
        assert_eq!(auc(&samples(&pairs)), 18.5 / 36.0);
    }

    #[test]
    fn pooling_turns_makes_order_by_turn_alone_look_like_a_prediction() {
        // Ten trajectories of lengths unrelated to what is said, which is the turn alone.
        let mut all = Vec::new();
        for length in 20..30_u32 {
            all.extend((0..length).map(|turn| Sample {
                turn,
                said: f64::from(100 - turn),
                left: f64::from(length - turn),
            }));
        }
        let figures = Figures::of(&all);
        assert!(figures.pooled.is_some_and(|pooled| pooled > 0.8), "{figures:?}");
        assert_eq!(figures.fixed, Some(0.0));
    }

    #[test]
    fn nothing_said_gives_no_figures() {
        let figures = Figures::of(&[]);
        assert!(figures.pooled.is_none() && figures.mae.is_none() && figures.fixed.is_none());
    }
}
