//! The tasks of a run.

use crate::config::Config;
use crate::failure::Failure;
use std::path::Path;
use std::sync::Arc;
use venus_plane::task::family::{Family, mixed};
use venus_plane::task::{Split, Task, harbor};

/// Generated training tasks of a run, more than a run on one machine gets through before its second pass.
const TRAINING_TASKS: u64 = 4096;

/// The held-out tasks are the same for every seed, so that runs can be compared.
const HELDOUT_SEED: u64 = 0;

/// What to train on, and what to measure on.
pub struct TaskSet {
    /// Trained on.
    pub train: Vec<Arc<Task>>,
    /// Measured on.
    pub heldout: Vec<Arc<Task>>,
}

impl TaskSet {
    /// The tasks that the configuration asks for.
    ///
    /// # Errors
    /// An unknown family, or a task directory that cannot be used.
    pub fn load(config: &Config) -> Result<Self, Failure> {
        if config.data.source == "generated" { generated(config) } else { from_directory(config) }
    }
}

fn generated(config: &Config) -> Result<TaskSet, Failure> {
    let families = families(&config.data.families)?;
    let set = |split, seed, count| (0..count).map(|i| Arc::new(mixed(&families, split, seed, i))).collect();
    Ok(TaskSet {
        train: set(Split::Train, config.run.seed, TRAINING_TASKS),
        heldout: set(Split::Heldout, HELDOUT_SEED, u64::from(config.run.eval_tasks)),
    })
}

/// The families of these names, all if none is named.
///
/// # Errors
/// There is no such family.
pub fn families(names: &[String]) -> Result<Vec<Family>, Failure> {
    if names.is_empty() {
        return Ok(Family::ALL.to_vec());
    }
    let parse = |name: &String| name.parse().map_err(|e| Failure::usage(e, "set data.families to some of them"));
    names.iter().map(parse).collect()
}

/// Harbor tasks have no split of their own: every fifth, by name, is held out; a single task is both.
fn from_directory(config: &Config) -> Result<TaskSet, Failure> {
    let path = Path::new(&config.data.source);
    let unusable = |error| Failure::usage(error, "mend the task, or leave it out of the directory");
    let mut tasks = harbor::load_dir(path).map_err(unusable)?;
    tasks.sort_by(|a, b| a.name.cmp(&b.name));
    let held = |index: usize| tasks.len() > 1 && index % 5 == 4.min(tasks.len() - 1);
    let mut set = TaskSet { train: Vec::new(), heldout: Vec::new() };
    for (index, task) in tasks.iter().enumerate() {
        let to = if held(index) { &mut set.heldout } else { &mut set.train };
        to.push(Arc::new(task.clone()));
    }
    if set.heldout.is_empty() {
        set.heldout = set.train.clone();
    }
    Ok(set)
}
