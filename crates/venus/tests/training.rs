//! `venus train` as a user runs it: the real binary, real sandboxes, the built-in model.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use serde_json::Value;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A run small enough for a test: 2 groups of 4, 8 held-out tasks.
fn train(out: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_venus"));
    command.arg("train").args(out);
    for setting in [
        "run.eval_tasks=8",
        "rollout.groups_per_batch=2",
        "rollout.group_size=4",
        "engine.kv_mib=32",
        "run.keep_checkpoints=2",
    ] {
        command.args(["--set", setting]);
    }
    command.stdin(Stdio::null());
    command
}

fn finish(mut command: Command) -> Output {
    let output = command.output().unwrap();
    let shown = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{shown}");
    output
}

fn summary(dir: &Path) -> Value {
    serde_json::from_slice(&fs::read(dir.join("summary.json")).unwrap()).unwrap()
}

#[test]
fn a_run_ends_with_a_summary_a_report_and_every_group_trained_once() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("run");
    let output = finish(train(&["--steps", "2", "--out", dir.to_str().unwrap()]));
    assert!(String::from_utf8_lossy(&output.stdout).contains("done: 2 steps"));

    let summary = summary(&dir);
    assert_eq!(summary["steps"], 2, "{summary}");
    assert_eq!(summary["groups_trained"], 4);
    assert_eq!(summary["groups_lost"], 0);
    assert_eq!(summary["groups_doubled"], 0);
    assert!(summary["heldout_success_first"].is_number() && summary["heldout_success_last"].is_number());
    assert!(summary["tokens_generated"].as_u64().unwrap() > 0);
    assert!(summary["rl_seconds"].as_f64().unwrap() > 0.0);
    // Promise 8: engine and trainer agree on every log-probability.
    assert!(summary["logprob_gap_max"].as_f64().unwrap() < 1e-4, "{summary}");
    let report = fs::read_to_string(dir.join("report.html")).unwrap();
    assert!(report.contains("</html>"));
    let trajectories = fs::read_to_string(dir.join("trajectories.jsonl")).unwrap();
    assert_eq!(trajectories.lines().count(), 16);
}

/// Kills the run with -9 at growing delays, so that it dies in start-up, rollout, training and between them.
#[test]
fn a_run_killed_again_and_again_loses_no_group_and_trains_none_twice() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("run");
    let path = dir.to_str().unwrap();
    kill_after(train(&["--steps", "12", "--out", path]), &dir, Duration::from_millis(1500));
    for delay in [700, 1300, 2100, 2900] {
        kill_after(train(&["--steps", "12", "--resume", path]), &dir, Duration::from_millis(delay));
    }
    finish(train(&["--steps", "12", "--resume", path]));

    let summary = summary(&dir);
    assert_eq!(summary["steps"], 12, "{summary}");
    assert_eq!(summary["groups_trained"], 24, "{summary}");
    assert_eq!(summary["groups_lost"], 0, "{summary}");
    assert_eq!(summary["groups_doubled"], 0, "{summary}");
}

/// Lets a run live for `delay` after its log appears, then kills it. A run that is done sooner is fine.
fn kill_after(mut command: Command, dir: &Path, delay: Duration) {
    let mut child = Killed(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    wait_for("the record", || dir.join("log.venus").exists());
    std::thread::sleep(delay);
    child.0.kill().unwrap();
    let status = child.0.wait().unwrap();
    assert!(status.success() || status.code().is_none(), "the run failed by itself: {status}");
}

/// Waits for something that takes seconds at most, however loaded the machine is.
fn wait_for(what: &str, mut there: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !there() {
        assert!(Instant::now() < deadline, "{what} did not appear");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A child that does not outlive its test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // Fails when it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn ctrl_c_finishes_the_step_saves_and_says_how_to_go_on() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("run");
    let path = dir.to_str().unwrap();
    let mut command = train(&["--steps", "500", "--out", path]);
    let mut child = Killed(command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap());
    wait_for("a checkpoint", || dir.join("checkpoints/v1").exists());
    let pid = rustix::process::Pid::from_child(&child.0);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let status = child.0.wait().unwrap();
    let mut message = String::new();
    std::io::Read::read_to_string(child.0.stderr.as_mut().unwrap(), &mut message).unwrap();
    assert_eq!(status.code(), Some(130), "{message}");
    assert!(message.contains("finishing this step") && message.contains("--resume"), "{message}");
    let summary = summary(&dir);
    assert_eq!(summary["ending"], "stopped");
    assert!(summary["steps"].as_u64().unwrap() >= 1, "{summary}");
    assert!(dir.join("report.html").exists());
}

/// A run directory on a file system of its own, too small for two checkpoints.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn new(mebibytes: u32) -> Option<Self> {
        let disk = tempfile::tempdir().unwrap();
        let size = std::ffi::CString::new(format!("size={mebibytes}m")).unwrap();
        match rustix::mount::mount("tmpfs", disk.path(), "tmpfs", rustix::mount::MountFlags::empty(), &*size) {
            Ok(()) => Some(Self(disk)),
            Err(error) => {
                let _ = writeln!(
                    std::io::stderr(),
                    "SKIPPED: a full disk needs a small file system, and mounting one failed: {error}"
                );
                None
            }
        }
    }

    fn grow(&self, mebibytes: u32) {
        let size = std::ffi::CString::new(format!("size={mebibytes}m")).unwrap();
        rustix::mount::mount_remount(self.0.path(), rustix::mount::MountFlags::empty(), &*size).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // A busy mount goes once the last process lets go of it.
        let _ = rustix::mount::unmount(self.0.path(), rustix::mount::UnmountFlags::DETACH);
    }
}

#[test]
fn a_full_disk_is_named_and_the_run_goes_on_once_there_is_room() {
    let Some(disk) = SmallDisk::new(20) else { return };
    let dir = disk.0.path().join("run");
    let path = dir.to_str().unwrap();
    let output = train(&["--steps", "3", "--out", path]).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains(path) && message.contains("free some space"), "{message}");

    disk.grow(200);
    finish(train(&["--steps", "3", "--resume", path]));
    let summary = summary(&dir);
    assert_eq!(summary["groups_trained"], 6, "{summary}");
    assert_eq!((&summary["groups_lost"], &summary["groups_doubled"]), (&0.into(), &0.into()), "{summary}");
}

#[test]
fn another_seed_in_the_directory_of_a_run_is_refused_and_changes_nothing() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("run");
    let path = dir.to_str().unwrap();
    finish(train(&["--steps", "1", "--out", path]));
    let files = || ["log.venus", "config.toml"].map(|name| fs::read(dir.join(name)).unwrap());
    let before = files();
    let output = train(&["--steps", "2", "--resume", path, "--seed", "99"]).output().unwrap();
    assert!(!output.status.success());
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(message.contains("seed 99"), "{message}");
    assert_eq!(files(), before);
}

#[test]
fn bad_input_is_refused_with_what_to_do_and_leaves_no_run_behind() {
    let temp = tempfile::tempdir().unwrap();
    let missing = temp.path().join("nothing");
    let broken = temp.path().join("model");
    fs::create_dir(&broken).unwrap();
    for file in ["config.json", "tokenizer.json", "model.safetensors"] {
        fs::write(broken.join(file), "{").unwrap();
    }
    let cases: [(&[&str], &str); 4] = [
        (&["--model", broken.to_str().unwrap()], "model: not a usable tokenizer.json"),
        (&["--tasks", missing.to_str().unwrap()], "nothing"),
        (&["--model", missing.to_str().unwrap()], "no model directory"),
        (&["--set", "data.families=[\"lokup\"]"], "lookup"),
    ];
    for (arguments, expected) in cases {
        let dir = temp.path().join("run");
        let output = train(&[&["--steps", "1", "--out", dir.to_str().unwrap()], arguments].concat()).output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && message.contains(expected) && message.contains("next:"), "{message}");
        assert!(!dir.join("log.venus").exists(), "{arguments:?} left a run behind");
    }
}
