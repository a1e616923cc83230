//! One step's loss over its samples, and the figures kept about it.

use crate::batch::{Sample, Samples, Sequence};
use crate::loss::{Aggregation, LossSums, Old, OldPolicy, PolicyLoss, Terms};
use crate::optimizer::Update;
use crate::options::TrainerOptions;
use crate::shard::Shards;
use crate::softmax;
use venus_core::message::trainer::StepMetrics;
use venus_lm::Model;

/// The loss of a step: all that stays the same over its updates.
pub(crate) struct Objective<'a> {
    samples: &'a Samples,
    loss: PolicyLoss,
    aggregation: Aggregation,
    inverse_temperature: f32,
    /// A minibatch is one of this many; its loss is scaled to estimate the whole batch's.
    minibatches: usize,
    filtered: bool,
    policy: OldPolicy,
    /// Log-probabilities under the weights at the start of the step, where the step makes several updates.
    old: Option<Vec<Vec<f32>>>,
    reference: Option<Vec<Vec<f32>>>,
}

/// What the forward pass of one sample gave.
pub(crate) struct Outcome {
    sums: LossSums,
    entropy: f64,
    logprobs: Vec<f32>,
}

impl<'a> Objective<'a> {
    pub(crate) fn new(options: &TrainerOptions, samples: &'a Samples, temperature: f32, minibatches: usize) -> Self {
        let (algorithm, loss) = (options.algorithm, &options.loss);
        Self {
            samples,
            loss: PolicyLoss {
                clip: loss.clip.unwrap_or(algorithm.default_clip()),
                level: algorithm.ratio_level(),
                importance_cap: loss.importance_cap,
                kl_coefficient: loss.kl_coefficient,
            },
            aggregation: loss.aggregation.unwrap_or(algorithm.default_aggregation()),
            inverse_temperature: 1.0 / temperature,
            minibatches,
            filtered: loss.filtered_sampling,
            policy: options.old_policy(),
            old: None,
            reference: None,
        }
    }

    /// Computes the log-probabilities that must be known before the first update. A step of one update needs none of
    /// its own start: there the policy that is differentiated is the old one.
    pub(crate) fn prepare(
        self,
        several_updates: bool,
        model: &Model,
        reference: Option<&Model>,
        shards: &mut Shards,
    ) -> Self {
        let sequences: Vec<&Sequence> = self.samples.list.iter().map(|sample| &sample.sequence).collect();
        let mut under = |model: &Model| -> Vec<Vec<f32>> {
            shards.forward(model, &sequences, &|index, logits| {
                let rows = logits.chunks_exact(model.config.vocab_size).zip(&sequences[index].targets);
                rows.map(|(row, &target)| softmax::logprob(row, target, self.inverse_temperature)).collect()
            })
        };
        let old = (several_updates && self.policy == OldPolicy::StepStart).then(|| under(model));
        let reference = reference.map(under);
        Self { old, reference, ..self }
    }

    /// Replaces the logits of a sample by the derivative of the loss.
    pub(crate) fn evaluate(&self, index: usize, logits: &mut [f32]) -> Outcome {
        let sample = &self.samples.list[index];
        let targets = &sample.sequence.targets;
        let vocab_size = logits.len() / targets.len();
        let mut logprobs = Vec::with_capacity(targets.len());
        let mut entropy = 0.0;
        for (row, &target) in logits.chunks_exact_mut(vocab_size).zip(targets) {
            let drawn = softmax::to_probabilities(row, target, self.inverse_temperature);
            logprobs.push(drawn.logprob);
            entropy += f64::from(drawn.entropy);
        }
        let mut slopes = Vec::with_capacity(targets.len());
        let sums = self.loss.evaluate(&logprobs, &self.terms(index), &mut slopes);
        let rows = logits.chunks_exact_mut(vocab_size);
        for ((row, &target), &slope) in rows.zip(targets).zip(&slopes) {
            softmax::to_gradient(row, target, slope, self.inverse_temperature);
        }
        Outcome { sums, entropy, logprobs }
    }

    fn terms(&self, index: usize) -> Terms<'_> {
        let sample = &self.samples.list[index];
        let given = self.old.as_ref().map(|old| &old[index][..]);
        let old = match (self.policy, given) {
            (OldPolicy::StepStart, given) if self.filtered => Old::Uncorrected(given),
            (OldPolicy::StepStart, Some(given)) => Old::Given(given),
            (OldPolicy::StepStart, None) => Old::Current,
            (OldPolicy::Behaviour | OldPolicy::Auto, _) => Old::Behaviour,
        };
        let Samples { sequences, tokens, .. } = *self.samples;
        let weight = self.aggregation.token_weight(sample.behaviour.len(), sequences, tokens);
        Terms {
            behaviour: &sample.behaviour,
            old,
            reference: self.reference.as_ref().map(|reference| &reference[index][..]),
            advantage: sample.advantage,
            token_weight: weight * self.minibatches as f64,
        }
    }

    /// Compares engine and trainer over all samples, if their log-probabilities at the start are known.
    pub(crate) fn compare_at_start(&self, tally: &mut Tally) {
        for (sample, logprobs) in self.samples.list.iter().zip(self.old.iter().flatten()) {
            self.compare(sample, logprobs, tally);
        }
    }

    /// Adds the outcomes of an update; of the first one, also what it says about engine and trainer.
    pub(crate) fn tally(&self, chosen: &[usize], outcomes: &[Outcome], update: Update, tally: &mut Tally) {
        for (&index, outcome) in chosen.iter().zip(outcomes) {
            let sample = &self.samples.list[index];
            if tally.updates == 0 {
                self.compare(sample, &outcome.logprobs, tally);
            }
            tally.tokens += sample.sequence.tokens.len() as u64;
            tally.loss_tokens += outcome.logprobs.len() as u64;
            tally.entropy += outcome.entropy;
            tally.sums.loss += outcome.sums.loss;
            tally.sums.kl += outcome.sums.kl;
            tally.sums.clipped += outcome.sums.clipped;
            tally.sums.truncated += outcome.sums.truncated;
        }
        tally.grad_norm += update.grad_norm;
        tally.updates += 1;
    }

    fn compare(&self, sample: &Sample, logprobs: &[f32], tally: &mut Tally) {
        if self.filtered {
            return;
        }
        for ((&engine, &trainer), &current) in sample.behaviour.iter().zip(logprobs).zip(&sample.current) {
            if current {
                tally.logprob_gap_max = tally.logprob_gap_max.max(f64::from((engine - trainer).abs()));
            }
        }
    }
}

/// Sums over the updates of a step.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    updates: u32,
    tokens: u64,
    loss_tokens: u64,
    grad_norm: f64,
    entropy: f64,
    logprob_gap_max: f64,
    sums: LossSums,
}

impl Tally {
    /// The step's figures; means over nothing are 0.
    pub(crate) fn metrics(&self, samples: &Samples, seconds: f64) -> StepMetrics {
        let each_token = |sum: f64| sum / self.loss_tokens.max(1) as f64;
        let each_update = |sum: f64| sum / f64::from(self.updates.max(1));
        StepMetrics {
            reward_mean: samples.reward_mean,
            loss: each_update(self.sums.loss),
            grad_norm: each_update(self.grad_norm),
            entropy: each_token(self.entropy),
            kl: each_token(self.sums.kl),
            clip_fraction: each_token(self.sums.clipped as f64),
            truncated_fraction: each_token(self.sums.truncated as f64),
            zero_variance_groups: samples.zero_variance_groups,
            logprob_gap_max: self.logprob_gap_max,
            tokens: self.tokens,
            loss_tokens: self.loss_tokens,
            seconds,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advantage::Algorithm;

    const VOCAB: usize = 5;

    fn samples() -> Samples {
        let sequence = Sequence { tokens: vec![0; 4], rows: vec![1, 2, 3], targets: vec![4, 0, 2] };
        let sample = Sample { sequence, behaviour: vec![-1.5, -1.7, -1.2], current: vec![true; 3], advantage: -0.8 };
        Samples { list: vec![sample], sequences: 1, tokens: 3, reward_mean: 0.0, zero_variance_groups: 0 }
    }

    fn logits() -> Vec<f32> {
        (0..3 * VOCAB).map(|index| ((index * 7 % 11) as f32 - 5.0) * 0.04).collect()
    }

    /// From logits through temperature, softmax, ratio and mean: the gradient the model gets is that of the loss reported.
    #[test]
    fn the_gradient_of_every_algorithm_agrees_with_finite_differences() {
        let samples = samples();
        for algorithm in Algorithm::ALL {
            let mut options = TrainerOptions { algorithm, minibatches: 1, ..Default::default() };
            options.loss.clip = Some(crate::loss::Clip { low: 0.5, high: 0.5 });
            options.loss.kl_coefficient = 0.1;
            let mut objective = Objective::new(&options, &samples, 0.7, 1);
            objective.reference = Some(vec![vec![-1.0, -2.0, -1.5]]);
            let mut gradient = logits();
            let outcome = objective.evaluate(0, &mut gradient);
            assert_eq!(outcome.sums.clipped, 0, "the difference would straddle a kink");
            for (index, &slope) in gradient.iter().enumerate() {
                let loss = |delta: f32| {
                    let mut moved = logits();
                    moved[index] += delta;
                    objective.evaluate(0, &mut moved).sums.loss
                };
                let numeric = (loss(1e-2) - loss(-1e-2)) / 2e-2;
                let slope = f64::from(slope);
                assert!(
                    (numeric - slope).abs() < 1e-3 * slope.abs().max(1e-2),
                    "{algorithm:?} {index}: {numeric} {slope}"
                );
            }
        }
    }
}
