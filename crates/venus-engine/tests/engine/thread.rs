//! The engine behind its handle.

use crate::fixture::*;
use std::sync::mpsc::Receiver;
use std::time::Duration;
use venus_core::ids::{AttemptId, Version};
use venus_core::message::engine::{EngineCommand, EngineEvent, FinishReason};
use venus_engine::{EngineError, EngineHandle};

fn next(events: &Receiver<EngineEvent>) -> EngineEvent {
    events.recv_timeout(Duration::from_secs(20)).expect("the engine answers")
}

fn next_turn(events: &Receiver<EngineEvent>) -> venus_core::message::engine::TurnResult {
    match next(events) {
        EngineEvent::Turn(turn) => turn,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_threaded_engine_answers_and_ends_with_its_handle() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    model(1).save(dir.path()).expect("the model is written");
    let (handle, events) = EngineHandle::spawn(options(50, 4), dir.path()).expect("it starts");
    handle.send(EngineCommand::Submit(request(1, &tokens(1, 9), 5, 1.0))).expect("it lives");
    assert_eq!(next_turn(&events).tokens, recompute(&model(1), &request(1, &tokens(1, 9), 5, 1.0)).0);

    handle.send(EngineCommand::Pause).expect("it lives");
    handle.send(EngineCommand::Submit(request(2, &tokens(1, 9), 5, 1.0))).expect("it lives");
    handle.send(EngineCommand::Submit(request(3, &tokens(1, 9), 100, 1.0))).expect("it lives");
    handle.send(EngineCommand::LoadWeights { version: Version(1), dir: dir.path().into() }).expect("it lives");
    assert_eq!(next(&events), EngineEvent::Loaded(Version(1)));
    handle.send(EngineCommand::Abort(AttemptId(3))).expect("it lives");
    assert_eq!(next_turn(&events).finish, FinishReason::Aborted, "aborts are answered in a pause");
    handle.send(EngineCommand::Resume).expect("it lives");
    assert_eq!(next_turn(&events).spans, [span(1, 0, 5)]);

    handle.send(EngineCommand::Stats).expect("it lives");
    assert!(matches!(next(&events), EngineEvent::Stats(stats) if stats.running == 0));
    handle.send(EngineCommand::Submit(request(4, &tokens(1, 9), 190, 1.0))).expect("it lives");
    drop(handle);
    assert!(events.try_iter().count() <= 1 && events.recv().is_err(), "the thread is gone");
}

#[test]
fn a_shut_down_engine_refuses_commands_and_a_missing_model_is_an_error() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let missing = EngineHandle::spawn(options(50, 4), dir.path());
    assert!(matches!(missing.err(), Some(EngineError::Model(_))));
    model(1).save(dir.path()).expect("the model is written");
    let (handle, events) = EngineHandle::spawn(options(50, 4), dir.path()).expect("it starts");
    handle.send(EngineCommand::Shutdown).expect("it lives");
    assert!(events.recv().is_err());
    assert!(handle.send(EngineCommand::Stats).is_err());
}
