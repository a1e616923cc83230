//! Weight versions on disk: a directory `v{N}` that is complete or absent.
//!
//! It is written under another name in the same directory, made durable, and renamed. Whatever begins with a dot is
//! unfinished and worth nothing.

use crate::error::TrainerError;
use crate::options::TrainerOptions;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use venus_core::ids::{BatchId, GroupId, Version};
use venus_core::message::trainer::StepMetrics;

/// Weights and shape are written by `venus-lm`: `config.json` and `model.safetensors`.
pub const TOKENIZER: &str = "tokenizer.json";
/// The optimizer's state.
pub const OPTIMIZER: &str = "optimizer.safetensors";
/// The trainer's own state, a [`Checkpoint`].
pub const STATE: &str = "trainer.json";

/// The layout of [`STATE`]; another is refused.
const FORMAT: u32 = 1;

/// What `trainer.json` says: which step made this version, and of what.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Checkpoint {
    format: u32,
    /// The version these weights are.
    pub version: Version,
    /// The batch that made it.
    pub batch: BatchId,
    /// The groups of that batch, all trained into this version.
    pub groups: Vec<GroupId>,
    /// The options of that step.
    pub options: TrainerOptions,
    /// The figures of that step.
    pub metrics: StepMetrics,
}

impl Checkpoint {
    pub(crate) fn new(
        version: Version,
        batch: BatchId,
        groups: Vec<GroupId>,
        options: TrainerOptions,
        metrics: StepMetrics,
    ) -> Self {
        Self { format: FORMAT, version, batch, groups, options, metrics }
    }

    /// Reads it from a checkpoint's directory.
    ///
    /// # Errors
    /// The file cannot be read, or another version of Venus wrote it.
    pub fn read(dir: &Path) -> Result<Self, TrainerError> {
        let path = dir.join(STATE);
        let text = fs::read(&path).map_err(TrainerError::io("read", &path))?;
        let broken = |problem: String| TrainerError::Checkpoint { path: path.clone(), problem };
        // The format first: another one may not parse as this one.
        let value: serde_json::Value = serde_json::from_slice(&text).map_err(|error| broken(error.to_string()))?;
        match value.get("format").and_then(serde_json::Value::as_u64) {
            Some(format) if format == u64::from(FORMAT) => {}
            format => return Err(broken(format!("its format is {format:?}, this Venus reads {FORMAT}"))),
        }
        serde_json::from_value(value).map_err(|error| broken(error.to_string()))
    }

    pub(crate) fn write(&self, dir: &Path) -> Result<(), TrainerError> {
        let path = dir.join(STATE);
        let text = serde_json::to_vec_pretty(self).expect("plain data with string keys");
        fs::write(&path, text).map_err(TrainerError::io("write", &path))
    }
}

/// Where a version lies in an output directory.
#[must_use]
pub fn directory(out: &Path, version: Version) -> PathBuf {
    out.join(version.to_string())
}

/// The complete versions in an output directory, oldest first. A directory that does not exist has none.
///
/// # Errors
/// The directory cannot be read.
pub fn list(out: &Path) -> Result<Vec<(Version, PathBuf)>, TrainerError> {
    let mut found = Vec::new();
    for path in entries(out)? {
        let number = path.file_name().and_then(|name| name.to_str()?.strip_prefix('v')?.parse().ok());
        if let (Some(number), true) = (number, path.join(STATE).is_file()) {
            found.push((Version(number), path));
        }
    }
    found.sort();
    Ok(found)
}

/// Removes all but the newest `keep` versions, and what a crash left unfinished. Returns the versions removed. Not to
/// be called while a step writes to the same directory; whoever still reads an old version must be done with it.
///
/// # Errors
/// Names what cannot be removed; a version is never left half removed under its name.
pub fn prune(out: &Path, keep: usize) -> Result<Vec<Version>, TrainerError> {
    let versions = list(out)?;
    let old = &versions[..versions.len().saturating_sub(keep)];
    for (version, path) in old {
        let away = out.join(format!(".{version}.removed"));
        fs::rename(path, &away).map_err(TrainerError::io("remove", path))?;
    }
    for path in entries(out)?.into_iter().filter(|path| is_unfinished(path)) {
        fs::remove_dir_all(&path).map_err(TrainerError::io("remove", &path))?;
    }
    Ok(old.iter().map(|(version, _)| *version).collect())
}

fn is_unfinished(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.starts_with(".v") && (name.ends_with(".partial") || name.ends_with(".removed"))
}

fn entries(dir: &Path) -> Result<Vec<PathBuf>, TrainerError> {
    match fs::read_dir(dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        listing => listing
            .and_then(|entries| entries.map(|entry| entry.map(|entry| entry.path())).collect())
            .map_err(TrainerError::io("list", dir)),
    }
}

/// A version being written. Dropped before [`Partial::commit`], it removes what it has written.
pub(crate) struct Partial {
    out: PathBuf,
    version: Version,
    dir: PathBuf,
}

impl Partial {
    pub(crate) fn begin(out: &Path, version: Version) -> Result<Self, TrainerError> {
        fs::create_dir_all(out).map_err(TrainerError::io("create", out))?;
        let dir = out.join(format!(".{version}.partial"));
        if dir.exists() {
            // Left by a process that was killed: a live one would have been refused by its own version check.
            fs::remove_dir_all(&dir).map_err(TrainerError::io("remove", &dir))?;
        }
        fs::create_dir(&dir).map_err(TrainerError::io("create", &dir))?;
        Ok(Self { out: out.to_owned(), version, dir })
    }

    /// Where to write.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Makes all files durable, then gives the directory its name.
    pub(crate) fn commit(self) -> Result<PathBuf, TrainerError> {
        for file in entries(&self.dir)? {
            sync(&file)?;
        }
        sync(&self.dir)?;
        let target = directory(&self.out, self.version);
        // A directory that is not empty is never replaced by a rename.
        fs::rename(&self.dir, &target).map_err(TrainerError::io("create", &target))?;
        sync(&self.out)?;
        Ok(target)
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if self.dir.exists()
            && let Err(error) = fs::remove_dir_all(&self.dir)
        {
            tracing::warn!(dir = %self.dir.display(), %error, "an unfinished checkpoint could not be removed");
        }
    }
}

fn sync(path: &Path) -> Result<(), TrainerError> {
    File::open(path).and_then(|file| file.sync_all()).map_err(TrainerError::io("make durable", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(out: &Path, version: u64) -> PathBuf {
        let partial = Partial::begin(out, Version(version)).unwrap();
        let state =
            Checkpoint::new(Version(version), BatchId(7), vec![], TrainerOptions::default(), Default::default());
        state.write(partial.dir()).unwrap();
        partial.commit().unwrap()
    }

    #[test]
    fn a_version_is_complete_or_absent() {
        let out = tempfile::tempdir().unwrap();
        let partial = Partial::begin(out.path(), Version(1)).unwrap();
        fs::write(partial.dir().join(TOKENIZER), "{}").unwrap();
        assert_eq!(list(out.path()).unwrap(), []);
        drop(partial);
        assert_eq!(fs::read_dir(out.path()).unwrap().count(), 0);
        let dir = write(out.path(), 1);
        assert_eq!(list(out.path()).unwrap(), [(Version(1), dir.clone())]);
        assert_eq!(Checkpoint::read(&dir).unwrap().batch, BatchId(7));
    }

    #[test]
    fn pruning_keeps_the_newest_and_clears_what_a_crash_left() {
        let out = tempfile::tempdir().unwrap();
        for version in [2, 9, 10, 11] {
            write(out.path(), version);
        }
        std::mem::forget(Partial::begin(out.path(), Version(12)).unwrap());
        fs::write(out.path().join("notes.txt"), "kept").unwrap();
        assert_eq!(prune(out.path(), 2).unwrap(), [Version(2), Version(9)]);
        let mut left: Vec<_> = fs::read_dir(out.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["notes.txt", "v10", "v11"]);
    }

    #[test]
    fn another_format_is_refused() {
        let out = tempfile::tempdir().unwrap();
        fs::write(out.path().join(STATE), r#"{"format": 99}"#).unwrap();
        let error = Checkpoint::read(out.path()).unwrap_err().to_string();
        assert!(error.contains("99") && error.contains("resume from an older one"), "{error}");
    }

    #[test]
    fn a_full_disk_is_named_with_what_to_do() {
        let full = std::io::Error::from(std::io::ErrorKind::StorageFull);
        let error = TrainerError::io("write", Path::new("run/v3"))(full).to_string();
        assert!(error.contains("run/v3") && error.contains("free some space"), "{error}");
    }
}
