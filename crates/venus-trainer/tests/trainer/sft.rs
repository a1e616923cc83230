//! Supervised training.

use crate::support::tiny_model;
use std::ops::ControlFlow;
use venus_trainer::{Demonstration, Sft, SftOptions, TrainerError};

/// "Say again": a token, a mark, the token. Only the answer is learnt.
fn demonstrations() -> Vec<Demonstration> {
    let echo = |token: u32| Demonstration { tokens: vec![token, 11, token, 10], mask: vec![0, 0, 1, 1] };
    (0..40).map(|index| echo(index % 8)).collect()
}

fn options() -> SftOptions {
    let mut options = SftOptions { epochs: 30, batch_tokens: 32, threads: 2, ..Default::default() };
    options.optimizer.learning_rate = 0.02;
    options
}

#[test]
fn demonstrations_are_learnt() {
    let mut sft = Sft::new(options(), tiny_model()).unwrap();
    let before = sft.evaluate(&demonstrations()).unwrap();
    let mut reports = Vec::new();
    sft.train(&demonstrations(), &mut |report| {
        reports.push(*report);
        ControlFlow::Continue(())
    })
    .unwrap();
    let after = sft.evaluate(&demonstrations()).unwrap();
    assert!(before.exact < 0.2 && after.exact > 0.95 && after.accuracy > 0.95, "{before:?} {after:?}");
    let (first, last) = (reports[0], reports[reports.len() - 1]);
    assert!(last.loss < 0.2 * first.loss, "{first:?} {last:?}");
    assert_eq!(last.update, last.updates);
    assert!(last.learning_rate < 0.15 * 0.02, "{last:?}");
}

#[test]
fn the_same_seed_gives_the_same_model_and_a_break_ends_training() {
    let run = |seed: u64, updates: u64| {
        let mut sft = Sft::new(SftOptions { seed, ..options() }, tiny_model()).unwrap();
        let mut stop = |report: &venus_trainer::SftProgress| match report.update < updates {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        };
        sft.train(&demonstrations(), &mut stop).unwrap();
        sft.into_model()
    };
    assert_eq!(run(1, 5), run(1, 5));
    assert_ne!(run(1, 5), run(2, 5));
    assert_ne!(run(1, 5), run(1, 6));
}

#[test]
fn a_demonstration_without_anything_to_learn_is_refused() {
    let mut sft = Sft::new(options(), tiny_model()).unwrap();
    let mut wrong = demonstrations();
    wrong[3].mask.fill(0);
    let error = sft.train(&wrong, &mut |_| ControlFlow::Continue(())).unwrap_err();
    assert!(matches!(&error, TrainerError::Data { place, .. } if place == "demonstration 3"), "{error}");
}
