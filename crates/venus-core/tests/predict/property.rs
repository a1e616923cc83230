//! Whatever a trajectory does, and in whatever order versions are reported: predictions stay numbers.

use proptest::prelude::*;
use venus_core::ids::{PromptId, TrajectoryId, Version};
use venus_core::predict::{Constant, Learned, LearnedConfig, Predictor, ToolKind, Trail, Turn};
use venus_core::units::Tokens;

/// More than any trajectory generates.
const MOST: u64 = 600_000_000;

fn count() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), 0..2000_u64, 0..(1_u64 << 40)]
}

fn seconds() -> impl Strategy<Value = f64> {
    prop_oneof![4 => 0.0..100.0, 1 => Just(f64::NAN), 1 => Just(f64::INFINITY), 1 => Just(-1.0)]
}

fn turn() -> impl Strategy<Value = Turn> {
    (count(), 0..6_usize, count(), seconds(), any::<bool>()).prop_map(|(generated, kind, output, seconds, failed)| {
        Turn { generated: Tokens(generated), tool: ToolKind::ALL[kind], output: Tokens(output), seconds, failed }
    })
}

/// Prompt, its length, the version at its end, and its turns.
fn trajectory() -> impl Strategy<Value = (u64, u64, u64, Vec<Turn>)> {
    (0..4_u64, count(), 0..500_u64, prop::collection::vec(turn(), 0..12))
}

fn run(predictor: &mut dyn Predictor, history: &[(u64, u64, u64, Vec<Turn>)]) -> Vec<(u64, u64)> {
    let mut said = Vec::new();
    for (id, (prompt, length, version, turns)) in history.iter().enumerate() {
        let mut trail = Trail::new(TrajectoryId(id as u64), PromptId(*prompt), Tokens(*length));
        for turn in turns {
            let prediction = predictor.predict(&mut trail, Version(*version)).expect("it always has something to say");
            said.push((prediction.remaining.0, prediction.spread.0));
            trail.turn(*turn);
        }
        predictor.remember(&trail, Version(*version));
        predictor.learn(&trail, Version(*version));
        predictor.check().expect("the invariants hold");
    }
    said
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn predictions_are_positive_bounded_and_a_function_of_what_was_seen(
        history in prop::collection::vec(trajectory(), 1..24),
        warm_after in 0..6_u32,
        half_life in 0.1..100.0_f64,
        ridge in 1e-6..1e3_f64,
    ) {
        let config = LearnedConfig { warm_after, half_life, ridge, ..LearnedConfig::default() };
        let said = run(&mut Learned::new(config.clone()), &history);
        prop_assert!(said.iter().all(|(remaining, spread)| (1..MOST).contains(remaining) && *spread < MOST), "{:?}", said);
        prop_assert_eq!(said, run(&mut Learned::new(config), &history));
        let said = run(&mut Constant::new(Tokens(1024)), &history);
        prop_assert!(said.iter().all(|(remaining, spread)| (1..MOST).contains(remaining) && *spread < MOST), "{:?}", said);
    }
}
