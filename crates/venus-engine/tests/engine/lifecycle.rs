//! How turns end.

use crate::fixture::*;
use venus_core::ids::{AttemptId, TrajectoryId};
use venus_core::message::engine::{Class, FinishReason};
use venus_core::units::{Pages, Tokens};
use venus_engine::{Engine, EngineError, EngineOptions, KvSize};

fn reason(finish: &FinishReason) -> &str {
    match finish {
        FinishReason::Rejected { reason } => reason,
        other => panic!("not rejected: {other:?}"),
    }
}

#[test]
fn a_stop_token_ends_the_turn_and_is_part_of_it() {
    let free = run_one(&mut engine(options(50, 4)), request(1, &tokens(1, 9), 30, 1.0));
    let stop = free.tokens[11];
    let first = free.tokens.iter().position(|&token| token == stop).unwrap();
    let mut stopping = request(1, &tokens(1, 9), 30, 1.0);
    stopping.sampling.stop = vec![stop];
    let result = run_one(&mut engine(options(50, 4)), stopping);
    assert_eq!(result.finish, FinishReason::Stop { token: stop });
    assert_eq!(result.tokens, free.tokens[..=first]);
    assert_eq!(result.logprobs, free.logprobs[..=first]);
}

#[test]
fn an_output_is_cut_to_what_model_and_pages_can_hold() {
    let by_positions = run_one(&mut engine(options(100, 4)), request(1, &tokens(1, 190), 50, 1.0));
    let by_pages = run_one(&mut engine(options(6, 4)), request(1, &tokens(1, 20), 50, 1.0));
    let by_option = EngineOptions { max_context: Some(Tokens(30)), ..options(100, 4) };
    let by_option = run_one(&mut engine(by_option), request(1, &tokens(1, 20), 50, 1.0));
    for (result, length) in [(by_positions, 10), (by_pages, 4), (by_option, 10)] {
        assert_eq!((result.finish, result.tokens.len()), (FinishReason::Length, length));
    }
}

#[test]
fn what_can_never_be_served_is_rejected_with_what_to_do() {
    let mut engine = engine(options(6, 4));
    engine.submit(request(1, &tokens(1, 24), 1, 1.0));
    engine.submit(request(2, &tokens(1, 200), 1, 1.0));
    engine.submit(request(3, &[1, VOCAB as u32], 1, 1.0));
    engine.submit(request(4, &[1], 1, -1.0));
    engine.submit(request(5, &[], 1, 1.0));
    engine.submit(request(6, &tokens(1, 8), 4, 1.0));
    let results = run(&mut engine);
    let reason = |attempt: u64| reason(&results[&attempt].finish);
    assert!(reason(1).contains("all KV pages together hold 24"), "{}", reason(1));
    assert!(reason(2).contains("the limit is 200 tokens"), "{}", reason(2));
    assert!(reason(3).contains("token 40 at position 1"), "{}", reason(3));
    assert!(reason(4).contains("temperature is -1"), "{}", reason(4));
    assert!(reason(5).contains("empty"), "{}", reason(5));
    assert_eq!(results[&6].finish, FinishReason::Length, "the others are served");
}

#[test]
fn an_engine_that_cannot_run_is_not_made() {
    let make = |options| Engine::new(options, model(1)).err().expect("refused");
    let bytes = EngineOptions { kv: KvSize::Bytes(venus_core::units::Bytes(10)), ..EngineOptions::default() };
    assert!(matches!(make(bytes), EngineError::KvTooSmall { given: 10, page_size: 16, .. }));
    assert!(matches!(make(options(0, 4)), EngineError::Zero("kv pages")));
    assert!(matches!(make(options(4, 0)), EngineError::Zero("page_size")));
}

/// sglang#21652, vllm#46283, vllm#44100: an abort in some state leaked KV, slots or locks.
#[test]
fn an_abort_in_any_state_is_answered_once_and_gives_everything_back() {
    for steps in 0..20 {
        let mut engine = engine(EngineOptions { max_running: 3, ..budget(6, options(16, 4)) });
        (0..5).for_each(|i| engine.submit(request(i, &tokens(i / 2, 15), 12, 1.0)));
        let mut answered: Vec<_> = (0..steps).flat_map(|_| turns(engine.step())).collect();
        (0..5).for_each(|i| engine.abort(AttemptId(i)));
        engine.pause();
        answered.extend(turns(engine.step()));
        assert!(!engine.has_work());
        assert_eq!(answered.len(), 5);
        for turn in &answered {
            let (whole, _) = recompute(&model(1), &request(turn.attempt.0, &tokens(turn.attempt.0 / 2, 15), 12, 1.0));
            assert_eq!(turn.tokens, whole[..turn.tokens.len()], "the tokens so far are returned");
            assert_eq!(turn.tokens.len(), turn.logprobs.len());
        }
        engine.batch().check().expect("the invariants hold");
        assert_eq!(engine.batch().residency().locked(), Pages(0));
    }
}

#[test]
fn late_and_unknown_commands_change_nothing() {
    let mut engine = engine(options(50, 4));
    engine.abort(AttemptId(3));
    engine.set_class(TrajectoryId(3), Class::High);
    engine.release(TrajectoryId(3));
    assert!(run(&mut engine).is_empty());
    engine.submit(request(1, &tokens(1, 5), 3, 1.0));
    engine.submit(request(1, &tokens(2, 5), 3, 1.0));
    let results = run(&mut engine);
    assert_eq!(results[&1].tokens, recompute(&model(1), &request(1, &tokens(1, 5), 3, 1.0)).0);
}

#[test]
fn a_pause_keeps_what_is_in_flight() {
    let mut engine = engine(options(50, 4));
    engine.submit(request(1, &tokens(1, 9), 10, 1.0));
    (0..4).for_each(|_| drop(engine.step()));
    engine.pause();
    let iterations = engine.stats().iterations;
    assert!(!engine.has_work());
    engine.step();
    assert_eq!(engine.stats().iterations, iterations);
    engine.resume();
    assert_eq!(run(&mut engine)[&1].tokens, recompute(&model(1), &request(1, &tokens(1, 9), 10, 1.0)).0);
}

#[test]
fn counters_tell_cached_from_computed() {
    let mut engine = engine(options(100, 4));
    run_one(&mut engine, request(1, &tokens(1, 20), 5, 1.0));
    run_one(&mut engine, request(2, &tokens(1, 20), 5, 1.0));
    let stats = engine.stats();
    assert_eq!((stats.context_tokens, stats.cached_tokens), (Tokens(40), Tokens(16)));
    assert_eq!((stats.generated_tokens, stats.recomputed_tokens), (Tokens(10), Tokens(0)));
    assert_eq!((stats.running, stats.waiting), (0, 0));
    assert_eq!(stats.pages_free + stats.pages_cached, stats.pages);
    assert!(stats.busy_nanos > 0 && stats.iterations == 10);
}
