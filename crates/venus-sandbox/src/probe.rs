//! What this host lets a node do, found by trying it.

use crate::cgroup;
use crate::confine::Filters;
use crate::launcher::{self, CONFINED_ID, HOST_ID};
use crate::level::{Level, MissingLimit};
use crate::sys::{self, Forked};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

/// One thing tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// What, e.g. `overlay in userns`.
    pub name: String,
    /// Whether it works here.
    pub available: bool,
    /// What was found.
    pub detail: String,
    /// What a user loses without it.
    pub costs_what: String,
}

/// Everything tried, for `venus doctor` and for choosing a [`Level`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    /// In the order tried.
    pub checks: Vec<Check>,
}

impl Probe {
    /// Probes this host in a helper process, so that the caller's own namespaces stay as they are.
    /// The calling program must call [`launcher::run_if_requested`] in its `main`.
    ///
    /// # Errors
    /// If the helper cannot be run.
    pub fn run() -> io::Result<Self> {
        Self::run_with(Path::new("/proc/self/exe"))
    }

    /// The same with a stated launcher executable.
    ///
    /// # Errors
    /// If the helper cannot be run.
    pub fn run_with(launcher: &Path) -> io::Result<Self> {
        let output = Command::new(launcher)
            .env(launcher::MARKER, launcher::PROBE)
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()?;
        serde_json::from_slice(&output.stdout)
            .map_err(|error| io::Error::other(format!("the probe of {} gave no answer: {error}", launcher.display())))
    }

    /// Probes from this process, which must have one thread.
    pub(crate) fn here() -> Self {
        let mut probe = Self::default();
        probe.namespaces();
        probe.cgroups();
        probe.walls();
        probe.devices();
        probe
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.checks.iter().any(|check| check.name == name && check.available)
    }

    /// Whether sandboxes of a level can share layers by overlay mounts.
    pub(crate) fn overlay_at(&self, level: Level) -> bool {
        self.has(if level == Level::Root { "overlay" } else { "overlay in userns" })
    }

    /// The best level, or the wanted one if it works, and why.
    pub(crate) fn choose(&self, wanted: Option<Level>) -> io::Result<(Level, String)> {
        let usable = |level| match level {
            Level::Root => self.has("root"),
            Level::UserNs => self.has("userns"),
            Level::Confined => self.has("seccomp"),
        };
        let detail = |name: &str| self.checks.iter().find(|check| check.name == name).map_or("", |check| &check.detail);
        if let Some(level) = wanted {
            let name = if level == Level::Confined { "seccomp".to_owned() } else { level.to_string() };
            return if usable(level) {
                Ok((level, "asked for".to_owned()))
            } else {
                Err(io::Error::other(format!("level {level} does not work here: {}", detail(&name))))
            };
        }
        if usable(Level::Root) {
            Ok((Level::Root, "running as root with all namespaces".to_owned()))
        } else if usable(Level::UserNs) {
            Ok((Level::UserNs, format!("not as root ({}), but user namespaces work", detail("root"))))
        } else if usable(Level::Confined) {
            Ok((Level::Confined, format!("no namespaces: as root: {}; without: {}", detail("root"), detail("userns"))))
        } else {
            Err(io::Error::other(format!(
                "this host offers neither namespaces nor seccomp ({}); refusing to run tools unconfined",
                detail("seccomp")
            )))
        }
    }

    /// What a level cannot do here beyond cgroup limits.
    pub(crate) fn missing_at(&self, level: Level) -> Vec<MissingLimit> {
        let mut missing = Vec::new();
        let mut say = |name: &str, detail: &str| missing.push(MissingLimit::new(name, detail));
        match sys::landlock_abi() {
            0 => say("landlock", "the kernel has no landlock: paths are walled off by other means only"),
            1..6 => say(
                "landlock scopes",
                "landlock is older than version 6: signals and abstract sockets are not walled off by it",
            ),
            _ => {}
        }
        if level == Level::Root && !self.has("idmapped mounts") {
            say(
                "mapped ids",
                "this file system cannot map ids: sandboxes can read templates' files but not change their copies",
            );
        }
        if level == Level::Confined {
            say("private root", "absolute paths name the host's files; the sandbox's own tree is at $VENUS_ROOT");
            say("process isolation", "the host's process list can be read");
            say(
                "disk limit",
                "what a sandbox writes lies in the state directory; only the size of one file is limited",
            );
            if !self.has("own users") {
                say(
                    "own user",
                    "sandboxes run as this process's user: only landlock keeps them apart, and processes are not limited",
                );
            }
        }
        missing
    }

    fn note(&mut self, name: &str, result: Result<String, String>, costs_what: &str) {
        let (available, detail) = match result {
            Ok(detail) => (true, detail),
            Err(detail) => (false, detail),
        };
        self.checks.push(Check { name: name.to_owned(), available, detail, costs_what: costs_what.to_owned() });
    }

    fn namespaces(&mut self) {
        let root = if sys::effective_uid() == 0 {
            attempt(|| trial(Level::Root, false)).map(|()| "all namespaces and an id range can be made".to_owned())
        } else {
            Err("not running as root".to_owned())
        };
        self.note("root", root, "sandboxes fall to level userns: one id only, limits only where cgroups are delegated");
        let overlay = attempt(|| trial(Level::Root, true)).map(|()| "on tmpfs, over the host's /usr".to_owned());
        self.note("overlay", overlay, "template layers are copied into each sandbox");
        let userns = attempt(|| trial(Level::UserNs, false)).map(|()| "can be made without privilege".to_owned());
        self.note(
            "userns",
            userns,
            "without root, sandboxes fall to level confined: no private root, no private network",
        );
        let overlay = attempt(|| trial(Level::UserNs, true)).map(|()| "works".to_owned());
        self.note("overlay in userns", overlay, "at level userns, template layers are copied into each sandbox");
        let users = attempt(|| sys::become_user(CONFINED_ID, CONFINED_ID)).map(|()| "can be taken on".to_owned());
        self.note(
            "own users",
            users,
            "at level confined, sandboxes run as this process's user and share its process limit",
        );
        let idmap = attempt(idmap_trial).map(|()| "on this file system's /usr".to_owned());
        self.note(
            "idmapped mounts",
            idmap,
            "at level root, sandboxes cannot change files of the host's userland in their own copy",
        );
    }

    fn cgroups(&mut self) {
        let (found, _) = cgroup::detect(&format!("probe-{}", sys::own_pid()));
        let controls = found.as_ref().map(|hierarchy| hierarchy.controls()).unwrap_or_default();
        let directories = found.as_ref().map(|hierarchy| hierarchy.directories()).unwrap_or_default();
        cgroup::remove_directories(&directories);
        let at = directories.first().and_then(|path| path.parent()).map(|path| path.display().to_string());
        let detail = |works: bool| {
            if works { Ok(at.clone().unwrap_or_default()) } else { Err("no writable cgroup controller".to_owned()) }
        };
        self.note(
            "memory limit",
            detail(controls.memory),
            "memory is limited a process, not a sandbox; an OOM kill is not told apart",
        );
        self.note(
            "pids limit",
            detail(controls.pids),
            "RLIMIT_NPROC of the sandbox's user stands in, where it has one",
        );
        self.note("cpu limit", detail(controls.cpu), "a sandbox may use every core");
        let pressure = fs::read_to_string("/proc/pressure/memory").map(|_| "/proc/pressure/memory".to_owned());
        self.note("psi", pressure.map_err(|error| error.to_string()), "memory pressure is not seen before an OOM kill");
    }

    fn walls(&mut self) {
        let seccomp = attempt(|| Filters::new(Level::Confined)?.load_here()).map(|()| "filters load".to_owned());
        self.note("seccomp", seccomp, "no system call is refused; level confined is not possible");
        let landlock = match sys::landlock_abi() {
            0 => Err("not in this kernel or switched off".to_owned()),
            version => Ok(format!("version {version}")),
        };
        self.note("landlock", landlock, "level confined does not wall off the host's files");
        let network = attempt(|| sys::unshare(libc::CLONE_NEWNET)).map(|()| "can be made".to_owned());
        self.note(
            "network namespace",
            network,
            "as this user, only inside a user namespace; at level confined sockets are refused instead",
        );
        let pidfd = rustix::process::pidfd_open(rustix::process::getpid(), rustix::process::PidfdFlags::empty());
        self.note(
            "pidfd",
            pidfd.map(|_| "works".to_owned()).map_err(|error| error.to_string()),
            "processes are named by number only",
        );
    }

    fn devices(&mut self) {
        let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
        for (name, costs) in
            [("erofs", "template images are unpacked"), ("fuse", "template files are not loaded lazily")]
        {
            let found = known.lines().any(|line| line.trim_start_matches("nodev").trim() == name);
            self.note(
                name,
                if found { Ok("known to the kernel".to_owned()) } else { Err("unknown to the kernel".to_owned()) },
                costs,
            );
        }
        let kvm = File::options().read(true).write(true).open("/dev/kvm");
        self.note(
            "kvm",
            kvm.map(|_| "/dev/kvm opens".to_owned()).map_err(|error| error.to_string()),
            "no microvm runtime",
        );
    }
}

/// Runs `body` in a child; its error as text.
fn attempt(body: impl FnOnce() -> io::Result<()>) -> Result<(), String> {
    let run = || -> io::Result<String> {
        let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        match sys::clone3(0, None)? {
            Forked::Child => {
                drop(reader);
                let text = body().err().map(|error| error.to_string()).unwrap_or_default();
                let _ = File::from(writer).write_all(text.as_bytes());
                sys::exit_now(0)
            }
            Forked::Parent(pid) => {
                drop(writer);
                let mut text = String::new();
                File::from(reader).read_to_string(&mut text)?;
                match sys::wait(pid)? {
                    0 => Ok(text),
                    code => Ok(format!("the trial ended with {code}")),
                }
            }
        }
    };
    match run() {
        Ok(text) if text.is_empty() => Ok(()),
        Ok(text) => Err(text),
        Err(error) => Err(error.to_string()),
    }
}

fn named(what: &str) -> impl Fn(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{what}: {error}"))
}

/// Goes the way of a launcher and an init once, in miniature.
fn trial(level: Level, overlay: bool) -> io::Result<()> {
    match level {
        Level::Root => sys::unshare(libc::CLONE_NEWNS).map_err(named("mount namespace"))?,
        _ => launcher::enter_single_id_namespace().map_err(named("user namespace"))?,
    }
    sys::mount("none", "/", "", libc::MS_REC | libc::MS_PRIVATE, "").map_err(named("private mounts"))?;
    sys::mount("tmpfs", "/tmp", "tmpfs", 0, "mode=755").map_err(named("tmpfs"))?;
    fs::create_dir("/tmp/inner")?;
    let (wait, go) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    match sys::clone3(launcher::NAMESPACES as u64, None).map_err(named("namespaces"))? {
        Forked::Child => {
            drop((go, reader));
            let _ = rustix::io::read(&wait, &mut [0_u8; 1]);
            let text = inner_trial(overlay).err().map(|error| error.to_string()).unwrap_or_default();
            let _ = File::from(writer).write_all(text.as_bytes());
            sys::exit_now(0)
        }
        Forked::Parent(pid) => {
            drop(writer);
            let (outside, count) = if level == Level::Root { (HOST_ID, 65536) } else { (0, 1) };
            let mapped = launcher::map_ids(pid, 0, outside, count).map_err(named("id map"));
            drop(go);
            let mut text = String::new();
            File::from(reader).read_to_string(&mut text)?;
            sys::wait(pid)?;
            mapped?;
            if text.is_empty() { Ok(()) } else { Err(io::Error::other(text)) }
        }
    }
}

fn inner_trial(overlay: bool) -> io::Result<()> {
    sys::become_user(0, 0).map_err(named("root of a namespace"))?;
    sys::mount("tmpfs", "/tmp/inner", "tmpfs", 0, "mode=755").map_err(named("tmpfs"))?;
    std::env::set_current_dir("/tmp/inner")?;
    for name in ["proc", "lower", "lower/a", "upper", "work", "root"] {
        fs::create_dir(name)?;
    }
    sys::mount("proc", "proc", "proc", 0, "").map_err(named("proc"))?;
    sys::loopback_up().map_err(named("loopback"))?;
    if overlay {
        let options = "lowerdir=lower:/usr,upperdir=upper,workdir=work,userxattr";
        sys::mount("overlay", "root", "overlay", 0, options).map_err(named("overlay"))?;
        // Needs the attributes that hide a lower directory.
        fs::remove_dir("root/a").and_then(|()| fs::create_dir("root/a")).map_err(named("overlay attributes"))?;
    }
    Ok(())
}

fn idmap_trial() -> io::Result<()> {
    use std::os::fd::AsFd;
    let ids = launcher::userns_with_range(HOST_ID, 65536)?;
    sys::unshare(libc::CLONE_NEWNS)?;
    sys::mount("none", "/", "", libc::MS_REC | libc::MS_PRIVATE, "")?;
    sys::attach(Path::new("/usr"), Path::new("/tmp"), sys::MOUNT_ATTR_SEALED, Some(ids.as_fd()))
}
