//! Version 1: one tree a controller. Also for hybrid set-ups, where version 2 exists beside it without these controllers.

use super::{Controls, Hierarchy, Mounts};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use venus_core::message::sandbox::Limits;

const CPU_PERIOD_US: u64 = 100_000;

/// This node's directory in each controller's tree, where we may make one.
pub(crate) struct V1 {
    memory: Option<PathBuf>,
    pids: Option<PathBuf>,
    cpu: Option<PathBuf>,
}

impl V1 {
    pub(crate) fn new(mounts: &Mounts, instance: &str) -> Self {
        let own = |controller: &str| {
            let (_, parent) = mounts.v1.iter().find(|(name, _)| name == controller)?;
            let directory = parent.join(format!("venus-{instance}"));
            fs::create_dir(&directory).ok().map(|()| directory)
        };
        Self { memory: own("memory"), pids: own("pids"), cpu: own("cpu") }
    }

    fn trees(&self) -> impl Iterator<Item = &PathBuf> {
        [&self.memory, &self.pids, &self.cpu].into_iter().flatten()
    }
}

impl Hierarchy for V1 {
    fn controls(&self) -> Controls {
        Controls { memory: self.memory.is_some(), pids: self.pids.is_some(), cpu: self.cpu.is_some() }
    }

    fn create(&self, name: &str, limits: &Limits) -> io::Result<()> {
        // A tree in which this sandbox has no limit is left out. Memory stays for its OOM count.
        if let Some(tree) = &self.memory {
            let group = tree.join(name);
            fs::create_dir(&group)?;
            if let Some(bytes) = limits.memory {
                fs::write(group.join("memory.limit_in_bytes"), bytes.0.to_string())?;
                // Absent without swap accounting; then there is no swap to limit.
                let _ = fs::write(group.join("memory.memsw.limit_in_bytes"), bytes.0.to_string());
            }
        }
        if let (Some(tree), Some(count)) = (&self.pids, limits.pids) {
            let group = tree.join(name);
            fs::create_dir(&group)?;
            fs::write(group.join("pids.max"), count.to_string())?;
        }
        if let (Some(tree), Some(millis)) = (&self.cpu, limits.cpu_millis) {
            let group = tree.join(name);
            fs::create_dir(&group)?;
            fs::write(group.join("cpu.cfs_period_us"), CPU_PERIOD_US.to_string())?;
            fs::write(group.join("cpu.cfs_quota_us"), (u64::from(millis) * CPU_PERIOD_US / 1000).to_string())?;
        }
        Ok(())
    }

    fn clone_target(&self, _: &str) -> Option<OwnedFd> {
        None
    }

    fn enter(&self, name: &str) -> io::Result<()> {
        for tree in self.trees() {
            // A thread that moves itself needs none of the system-wide synchronisation (an RCU grace period, 7 to 18 ms
            // on a busy machine) that moving another process by `cgroup.procs` takes.
            match fs::write(tree.join(name).join("tasks"), "0") {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                other => other?,
            }
        }
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        for tree in self.trees() {
            match fs::remove_dir(tree.join(name)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                other => other?,
            }
        }
        Ok(())
    }

    fn oom_counter(&self) -> Option<(PathBuf, String)> {
        self.memory.as_ref().map(|tree| (tree.clone(), "memory.oom_control".to_owned()))
    }

    fn directories(&self) -> Vec<PathBuf> {
        self.trees().cloned().collect()
    }
}
