//! Turns: queue order, slots, workers.

use crate::{Shell, dispatched, workers};
use venus_core::ids::{AttemptId, TrajectoryId, WorkerId};
use venus_core::schedule::{Event, Policy, SchedulerConfig, Stage};
use venus_core::units::Tokens;

/// One group of `members` trajectories under `policy`, sandboxes up, no worker yet.
fn shell(policy: Policy, members: usize) -> Shell {
    let config = SchedulerConfig { policy, groups_per_batch: 1, group_size: members, ..SchedulerConfig::default() };
    let mut shell = Shell::new(config);
    shell.offer(0);
    (0..members as u64).for_each(|member| drop(shell.sandbox(member)));
    shell
}

#[test]
fn at_action_level_a_slot_is_free_while_its_trajectory_s_tool_runs() {
    let mut shell = shell(Policy::ActionLevel, 2);
    shell.worker(0, 1);
    assert_eq!(dispatched(&shell.queue(0)), [0]);
    assert_eq!(dispatched(&shell.queue(1)), []);
    assert_eq!(dispatched(&shell.turn(0)), [1], "0 is in its tool");
}

#[test]
fn at_trajectory_level_a_slot_is_held_through_tools_until_the_trajectory_ends() {
    let mut shell = shell(Policy::TrajectoryLevel, 2);
    shell.worker(0, 1);
    shell.queue(0);
    shell.queue(1);
    for _ in 0..3 {
        assert_eq!(dispatched(&shell.turn(0)), []);
        assert_eq!(dispatched(&shell.tool(0)), []);
        assert_eq!(dispatched(&shell.queue(0)), [0], "it needs no slot but its own");
    }
    assert_eq!(dispatched(&shell.turn(0)), []);
    assert_eq!(dispatched(&shell.finish(0)), [1]);
}

#[test]
fn turns_are_dispatched_in_the_order_they_were_queued() {
    let mut shell = shell(Policy::ActionLevel, 4);
    for trajectory in [2, 0, 3, 1] {
        shell.queue(trajectory);
    }
    assert_eq!(dispatched(&shell.worker(0, 3)), [2, 0, 3]);
    assert_eq!(dispatched(&shell.turn(0)), [1]);
}

// vllm#41951: a preempted request lost its place to newcomers of the same priority.
#[test]
fn a_turn_that_was_cut_short_is_queued_again_before_turns_that_came_later() {
    let mut shell = shell(Policy::ActionLevel, 3);
    shell.worker(0, 1);
    (0..3).for_each(|trajectory| drop(shell.queue(trajectory)));
    assert_eq!(dispatched(&shell.turn(0)), [1], "0 was cut short: no tool ends");
    shell.queue(0);
    assert_eq!(dispatched(&shell.turn(1)), [0], "not 2, which came later");
    assert_eq!(shell.scheduler.stats().totals.requeues, 1);
}

#[test]
fn after_a_tool_the_next_turn_takes_a_place_of_its_own() {
    let mut shell = shell(Policy::ActionLevel, 3);
    shell.worker(0, 1);
    (0..3).for_each(|trajectory| drop(shell.queue(trajectory)));
    shell.turn(0);
    shell.tool(0);
    shell.queue(0);
    assert_eq!(dispatched(&shell.turn(1)), [2]);
}

#[test]
fn the_turns_of_a_lost_worker_keep_their_places_and_its_late_answers_are_dropped() {
    let mut shell = shell(Policy::ActionLevel, 4);
    shell.worker(0, 2);
    (0..4).for_each(|trajectory| drop(shell.queue(trajectory)));
    let old = shell.attempt_of(0);
    shell.tell(Event::WorkerLost { worker: WorkerId(0) });
    assert_eq!(dispatched(&shell.worker(1, 1)), [0]);
    assert_ne!(shell.attempt_of(0), old);
    let late = Event::TurnEnded { trajectory: TrajectoryId(0), attempt: old, generated: Tokens(1), versions: None };
    assert_eq!(shell.tell(late), []);
    assert!(matches!(shell.scheduler.stage_of(TrajectoryId(0)), Some(Stage::Running { .. })));
    assert_eq!(dispatched(&shell.turn(0)), [1]);
}

#[test]
fn a_trajectory_that_lost_its_held_slot_keeps_its_seniority() {
    let mut shell = shell(Policy::TrajectoryLevel, 2);
    shell.worker(0, 1);
    shell.queue(0);
    shell.queue(1);
    shell.turn(0);
    shell.tell(Event::WorkerLost { worker: WorkerId(0) });
    shell.tool(0);
    shell.queue(0);
    assert_eq!(dispatched(&shell.worker(1, 1)), [0]);
}

#[test]
fn a_trajectory_goes_back_to_the_worker_that_has_its_prefix() {
    let mut shell = shell(Policy::ActionLevel, 2);
    shell.worker(0, 2);
    shell.worker(1, 2);
    assert_eq!(workers(&shell.queue(0)), [0]);
    assert_eq!(workers(&shell.queue(1)), [1]);
    shell.turn(1);
    shell.tool(1);
    assert_eq!(workers(&shell.queue(1)), [1]);
    assert_eq!(shell.scheduler.worker_of(TrajectoryId(1)), Some(WorkerId(1)));
}

// prime-rl#3255: strict affinity crowded one engine while the others idled.
#[test]
fn a_turn_does_not_wait_for_its_worker_beside_a_free_slot() {
    let mut shell = shell(Policy::ActionLevel, 3);
    shell.worker(0, 1);
    shell.queue(0);
    shell.turn(0);
    shell.queue(1);
    shell.tool(0);
    assert_eq!(workers(&shell.queue(0)), []);
    assert_eq!(workers(&shell.worker(1, 1)), [1]);
    assert_eq!(shell.scheduler.stats().totals.moves, 1);
}

// prime-rl#1865: scheduling by group let one long member hold the slots of all its siblings.
#[test]
fn the_slots_of_finished_members_serve_other_groups_while_a_sibling_goes_on() {
    let config =
        SchedulerConfig { groups_per_batch: 2, group_size: 2, policy: Policy::TrajectoryLevel, ..Default::default() };
    let mut shell = Shell::new(config);
    shell.worker(0, 2);
    shell.offer(0);
    shell.offer(1);
    (0..4).for_each(|trajectory| drop(shell.begin(trajectory)));
    shell.turn(0);
    assert_eq!(dispatched(&shell.finish(0)), [2], "1, the straggler of group 0, still runs");
}

#[test]
fn cutting_a_worker_s_slots_lets_its_turns_end_and_sends_nothing_new() {
    let mut shell = shell(Policy::ActionLevel, 3);
    shell.worker(0, 2);
    (0..3).for_each(|trajectory| drop(shell.queue(trajectory)));
    shell.worker(0, 1);
    assert_eq!(dispatched(&shell.turn(0)), []);
    assert_eq!(dispatched(&shell.turn(1)), [2]);
}

#[test]
fn events_out_of_turn_change_nothing() {
    let mut shell = shell(Policy::ActionLevel, 2);
    shell.worker(0, 1);
    shell.queue(0);
    let before = shell.scheduler.stats();
    let strangers = [
        Event::SandboxReady { trajectory: TrajectoryId(0) },
        Event::ToolEnded { trajectory: TrajectoryId(0) },
        Event::TurnQueued { trajectory: TrajectoryId(0), context: Tokens(1) },
        Event::TrajectoryFinished { trajectory: TrajectoryId(0) },
        Event::TrajectoryFinished { trajectory: TrajectoryId(1) },
        Event::TrajectoryFailed { trajectory: TrajectoryId(99) },
        Event::TurnEnded { trajectory: TrajectoryId(0), attempt: AttemptId(77), generated: Tokens(1), versions: None },
        Event::WorkerLost { worker: WorkerId(9) },
    ];
    let count = strangers.len() as u64;
    for event in strangers {
        assert_eq!(shell.tell(event), []);
    }
    let mut after = shell.scheduler.stats();
    assert_eq!(after.totals.events_ignored, count);
    after.totals.events_ignored = 0;
    assert_eq!(after, before);
}
