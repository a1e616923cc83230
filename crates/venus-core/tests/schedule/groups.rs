//! Groups: admitted by one window, whole, once.

use crate::{Shell, deliver, started};
use venus_core::ids::{BatchId, GroupId, TrajectoryId, Version};
use venus_core::schedule::{Action, DiscardReason, Event, ResumePoint, Scheduler, SchedulerConfig};
use venus_core::units::Instant;

fn shell(groups_per_batch: usize, group_size: usize, async_factor: f64) -> Shell {
    let config = SchedulerConfig { groups_per_batch, group_size, async_factor, ..SchedulerConfig::default() };
    let mut shell = Shell::new(config);
    shell.worker(0, 16);
    shell
}

#[test]
fn groups_start_in_the_order_offered_while_the_window_has_a_place() {
    let mut shell = shell(2, 2, 1.5);
    assert_eq!(started(&shell.offer(7)), [14, 15]);
    assert_eq!(shell.scheduler.room(), 2);
    assert_eq!(started(&shell.offer(3)), [6, 7]);
    assert_eq!(started(&shell.offer(5)), [10, 11]);
    assert_eq!(started(&shell.offer(1)), [] as [u64; 0]);
    assert_eq!((shell.scheduler.room(), shell.scheduler.stats().groups.offered), (0, 1));
}

#[test]
fn strictly_on_policy_nothing_of_the_next_batch_starts_before_the_last_one_s_version_is_published() {
    let mut shell = shell(1, 1, 1.0);
    shell.offer(0);
    shell.offer(1);
    shell.complete(0);
    assert_eq!(shell.demand(), deliver(0, &[0]));
    assert_eq!(started(&shell.trained(0)), [] as [u64; 0], "trained, but the engines still run the old weights");
    assert_eq!(started(&shell.publish(1)), [1]);
}

// verl#6624: a second throttle (a bound on the queue) starved the first. Here the ready groups hold their place in
// the window, and nothing else keeps a group from starting.
#[test]
fn consuming_a_batch_opens_exactly_its_places() {
    let mut shell = shell(2, 1, 2.0);
    (0..8).for_each(|group| drop(shell.offer(group)));
    (0..4).for_each(|trajectory| drop(shell.complete(trajectory)));
    assert_eq!(shell.scheduler.stats().groups.ready, 4);
    shell.demand();
    shell.trained(0);
    assert_eq!(started(&shell.publish(1)), [4, 5]);
}

#[test]
fn a_batch_is_delivered_in_completion_order_and_only_to_a_trainer_that_waits() {
    let mut shell = shell(2, 1, 2.0);
    (0..4).for_each(|group| drop(shell.offer(group)));
    for trajectory in [3, 0, 2] {
        assert_eq!(shell.complete(trajectory), []);
    }
    assert_eq!(shell.demand(), deliver(0, &[3, 0]));
    assert_eq!(shell.demand(), [], "one group is not a batch");
    assert_eq!(shell.complete(1), deliver(1, &[2, 1]));
    assert_eq!(shell.demand(), []);
}

#[test]
fn a_trainer_that_repeats_itself_gets_one_batch() {
    let mut shell = shell(1, 1, 2.0);
    shell.offer(0);
    shell.offer(1);
    shell.demand();
    shell.demand();
    assert_eq!(shell.complete(0), deliver(0, &[0]));
    assert_eq!(shell.complete(1), []);
}

// AReaL#1721: partial groups reached training.
#[test]
fn a_group_is_ready_when_its_last_member_is_finished_and_not_before() {
    let mut shell = shell(1, 3, 1.0);
    shell.offer(0);
    shell.demand();
    assert_eq!(shell.complete(2), []);
    assert_eq!(shell.complete(0), []);
    assert_eq!(shell.finish(0), [], "a second verdict on the same member counts once");
    assert_eq!(shell.complete(1), deliver(0, &[0]));
}

#[test]
fn an_acknowledgement_counts_once_and_an_unknown_one_not_at_all() {
    let mut shell = shell(1, 1, 1.0);
    (0..3).for_each(|group| drop(shell.offer(group)));
    shell.complete(0);
    shell.demand();
    shell.trained(5);
    shell.trained(0);
    shell.trained(0);
    assert_eq!(started(&shell.publish(1)), [1]);
    shell.trained(0);
    assert_eq!(started(&shell.publish(2)), [] as [u64; 0]);
    assert_eq!(shell.scheduler.stats().totals.groups_consumed, 1);
}

#[test]
fn a_group_offered_again_is_not_trained_again() {
    let mut shell = shell(1, 1, 1.0);
    shell.offer(0);
    assert_eq!(shell.offer(0), []);
    shell.complete(0);
    shell.demand();
    shell.trained(0);
    shell.publish(1);
    assert_eq!(shell.offer(0), [], "consumed long ago");
    assert_eq!(shell.scheduler.stats().totals.events_ignored, 2);
}

#[test]
fn a_group_without_k_members_of_its_own_is_refused_at_once() {
    let mut shell = shell(1, 2, 2.0);
    shell.offer(0);
    for members in [vec![7], vec![7, 8, 9], vec![7, 7], vec![1, 7]] {
        let group = GroupId(50 + members.iter().sum::<u64>());
        let members = members.into_iter().map(TrajectoryId).collect();
        let actions = shell.tell(Event::GroupOffered { group, members });
        assert_eq!(actions, [Action::DropGroup { group, reason: DiscardReason::Malformed }]);
    }
    assert_eq!(started(&shell.offer(1)), [2, 3], "refused groups take no place");
}

#[test]
fn a_draining_run_starts_nothing_and_finishes_what_is_in_flight() {
    let mut shell = shell(1, 1, 2.0);
    shell.offer(0);
    shell.tell(Event::Drain);
    assert_eq!(started(&shell.offer(1)), [] as [u64; 0]);
    shell.demand();
    assert_eq!(shell.complete(0), deliver(0, &[0]));
}

#[test]
fn a_resumed_run_delivers_the_unacknowledged_batch_again_under_its_old_name() {
    let config = SchedulerConfig { groups_per_batch: 2, group_size: 1, async_factor: 1.0, ..Default::default() };
    let point = ResumePoint {
        version: Version(4),
        next_batch: BatchId(4),
        complete: vec![(GroupId(9), vec![TrajectoryId(9)]), (GroupId(8), vec![TrajectoryId(8)])],
        ended: vec![GroupId(1)],
    };
    let mut scheduler = Scheduler::resume(config, point).unwrap();
    let mut tell = |event| {
        let mut actions = Vec::new();
        scheduler.on(Instant(0), event, &mut actions);
        scheduler.check().unwrap();
        actions
    };
    assert_eq!(tell(Event::GroupOffered { group: GroupId(1), members: vec![TrajectoryId(1)] }), []);
    assert_eq!(tell(Event::GroupOffered { group: GroupId(2), members: vec![TrajectoryId(2)] }), []);
    assert_eq!(tell(Event::TrainerDemand), deliver(4, &[9, 8]));
    tell(Event::BatchTrained { batch: BatchId(4) });
    assert_eq!(started(&tell(Event::VersionPublished { version: Version(5) })), [2]);
}
