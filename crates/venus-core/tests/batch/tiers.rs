//! Tiers, references and demotion (paper section 2.5), one behaviour each; most were bugs elsewhere.

use crate::fake::{Engine, options};
use venus_core::batch::{BatchOptions, Drawn, EndReason};
use venus_core::ids::{AttemptId, TrajectoryId, Version};
use venus_core::message::engine::Class::{self, Boundary, High, Low};
use venus_core::residency::{FlushPolicy, Residency, ResidencyPolicy, Tier};
use venus_core::units::{Pages, Tokens};

const TIERED: ResidencyPolicy = ResidencyPolicy::Tiered { demotion: false };
const DEMOTING: ResidencyPolicy = ResidencyPolicy::Tiered { demotion: true };

fn engine(residency: ResidencyPolicy, pages: u32) -> Engine {
    Engine::new(BatchOptions { residency, ..options(pages, 4) })
}

fn tokens(from: u32, count: u32) -> Vec<u32> {
    (from..from + count).collect()
}

fn step(engine: &mut Engine) -> Vec<u64> {
    engine.step(|_, length| Drawn::Token(100 + length as u32)).iter().map(|work| work.attempt.0).collect()
}

/// A turn that leaves `pages` pages behind.
fn turn(engine: &mut Engine, id: u64, class: Class, pages: u32) {
    engine.submit(id, class, &tokens(id as u32 * 1000, pages * 4), 1);
    engine.run();
}

fn tiers(engine: &Engine) -> [u32; 3] {
    let tiers = engine.batch.residency().tiers();
    [Tier::Unused, Tier::LowRef, Tier::HighRef].map(|tier| tiers[tier])
}

/// Pages of a trajectory that are still there.
fn kept(engine: &Engine, id: u64) -> u32 {
    engine.batch.residency().lookup(&tokens(id as u32 * 1000, 400)).pages
}

fn apply(engine: &mut Engine) {
    engine.batch.drain(&mut Vec::new());
    engine.batch.check().expect("the invariants hold");
}

#[test]
fn what_is_unused_goes_first_then_low_then_high() {
    let mut engine = engine(TIERED, 12);
    turn(&mut engine, 1, High, 3);
    turn(&mut engine, 2, Low, 3);
    turn(&mut engine, 3, Low, 3);
    engine.batch.release(TrajectoryId(3));
    apply(&mut engine);
    assert_eq!(tiers(&engine), [3, 3, 3]);
    turn(&mut engine, 4, High, 6);
    assert_eq!([1, 2, 3].map(|id| kept(&engine, id)), [3, 3, 0]);
    turn(&mut engine, 5, High, 3);
    assert_eq!([1, 2].map(|id| kept(&engine, id)), [3, 0], "the latest used, and yet before what is high");
    turn(&mut engine, 6, High, 3);
    assert_eq!(kept(&engine, 1), 0, "a high turn may take high pages");
    engine.end();
}

/// sglang#29099, #27024: idle sessions pinned their KV for ever, and others ran out of memory.
#[test]
fn idle_trajectories_pin_nothing() {
    for class in [Low, High, Boundary] {
        let mut engine = engine(DEMOTING, 12);
        for id in 0..6 {
            turn(&mut engine, id, class, 4);
        }
        // They fill the cache, and still another of the class gets all of it.
        turn(&mut engine, 9, class, 11);
        assert_eq!(engine.batch.residency().references(), 7);
        engine.end();
    }
}

/// sglang#28891: pages pinned by sessions were out of the scheduler's sight. vllm#39375: a turn was chosen and then
/// did not fit.
#[test]
fn a_low_turn_waits_for_what_only_the_high_class_may_take() {
    let mut engine = engine(TIERED, 12);
    turn(&mut engine, 1, High, 8);
    engine.submit(2, Low, &tokens(2000, 20), 4);
    assert_eq!(step(&mut engine), [0; 0]);
    assert!(engine.batch.is_stalled());
    assert_eq!(kept(&engine, 1), 8);
    engine.batch.release(TrajectoryId(1));
    assert!(!engine.batch.is_stalled());
    assert_eq!(step(&mut engine), [2]);
    engine.run();
    engine.end();
}

#[test]
fn a_matched_prefix_is_not_counted_as_room_for_what_follows_it() {
    let mut engine = engine(TIERED, 12);
    turn(&mut engine, 1, Low, 6);
    turn(&mut engine, 2, High, 4);
    // 2 free and 6 low, of which it shares 5: 3 are left for the 4 it needs.
    let mut context = tokens(1000, 20);
    context.extend(tokens(500, 16));
    engine.submit(1, Low, &context, 1);
    assert_eq!(step(&mut engine), [0; 0]);
    engine.end();
}

/// sglang#16369, sglang#21652: aborted requests kept what they held.
#[test]
fn a_reference_is_released_once_on_every_way_out() {
    for residency in [ResidencyPolicy::SessionReferenced, TIERED, DEMOTING] {
        for steps in 0..20 {
            let limits = BatchOptions { residency, prefill_budget: Tokens(5), ..options(12, 4) };
            let mut engine = Engine::new(limits);
            for id in 0..5 {
                engine.submit(id, [Low, High, High, Boundary, Low][id as usize], &tokens(id as u32 / 2 * 30, 13), 9);
            }
            engine.submit(9, High, &[], 1);
            for _ in 0..steps {
                step(&mut engine);
            }
            engine.activate(steps % 2);
            // Running, waiting, paused, ended, or rejected at once: in any order, and twice.
            for id in [3, 9, 0, 4, 1, 2, 0] {
                engine.batch.abort(AttemptId(id));
                engine.batch.release(TrajectoryId(id));
                engine.set_class(id, High);
            }
            engine.end();
        }
    }
}

#[test]
fn a_reference_lasts_through_tool_calls_and_covers_what_was_made_since() {
    let mut engine = engine(TIERED, 40);
    engine.submit(1, High, &tokens(0, 8), 9);
    engine.run();
    assert_eq!(tiers(&engine), [0, 0, 4], "context and output");
    let mut context = tokens(0, 8);
    context.extend(&engine.ended[&AttemptId(1)].tokens);
    context.extend(tokens(50, 7));
    engine.submit_turn(1, 2, High, &context, 9);
    engine.run();
    assert_eq!(tiers(&engine), [0, 0, 8]);
    engine.set_class(1, Low);
    apply(&mut engine);
    assert_eq!(tiers(&engine), [0, 8, 0]);
    engine.batch.release(TrajectoryId(1));
    apply(&mut engine);
    assert_eq!(tiers(&engine), [8, 0, 0]);
    engine.end();
}

#[test]
fn a_split_copies_the_counters_and_a_class_changes_on_its_whole_path() {
    let mut engine = engine(TIERED, 40);
    let fork = |from: u32| [tokens(0, 12), tokens(from, 8)].concat();
    engine.submit(1, High, &fork(100), 1);
    engine.run();
    engine.submit(2, Low, &fork(200), 1);
    engine.run();
    assert_eq!(tiers(&engine), [0, 2, 5], "three shared ones are of the higher class");
    engine.set_class(1, Low);
    apply(&mut engine);
    assert_eq!(tiers(&engine), [0, 7, 0]);
    engine.batch.release(TrajectoryId(1));
    apply(&mut engine);
    assert_eq!(tiers(&engine), [2, 5, 0]);
    engine.end();
}

#[test]
fn nothing_refers_to_kv_of_older_weights() {
    let mut engine = engine(TIERED, 40);
    turn(&mut engine, 1, High, 4);
    engine.activate(1);
    apply(&mut engine);
    assert_eq!(tiers(&engine), [4, 0, 0]);
    assert_eq!(engine.batch.residency().references(), 1);
    engine.submit_turn(1, 2, High, &tokens(1000, 16), 1);
    engine.run();
    assert_eq!(tiers(&engine), [4, 0, 4]);
    engine.end();
}

/// SGLang's session references know one tier (sglang#29173), and bound nobody.
#[test]
fn session_references_protect_from_strangers_and_not_from_each_other() {
    let mut engine = engine(ResidencyPolicy::SessionReferenced, 12);
    turn(&mut engine, 1, High, 4);
    turn(&mut engine, 2, Low, 4);
    engine.batch.release(TrajectoryId(2));
    turn(&mut engine, 3, Low, 7);
    assert_eq!([1, 2].map(|id| kept(&engine, id)), [4, 1]);
    turn(&mut engine, 4, Low, 5);
    assert!(kept(&engine, 1) < 4);
    engine.end();
}

#[test]
fn the_shortest_are_demoted_and_return_longest_first() {
    let mut engine = engine(DEMOTING, 12);
    for (id, pages) in [(1, 2), (2, 5), (3, 3), (4, 4)] {
        engine.submit(id, High, &tokens(id as u32 * 1000, pages * 4 - 2), 1);
    }
    // With a page of growth each they need 3 + 6 + 4 + 5.
    assert_eq!(step(&mut engine), [2, 4]);
    assert_eq!((engine.batch.counters().demotions, engine.batch.paused()), (2, 2));
    engine.batch.release(TrajectoryId(2));
    assert_eq!(step(&mut engine), [1, 3], "both fit where the longest left");
    engine.run();
    engine.end();
}

#[test]
fn neither_boundary_trajectories_nor_the_last_high_one_are_demoted() {
    let mut engine = engine(DEMOTING, 12);
    for id in 0..3 {
        engine.submit(id, Boundary, &tokens(id as u32 * 1000, 20), 2);
    }
    engine.submit(3, High, &tokens(3000, 20), 2);
    let first = step(&mut engine);
    assert!(!first.contains(&3) && engine.batch.paused() == 1, "{first:?}");
    engine.run();
    engine.end();
    let mut engine = self::engine(DEMOTING, 12);
    engine.submit(1, High, &tokens(0, 40), 8);
    engine.submit(2, High, &tokens(1000, 40), 8);
    engine.run();
    assert_eq!(engine.reason(2), Some(&EndReason::Length), "each alone is nearly as large as all pages");
    engine.end();
}

#[test]
fn a_demoted_trajectory_that_becomes_boundary_or_low_is_not_paused() {
    for class in [Boundary, Low] {
        let mut engine = engine(DEMOTING, 12);
        engine.submit(1, High, &tokens(1000, 24), 2);
        engine.submit(2, High, &tokens(2000, 20), 2);
        assert_eq!(step(&mut engine), [1]);
        assert_eq!(engine.batch.paused(), 1);
        engine.set_class(2, class);
        step(&mut engine);
        assert_eq!(engine.batch.paused(), usize::from(class == Boundary), "a boundary one pauses the other");
        engine.run();
        engine.end();
    }
}

/// The active ones may all wait for slots that the paused ones hold at the coordinator.
#[test]
fn a_paused_turn_runs_where_nothing_else_can() {
    let mut engine = engine(DEMOTING, 12);
    turn(&mut engine, 1, High, 8);
    engine.submit(2, High, &tokens(2000, 20), 4);
    assert_eq!(step(&mut engine), [2]);
    assert_eq!(kept(&engine, 1) + 5, 12 - engine.batch.residency().free().0, "the idle one lost only what was needed");
    engine.run();
    engine.end();
}

#[test]
fn siblings_of_a_long_prompt_count_it_once() {
    let mut engine = engine(DEMOTING, 20);
    let prompt = tokens(0, 50);
    for id in 0..4 {
        engine.submit(id, High, &prompt, 3);
    }
    step(&mut engine);
    step(&mut engine);
    assert_eq!(step(&mut engine).len(), 4, "the prompt takes twelve pages, each sibling one or two");
    engine.run();
    engine.end();
}

/// vllm#53723: half of what preemption costs is the choice of victims.
#[test]
fn the_victim_is_the_cheapest_to_compute_again() {
    let mut engine = engine(TIERED, 14);
    engine.submit(1, Low, &tokens(1000, 8), 20);
    engine.submit(2, Low, &tokens(2000, 28), 20);
    step(&mut engine);
    engine.submit(3, High, &tokens(3000, 12), 2);
    assert_eq!(step(&mut engine), [3, 2], "the low turns are of equal class, and the senior one is the shorter");
    while engine.reason(3).is_none() {
        step(&mut engine);
    }
    engine.batch.release(TrajectoryId(3));
    engine.run();
    engine.end();
}

/// vllm#25780: what is computed again was counted as a hit.
#[test]
fn the_hit_rate_is_net_of_what_demotion_computes_again() {
    let mut engine = engine(DEMOTING, 12);
    engine.submit(1, High, &tokens(1000, 16), 20);
    engine.submit(2, High, &tokens(2000, 12), 20);
    engine.run();
    let counters = engine.batch.counters();
    assert!(counters.demotions > 0 && counters.recomputed > Tokens(0) && counters.cached == Tokens(0));
    let net = -(counters.recomputed.0 as f64) / counters.context.0 as f64;
    assert!((counters.hit_rate() - net).abs() < 1e-12);
    engine.end();
}

/// sglang#14339, sglang-omni#1724: each eviction looked at every node, or built a heap of all.
#[test]
fn what_an_eviction_looks_at_does_not_grow_with_the_cache() {
    let visits = |trajectories: u32| {
        let mut pages = Residency::new(Pages(trajectories * 4), 1, FlushPolicy::Keep, Version(0));
        for id in 0..trajectories {
            let (owner, tokens) = (TrajectoryId(id.into()), [id; 4]);
            pages.enter(owner, id % 3 == 0, &tokens);
            let mut table = Vec::new();
            let lock = pages.acquire(&tokens, &mut table);
            assert!(pages.allocate(4, Tier::HighRef, &mut table));
            let lock = pages.publish(owner, lock, 0, &tokens, &mut table);
            pages.release(lock, &[]);
        }
        let before = pages.visits();
        let mut table = Vec::new();
        assert!(pages.allocate(40, Tier::HighRef, &mut table));
        pages.refer_as(TrajectoryId(0), false);
        assert!(pages.leave(TrajectoryId(0)));
        pages.visits() - before
    };
    assert_eq!(visits(20), visits(2000));
    assert!(visits(2000) < 20, "ten leaves, and two short paths");
}
