//! References and classes reach the pages (paper section 2.5).

use crate::fixture::{engine, options, request, run_one, tokens};
use venus_core::ids::TrajectoryId;
use venus_core::message::engine::{Class, EngineCommand};
use venus_core::residency::ResidencyPolicy;
use venus_core::units::Pages;
use venus_engine::{Engine, EngineOptions};

const TIERED: ResidencyPolicy = ResidencyPolicy::Tiered { demotion: true };

fn tiers(engine: &Engine) -> [u32; 3] {
    let stats = engine.stats();
    [stats.pages_unused.0, stats.pages_low.0, stats.pages_high.0]
}

/// A command between two turns takes effect with the next step.
fn command(engine: &mut Engine, command: EngineCommand) {
    assert!(engine.command(command) && engine.has_work());
    engine.step();
    engine.batch().check().expect("the invariants hold");
    assert!(!engine.has_work());
}

#[test]
fn a_class_change_between_turns_and_the_release_reach_the_pages() {
    let mut engine = engine(EngineOptions { residency: TIERED, ..options(40, 4) });
    run_one(&mut engine, request(1, &tokens(1, 12), 5, 0.0));
    assert_eq!(tiers(&engine), [0, 4, 0]);
    command(&mut engine, EngineCommand::SetClass(TrajectoryId(1), Class::High));
    assert_eq!(tiers(&engine), [0, 0, 4]);
    command(&mut engine, EngineCommand::Release(TrajectoryId(1)));
    assert_eq!(tiers(&engine), [4, 0, 0]);
    assert_eq!(engine.batch().residency().references(), 0);
}

/// It must neither take the pages nor keep the thread busy.
#[test]
fn a_low_turn_that_may_take_nothing_waits_without_work() {
    let mut engine = engine(EngineOptions { residency: TIERED, ..options(10, 4) });
    let mut high = request(1, &tokens(1, 28), 5, 0.0);
    high.class = Class::High;
    run_one(&mut engine, high);
    engine.submit(request(2, &tokens(2, 20), 2, 0.0));
    assert!(engine.step().is_empty() && !engine.has_work());
    assert_eq!((engine.stats().waiting, engine.stats().pages_high), (1, Pages(8)));
    engine.release(TrajectoryId(1));
    assert!(engine.has_work());
    engine.step();
    assert_eq!(engine.stats().running, 1);
}
