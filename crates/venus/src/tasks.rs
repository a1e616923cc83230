//! `venus tasks`: what can be trained on, and one task in full.

mod card;

use crate::cli::say;
use crate::config::closest;
use crate::failure::Failure;
use crate::run::Told;
use clap::Subcommand;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use venus_plane::task::{Family, Source, Split, Task, catalog, harbor};

/// Harbor tasks are looked for here, below the working directory, unless a directory is named.
const TASKS_DIR: &str = "tasks";

/// `venus tasks`.
#[derive(Clone, Debug, Subcommand)]
pub enum TasksVerb {
    /// The generated families and the tasks of a directory
    List {
        /// Directory of Harbor tasks
        #[arg(long, value_name = "DIR")]
        tasks: Option<PathBuf>,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// One task: instruction, files, grader
    Show {
        /// Its name; the name of a family shows its first task
        name: String,
        /// Directory of Harbor tasks
        #[arg(long, value_name = "DIR")]
        tasks: Option<PathBuf>,
    },
}

/// Shows tasks.
///
/// # Errors
/// There is no such task, or its directory is malformed.
pub fn run(verb: &TasksVerb) -> anyhow::Result<ExitCode> {
    match verb {
        TasksVerb::List { tasks, json } => {
            let dir = directory(tasks.as_deref());
            let harbor = dir.as_deref().map(load).transpose()?.unwrap_or_default();
            say(&if *json { list_json(&harbor) } else { list(&harbor, dir.as_deref()) })?;
        }
        TasksVerb::Show { name, tasks } => {
            let task = find(name, directory(tasks.as_deref()).as_deref())?;
            say(&card::card(&task)?)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The task of this name: a generated one by `family-split-seed-index`, a family's first by `family`, or one of `dir`.
///
/// # Errors
/// There is none, or `dir` is malformed.
pub fn find(name: &str, dir: Option<&Path>) -> Result<Task, Failure> {
    if let Some(task) = generated(name) {
        return Ok(task);
    }
    let harbor = dir.map(load).transpose()?.unwrap_or_default();
    let names: Vec<String> = harbor.iter().map(|task| task.name.clone()).collect();
    if let Some(task) = harbor.into_iter().find(|task| task.name == name) {
        return Ok(task);
    }
    let known = Family::ALL.iter().map(|family| family.name()).chain(names.iter().map(String::as_str));
    let next =
        closest(name, known).map_or("`venus tasks list` shows all".to_owned(), |near| format!("did you mean {near}?"));
    Err(Failure::usage(format!("there is no task {name}"), next))
}

/// What people want to know of the tasks of these names; those that are no longer there are left out.
pub fn told<'n>(names: impl Iterator<Item = &'n str>, dir: Option<&Path>) -> BTreeMap<String, Told> {
    let harbor: Vec<Task> = dir.and_then(|dir| harbor::load_dir(dir).ok()).unwrap_or_default();
    let mut told = BTreeMap::new();
    for name in names {
        if !told.contains_key(name) {
            let task = generated(name).or_else(|| harbor.iter().find(|task| task.name == name).cloned());
            told.extend(
                task.map(|task| (name.to_owned(), Told { family: family(&task), instruction: task.instruction })),
            );
        }
    }
    told
}

fn family(task: &Task) -> String {
    match &task.source {
        Source::Family { family, .. } => family.name().to_owned(),
        Source::Harbor { .. } => task.name.clone(),
    }
}

/// A generated task by its name, which holds all that it is made from.
fn generated(name: &str) -> Option<Task> {
    let parts: Vec<&str> = name.split('-').collect();
    let family: Family = parts.first()?.parse().ok()?;
    match parts[1..] {
        [] => Some(family.task(Split::Train, 0, 0)),
        [split, seed, index] => {
            let split = [Split::Train, Split::Heldout].into_iter().find(|s| s.as_str() == split)?;
            Some(family.task(split, seed.parse().ok()?, index.parse().ok()?))
        }
        _ => None,
    }
}

fn directory(named: Option<&Path>) -> Option<PathBuf> {
    let usual = Path::new(TASKS_DIR);
    named.map(Path::to_owned).or_else(|| usual.is_dir().then(|| usual.to_owned()))
}

fn load(dir: &Path) -> Result<Vec<Task>, Failure> {
    harbor::load_dir(dir)
        .map_err(|error| Failure::usage(error, "correct the task; tasks/README.md says what one needs"))
}

fn list(harbor: &[Task], dir: Option<&Path>) -> String {
    let mut out =
        "Generated families (data.families): any number of tasks each, one combination in four held out\n".to_owned();
    for entry in catalog() {
        let turns = match entry.turns {
            (least, most) if least == most => least.to_string(),
            (least, most) => format!("{least}-{most}"),
        };
        out.push_str(&format!("  {:<10} {turns:>5} turns  {}\n", entry.name, entry.summary));
    }
    if let Some(dir) = dir {
        let width = harbor.iter().map(|task| task.name.len()).max().unwrap_or(0);
        out.push_str(&format!("\nHarbor tasks in {} (`venus train --tasks {}`)\n", dir.display(), dir.display()));
        for task in harbor {
            out.push_str(&format!("  {:<width$}  {}\n", task.name, card::first_line(&task.instruction)));
        }
    }
    out.push_str("\n`venus tasks show NAME` shows one in full\n");
    out
}

fn list_json(harbor: &[Task]) -> String {
    let families: Vec<_> = catalog()
        .into_iter()
        .map(|e| json!({ "name": e.name, "summary": e.summary, "turns_min": e.turns.0, "turns_max": e.turns.1 }))
        .collect();
    let harbor: Vec<_> = harbor.iter().map(|t| json!({ "name": t.name, "instruction": t.instruction })).collect();
    format!("{:#}\n", json!({ "families": families, "harbor": harbor }))
}
