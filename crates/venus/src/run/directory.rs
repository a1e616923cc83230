//! The directory of a run: made once, opened to resume or report.

use super::Summary;
use crate::failure::Failure;
use std::fs;
use std::path::{Path, PathBuf};
use venus_plane::record::LOG_FILE;

/// Directory of the built-in model within a run's.
const WARM_START: &str = "warmstart";

/// A directory with the files of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunDir {
    path: PathBuf,
}

impl RunDir {
    /// Makes the directory of a new run: `auto` is the next free `runs/NNNN` below `base`, anything else a path.
    ///
    /// # Errors
    /// The directory holds a run already, or cannot be made.
    pub fn create(out: &str, base: &Path) -> Result<Self, Failure> {
        if out == "auto" {
            return Self::create_numbered(&base.join("runs"));
        }
        let dir = Self { path: PathBuf::from(out) };
        if dir.config().exists() || dir.log().exists() {
            return Err(Failure::usage(
                format!("{out} already holds a run"),
                format!("`--resume {out}` goes on with it; or choose another --out"),
            ));
        }
        fs::create_dir_all(&dir.path).map_err(|error| cannot_make(&dir.path, &error))?;
        Ok(dir)
    }

    fn create_numbered(parent: &Path) -> Result<Self, Failure> {
        fs::create_dir_all(parent).map_err(|error| cannot_make(parent, &error))?;
        let mut number = 1;
        loop {
            let path = parent.join(format!("{number:04}"));
            match fs::create_dir(&path) {
                Ok(()) => return Ok(Self { path }),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => number += 1,
                Err(error) => return Err(cannot_make(&path, &error)),
            }
        }
    }

    /// Opens the directory of a run that was started before.
    ///
    /// # Errors
    /// It is not there, or no run was started in it.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let dir = Self { path: path.to_owned() };
        let what = if !path.exists() {
            format!("{} does not exist", path.display())
        } else if !dir.config().exists() && !dir.log().exists() {
            format!("{} holds no run (no config.toml, no {LOG_FILE})", path.display())
        } else {
            return Ok(dir);
        };
        Err(Failure::usage(what, "name the directory given to `venus train --out`, or the one it printed"))
    }

    /// Takes back a run that could not start, so that the directory can be used for another try. Files of others stay.
    pub fn abandon(&self) {
        drop(fs::remove_file(self.config()));
        drop(fs::remove_file(self.log()));
        drop(fs::remove_dir_all(self.path.join(WARM_START)));
        // Refused unless it is empty.
        drop(fs::remove_dir(&self.path));
    }

    /// Where the built-in model is unpacked to.
    #[must_use]
    pub fn warm_start(&self) -> PathBuf {
        self.path.join(WARM_START)
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The resolved configuration.
    #[must_use]
    pub fn config(&self) -> PathBuf {
        self.path.join("config.toml")
    }

    /// The record.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.path.join(LOG_FILE)
    }

    /// The [`Summary`].
    #[must_use]
    pub fn summary_file(&self) -> PathBuf {
        self.path.join("summary.json")
    }

    /// The report.
    #[must_use]
    pub fn report_file(&self) -> PathBuf {
        self.path.join("report.html")
    }

    /// Writes the summary, whole or not at all.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write_summary(&self, summary: &Summary) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(summary).unwrap_or_default() + "\n";
        self.write_whole(&self.summary_file(), text.as_bytes())
    }

    /// Writes a file beside its place and renames it there, so that nobody sees half of it.
    ///
    /// # Errors
    /// It cannot be written; the old file, if any, is as it was.
    pub fn write_whole(&self, path: &Path, bytes: &[u8]) -> Result<(), Failure> {
        let beside = path.with_extension("partial");
        let written = fs::write(&beside, bytes).and_then(|()| fs::rename(&beside, path));
        written.map_err(|error| {
            drop(fs::remove_file(&beside));
            cannot_write(path, &error)
        })
    }
}

fn cannot_make(path: &Path, error: &std::io::Error) -> Failure {
    Failure::failed(format!("cannot make the directory {}: {error}", path.display()), "choose another with --out DIR")
}

fn cannot_write(path: &Path, error: &std::io::Error) -> Failure {
    let next = match error.kind() {
        std::io::ErrorKind::StorageFull => "free some disk space; `venus train --resume DIR` goes on where it stopped",
        _ => "make the directory writable; `venus train --resume DIR` goes on where it stopped",
    };
    Failure::failed(format!("cannot write {}: {error}", path.display()), next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbered_directories_never_hit_an_old_run() {
        let temp = tempfile::tempdir().unwrap();
        let made: Vec<_> = (0..3).map(|_| RunDir::create("auto", temp.path()).unwrap().path).collect();
        assert_eq!(made, ["0001", "0002", "0003"].map(|n| temp.path().join("runs").join(n)));
    }

    #[test]
    fn a_new_run_does_not_overwrite_an_old_one() {
        let temp = tempfile::tempdir().unwrap();
        let out = temp.path().display().to_string();
        fs::write(temp.path().join("config.toml"), "").unwrap();
        let failure = RunDir::create(&out, temp.path()).unwrap_err();
        assert!(failure.next().contains("--resume"), "{failure}");
    }
}
