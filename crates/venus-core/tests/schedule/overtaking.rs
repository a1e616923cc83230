//! Who reaches the trainer when: what priority gains, where it must gain nothing, and how long it can hold a group back.

use crate::toy::{self, Predictor, World, hash, long_tailed};
use venus_core::ids::GroupId;
use venus_core::schedule::{Policy, SchedulerConfig};

const BATCH: usize = 4;
const GROUP_SIZE: usize = 4;
const WINDOW: usize = 6;

fn config(policy: Policy) -> SchedulerConfig {
    SchedulerConfig {
        policy,
        groups_per_batch: BATCH,
        group_size: GROUP_SIZE,
        async_factor: 1.5,
        ..SchedulerConfig::default()
    }
}

/// A long-tailed workload with far fewer slots than trajectories.
fn scarce(policy: Policy, seed: u64, predictor: Predictor) -> World {
    let turns = Box::new(move |trajectory| long_tailed(trajectory, GROUP_SIZE as u64, seed));
    World { config: config(policy), slots: 5, trainer: 50, groups: 32, turns, predictor }
}

/// When each batch was ready, summed over some seeds.
fn ready(policy: Policy, predictor: fn() -> Predictor) -> Vec<u64> {
    let runs = (0..5).map(|seed| scarce(policy, seed, predictor()).run().ready(BATCH));
    runs.reduce(|sum, run| sum.iter().zip(run).map(|(a, b)| a + b).collect()).expect("five runs")
}

#[test]
fn under_slot_scarcity_priority_makes_every_batch_ready_sooner_than_slots_without_it() {
    let priority = ready(Policy::Priority, toy::oracle);
    let action = ready(Policy::ActionLevel, toy::oracle);
    let trajectory = ready(Policy::TrajectoryLevel, toy::oracle);
    for ((priority, action), trajectory) in priority.iter().zip(&action).zip(&trajectory) {
        assert!(priority < action && action < trajectory);
    }
    assert!(priority[0] * 6 < action[0] * 5, "the first batch by a fifth and more");
}

#[test]
fn with_a_slot_for_every_trajectory_or_one_trajectory_at_a_time_priority_changes_nothing() {
    for (slots, groups_per_batch, group_size) in [(WINDOW * GROUP_SIZE, BATCH, GROUP_SIZE), (2, 1, 1)] {
        let complete = |policy| {
            let mut world = scarce(policy, 7, toy::oracle());
            world.slots = slots as u32;
            world.config = SchedulerConfig { groups_per_batch, group_size, ..world.config };
            let outcome = world.run();
            assert_eq!(outcome.stats.totals.preemptions, 0);
            outcome.complete
        };
        assert_eq!(complete(Policy::Priority), complete(Policy::ActionLevel));
    }
}

#[test]
fn whatever_the_predictor_every_policy_gets_everything_done() {
    for policy in Policy::ALL {
        for predictor in [toy::oracle, toy::none, toy::random] {
            assert_eq!(scarce(policy, 1, predictor()).run().complete.len(), 32);
        }
    }
}

/// Predictors that know the scheduler and mean ill.
fn adversaries() -> [(&'static str, Predictor); 5] {
    let group = |trajectory: u64| trajectory / GROUP_SIZE as u64;
    [
        ("one group is always last", Box::new(move |id, _, truth| Some(if group(id) == 1 { u64::MAX } else { truth }))),
        ("the younger the better", Box::new(move |id, _, _| Some(1_000_000 - 1000 * group(id)))),
        ("the longer the better", Box::new(|_, _, truth| Some(1_000_000 - truth))),
        ("every third group is last", Box::new(move |id, _, _| Some(if group(id) % 3 == 0 { u64::MAX } else { 0 }))),
        ("another order every time", toy::random()),
    ]
}

/// Uniform work, so that nothing but the predictor holds a group back, and trajectories that fit into a version.
fn uniform(config: SchedulerConfig, slots: u32, predictor: Predictor) -> World {
    let turns = Box::new(|id| (0..3).map(|turn| (10 + hash(id * 8 + turn) % 10, 6)).collect());
    World { config, slots, trainer: 40, groups: 48, turns, predictor }
}

// ThunderAgent#46: smallest first made large prompts wait 400 s; tinker-cookbook#822: slow rollouts starved and were
// thrown away. docs/decisions/0006-critical-groups.md has the proof.
#[test]
fn no_predictor_makes_more_groups_overtake_one_than_the_window_and_the_boundary_allow() {
    for (async_factor, version_span_limit, slots) in [(1.5, 2, 2), (1.5, 2, 5), (2.0, 2, 5), (3.0, 2, 5), (3.0, 3, 7)] {
        for (name, predictor) in adversaries() {
            let config = SchedulerConfig { async_factor, version_span_limit, ..config(Policy::Priority) };
            let bound = config.window() - 1 + (version_span_limit as usize - 1) * BATCH;
            let outcome = uniform(config, slots, predictor).run();
            let most = (0..48).map(|group| outcome.overtaken(GroupId(group))).max().expect("48 groups");
            assert!(most <= bound, "{name}: overtaken by {most}, bound {bound}");
        }
    }
}

#[test]
fn without_a_boundary_a_predictor_could_hold_a_group_back_for_ever() {
    let overtaken = |version_span_limit| {
        let config = SchedulerConfig { async_factor: 3.0, version_span_limit, ..config(Policy::Priority) };
        let [(_, last), ..] = adversaries();
        uniform(config, 5, last).run().overtaken(GroupId(1))
    };
    assert!(overtaken(2) <= 15, "{}", overtaken(2));
    assert!(overtaken(1000) > 30, "{}", overtaken(1000));
}
