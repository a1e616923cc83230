//! Plays tasks with the host's plain `sh` in a temporary directory: good enough for trusted commands, no sandbox.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use venus_plane::task::{Task, VERIFIER_LOGS_ENV, place, reward};

/// A task laid out in a directory of its own.
pub struct Place {
    root: tempfile::TempDir,
    workdir: PathBuf,
}

impl Place {
    pub fn new(task: &Task) -> Self {
        let root = tempfile::tempdir().unwrap();
        place(&task.environment.files, &root.path().join("root")).unwrap();
        place(&task.tests, &root.path().join("tests")).unwrap();
        let workdir = root.path().join("root").join(task.environment.workdir.trim_start_matches('/'));
        fs::create_dir_all(&workdir).unwrap();
        let place = Self { root, workdir };
        for setup in &task.environment.setup {
            assert_eq!(setup.workdir, task.environment.workdir, "only set-up in the working directory is played here");
            place.sh(&setup.command);
        }
        place
    }

    /// Runs a command and gives what an agent is shown of it.
    pub fn sh(&self, command: &str) -> String {
        let mut sh = Command::new("sh");
        sh.args(["-c", &format!("exec 2>&1\n{command}")]).current_dir(&self.workdir).env("LC_ALL", "C");
        let run = sh.stdin(Stdio::null()).output().unwrap();
        let text = String::from_utf8_lossy(&run.stdout).trim_end_matches('\n').to_owned();
        match (run.status.code(), text.is_empty()) {
            (Some(0), true) => "[ok]".into(),
            (Some(0), false) => text,
            (code, true) => format!("[exit {}]", code.unwrap_or(-1)),
            (code, false) => format!("{text}\n[exit {}]", code.unwrap_or(-1)),
        }
    }

    /// Runs the grader and reads the reward it leaves.
    pub fn grade(&self) -> f64 {
        let logs = self.root.path().join("logs");
        let grader = self.root.path().join("tests/test.sh");
        let run = Command::new("sh")
            .arg(grader)
            .current_dir(&self.workdir)
            .env(VERIFIER_LOGS_ENV, &logs)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let read = |name: &str| fs::read(logs.join(name)).ok();
        let reward = reward::parse(read("reward.txt").as_deref(), read("reward.json").as_deref());
        reward.unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&run.stderr)))
    }
}
