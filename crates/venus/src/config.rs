//! The configuration of a run: one TOML file, one environment prefix, flags; each value knows where it came from.
//!
//! Precedence: default, then the configuration of a resumed run, then file, then environment, then flag. A key exists
//! if the defaults have it, so there is no second list of keys to keep in step. Every value is tried alone against the
//! types of [`Config`] before it is merged, so that an error names the one key, its place and what is allowed there.

mod layer;
mod parts;
mod print;
mod section;
mod suggest;

pub use layer::{Entry, Origin};
pub use section::{Config, Data, Engine, Level, Rollout, Run, Sandbox};
pub use suggest::closest;

use crate::failure::Failure;
use std::collections::BTreeMap;
use std::path::Path;
use toml::{Table, Value};
use venus_trainer::TrainerError;

/// A configuration and, for each key, the layer that set it.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// The values.
    pub config: Config,
    /// Where each key's value came from, by full key (`trainer.lr`). Keys left at their default are absent.
    pub origins: BTreeMap<String, Origin>,
}

/// What a configuration is put together from, lowest precedence first.
#[derive(Clone, Debug, Default)]
pub struct Sources<'a> {
    /// The configuration a resumed run was started with.
    pub resumed: Option<&'a Path>,
    /// The file named on the command line.
    pub file: Option<&'a Path>,
    /// Environment variables; those that do not start with `VENUS_` are ignored.
    pub env: Vec<(String, String)>,
    /// Flags: name as the user wrote it, full key, value.
    pub flags: Vec<(String, String, String)>,
}

impl Resolved {
    /// Merges all sources over the defaults.
    ///
    /// # Errors
    /// A file that cannot be read, a key that does not exist, a value of the wrong type or out of range. The message
    /// holds the key's full name, where it was set and what is allowed.
    pub fn load(sources: &Sources<'_>) -> Result<Self, Failure> {
        let every = section::every_key();
        let known = keys(&every);
        let mut entries = Vec::new();
        if let Some(path) = sources.resumed {
            entries.extend(layer::from_file(path, &known)?);
        }
        if let Some(path) = sources.file {
            entries.extend(layer::from_file(path, &known)?);
        }
        entries.extend(layer::from_env(&sources.env, &every)?);
        entries.extend(layer::from_flags(&sources.flags, &every)?);
        let mut merged = section::defaults();
        let mut origins = BTreeMap::new();
        for entry in entries {
            check(&entry, &every, &known)?;
            set(&mut merged, &entry.key, entry.value);
            origins.insert(entry.key, entry.origin);
        }
        let config: Config = Value::Table(merged).try_into().map_err(|e: toml::de::Error| {
            Failure::usage(e.message(), "`venus train --print-config` shows every key")
        })?;
        let resolved = Self { config, origins };
        resolved.check_ranges()?;
        Ok(resolved)
    }

    /// Every key, its value, and a comment that says where the value came from: a TOML file that reads back as itself.
    #[must_use]
    pub fn print(&self) -> String {
        print::print(self)
    }

    /// Where the value of `key` came from.
    #[must_use]
    pub fn origin(&self, key: &str) -> &Origin {
        self.origins.get(key).unwrap_or(&Origin::Default)
    }

    fn trainer_refusal(&self, error: &TrainerError) -> Failure {
        let TrainerError::Option { option, problem } = error else {
            return Failure::usage(error, "`venus train --print-config` shows the values of [trainer]");
        };
        let key = format!("trainer.{option}");
        Failure::usage(format!("{key} ({}): {problem}", self.origin(&key)), format!("set {key}, or what it depends on"))
    }

    fn check_ranges(&self) -> Result<(), Failure> {
        self.config.trainer_options().map_err(|error| self.trainer_refusal(&error))?;
        self.config.check().map_err(|bad| {
            let origin = self.origin(&bad.key);
            Failure::usage(
                format!("{} is {} ({origin}), but must be {}", bad.key, bad.value, bad.allowed),
                format!("give {} another value", bad.key),
            )
        })
    }
}

/// Tries one entry alone: does its key exist, does its value fit?
fn check(entry: &Entry, every: &Table, known: &[String]) -> Result<(), Failure> {
    if !known.contains(&entry.key) {
        return Err(unknown(entry, known));
    }
    let mut alone = every.clone();
    set(&mut alone, &entry.key, entry.value.clone());
    let tried: Result<Config, toml::de::Error> = Value::Table(alone).try_into();
    tried.map(drop).map_err(|error| {
        let example = get(every, &entry.key).map_or_else(String::new, |v| format!(", such as {}", print::inline(v)));
        let reason = error.message().lines().next().unwrap_or("it does not fit").to_owned();
        Failure::usage(
            format!("{} ({}): {reason}", entry.key, entry.origin),
            format!("give {} a value of the right kind{example}", entry.key),
        )
    })
}

fn unknown(entry: &Entry, known: &[String]) -> Failure {
    let what = format!("there is no configuration key {} ({})", entry.key, entry.origin);
    let prefix = format!("{}.", entry.key);
    if known.iter().any(|k| k.starts_with(&prefix)) {
        return Failure::usage(what, format!("{} is a section: write [{}] and its keys below", entry.key, entry.key));
    }
    match closest(&entry.key, known.iter().map(String::as_str)) {
        Some(near) => Failure::usage(what, format!("did you mean {near}?")),
        None => Failure::usage(what, "remove it; `venus train --print-config` shows every key"),
    }
}

/// Full names of all values of a table, in order.
fn keys(table: &Table) -> Vec<String> {
    let mut found = Vec::new();
    layer::walk(table, &[], &mut |key, _| found.push(key.to_owned()));
    found
}

fn get<'t>(table: &'t Table, key: &str) -> Option<&'t Value> {
    match key.split_once('.') {
        Some((head, rest)) => get(table.get(head)?.as_table()?, rest),
        None => table.get(key),
    }
}

fn set(table: &mut Table, key: &str, value: Value) {
    match key.split_once('.') {
        Some((head, rest)) => {
            let inner = table.entry(head).or_insert_with(|| Value::Table(Table::new()));
            if let Value::Table(inner) = inner {
                set(inner, rest, value);
            }
        }
        None => drop(table.insert(key.to_owned(), value)),
    }
}

#[cfg(test)]
mod tests;
