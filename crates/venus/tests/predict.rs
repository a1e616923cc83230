//! `venus predict eval` as a user meets it.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::path::Path;
use std::process::{Command, Output};

/// A trace of 48 made-up trajectories, three a task: the longer the prompt, the more turns of ever more tokens.
fn made_up() -> String {
    let line = |task: usize, sample: usize| {
        let turns = 3 + task + sample;
        let list = |value: &dyn Fn(usize) -> String| (0..turns).map(value).collect::<Vec<_>>().join(",");
        let generated = list(&|turn| (40 + 10 * task + 3 * turn).to_string());
        let added = list(&|turn| if turn == 0 { (100 * (task + 1)).to_string() } else { (20 + sample).to_string() });
        let category = list(&|turn| format!("\"{}\"", ["search", "edit", "test"][turn % 3]));
        let seconds = list(&|turn| if turn == 1 { "null".to_owned() } else { format!("0.{turn}") });
        format!(
            r#"{{"task":"t{task}","group":"g{task}","gen":[{generated}],"add":[{added}],"cat":[{category}],"tool_s":[{seconds}]}}"#
        )
    };
    (0..16).flat_map(|task| (0..3).map(move |sample| line(task, sample) + "\n")).collect()
}

fn eval(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_venus")).args(["predict", "eval"]).args(args).current_dir(dir).output().unwrap()
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

#[test]
fn a_table_says_how_well_each_predictor_does() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("made_up.jsonl"), made_up()).unwrap();
    let ran = eval(dir.path(), &["made_up.jsonl"]);
    assert_eq!(ran.status.code(), Some(0), "{}", text(ran.stderr));
    let table = text(ran.stdout);
    assert!(
        table.starts_with(
            "made_up.jsonl: 48 trajectories, 552 boundaries, 16 tasks in 2 folds, 16 prompts with siblings"
        )
    );
    for row in ["none      none", "random    none", "constant  none", "learned   siblings", "oracle    none       1.00"]
    {
        assert!(table.contains(row), "no {row} in\n{table}");
    }
}

#[test]
fn a_compressed_trace_holds_what_the_plain_one_does() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("made_up.jsonl"), made_up()).unwrap();
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/traces/made_up.jsonl.zst");
    let figures = |file: &str| {
        let mut files: serde_json::Value = serde_json::from_slice(&eval(dir.path(), &[file, "--json"]).stdout).unwrap();
        files[0]["file"].take();
        files
    };
    assert_eq!(figures(golden), figures("made_up.jsonl"));
}

#[test]
fn json_holds_every_figure_with_its_range_over_seeds() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("made_up.jsonl"), made_up()).unwrap();
    let ran = eval(dir.path(), &["made_up.jsonl", "--json", "--seeds", "4"]);
    let files: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!((&files[0]["seeds"], &files[0]["groups"]), (&4.into(), &16.into()));
    let rows = files[0]["rows"].as_array().unwrap();
    let row = |predictor, history| {
        rows.iter().find(|row| row["predictor"] == predictor && row["history"] == history).unwrap()
    };
    let figure = |row: &serde_json::Value, name: &str| row[name]["median"].as_f64().unwrap();
    assert_eq!(figure(row("oracle", "none"), "mae"), 0.0);
    let (known, cold) = (row("learned", "epoch"), row("learned", "none"));
    assert!(figure(known, "mae") < figure(row("constant", "none"), "mae"), "{known:#}");
    assert!(figure(cold, "spearman_pooled") > figure(row("random", "none"), "spearman_pooled"), "{cold:#}");
    let range = &cold["spearman_fixed_turn"];
    assert!(range["min"].as_f64() <= range["median"].as_f64() && range["median"].as_f64() <= range["max"].as_f64());
}

#[test]
fn a_trace_that_lacks_a_field_is_refused_with_file_line_and_field() {
    let dir = tempfile::tempdir().unwrap();
    let lines = format!("{}{}\n", made_up(), r#"{"task":"t9","add":[1,2]}"#);
    std::fs::write(dir.path().join("short.jsonl"), lines).unwrap();
    std::fs::write(dir.path().join("broken.jsonl.zst"), [0x28, 0xB5, 0x2F, 0xFD, 0xFF, 0xFF]).unwrap();
    std::fs::write(dir.path().join("one.jsonl"), r#"{"task":"t","gen":[1],"add":[1]}"#).unwrap();
    let refusal = |args: &[&str]| {
        let ran = eval(dir.path(), args);
        assert_eq!(ran.stdout, b"", "a refusal prints nothing on standard output");
        format!("{}exit {}", text(ran.stderr), ran.status.code().unwrap())
    };
    insta::assert_snapshot!(refusal(&["short.jsonl"]), @r"
    error: short.jsonl line 49: field `gen` is missing
     next: `venus predict eval --help` says which fields a trajectory needs; totals alone are not enough
    exit 2
    ");
    insta::assert_snapshot!(refusal(&["one.jsonl"]), @r"
    error: one.jsonl has trajectories of 1 tasks, too few for 2 folds
     next: give a file with more tasks, or fewer --folds
    exit 2
    ");
    assert!(refusal(&["broken.jsonl.zst"]).starts_with("error: cannot read the trace broken.jsonl.zst: "));
}
