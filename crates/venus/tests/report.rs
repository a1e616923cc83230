//! The report of a made-up run: what must be in it, what must not, and that broken or unfinished runs have one too.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod made_up;

use std::fs;
use std::io::Write;
use std::process::Command;
use venus::report;
use venus::run::{Records, RunDir, finish};
use venus_core::ids::{BatchId, GroupId, Version};
use venus_plane::record::{Checkpoint, Identity, Record};

#[test]
fn the_report_has_every_part() {
    let temp = tempfile::tempdir().unwrap();
    let dir = made_up::run(temp.path(), 30);
    let html = fs::read_to_string(finish(&dir, &made_up::summary(30)).unwrap()).unwrap();
    for part in [
        "class=\"from\">26%",
        "class=\"to\">85%",
        "Held-out success",
        "Training reward",
        "Where the time goes",
        "Turns",
        "Length",
        "Throughput",
        "KV hit rate",
        "Staleness",
        "Entropy",
        "Gradient norm",
        "By family",
        "Best",
        "Worst",
        "Every step",
        "steps = 30",
        "user namespaces",
        "the kernel has none",
        "seed 7",
        "60 groups",
        "± ",
        "grep -c amber a.txt &gt; answer",
        "turn_limit",
        "class=\"instruction\">",
    ] {
        assert!(html.contains(part), "no {part:?}");
    }
    assert!(!html.contains("class=\"instruction\"></p>"), "the instruction is found again from the task's name");
}

#[test]
fn what_a_trajectory_printed_stays_text_and_nothing_comes_from_outside() {
    let temp = tempfile::tempdir().unwrap();
    let html = fs::read_to_string(report::write(&made_up::run(temp.path(), 12)).unwrap()).unwrap();
    assert!(html.contains("&lt;/pre&gt;&lt;script&gt;alert(1)"));
    for forbidden in ["<script", "<img", "<link", "@import", "url(http", "<iframe", " href="] {
        assert!(!html.contains(forbidden), "{forbidden:?}");
    }
    assert!(html.contains("default-src 'none'"));
    assert!(!html.contains("NaN"), "a figure without a number says so in words");
}

#[test]
fn a_run_killed_before_its_first_step_has_a_report_too() {
    let temp = tempfile::tempdir().unwrap();
    let dir = RunDir::create(&temp.path().join("run").display().to_string(), temp.path()).unwrap();
    fs::write(dir.config(), "").unwrap();
    let html = fs::read_to_string(report::write(&dir).unwrap()).unwrap();
    assert!(html.contains("was not measured") && html.contains("nothing was recorded"));
}

#[test]
fn a_record_torn_by_a_kill_is_reported_up_to_the_tear() {
    let temp = tempfile::tempdir().unwrap();
    let dir = made_up::run(temp.path(), 5);
    let mut log = fs::OpenOptions::new().append(true).open(dir.log()).unwrap();
    log.write_all(&[7; 11]).unwrap();
    assert_eq!(Records::read(&dir).unwrap().steps.len(), 5);
}

#[test]
fn steps_after_the_checkpoint_of_a_resumed_run_count_no_more() {
    let temp = tempfile::tempdir().unwrap();
    let dir = made_up::run(temp.path(), 5);
    let all = Records::read(&dir).unwrap();
    assert_eq!((all.steps.len(), all.evals.len(), all.trajectories.len()), (5, 6, 40));
    let identity = Identity { config: "made up".to_owned(), seed: 7 };
    let groups = (0..6).map(GroupId).collect();
    let checkpoint = Checkpoint { version: Version(3), batch: BatchId(3), dir: "checkpoint".into(), groups };
    drop(Record::open(dir.path(), &identity, &[checkpoint]).unwrap());
    let resumed = Records::read(&dir).unwrap();
    assert_eq!((resumed.steps.len(), resumed.evals.len()), (3, 4));
    assert_eq!(resumed.turns().len(), 3, "trajectories of later steps are not trained any more");
}

#[test]
fn the_record_is_also_there_as_json_lines() {
    let temp = tempfile::tempdir().unwrap();
    let dir = made_up::run(temp.path(), 5);
    report::write(&dir).unwrap();
    let lines = |name: &str| -> Vec<serde_json::Value> {
        let text = fs::read_to_string(dir.path().join(name)).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    assert_eq!([lines("steps.jsonl").len(), lines("evals.jsonl").len()], [5, 6]);
    let trajectories = lines("trajectories.jsonl");
    assert_eq!(trajectories.len(), 40);
    let (tokens, mask) = (&trajectories[0]["train"]["tokens"], &trajectories[0]["train"]["mask"]);
    assert_eq!((tokens.as_array().unwrap().len(), mask.as_array().unwrap().len()), (8, 8));
}

#[test]
fn the_summary_keeps_the_fields_that_scripts_read() {
    let temp = tempfile::tempdir().unwrap();
    let dir = made_up::run(temp.path(), 5);
    dir.write_summary(&made_up::summary(5)).unwrap();
    let value: serde_json::Value = serde_json::from_slice(&fs::read(dir.summary_file()).unwrap()).unwrap();
    for field in [
        "steps",
        "rl_seconds",
        "heldout_success_first",
        "heldout_success_last",
        "groups_trained",
        "groups_lost",
        "groups_doubled",
        "logprob_gap_max",
        "tokens_generated",
        "tokens_per_second",
        "hit_rate",
        "discarded",
        "zero_variance_groups",
        "wall_seconds",
        "seed",
        "level",
        "missing",
        "command",
        "machine",
        "version",
    ] {
        assert!(value.get(field).is_some(), "no {field}");
    }
    assert_eq!(Records::read(&dir).unwrap().summary, Some(made_up::summary(5)));
}

#[test]
fn trajectories_are_exported_as_atif() {
    let temp = tempfile::tempdir().unwrap();
    let dir = made_up::run(temp.path(), 2);
    let mut export = Command::new(env!("CARGO_BIN_EXE_venus"));
    assert!(export.args(["export", "atif"]).arg(dir.path()).output().unwrap().status.success());
    let files: Vec<_> = fs::read_dir(dir.path().join("atif")).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 16);
    let document: serde_json::Value = serde_json::from_slice(&fs::read(&files[0]).unwrap()).unwrap();
    assert_eq!(document["schema_version"], "ATIF-v1.8");
    assert!(!document["steps"][0]["message"].as_str().unwrap().is_empty(), "the instruction is the first message");
}
