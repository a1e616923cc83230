//! The helper process that makes sandboxes.
//!
//! It is the program's own executable started again with a marker in its environment, so nothing has to be installed, and
//! it has one thread, so it may fork and go on in the child. When its node goes away, however that happens, its socket
//! closes; it then kills every sandbox, removes what belongs to them and ends.

mod boxes;
mod stage;
mod sweep;

pub(crate) use boxes::{CONFINED_ID, HOST_ID, NAMESPACES, confined_mark, confined_root};
pub(crate) use stage::{enter_single_id_namespace, map_ids, userns_with_range};
pub(crate) use sweep::clean_up_after;

use crate::probe::Probe;
use crate::protocol::{LauncherEvent, LauncherRequest, Start};
use crate::sys;
use crate::wire;
use boxes::Boxes;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::RecvFlags;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;

/// Set for the launcher's process; its value says what the process is for.
pub(crate) const MARKER: &str = "VENUS_SANDBOX_LAUNCHER";
pub(crate) const SERVE: &str = "serve";
pub(crate) const PROBE: &str = "probe";

/// Turns this process into the launcher if an env node started it as such, and then does not return.
/// Call it first thing in `main`, before any thread is started.
pub fn run_if_requested() {
    let Some(purpose) = std::env::var_os(MARKER) else { return };
    let outcome = match purpose.to_str() {
        Some(SERVE) => serve(),
        Some(PROBE) => print_probe(),
        _ => Err(io::Error::other(format!("{MARKER} is set to something unknown; unset it"))),
    };
    if let Err(error) = &outcome {
        eprintln!("venus sandbox launcher: {error}");
    }
    std::process::exit(i32::from(outcome.is_err()));
}

fn print_probe() -> io::Result<()> {
    serde_json::to_writer(io::stdout(), &Probe::here())?;
    Ok(())
}

/// Takes the socket that the node passed as standard input.
fn take_socket() -> io::Result<OwnedFd> {
    let socket = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    let null = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    Ok(socket)
}

fn serve() -> io::Result<()> {
    let socket = take_socket()?;
    sys::set_name(c"venus-launcher");
    sys::set_umask(0o022);
    // Ctrl-C in a terminal reaches the whole process group; the node decides what it means.
    rustix::process::setsid()?;
    // Its and the inits' few instructions go ahead of an engine that fills every core. Commands run at the usual priority.
    sys::set_nice(-10);
    let signals = sys::child_signals()?;
    let Some((LauncherRequest::Start(start), _)) = wire::recv(&socket, RecvFlags::empty())? else { return Ok(()) };
    let mut boxes = match open(&start) {
        Ok(boxes) => boxes,
        Err(error) => return wire::send(&socket, &LauncherEvent::Unusable(error.to_string()), Vec::new()),
    };
    wire::send(&socket, &LauncherEvent::Started(boxes.description()), Vec::new())?;
    let outcome = boxes_loop(&mut boxes, &socket, &signals);
    boxes.close();
    outcome
}

fn open(start: &Start) -> io::Result<Boxes> {
    sweep::open_state_dir(&start.state_dir)?;
    sweep::sweep(&start.state_dir);
    Boxes::open(start)
}

/// Tells the node something. That it has gone away is found out by the next read.
fn tell(socket: &OwnedFd, event: &LauncherEvent) -> io::Result<()> {
    match wire::send(socket, event, Vec::new()) {
        Err(error) if matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) => Ok(()),
        other => other,
    }
}

fn boxes_loop(boxes: &mut Boxes, socket: &OwnedFd, signals: &OwnedFd) -> io::Result<()> {
    loop {
        let mut fds = [PollFd::new(socket, PollFlags::IN), PollFd::new(signals, PollFlags::IN)];
        match poll(&mut fds, None) {
            Err(rustix::io::Errno::INTR) => continue,
            other => other?,
        };
        let [requested, ended] = fds.map(|fd| !fd.revents().is_empty());
        if ended {
            sys::drain(signals);
            for serial in boxes.reap() {
                tell(socket, &LauncherEvent::Gone(serial))?;
            }
        }
        if !requested {
            continue;
        }
        let Some((request, mut fds)) = wire::recv::<LauncherRequest>(socket, RecvFlags::empty())? else {
            return Ok(());
        };
        match request {
            LauncherRequest::Start(_) => return Err(io::Error::other("started twice")),
            LauncherRequest::Register(template) => boxes.register(template),
            LauncherRequest::Create { serial, template, limits } => {
                let inner = fds.pop().ok_or_else(|| io::Error::other("a sandbox without a socket"))?;
                if !boxes.create(serial, &template, &limits, inner) {
                    tell(socket, &LauncherEvent::Gone(serial))?;
                }
            }
            LauncherRequest::Kill(serial) => boxes.kill(serial),
        }
    }
}
