//! Limits on a whole sandbox, by cgroup v1 (also in hybrid set-ups) or v2.

mod v1;
mod v2;

use crate::level::MissingLimit;
use crate::sys;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;
use venus_core::message::sandbox::Limits;

/// Which limits a hierarchy can set for us.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Controls {
    pub memory: bool,
    pub pids: bool,
    pub cpu: bool,
}

/// One way to group and limit processes. Groups are named by creation serial.
pub(crate) trait Hierarchy {
    fn controls(&self) -> Controls;
    /// Makes the group of a sandbox and sets its limits.
    fn create(&self, name: &str, limits: &Limits) -> io::Result<()>;
    /// A group to clone into, where the kernel can; otherwise the new process calls [`Hierarchy::enter`].
    fn clone_target(&self, name: &str) -> Option<OwnedFd>;
    /// Moves the calling process, which has one thread and has not forked yet.
    fn enter(&self, name: &str) -> io::Result<()>;
    /// Removes the group; its processes must have ended.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Where OOM kills are counted: `dir/NAME/file`.
    fn oom_counter(&self) -> Option<(PathBuf, String)>;
    /// The directories that hold all groups of this node, for whoever cleans up after it.
    fn directories(&self) -> Vec<PathBuf>;
}

/// The best hierarchy this process may write to, and what it cannot limit. `instance` names the node.
pub(crate) fn detect(instance: &str) -> (Option<Box<dyn Hierarchy>>, Vec<MissingLimit>) {
    let mounts = Mounts::read();
    let v1 = v1::V1::new(&mounts, instance);
    if v1.controls().memory && v1.controls().pids {
        return report(Some(Box::new(v1)));
    }
    match v2::V2::new(&mounts, instance) {
        Ok(v2) => {
            remove_directories(&v1.directories());
            report(Some(Box::new(v2)))
        }
        Err(_) if v1.controls() != Controls::default() => report(Some(Box::new(v1))),
        Err(_) => report(None),
    }
}

fn report(found: Option<Box<dyn Hierarchy>>) -> (Option<Box<dyn Hierarchy>>, Vec<MissingLimit>) {
    let controls = found.as_ref().map(|hierarchy| hierarchy.controls()).unwrap_or_default();
    let mut missing = Vec::new();
    let why = "no writable cgroup controller (delegate one, or run as root)";
    if !controls.memory {
        missing.push(MissingLimit::new(
            "memory limit",
            format!("{why}: each process may allocate the limit, their sum is not bounded, and an end by it is not told apart"),
        ));
    }
    if !controls.pids {
        missing.push(MissingLimit::new(
            "pids limit",
            format!("{why}: RLIMIT_NPROC of the sandbox's user is used instead"),
        ));
    }
    if !controls.cpu {
        missing.push(MissingLimit::new("cpu limit", format!("{why}: a sandbox may use every core")));
    }
    (found, missing)
}

/// Where cgroup hierarchies are mounted and where this process is in them.
pub(crate) struct Mounts {
    /// Per v1 controller: the directory of this process's group.
    v1: Vec<(String, PathBuf)>,
    /// The same for v2.
    v2: Option<PathBuf>,
}

impl Mounts {
    pub(crate) fn read() -> Self {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let member = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        Self::parse(&mounts, &member)
    }

    fn parse(mounts: &str, member: &str) -> Self {
        let group = |wanted: &str| {
            member.lines().find_map(|line| {
                let (_, rest) = line.split_once(':')?;
                let (controllers, path) = rest.split_once(':')?;
                controllers.split(',').any(|name| name == wanted).then(|| path.to_owned())
            })
        };
        let mut found = Self { v1: Vec::new(), v2: None };
        for line in mounts.lines() {
            let Some((left, right)) = line.split_once(" - ") else { continue };
            let (left, right): (Vec<&str>, Vec<&str>) = (left.split(' ').collect(), right.split(' ').collect());
            let (&[_, _, _, root, point, ..], &[kind, _, options, ..]) = (&left[..], &right[..]) else { continue };
            // In a container the mount may show only the container's part of the hierarchy.
            let directory = |path: String| {
                let inside = path.strip_prefix(root.trim_end_matches('/')).unwrap_or(&path).to_owned();
                Path::new(point).join(inside.trim_start_matches('/'))
            };
            match kind {
                "cgroup" => {
                    for option in options.split(',').filter(|o| ["memory", "pids", "cpu"].contains(o)) {
                        found.v1.extend(group(option).map(|path| (option.to_owned(), directory(path))));
                    }
                }
                "cgroup2" => found.v2 = group("").map(directory),
                _ => {}
            }
        }
        found
    }
}

/// The number after `key` in a file of `key number` lines.
pub(crate) fn counter(file: &Path, key: &str) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    text.lines().find_map(|line| line.strip_prefix(key)?.trim().parse().ok())
}

/// Kills what is left in the directories' groups and removes them. What cannot be removed is returned.
pub(crate) fn remove_directories(directories: &[PathBuf]) -> Vec<PathBuf> {
    let mut left: Vec<PathBuf> = directories.to_vec();
    for round in 0..50 {
        left.retain(|directory| !remove_tree(directory));
        if left.is_empty() {
            break;
        }
        std::thread::sleep(Duration::from_millis(1 + round));
    }
    left
}

fn remove_tree(directory: &Path) -> bool {
    let Ok(entries) = fs::read_dir(directory) else { return !directory.exists() };
    for entry in entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        remove_tree(&entry.path());
    }
    let processes = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
    for pid in processes.lines().filter_map(|line| line.parse().ok()) {
        // It may have ended meanwhile; the next round sees.
        let _ = sys::kill(pid, libc::SIGKILL);
    }
    fs::remove_dir(directory).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_group_is_found_under_its_mount_in_hybrid_and_in_a_container() {
        let mounts = "30 25 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      31 25 0:27 /docker/x /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
                      32 25 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let member = "4:memory:/a/b\n1:cpu,cpuacct:/docker/x/y\n0::/\n";
        let found = Mounts::parse(mounts, member);
        assert_eq!(
            found.v1,
            [
                ("memory".to_owned(), PathBuf::from("/sys/fs/cgroup/memory/a/b")),
                ("cpu".to_owned(), PathBuf::from("/sys/fs/cgroup/cpu,cpuacct/y")),
            ]
        );
        assert_eq!(found.v2, Some(PathBuf::from("/sys/fs/cgroup/unified/")));
    }
}
