//! The root file system of a sandbox.
//!
//! Each sandbox has one tmpfs of bounded size, mounted in its own mount namespace, that holds what it writes: nothing of
//! it is on the host's disk, its pages count against the sandbox's memory, and it vanishes with the namespace. The
//! template's layers lie below it read-only, shared by siblings down to the page cache.

use crate::sys;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};

/// Directories of the host that make up its userland.
pub(crate) const USERLAND: &[&str] = &["usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32"];

/// Files and directories of the host's `/etc` that programs need and that hold no secrets.
const HARMLESS_ETC: &[&str] = &[
    "alternatives",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "mime.types",
    "ssl/certs",
    "ssl/openssl.cnf",
    "services",
    "protocols",
    "shells",
    "bash.bashrc",
];

/// How to put a template's root together; paths are relative to the stage directory.
#[derive(Clone, Debug)]
pub(crate) struct RootPlan {
    /// Mount points of this plan alone.
    pub layers: Vec<PathBuf>,
    /// Directories stacked to the root, highest first.
    pub lowers: Vec<PathBuf>,
    /// Trees of the host mounted into the root.
    pub trees: Vec<Tree>,
    /// Whether overlay mounts work here; otherwise layers are copied.
    pub overlay: bool,
    /// Bytes the sandbox may write.
    pub disk: u64,
    /// Whether the sandbox's root may be the host's, which the kernel lets change its settings without any capability.
    pub seal_proc: bool,
}

/// A directory of the host, with what the template's layers put over it.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    /// Its name in the root.
    pub name: String,
    /// Highest first; the last one is the host's.
    pub lowers: Vec<PathBuf>,
    /// Whether the sandbox could change anything in it: only if its ids are mapped or a layer is over it.
    pub writable: bool,
}

/// Builds the root in the caller's own mount namespace and moves into it. The working directory is the stage.
pub(crate) fn enter(plan: &RootPlan) -> io::Result<()> {
    let options = format!("mode=755,size={}", plan.disk);
    named("tmpfs", sys::mount("tmpfs", "box", "tmpfs", libc::MS_NOSUID | libc::MS_NODEV, &options))?;
    let root = Path::new("box/root");
    fs::create_dir(root)?;
    named("root", stack(plan, &plan.lowers, root, "0"))?;
    for (number, tree) in plan.trees.iter().enumerate() {
        let target = root.join(&tree.name);
        let mounted = match tree.lowers.last() {
            Some(host) if !tree.writable || !plan.overlay => sys::bind(host, &target, false),
            _ => stack(plan, &tree.lowers, &target, &(number + 1).to_string()),
        };
        named(&tree.name, mounted)?;
    }
    mount_processes(plan, &root.join("proc"))?;
    mount_devices(&root.join("dev"))?;
    std::env::set_current_dir(root)?;
    named("pivot_root", sys::pivot_here())
}

fn named(what: &str, result: io::Result<()>) -> io::Result<()> {
    result.map_err(|error| io::Error::new(error.kind(), format!("{what}: {error}")))
}

fn mount_processes(plan: &RootPlan, proc: &Path) -> io::Result<()> {
    let quiet = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    named("proc", sys::mount("proc", proc, "proc", quiet, ""))?;
    if plan.seal_proc {
        for name in ["sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi"] {
            let path = proc.join(name);
            if path.exists() {
                named(name, sys::attach(&path, &path, sys::MOUNT_ATTR_SEALED, None))?;
            }
        }
    }
    Ok(())
}

fn mount_devices(dev: &Path) -> io::Result<()> {
    named("dev", sys::bind("dev", dev, true))?;
    let options = "newinstance,ptmxmode=666,mode=620";
    // Without pseudo-terminals programs still run; `script` and `tmux` do not.
    let _ = sys::mount("devpts", dev.join("pts"), "devpts", libc::MS_NOSUID | libc::MS_NOEXEC, options);
    fs::create_dir("box/shm")?;
    fs::set_permissions("box/shm", Permissions::from_mode(0o1777))?;
    named("shm", sys::bind("box/shm", dev.join("shm"), false))
}

/// Lays a fresh writable directory over `lowers` at `target`.
fn stack(plan: &RootPlan, lowers: &[PathBuf], target: &Path, name: &str) -> io::Result<()> {
    if !plan.overlay {
        return lowers.iter().rev().try_for_each(|lower| copy_tree(lower, target));
    }
    let (upper, work) = (format!("box/u{name}"), format!("box/w{name}"));
    fs::create_dir(&upper)?;
    fs::create_dir(&work)?;
    let lowers: Vec<String> = lowers.iter().map(|path| path.to_string_lossy().into_owned()).collect();
    let options = format!("lowerdir={},upperdir={upper},workdir={work},userxattr", lowers.join(":"));
    sys::mount("overlay", target, "overlay", libc::MS_NOSUID | libc::MS_NODEV, &options)
}

/// Makes the mount points every root needs.
pub(crate) fn make_mount_points(root: &Path) -> io::Result<()> {
    for name in ["proc", "sys", "dev", "tmp", "root"] {
        fs::create_dir_all(root.join(name))?;
    }
    fs::set_permissions(root.join("tmp"), Permissions::from_mode(0o1777))?;
    fs::set_permissions(root.join("root"), Permissions::from_mode(0o700))
}

/// Makes the lowest layer of a host-userland root: everything but the trees of [`USERLAND`] that are directories, which
/// are returned to be mounted.
pub(crate) fn make_skeleton(root: &Path) -> io::Result<Vec<String>> {
    make_mount_points(root)?;
    for name in ["etc/ssl", "var/tmp", "var/log", "var/lib", "var/cache", "run", "home", "opt", "srv", "mnt", "media"] {
        fs::create_dir_all(root.join(name))?;
    }
    fs::set_permissions(root.join("var/tmp"), Permissions::from_mode(0o1777))?;
    symlink("/run", root.join("var/run"))?;
    let etc = root.join("etc");
    for name in HARMLESS_ETC {
        let from = Path::new("/etc").join(name);
        if from.symlink_metadata().is_ok() {
            copy_tree(&from, &etc.join(name))?;
        }
    }
    for (name, text) in [
        ("passwd", "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"),
        ("group", "root:x:0:\nnogroup:x:65534:\n"),
        ("hosts", "127.0.0.1 localhost sandbox\n::1 localhost\n"),
        ("hostname", "sandbox\n"),
        ("resolv.conf", ""),
        ("nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n"),
    ] {
        fs::write(etc.join(name), text)?;
    }
    let mut trees = Vec::new();
    for name in USERLAND {
        let host = Path::new("/").join(name);
        match host.symlink_metadata() {
            Ok(data) if data.is_symlink() => symlink(fs::read_link(&host)?, root.join(name))?,
            Ok(data) if data.is_dir() => {
                fs::create_dir(root.join(name))?;
                trees.push((*name).to_owned());
            }
            _ => {}
        }
    }
    Ok(trees)
}

/// Makes `/dev`: the harmless devices, by node where the host lets us and otherwise by mounting the host's.
pub(crate) fn make_devices(dev: &Path, nodes: bool) -> io::Result<()> {
    const DEVICES: [(&str, u32, u32); 6] =
        [("null", 1, 3), ("zero", 1, 5), ("full", 1, 7), ("random", 1, 8), ("urandom", 1, 9), ("tty", 5, 0)];
    fs::create_dir(dev)?;
    for (name, major, minor) in DEVICES {
        let path = dev.join(name);
        if nodes {
            sys::make_device(&path, major, minor)?;
        } else {
            fs::write(&path, "")?;
            sys::bind(Path::new("/dev").join(name), &path, false)?;
        }
    }
    for (name, target) in [
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
        ("ptmx", "pts/ptmx"),
    ] {
        symlink(target, dev.join(name))?;
    }
    fs::create_dir(dev.join("shm"))?;
    fs::create_dir(dev.join("pts"))
}

/// Copies a file, link or directory with its modes, over what is there. Other kinds are left out.
pub(crate) fn copy_tree(from: &Path, to: &Path) -> io::Result<()> {
    let data = from.symlink_metadata()?;
    if data.is_symlink() {
        if to.symlink_metadata().is_ok_and(|old| !old.is_dir()) {
            fs::remove_file(to)?;
        }
        return symlink(fs::read_link(from)?, to);
    }
    if data.is_file() {
        if to.symlink_metadata().is_ok_and(|old| old.is_symlink()) {
            fs::remove_file(to)?;
        }
        return fs::copy(from, to).map(drop);
    }
    if data.is_dir() {
        if !to.is_dir() {
            fs::create_dir(to)?;
        }
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            copy_tree(&entry.path(), &to.join(entry.file_name()))?;
        }
        fs::set_permissions(to, data.permissions())?;
    }
    Ok(())
}

/// Gives a whole tree to a user.
pub(crate) fn give_tree(path: &Path, uid: u32) -> io::Result<()> {
    lchown(path, Some(uid), Some(uid))?;
    if path.symlink_metadata()?.is_dir() {
        for entry in fs::read_dir(path)? {
            give_tree(&entry?.path(), uid)?;
        }
    }
    Ok(())
}
