//! Failed trajectories, stragglers and hangs.

use crate::{Shell, deliver, dispatched, started};
use venus_core::ids::{GroupId, TrajectoryId, WorkerId};
use venus_core::schedule::{Action, DiscardReason, Event, Policy, SchedulerConfig};
use venus_core::units::Tokens;

fn shell(groups_per_batch: usize, group_size: usize, max_restarts: u32) -> Shell {
    let config =
        SchedulerConfig { groups_per_batch, group_size, max_restarts, async_factor: 1.0, ..Default::default() };
    let mut shell = Shell::new(config);
    shell.worker(0, 4);
    shell
}

fn discard(trajectory: u64, reason: DiscardReason) -> Action {
    Action::Discard { trajectory: TrajectoryId(trajectory), reason }
}

// TRL#7176: one failed generation took its group, and the worker, with it.
#[test]
fn a_failed_trajectory_is_begun_again_while_its_siblings_go_on() {
    let mut shell = shell(1, 2, 1);
    shell.offer(0);
    shell.begin(0);
    shell.begin(1);
    let start = Action::Start { trajectory: TrajectoryId(0), restart: 1 };
    assert_eq!(shell.fail(0), [discard(0, DiscardReason::Retry), start]);
    shell.turn(1);
    shell.finish(1);
    shell.demand();
    assert_eq!(shell.complete(0), deliver(0, &[0]));
}

// TRL#5320: a partly dispatched group stayed behind when one of its members could not be completed.
#[test]
fn a_group_whose_member_fails_for_good_is_dropped_whole_and_its_place_goes_to_another() {
    let mut shell = shell(1, 3, 0);
    shell.offer(0);
    shell.offer(1);
    shell.complete(0);
    shell.begin(1);
    shell.begin(2);
    let actions = shell.fail(1);
    let dropped = Action::DropGroup { group: GroupId(0), reason: DiscardReason::Failed };
    assert_eq!(
        actions[..4],
        [
            discard(0, DiscardReason::GroupDropped),
            discard(1, DiscardReason::Failed),
            discard(2, DiscardReason::GroupDropped),
            dropped
        ]
    );
    assert_eq!(started(&actions), [3, 4, 5]);
    let stats = shell.scheduler.stats();
    assert_eq!((stats.free_slots, stats.queued_turns, stats.stages.running), (4, 0, 0));
    assert_eq!(shell.scheduler.group_of(TrajectoryId(2)), None);
    shell.demand();
    (3..5).for_each(|trajectory| drop(shell.complete(trajectory)));
    assert_eq!(shell.complete(5), deliver(0, &[1]), "a batch is made of whole groups, whichever they are");
}

#[test]
fn a_trajectory_may_fail_at_any_stage_of_its_life() {
    let mut shell = shell(1, 1, 9);
    shell.offer(0);
    let fails = |shell: &mut Shell, restart| {
        let start = Action::Start { trajectory: TrajectoryId(0), restart };
        assert_eq!(shell.fail(0), [discard(0, DiscardReason::Retry), start]);
    };
    fails(&mut shell, 1);
    shell.sandbox(0);
    fails(&mut shell, 2);
    shell.begin(0);
    fails(&mut shell, 3);
    shell.begin(0);
    shell.turn(0);
    fails(&mut shell, 4);
    shell.worker(0, 0);
    shell.begin(0);
    fails(&mut shell, 5);
    shell.worker(0, 1);
    shell.demand();
    assert_eq!(shell.complete(0), deliver(0, &[0]));
    assert_eq!(shell.fail(0), [], "finished is finished");
}

#[test]
fn a_verdict_on_a_start_that_was_discarded_is_not_taken_for_the_new_one() {
    let mut shell = shell(1, 1, 1);
    shell.offer(0);
    shell.begin(0);
    shell.turn(0);
    shell.fail(0);
    assert_eq!(shell.finish(0), []);
    shell.sandbox(0);
    assert_eq!(shell.finish(0), []);
    assert_eq!(shell.scheduler.stats().stages.ready, 1);
}

// verl#3895: a fully asynchronous run hung with the trainer waiting for samples and nothing left to run.
#[test]
fn a_run_goes_on_after_every_worker_and_half_of_the_groups_were_lost() {
    let mut shell = shell(2, 2, 0);
    (0..4).for_each(|group| drop(shell.offer(group)));
    shell.demand();
    (0..4).for_each(|trajectory| drop(shell.begin(trajectory)));
    shell.tell(Event::WorkerLost { worker: WorkerId(0) });
    shell.fail(0);
    shell.publish(1);
    (4..6).for_each(|trajectory| drop(shell.begin(trajectory)));
    assert_eq!(dispatched(&shell.worker(1, 1)), [2]);
    let (mut delivered, mut unfinished) = (Vec::new(), vec![2, 3, 4, 5]);
    while !unfinished.is_empty() {
        let next = unfinished.remove(0);
        shell.turn(next);
        delivered.extend(shell.finish(next).into_iter().filter(|action| matches!(action, Action::Deliver { .. })));
    }
    assert_eq!(delivered, deliver(0, &[1, 2]));
}

// NeMo-RL#3238: one straggler wedged the step.
#[test]
fn a_straggler_does_not_keep_other_groups_from_the_trainer() {
    let config = SchedulerConfig {
        policy: Policy::TrajectoryLevel,
        groups_per_batch: 1,
        group_size: 1,
        async_factor: 2.0,
        ..Default::default()
    };
    let mut shell = Shell::new(config);
    shell.worker(0, 2);
    shell.offer(0);
    shell.begin(0);
    for step in 0..3 {
        shell.offer(step + 1);
        shell.demand();
        assert_eq!(shell.complete(step + 1), deliver(step, &[step + 1]));
        shell.trained(step);
        shell.turn_by(0, step, step);
        shell.publish(step + 1);
        shell.tool(0);
        if started(&shell.queue(0)) == [0] {
            return assert_eq!(step, 1, "begun again when a third version would be needed");
        }
    }
    panic!("the straggler was never begun again");
}

#[test]
fn a_trajectory_whose_only_turn_drew_nothing_can_still_be_graded() {
    let mut shell = shell(1, 1, 0);
    shell.offer(0);
    shell.begin(0);
    let attempt = shell.attempt_of(0);
    shell.tell(Event::TurnEnded { trajectory: TrajectoryId(0), attempt, generated: Tokens(0), versions: None });
    shell.finish(0);
    assert_eq!(shell.demand(), deliver(0, &[0]));
}
