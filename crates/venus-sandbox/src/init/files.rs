//! Files of the sandbox for the node. The init resolves paths inside the root, so a link planted by the agent leads
//! nowhere else, and hands the open file over; the node never resolves a path of a sandbox.

use super::Refusal;
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, fchmod, fstat, mkdirat, openat, openat2, unlinkat,
};
use rustix::io::Errno;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};
use venus_core::message::sandbox::SandboxErrorKind;

/// A tree deeper than this is not removed.
const MAX_DEPTH: u32 = 512;

pub(crate) struct Files {
    root: OwnedFd,
    workdir: PathBuf,
}

impl Files {
    pub(crate) fn new(root: &Path, workdir: &str) -> io::Result<Self> {
        let root = openat(CWD, root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self { root, workdir: PathBuf::from(workdir) })
    }

    /// Makes the working directory if the template lacks it.
    pub(crate) fn make_workdir(&self) -> io::Result<()> {
        self.make_directories(&self.workdir.clone()).map_err(io::Error::from)
    }

    /// Opens a directory to stand in.
    pub(crate) fn directory(&self, path: &str) -> Result<OwnedFd, Refusal> {
        self.open(&self.absolute(path), OFlags::PATH | OFlags::DIRECTORY, Mode::empty())
            .map_err(|error| refusal("cannot work in", path, error))
    }

    /// Whether something is there.
    pub(crate) fn exists(&self, path: &str) -> bool {
        self.open(Path::new(path), OFlags::PATH, Mode::empty()).is_ok()
    }

    pub(crate) fn read(&self, path: &str) -> Result<OwnedFd, Refusal> {
        // Non-blocking, so that a FIFO planted there does not hold us up before it is refused.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        self.open(&self.absolute(path), flags, Mode::empty())
            .and_then(regular)
            .map_err(|error| refusal("cannot read", path, error))
    }

    pub(crate) fn write(&self, path: &str, mode: u32) -> Result<OwnedFd, Refusal> {
        let target = self.absolute(path);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NONBLOCK | OFlags::NOCTTY;
        let mode = Mode::from_raw_mode(mode & 0o7777);
        self.make_directories(target.parent().unwrap_or(Path::new("/")))
            .and_then(|()| self.open(&target, flags, mode))
            .and_then(regular)
            .and_then(|file| fchmod(&file, mode).map(|()| file))
            .and_then(|file| rustix::fs::ftruncate(&file, 0).map(|()| file))
            .map_err(|error| refusal("cannot write", path, error))
    }

    pub(crate) fn remove(&self, path: &str) -> Result<(), Refusal> {
        let target = self.absolute(path);
        let (Some(parent), Some(name)) = (target.parent(), target.file_name()) else {
            return Err(refusal("cannot remove", path, Errno::BUSY));
        };
        let removed = self.open(parent, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).and_then(|parent| {
            let name = crate::sys::cstring(name).map_err(|_| Errno::INVAL)?;
            remove_entry(&parent, &name, 0)
        });
        match removed {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(refusal("cannot remove", path, error)),
        }
    }

    fn absolute(&self, path: &str) -> PathBuf {
        self.workdir.join(path)
    }

    fn open(&self, path: &Path, flags: OFlags, mode: Mode) -> rustix::io::Result<OwnedFd> {
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        rustix::io::retry_on_intr(|| openat2(&self.root, path, flags | OFlags::CLOEXEC, mode, resolve))
    }

    fn make_directories(&self, path: &Path) -> rustix::io::Result<()> {
        let mut parent = PathBuf::from("/");
        for component in path.components() {
            let Component::Normal(name) = component else {
                parent.push(component);
                continue;
            };
            let child = parent.join(name);
            match self.open(&child, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()) {
                Err(Errno::NOENT) => {
                    let above = self.open(&parent, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?;
                    mkdirat(&above, name, Mode::from_raw_mode(0o755))?;
                }
                other => drop(other?),
            }
            parent = child;
        }
        Ok(())
    }
}

fn regular(file: OwnedFd) -> rustix::io::Result<OwnedFd> {
    match FileType::from_raw_mode(fstat(&file)?.st_mode) {
        FileType::RegularFile => Ok(file),
        FileType::Directory => Err(Errno::ISDIR),
        _ => Err(Errno::NODEV),
    }
}

fn remove_entry(parent: impl AsFd, name: &CStr, depth: u32) -> rustix::io::Result<()> {
    match unlinkat(&parent, name, AtFlags::empty()) {
        Err(Errno::ISDIR | Errno::PERM) => {}
        other => return other,
    }
    if depth == MAX_DEPTH {
        return Err(Errno::LOOP);
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = openat(&parent, name, flags, Mode::empty())?;
    for entry in Dir::read_from(&directory)? {
        let entry = entry?;
        if ![c".", c".."].contains(&entry.file_name()) {
            remove_entry(&directory, entry.file_name(), depth + 1)?;
        }
    }
    unlinkat(&parent, name, AtFlags::REMOVEDIR)
}

fn refusal(what: &str, path: &str, error: Errno) -> Refusal {
    let kind = match error {
        Errno::NOSYS => SandboxErrorKind::Unsupported,
        Errno::IO | Errno::NFILE | Errno::MFILE => SandboxErrorKind::Internal,
        _ => SandboxErrorKind::Invalid,
    };
    (kind, format!("{what} {path} in the sandbox: {}", io::Error::from(error)))
}
