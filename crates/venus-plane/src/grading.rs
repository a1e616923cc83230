//! From a sandbox whose agent has stopped to a reward.
//!
//! Nothing the agent left behind takes part: its processes are ended, `/tests` and `/logs/verifier` are removed before the grader's files
//! are placed (OpenEnv#1199), and a reward that is there before the grader ran is an error. A grader that breaks, takes too long or leaves no valid
//! reward is an error too, never a reward (rllm#811).

use crate::agent::Failure;
use crate::sandbox::{Sandbox, quote, shell};
use crate::task::{TESTS_DIR, Task, VERIFIER_LOGS, VERIFIER_LOGS_ENV, reward};
use std::future::Future;
use std::time::Duration;
use tokio::time::timeout;
use venus_core::message::sandbox::{Exec, ExecResult, ExecStatus, SandboxError, SandboxErrorKind};

/// Longest reward file read.
const MAX_REWARD_FILE: u64 = 64 << 10;
/// Bytes of a broken grader's output that its error quotes.
const QUOTED_OUTPUT: usize = 400;

/// Grades a task in its sandbox. Each call to the sandbox ends after its own time-out and `grace` at the latest (Raven#150).
///
/// # Errors
/// [`Failure::Grader`] when the grader is at fault, [`Failure::ToolLost`] when the sandbox is.
pub async fn grade<S: Sandbox>(sandbox: &S, task: &Task, grace: Duration) -> Result<f32, Failure> {
    within(grace, sandbox.kill_processes()).await?.map_err(lost)?;
    clear(sandbox, task, grace).await?;
    for file in &task.tests {
        let bytes = file.bytes().map_err(|e| Failure::Grader(format!("cannot read its file {}: {e}", file.path)))?;
        let path = format!("{TESTS_DIR}/{}", file.path);
        within(grace, sandbox.write(&path, &bytes, file.mode)).await?.map_err(|e| failed(e, "cannot be placed"))?;
    }
    let result = run(sandbox, grader(sandbox, task), task.verifier.timeout, grace).await?;
    if result.status == ExecStatus::TimedOut {
        return Err(Failure::Grader(format!("it ran longer than {:?}", task.verifier.timeout)));
    }
    let (txt, json) = reward_files(sandbox, grace).await?;
    let value = reward::parse(txt.as_deref(), json.as_deref()).map_err(|e| {
        let output = String::from_utf8_lossy(&result.output);
        let from = output.char_indices().rev().nth(QUOTED_OUTPUT).map_or(0, |(at, _)| at);
        Failure::Grader(format!("{e}; it ended with {:?} and wrote: {}", result.status, &output[from..]))
    })?;
    let narrow = value as f32;
    if narrow.is_finite() { Ok(narrow) } else { Err(Failure::Grader(format!("its reward {value} does not fit"))) }
}

/// Makes way for the grader, from outside: a shell or an `rm` that the agent replaced has no say. The directories the grader works in
/// are made again if the agent removed them: what is missing in them is for the grader to judge.
async fn clear<S: Sandbox>(sandbox: &S, task: &Task, grace: Duration) -> Result<(), Failure> {
    let place = |path: &str| quote(&sandbox.locate(path));
    for path in [TESTS_DIR, VERIFIER_LOGS] {
        within(grace, sandbox.remove(path)).await?.map_err(|e| failed(e, "has no room"))?;
    }
    let command = format!("mkdir -p {} {}", place(VERIFIER_LOGS), place(&task.environment.workdir));
    let result = run(sandbox, shell("sh", &command, "/", Default::default(), grace), grace, grace).await?;
    if result.status != (ExecStatus::Exited { code: 0 }) {
        let output = String::from_utf8_lossy(&result.output);
        return Err(Failure::Grader(format!("{VERIFIER_LOGS} cannot be made: {output}")));
    }
    match reward_files(sandbox, grace).await? {
        (None, None) => Ok(()),
        _ => Err(Failure::Grader("a reward was there before the grader ran".to_owned())),
    }
}

fn grader<S: Sandbox>(sandbox: &S, task: &Task) -> Exec {
    let mut env = task.environment.env.clone();
    env.extend(task.verifier.env.clone());
    let logs = sandbox.locate(VERIFIER_LOGS);
    if logs != VERIFIER_LOGS {
        env.insert(VERIFIER_LOGS_ENV.to_owned(), logs);
    }
    let script = sandbox.locate(&format!("{TESTS_DIR}/test.sh"));
    let mut exec = shell("sh", "", &task.environment.workdir, env, task.verifier.timeout);
    // The script's own first line chooses its shell, as in Harbor; bash where it has none.
    exec.argv = if starts_with_shebang(task) { vec![script] } else { vec!["bash".to_owned(), script] };
    exec
}

fn starts_with_shebang(task: &Task) -> bool {
    let script = task.tests.iter().find(|file| file.path == "test.sh");
    script.is_some_and(|file| file.mode & 0o111 != 0 && file.bytes().is_ok_and(|bytes| bytes.starts_with(b"#!")))
}

async fn run<S: Sandbox>(sandbox: &S, exec: Exec, limit: Duration, grace: Duration) -> Result<ExecResult, Failure> {
    within(limit + grace, sandbox.exec(exec)).await?.map_err(|e| failed(e, "cannot be run"))
}

async fn reward_files<S: Sandbox>(sandbox: &S, grace: Duration) -> Result<(Option<Vec<u8>>, Option<Vec<u8>>), Failure> {
    let mut found = [None, None];
    for (slot, name) in found.iter_mut().zip(["reward.txt", "reward.json"]) {
        let path = format!("{VERIFIER_LOGS}/{name}");
        *slot = match within(grace, sandbox.read(&path, MAX_REWARD_FILE)).await? {
            Ok(bytes) => Some(bytes),
            Err(e) if e.kind == SandboxErrorKind::Invalid => None,
            Err(e) => return Err(lost(e)),
        };
    }
    let [txt, json] = found;
    Ok((txt, json))
}

async fn within<T>(limit: Duration, call: impl Future<Output = T>) -> Result<T, Failure> {
    timeout(limit, call).await.map_err(|_| Failure::ToolLost(format!("no answer within {limit:?} while grading")))
}

fn lost(error: SandboxError) -> Failure {
    Failure::ToolLost(error.message)
}

/// A refused request is the grader's fault, all else the sandbox's.
fn failed(error: SandboxError, what: &str) -> Failure {
    match error.kind {
        SandboxErrorKind::Invalid => Failure::Grader(format!("it {what}: {}", error.message)),
        _ => lost(error),
    }
}
