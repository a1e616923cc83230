//! What a batch must be, and what is said about one that is not.

use crate::support::{Rollout, tiny_model};
use venus_core::ids::Version;
use venus_core::message::trainer::{TrainBatch, TrainTrajectory};
use venus_trainer::Algorithm;
use venus_trainer::batch::{Expectation, check};

fn checked(algorithm: Algorithm, change: impl FnOnce(&mut TrainBatch)) -> String {
    let model = tiny_model();
    let mut batch = Rollout { groups: 2, members: 2, ..Rollout::new(3) }.draw(&model, 4);
    change(&mut batch);
    let expected = Expectation { vocab_size: model.config.vocab_size, version: Version(3), algorithm };
    check(&batch, &expected).err().map_or_else(String::new, |error| error.to_string())
}

fn refused(change: impl FnOnce(&mut TrainBatch), words: &[&str]) {
    let error = checked(Algorithm::Grpo, change);
    assert!(words.iter().all(|word| error.contains(word)), "{error:?} lacks one of {words:?}");
}

fn refused_trajectory(change: impl FnOnce(&mut TrainTrajectory), words: &[&str]) {
    let place = ["batch b3, group g7, trajectory t14: "];
    refused(|batch| change(&mut batch.groups[1].trajectories[0]), &[&place, words].concat());
}

#[test]
fn a_batch_as_it_should_be_is_taken() {
    assert_eq!(checked(Algorithm::Grpo, |_| {}), "");
}

/// agent-lightning#44: missing token ids trained on empty rows.
#[test]
fn missing_tokens_or_logprobs_are_refused_loudly() {
    refused_trajectory(|t| t.tokens.clear(), &["0 tokens but a mask of 7"]);
    refused_trajectory(|t| t.logprobs.clear(), &["7 tokens but 0 logprobs"]);
    refused_trajectory(|t| t.mask.fill(0), &["no drawn token"]);
    refused_trajectory(
        |t| {
            t.tokens.clear();
            t.mask.clear();
            t.logprobs.clear();
        },
        &["no drawn token"],
    );
}

#[test]
fn arrays_that_do_not_fit_each_other_are_refused() {
    refused_trajectory(|t| t.logprobs.rotate_right(1), &["logprob", "not drawn", "shifted"]);
    refused_trajectory(|t| t.logprobs[2] = f32::NAN, &["position 2", "NaN"]);
    refused_trajectory(|t| t.logprobs[2] = 0.5, &["position 2", "0.5"]);
    refused_trajectory(|t| t.mask[3] = 2, &["position 3", "mask 2"]);
    refused_trajectory(|t| t.mask[0] = 1, &["first token"]);
    refused_trajectory(|t| t.tokens[1] = 12, &["token 12", "vocabulary of 12"]);
}

#[test]
fn a_drawn_token_needs_to_say_by_which_weights() {
    refused_trajectory(|t| t.spans.truncate(1), &["position 5", "no span"]);
    refused_trajectory(|t| t.spans[0].start = 3, &["position 2", "no span"]);
    refused_trajectory(|t| t.spans[1].end = 8, &["span 5..8", "too long"]);
    refused_trajectory(|t| t.spans[1].start = 3, &["span 3..7", "out of order"]);
    refused_trajectory(|t| t.spans[1].version = Version(4), &["drawn by v4", "weights here are v3"]);
}

#[test]
fn a_reward_that_is_no_number_is_refused() {
    refused_trajectory(|t| t.reward = f32::INFINITY, &["reward inf"]);
}

#[test]
fn groups_are_complete_and_there_once() {
    refused(|batch| batch.groups.clear(), &["no groups"]);
    refused(|batch| drop(batch.groups[1].trajectories.pop()), &["group g7 has 1", "others have 2", "not complete"]);
    refused(|batch| batch.groups[1].group = batch.groups[0].group, &["group g6 is there twice"]);
    refused(|batch| batch.groups[1] = batch.groups[0].clone(), &["twice"]);
    refused(
        |batch| batch.groups[1].trajectories[0].trajectory = batch.groups[0].trajectories[0].trajectory,
        &["trajectory t12 is there twice"],
    );
    refused(|batch| batch.groups.iter_mut().for_each(|group| group.trajectories.truncate(1)), &["Grpo", "at least 2"]);
}

#[test]
fn only_reinforce_plus_plus_takes_single_trajectories() {
    let single = |batch: &mut TrainBatch| batch.groups.iter_mut().for_each(|group| group.trajectories.truncate(1));
    assert_eq!(checked(Algorithm::ReinforcePlusPlus, single), "");
    assert!(checked(Algorithm::Rloo, single).contains("at least 2"));
}

#[test]
fn greedy_tokens_cannot_be_trained() {
    refused(|batch| batch.temperature = 0.0, &["temperature 0"]);
}
