//! One task in full, for a person.

use crate::failure::Failure;
use std::fmt::Write;
use venus_core::message::sandbox::Limits;
use venus_plane::task::{File, Oracle, Source, TESTS_DIR, Task};

/// Lines shown of a file.
const LINES: usize = 40;

/// Everything about `task`: what the agent is told, what it finds, how it is graded.
///
/// # Errors
/// A file of the task cannot be read.
pub(super) fn card(task: &Task) -> Result<String, Failure> {
    let mut out = format!("{} ({}, {})\n", task.name, source(&task.source), task.split.as_str());
    let _ = writeln!(out, "  works in       {}", task.environment.workdir);
    let _ = writeln!(out, "  agent's time   {} s", task.agent_timeout.as_secs_f64());
    let _ = writeln!(out, "  limits         {}", limits(&task.limits));
    let _ = writeln!(out, "  known solution {}", oracle(task.oracle.as_ref()));
    for notice in &task.notices {
        let _ = writeln!(out, "  note           {notice}");
    }
    let _ = writeln!(out, "\nInstruction\n{}", indent(task.instruction.trim_end(), usize::MAX).trim_end());
    heading(&mut out, "Environment", &task.environment.files, "")?;
    for setup in &task.environment.setup {
        let _ = writeln!(out, "  run in {}: {}", setup.workdir, setup.command);
    }
    heading(&mut out, "Grader (placed when the agent has stopped)", &task.tests, TESTS_DIR)?;
    Ok(out)
}

/// The first line of a text, shortened to a terminal's width.
pub(super) fn first_line(text: &str) -> String {
    const MOST: usize = 80;
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    if line.chars().count() <= MOST {
        return line.to_owned();
    }
    line.chars().take(MOST - 3).chain("...".chars()).collect()
}

fn source(source: &Source) -> String {
    match source {
        Source::Family { family, seed, index } => format!("family {}, seed {seed}, index {index}", family.name()),
        Source::Harbor { dir } => format!("Harbor task in {}", dir.display()),
    }
}

fn limits(limits: &Limits) -> String {
    let mut parts = Vec::new();
    parts.extend(limits.memory.map(|bytes| format!("{} MiB memory", bytes.0 >> 20)));
    parts.extend(limits.pids.map(|pids| format!("{pids} processes")));
    parts.extend(limits.cpu_millis.map(|millis| format!("{} cores", f64::from(millis) / 1000.0)));
    parts.extend(limits.file_size.map(|bytes| format!("{} MiB a file", bytes.0 >> 20)));
    if parts.is_empty() { "those of [sandbox]".to_owned() } else { parts.join(", ") }
}

fn oracle(oracle: Option<&Oracle>) -> String {
    match oracle {
        Some(Oracle::Script(path)) => path.display().to_string(),
        Some(Oracle::Demonstrator) => "the family's demonstrator".to_owned(),
        None => "none".to_owned(),
    }
}

fn heading(out: &mut String, title: &str, files: &[File], below: &str) -> Result<(), Failure> {
    let _ = writeln!(out, "\n{title}");
    for file in files {
        let bytes = file.bytes().map_err(|error| {
            Failure::failed(format!("cannot read {}: {error}", file.path), "see that the task's directory is whole")
        })?;
        let path = if below.is_empty() { file.path.clone() } else { format!("{below}/{}", file.path) };
        let _ = writeln!(out, "  {path}  ({} bytes, mode {:o})", bytes.len(), file.mode);
        match std::str::from_utf8(&bytes) {
            Ok(text) => out.push_str(&indent(text, LINES)),
            Err(_) => out.push_str("    (not text)\n"),
        }
    }
    Ok(())
}

/// Up to `most` lines of `text`, each four letters in, and how many were left out.
fn indent(text: &str, most: usize) -> String {
    let mut out: String = text.lines().take(most).map(|line| format!("    {line}\n")).collect();
    let left = text.lines().count().saturating_sub(most);
    if left > 0 {
        let _ = writeln!(out, "    ({left} more lines)");
    }
    out
}
