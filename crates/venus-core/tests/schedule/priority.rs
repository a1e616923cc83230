//! Policies that look ahead: critical groups, preemption, and the baselines that order by length.

use crate::{Shell, dispatched};
use venus_core::ids::{GroupId, TrajectoryId, WorkerId};
use venus_core::message::engine::Class;
use venus_core::schedule::{Action, Event, Policy, SchedulerConfig, Stage};
use venus_core::units::Tokens;

/// `groups` groups of `group_size` under `policy` in a window that takes them all, B of them a batch, at version 0 with
/// limit 2; sandboxes up, `slots` slots on one worker.
fn shell(policy: Policy, groups: u64, batch: usize, group_size: usize, slots: u32) -> Shell {
    let async_factor = (groups as f64 / batch as f64).max(1.0);
    let config = SchedulerConfig { policy, groups_per_batch: batch, group_size, async_factor, ..Default::default() };
    let mut shell = Shell::new(config);
    (0..groups).for_each(|group| drop(shell.offer(group)));
    (0..groups * group_size as u64).for_each(|member| drop(shell.sandbox(member)));
    shell.worker(0, slots);
    shell
}

fn predict(shell: &mut Shell, trajectory: u64, remaining: u64) -> Vec<Action> {
    let trajectory = TrajectoryId(trajectory);
    shell.tell(Event::Prediction { trajectory, remaining: Tokens(remaining), spread: Tokens(0) })
}

fn preempted(actions: &[Action]) -> Vec<u64> {
    let of = |action: &Action| match action {
        Action::Preempt { trajectory, .. } => Some(trajectory.0),
        _ => None,
    };
    actions.iter().filter_map(of).collect()
}

fn reclassed(actions: &[Action]) -> Vec<(u64, Class)> {
    let of = |action: &Action| match action {
        Action::SetClass { trajectory, class, .. } => Some((trajectory.0, *class)),
        _ => None,
    };
    actions.iter().filter_map(of).collect()
}

fn critical(shell: &Shell, groups: u64) -> Vec<u64> {
    (0..groups).filter(|&group| shell.scheduler.is_critical(GroupId(group))).collect()
}

/// The turn that runs is stopped after some tokens and queued again.
fn yields(shell: &mut Shell, trajectory: u64) -> Vec<u64> {
    let mut sent = dispatched(&shell.turn(trajectory));
    sent.extend(dispatched(&shell.queue(trajectory)));
    sent
}

#[test]
fn the_groups_nearest_to_completion_are_critical_as_many_as_the_batch_lacks() {
    let mut shell = shell(Policy::Priority, 4, 2, 1, 1);
    for (trajectory, remaining) in [(0, 900), (1, 100), (2, 500), (3, 50)] {
        predict(&mut shell, trajectory, remaining);
    }
    assert_eq!(critical(&shell, 4), [1, 3]);
    for trajectory in 0..4 {
        shell.queue(trajectory);
    }
    assert_eq!(dispatched(&shell.turn(0)), [1], "0 had the slot before the others came, then the critical ones");
    shell.finish(0);
    assert_eq!(critical(&shell, 4), [3], "one more is needed");
    shell.demand();
    shell.turn(1);
    shell.finish(1);
    assert_eq!(critical(&shell, 4), [2, 3], "the batch is delivered, the next one lacks two");
}

#[test]
fn finished_members_have_no_part_in_the_score_of_their_group() {
    let mut shell = shell(Policy::Priority, 2, 1, 2, 4);
    for (trajectory, remaining) in [(0, 900), (1, 10), (2, 300), (3, 300)] {
        predict(&mut shell, trajectory, remaining);
    }
    assert_eq!(critical(&shell, 2), [1]);
    shell.queue(0);
    shell.turn(0);
    shell.finish(0);
    assert_eq!(critical(&shell, 2), [0], "only the short member of 0 is left");
}

#[test]
fn what_a_turn_drew_is_not_predicted_any_more() {
    let mut shell = shell(Policy::Priority, 2, 1, 1, 4);
    predict(&mut shell, 0, 102);
    predict(&mut shell, 1, 100);
    assert_eq!(critical(&shell, 2), [1]);
    shell.queue(0);
    shell.turn(0);
    assert_eq!(critical(&shell, 2), [0], "5 tokens fewer");
}

// vllm#40004, vllm#54530: with all slots taken a request of higher priority waited for lower ones to end.
#[test]
fn a_critical_turn_that_finds_no_slot_takes_that_of_a_low_one() {
    let mut shell = shell(Policy::Priority, 3, 1, 1, 1);
    predict(&mut shell, 0, 900);
    predict(&mut shell, 1, 500);
    predict(&mut shell, 2, 10);
    assert_eq!(dispatched(&shell.queue(0)), [0], "low, but the slot would idle");
    assert_eq!(preempted(&shell.queue(1)), [0; 0], "low waits for low");
    assert_eq!(preempted(&shell.queue(2)), [0]);
    assert_eq!(shell.scheduler.stats().preempting, 1);
    assert_eq!(yields(&mut shell, 0), [2]);
    // vllm#9342: users could not tell whether priority works.
    assert_eq!(shell.scheduler.stats().totals.preemptions, 1);
    assert_eq!(shell.scheduler.stats().preempting, 0);
}

// vllm#41951: a preempted request lost its place to newcomers of the same priority.
#[test]
fn a_preempted_turn_is_resumed_before_turns_of_its_class_that_came_later() {
    let mut shell = shell(Policy::Priority, 4, 1, 1, 1);
    predict(&mut shell, 3, 10);
    for trajectory in [0, 1, 2, 3] {
        shell.queue(trajectory);
    }
    assert_eq!(yields(&mut shell, 0), [3]);
    assert_eq!(dispatched(&shell.turn(3)), [0], "not 1, which waits since before 0 was stopped");
}

// vllm#54530: equal priorities preempted each other for ever when arrival broke ties.
#[test]
fn equals_never_preempt_each_other_however_often_they_return() {
    for policy in [Policy::Priority, Policy::GroupFcfs, Policy::LongestFirst] {
        let mut shell = shell(policy, 3, 3, 2, 2);
        for trajectory in 0..6 {
            predict(&mut shell, trajectory, 0);
            shell.queue(trajectory);
        }
        for _ in 0..20 {
            let running = (0..6).filter(|&id| matches!(shell.stage(id), Stage::Running { .. }));
            for trajectory in running.collect::<Vec<_>>() {
                shell.turn(trajectory);
                shell.tool(trajectory);
                shell.queue(trajectory);
            }
        }
        assert_eq!(shell.scheduler.stats().totals.preemptions, 0, "{policy}");
    }
}

#[test]
fn the_victim_is_of_the_group_with_most_work_left_and_among_equals_the_one_sent_last() {
    let mut shell = shell(Policy::Priority, 5, 1, 1, 4);
    for (trajectory, remaining) in [(0, 500), (1, 900), (2, 900), (3, 100), (4, 10)] {
        predict(&mut shell, trajectory, remaining);
    }
    for trajectory in [2, 1, 0, 3] {
        shell.queue(trajectory);
    }
    assert_eq!(preempted(&shell.queue(4)), [1]);
}

#[test]
fn no_more_turns_are_stopped_than_wait_for_their_slots() {
    let mut shell = shell(Policy::Priority, 4, 2, 1, 2);
    (0..2).for_each(|trajectory| drop(predict(&mut shell, trajectory, 2000)));
    (0..2).for_each(|trajectory| drop(shell.queue(trajectory)));
    assert_eq!(preempted(&shell.queue(2)), [1]);
    assert_eq!(preempted(&shell.sandbox(2)), [0; 0], "a slot is on its way");
    assert_eq!(preempted(&shell.queue(3)), [0]);
    assert_eq!(dispatched(&shell.turn(0)), [2], "whoever stops first makes room for whoever waits longest");
    assert_eq!(dispatched(&shell.turn(1)), [3]);
}

// vllm#23713, vllm#23347: a victim that stayed on the list of those that run crashed the scheduler.
#[test]
fn a_victim_may_end_be_lost_or_be_thrown_away_before_it_stops() {
    let begin = || {
        let mut shell = shell(Policy::Priority, 3, 1, 1, 1);
        predict(&mut shell, 2, 10);
        shell.queue(0);
        assert_eq!(preempted(&shell.queue(2)), [0]);
        shell
    };
    let mut ended = begin();
    assert_eq!(dispatched(&ended.turn(0)), [2]);
    assert_eq!(ended.finish(0), [], "it was done anyway");

    let mut lost = begin();
    lost.tell(Event::WorkerLost { worker: WorkerId(0) });
    assert_eq!(lost.scheduler.stats().preempting, 0);
    assert_eq!(dispatched(&lost.worker(1, 1)), [2]);

    let mut failed = begin();
    assert_eq!(dispatched(&failed.fail(0)), [2]);
    assert_eq!(failed.scheduler.stats().preempting, 0);

    let mut stale = begin();
    stale.publish(2);
    assert_eq!(stale.scheduler.stats().preempting, 0);
    assert!(matches!(stale.stage(2), Stage::Running { .. }));
}

#[test]
fn workers_are_told_only_of_classes_that_change() {
    let mut shell = shell(Policy::Priority, 3, 1, 2, 8);
    for trajectory in 0..6 {
        shell.queue(trajectory);
        predict(&mut shell, trajectory, 100 * (trajectory / 2 + 1));
    }
    assert_eq!(critical(&shell, 3), [0]);
    assert_eq!(reclassed(&predict(&mut shell, 0, 110)), [], "the order is the same");
    assert_eq!(reclassed(&predict(&mut shell, 4, 250)), [], "the order behind the critical group is another");
    let changes = reclassed(&predict(&mut shell, 1, 400));
    assert_eq!(changes, [(0, Class::Low), (1, Class::Low), (2, Class::High), (3, Class::High)]);
}

#[test]
fn near_ties_do_not_make_groups_take_turns_at_being_critical() {
    let mut shell = shell(Policy::Priority, 6, 4, 1, 8);
    for trajectory in 0..6 {
        predict(&mut shell, trajectory, 100 + trajectory);
    }
    let before = shell.scheduler.stats().totals.critical_changes;
    for _ in 0..10 {
        predict(&mut shell, 4, 90);
        predict(&mut shell, 4, 104);
    }
    let changes = shell.scheduler.stats().totals.critical_changes - before;
    assert_eq!(changes, 1, "4 became critical once, and 3 stayed so at rank 5 = 4 x 1.25");
}

#[test]
fn a_trajectory_at_its_boundary_takes_the_slot_of_a_critical_one_and_loses_its_own_to_nobody() {
    let mut shell = shell(Policy::Priority, 4, 2, 1, 1);
    shell.queue(0);
    shell.turn(0);
    predict(&mut shell, 0, 9000);
    predict(&mut shell, 2, 10);
    predict(&mut shell, 3, 10);
    assert_eq!(critical(&shell, 4), [2, 3]);
    shell.publish(1);
    assert_eq!(critical(&shell, 4), [0, 1], "as old as the staleness boundary, whatever the predictor says");
    shell.queue(1);
    shell.tool(0);
    assert_eq!(preempted(&shell.queue(0)), [1], "boundary before high");
    assert_eq!(yields(&mut shell, 1), [0]);
    predict(&mut shell, 0, u64::MAX);
    for trajectory in [2, 3] {
        assert_eq!(preempted(&shell.queue(trajectory)), [0; 0]);
    }
}

#[test]
fn fcfs_groups_are_critical_in_the_order_they_started() {
    let mut shell = shell(Policy::GroupFcfs, 4, 2, 1, 1);
    (0..4).for_each(|trajectory| drop(predict(&mut shell, trajectory, 100 - trajectory)));
    assert_eq!(critical(&shell, 4), [0, 1]);
    shell.queue(3);
    assert_eq!(preempted(&shell.queue(1)), [3]);
}

// Heddle: the longest goes first, and preempts the shortest that runs.
#[test]
fn longest_first_serves_the_longest_and_preempts_for_it() {
    let mut shell = shell(Policy::LongestFirst, 1, 1, 4, 2);
    for (trajectory, remaining) in [(0, 100), (1, 300), (2, 200), (3, 50)] {
        predict(&mut shell, trajectory, remaining);
    }
    shell.queue(3);
    shell.queue(0);
    assert_eq!(preempted(&shell.queue(2)), [3]);
    assert_eq!(preempted(&shell.queue(1)), [0]);
    assert_eq!(yields(&mut shell, 0), [1]);
    assert_eq!(yields(&mut shell, 3), [2]);
    assert_eq!(dispatched(&shell.turn(1)), [0], "the partial turn of the longer one first");
    assert_eq!(critical(&shell, 1), [0; 0]);
}

// Seer: one member of each group shows its length, then the longest groups go first.
#[test]
fn group_probe_learns_the_length_of_a_group_from_its_first_member() {
    let mut shell = shell(Policy::GroupProbe, 2, 2, 2, 1);
    for trajectory in [1, 0, 2, 3] {
        shell.queue(trajectory);
    }
    assert_eq!(dispatched(&shell.turn(1)), [0], "the probe of the first group");
    shell.tool(1);
    shell.queue(1);
    assert_eq!(dispatched(&shell.turn(0)), [2], "the probe of the second");
    shell.finish(0);
    shell.turn(2);
    shell.tool(2);
    assert_eq!(dispatched(&shell.queue(2)), [], "3 has the slot, its group may be longest");
    assert_eq!(dispatched(&shell.turn(3)), [2]);
    shell.finish(3);
    shell.turn(2);
    shell.finish(2);
    assert_eq!(shell.scheduler.stats().totals.preemptions, 0);
}
