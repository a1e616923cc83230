//! The report of a made-up run: what must be in it, what must not, and that broken or unfinished runs have one too.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::collections::BTreeMap;
use std::path::Path;
use venus::report;
use venus::run::{Appender, EvalLine, FamilyScore, Percentiles, RunDir, StepLine, Summary, Transcript, TranscriptTurn};
use venus_core::message::trainer::StepMetrics;

const EVIL: &str = "</pre><script>alert(1)</script><img src=\"http://example.com/x.png\">";

fn made_up_run(parent: &Path) -> RunDir {
    let dir = RunDir::create(&parent.join("run").display().to_string(), parent).unwrap();
    std::fs::write(dir.config(), "[run]\nsteps = 30  # default\n").unwrap();
    let mut steps = Appender::open(&dir.steps_file()).unwrap();
    (1..=30).for_each(|step| steps.push(&step_line(step)).unwrap());
    let mut evals = Appender::open(&dir.evals_file()).unwrap();
    for (step, solved) in [(0, 60), (15, 110), (30, 170)] {
        let families = BTreeMap::from([(EVIL.to_owned(), FamilyScore { tasks: 200, solved })]);
        evals.push(&EvalLine { step, tasks: 200, solved, families, ..EvalLine::default() }).unwrap();
    }
    let mut trajectories = Appender::open(&dir.trajectories_file()).unwrap();
    for (id, reward) in [(1, 1.0), (2, 0.0)] {
        let turn = TranscriptTurn { command: EVIL.to_owned(), output: Some(EVIL.to_owned()), ..Default::default() };
        let transcript = Transcript {
            trajectory: id,
            task: EVIL.to_owned(),
            family: format!("f{id}"),
            reward,
            ..Default::default()
        };
        let instruction = format!("instruction {id} {EVIL}");
        trajectories
            .push(&Transcript { instruction, turns: vec![turn], end: "done".to_owned(), ..transcript })
            .unwrap();
    }
    dir
}

fn step_line(step: u64) -> StepLine {
    let reward_mean = step as f64 / 40.0;
    let turns = Percentiles { p50: 3.0, p90: 5.0, p99: 6.0 };
    StepLine { step, turns, trainer: StepMetrics { reward_mean, ..Default::default() }, ..Default::default() }
}

#[test]
fn the_report_has_every_part() {
    let temp = tempfile::tempdir().unwrap();
    let dir = made_up_run(temp.path());
    let summary =
        Summary { steps: 30, seed: 7, level: "user namespaces".to_owned(), groups_trained: 240, ..Default::default() };
    dir.write_summary(&summary).unwrap();
    let html = std::fs::read_to_string(report::write(&dir).unwrap()).unwrap();
    for part in [
        ">30%</span>",
        ">85%</span>",
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
        "instruction 1",
        "instruction 2",
        "Best",
        "Worst",
        "Every step",
        "steps = 30",
        "user namespaces",
        "seed 7",
        "240 groups",
        "± ",
    ] {
        assert!(html.contains(part), "no {part:?}");
    }
}

#[test]
fn what_a_trajectory_printed_stays_text_and_nothing_comes_from_outside() {
    let temp = tempfile::tempdir().unwrap();
    let html = std::fs::read_to_string(report::write(&made_up_run(temp.path())).unwrap()).unwrap();
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
    std::fs::write(dir.config(), "").unwrap();
    let html = std::fs::read_to_string(report::write(&dir).unwrap()).unwrap();
    assert!(html.contains("was not measured") && html.contains("nothing was recorded"));
}

#[test]
fn the_summary_keeps_the_fields_that_scripts_read() {
    let value = serde_json::to_value(Summary::default()).unwrap();
    let promised = [
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
        "command",
        "versions",
    ];
    for field in promised {
        assert!(value.get(field).is_some(), "no {field}");
    }
}
