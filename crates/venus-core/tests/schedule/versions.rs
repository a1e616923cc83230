//! Weight versions: start, boundary, span limit.

use crate::{Shell, dispatched};
use venus_core::ids::{TrajectoryId, Version, WorkerId};
use venus_core::message::engine::Class;
use venus_core::schedule::{Action, DiscardReason, Policy, SchedulerConfig, Stage};

/// One group of `members` trajectories, `slots` slots on one worker, sandboxes up, at version 0, limit 2.
fn shell(members: usize, slots: u32) -> Shell {
    let config = SchedulerConfig {
        policy: Policy::ActionLevel,
        groups_per_batch: 1,
        group_size: members,
        ..SchedulerConfig::default()
    };
    let mut shell = Shell::new(config);
    shell.offer(0);
    (0..members as u64).for_each(|member| drop(shell.sandbox(member)));
    shell.worker(0, slots);
    shell
}

fn begun_again(trajectory: u64, restart: u32) -> Vec<Action> {
    let trajectory = TrajectoryId(trajectory);
    vec![Action::Discard { trajectory, reason: DiscardReason::StaleSpan }, Action::Start { trajectory, restart }]
}

#[test]
fn a_trajectory_starts_at_the_version_in_use_when_it_is_first_dispatched() {
    let mut shell = shell(1, 1);
    shell.publish(3);
    assert_eq!(shell.scheduler.start_version_of(TrajectoryId(0)), None);
    shell.queue(0);
    assert_eq!(shell.scheduler.start_version_of(TrajectoryId(0)), Some(Version(3)));
}

#[test]
fn a_trajectory_in_its_last_valid_version_gets_the_boundary_class_at_once() {
    let mut shell = shell(1, 1);
    shell.queue(0);
    assert_eq!(shell.scheduler.class_of(TrajectoryId(0)), Some(Class::Low));
    let boundary = Action::SetClass { trajectory: TrajectoryId(0), worker: WorkerId(0), class: Class::Boundary };
    assert_eq!(shell.publish(1), [boundary]);
    assert_eq!(shell.scheduler.stats().classes.boundary, 1);
}

#[test]
fn boundary_turns_are_dispatched_before_all_others_and_the_longest_queued_first() {
    let mut shell = shell(5, 4);
    for trajectory in [0, 1, 2, 3] {
        shell.queue(trajectory);
    }
    shell.turn(0);
    shell.turn(1);
    shell.publish(1);
    shell.tool(1);
    shell.tool(0);
    shell.worker(0, 1);
    for trajectory in [4, 1, 0] {
        assert_eq!(dispatched(&shell.queue(trajectory)), []);
    }
    shell.turn(2);
    assert_eq!(dispatched(&shell.turn(3)), [1]);
    assert_eq!(dispatched(&shell.turn(1)), [0]);
    assert_eq!(dispatched(&shell.turn(0)), [4]);
}

#[test]
fn a_queued_turn_moves_ahead_when_its_trajectory_reaches_its_boundary() {
    let mut shell = shell(3, 1);
    shell.queue(0);
    shell.turn(0);
    shell.queue(1);
    shell.queue(2);
    shell.tool(0);
    shell.queue(0);
    shell.publish(1);
    assert_eq!(dispatched(&shell.turn(1)), [0], "2 was queued earlier, but has not started yet");
}

// pause-keep: the turn would go on under the new weights.
#[test]
fn a_running_turn_past_its_last_version_is_stopped_at_once_and_begun_again() {
    let mut shell = shell(1, 1);
    shell.queue(0);
    shell.publish(1);
    assert_eq!(shell.publish(2), begun_again(0, 1));
    shell.sandbox(0);
    assert_eq!(dispatched(&shell.queue(0)), [0]);
    assert_eq!(shell.scheduler.start_version_of(TrajectoryId(0)), Some(Version(2)));
    assert_eq!(shell.scheduler.class_of(TrajectoryId(0)), Some(Class::Low));
}

#[test]
fn a_queued_turn_past_its_last_version_is_begun_again_and_its_slot_goes_to_the_next() {
    let mut shell = shell(2, 1);
    shell.queue(0);
    shell.turn(0);
    shell.queue(1);
    shell.tool(0);
    shell.queue(0);
    shell.publish(1);
    let actions = shell.publish(2);
    assert_eq!(actions, [begun_again(0, 1), begun_again(1, 1)].concat());
}

#[test]
fn a_trajectory_in_its_tool_is_given_up_only_if_it_wants_to_draw_again() {
    let mut shell = shell(2, 2);
    for trajectory in [0, 1] {
        shell.queue(trajectory);
        shell.turn(trajectory);
    }
    shell.publish(1);
    assert_eq!(shell.publish(2), []);
    shell.finish(0);
    assert_eq!(shell.scheduler.stage_of(TrajectoryId(0)), Some(Stage::Finished));
    shell.tool(1);
    assert_eq!(shell.queue(1), begun_again(1, 1));
}

#[test]
fn becoming_stale_is_counted_but_does_not_use_up_restarts() {
    let mut shell = shell(1, 1);
    for restart in 1..=5 {
        shell.queue(0);
        assert_eq!(shell.publish(10 * u64::from(restart)), begun_again(0, restart));
        shell.sandbox(0);
    }
    assert_eq!(shell.scheduler.stats().totals.discards.stale_span, 5);
    assert_eq!(shell.scheduler.stats().totals.groups_dropped, 0);
}

// verl#7568: samples were stamped with a counter of the feeding side, not with the version that drew them.
#[test]
fn the_versions_the_engine_reports_decide_not_the_ones_assumed_here() {
    let mut ahead = shell(1, 1);
    ahead.queue(0);
    assert_eq!(ahead.turn_by(0, 0, 2), begun_again(0, 1), "the engine is ahead of what was published here");

    let mut later = shell(1, 1);
    later.queue(0);
    later.publish(1);
    let low = Action::SetClass { trajectory: TrajectoryId(0), worker: WorkerId(0), class: Class::Low };
    assert_eq!(later.turn_by(0, 1, 1), [low], "its first token was drawn by version 1, so it has version 2 left");
    assert_eq!(later.publish(2).len(), 1);
    later.finish(0);
    assert_eq!(later.demand().len(), 1);
}

// slime#2092, verl#6882: aborted samples were queued again and mixed three versions.
#[test]
fn a_trajectory_cut_short_under_one_version_and_resumed_under_others_never_mixes_three() {
    let mut shell = shell(1, 1);
    shell.queue(0);
    shell.turn_by(0, 0, 0);
    shell.publish(1);
    assert_eq!(dispatched(&shell.queue(0)), [0]);
    shell.turn_by(0, 1, 1);
    shell.publish(2);
    assert_eq!(shell.queue(0), begun_again(0, 1));
}

#[test]
fn a_first_turn_lost_with_its_worker_counts_for_no_version() {
    let mut shell = shell(1, 1);
    shell.queue(0);
    shell.tell(venus_core::schedule::Event::WorkerLost { worker: WorkerId(0) });
    assert_eq!(shell.publish(5), []);
    shell.worker(1, 1);
    assert_eq!(shell.scheduler.start_version_of(TrajectoryId(0)), Some(Version(5)));
}

#[test]
fn with_limit_one_every_trajectory_is_at_its_boundary_and_none_survives_a_version() {
    let config = SchedulerConfig { groups_per_batch: 1, group_size: 1, version_span_limit: 1, ..Default::default() };
    let mut shell = Shell::new(config);
    shell.worker(0, 1);
    shell.offer(0);
    shell.begin(0);
    assert_eq!(shell.scheduler.class_of(TrajectoryId(0)), Some(Class::Boundary));
    assert_eq!(shell.publish(1), begun_again(0, 1));
}
