//! A run killed at any point goes on with no group lost and none trained twice.

use crate::fakes::{Disk, EngineFake, Trainers, World, text};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;
use tokio::time::timeout;
use venus_core::ids::{GroupId, Version};
use venus_plane::coordinator::RunError;
use venus_plane::export;
use venus_plane::record::{Checkpoint, Entry, Identity, Log, LogError, LogFile, Record, RecordError, Resume};
use venus_plane::report::Ending;

/// A short run whose log is small enough to be cut at each of its bytes.
fn small() -> World {
    let mut world = World::new();
    world.options.scheduler.groups_per_batch = 1;
    world.options.scheduler.async_factor = 2.0;
    world.options.steps = 3;
    world.engines = vec![EngineFake::saying(|_, _| text("done"))];
    world
}

async fn recorded() -> (Vec<u8>, Vec<Checkpoint>) {
    let world = small();
    world.run().await.unwrap();
    (world.disk.bytes(), world.trainers.checkpoints())
}

/// The world after a crash: so much of the log, these checkpoints.
fn after(log: &[u8], checkpoints: &[Checkpoint]) -> World {
    World { disk: Disk::holding(log), trainers: Trainers::holding(checkpoints.to_vec()), ..small() }
}

fn whole_entries(log: &[u8]) -> Vec<(u64, Entry)> {
    let (_, contents) = Log::open(Path::new("log"), Box::new(Disk::holding(log))).unwrap();
    let decode = |(at, payload): (u64, Vec<u8>)| (at, serde_json::from_slice(&payload).unwrap());
    contents.records.into_iter().map(decode).collect()
}

// OpenRLHF#1322, NeMo-RL#3480, TRL#7294: a resume dropped buffered rollouts or replayed consumed ones.
#[tokio::test(start_paused = true)]
async fn a_log_cut_at_any_byte_loses_no_group_and_trains_none_twice() {
    let (log, all) = recorded().await;
    let entries = whole_entries(&log);
    for checkpoints in [&all[..], &all[..all.len() - 1]] {
        for cut in 0..=log.len() {
            let world = after(&log[..cut], checkpoints);
            let (_, resume) = world.record().unwrap_or_else(|e| panic!("cut at {cut}: {e}"));
            let weights: BTreeSet<GroupId> = checkpoints.iter().flat_map(|c| c.groups.clone()).collect();
            assert_eq!(resume.version, Version(checkpoints.len() as u64));
            assert_eq!(resume.trained.keys().copied().collect::<BTreeSet<_>>(), weights, "cut at {cut}");
            let next = entries.iter().position(|(at, _)| *at as usize >= cut).unwrap_or(entries.len());
            check_nothing_lost(&entries[..next.saturating_sub(1)], &resume);
        }
    }
}

fn check_nothing_lost(entries: &[(u64, Entry)], resume: &Resume) {
    let mut complete = BTreeSet::new();
    for (_, entry) in entries {
        match entry {
            Entry::GroupOpened { group, .. } => assert!(resume.consumed(*group), "{group} is forgotten"),
            Entry::GroupComplete { group } => drop(complete.insert(*group)),
            _ => {}
        }
    }
    complete.retain(|group| !resume.trained.contains_key(group));
    let again: BTreeSet<_> = resume.complete.iter().copied().collect();
    assert!(again.is_superset(&complete), "complete groups are handed over again");
    assert!(again.iter().all(|group| resume.open[group].is_complete()));
}

#[tokio::test(start_paused = true)]
async fn a_run_cut_after_any_record_goes_on_to_its_end() {
    let (log, all) = recorded().await;
    let cuts: Vec<_> = whole_entries(&log).into_iter().map(|(at, _)| at as usize).chain([log.len()]).collect();
    for checkpoints in [&all[..], &all[..all.len() - 1], &all[..1], &[]] {
        for &cut in &cuts {
            let world = after(&log[..cut], checkpoints);
            let summary = world.run().await.unwrap_or_else(|e| panic!("cut at {cut}: {e}"));
            assert_eq!((summary.ending, summary.steps, summary.groups_trained), (Ending::Finished, 3, 3));
            assert_eq!((summary.groups_lost, summary.groups_doubled), (0, 0), "cut at {cut}");
            assert_eq!(world.trainers.trained(), (0..3).map(GroupId).collect(), "cut at {cut}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_checkpoint_that_the_log_does_not_know_is_entered_and_one_that_is_gone_is_undone() {
    let (log, all) = recorded().await;
    let entries = whole_entries(&log);
    let last_commit = entries.iter().rev().find(|(_, e)| matches!(e, Entry::StepCommitted { .. })).unwrap().0;
    let (_, resume) = after(&log[..last_commit as usize], &all).record().unwrap();
    assert!(resume.notices.iter().any(|n| n.contains("checkpoint v3")), "{:?}", resume.notices);
    let (_, resume) = after(&log, &all[..2]).record().unwrap();
    assert!(resume.notices.iter().any(|n| n.contains("its checkpoint is gone")), "{:?}", resume.notices);
    assert_eq!(resume.complete.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_ends_the_run_with_advice_and_costs_nothing() {
    for room in (0..14_000).step_by(701) {
        let world = small();
        world.disk.leave_room(None);
        let (record, _) = world.record().unwrap();
        drop(record);
        world.disk.leave_room(Some(room));
        let error = match world.start().1.await {
            Ok(_) => continue,
            Err(error) => error,
        };
        let text = error.to_string();
        assert!(matches!(error, RunError::Record(LogError::Io { .. })), "{text}");
        assert!(text.contains("run/log.venus") && text.contains("free some space"), "{text}");
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!((world.nodes.alive(), world.nodes.running()), (0, 0));
        world.disk.leave_room(None);
        let summary = world.run().await.unwrap();
        assert_eq!((summary.groups_trained, summary.groups_lost, summary.groups_doubled), (3, 0, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_trainer_that_fails_keeps_its_batch_for_the_next_run() {
    let world = small();
    world.trainers.fail(true);
    let error = world.run().await.unwrap_err();
    assert!(error.to_string().contains("out of memory"), "{error}");
    world.trainers.fail(false);
    let summary = world.run().await.unwrap();
    assert_eq!((summary.steps, summary.groups_trained, summary.groups_lost, summary.groups_doubled), (3, 3, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_resumed_run_draws_what_the_killed_one_would_have_drawn() {
    let drawn = |world: &World| {
        let batches = world.trainers.batches();
        let all = batches.iter().flat_map(|b| &b.groups).flat_map(|g| &g.trajectories);
        all.map(|t| (t.trajectory, t.tokens.clone())).collect::<std::collections::BTreeMap<_, _>>()
    };
    let (whole, killed) = (World::new(), World::new());
    whole.run().await.unwrap();
    assert!(timeout(Duration::from_millis(400), killed.run()).await.is_err(), "killed in its midst");
    killed.run().await.unwrap();
    assert_eq!(drawn(&whole), drawn(&killed));
}

#[tokio::test(start_paused = true)]
async fn the_export_has_each_trajectory_of_a_killed_and_resumed_run_once() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::new();
    assert!(timeout(Duration::from_millis(500), world.run()).await.is_err());
    world.run().await.unwrap();
    let (log, out) = (dir.path().join("log.venus"), dir.path().join("trajectories.jsonl"));
    std::fs::write(&log, world.disk.bytes()).unwrap();
    assert_eq!(export::write_jsonl(&log, &out).unwrap(), 12);
    let lines = std::fs::read_to_string(&out).unwrap();
    let lines: Vec<serde_json::Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let ids: BTreeSet<_> = lines.iter().map(|line| line["train"]["trajectory"].as_u64().unwrap()).collect();
    assert_eq!(ids, (0..12).collect());
    assert!(lines.iter().all(|line| line["trained_into"].is_u64() && line["end"] == "done"));
}

#[test]
fn a_record_belongs_to_one_run_and_to_one_process() {
    let dir = tempfile::tempdir().unwrap();
    let identity = Identity { config: "a".to_owned(), seed: 1 };
    let (record, resume) = Record::open(dir.path(), &identity, &[]).unwrap();
    assert!(!resume.resumed);
    let error = Record::open(dir.path(), &identity, &[]).err().unwrap().to_string();
    assert!(error.contains("another run is writing to it"), "{error}");
    drop(record);
    let other = Identity { config: "b".to_owned(), seed: 1 };
    let error = Record::open(dir.path(), &other, &[]).err().unwrap();
    assert!(matches!(error, RecordError::OtherRun { .. }), "{error}");
    assert!(LogFile::open(&dir.path().join("none/log")).is_err());
}
