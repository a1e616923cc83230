//! The directory of a run: made once, opened to resume or report, its line files read with tolerance.

use super::{EvalLine, StepLine, Summary, Transcript};
use crate::failure::Failure;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

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
        if dir.config().exists() || dir.steps_file().exists() {
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
        } else if !dir.config().exists() && !dir.steps_file().exists() {
            format!("{} holds no run (no config.toml, no steps.jsonl)", path.display())
        } else {
            return Ok(dir);
        };
        Err(Failure::usage(what, "name the directory given to `venus train --out`, or the one it printed"))
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

    /// One [`StepLine`] a step.
    #[must_use]
    pub fn steps_file(&self) -> PathBuf {
        self.path.join("steps.jsonl")
    }

    /// One [`EvalLine`] a measurement.
    #[must_use]
    pub fn evals_file(&self) -> PathBuf {
        self.path.join("evals.jsonl")
    }

    /// One line a trajectory.
    #[must_use]
    pub fn trajectories_file(&self) -> PathBuf {
        self.path.join("trajectories.jsonl")
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

    /// Reads everything a report needs. Files that are absent read as empty.
    ///
    /// # Errors
    /// A file cannot be read, or a line other than the last is not what it should be.
    pub fn read(&self) -> Result<Records, Failure> {
        let mut steps: Vec<StepLine> = read_lines(&self.steps_file())?;
        let mut evals: Vec<EvalLine> = read_lines(&self.evals_file())?;
        keep_last_by(&mut steps, |line| line.step);
        keep_last_by(&mut evals, |line| line.step);
        let trajectories = read_lines::<Transcript>(&self.trajectories_file())?;
        let summary = match fs::read(self.summary_file()) {
            Ok(bytes) => Some(serde_json::from_slice(&bytes).map_err(|e| unreadable(&self.summary_file(), 0, &e))?),
            Err(_) => None,
        };
        let config = fs::read_to_string(self.config()).unwrap_or_default();
        Ok(Records { steps, evals, trajectories, summary, config })
    }
}

/// What a run left behind.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Records {
    /// Ascending by step, one a step.
    pub steps: Vec<StepLine>,
    /// Ascending by step, one a step.
    pub evals: Vec<EvalLine>,
    /// In the order written.
    pub trajectories: Vec<Transcript>,
    /// Absent while the run goes on, and after a kill.
    pub summary: Option<Summary>,
    /// The text of the configuration.
    pub config: String,
}

/// Appends lines to one file; each is on its way to the disk when [`Appender::push`] returns.
#[derive(Debug)]
pub struct Appender<T> {
    path: PathBuf,
    file: File,
    line: PhantomData<fn(&T)>,
}

impl<T: Serialize> Appender<T> {
    /// Opens the file, makes it if absent, and cuts off a last line that a kill left half-written.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let open = || {
            let mut file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |newline| newline + 1);
            file.set_len(whole as u64)?;
            file.seek(SeekFrom::End(0))?;
            Ok(file)
        };
        let file = open().map_err(|error: std::io::Error| cannot_write(path, &error))?;
        Ok(Self { path: path.to_owned(), file, line: PhantomData })
    }

    /// Appends one line.
    ///
    /// # Errors
    /// The line cannot be written, for instance because the disk is full.
    pub fn push(&mut self, line: &T) -> Result<(), Failure> {
        let mut bytes = serde_json::to_vec(line).map_err(|error| Failure::failed(error, "report this as a bug"))?;
        bytes.push(b'\n');
        self.file.write_all(&bytes).map_err(|error| cannot_write(&self.path, &error))
    }
}

fn read_lines<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>, Failure> {
    let Ok(file) = File::open(path) else { return Ok(Vec::new()) };
    let mut reader = BufReader::new(file);
    let (mut lines, mut text) = (Vec::new(), Vec::new());
    for number in 1.. {
        text.clear();
        let length = reader.read_until(b'\n', &mut text).map_err(|error| unreadable(path, number, &error))?;
        // A line without its newline was being written when the run was killed.
        if length == 0 || text.last() != Some(&b'\n') {
            break;
        }
        lines.push(serde_json::from_slice(&text).map_err(|error| unreadable(path, number, &error))?);
    }
    Ok(lines)
}

/// Sorts by step and keeps the line written last for each: a resumed run repeats the step it was killed in.
fn keep_last_by<T>(lines: &mut Vec<T>, step: impl Fn(&T) -> u64) {
    lines.reverse();
    lines.sort_by_key(&step);
    lines.dedup_by_key(|line| step(line));
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

fn unreadable(path: &Path, line: usize, error: &dyn std::fmt::Display) -> Failure {
    let place = if line == 0 { path.display().to_string() } else { format!("{}:{line}", path.display()) };
    Failure::failed(format!("cannot read {place}: {error}"), "the file was changed or damaged; remove what is broken")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_torn_by_a_kill_is_cut_off_and_the_step_written_again_counts_once() {
        let temp = tempfile::tempdir().unwrap();
        let dir = RunDir::create(&temp.path().join("run").display().to_string(), temp.path()).unwrap();
        let line = |step, success| StepLine { step, success, ..StepLine::default() };
        let mut steps = Appender::open(&dir.steps_file()).unwrap();
        steps.push(&line(1, 0.1)).unwrap();
        steps.push(&line(2, 0.2)).unwrap();
        drop(steps);
        let mut file = OpenOptions::new().append(true).open(dir.steps_file()).unwrap();
        file.write_all(b"{\"step\":3,\"succ").unwrap();
        assert_eq!(dir.read().unwrap().steps.len(), 2);
        let mut steps = Appender::open(&dir.steps_file()).unwrap();
        steps.push(&line(2, 0.5)).unwrap();
        steps.push(&line(3, 0.3)).unwrap();
        let read = dir.read().unwrap().steps;
        assert_eq!(read.iter().map(|l| (l.step, l.success)).collect::<Vec<_>>(), [(1, 0.1), (2, 0.5), (3, 0.3)]);
    }

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
