//! The trainer as its users meet it.

use crate::support::{Rollout, tiny_model, write_model};
use std::path::Path;
use tempfile::TempDir;
use venus_core::ids::Version;
use venus_core::message::trainer::TrainBatch;
use venus_lm::Model;
use venus_trainer::{
    Algorithm, Checkpoint, LossOptions, OldPolicy, OptimizerOptions, Trainer, TrainerError, TrainerOptions,
};

const WANTED: u32 = 4;

fn options() -> TrainerOptions {
    let optimizer = OptimizerOptions { learning_rate: 0.01, ..Default::default() };
    TrainerOptions { threads: 2, micro_batch_tokens: 50, optimizer, ..Default::default() }
}

/// A directory with a model in `start`, and a trainer of it.
fn trainer(options: TrainerOptions) -> (TempDir, Trainer) {
    let dir = tempfile::tempdir().unwrap();
    write_model(&tiny_model(), &dir.path().join("start"));
    let trainer = Trainer::new(options, &dir.path().join("start")).unwrap();
    (dir, trainer)
}

fn steps(trainer: &mut Trainer, out: &Path, count: u64) -> f64 {
    let mut reward = 0.0;
    for _ in 0..count {
        let batch = Rollout::new(trainer.version().0).draw(trainer.model(), WANTED);
        reward = trainer.step(&batch, out).unwrap().metrics.reward_mean;
    }
    reward
}

/// A bandit: the share of drawn tokens that are the wanted one is the reward.
fn learns(algorithm: Algorithm) {
    let optimizer = OptimizerOptions { learning_rate: 0.02, ..Default::default() };
    let (dir, mut trainer) = trainer(TrainerOptions { algorithm, optimizer, ..options() });
    let before = steps(&mut trainer, dir.path(), 1);
    let after = steps(&mut trainer, dir.path(), 20);
    assert!(before < 0.3 && after > 0.9, "{before} -> {after}");
}

#[test]
fn grpo_learns_which_token_is_rewarded() {
    learns(Algorithm::Grpo);
}

#[test]
fn dr_grpo_learns_which_token_is_rewarded() {
    learns(Algorithm::DrGrpo);
}

#[test]
fn gspo_learns_which_token_is_rewarded() {
    learns(Algorithm::Gspo);
}

#[test]
fn rloo_learns_which_token_is_rewarded() {
    learns(Algorithm::Rloo);
}

#[test]
fn reinforce_plus_plus_learns_which_token_is_rewarded() {
    learns(Algorithm::ReinforcePlusPlus);
}

#[test]
fn a_resumed_run_goes_on_bit_for_bit() {
    let (dir, mut straight) = trainer(options());
    steps(&mut straight, dir.path(), 4);
    let mut resumed = Trainer::resume(options(), &dir.path().join("v2")).unwrap();
    assert_eq!(resumed.version(), Version(2));
    steps(&mut resumed, &dir.path().join("again"), 2);
    assert_eq!(resumed.model().params(), straight.model().params());
    let weights = |dir: &Path| std::fs::read(dir.join("v4/optimizer.safetensors")).unwrap();
    assert_eq!(weights(dir.path()), weights(&dir.path().join("again")));
}

#[test]
fn a_checkpoint_is_a_model_and_says_what_was_trained() {
    let (dir, mut trainer) = trainer(options());
    let batch = Rollout::new(0).draw(trainer.model(), WANTED);
    let result = trainer.step(&batch, dir.path()).unwrap();
    assert_eq!(Model::load(&result.dir).unwrap().params(), trainer.model().params());
    let checkpoint = Checkpoint::read(&result.dir).unwrap();
    assert_eq!((checkpoint.version, checkpoint.batch), (Version(1), batch.batch));
    assert_eq!(checkpoint.groups, batch.groups.iter().map(|group| group.group).collect::<Vec<_>>());
    assert_eq!(checkpoint.metrics, result.metrics);
    assert_eq!(std::fs::read_to_string(result.dir.join("tokenizer.json")).unwrap(), "{}");
}

#[test]
fn a_batch_is_trained_once() {
    let (dir, mut trainer) = trainer(options());
    let batch = Rollout::new(0).draw(trainer.model(), WANTED);
    let result = trainer.step(&batch, dir.path()).unwrap();
    let mut resumed = Trainer::resume(options(), &result.dir).unwrap();
    for trainer in [&mut trainer, &mut resumed] {
        let error = trainer.step(&batch, dir.path()).unwrap_err();
        assert!(matches!(error, TrainerError::AlreadyTrained { version: Version(1), .. }), "{error}");
    }
    let mut other = Trainer::new(options(), &dir.path().join("start")).unwrap();
    let error = other.step(&batch, dir.path()).unwrap_err();
    assert!(matches!(error, TrainerError::CheckpointExists { .. }), "{error}");
}

#[test]
fn a_version_that_cannot_be_written_is_not_made() {
    let (dir, mut trainer) = trainer(options());
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let batch = Rollout::new(0).draw(trainer.model(), WANTED);
    let error = trainer.step(&batch, &file).unwrap_err().to_string();
    assert!(error.contains(&file.display().to_string()), "{error}");
    assert_eq!((trainer.version(), trainer.model().params()), (Version(0), tiny_model().params()));
    trainer.step(&batch, dir.path()).unwrap();
    let mut untroubled = Trainer::new(options(), &dir.path().join("start")).unwrap();
    untroubled.step(&batch, &dir.path().join("other")).unwrap();
    assert_eq!(trainer.model().params(), untroubled.model().params());
}

#[test]
fn a_gradient_that_is_not_finite_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut model = tiny_model();
    let batch = Rollout::new(0).draw(&model, WANTED);
    let last = model.params().len() - 1;
    model.params_mut()[last] = f32::NAN;
    write_model(&model, dir.path());
    let mut trainer = Trainer::new(options(), dir.path()).unwrap();
    let error = trainer.step(&batch, dir.path()).unwrap_err().to_string();
    assert!(error.contains("not finite") && error.contains("learning rate"), "{error}");
    assert_eq!(trainer.version(), Version(0));
    assert!(!dir.path().join("v1").exists() && !dir.path().join(".v1.partial").exists());
}

/// Parameters after one update on `batch`.
fn updated(options: TrainerOptions, batch: &TrainBatch) -> Vec<f32> {
    let (dir, mut trainer) = trainer(options);
    trainer.step(batch, dir.path()).unwrap();
    trainer.model().params().to_vec()
}

/// Largest difference.
fn distance(left: &[f32], right: &[f32]) -> f32 {
    left.iter().zip(right).map(|(left, right)| (left - right).abs()).fold(0.0, f32::max)
}

/// An optimizer whose step is close to proportional to the gradient, so that its scale shows.
fn proportional() -> TrainerOptions {
    let optimizer = OptimizerOptions {
        learning_rate: 1.0,
        epsilon: 100.0,
        weight_decay: 0.0,
        max_grad_norm: 1e9,
        ..Default::default()
    };
    TrainerOptions { minibatches: 1, optimizer, ..options() }
}

#[test]
fn leaving_out_a_group_of_equal_rewards_changes_no_other_weight() {
    let mut batch = Rollout::new(0).draw(&tiny_model(), WANTED);
    for (group, members) in batch.groups.iter_mut().enumerate() {
        for (member, trajectory) in members.trajectories.iter_mut().enumerate() {
            trajectory.reward = if group == 1 { 0.25 } else { (member % 3) as f32 };
        }
    }
    let (dir, mut trainer) = trainer(proportional());
    let metrics = trainer.step(&batch, dir.path()).unwrap().metrics;
    assert_eq!((metrics.zero_variance_groups, metrics.loss_tokens), (1, 3 * 8 * 4));
    // A KL that is too small to matter keeps all groups in.
    let loss = LossOptions { kl_coefficient: 1e-30, reference: Some(dir.path().join("start")), ..Default::default() };
    let kept = updated(TrainerOptions { loss, ..proportional() }, &batch);
    let moved = distance(trainer.model().params(), tiny_model().params());
    assert!(moved > 1e-4 && distance(trainer.model().params(), &kept) < 1e-3 * moved);
}

#[test]
fn a_batch_without_any_advantage_makes_a_version_of_the_same_weights() {
    let mut batch = Rollout::new(0).draw(&tiny_model(), WANTED);
    batch.groups.iter_mut().flat_map(|group| &mut group.trajectories).for_each(|trajectory| trajectory.reward = 1.0);
    let (dir, mut trainer) = trainer(options());
    let result = trainer.step(&batch, dir.path()).unwrap();
    assert_eq!((result.version, result.metrics.zero_variance_groups), (Version(1), 4));
    assert_eq!(trainer.model().params(), tiny_model().params());
}

#[test]
fn threads_and_micro_batches_do_not_change_the_gradient() {
    let batch = Rollout::new(0).draw(&tiny_model(), WANTED);
    let with =
        |threads, micro_batch_tokens| updated(TrainerOptions { threads, micro_batch_tokens, ..proportional() }, &batch);
    let one = with(1, 100_000);
    let moved = distance(&one, tiny_model().params());
    for (threads, micro_batch_tokens) in [(1, 1), (2, 20), (3, 50), (64, 8)] {
        let other = with(threads, micro_batch_tokens);
        assert!(distance(&one, &other) < 1e-3 * moved, "{threads} threads, {micro_batch_tokens} tokens");
        assert_eq!(other, with(threads, micro_batch_tokens), "not reproducible");
    }
}

#[test]
fn on_policy_all_old_policies_give_the_same_update() {
    let batch = Rollout { temperature: 0.7, ..Rollout::new(0) }.draw(&tiny_model(), WANTED);
    let with = |old| {
        let loss = LossOptions { old, ..Default::default() };
        updated(TrainerOptions { loss, ..proportional() }, &batch)
    };
    let moved = distance(&with(OldPolicy::Behaviour), tiny_model().params());
    assert!(distance(&with(OldPolicy::Behaviour), &with(OldPolicy::StepStart)) < 1e-3 * moved);
}

/// vime#64, AReaL#1290: the gap between engine and trainer is measured at every step, where it means something.
#[test]
fn the_logprob_gap_is_over_tokens_of_the_present_weights() {
    let gap = |minibatches: u32, change: &dyn Fn(&mut TrainBatch), filtered_sampling: bool| {
        let mut batch = Rollout { temperature: 0.8, ..Rollout::new(0) }.draw(&tiny_model(), WANTED);
        change(&mut batch);
        let loss = LossOptions { filtered_sampling, ..Default::default() };
        let (dir, mut trainer) = trainer(TrainerOptions { minibatches, loss, ..options() });
        // One update first, so that there is an older version.
        steps(&mut trainer, dir.path(), 1);
        let mut batch2 = Rollout { temperature: 0.8, ..Rollout::new(1) }.draw(trainer.model(), WANTED);
        change(&mut batch2);
        trainer.step(&batch2, dir.path()).unwrap().metrics.logprob_gap_max
    };
    let shift = |batch: &mut TrainBatch| batch.groups[0].trajectories[0].logprobs[2] -= 0.5;
    let stale = |batch: &mut TrainBatch| {
        shift(batch);
        batch.groups[0].trajectories[0].spans[0].version = Version(0);
    };
    for minibatches in [1, 2] {
        assert!(gap(minibatches, &|_| {}, false) < 1e-4);
        assert!((gap(minibatches, &shift, false) - 0.5).abs() < 1e-4);
        assert!(gap(minibatches, &stale, false) < 1e-4);
        assert_eq!(gap(minibatches, &shift, true), 0.0);
    }
}

#[test]
fn a_start_without_a_tokenizer_or_model_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let error = |dir: &Path| Trainer::new(options(), dir).err().unwrap().to_string();
    assert!(error(dir.path()).contains("config.json"));
    tiny_model().save(dir.path()).unwrap();
    assert!(error(dir.path()).contains("tokenizer.json"));
}
