//! Running one command: its output comes through a pipe straight to the node, its end through the init.

use crate::node::error;
use crate::output::Shortened;
use crate::protocol::{Call, InitReply, InitRequest};
use crate::sandbox::Lease;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::pipe::{PipeFlags, pipe_with};
use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use venus_core::message::sandbox::{Exec, ExecResult, ExecStatus, SandboxError, SandboxErrorKind};

/// How long a killed command may take to end before the whole sandbox is given up.
const KILL_GRACE: Duration = Duration::from_secs(10);
const CHUNK: usize = 64 << 10;

/// Kills the command if its caller stops waiting.
struct Running<'a> {
    lease: &'a Lease,
    call: Call,
    ended: bool,
}

impl Running<'_> {
    fn kill(&self) {
        // A sandbox that has ended has taken the command along.
        let _ = self.lease.send(|call| InitRequest::KillExec { call, target: self.call }, Vec::new());
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.kill();
        }
    }
}

pub(crate) async fn run(lease: &Lease, exec: Exec) -> Result<ExecResult, SandboxError> {
    let internal = |failure: io::Error| error(SandboxErrorKind::Internal, format!("cannot start a command: {failure}"));
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).map_err(|failure| internal(failure.into()))?;
    let output = receiver(reader).map_err(internal)?;
    let mut fds = vec![writer];
    if !exec.stdin.is_empty() {
        fds.push(sealed(&exec.stdin).map_err(internal)?);
    }
    let mut env = lease.env().clone();
    env.extend(exec.env);
    let (argv, cwd, stdin) = (exec.argv, exec.cwd, !exec.stdin.is_empty());
    let timeout = Duration::from_millis(exec.timeout_ms);
    let mut kept = Shortened::new(exec.max_output as usize);
    let kills_before = lease.oom_kills();
    let begin = Instant::now();
    let (call, answer) = lease.send(|call| InitRequest::Exec { call, argv, env, cwd, stdin }, fds)?;
    let mut running = Running { lease, call, ended: false };
    let ended = follow(&running, output, answer, &mut kept, timeout).await;
    // Either way there is nothing to kill any more: it has ended, or the sandbox has or is given up.
    running.ended = true;
    let (status, timed_out) = ended?;
    let nanos = begin.elapsed().as_nanos() as u64;
    let (output, omitted) = kept.finish();
    let status = if timed_out { ExecStatus::TimedOut } else { verdict(lease, status, kills_before) };
    Ok(ExecResult { status, output, omitted, nanos })
}

/// Reads until the command's first process has ended; its wait status and whether time ran out.
async fn follow(
    running: &Running<'_>,
    mut output: pipe::Receiver,
    mut answer: tokio::sync::oneshot::Receiver<(InitReply, Vec<OwnedFd>)>,
    kept: &mut Shortened,
    timeout: Duration,
) -> Result<(i32, bool), SandboxError> {
    let mut buffer = vec![0; CHUNK];
    let mut timed_out = false;
    let mut open = true;
    let timer = tokio::time::sleep(timeout);
    tokio::pin!(timer);
    let answer = loop {
        tokio::select! {
            biased;
            () = &mut timer => {
                if timed_out {
                    running.lease.end("a command could not be killed");
                    return Err(error(SandboxErrorKind::Gone, "the sandbox is given up: a command could not be killed"));
                }
                timed_out = true;
                running.kill();
                timer.as_mut().reset(tokio::time::Instant::now() + KILL_GRACE);
            }
            answer = &mut answer => break answer,
            read = output.read(&mut buffer), if open => match read {
                Ok(n) if n > 0 => kept.push(&buffer[..n]),
                _ => open = false,
            },
        }
    };
    let (reply, _) = running.lease.settle(answer)?;
    let InitReply::Ended { status, .. } = reply else {
        return Err(error(SandboxErrorKind::Internal, "the sandbox's init gave a wrong answer"));
    };
    if open && !drain(&output, &mut buffer, kept) {
        // Something in the background still holds the pipe. It should neither be killed by a closed pipe nor blocked by a full one.
        tokio::spawn(async move { while matches!(output.read(&mut buffer).await, Ok(n) if n > 0) {} });
    }
    Ok((status, timed_out))
}

/// Takes what the command had written when it ended and no more, as a background process may write for ever; whether the
/// pipe is at its end.
fn drain(output: &pipe::Receiver, buffer: &mut [u8], kept: &mut Shortened) -> bool {
    let mut left = rustix::io::ioctl_fionread(output).unwrap_or(0) as usize;
    loop {
        let wanted = buffer.len().min(left.max(1));
        match rustix::io::read(output, &mut buffer[..wanted]) {
            Ok(0) => return true,
            Ok(n) => {
                kept.push(&buffer[..n]);
                left = left.saturating_sub(n);
                if left == 0 {
                    // One more look would steal from a background process's output; an end of file is found by the reader.
                    return false;
                }
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

/// How a command ended, told apart from an end by the memory limit: the kernel's kill reaches either the command itself or
/// a child whose end a shell passes on as 128 + 9.
fn verdict(lease: &Lease, status: i32, kills_before: Option<u64>) -> ExecStatus {
    let killed = if libc::WIFSIGNALED(status) {
        libc::WTERMSIG(status) == libc::SIGKILL
    } else {
        libc::WEXITSTATUS(status) == 128 + libc::SIGKILL
    };
    if killed && lease.oom_kills() > kills_before {
        ExecStatus::OutOfMemory
    } else if libc::WIFSIGNALED(status) {
        ExecStatus::Signaled { signal: libc::WTERMSIG(status) }
    } else {
        ExecStatus::Exited { code: libc::WEXITSTATUS(status) }
    }
}

fn receiver(reader: OwnedFd) -> io::Result<pipe::Receiver> {
    rustix::io::ioctl_fionbio(&reader, true)?;
    pipe::Receiver::from_owned_fd(reader)
}

/// Standard input as a file that cannot be changed: a pipe would need somebody to fill it.
fn sealed(bytes: &[u8]) -> io::Result<OwnedFd> {
    let mut file = File::from(memfd_create("stdin", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?);
    file.write_all(bytes)?;
    file.rewind()?;
    fcntl_add_seals(&file, SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
    Ok(file.into())
}
