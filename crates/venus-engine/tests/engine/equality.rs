//! Promise 8: what is recorded is what the plain model gives, whatever the engine did to be fast.

use crate::fixture::*;
use venus_core::message::engine::{Class, TurnRequest};
use venus_core::units::Tokens;
use venus_engine::EngineOptions;

/// Two groups of siblings and some loners, greedy and sampled, with and without filters.
fn mixed_requests() -> Vec<TurnRequest> {
    (0..14)
        .map(|i| {
            let context = match i {
                0..5 => tokens(1, 21),
                5..9 => [tokens(1, 12), tokens(2, 9)].concat(),
                _ => tokens(i, 3 + 5 * (i as usize - 9)),
            };
            let mut request = request(i, &context, 6 + i as u32 % 7, [0.0, 1.0, 0.7][i as usize % 3]);
            request.class = [Class::Low, Class::High][i as usize % 2];
            request.sampling.top_k = if i % 4 == 1 { 9 } else { 0 };
            request.sampling.top_p = if i % 5 == 2 { 0.8 } else { 1.0 };
            request
        })
        .collect()
}

fn assert_recomputed(options: EngineOptions) -> venus_core::message::engine::EngineStats {
    let mut engine = engine(options);
    let requests = mixed_requests();
    let mut results = std::collections::BTreeMap::new();
    for chunk in requests.chunks(4) {
        chunk.iter().for_each(|request| engine.submit(request.clone()));
        // The next ones arrive in the middle.
        results.extend((0..3).flat_map(|_| turns(engine.step())).map(|turn| (turn.attempt.0, turn)));
    }
    results.extend(run(&mut engine));
    for request in &requests {
        let result = &results[&request.attempt.0];
        let (tokens, logprobs) = recompute(&model(1), request);
        assert_eq!(result.tokens, tokens, "{}", request.attempt);
        assert_close(&result.logprobs, &logprobs, 1e-5);
        assert_eq!(result.spans, [span(0, 0, tokens.len() as u32)]);
    }
    engine.stats()
}

#[test]
fn with_room_for_all_every_turn_is_as_recomputed() {
    let stats = assert_recomputed(options(200, 4));
    assert!(stats.cached_tokens > Tokens(0));
    assert_eq!((stats.retractions, stats.recomputed_tokens), (0, Tokens(0)));
}

#[test]
fn in_small_chunks_every_turn_is_as_recomputed() {
    assert_recomputed(budget(3, options(200, 4)));
    assert_recomputed(budget(7, options(60, 16)));
}

#[test]
fn short_of_pages_and_slots_every_turn_is_as_recomputed() {
    let stats = assert_recomputed(options(14, 4));
    assert!(stats.retractions > 0 && stats.recomputed_tokens > Tokens(0), "{stats:?}");
    assert_recomputed(EngineOptions { max_running: 2, ..options(40, 2) });
    assert_recomputed(EngineOptions { threads: 2, ..options(30, 3) });
}

#[test]
fn further_turns_reuse_what_was_generated_and_are_as_recomputed() {
    let mut engine = engine(options(100, 4));
    let mut context = tokens(3, 10);
    for turn in 0..5 {
        let request = request(turn, &context, 9, 1.0);
        let result = run_one(&mut engine, request.clone());
        let (tokens_expected, logprobs) = recompute(&model(1), &request);
        assert_eq!(result.tokens, tokens_expected);
        assert_close(&result.logprobs, &logprobs, 1e-5);
        // Of all turns before, only the last token drawn and what no page is full of is computed again.
        let before = if turn == 0 { 0 } else { (context.len() - 3 - 1) / 4 * 4 };
        assert_eq!(result.cached_tokens, Tokens(before as u64));
        context.extend(&result.tokens);
        context.extend(tokens(turn + 50, 3));
    }
}

#[test]
fn the_trainer_finds_the_same_logprobs() {
    let mut engine = engine(budget(5, options(100, 4)));
    let requests: Vec<_> =
        (0..6).map(|i| request(i, &tokens(i / 2, 17), 20, [1.0, 0.0, 0.8][i as usize % 3])).collect();
    requests.iter().for_each(|request| engine.submit(request.clone()));
    let results = run(&mut engine);
    for request in &requests {
        let result = &results[&request.attempt.0];
        assert_close(&result.logprobs, &trainer_logprobs(&model(1), request, result), 1e-4);
    }
}

#[test]
fn a_turn_draws_the_same_alone_and_in_any_company() {
    let wanted = request(7, &tokens(9, 19), 25, 1.0);
    let alone = run_one(&mut engine(options(100, 16)), wanted.clone());
    for company in [1, 5, 12] {
        let mut engine = engine(budget(8, options(60, 4)));
        (100..100 + company).for_each(|i| engine.submit(request(i, &tokens(i, i as usize % 23 + 1), 30, 1.0)));
        engine.step();
        engine.submit(wanted.clone());
        let mut result = run(&mut engine).remove(&7).expect("the turn is answered");
        (result.cached_tokens, result.recomputed_tokens) = (alone.cached_tokens, alone.recomputed_tokens);
        assert_eq!(result, alone, "to the last bit");
    }
}

#[test]
fn seeds_tell_siblings_apart() {
    let mut engine = engine(options(100, 4));
    (0..6).for_each(|i| engine.submit(request(i, &tokens(1, 20), 12, 1.0)));
    let results = run(&mut engine);
    let distinct: std::collections::BTreeSet<_> = results.values().map(|result| &result.tokens).collect();
    assert_eq!(distinct.len(), 6);
}
