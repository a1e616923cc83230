//! New weights while turns run.

use crate::fixture::*;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;
use venus_core::ids::Version;
use venus_core::message::engine::{EngineEvent, TurnRequest};
use venus_core::residency::FlushPolicy;
use venus_core::units::Tokens;
use venus_engine::{Engine, EngineOptions, Sampler};
use venus_lm::{Config, Inference, Kv, LogitRows, Model, Segment};

fn saved(model: &Model) -> TempDir {
    let dir = tempfile::tempdir().expect("a temporary directory");
    model.save(dir.path()).expect("the model is written");
    dir
}

fn load(engine: &mut Engine, version: u64, dir: &Path) -> EngineEvent {
    engine.load_weights(Version(version), dir);
    engine.pause();
    let mut events = engine.step();
    engine.resume();
    assert_eq!(events.len(), 1);
    events.remove(0)
}

/// What must be drawn if the weights change after `first` tokens and the KV stays.
fn recompute_mixed(request: &TurnRequest, old: &Model, new: &Model, first: usize) -> (Vec<u32>, Vec<f32>) {
    let mut models = [old, new].map(|model| Inference::new(Arc::new(model.clone()), 1));
    let pages: Vec<u32> = (0..32).collect();
    let mut kv = Kv::new(&old.config, pages.len(), 16);
    let (mut tokens, mut logprobs, mut computed) = (request.context.clone(), Vec::new(), 0);
    for drawn in 0..request.sampling.max_tokens as usize {
        let segment = Segment { tokens: &tokens[computed..], start: computed, pages: &pages, logits: LogitRows::Last };
        let logits = models[usize::from(drawn >= first)].forward(&mut kv, &[segment]);
        computed = tokens.len();
        let draw = Sampler::default().draw(logits, &request.sampling, computed).expect("logits are finite");
        tokens.push(draw.token);
        logprobs.push(draw.logprob);
    }
    (tokens.split_off(request.context.len()), logprobs)
}

#[test]
fn a_running_turn_goes_on_with_its_kv_and_its_spans_say_which_weights_drew_what() {
    let new = model(2);
    let dir = saved(&new);
    let mut engine = engine(options(50, 4));
    let request = request(1, &tokens(1, 10), 14, 1.0);
    engine.submit(request.clone());
    (0..5).for_each(|_| drop(engine.step()));
    assert_eq!(load(&mut engine, 3, dir.path()), EngineEvent::Loaded(Version(3)));
    let result = run(&mut engine).remove(&1).expect("the turn is answered");
    let (tokens, logprobs) = recompute_mixed(&request, &model(1), &new, 5);
    assert_eq!(result.spans, [span(0, 0, 5), span(3, 5, 14)]);
    assert_eq!(result.tokens, tokens);
    assert_close(&result.logprobs, &logprobs, 1e-5);
}

/// lmdeploy#4917, NeMo-RL#4018, prime-rl#1651: KV of older weights was reused and log-probabilities drifted.
#[test]
fn new_turns_use_no_kv_of_older_weights() {
    let new = model(2);
    let dir = saved(&new);
    for flush in [FlushPolicy::Keep, FlushPolicy::Flush] {
        let mut engine = engine(EngineOptions { flush, ..options(50, 4) });
        run_one(&mut engine, request(1, &tokens(1, 20), 6, 1.0));
        // This one runs while the weights change: what it leaves must not be found either.
        engine.submit(request(2, &tokens(1, 20), 6, 1.0));
        (0..3).for_each(|_| drop(engine.step()));
        load(&mut engine, 1, dir.path());
        let mixed = run(&mut engine).remove(&2).expect("the turn is answered");
        let context = [tokens(1, 20), mixed.tokens].concat();
        let wanted = request(3, &context, 8, 1.0);
        let result = run_one(&mut engine, wanted.clone());
        assert_eq!(result.cached_tokens, Tokens(0));
        assert_close(&result.logprobs, &trainer_logprobs(&new, &wanted, &result), 1e-4);
        let again = run_one(&mut engine, request(4, &context, 8, 1.0));
        assert_eq!(again.cached_tokens, Tokens(24), "KV of the new weights is reused");
    }
}

#[test]
fn weights_that_cannot_be_loaded_change_nothing() {
    let other_shape = Model::random(Config { hidden_size: 64, ..model(1).config }, 1);
    let mut broken = model(2);
    broken.params_mut()[5] = f32::NAN;
    let dirs = [saved(&other_shape), saved(&broken), tempfile::tempdir().expect("a temporary directory")];
    let truncated = saved(&model(2));
    let file =
        std::fs::File::options().write(true).open(truncated.path().join("model.safetensors")).expect("it exists");
    file.set_len(1000).expect("it can be cut");
    let mut engine = engine(options(50, 4));
    let request = request(1, &tokens(1, 10), 14, 1.0);
    engine.submit(request.clone());
    for (dir, says) in
        dirs.iter().chain([&truncated]).zip(["another shape", "not finite", "config.json", "model.safetensors"])
    {
        engine.step();
        let failed = load(&mut engine, 1, dir.path());
        let EngineEvent::LoadFailed { version: Version(1), reason } = failed else { panic!("{failed:?}") };
        assert!(reason.contains(says), "{reason}");
    }
    let result = run(&mut engine).remove(&1).expect("the turn is answered");
    assert_eq!((result.tokens, result.spans), (recompute(&model(1), &request).0, vec![span(0, 0, 14)]));
}

#[test]
fn the_current_version_is_answered_without_reading_it_again() {
    let mut engine = engine(options(50, 4));
    run_one(&mut engine, request(1, &tokens(1, 9), 1, 1.0));
    assert_eq!(load(&mut engine, 0, Path::new("/nowhere")), EngineEvent::Loaded(Version(0)));
    assert_eq!(run_one(&mut engine, request(2, &tokens(1, 9), 1, 1.0)).cached_tokens, Tokens(8));
}
