//! The launcher's private mount namespace: devices, the host's userland and templates' layers, laid out once so that a
//! sandbox needs few mounts of its own.

use super::boxes::HOST_ID;
use crate::level::{Level, MissingLimit};
use crate::rootfs::{self, RootPlan, Tree};
use crate::sys::{self, Forked};
use crate::template::{Base, Template};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Ids a sandbox has at [`Level::Root`].
const IDS: u32 = 65536;

pub(crate) struct Stage {
    level: Level,
    overlay: bool,
    disk: u64,
    /// Maps the host's ids to a sandbox's, for mounts.
    ids: Option<OwnedFd>,
    /// Trees of the host's userland, laid out on first use.
    host: Option<Vec<String>>,
    layers: usize,
    pub(crate) missing: Vec<MissingLimit>,
}

impl Stage {
    /// Moves this process into namespaces of its own and lays out what all sandboxes share.
    pub(crate) fn open(instance: &Path, level: Level, overlay: bool, disk: u64) -> io::Result<Self> {
        match level {
            Level::UserNs => enter_single_id_namespace()?,
            _ => sys::unshare(libc::CLONE_NEWNS)?,
        }
        sys::mount("none", "/", "", libc::MS_REC | libc::MS_PRIVATE, "")?;
        let directory = instance.join("stage");
        fs::create_dir(&directory)?;
        sys::mount("tmpfs", &directory, "tmpfs", libc::MS_NOSUID, "mode=755")?;
        std::env::set_current_dir(&directory)?;
        fs::create_dir("box")?;
        rootfs::make_devices(Path::new("dev"), level == Level::Root)?;
        let mut missing = Vec::new();
        let ids = (level == Level::Root).then(|| userns_with_range(HOST_ID, IDS)).transpose()?;
        if level == Level::UserNs {
            missing.push(MissingLimit::new(
                "id range",
                "only one id exists in a sandbox: the host's programs cannot be changed and ownership cannot be given away",
            ));
        }
        if !overlay {
            missing.push(MissingLimit::new(
                "overlay",
                "layers are copied into each sandbox instead of shared, and what they put into /usr is not seen",
            ));
        }
        Ok(Self { level, overlay, disk, ids, host: None, layers: 0, missing })
    }

    /// Lays a template's layers out.
    pub(crate) fn prepare(&mut self, template: &Template) -> io::Result<RootPlan> {
        let mut layers = Vec::new();
        let plan = self.plan(template, &mut layers);
        if plan.is_err() {
            unmount(&layers);
        }
        plan
    }

    fn plan(&mut self, template: &Template, layers: &mut Vec<PathBuf>) -> io::Result<RootPlan> {
        for layer in &template.layers {
            self.lay_out(layer, layers)?;
        }
        let mut lowers: Vec<PathBuf> = layers.iter().rev().cloned().collect();
        let mut trees = Vec::new();
        match &template.base {
            Base::Directory(path) => {
                self.lay_out(path, layers)?;
                lowers.extend(layers.last().cloned());
                if !Path::new("bare").exists() {
                    fs::create_dir("bare")?;
                    rootfs::make_mount_points(Path::new("bare"))?;
                    self.own("bare")?;
                }
                lowers.push(PathBuf::from("bare"));
            }
            Base::HostUserland => {
                for name in self.host_trees()? {
                    let mut over: Vec<PathBuf> = lowers.iter().map(|layer| layer.join(&name)).collect();
                    over.retain(|path| path.is_dir());
                    let writable = self.level == Level::Root || !over.is_empty();
                    over.push(Path::new("trees").join(&name));
                    trees.push(Tree { name, lowers: over, writable });
                }
                lowers.push(PathBuf::from("host"));
            }
        }
        Ok(RootPlan {
            layers: std::mem::take(layers),
            lowers,
            trees,
            overlay: self.overlay,
            disk: self.disk,
            seal_proc: self.level == Level::UserNs,
        })
    }

    fn host_trees(&mut self) -> io::Result<Vec<String>> {
        if let Some(trees) = &self.host {
            return Ok(trees.clone());
        }
        fs::create_dir("host")?;
        let trees = rootfs::make_skeleton(Path::new("host"))?;
        self.own("host")?;
        for name in &trees {
            let target = Path::new("trees").join(name);
            fs::create_dir_all(&target)?;
            self.attach(&Path::new("/").join(name), &target)?;
        }
        self.host = Some(trees.clone());
        Ok(trees)
    }

    fn lay_out(&mut self, source: &Path, layers: &mut Vec<PathBuf>) -> io::Result<()> {
        let target = PathBuf::from(format!("l{}", self.layers));
        self.layers += 1;
        fs::create_dir(&target)?;
        layers.push(target.clone());
        self.attach(source, &target)
    }

    /// Makes a directory of the host appear in the stage, read-only and owned by the sandboxes' root if it is by ours.
    fn attach(&self, source: &Path, target: &Path) -> io::Result<()> {
        let mapped =
            self.ids.as_ref().map(|ids| sys::attach(source, target, sys::MOUNT_ATTR_SEALED, Some(ids.as_fd())));
        match mapped {
            Some(Ok(())) => Ok(()),
            // Not every file system can map ids; then its files belong to nobody the sandbox knows, and can be read.
            _ => sys::attach(source, target, sys::MOUNT_ATTR_SEALED, None),
        }
    }

    fn own(&self, path: &str) -> io::Result<()> {
        if self.level == Level::Root { rootfs::give_tree(Path::new(path), HOST_ID) } else { Ok(()) }
    }
}

/// Lets go of what a plan has mounted; sandboxes have mounts of their own of what they use.
pub(crate) fn release(plan: &RootPlan) {
    unmount(&plan.layers);
}

fn unmount(layers: &[PathBuf]) {
    for layer in layers {
        // What stays is a mount point that nobody uses, gone with the launcher.
        let _ = rustix::mount::unmount(layer, rustix::mount::UnmountFlags::DETACH);
        let _ = fs::remove_dir(layer);
    }
}

/// Makes a user namespace whose ids from 0 on are the host's from `first` on.
pub(crate) fn userns_with_range(first: u32, count: u32) -> io::Result<OwnedFd> {
    let (wait, go) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    match sys::clone3(libc::CLONE_NEWUSER as u64, None)? {
        Forked::Child => {
            drop(go);
            // Until the parent has opened the namespace.
            let _ = rustix::io::read(&wait, &mut [0_u8; 1]);
            sys::exit_now(0)
        }
        Forked::Parent(pid) => {
            let opened =
                map_ids(pid, 0, first, count).and_then(|()| File::open(format!("/proc/{pid}/ns/user"))).map(Into::into);
            drop(go);
            sys::wait(pid)?;
            opened
        }
    }
}

/// Maps ids of a fresh user namespace, from outside.
pub(crate) fn map_ids(pid: i32, inside: u32, outside: u32, count: u32) -> io::Result<()> {
    let line = format!("{inside} {outside} {count}");
    fs::write(format!("/proc/{pid}/uid_map"), &line)?;
    fs::write(format!("/proc/{pid}/gid_map"), &line)
}

/// Moves this process into a user and a mount namespace in which it is root and its own user is the only id.
pub(crate) fn enter_single_id_namespace() -> io::Result<()> {
    let (uid, gid) = (sys::effective_uid(), sys::effective_gid());
    sys::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS)?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("0 {uid} 1"))?;
    fs::write("/proc/self/gid_map", format!("0 {gid} 1"))
}
