//! One behaviour each; most were bugs elsewhere.

use crate::fake::{Engine, options};
use venus_core::batch::{BatchOptions, Drawn, EndReason, Rejection};
use venus_core::ids::{AttemptId, TrajectoryId};
use venus_core::message::engine::Class::{Boundary, High, Low};
use venus_core::residency::FlushPolicy;
use venus_core::units::{Pages, Tokens};

fn tokens(from: u32, count: u32) -> Vec<u32> {
    (from..from + count).collect()
}

fn step(engine: &mut Engine) -> Vec<u64> {
    engine.step(|_, length| Drawn::Token(100 + length as u32)).iter().map(|work| work.attempt.0).collect()
}

#[test]
fn a_further_turn_computes_only_what_is_new() {
    let mut engine = Engine::new(options(64, 4));
    engine.submit(1, Low, &tokens(0, 10), 7);
    engine.run();
    assert_eq!(engine.computed, 16, "the last token drawn is not computed");
    let mut context = tokens(0, 10);
    context.extend(&engine.ended[&AttemptId(1)].tokens);
    context.extend(tokens(50, 4));
    engine.submit(2, Low, &context, 1);
    engine.run();
    assert_eq!(engine.ended[&AttemptId(2)].cached, Tokens(16));
    assert_eq!(engine.computed, 16 + 5);
}

#[test]
fn siblings_that_arrive_together_prefill_their_prompt_once() {
    let mut engine = Engine::new(BatchOptions { prefill_budget: Tokens(16), ..options(64, 4) });
    for attempt in 0..8 {
        engine.submit(attempt, Low, &tokens(0, 42), 1);
    }
    engine.run();
    assert_eq!(engine.computed, 42 + 7 * 2, "ten whole pages are shared, two tokens are each sibling's own");
}

#[test]
fn a_chunked_prefill_stays_within_its_budget() {
    let mut engine = Engine::new(BatchOptions { prefill_budget: Tokens(5), ..options(64, 4) });
    engine.submit(1, Low, &tokens(0, 12), 1);
    engine.submit(2, Low, &tokens(20, 12), 1);
    let chunks: Vec<_> = (0..5).map(|_| engine.step(|_, _| Drawn::Token(9))).collect();
    let sizes: Vec<usize> = chunks.iter().map(|work| work.iter().map(|w| w.end - w.start).sum()).collect();
    assert_eq!(sizes, [5, 5, 5, 5, 4]);
}

#[test]
fn classes_are_admitted_in_order() {
    let mut engine = Engine::new(BatchOptions { max_running: 1, ..options(64, 4) });
    engine.submit(1, Low, &tokens(0, 4), 2);
    engine.submit(2, High, &tokens(10, 4), 2);
    engine.submit(3, Boundary, &tokens(20, 4), 2);
    let order: Vec<_> = (0..6).flat_map(|_| step(&mut engine)).collect();
    assert_eq!(order, [3, 3, 2, 2, 1, 1]);
}

/// vllm#40004: slots that are all taken never yielded to a higher priority.
#[test]
fn a_higher_class_takes_a_slot_from_a_lower_one() {
    let mut engine = Engine::new(BatchOptions { max_running: 2, ..options(64, 4) });
    engine.submit(1, Low, &tokens(0, 4), 9);
    engine.submit(2, Low, &tokens(10, 4), 9);
    step(&mut engine);
    engine.submit(3, High, &tokens(20, 4), 2);
    assert_eq!(step(&mut engine), [3, 1], "the latest of the low class gave way");
    assert_eq!(engine.batch.counters().preemptions, 1);
    engine.run();
}

/// sglang#14872: when pages ran out, displacing was never tried.
#[test]
fn a_higher_class_takes_pages_from_a_lower_one() {
    let mut engine = Engine::new(options(10, 4));
    engine.submit(1, High, &tokens(0, 8), 9);
    engine.submit(2, Low, &tokens(30, 16), 9);
    step(&mut engine);
    engine.submit(3, Boundary, &tokens(60, 12), 2);
    assert_eq!(step(&mut engine), [3, 1], "the low turn gave way, the high one did not need to");
    assert_eq!(engine.batch.counters().preemptions, 1);
    engine.run();
}

/// A high turn must not wait for pages that a low one is slow to compute.
#[test]
fn nobody_waits_for_the_prefill_of_a_lower_class() {
    let mut engine = Engine::new(BatchOptions { prefill_budget: Tokens(4), ..options(64, 4) });
    engine.submit(1, Low, &tokens(0, 40), 1);
    step(&mut engine);
    engine.submit(2, High, &tokens(0, 40), 1);
    engine.submit(3, Low, &tokens(0, 40), 1);
    assert_eq!(step(&mut engine), [2]);
    engine.run();
}

/// vllm#54530: equals displaced each other in turns.
#[test]
fn an_equal_class_displaces_nobody() {
    let mut engine = Engine::new(BatchOptions { max_running: 1, ..options(64, 4) });
    engine.submit(1, High, &tokens(0, 4), 9);
    step(&mut engine);
    engine.submit(2, High, &tokens(10, 4), 9);
    engine.batch.set_class(TrajectoryId(2), High);
    assert_eq!(step(&mut engine), [1]);
    engine.run();
    assert_eq!(engine.batch.counters().preemptions, 0);
}

/// vllm#39375: victims were chosen and the newcomer still did not fit.
#[test]
fn nobody_is_displaced_for_a_turn_that_would_not_fit_anyway() {
    let mut engine = Engine::new(options(10, 4));
    engine.submit(1, High, &tokens(0, 20), 9);
    engine.submit(2, Low, &tokens(30, 4), 9);
    step(&mut engine);
    engine.submit(3, High, &tokens(40, 20), 9);
    assert_eq!(step(&mut engine), [1, 2], "the low turn's pages would not have been enough");
    assert_eq!(engine.batch.counters().preemptions, 0);
    engine.run();
}

/// ThunderAgent#46: short prompts passed long ones until those had waited 400 s.
#[test]
fn a_short_turn_does_not_overtake_a_long_one() {
    let mut engine = Engine::new(options(10, 4));
    engine.submit(1, Low, &tokens(0, 20), 4);
    step(&mut engine);
    engine.submit(2, Low, &tokens(30, 24), 4);
    engine.submit(3, Low, &tokens(60, 1), 4);
    assert_eq!(step(&mut engine), [1]);
    engine.run();
}

/// vllm#41951: a retracted turn went behind newcomers. Also vllm#23713: a victim must not stay in the work.
#[test]
fn a_retracted_turn_keeps_its_place_and_goes_low_class_first() {
    let mut engine = Engine::new(options(8, 4));
    engine.submit(1, Low, &tokens(0, 8), 20);
    engine.submit(2, High, &tokens(20, 8), 20);
    let mut ran = step(&mut engine);
    while ran.len() == 2 {
        ran = step(&mut engine);
    }
    assert_eq!(ran, [2], "the low turn was retracted");
    engine.submit(3, Low, &tokens(40, 8), 1);
    while engine.reason(2).is_none() {
        step(&mut engine);
    }
    assert_eq!(step(&mut engine)[0], 1);
    engine.run();
}

/// vllm#25780: what is computed again was counted as a hit.
#[test]
fn tokens_computed_again_are_no_hits() {
    let mut engine = Engine::new(options(8, 4));
    engine.submit(1, High, &tokens(0, 8), 20);
    engine.submit(2, Low, &tokens(20, 8), 20);
    engine.run();
    let (ended, counters) = (&engine.ended[&AttemptId(2)], engine.batch.counters());
    assert_eq!((ended.cached, counters.cached), (Tokens(0), Tokens(0)));
    assert!(ended.recomputed > Tokens(0) && counters.recomputed >= ended.recomputed);
    assert!(counters.retractions > 0);
    assert_eq!(engine.computed as u64, 2 * 27 + counters.recomputed.0);
}

#[test]
fn what_can_never_fit_is_rejected() {
    let mut engine = Engine::new(BatchOptions { max_context: Tokens(100), ..options(8, 4) });
    engine.submit(1, Low, &tokens(0, 32), 1);
    engine.submit(2, Low, &tokens(0, 100), 1);
    engine.submit(3, Low, &[], 1);
    engine.submit(4, Low, &[1], 0);
    engine.submit(5, Low, &tokens(0, 30), 50);
    engine.run();
    let rejected = |attempt| match engine.reason(attempt) {
        Some(EndReason::Rejected(rejection)) => rejection.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(rejected(1), Rejection::TooLarge { context: 32, capacity: 32 });
    assert_eq!(rejected(2), Rejection::TooLong { context: 100, limit: 100 });
    assert_eq!(rejected(3), Rejection::EmptyContext);
    assert_eq!(rejected(4), Rejection::NoTokens);
    assert_eq!(engine.reason(5), Some(&EndReason::Length), "output is cut to what fits");
    assert_eq!(engine.ended[&AttemptId(5)].tokens.len(), 2);
}

/// lmdeploy#4917, prime-rl#1651: the prefix cache survived a weight update.
#[test]
fn a_prefix_is_not_found_under_other_weights() {
    for flush in [FlushPolicy::Keep, FlushPolicy::Flush] {
        let mut engine = Engine::new(BatchOptions { flush, ..options(64, 4) });
        let cached = |engine: &mut Engine, attempt| {
            engine.submit(attempt, Low, &tokens(0, 9), 1);
            engine.run();
            engine.ended[&AttemptId(attempt)].cached.0
        };
        assert_eq!((cached(&mut engine, 1), cached(&mut engine, 2)), (0, 8));
        engine.activate(1);
        assert_eq!((cached(&mut engine, 3), cached(&mut engine, 4)), (0, 8));
        let kept = if flush == FlushPolicy::Keep { 4 } else { 2 };
        assert_eq!(engine.batch.residency().cached(), Pages(kept));
        engine.activate(0);
        assert_eq!(cached(&mut engine, 5), if flush == FlushPolicy::Keep { 8 } else { 0 });
    }
}

#[test]
fn pages_of_older_weights_go_first() {
    let mut engine = Engine::new(options(8, 4));
    engine.submit(1, Low, &tokens(0, 9), 1);
    engine.run();
    engine.activate(1);
    engine.submit(2, Low, &tokens(20, 9), 1);
    engine.run();
    // Version 0 was used again last, and still goes first.
    engine.activate(0);
    engine.submit(3, Low, &tokens(0, 9), 1);
    engine.run();
    engine.activate(1);
    engine.submit(4, Low, &tokens(40, 20), 1);
    engine.run();
    engine.submit(5, Low, &tokens(20, 9), 1);
    engine.run();
    assert_eq!(engine.ended[&AttemptId(5)].cached, Tokens(8));
}

#[test]
fn what_was_computed_under_mixed_weights_is_not_shared() {
    let mut engine = Engine::new(options(64, 4));
    engine.submit(1, Low, &tokens(0, 8), 9);
    step(&mut engine);
    engine.activate(1);
    engine.run();
    let mut context = tokens(0, 8);
    context.extend(&engine.ended[&AttemptId(1)].tokens);
    engine.submit(2, Low, &context, 1);
    engine.run();
    assert_eq!(engine.ended[&AttemptId(2)].cached, Tokens(0));
    engine.activate(0);
    engine.submit(3, Low, &context, 1);
    engine.run();
    assert_eq!(engine.ended[&AttemptId(3)].cached, Tokens(8), "what was made before the change is still of version 0");
}

/// sglang#29173, vllm#46283, vllm#44100: an abort in some state leaked pages.
#[test]
fn an_abort_in_any_state_gives_everything_back() {
    let opts = || BatchOptions { prefill_budget: Tokens(5), ..options(12, 4) };
    for steps in 0..24 {
        let mut engine = Engine::new(opts());
        for attempt in 0..4 {
            engine.submit(attempt, Low, &tokens(attempt as u32 / 2 * 30, 13), 12);
        }
        for _ in 0..steps {
            step(&mut engine);
        }
        for attempt in 0..4 {
            engine.batch.abort(AttemptId(attempt));
            engine.batch.abort(AttemptId(attempt));
        }
        let mut ended = Vec::new();
        engine.batch.drain(&mut ended);
        engine.batch.check().unwrap();
        assert!(engine.batch.is_idle());
        assert_eq!(engine.batch.residency().locked(), Pages(0));
        assert_eq!(ended.len() + engine.ended.len(), 4, "each is answered once");
    }
}

#[test]
fn an_abort_before_the_turn_was_seen_still_ends_it() {
    let mut engine = Engine::new(options(8, 4));
    engine.submit(1, Low, &tokens(0, 4), 4);
    engine.batch.abort(AttemptId(1));
    engine.run();
    assert_eq!(engine.reason(1), Some(&EndReason::Aborted));
}
