//! Version 2: one tree for all controllers.

use super::{Controls, Hierarchy, Mounts};
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use venus_core::message::sandbox::Limits;

const CPU_PERIOD_US: u64 = 100_000;

/// This node's directory and what it may hand out.
pub(crate) struct V2 {
    directory: PathBuf,
    controls: Controls,
}

impl V2 {
    /// Fails where this process may not make groups or no controller can be handed down.
    pub(crate) fn new(mounts: &Mounts, instance: &str) -> io::Result<Self> {
        let parent = mounts.v2.as_ref().ok_or(io::ErrorKind::NotFound)?;
        Self::under(parent, instance)
    }

    fn under(parent: &Path, instance: &str) -> io::Result<Self> {
        let directory = parent.join(format!("venus-{instance}"));
        fs::create_dir(&directory)?;
        let hand_down = || {
            enable(parent)?;
            enable(&directory)
        };
        let controls = match hand_down() {
            Ok(controls) if controls != Controls::default() => controls,
            outcome => {
                fs::remove_dir(&directory)?;
                return Err(outcome.err().unwrap_or_else(|| io::ErrorKind::Unsupported.into()));
            }
        };
        Ok(Self { directory, controls })
    }
}

/// Hands the controllers a group has down to its children. The kernel refuses this for a group that holds processes
/// itself (other than the root), so whoever delegates a group to us leaves our processes in a child of it, as systemd's
/// `Delegate=yes` with `DelegateSubgroup=` does.
fn enable(group: &Path) -> io::Result<Controls> {
    let here = fs::read_to_string(group.join("cgroup.controllers"))?;
    let mut enabled = Controls::default();
    for (name, flag) in [("memory", &mut enabled.memory), ("pids", &mut enabled.pids), ("cpu", &mut enabled.cpu)] {
        if here.split_whitespace().any(|controller| controller == name) {
            fs::write(group.join("cgroup.subtree_control"), format!("+{name}"))?;
            *flag = true;
        }
    }
    Ok(enabled)
}

impl Hierarchy for V2 {
    fn controls(&self) -> Controls {
        self.controls
    }

    fn create(&self, name: &str, limits: &Limits) -> io::Result<()> {
        let group = self.directory.join(name);
        fs::create_dir(&group)?;
        if let Some(bytes) = limits.memory.filter(|_| self.controls.memory) {
            fs::write(group.join("memory.max"), bytes.0.to_string())?;
            // Absent where the kernel has no swap.
            let _ = fs::write(group.join("memory.swap.max"), "0");
        }
        if let Some(count) = limits.pids.filter(|_| self.controls.pids) {
            fs::write(group.join("pids.max"), count.to_string())?;
        }
        if let Some(millis) = limits.cpu_millis.filter(|_| self.controls.cpu) {
            let quota = u64::from(millis) * CPU_PERIOD_US / 1000;
            fs::write(group.join("cpu.max"), format!("{quota} {CPU_PERIOD_US}"))?;
        }
        Ok(())
    }

    fn clone_target(&self, name: &str) -> Option<OwnedFd> {
        File::open(self.directory.join(name)).ok().map(OwnedFd::from)
    }

    fn enter(&self, name: &str) -> io::Result<()> {
        fs::write(self.directory.join(name).join("cgroup.procs"), "0")
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        match fs::remove_dir(self.directory.join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    fn oom_counter(&self) -> Option<(PathBuf, String)> {
        self.controls.memory.then(|| (self.directory.clone(), "memory.events".to_owned()))
    }

    fn directories(&self) -> Vec<PathBuf> {
        vec![self.directory.clone()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use venus_core::units::Bytes;

    /// A directory with the files the kernel would show; what is written to them stays.
    fn imitation(controllers: &str) -> tempfile::TempDir {
        let parent = tempfile::tempdir().unwrap();
        fs::write(parent.path().join("cgroup.controllers"), controllers).unwrap();
        parent
    }

    #[test]
    fn limits_are_written_in_the_kernels_words() {
        let directory = imitation("cpuset cpu memory pids");
        let hierarchy = V2 { directory: directory.path().to_owned(), controls: enable(directory.path()).unwrap() };
        let limits = Limits { memory: Some(Bytes(1 << 20)), pids: Some(9), cpu_millis: Some(1500), file_size: None };
        hierarchy.create("7", &limits).unwrap();
        let read = |file: &str| fs::read_to_string(directory.path().join("7").join(file)).unwrap();
        assert_eq!(read("memory.max"), "1048576");
        assert_eq!(read("pids.max"), "9");
        assert_eq!(read("cpu.max"), "150000 100000");
        assert!(hierarchy.clone_target("7").is_some());
        assert_eq!(hierarchy.oom_counter().unwrap().1, "memory.events");
    }

    #[test]
    fn a_group_without_controllers_to_hand_down_is_left_as_it_was() {
        let directory = imitation("hugetlb");
        assert!(V2::under(directory.path(), "n").is_err());
        assert!(!directory.path().join("venus-n").exists());
    }
}
