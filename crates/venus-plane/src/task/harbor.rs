//! Harbor task directories (schema 1.x).
//!
//! ```text
//! my-task/
//!  instruction.md          the prompt
//!  task.toml               limits, time-outs, metadata
//!  environment/Dockerfile  a subset is understood; the folder is the build context
//!  tests/test.sh           the grader and its files
//!  solution/solve.sh       optional; only its path is kept
//! ```
//!
//! Venus builds no images: the host's userland stands in for the one `FROM` names. What is read but not honoured becomes a
//! notice on the task; what a task can't do without and Venus can't give is an error that names file, line or key.

mod dockerfile;
mod manifest;

use super::{Content, Environment, File, Oracle, Source, Split, Task, Verifier};
use manifest::Manifest;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Why a task directory can't be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {problem}", path.display())]
pub struct LoadError {
    /// The file or directory at fault.
    pub path: PathBuf,
    /// What is wrong with it and what to do.
    pub problem: String,
}

impl LoadError {
    fn new(path: &Path, problem: impl Into<String>) -> Self {
        Self { path: path.into(), problem: problem.into() }
    }

    fn io(path: &Path, error: &io::Error) -> Self {
        Self::new(path, format!("can't be read ({error})"))
    }
}

/// The task in `path`, or the tasks in the directories of `path`, in order of their names.
///
/// # Errors
/// No task there, two of one name, or one that is not as it should be: the first fault found.
pub fn load_dir(path: &Path) -> Result<Vec<Task>, LoadError> {
    if path.join("task.toml").exists() || path.join("instruction.md").exists() {
        return Ok(vec![load(path)?]);
    }
    let mut dirs = Vec::new();
    for entry in fs::read_dir(path).map_err(|error| LoadError::io(path, &error))? {
        let entry = entry.map_err(|error| LoadError::io(path, &error))?.path();
        let hidden = entry.file_name().is_none_or(|name| name.to_string_lossy().starts_with('.'));
        if entry.is_dir() && !hidden {
            dirs.push(entry);
        }
    }
    dirs.sort();
    if dirs.is_empty() {
        return Err(LoadError::new(path, "holds no task: a task is a directory with instruction.md and task.toml"));
    }
    let tasks: Vec<Task> = dirs.iter().map(|dir| load(dir)).collect::<Result<_, _>>()?;
    for (at, task) in tasks.iter().enumerate() {
        if tasks[..at].iter().any(|other| other.name == task.name) {
            return Err(LoadError::new(&dirs[at], format!("a second task named `{}`: rename one", task.name)));
        }
    }
    Ok(tasks)
}

/// The task in the directory `dir`.
///
/// # Errors
/// Anything missing, malformed, or asked for that Venus can't give.
pub fn load(dir: &Path) -> Result<Task, LoadError> {
    let instruction = instruction(dir)?;
    let manifest = Manifest::read(&dir.join("task.toml"))?;
    let mut notices = manifest.notices;
    if dir.join("steps").is_dir() {
        return Err(LoadError::new(&dir.join("steps"), "tasks of several steps are not supported: make each a task"));
    }
    let mut environment = environment(dir, &mut notices)?;
    if let Some(workdir) = manifest.workdir {
        environment.workdir = workdir;
    }
    environment.env.extend(manifest.env);
    let solution = dir.join("solution/solve.sh");
    let name = manifest.name.unwrap_or_else(|| dir.file_name().unwrap_or_default().to_string_lossy().into_owned());
    Ok(Task {
        name: plain_name(&name),
        source: Source::Harbor { dir: dir.into() },
        split: Split::default(),
        instruction,
        environment,
        tests: tests(dir)?,
        verifier: Verifier { timeout: manifest.verifier_timeout, env: manifest.verifier_env },
        limits: manifest.limits,
        agent_timeout: manifest.agent_timeout,
        oracle: solution.is_file().then_some(Oracle::Script(solution)),
        notices,
    })
}

fn instruction(dir: &Path) -> Result<String, LoadError> {
    let path = dir.join("instruction.md");
    if !dir.is_dir() {
        return Err(LoadError::new(dir, "is no directory: give a Harbor task directory or a directory of them"));
    }
    if !path.exists() {
        return Err(LoadError::new(&path, "is missing: it holds the prompt the agent is given"));
    }
    let text = fs::read_to_string(&path).map_err(|error| LoadError::io(&path, &error))?;
    if text.trim().is_empty() {
        return Err(LoadError::new(&path, "is empty: it holds the prompt the agent is given"));
    }
    Ok(text.trim_end().to_owned())
}

fn environment(dir: &Path, notices: &mut Vec<String>) -> Result<Environment, LoadError> {
    let context = dir.join("environment");
    for compose in ["docker-compose.yaml", "docker-compose.yml"] {
        if context.join(compose).exists() {
            return Err(LoadError::new(
                &context.join(compose),
                "tasks of several containers are not supported: give a Dockerfile",
            ));
        }
    }
    let path = context.join("Dockerfile");
    if !path.exists() {
        return Err(LoadError::new(
            &path,
            "is missing: it says what the agent finds (`FROM` and `WORKDIR` are enough)",
        ));
    }
    let text = fs::read_to_string(&path).map_err(|error| LoadError::io(&path, &error))?;
    dockerfile::read(&text, &context, notices)
        .map_err(|fault| LoadError::new(&path, format!("line {}: {}", fault.line, fault.problem)))
}

fn tests(dir: &Path) -> Result<Vec<File>, LoadError> {
    let root = dir.join("tests");
    if !root.join("test.sh").is_file() {
        return Err(LoadError::new(
            &root.join("test.sh"),
            "is missing: it grades the task and writes /logs/verifier/reward.txt",
        ));
    }
    let mut files = files_under(&root)?;
    for file in files.iter_mut().filter(|file| file.path == "test.sh") {
        file.mode |= 0o555;
    }
    Ok(files)
}

/// Every plain file under `root`, paths relative to it, sorted.
fn files_under(root: &Path) -> Result<Vec<File>, LoadError> {
    let (mut files, mut stack) = (Vec::new(), vec![root.to_path_buf()]);
    while let Some(dir) = stack.pop() {
        for entry in fs::read_dir(&dir).map_err(|error| LoadError::io(&dir, &error))? {
            let path = entry.map_err(|error| LoadError::io(&dir, &error))?.path();
            if path.is_dir() && !path.is_symlink() {
                stack.push(path);
            } else {
                files.push(plain_file(&path, path.strip_prefix(root).unwrap_or(&path))?);
            }
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

/// The file at `path`, to be placed at `target`. Links are refused: they may lead out of the task.
fn plain_file(path: &Path, target: &Path) -> Result<File, LoadError> {
    let kind = fs::symlink_metadata(path).map_err(|error| LoadError::io(path, &error))?;
    if !kind.is_file() {
        return Err(LoadError::new(path, "is neither a file nor a directory: put the file itself there"));
    }
    let Some(target) = target.to_str() else {
        return Err(LoadError::new(path, "has a name that is not UTF-8: rename it"));
    };
    Ok(File { path: target.into(), mode: kind.permissions().mode() & 0o777, content: Content::At(path.into()) })
}

/// `org/name` and the like as one path-safe name.
fn plain_name(name: &str) -> String {
    let safe = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' };
    name.chars().map(safe).collect()
}
