//! The sandboxes of a launcher.

use super::stage::{self, Stage};
use super::sweep::{INSTANCE_VARIABLE, Instance};
use crate::cgroup::{self, Hierarchy};
use crate::confine::Filters;
use crate::init;
use crate::level::{Level, MissingLimit};
use crate::probe::Probe;
use crate::protocol::{InitReply, Serial, Start, Started};
use crate::rootfs::{self, RootPlan};
use crate::sys::{self, Forked};
use crate::template::{Base, Template};
use crate::wire;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use venus_core::message::sandbox::{Limits, SandboxErrorKind};

/// First host id of sandboxes with an id range. Sandboxes share the range; namespaces keep them apart.
pub(crate) const HOST_ID: u32 = 0x7000_0000;
/// First host id of confined sandboxes. Each has its own, and each launcher a range named by its pid, so that no two nodes
/// of a host share one.
pub(crate) const CONFINED_ID: u32 = 0x4000_0000;
/// Ids a launcher has, and so its confined sandboxes at once. The largest pid of a 64-bit kernel, 2^22, still fits.
const CONFINED_IDS: u32 = 128;

pub(crate) const NAMESPACES: i32 = libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC;

/// Templates whose layers stay mounted. Each mount of ours is copied for each sandbox, so their number must not grow with the
/// number of tasks; a template used again is mounted again.
const MOUNTED: usize = 32;

struct Registered {
    template: Template,
    plan: Option<RootPlan>,
    /// When it was last used, in creations.
    used: u64,
}

pub(crate) struct Boxes {
    instance: Instance,
    level: Level,
    reason: String,
    stage: Option<Stage>,
    /// Whether a confined sandbox gets a host user of its own.
    own_users: bool,
    cgroups: Option<Box<dyn Hierarchy>>,
    missing: Vec<MissingLimit>,
    filters: Filters,
    templates: HashMap<String, Registered>,
    uses: u64,
    live: BTreeMap<Serial, Live>,
}

#[derive(Clone, Copy)]
struct Live {
    init: i32,
    /// A host user of its own.
    user: Option<u32>,
}

impl Boxes {
    /// Chooses the level and makes this node's directory, cgroups and stage.
    pub(crate) fn open(start: &Start) -> io::Result<Self> {
        let probe = Probe::here();
        let (level, reason) = probe.choose(start.level)?;
        let instance = Instance::claim(&start.state_dir)?;
        let (cgroups, mut missing) = cgroup::detect(&instance.name);
        instance.note_cgroups(&cgroups.as_ref().map(|found| found.directories()).unwrap_or_default())?;
        missing.extend(probe.missing_at(level));
        let stage = match level {
            Level::Confined => {
                sys::prctl(libc::PR_SET_CHILD_SUBREAPER, 1)?;
                None
            }
            _ => Some(Stage::open(&instance.path, level, probe.overlay_at(level), start.disk)?),
        };
        missing.extend(stage.iter().flat_map(|stage| stage.missing.clone()));
        Ok(Self {
            instance,
            level,
            reason,
            stage,
            own_users: probe.has("own users"),
            cgroups,
            missing,
            filters: Filters::new(level)?,
            templates: HashMap::new(),
            uses: 0,
            live: BTreeMap::new(),
        })
    }

    pub(crate) fn description(&self) -> Started {
        Started {
            level: self.level,
            reason: self.reason.clone(),
            missing: self.missing.clone(),
            oom_counter: self.cgroups.as_ref().and_then(|cgroups| cgroups.oom_counter()),
            instance: self.instance.path.clone(),
        }
    }

    /// Notes a template; one of the same name is replaced.
    pub(crate) fn register(&mut self, template: Template) {
        let registered = Registered { template, plan: None, used: 0 };
        let replaced = self.templates.insert(registered.template.name.clone(), registered);
        if let Some(plan) = replaced.and_then(|old| old.plan) {
            stage::release(&plan);
        }
    }

    /// Lays a template out if it is not, in place of the one used least recently.
    fn lay_out(&mut self, name: &str) -> Result<(), String> {
        self.uses += 1;
        let Some(registered) = self.templates.get_mut(name) else {
            return Err(format!("template {name} is not registered with this node"));
        };
        registered.used = self.uses;
        let Some(stage) = &mut self.stage else {
            return match registered.template.base {
                Base::HostUserland => Ok(()),
                Base::Directory(_) => Err(format!("template {name} needs namespaces: its base is a directory")),
            };
        };
        if registered.plan.is_some() {
            return Ok(());
        }
        let plan = stage.prepare(&registered.template);
        registered.plan = Some(plan.map_err(|error| format!("template {name} cannot be prepared: {error}"))?);
        let mounted = self.templates.values_mut().filter(|registered| registered.plan.is_some());
        if mounted.count() > MOUNTED
            && let Some(oldest) =
                self.templates.values_mut().filter(|one| one.plan.is_some()).min_by_key(|one| one.used)
            && let Some(plan) = oldest.plan.take()
        {
            stage::release(&plan);
        }
        Ok(())
    }

    /// Starts a sandbox. Whatever fails is told over its socket; then `false`.
    pub(crate) fn create(&mut self, serial: Serial, template: &str, limits: &Limits, socket: OwnedFd) -> bool {
        match self.try_create(serial, template, limits, socket) {
            Ok(()) => true,
            Err((socket, kind, message)) => {
                self.remove(serial, None);
                // A node that does not listen any more needs no answer.
                let _ = wire::send(&socket, &InitReply::Failed { kind, message }, Vec::new());
                false
            }
        }
    }

    fn try_create(
        &mut self,
        serial: Serial,
        template: &str,
        limits: &Limits,
        socket: OwnedFd,
    ) -> Result<(), (OwnedFd, SandboxErrorKind, String)> {
        if let Err(message) = self.lay_out(template) {
            return Err((socket, SandboxErrorKind::Invalid, message));
        }
        let registered = &self.templates[template];
        match self.start(serial, registered, limits, &socket) {
            Ok(live) => {
                self.live.insert(serial, live);
                Ok(())
            }
            Err(error) => {
                let full = matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ENOMEM | libc::ENOSPC));
                let kind = if full { SandboxErrorKind::Busy } else { SandboxErrorKind::Internal };
                Err((socket, kind, format!("cannot start a sandbox: {error}")))
            }
        }
    }

    fn start(&self, serial: Serial, registered: &Registered, limits: &Limits, socket: &OwnedFd) -> io::Result<Live> {
        let name = serial.to_string();
        if let Some(cgroups) = &self.cgroups {
            cgroups.create(&name, limits)?;
        }
        let user = (self.stage.is_none() && self.own_users).then(|| self.free_user()).transpose()?;
        let root = match &self.stage {
            Some(_) => PathBuf::from("/"),
            None => make_confined_root(&self.box_path(serial), &registered.template, user)?,
        };
        let target = self.cgroups.as_ref().and_then(|cgroups| cgroups.clone_target(&name));
        let controls = self.cgroups.as_ref().map(|cgroups| cgroups.controls()).unwrap_or_default();
        let setup = init::Setup {
            socket,
            level: self.level,
            cgroup: self.cgroups.as_deref().filter(|_| target.is_none()).map(|cgroups| (cgroups, name)),
            plan: registered.plan.as_ref(),
            root,
            workdir: &registered.template.workdir,
            user,
            limits: limits.clone(),
            filters: &self.filters,
            memory_rlimit: !controls.memory,
            // Counted per user of a user namespace; a user shared with the host's processes cannot be limited so.
            pids_rlimit: !controls.pids && (self.level != Level::Confined || user.is_some()),
        };
        Ok(Live { init: self.clone_init(setup, target)?, user })
    }

    /// Forks an init, which waits until its ids are mapped.
    fn clone_init(&self, setup: init::Setup<'_>, cgroup: Option<OwnedFd>) -> io::Result<i32> {
        let (wait, go) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let namespaces = if self.stage.is_some() { NAMESPACES as u64 } else { 0 };
        match sys::clone3(namespaces, cgroup.as_ref().map(AsFd::as_fd))? {
            Forked::Child => {
                let mut keep = [setup.socket.as_raw_fd(), wait.as_raw_fd()];
                keep.sort_unstable();
                // Nothing to read means that the launcher has died.
                let admitted =
                    sys::close_all_but(&keep).is_ok() && matches!(rustix::io::read(&wait, &mut [0; 1]), Ok(1));
                if admitted { init::run(setup) } else { sys::exit_now(1) }
            }
            Forked::Parent(pid) => {
                let admitted = self.map_ids(pid).and_then(|()| Ok(rustix::io::write(&go, &[1])?));
                if let Err(error) = admitted {
                    let _ = sys::kill(pid, libc::SIGKILL);
                    sys::wait(pid)?;
                    return Err(error);
                }
                Ok(pid)
            }
        }
    }

    fn free_user(&self) -> io::Result<u32> {
        let first = CONFINED_ID + sys::own_pid() as u32 * CONFINED_IDS;
        let mut users = first..first + CONFINED_IDS;
        let taken = |user: &u32| self.live.values().any(|live| live.user == Some(*user));
        users.find(|user| !taken(user)).ok_or_else(|| io::Error::from_raw_os_error(libc::EAGAIN))
    }

    fn map_ids(&self, pid: i32) -> io::Result<()> {
        match self.level {
            Level::Root => stage::map_ids(pid, 0, HOST_ID, 65536),
            Level::UserNs => stage::map_ids(pid, 0, 0, 1),
            Level::Confined => Ok(()),
        }
    }

    pub(crate) fn kill(&self, serial: Serial) {
        if let Some(live) = self.live.get(&serial) {
            // Not reaped yet, so the pid is still its own.
            let _ = sys::kill(live.init, libc::SIGKILL);
        }
    }

    /// Reaps ended inits and removes what belonged to them; the serials of those now gone.
    pub(crate) fn reap(&mut self) -> Vec<Serial> {
        let mut gone = Vec::new();
        while let Some((pid, _)) = sys::reap() {
            if let Some((&serial, &live)) = self.live.iter().find(|(_, live)| live.init == pid) {
                self.live.remove(&serial);
                self.remove(serial, live.user);
                gone.push(serial);
            }
        }
        gone
    }

    fn remove(&self, serial: Serial, user: Option<u32>) {
        if self.stage.is_none() {
            self.end_confined(user);
            let _ = fs::remove_dir_all(self.box_path(serial));
        }
        if let Some(cgroups) = &self.cgroups {
            let name = serial.to_string();
            if cgroups.remove(&name).is_err() {
                // An ended process may be counted a moment longer.
                let groups: Vec<PathBuf> = cgroups.directories().iter().map(|tree| tree.join(&name)).collect();
                cgroup::remove_directories(&groups);
            }
        }
    }

    /// Without a pid namespace, processes outlive their init. Those of a user of their own are killed by that; others have
    /// become children of ours, and any child of ours that is no live init is one of them.
    fn end_confined(&self, user: Option<u32>) {
        let inits: Vec<i32> = self.live.values().map(|live| live.init).collect();
        for _ in 0..2000 {
            if let Some(user) = user {
                // In one go, which a fork bomb cannot outrun.
                let _ = sys::in_child(|| {
                    i32::from(sys::become_user(user, user).and_then(|()| sys::kill(-1, libc::SIGKILL)).is_err())
                });
            }
            if !init::kill_strays(&inits) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_micros(500));
        }
    }

    fn box_path(&self, serial: Serial) -> PathBuf {
        confined_box(&self.instance.path, serial)
    }

    /// Ends all sandboxes and removes everything of this node.
    pub(crate) fn close(mut self) {
        for live in self.live.values() {
            let _ = sys::kill(live.init, libc::SIGKILL);
        }
        for (serial, live) in std::mem::take(&mut self.live) {
            let _ = sys::wait(live.init);
            self.remove(serial, live.user);
        }
        if self.stage.is_some() {
            let _ = std::env::set_current_dir("/");
            let _ = rustix::mount::unmount(self.instance.path.join("stage"), rustix::mount::UnmountFlags::DETACH);
        }
        // Also if somebody has removed the state directory meanwhile.
        cgroup::remove_directories(&self.cgroups.iter().flat_map(|cgroups| cgroups.directories()).collect::<Vec<_>>());
        self.instance.remove();
    }
}

/// Where a confined sandbox's root is.
pub(crate) fn confined_root(instance: &Path, serial: Serial) -> PathBuf {
    confined_box(instance, serial).join("root")
}

/// Environment that marks a confined sandbox's processes as this node's.
pub(crate) fn confined_mark(instance: &Path) -> (String, String) {
    let name = instance.file_name().unwrap_or_default().to_string_lossy().into_owned();
    (INSTANCE_VARIABLE.to_owned(), name)
}

fn confined_box(instance: &Path, serial: Serial) -> PathBuf {
    instance.join(format!("box-{serial}"))
}

fn make_confined_root(directory: &Path, template: &Template, user: Option<u32>) -> io::Result<PathBuf> {
    let root = directory.join("root");
    fs::create_dir_all(&root)?;
    for name in ["tmp", "root"] {
        fs::create_dir(root.join(name))?;
    }
    template.layers.iter().try_for_each(|layer| rootfs::copy_tree(layer, &root))?;
    if let Some(user) = user {
        rootfs::give_tree(&root, user)?;
    }
    Ok(root)
}
