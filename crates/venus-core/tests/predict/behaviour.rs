//! What each predictor does.

use crate::world::{Recorded, error, replay, teach, workload};
use venus_core::ids::{PromptId, TrajectoryId, Version};
use venus_core::predict::{
    Answer, Constant, Learned, LearnedConfig, Noisy, NoisyConfig, Oracle, Outside, Prediction, Predictor, Random,
    Silent, Trail, Turn,
};
use venus_core::units::Tokens;

const V0: Version = Version(0);

fn learned() -> Learned {
    Learned::new(LearnedConfig::default())
}

fn begun(prompt: u64, length: u64) -> Trail {
    Trail::new(TrajectoryId(0), PromptId(prompt), Tokens(length))
}

/// What is said of a prompt before its first turn.
fn at_start(predictor: &dyn Predictor, prompt: u64, version: Version) -> u64 {
    predictor.predict(&mut begun(prompt, 500), version).unwrap().remaining.0
}

fn turned(trail: &mut Trail, generated: u64) {
    trail.turn(Turn { generated: Tokens(generated), ..Turn::default() });
}

#[test]
fn the_oracle_is_exact_and_silent_where_the_end_is_not_known() {
    for (id, recorded) in workload(1, 20, 2, 1.0).iter().enumerate() {
        replay(&Oracle, id as u64, recorded, V0, |said, left| {
            assert_eq!(said, Some(Prediction { remaining: Tokens(left), spread: Tokens(0) }));
        });
    }
    assert_eq!(Oracle.predict(&mut begun(0, 9), V0), None);
    assert_eq!(Silent.predict(&mut begun(0, 9).with_total(Tokens(5)), V0), None);
}

#[test]
fn the_noisy_oracle_errs_as_much_as_it_was_told_and_mostly_by_a_bias() {
    let noisy = Noisy::new(NoisyConfig { seed: 3, bias: 0.8, noise: 0.4 });
    let (mut of_one, mut all) = (Vec::new(), Vec::new());
    for id in 0..400 {
        let recorded = Recorded {
            prompt: PromptId(0),
            length: Tokens(9),
            turns: vec![Turn { generated: Tokens(1 << 20), ..Turn::default() }; 40],
        };
        let mut errors = Vec::new();
        replay(&noisy, id, &recorded, V0, |said, left| {
            errors.push((said.unwrap().remaining.0 as f64 / left as f64).ln())
        });
        of_one.push(errors.iter().sum::<f64>() / errors.len() as f64);
        all.extend(errors);
    }
    let deviation = |errors: &[f64]| (errors.iter().map(|e| e * e).sum::<f64>() / errors.len() as f64).sqrt();
    assert!((deviation(&all) - 0.8_f64.hypot(0.4)).abs() < 0.05, "{}", deviation(&all));
    assert!((deviation(&of_one) - 0.8).abs() < 0.07, "{}", deviation(&of_one));
}

#[test]
fn the_random_one_depends_on_its_seed_alone() {
    let said = |seed| {
        let mut all = Vec::new();
        replay(&Random::new(seed), 7, &workload(1, 1, 1, 1.0)[0], V0, |said, _| all.push(said));
        all
    };
    assert_eq!(said(1), said(1));
    assert_ne!(said(1), said(2));
}

#[test]
fn cold_it_says_the_prior_then_the_median_then_the_model_speaks() {
    let mut predictor = Learned::new(LearnedConfig { prior: Tokens(777), warm_after: 3, ..LearnedConfig::default() });
    assert_eq!(at_start(&predictor, 0, V0), 777);
    for (id, total) in [(0, 100), (1, 200), (2, 50_000)] {
        let mut trail = Trail::new(TrajectoryId(id), PromptId(id), Tokens(500));
        predictor.predict(&mut trail, V0);
        turned(&mut trail, total);
        predictor.remember(&trail, V0);
        predictor.learn(&trail, V0);
        if id == 1 {
            let median = at_start(&predictor, 9, V0);
            assert!((95..=215).contains(&median), "{median}");
        }
    }
    let warm = at_start(&predictor, 9, V0);
    assert!(warm > 215, "the long one counts in the model's mean: {warm}");
}

#[test]
fn learned_beats_constant_on_prompts_never_seen_and_by_more_on_those_seen_before() {
    let (mut learned, mut constant) = (learned(), Constant::new(Tokens(1024)));
    let (seen, unseen): (Vec<Recorded>, Vec<Recorded>) =
        workload(1, 80, 4, 1.0).into_iter().partition(|recorded| recorded.prompt.0 < 60);
    teach(&mut learned, &seen, V0);
    teach(&mut constant, &seen, V0);
    let again: Vec<Recorded> = workload(2, 60, 1, 1.0);
    let (cold, known) = (error(&learned, &unseen, V0), error(&learned, &again, V0));
    let (blind, blind_again) = (error(&constant, &unseen, V0), error(&constant, &again, V0));
    assert!(cold < 0.94 * blind, "{cold} against {blind}");
    assert!(known < 0.7 * blind_again, "{known} against {blind_again}");
}

#[test]
fn a_prompt_that_took_long_before_is_expected_to_again_until_the_policy_has_moved() {
    let mut predictor = learned();
    teach(&mut predictor, &workload(1, 60, 4, 1.0), V0);
    for (prompt, turns) in [(1000, 3), (1001, 10), (1002, 60)] {
        let mut trail = begun(prompt, 500);
        (0..turns).for_each(|_| turned(&mut trail, 100));
        predictor.remember(&trail, V0);
    }
    let said = |version| [1000, 1001, 1002].map(|prompt| at_start(&predictor, prompt, version));
    let [short, middle, long] = said(V0);
    assert!(short < middle && middle < long && long > 3 * short, "{:?}", said(V0));
    let [short, _, long] = said(Version(10_000));
    assert!(long as f64 <= 1.02 * short as f64, "faded history still tells {long} from {short}");
}

#[test]
fn when_the_policy_s_lengths_change_what_was_learned_before_fades() {
    let mut predictor = learned();
    teach(&mut predictor, &workload(1, 60, 2, 1.0), V0);
    let longer = workload(2, 60, 1, 8.0);
    let before = error(&predictor, &longer, V0);
    // Many half-lives later: what was learned at first weighs nothing beside these.
    teach(&mut predictor, &workload(3, 60, 1, 8.0), Version(640));
    let after = error(&predictor, &longer, Version(640));
    assert!(after < 0.55 * before, "{after} after {before}");
}

#[test]
fn about_two_thirds_of_outcomes_lie_within_the_spread() {
    let mut predictor = learned();
    teach(&mut predictor, &workload(1, 200, 2, 1.0), V0);
    let (mut inside, mut all) = (0.0, 0.0);
    for (id, recorded) in workload(2, 60, 2, 1.0).iter().enumerate() {
        replay(&predictor, id as u64, recorded, V0, |said, left| {
            let said = said.unwrap();
            inside += f64::from(u8::from(said.remaining.0.abs_diff(left) <= said.spread.0));
            all += 1.0;
        });
    }
    assert!((0.55..0.85).contains(&(inside / all)), "{}", inside / all);
}

#[test]
fn an_outside_answer_is_used_less_what_was_generated_since_and_never_waited_for() {
    let outside = Outside::new(2, Box::new(Constant::new(Tokens(1024))));
    let said = |trail: &mut Trail| outside.predict(trail, V0).unwrap().remaining.0;
    let answer = |turns, generated, remaining| Answer {
        turns,
        generated: Tokens(generated),
        prediction: Prediction { remaining: Tokens(remaining), spread: Tokens(10) },
    };
    let mut trail = begun(0, 9);
    assert_eq!(said(&mut trail), 1024, "no answer yet");
    turned(&mut trail, 100);
    trail.hear(answer(0, 0, 5000));
    assert_eq!(said(&mut trail), 4900, "asked at the start, came during the first turn");
    turned(&mut trail, 100);
    trail.hear(answer(1, 100, 300));
    trail.hear(answer(0, 0, 9000));
    assert_eq!(said(&mut trail), 200, "an answer to an older question that comes later is dropped");
    turned(&mut trail, 250);
    assert_eq!(said(&mut trail), 1024, "refuted by what was generated");
    trail.hear(answer(3, 450, 700));
    assert_eq!(said(&mut trail), 700);
    (0..3).for_each(|_| turned(&mut trail, 1));
    assert_eq!(said(&mut trail), 1024, "too old");
}

#[test]
fn what_stands_behind_an_outside_predictor_goes_on_learning() {
    let mut outside = Outside::new(2, Box::new(learned()));
    let mut alone = learned();
    teach(&mut outside, &workload(1, 30, 2, 1.0), V0);
    teach(&mut alone, &workload(1, 30, 2, 1.0), V0);
    assert_eq!(at_start(&outside, 3, V0), at_start(&alone, 3, V0));
}
