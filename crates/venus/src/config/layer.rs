//! Where values come from: a file, the environment, flags. Each becomes a list of entries with its origin.

use super::{get, keys, suggest};
use crate::failure::Failure;
use std::fmt;
use std::path::{Path, PathBuf};
use toml::de::{DeTable, DeValue};
use toml::{Table, Value};

/// Environment variables that set configuration start with this; `__` stands for the dot.
const PREFIX: &str = "VENUS_";

/// The layer a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Built in.
    Default,
    /// A configuration file.
    File {
        /// Which.
        path: PathBuf,
        /// Line of the key, from 1.
        line: usize,
    },
    /// An environment variable of this name.
    Env(String),
    /// A flag, as written.
    Flag(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => write!(f, "default"),
            Self::File { path, line } => write!(f, "file {}:{line}", path.display()),
            Self::Env(name) => write!(f, "env {name}"),
            Self::Flag(name) => write!(f, "flag {name}"),
        }
    }
}

/// One value from one layer.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Full key, `section.name`.
    pub key: String,
    /// The value as given.
    pub value: Value,
    /// Which layer it is from.
    pub origin: Origin,
}

/// Calls `visit` with every value that is not a table of further keys: one whose key is in `known`, or a plain value.
pub(super) fn walk(table: &Table, known: &[String], visit: &mut impl FnMut(&str, &Value)) {
    fn inner(prefix: &str, table: &Table, known: &[String], visit: &mut impl FnMut(&str, &Value)) {
        for (name, value) in table {
            let key = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
            match value {
                Value::Table(nested) if !known.contains(&key) => inner(&key, nested, known, visit),
                value => visit(&key, value),
            }
        }
    }
    inner("", table, known, visit);
}

/// The entries of a TOML file, each with the line of its key.
pub(super) fn from_file(path: &Path, known: &[String]) -> Result<Vec<Entry>, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        Failure::usage(
            format!("cannot read the configuration file {}: {error}", path.display()),
            "`venus train --print-config > FILE` writes one to start from",
        )
    })?;
    let broken = |error: toml::de::Error| {
        let place = error.span().map_or(1, |span| line_of(&text, span.start));
        Failure::usage(
            format!("{}:{place}: {}", path.display(), error.message()),
            "correct the file; it is TOML (https://toml.io)",
        )
    };
    let table: Table = text.parse().map_err(broken)?;
    let spanned = DeTable::parse(&text).map_err(broken)?;
    let mut entries = Vec::new();
    walk(&table, known, &mut |key, value| {
        let line = offset_of(spanned.get_ref(), key).map_or(1, |offset| line_of(&text, offset));
        let origin = Origin::File { path: path.to_owned(), line };
        entries.push(Entry { key: key.to_owned(), value: value.clone(), origin });
    });
    Ok(entries)
}

fn offset_of(table: &DeTable<'_>, key: &str) -> Option<usize> {
    let (head, rest) = key.split_once('.').map_or((key, None), |(head, rest)| (head, Some(rest)));
    let (name, value) = table.iter().find(|(name, _)| name.get_ref().as_ref() == head)?;
    match (rest, value.get_ref()) {
        (None, _) => Some(name.span().start),
        (Some(rest), DeValue::Table(inner)) => offset_of(inner, rest),
        (Some(_), _) => None,
    }
}

fn line_of(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|&byte| byte == b'\n').count() + 1
}

/// The entries of the environment: `VENUS_RUN__STEPS=50` sets `run.steps`. A variable without `__` is somebody
/// else's (Kubernetes sets `VENUS_PORT` for a service named venus) unless it is a known key with one underscore missing.
pub(super) fn from_env(env: &[(String, String)], every: &Table) -> Result<Vec<Entry>, Failure> {
    let mut entries = Vec::new();
    for (name, text) in env {
        let Some(rest) = name.strip_prefix(PREFIX) else { continue };
        if !rest.contains("__") {
            refuse_single_underscore(name, rest, every)?;
            continue;
        }
        let key = rest.to_lowercase().replace("__", ".");
        let value = parse(text, get(every, &key));
        entries.push(Entry { key, value, origin: Origin::Env(name.clone()) });
    }
    entries.sort_by(|a, b| a.key.cmp(&b.key));
    Ok(entries)
}

fn refuse_single_underscore(name: &str, rest: &str, every: &Table) -> Result<(), Failure> {
    let flat = rest.to_lowercase();
    match keys(every).into_iter().find(|key| key.replace('.', "_") == flat) {
        Some(key) => {
            let right = format!("{PREFIX}{}", key.to_uppercase().replace('.', "__"));
            Err(Failure::usage(
                format!("the environment variable {name} sets nothing"),
                format!("for {key}, write {right} (two underscores for the dot)"),
            ))
        }
        None => Ok(()),
    }
}

/// The entries of the flags.
pub(super) fn from_flags(flags: &[(String, String, String)], every: &Table) -> Result<Vec<Entry>, Failure> {
    let known = keys(every);
    let entry = |(flag, key, text): &(String, String, String)| {
        if key.is_empty() {
            let near = suggest::closest(text, known.iter().map(String::as_str)).unwrap_or("run.steps");
            return Err(Failure::usage(format!("{flag} {text} has no value"), format!("write {flag} {near}=VALUE")));
        }
        let value = parse(text, get(every, key));
        Ok(Entry { key: key.clone(), value, origin: Origin::Flag(flag.clone()) })
    };
    flags.iter().map(entry).collect()
}

/// Text from the environment or a flag, read as the kind of value the default has: text as it stands, a list also as
/// `a,b`, anything else as TOML. What cannot be read stays text, and is refused by the type check with its key.
fn parse(text: &str, default: Option<&Value>) -> Value {
    let as_text = || Value::String(text.to_owned());
    match default {
        // `{ linear = { .. } }` where a word is usual: a choice that has settings of its own.
        Some(Value::String(_)) if !text.trim_start().starts_with('{') => as_text(),
        Some(Value::Array(_)) if !text.trim_start().starts_with('[') => {
            let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
            Value::Array(parts.map(|part| Value::String(part.to_owned())).collect())
        }
        _ => {
            let read: Result<Table, _> = format!("value = {text}").parse();
            read.ok().filter(|t| t.len() == 1).and_then(|mut t| t.remove("value")).unwrap_or_else(as_text)
        }
    }
}
