//! Every algorithm against its paper's formula, written down a second time without the crate's structure.

use proptest::prelude::*;
use venus_trainer::Algorithm;
use venus_trainer::loss::{LossSums, Old, PolicyLoss, Terms};

/// Two groups of three trajectories with one to four drawn tokens each: rewards, `mu` and `new`.
#[derive(Clone, Debug)]
struct Case {
    rewards: Vec<Vec<f32>>,
    behaviour: Vec<Vec<f32>>,
    new: Vec<Vec<f32>>,
}

impl Case {
    fn tokens(&self) -> usize {
        self.new.iter().map(Vec::len).sum()
    }
}

fn case() -> impl Strategy<Value = Case> {
    let tokens = || prop::collection::vec((-3.0f32..-0.1, -0.4f32..0.4), 1..5);
    let rewards = || prop::collection::vec(prop::sample::select(vec![0.0f32, 0.5, 1.0]), 3);
    (prop::collection::vec(rewards(), 2), prop::collection::vec(tokens(), 6)).prop_map(|(rewards, tokens)| Case {
        rewards,
        behaviour: tokens.iter().map(|tokens| tokens.iter().map(|&(mu, _)| mu).collect()).collect(),
        new: tokens.iter().map(|tokens| tokens.iter().map(|&(mu, moved)| mu + moved).collect()).collect(),
    })
}

const EPSILON: f64 = 0.1;

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn std(values: &[f64]) -> f64 {
    let centre = mean(values);
    mean(&values.iter().map(|value| (value - centre).powi(2)).collect::<Vec<_>>()).sqrt()
}

/// The papers' objectives, to be minimised, with `old = mu`.
fn paper(algorithm: Algorithm, case: &Case, new: &[Vec<f64>]) -> f64 {
    let rewards: Vec<f64> = case.rewards.iter().flatten().map(|&reward| f64::from(reward)).collect();
    let clip = algorithm.default_clip();
    let pessimistic = |ratio: f64, advantage: f64| {
        let clipped = ratio.max(1.0 - f64::from(clip.low)).min(1.0 + f64::from(clip.high));
        (ratio * advantage).min(clipped * advantage)
    };
    let mut objective = 0.0;
    for (index, (new, mu)) in new.iter().zip(&case.behaviour).enumerate() {
        let group = &rewards[index / 3 * 3..][..3];
        let others: Vec<f64> = (0..3).filter(|&member| member != index % 3).map(|member| group[member]).collect();
        let advantage = match algorithm {
            Algorithm::Grpo | Algorithm::Gspo => (rewards[index] - mean(group)) / (std(group) + EPSILON),
            Algorithm::DrGrpo => rewards[index] - mean(group),
            Algorithm::Rloo => rewards[index] - mean(&others),
            Algorithm::ReinforcePlusPlus => (rewards[index] - mean(&rewards)) / (std(&rewards) + EPSILON),
        };
        let logs: Vec<f64> = new.iter().zip(mu).map(|(new, &mu)| new - f64::from(mu)).collect();
        let tokens: f64 = logs.iter().map(|log| pessimistic(log.exp(), advantage)).sum();
        objective += match algorithm {
            Algorithm::Grpo | Algorithm::ReinforcePlusPlus => tokens / case.tokens() as f64,
            Algorithm::Gspo => pessimistic(mean(&logs).exp(), advantage) / 6.0,
            Algorithm::DrGrpo | Algorithm::Rloo => tokens / 6.0 / 256.0,
        };
    }
    -objective
}

/// The crate's loss and slopes of the same case.
fn crate_loss(algorithm: Algorithm, case: &Case) -> (f64, Vec<Vec<f32>>) {
    let advantages = algorithm.advantages(&case.rewards, EPSILON as f32).concat();
    let (clip, level) = (algorithm.default_clip(), algorithm.ratio_level());
    let loss = PolicyLoss { clip, level, importance_cap: 2.0, kl_coefficient: 0.0 };
    let (mut total, mut all_slopes) = (0.0, Vec::new());
    for (index, new) in case.new.iter().enumerate() {
        let token_weight = algorithm.default_aggregation().token_weight(new.len(), 6, case.tokens());
        let behaviour = &case.behaviour[index];
        let terms =
            Terms { behaviour, old: Old::Behaviour, reference: None, advantage: advantages[index], token_weight };
        let mut slopes = Vec::new();
        total += loss.evaluate(new, &terms, &mut slopes).loss;
        all_slopes.push(slopes);
    }
    (total, all_slopes)
}

proptest! {
    #[test]
    fn loss_and_gradient_are_those_of_the_paper(case in case()) {
        let exact: Vec<Vec<f64>> = case.new.iter().map(|new| new.iter().map(|&lp| f64::from(lp)).collect()).collect();
        for algorithm in Algorithm::ALL {
            let (loss, slopes) = crate_loss(algorithm, &case);
            prop_assert!((loss - paper(algorithm, &case, &exact)).abs() < 1e-6, "{algorithm:?}");
            for (sequence, slopes) in slopes.iter().enumerate() {
                for (token, &slope) in slopes.iter().enumerate() {
                    let moved = |delta: f64| {
                        let mut new = exact.clone();
                        new[sequence][token] += delta;
                        paper(algorithm, &case, &new)
                    };
                    // At a kink of the clip the two one-sided slopes differ, and either is right.
                    let (up, down) = ((moved(1e-6) - moved(0.0)) / 1e-6, (moved(0.0) - moved(-1e-6)) / 1e-6);
                    let slope = f64::from(slope);
                    prop_assert!((slope - up).abs().min((slope - down).abs()) < 1e-5, "{algorithm:?} {slope} {up} {down}");
                }
            }
        }
    }
}

fn evaluate(loss: &PolicyLoss, new: &[f32], terms: &Terms<'_>) -> (LossSums, Vec<f32>) {
    let mut slopes = vec![f32::NAN];
    (loss.evaluate(new, terms, &mut slopes), slopes)
}

fn grpo(importance_cap: f32, kl_coefficient: f32) -> PolicyLoss {
    let (clip, level) = (Algorithm::Grpo.default_clip(), Algorithm::Grpo.ratio_level());
    PolicyLoss { clip, level, importance_cap, kl_coefficient }
}

#[test]
fn a_stale_token_weighs_by_its_probability_then_and_now_up_to_the_cap() {
    let behaviour = [-2.0, -2.0];
    // Half as likely, and eight times as likely, at the start of the step as when drawn.
    let old = [-2.0 - 2f32.ln(), -2.0 + 8f32.ln()];
    let terms =
        Terms { behaviour: &behaviour, old: Old::Given(&old), reference: None, advantage: 1.0, token_weight: 1.0 };
    let (sums, slopes) = evaluate(&grpo(2.0, 0.0), &old, &terms);
    assert!((slopes[0] + 0.5).abs() < 1e-6 && (slopes[1] + 2.0).abs() < 1e-6, "{slopes:?}");
    assert_eq!((sums.truncated, sums.clipped), (1, 0));
    // A single update needs no separate pass for the old policy: it is the one being differentiated.
    let current = Terms { old: Old::Current, ..terms };
    assert_eq!(evaluate(&grpo(2.0, 0.0), &old, &current), (sums, slopes));
}

#[test]
fn a_token_that_moved_far_enough_pulls_no_further() {
    let behaviour = [-1.0, -1.0];
    let new = [-1.0 + 1.29f32.ln(), -1.0 + 0.79f32.ln()];
    let up = Terms { behaviour: &behaviour, old: Old::Behaviour, reference: None, advantage: 1.0, token_weight: 1.0 };
    let (sums, slopes) = evaluate(&grpo(2.0, 0.0), &new, &up);
    assert!(slopes[0] == 0.0 && slopes[1] < 0.0, "{slopes:?}");
    assert_eq!(sums.clipped, 1);
    let down = Terms { advantage: -1.0, ..up };
    let (_, slopes) = evaluate(&grpo(2.0, 0.0), &new, &down);
    assert!(slopes[0] > 0.0 && slopes[1] == 0.0, "{slopes:?}");
}

#[test]
fn the_kl_pulls_towards_the_reference() {
    let (behaviour, reference, new) = ([-1.0, -1.0], [-0.5, -1.5], [-1.0, -1.0]);
    let at = |new: &[f32]| {
        let reference = Some(&reference[..]);
        let terms = Terms { behaviour: &behaviour, old: Old::Behaviour, reference, advantage: 0.0, token_weight: 1.0 };
        evaluate(&grpo(2.0, 0.3), new, &terms)
    };
    let (_, slopes) = at(&new);
    assert!(slopes[0] < 0.0 && slopes[1] > 0.0, "{slopes:?}");
    for token in 0..2 {
        let moved = |delta: f32| {
            let mut new = new;
            new[token] += delta;
            at(&new).0.loss
        };
        let numeric = (moved(1e-3) - moved(-1e-3)) / 2e-3;
        assert!((numeric - f64::from(slopes[token])).abs() < 1e-4, "{numeric} {slopes:?}");
    }
}

/// vllm#42259: log-probabilities renormalised over a truncated support are not those of the policy.
#[test]
fn filtered_sampling_gets_no_importance_weight() {
    let behaviour = [-0.1];
    let terms = Terms {
        behaviour: &behaviour,
        old: Old::Uncorrected(None),
        reference: None,
        advantage: 1.0,
        token_weight: 1.0,
    };
    let (_, slopes) = evaluate(&grpo(2.0, 0.0), &[-3.0], &terms);
    assert_eq!(slopes, [-1.0]);
}
