//! A model small enough to recompute everything, and that recompute.

use std::collections::BTreeMap;
use std::sync::Arc;
use venus_core::ids::{AttemptId, GroupId, TokenId, TrajectoryId, Version};
use venus_core::message::engine::{Class, EngineEvent, Sampling, TurnRequest, TurnResult, VersionSpan};
use venus_core::units::{Pages, Tokens};
use venus_engine::{Engine, EngineOptions, KvSize, Sampler};
use venus_lm::{Config, Inference, Kv, LogitRows, Model, Segment, TrainWorkspace};

pub const VOCAB: usize = 40;

pub fn model(seed: u64) -> Model {
    let config = Config {
        hidden_size: 32,
        intermediate_size: 48,
        num_hidden_layers: 2,
        num_attention_heads: 4,
        num_key_value_heads: 2,
        head_dim: 8,
        max_position_embeddings: 200,
        ..Config::tiny(VOCAB)
    };
    let mut model = Model::random(config, seed);
    // Sharper than at random, so that draws differ in probability.
    model.params_mut().iter_mut().for_each(|param| *param *= 2.0);
    model
}

pub fn options(pages: u32, page_size: u32) -> EngineOptions {
    EngineOptions { kv: KvSize::Pages(Pages(pages)), page_size, ..EngineOptions::default() }
}

pub fn engine(options: EngineOptions) -> Engine {
    Engine::new(options, model(1)).expect("the options fit the model")
}

pub fn request(attempt: u64, context: &[TokenId], max_tokens: u32, temperature: f32) -> TurnRequest {
    let sampling = Sampling { max_tokens, temperature, top_p: 1.0, top_k: 0, seed: attempt * 31, stop: Vec::new() };
    TurnRequest {
        attempt: AttemptId(attempt),
        trajectory: TrajectoryId(attempt),
        group: GroupId(0),
        class: Class::Low,
        context: context.to_vec(),
        sampling,
    }
}

/// `count` tokens that look arbitrary and depend on `seed`.
pub fn tokens(seed: u64, count: usize) -> Vec<TokenId> {
    let mix = |i: u64| (seed * 977 + i + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33;
    (0..count as u64).map(|i| (mix(i) % VOCAB as u64) as TokenId).collect()
}

pub fn turns(events: Vec<EngineEvent>) -> impl Iterator<Item = TurnResult> {
    events.into_iter().filter_map(|event| match event {
        EngineEvent::Turn(turn) => Some(turn),
        _ => None,
    })
}

/// Steps until nothing is left; the answers by attempt. Checks the invariants on the way.
pub fn run(engine: &mut Engine) -> BTreeMap<u64, TurnResult> {
    let mut results = BTreeMap::new();
    for _ in 0..5000 {
        if !engine.has_work() {
            assert_eq!(engine.batch().residency().locked(), Pages(0), "every page came back");
            return results;
        }
        for turn in turns(engine.step()) {
            assert!(results.insert(turn.attempt.0, turn).is_none(), "a turn is answered once");
        }
        engine.batch().check().expect("the invariants hold");
    }
    panic!("not idle after 5000 iterations");
}

pub fn run_one(engine: &mut Engine, request: TurnRequest) -> TurnResult {
    let attempt = request.attempt.0;
    engine.submit(request);
    run(engine).remove(&attempt).expect("the turn is answered")
}

/// What `request` must draw: after each token, everything is computed again from the start.
pub fn recompute(model: &Model, request: &TurnRequest) -> (Vec<TokenId>, Vec<f32>) {
    let mut inference = Inference::new(Arc::new(model.clone()), 1);
    let (mut tokens, mut logprobs) = (request.context.clone(), Vec::new());
    let pages: Vec<u32> = (0..32).collect();
    let mut kv = Kv::new(&model.config, pages.len(), 16);
    for _ in 0..request.sampling.max_tokens {
        let segment = Segment { tokens: &tokens, start: 0, pages: &pages, logits: LogitRows::Last };
        let logits = inference.forward(&mut kv, &[segment]);
        let draw = Sampler::default().draw(logits, &request.sampling, tokens.len()).expect("logits are finite");
        tokens.push(draw.token);
        logprobs.push(draw.logprob);
        if request.sampling.stop.contains(&draw.token) {
            break;
        }
    }
    (tokens.split_off(request.context.len()), logprobs)
}

/// Log-probabilities of `result`'s tokens as the trainer computes them (no top-k or top-p).
pub fn trainer_logprobs(model: &Model, request: &TurnRequest, result: &TurnResult) -> Vec<f32> {
    let (context, temperature) = (request.context.len(), f64::from(request.sampling.temperature));
    let mut sequence = request.context.clone();
    sequence.extend(&result.tokens);
    let rows: Vec<u32> = (context as u32 - 1..sequence.len() as u32 - 1).collect();
    let mut logprobs = Vec::new();
    let mut workspace = TrainWorkspace::default();
    venus_lm::logits(model, &mut workspace, &[&sequence], &[&rows], &mut |_, logits| {
        for (row, token) in logits.chunks_exact(VOCAB).zip(&result.tokens) {
            let scaled = |logit: f32| f64::from(logit) / if temperature == 0.0 { 1.0 } else { temperature };
            let total: f64 = row.iter().map(|&logit| scaled(logit).exp()).sum();
            logprobs.push((scaled(row[*token as usize]) - total.ln()) as f32);
        }
    });
    logprobs
}

pub fn assert_close(found: &[f32], expected: &[f32], tolerance: f32) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() < tolerance, "{found}, expected {expected}");
    }
}

pub fn span(version: u64, start: u32, end: u32) -> VersionSpan {
    VersionSpan { version: Version(version), start, end }
}

pub fn budget(prefill_budget: u64, options: EngineOptions) -> EngineOptions {
    EngineOptions { prefill_budget: Tokens(prefill_budget), ..options }
}
