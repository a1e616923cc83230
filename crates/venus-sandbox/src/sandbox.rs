//! A sandbox as its holder sees it.

use crate::cgroup;
use crate::command;
use crate::launcher::{confined_mark, confined_root};
use crate::level::Level;
use crate::link::Link;
use crate::node::{Core, error};
use crate::protocol::{Call, InitReply, InitRequest, LauncherRequest, Serial};
use crate::template::Template;
use crate::wire::{self, Packet};
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use venus_core::ids::SandboxId;
use venus_core::message::sandbox::{CreateSandbox, Exec, ExecResult, SandboxError, SandboxErrorKind};

/// A live sandbox. When the last handle is dropped its processes are killed and all that was its own is removed.
pub struct Sandbox {
    lease: Arc<Lease>,
}

/// The hold on one creation.
pub(crate) struct Lease {
    core: Arc<Core>,
    serial: Serial,
    id: SandboxId,
    env: BTreeMap<String, String>,
    link: Link,
    desk: Arc<Desk>,
    calls: AtomicU64,
    gone: watch::Receiver<bool>,
    deadline: JoinHandle<()>,
}

/// Where answers of the init arrive.
struct Desk {
    waiting: Mutex<HashMap<Call, oneshot::Sender<Answer>>>,
    state: watch::Sender<State>,
    /// Why it was ended, if this node did it.
    ended_by: Mutex<Option<&'static str>>,
}

type Answer = (InitReply, Vec<OwnedFd>);

#[derive(Clone, Debug)]
enum State {
    Starting,
    Ready,
    Ended(SandboxError),
}

impl Sandbox {
    pub(crate) fn new(lease: Arc<Lease>) -> Self {
        Self { lease }
    }

    /// Which sandbox this is.
    #[must_use]
    pub fn id(&self) -> SandboxId {
        self.lease.id
    }

    /// Runs a command to its end or time-out. Commands may run at the same time. Processes that it leaves in the background
    /// live on; what they print later is thrown away. A command whose caller stops waiting is killed.
    ///
    /// # Errors
    /// [`SandboxErrorKind::Invalid`] if the program or the working directory does not exist, [`SandboxErrorKind::Busy`] if
    /// the sandbox is at its process limit, [`SandboxErrorKind::Gone`] if the sandbox ended, for example by its deadline.
    pub async fn exec(&self, exec: Exec) -> Result<ExecResult, SandboxError> {
        command::run(&self.lease, exec).await
    }

    /// Writes a regular file, making its directories; what was there is replaced. A relative path is beneath the working
    /// directory; links are followed inside the sandbox only.
    ///
    /// # Errors
    /// [`SandboxErrorKind::Invalid`] if the path cannot be written, [`SandboxErrorKind::Gone`] if the sandbox ended.
    pub async fn write(&self, path: &str, bytes: &[u8], mode: u32) -> Result<(), SandboxError> {
        let path_ = path.to_owned();
        let (_, mut fds) = self.lease.call(|call| InitRequest::Write { call, path: path_, mode }, Vec::new()).await?;
        let file = fds.pop().ok_or_else(malformed)?;
        let bytes = bytes.to_vec();
        let written = blocking(move || File::from(file).write_all(&bytes)).await;
        written.map_err(|failure| {
            error(SandboxErrorKind::Invalid, format!("cannot write {path} in the sandbox: {failure}"))
        })
    }

    /// Reads a regular file.
    ///
    /// # Errors
    /// [`SandboxErrorKind::Invalid`] if it does not exist, is no regular file or is larger than `max` bytes;
    /// [`SandboxErrorKind::Gone`] if the sandbox ended.
    pub async fn read(&self, path: &str, max: usize) -> Result<Vec<u8>, SandboxError> {
        let path_ = path.to_owned();
        let (_, mut fds) = self.lease.call(|call| InitRequest::Read { call, path: path_ }, Vec::new()).await?;
        let file = fds.pop().ok_or_else(malformed)?;
        let bytes = blocking(move || {
            let mut bytes = Vec::new();
            File::from(file).take(max as u64 + 1).read_to_end(&mut bytes).map(|_| bytes)
        });
        let invalid =
            |message: String| error(SandboxErrorKind::Invalid, format!("cannot read {path} in the sandbox: {message}"));
        let bytes = bytes.await.map_err(|failure| invalid(failure.to_string()))?;
        if bytes.len() > max { Err(invalid(format!("it is larger than {max} bytes"))) } else { Ok(bytes) }
    }

    /// Removes a file or a directory with all in it; fine if there is nothing.
    ///
    /// # Errors
    /// [`SandboxErrorKind::Invalid`] if it cannot be removed, [`SandboxErrorKind::Gone`] if the sandbox ended.
    pub async fn remove(&self, path: &str) -> Result<(), SandboxError> {
        let path = path.to_owned();
        self.lease.call(|call| InitRequest::Remove { call, path }, Vec::new()).await.map(drop)
    }

    /// Kills every process that commands left running; the sandbox stays usable.
    ///
    /// # Errors
    /// [`SandboxErrorKind::Gone`] if the sandbox ended.
    pub async fn kill_processes(&self) -> Result<(), SandboxError> {
        self.lease.call(|call| InitRequest::KillAll { call }, Vec::new()).await.map(drop)
    }

    /// What a command must call the absolute path `path`: itself, but for [`Level::Confined`], where the root is a directory
    /// of the host.
    #[must_use]
    pub fn locate(&self, path: &str) -> String {
        let root = self.lease.env.get("VENUS_ROOT").map_or("", String::as_str);
        format!("{root}{path}")
    }

    /// Ends the sandbox and waits until nothing of it is left. Fine if it has ended before.
    pub async fn kill(&self) {
        self.lease.end("it was killed");
        let mut gone = self.lease.gone.clone();
        // The sender is dropped with its node: gone as well.
        let _ = gone.wait_for(|gone| *gone).await;
    }
}

fn malformed() -> SandboxError {
    error(SandboxErrorKind::Internal, "the sandbox's init sent no file")
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

impl Lease {
    /// Asks the launcher for a sandbox.
    pub(crate) fn start(
        core: Arc<Core>,
        serial: Serial,
        request: &CreateSandbox,
        template: Arc<Template>,
        gone: watch::Receiver<bool>,
    ) -> io::Result<Self> {
        let (ours, theirs) = wire::pair()?;
        let desk = Arc::new(Desk {
            waiting: Mutex::default(),
            state: watch::Sender::new(State::Starting),
            ended_by: Mutex::default(),
        });
        let receiving = Arc::clone(&desk);
        let link = Link::open(ours, move |reply| receiving.on(reply))?;
        let env = environment(&core, serial, &template);
        let create =
            LauncherRequest::Create { serial, template: template.name.clone(), limits: request.limits.clone() };
        core.request(&create, vec![theirs]).map_err(io::Error::other)?;
        let deadline = tokio::spawn(enforce(
            Arc::clone(&core),
            serial,
            Arc::clone(&desk),
            Duration::from_millis(request.deadline_ms),
        ));
        Ok(Self { core, serial, id: request.sandbox, env, link, desk, calls: AtomicU64::new(1), gone, deadline })
    }

    /// Waits until the sandbox takes commands.
    pub(crate) async fn ready(&self) -> Result<(), SandboxError> {
        let mut state = self.desk.state.subscribe();
        let state = state.wait_for(|state| !matches!(state, State::Starting)).await;
        match state.as_deref() {
            Ok(State::Ended(failure)) => Err(failure.clone()),
            _ => Ok(()),
        }
    }

    pub(crate) fn ended(&self) -> bool {
        matches!(*self.desk.state.borrow(), State::Ended(_))
    }

    /// Environment of commands before their own.
    pub(crate) fn env(&self) -> &BTreeMap<String, String> {
        &self.env
    }

    /// Sends a request; its answer arrives at the receiver, which fails if the sandbox ends first.
    pub(crate) fn send(
        &self,
        request: impl FnOnce(Call) -> InitRequest,
        fds: Vec<OwnedFd>,
    ) -> Result<(Call, oneshot::Receiver<Answer>), SandboxError> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        let packet = Packet::new(&request(call), fds)
            .map_err(|failure| error(SandboxErrorKind::Internal, format!("cannot ask the sandbox: {failure}")))?;
        let (answer, receiver) = oneshot::channel();
        self.desk.waiting().insert(call, answer);
        // Checked after the insertion, so that an end in between cannot leave the entry waiting.
        if let State::Ended(failure) = &*self.desk.state.borrow() {
            self.desk.waiting().remove(&call);
            return Err(failure.clone());
        }
        self.link.send(packet);
        Ok((call, receiver))
    }

    pub(crate) async fn call(
        &self,
        request: impl FnOnce(Call) -> InitRequest,
        fds: Vec<OwnedFd>,
    ) -> Result<Answer, SandboxError> {
        let (_, answer) = self.send(request, fds)?;
        self.settle(answer.await)
    }

    /// The answer, or why there is none.
    pub(crate) fn settle(&self, answer: Result<Answer, oneshot::error::RecvError>) -> Result<Answer, SandboxError> {
        match answer {
            Ok((InitReply::Refused { kind, message, .. }, _)) => Err(SandboxError { kind, message }),
            Ok(answer) => Ok(answer),
            Err(_) => Err(self.desk.end_error()),
        }
    }

    /// How often the kernel has killed for want of memory in this sandbox; `None` where that cannot be told.
    pub(crate) fn oom_kills(&self) -> Option<u64> {
        let (directory, file) = self.core.started.oom_counter.as_ref()?;
        cgroup::counter(&directory.join(self.serial.to_string()).join(file), "oom_kill ")
    }

    /// Has the launcher kill it.
    pub(crate) fn end(&self, why: &'static str) {
        end(&self.core, self.serial, &self.desk, why);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.deadline.abort();
        self.end("its lease was given back");
    }
}

fn end(core: &Core, serial: Serial, desk: &Desk, why: &'static str) {
    desk.ended_by.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
    // A launcher that has ended has taken its sandboxes along.
    let _ = core.request(&LauncherRequest::Kill(serial), Vec::new());
}

async fn enforce(core: Arc<Core>, serial: Serial, desk: Arc<Desk>, deadline: Duration) {
    tokio::time::sleep(deadline).await;
    end(&core, serial, &desk, "its deadline passed");
}

impl Desk {
    fn waiting(&self) -> MutexGuard<'_, HashMap<Call, oneshot::Sender<Answer>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn on(&self, reply: Option<Answer>) {
        match reply {
            Some((InitReply::Ready, _)) => drop(self.state.send_replace(State::Ready)),
            Some((InitReply::Failed { kind, message }, _)) => {
                self.state.send_replace(State::Ended(SandboxError { kind, message }));
            }
            Some((reply, fds)) => {
                let receiver = reply.call().and_then(|call| self.waiting().remove(&call));
                if let Some(receiver) = receiver {
                    // A caller that stopped waiting does not want it.
                    let _ = receiver.send((reply, fds));
                }
            }
            None => {
                let ended = self.end_error();
                self.state.send_if_modified(|state| {
                    let first = !matches!(state, State::Ended(_));
                    if first {
                        *state = State::Ended(ended);
                    }
                    first
                });
                self.waiting().clear();
            }
        }
    }

    fn end_error(&self) -> SandboxError {
        let why = self.ended_by.lock().unwrap_or_else(PoisonError::into_inner).unwrap_or("its init ended unasked");
        error(SandboxErrorKind::Gone, format!("the sandbox is gone: {why}"))
    }
}

/// What commands find in their environment: a small fixed set, then the template's.
fn environment(core: &Core, serial: Serial, template: &Template) -> BTreeMap<String, String> {
    let confined = core.started.level == Level::Confined;
    let root = if confined { confined_root(&core.started.instance, serial) } else { PathBuf::new() };
    let root = root.to_string_lossy();
    let mut env: BTreeMap<String, String> = [
        ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned()),
        ("HOME", format!("{root}/root")),
        ("TMPDIR", format!("{root}/tmp")),
        ("LANG", "C.UTF-8".to_owned()),
        ("TERM", "dumb".to_owned()),
        ("VENUS_ROOT", root.into_owned()),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value))
    .collect();
    env.extend(template.env.clone());
    if confined {
        env.extend([confined_mark(&core.started.instance)]);
    }
    env
}
