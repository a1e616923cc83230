//! The first process of a sandbox: it moves in, locks the door behind it and serves.
//!
//! It never runs a program itself, is not dumpable, so that the sandbox's processes cannot read or trace it, and ends
//! when its socket closes or its launcher dies.

mod exec;
mod files;
mod tree;

use crate::cgroup::Hierarchy;
use crate::confine::{self, Filters};
use crate::level::Level;
use crate::protocol::{Call, InitReply, InitRequest};
use crate::rootfs::{self, RootPlan};
use crate::sys;
use crate::wire;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::RecvFlags;
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use venus_core::message::sandbox::{Limits, SandboxErrorKind};

/// What the launcher hands over by forking.
pub(crate) struct Setup<'a> {
    pub socket: &'a OwnedFd,
    pub level: Level,
    /// The cgroup to enter, if not born in it.
    pub cgroup: Option<(&'a dyn Hierarchy, String)>,
    /// The root to build; absent at [`Level::Confined`], where `root` is ready.
    pub plan: Option<&'a RootPlan>,
    /// The sandbox's root, as the init sees it once moved in.
    pub root: PathBuf,
    pub workdir: &'a str,
    /// A host user of its own (only at [`Level::Confined`]).
    pub user: Option<u32>,
    pub limits: Limits,
    pub filters: &'a Filters,
    /// Whether per-process limits stand in for the cgroup's.
    pub memory_rlimit: bool,
    pub pids_rlimit: bool,
}

/// Why a request is not served: what the caller should do and what is wrong.
pub(crate) type Refusal = (SandboxErrorKind, String);

/// Runs the sandbox; the process ends here.
pub(crate) fn run(setup: Setup<'_>) -> ! {
    sys::set_name(c"venus-init");
    let socket = setup.socket;
    let code = match Init::new(setup) {
        Ok(mut init) => init.serve().map_or(1, |()| 0),
        Err(error) => {
            let message = format!("the sandbox could not be set up: {error}");
            // If this fails too, the node learns of the end from the closed socket.
            let _ = wire::send(socket, &InitReply::Failed { kind: SandboxErrorKind::Internal, message }, Vec::new());
            1
        }
    };
    sys::exit_now(code)
}

/// Kills the caller's children that are not in `keep`, with all below them; whether there were any.
pub(crate) fn kill_strays(keep: &[i32]) -> bool {
    tree::kill_below_except(sys::own_pid(), keep)
}

struct Init<'a> {
    socket: &'a OwnedFd,
    signals: OwnedFd,
    files: files::Files,
    starter: exec::Starter,
    /// First process of each running command.
    running: HashMap<i32, Call>,
    /// Whether `kill(-1)` reaches the sandbox's processes and no others.
    alone: bool,
}

impl<'a> Init<'a> {
    fn new(setup: Setup<'a>) -> io::Result<Self> {
        let (signals, files) = move_in(&setup)?;
        Ok(Self {
            socket: setup.socket,
            signals,
            files,
            starter: exec::Starter::new(setup.level, setup.root),
            running: HashMap::new(),
            alone: setup.level != Level::Confined || setup.user.is_some(),
        })
    }

    fn serve(&mut self) -> io::Result<()> {
        wire::send(self.socket, &InitReply::Ready, Vec::new())?;
        loop {
            let mut fds = [PollFd::new(self.socket, PollFlags::IN), PollFd::new(&self.signals, PollFlags::IN)];
            match poll(&mut fds, None) {
                Err(rustix::io::Errno::INTR) => continue,
                other => other?,
            };
            let [requests, signals] = fds.map(|fd| !fd.revents().is_empty());
            if signals {
                sys::drain(&self.signals);
                self.reap()?;
            }
            if requests {
                match wire::recv::<InitRequest>(self.socket, RecvFlags::empty())? {
                    None => return Ok(()),
                    Some((request, fds)) => self.on(request, fds)?,
                }
            }
        }
    }

    fn on(&mut self, request: InitRequest, fds: Vec<OwnedFd>) -> io::Result<()> {
        let (call, outcome) = match request {
            InitRequest::Exec { call, argv, env, cwd, stdin } => {
                let started = self.starter.start(&self.files, argv, env, cwd.as_deref(), fds, stdin);
                (
                    call,
                    started.map(|pid| {
                        self.running.insert(pid, call);
                        None
                    }),
                )
            }
            InitRequest::KillExec { call, target } => {
                if let Some((&pid, _)) = self.running.iter().find(|(_, running)| **running == target) {
                    tree::kill(pid);
                }
                (call, Ok(Some((InitReply::Done { call }, Vec::new()))))
            }
            InitRequest::KillAll { call } => {
                self.kill_all()?;
                (call, Ok(Some((InitReply::Done { call }, Vec::new()))))
            }
            InitRequest::Read { call, path } => {
                (call, self.files.read(&path).map(|fd| Some((InitReply::File { call }, vec![fd]))))
            }
            InitRequest::Write { call, path, mode } => {
                (call, self.files.write(&path, mode).map(|fd| Some((InitReply::File { call }, vec![fd]))))
            }
            InitRequest::Remove { call, path } => {
                (call, self.files.remove(&path).map(|()| Some((InitReply::Done { call }, Vec::new()))))
            }
        };
        match outcome {
            Ok(None) => Ok(()),
            Ok(Some((reply, fds))) => wire::send(self.socket, &reply, fds),
            Err((kind, message)) => wire::send(self.socket, &InitReply::Refused { call, kind, message }, Vec::new()),
        }
    }

    fn reap(&mut self) -> io::Result<()> {
        while let Some((pid, status)) = sys::reap() {
            if let Some(call) = self.running.remove(&pid) {
                wire::send(self.socket, &InitReply::Ended { call, status }, Vec::new())?;
            }
        }
        Ok(())
    }

    fn kill_all(&mut self) -> io::Result<()> {
        for _ in 0..2000 {
            if self.alone {
                // Everything we may signal but ourselves: the pid namespace, or the processes of our own user.
                let _ = sys::kill(-1, libc::SIGKILL);
            } else {
                tree::kill_below(sys::own_pid());
            }
            self.reap()?;
            // Orphans become our children, so nothing is left once we have none.
            if !sys::has_children() {
                return Ok(());
            }
            std::thread::sleep(std::time::Duration::from_micros(500));
        }
        Err(io::Error::other("processes do not end"))
    }
}

fn move_in(setup: &Setup<'_>) -> io::Result<(OwnedFd, files::Files)> {
    if let Some((cgroups, name)) = &setup.cgroup {
        cgroups.enter(name).map_err(|error| io::Error::new(error.kind(), format!("cgroup: {error}")))?;
    }
    // A sandbox's processes die before the trainer does when the host runs out of memory.
    let _ = std::fs::write("/proc/self/oom_score_adj", "500");
    match (setup.plan, setup.user) {
        (Some(plan), _) => {
            sys::become_user(0, 0)?;
            rootfs::enter(plan)?;
            sys::loopback_up()?;
            sys::set_hostname("sandbox")?;
        }
        (None, Some(user)) => {
            // While there still is the right to.
            sys::bound_capabilities(0);
            sys::become_user(user, user)?;
        }
        (None, None) => {}
    }
    if setup.level == Level::Confined {
        sys::prctl(libc::PR_SET_CHILD_SUBREAPER, 1)?;
    }
    let files = files::Files::new(&setup.root, setup.workdir)?;
    files.make_workdir()?;
    let signals = sys::child_signals()?;
    confine::set_rlimits(&setup.limits, setup.memory_rlimit, setup.pids_rlimit)?;
    confine::lock_down(setup.level, &setup.root, setup.filters)?;
    // After the last change of credentials, which would reset both.
    sys::prctl(libc::PR_SET_DUMPABLE, 0)?;
    sys::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as _)?;
    Ok((signals, files))
}
