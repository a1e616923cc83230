//! The binary as a user meets it: what it prints, and with which exit code it ends.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::path::Path;
use std::process::Command;

struct Ran {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Ran {
    /// Exit code and standard error, as one text to compare.
    fn refusal(&self) -> String {
        assert_eq!(self.stdout, "", "a refusal prints nothing on standard output");
        format!("{}\nexit {}", self.stderr.trim_end(), self.code.unwrap())
    }
}

fn venus(dir: &Path, args: &[&str]) -> Ran {
    venus_with(dir, args, &[])
}

fn venus_with(dir: &Path, args: &[&str], env: &[(&str, &str)]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_venus"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("VENUS_")) {
        command.env_remove(name);
    }
    let output = command.args(args).envs(env.iter().copied()).current_dir(dir).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

#[test]
fn print_config_shows_every_value_and_where_it_came_from() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("venus.toml"), "[rollout]\ngroup_size = 4\n").unwrap();
    let args = ["train", "--print-config", "--config", "venus.toml", "--steps", "3", "--set", "sandbox.pids=32"];
    let ran = venus_with(dir.path(), &args, &[("VENUS_ENGINE__PAGE_SIZE", "32")]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    insta::assert_snapshot!("print_config", ran.stdout);
}

#[test]
fn wrong_input_is_refused_with_what_to_do_next() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("typo.toml"), "[rollout]\ngroup_sise = 4\n").unwrap();
    let refusal = |args: &[&str]| venus(dir.path(), args).refusal();
    insta::assert_snapshot!(refusal(&["train", "--config", "typo.toml"]), @r"
    error: there is no configuration key rollout.group_sise (file typo.toml:2)
     next: did you mean rollout.group_size?
    exit 2
    ");
    insta::assert_snapshot!(refusal(&["train", "--config", "absent.toml"]), @r"
    error: cannot read the configuration file absent.toml: No such file or directory (os error 2)
     next: `venus train --print-config > FILE` writes one to start from
    exit 2
    ");
    insta::assert_snapshot!(refusal(&["train", "--steps", "few"]), @r#"
    error: run.steps (flag --steps): invalid type: string "few", expected u64
     next: give run.steps a value of the right kind, such as 150
    exit 2
    "#);
    insta::assert_snapshot!(refusal(&["train", "--set", "trainer.epochs"]), @r"
    error: --set trainer.epochs has no value
     next: write --set trainer.epochs=VALUE
    exit 2
    ");
    insta::assert_snapshot!(refusal(&["train", "--resume", "absent"]), @r"
    error: absent does not exist
     next: name the directory given to `venus train --out`, or the one it printed
    exit 2
    ");
    insta::assert_snapshot!(refusal(&["report", "."]), @r"
    error: . holds no run (no config.toml, no log.venus)
     next: name the directory given to `venus train --out`, or the one it printed
    exit 2
    ");
    insta::assert_snapshot!(refusal(&["trian"]), @r"
    error: unrecognized subcommand 'trian'

      tip: a similar subcommand exists: 'train'

    Usage: venus [OPTIONS] <COMMAND>

    For more information, try '--help'.
    exit 2
    ");
}

#[test]
fn tasks_are_listed_and_shown_in_full() {
    let dir = tempfile::tempdir().unwrap();
    let list = venus(dir.path(), &["tasks", "list"]);
    assert_eq!(list.code, Some(0));
    for name in ["lookup", "repair", "restore", "turns"] {
        assert!(list.stdout.contains(name), "no {name} in {}", list.stdout);
    }
    let show = venus(dir.path(), &["tasks", "show", "lookup-heldout-3-7"]);
    for part in ["heldout", "Instruction", "/work/", "/tests/test.sh", "limits"] {
        assert!(show.stdout.contains(part), "no {part} in {}", show.stdout);
    }
    insta::assert_snapshot!(venus(dir.path(), &["tasks", "show", "lokup"]).refusal(), @r"
    error: there is no task lokup
     next: did you mean lookup?
    exit 2
    ");
    insta::assert_snapshot!(venus(dir.path(), &["tasks", "list", "--tasks", "absent"]).refusal(), @r"
    error: absent: can't be read (No such file or directory (os error 2))
     next: correct the task; tasks/README.md says what one needs
    exit 2
    ");
}

#[test]
fn what_cannot_be_converted_is_said() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("model.gguf"), "not a model").unwrap();
    let ran = venus(dir.path(), &["convert", "gguf", "model.gguf", "out"]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("model.gguf") && ran.stderr.contains(" next: "), "{}", ran.stderr);
}

#[test]
fn help_shows_the_verbs() {
    let dir = tempfile::tempdir().unwrap();
    insta::assert_snapshot!("help", venus(dir.path(), &["--help"]).stdout);
    insta::assert_snapshot!("help_train", venus(dir.path(), &["train", "--help"]).stdout);
}

#[test]
fn the_doctor_says_whether_training_can_run_and_exits_accordingly() {
    let dir = tempfile::tempdir().unwrap();
    let ran = venus(dir.path(), &["doctor", "--json"]);
    let findings: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(ran.code, Some(if findings["can_train"].as_bool().unwrap() { 0 } else { 1 }), "{}", ran.stderr);
    assert!(findings["sandbox"].as_array().unwrap().iter().any(|check| check["name"] == "userns"));
}
