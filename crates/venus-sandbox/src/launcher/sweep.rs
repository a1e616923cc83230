//! What a node leaves behind only if it and its launcher are both killed, and how the next node removes it.
//!
//! A node's launcher holds a lock on its instance directory's lock file for as long as it lives, so a directory whose lock is free
//! belongs to nobody; unlike a pid this cannot be mistaken for a later process. Mounts need no sweep: they are private to the
//! launcher's mount namespace and end with it.

use crate::cgroup;
use crate::sys;
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const PREFIX: &str = "node-";
const LOCK: &str = "lock";
const CGROUPS: &str = "cgroups";
/// In the environment of every process of a confined sandbox.
pub(crate) const INSTANCE_VARIABLE: &str = "VENUS_NODE";

/// A node's directory, its own while the lock is held.
pub(crate) struct Instance {
    pub name: String,
    pub path: PathBuf,
    _lock: File,
}

impl Instance {
    /// Makes this node's directory in an open state directory.
    pub(crate) fn claim(state_dir: &Path) -> io::Result<Self> {
        let own = format!("{}-{}", sys::own_pid(), start_time());
        let (name, unlocked) = (format!("{PREFIX}{own}"), state_dir.join(format!("new-{own}")));
        fs::create_dir(&unlocked)?;
        let lock = File::create_new(unlocked.join(LOCK))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        // Only now does it get a name that another node's sweep looks at.
        let path = state_dir.join(&name);
        fs::rename(unlocked, &path)?;
        Ok(Self { name, path, _lock: lock })
    }

    /// Notes for the sweep which cgroups are this node's.
    pub(crate) fn note_cgroups(&self, directories: &[PathBuf]) -> io::Result<()> {
        let lines: Vec<String> = directories.iter().map(|path| path.display().to_string()).collect();
        fs::write(self.path.join(CGROUPS), lines.join("\n"))
    }

    pub(crate) fn remove(&self) {
        remove(&self.path);
    }
}

/// Makes the state directory. One that another user could change is refused, as the sweep acts on what it says.
pub(crate) fn open_state_dir(path: &Path) -> io::Result<()> {
    let failed = |error: io::Error| {
        io::Error::new(error.kind(), format!("cannot use the state directory {}: {error}", path.display()))
    };
    fs::create_dir_all(path).map_err(failed)?;
    let data = fs::metadata(path).map_err(failed)?;
    if data.uid() != sys::effective_uid() || data.mode() & 0o022 != 0 {
        return Err(failed(io::Error::other("another user could change it; choose one of your own, mode 755")));
    }
    Ok(())
}

/// Removes what dead nodes left in the state directory and in cgroups, and kills what still runs of them.
pub(crate) fn sweep(state_dir: &Path) {
    for entry in fs::read_dir(state_dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str().filter(|name| name.starts_with(PREFIX)) else { continue };
        let path = entry.path();
        // Without a lock file its removal was cut short when it was nearly done.
        let Ok(lock) = File::open(path.join(LOCK)) else {
            let _ = fs::remove_dir(&path);
            continue;
        };
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            kill_marked(name);
            remove(&path);
        }
    }
}

/// Removes what a launcher that was killed left; nothing if it could clean up itself. It must have ended.
pub(crate) fn clean_up_after(instance: &Path) {
    if let Some(name) = instance.file_name().filter(|_| instance.exists()) {
        kill_marked(&name.to_string_lossy());
        remove(instance);
    }
}

fn remove(path: &Path) {
    let cgroups = fs::read_to_string(path.join(CGROUPS)).unwrap_or_default();
    let left = cgroup::remove_directories(&cgroups.lines().map(PathBuf::from).collect::<Vec<_>>());
    if left.is_empty() {
        // Whatever resists stays listed there for the next sweep.
        let _ = fs::remove_dir_all(path);
    }
}

/// Kills processes of a dead node's confined sandboxes.
fn kill_marked(instance: &str) {
    let mark = format!("{INSTANCE_VARIABLE}={instance}");
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
        if environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes()) {
            let _ = sys::kill(pid, libc::SIGKILL);
        }
    }
}

/// Clock ticks after boot at which this process started; with the pid, its name among all of this boot.
fn start_time() -> String {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let field = stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(19));
    field.unwrap_or("0").to_owned()
}
