//! The env node as the coordinator sees it.

use crate::task::Task;
use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;
use venus_core::message::sandbox::{CreateSandbox, Exec, ExecResult, ExecStatus, SandboxError, SandboxErrorKind};

const REMOVE_TIMEOUT: Duration = Duration::from_secs(10);

/// Gives out sandboxes.
pub trait SandboxClient: Send + Sync + 'static {
    /// The lease of one sandbox.
    type Sandbox: Sandbox;

    /// A sandbox in which the task's environment is in place: files, working directory, set-up commands done. The template is
    /// named after the task; a client may make it once and create from it, or create from a general one and call
    /// [`place_environment`].
    ///
    /// Cancelling the future leaves no sandbox behind.
    fn create(
        &self,
        request: CreateSandbox,
        task: &Task,
    ) -> impl Future<Output = Result<Self::Sandbox, SandboxError>> + Send;
}

/// A lease on a sandbox. Dropping it, or cancelling one of its futures and dropping it, kills everything inside and frees it.
pub trait Sandbox: Send + Sync + 'static {
    /// Runs a command to its end or time-out.
    fn exec(&self, exec: Exec) -> impl Future<Output = Result<ExecResult, SandboxError>> + Send;

    /// Writes a file, replacing what was there; missing directories are made. The path is absolute in the sandbox.
    fn write(&self, path: &str, bytes: &[u8], mode: u32) -> impl Future<Output = Result<(), SandboxError>> + Send;

    /// At most `max` bytes from the start of a file. [`SandboxErrorKind::Invalid`] when there is no such file.
    fn read(&self, path: &str, max: u64) -> impl Future<Output = Result<Vec<u8>, SandboxError>> + Send;

    /// Removes a file, or a directory with all in it; fine if there is nothing. A node that can do this from outside should: the
    /// `rm` used otherwise is the sandbox's own.
    fn remove(&self, path: &str) -> impl Future<Output = Result<(), SandboxError>> + Send {
        async move {
            let command = format!("rm -rf {}", quote(&self.locate(path)));
            let result = self.exec(shell("sh", &command, "/", BTreeMap::new(), REMOVE_TIMEOUT)).await?;
            if result.status == (ExecStatus::Exited { code: 0 }) {
                return Ok(());
            }
            Err(invalid(format!("{path} cannot be removed: {}", String::from_utf8_lossy(&result.output))))
        }
    }

    /// Ends every process that is still running inside.
    fn kill_processes(&self) -> impl Future<Output = Result<(), SandboxError>> + Send;

    /// Frees the sandbox and returns when that is done.
    fn kill(self) -> impl Future<Output = Result<(), SandboxError>> + Send;

    /// What a command must call the absolute path `path`. They differ only where the host allows no root of its own.
    fn locate(&self, path: &str) -> String {
        path.to_owned()
    }
}

/// Puts a task's environment into a fresh sandbox: its files, its working directory, then its set-up commands, each within `timeout`.
///
/// # Errors
/// When a file cannot be read or placed, or a set-up command fails; the message has its output.
pub async fn place_environment<S: Sandbox>(sandbox: &S, task: &Task, timeout: Duration) -> Result<(), SandboxError> {
    let environment = &task.environment;
    for file in &environment.files {
        let bytes = file.bytes().map_err(|e| invalid(format!("task {}: cannot read {}: {e}", task.name, file.path)))?;
        sandbox.write(&file.path, &bytes, file.mode).await?;
    }
    run(sandbox, task, &format!("mkdir -p {}", quote(&sandbox.locate(&environment.workdir))), "/", timeout).await?;
    for setup in &environment.setup {
        run(sandbox, task, &setup.command, &setup.workdir, timeout).await?;
    }
    Ok(())
}

async fn run<S: Sandbox>(
    sandbox: &S,
    task: &Task,
    command: &str,
    cwd: &str,
    timeout: Duration,
) -> Result<(), SandboxError> {
    let exec = shell("sh", command, cwd, task.environment.env.clone(), timeout);
    let result = sandbox.exec(exec).await?;
    if result.status == (ExecStatus::Exited { code: 0 }) {
        return Ok(());
    }
    let output = String::from_utf8_lossy(&result.output);
    Err(invalid(format!("task {}: set-up command `{command}` ended with {:?}: {output}", task.name, result.status)))
}

/// `[program, "-c", command]` with 64 KiB of output kept.
pub(crate) fn shell(program: &str, command: &str, cwd: &str, env: BTreeMap<String, String>, timeout: Duration) -> Exec {
    Exec {
        argv: vec![program.to_owned(), "-c".to_owned(), command.to_owned()],
        env,
        cwd: Some(cwd.to_owned()),
        stdin: Vec::new(),
        timeout_ms: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
        max_output: 64 << 10,
    }
}

/// `text` as one word of a POSIX shell.
pub(crate) fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

fn invalid(message: String) -> SandboxError {
    SandboxError { kind: SandboxErrorKind::Invalid, message }
}
