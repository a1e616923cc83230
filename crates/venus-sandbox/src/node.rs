//! The node: one launcher, its templates and its sandboxes.

use crate::launcher::{self, MARKER};
use crate::level::{Level, MissingLimit};
use crate::link::Link;
use crate::protocol::{LauncherEvent, LauncherRequest, Serial, Start, Started};
use crate::sandbox::{Lease, Sandbox};
use crate::sys;
use crate::template::Template;
use crate::wire::{self, Packet};
use rustix::net::RecvFlags;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use venus_core::ids::SandboxId;
use venus_core::message::sandbox::{CreateSandbox, SandboxError, SandboxErrorKind};

/// A launcher that has not answered by then does not know what it is (see [`launcher::run_if_requested`]).
const HANDSHAKE: Duration = Duration::from_secs(20);
/// Latencies kept for [`NodeStats`].
const LATENCIES: usize = 4096;

/// How a node is set up.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// Executable that calls [`launcher::run_if_requested`]; this program itself by default.
    pub launcher: PathBuf,
    /// Directory for what outlives a crash: locks and, at [`Level::Confined`], sandboxes' files. Nodes may share it.
    /// At [`Level::Confined`] every user must be able to pass through it.
    pub state_dir: PathBuf,
    /// Use this level or fail; the best one by default.
    pub level: Option<Level>,
    /// Bytes a sandbox may write to its root (they count against its memory limit too).
    pub disk: u64,
    /// Sandboxes at once; more are refused as [`SandboxErrorKind::Busy`].
    pub max_sandboxes: usize,
}

impl Default for NodeOptions {
    fn default() -> Self {
        Self {
            launcher: PathBuf::from("/proc/self/exe"),
            state_dir: default_state_dir(),
            level: None,
            disk: 512 << 20,
            max_sandboxes: 1024,
        }
    }
}

fn default_state_dir() -> PathBuf {
    match sys::effective_uid() {
        0 if Path::new("/run").is_dir() => PathBuf::from("/run/venus"),
        uid => std::env::temp_dir().join(format!("venus-{uid}")),
    }
}

/// Counters of a node since its start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeStats {
    /// Sandboxes there are.
    pub live: usize,
    /// Sandboxes created.
    pub created: u64,
    /// Creations that failed.
    pub failed: u64,
    /// Nanoseconds from request to ready, of the latest creations.
    pub create_nanos: Vec<u64>,
}

/// A host's sandboxes. Dropping it ends them all and removes everything that was theirs.
pub struct EnvNode {
    core: Arc<Core>,
    launcher: Option<Child>,
    max_sandboxes: usize,
}

/// What sandboxes need of their node.
pub(crate) struct Core {
    link: Mutex<Option<Link>>,
    pub(crate) started: Started,
    state: Mutex<State>,
    serials: AtomicU64,
}

#[derive(Default)]
struct State {
    launcher_ended: bool,
    templates: HashMap<String, Arc<Template>>,
    sandboxes: HashMap<SandboxId, (CreateSandbox, Weak<Lease>)>,
    /// Told when everything of a sandbox is gone.
    gone: HashMap<Serial, watch::Sender<bool>>,
    created: u64,
    failed: u64,
    latencies: VecDeque<u64>,
}

pub(crate) fn error(kind: SandboxErrorKind, message: impl Into<String>) -> SandboxError {
    SandboxError { kind, message: message.into() }
}

impl EnvNode {
    /// Starts the launcher, removes what dead nodes left, and picks the level. Call within a tokio runtime.
    ///
    /// # Errors
    /// [`SandboxErrorKind::Unsupported`] if this host can give no (or not the wanted) isolation.
    pub fn start(options: NodeOptions) -> Result<Self, SandboxError> {
        if std::env::var_os(MARKER).is_some() {
            let message =
                "this process was started as a sandbox launcher but its main does not call launcher::run_if_requested";
            return Err(error(SandboxErrorKind::Internal, message));
        }
        let failed = |error_: io::Error| {
            error(SandboxErrorKind::Internal, format!("cannot start the sandbox launcher: {error_}"))
        };
        let (socket, mut child) = spawn_launcher(&options.launcher).map_err(failed)?;
        let start = Start { state_dir: options.state_dir, level: options.level, disk: options.disk };
        let started = shake_hands(&socket, start).map_err(failed).and_then(|event| match event {
            LauncherEvent::Started(started) => Ok(started),
            LauncherEvent::Unusable(reason) => Err(error(SandboxErrorKind::Unsupported, reason)),
            LauncherEvent::Gone(_) => Err(failed(io::ErrorKind::InvalidData.into())),
        });
        let started = started.inspect_err(|_| {
            // It has ended or is no launcher at all.
            let _ = child.kill().and_then(|()| child.wait().map(drop));
        })?;
        tracing::info!(level = %started.level, reason = started.reason, "env node started");
        for missing in &started.missing {
            tracing::warn!(limit = missing.name, detail = missing.detail, "this host lacks a limit");
        }
        let core =
            Arc::new(Core { link: Mutex::new(None), started, state: Mutex::default(), serials: AtomicU64::new(1) });
        let events = Arc::downgrade(&core);
        let link = Link::open(socket, move |event| {
            if let Some(core) = events.upgrade() {
                core.on(event.map(|(event, _)| event));
            }
        });
        *core.link() = Some(link.map_err(failed)?);
        Ok(Self { core, launcher: Some(child), max_sandboxes: options.max_sandboxes })
    }

    /// The isolation sandboxes get.
    #[must_use]
    pub fn level(&self) -> Level {
        self.core.started.level
    }

    /// Why it is that level.
    #[must_use]
    pub fn level_reason(&self) -> &str {
        &self.core.started.reason
    }

    /// Limits and walls that this host does not let the node set.
    #[must_use]
    pub fn missing_limits(&self) -> &[MissingLimit] {
        &self.core.started.missing
    }

    /// A directory of this node's own that every sandbox's user can pass through, for what its templates are made of. It is
    /// removed with the node, or by the next node if this one is killed.
    #[must_use]
    pub fn scratch(&self) -> &Path {
        &self.core.started.instance
    }

    /// Makes a template known; one of the same name is replaced for sandboxes created from now on.
    ///
    /// # Errors
    /// [`SandboxErrorKind::Invalid`] if a directory does not exist. What only the launcher can find out is told by `create`.
    pub fn register_template(&self, template: Template) -> Result<(), SandboxError> {
        template.validate()?;
        self.core.request(&LauncherRequest::Register(template.clone()), Vec::new())?;
        self.core.state().templates.insert(template.name.clone(), Arc::new(template));
        Ok(())
    }

    /// Makes a sandbox and waits until it takes commands. A repeated request gives another handle to the same sandbox,
    /// which lives until the last handle is dropped, it is killed, or its deadline passes.
    ///
    /// # Errors
    /// [`SandboxErrorKind::Invalid`] for an unknown template or an id used by a different request,
    /// [`SandboxErrorKind::Busy`] if the node is full, [`SandboxErrorKind::Gone`] if it ended meanwhile.
    pub async fn create(&self, request: CreateSandbox) -> Result<Sandbox, SandboxError> {
        let begin = Instant::now();
        let (lease, repeated) = self.lease(request)?;
        let outcome = lease.ready().await;
        if !repeated {
            let mut state = self.core.state();
            match &outcome {
                Ok(()) => {
                    state.created += 1;
                    if state.latencies.len() == LATENCIES {
                        state.latencies.pop_front();
                    }
                    state.latencies.push_back(begin.elapsed().as_nanos() as u64);
                }
                Err(_) => state.failed += 1,
            }
        }
        outcome.map(|()| Sandbox::new(lease))
    }

    /// Counters.
    #[must_use]
    pub fn stats(&self) -> NodeStats {
        let state = self.core.state();
        NodeStats {
            live: state.gone.len(),
            created: state.created,
            failed: state.failed,
            create_nanos: state.latencies.iter().copied().collect(),
        }
    }

    /// Ends all sandboxes and waits until everything that was theirs is removed.
    pub async fn shutdown(mut self) {
        drop(self.core.link().take());
        if let Some(child) = self.launcher.take() {
            let instance = self.core.started.instance.clone();
            // Whether all could be removed shows in the state directory; the next node tries again.
            let _ = tokio::task::spawn_blocking(move || await_end(child, &instance)).await;
        }
    }

    /// Finds the lease of a repeated request or starts a new one.
    fn lease(&self, request: CreateSandbox) -> Result<(Arc<Lease>, bool), SandboxError> {
        let mut state = self.core.state();
        if let Some((known, lease)) = state.sandboxes.get(&request.sandbox)
            && let Some(lease) = lease.upgrade().filter(|lease| !lease.ended())
        {
            return if *known == request {
                Ok((lease, true))
            } else {
                let message = format!("sandbox {} exists and was asked for differently", request.sandbox);
                Err(error(SandboxErrorKind::Invalid, message))
            };
        }
        let Some(template) = state.templates.get(&request.template).cloned() else {
            let message = format!("template {} is not registered with this node", request.template);
            return Err(error(SandboxErrorKind::Invalid, message));
        };
        if state.launcher_ended {
            return Err(launcher_ended());
        }
        if state.gone.len() >= self.max_sandboxes {
            let message = format!("the node holds its {} sandboxes; wait for one to end", self.max_sandboxes);
            return Err(error(SandboxErrorKind::Busy, message));
        }
        let serial = self.core.serials.fetch_add(1, Ordering::Relaxed);
        let (gone, watch) = watch::channel(false);
        state.gone.insert(serial, gone);
        state.sandboxes.retain(|_, (_, lease)| lease.strong_count() > 0);
        let lease = Lease::start(Arc::clone(&self.core), serial, &request, template, watch);
        let lease = match lease {
            Ok(lease) => Arc::new(lease),
            Err(failure) => {
                state.gone.remove(&serial);
                return Err(error(SandboxErrorKind::Internal, format!("cannot ask for a sandbox: {failure}")));
            }
        };
        state.sandboxes.insert(request.sandbox, (request, Arc::downgrade(&lease)));
        Ok((lease, false))
    }
}

impl Drop for EnvNode {
    fn drop(&mut self) {
        drop(self.core.link().take());
        if let Some(child) = self.launcher.take() {
            let instance = self.core.started.instance.clone();
            // It cleans up whether we wait or not.
            std::thread::spawn(move || await_end(child, &instance));
        }
    }
}

impl Core {
    fn link(&self) -> MutexGuard<'_, Option<Link>> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the launcher for something.
    pub(crate) fn request(&self, request: &LauncherRequest, fds: Vec<OwnedFd>) -> Result<(), SandboxError> {
        let packet = Packet::new(request, fds)
            .map_err(|failure| error(SandboxErrorKind::Internal, format!("cannot ask the launcher: {failure}")))?;
        match &*self.link() {
            Some(link) => link.send(packet),
            None => return Err(launcher_ended()),
        }
        Ok(())
    }

    fn on(&self, event: Option<LauncherEvent>) {
        let mut state = self.state();
        match event {
            Some(LauncherEvent::Gone(serial)) => {
                if let Some(gone) = state.gone.remove(&serial) {
                    gone.send_replace(true);
                }
            }
            Some(_) => {}
            None => {
                state.launcher_ended = true;
                for (_, gone) in state.gone.drain() {
                    gone.send_replace(true);
                }
            }
        }
    }
}

/// Waits for a launcher, which ends by itself once its socket is closed, and cleans up in its place if it was killed.
fn await_end(mut launcher: Child, instance: &Path) {
    if launcher.wait().is_ok() {
        launcher::clean_up_after(instance);
    }
}

fn launcher_ended() -> SandboxError {
    error(SandboxErrorKind::Gone, "the node's launcher has ended and its sandboxes with it; start the node again")
}

fn spawn_launcher(executable: &Path) -> io::Result<(OwnedFd, Child)> {
    let (ours, theirs) = wire::pair()?;
    let mut command = Command::new(executable);
    command.arg0("venus-sandbox-launcher").env_clear().env(MARKER, launcher::SERVE);
    if let Some(path) = std::env::var_os("LD_LIBRARY_PATH") {
        command.env("LD_LIBRARY_PATH", path);
    }
    let child = command.stdin(theirs).stdout(Stdio::null()).spawn()?;
    Ok((ours, child))
}

fn shake_hands(socket: &OwnedFd, start: Start) -> io::Result<LauncherEvent> {
    wire::send(socket, &LauncherRequest::Start(start), Vec::new())?;
    rustix::net::sockopt::set_socket_timeout(socket, rustix::net::sockopt::Timeout::Recv, Some(HANDSHAKE))?;
    let advice = "it ended or is no launcher; its main must call venus_sandbox::launcher::run_if_requested first";
    match wire::recv(socket, RecvFlags::empty()) {
        Ok(Some((event, _))) => Ok(event),
        Ok(None) => Err(io::Error::other(advice)),
        Err(failure) => Err(io::Error::other(format!("{failure}: {advice}"))),
    }
}
