//! Recorded trajectories, as counts: one JSON object a line.

use crate::failure::Failure;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek};
use std::path::Path;
use venus_core::predict::{ToolKind, Turn};
use venus_core::units::Tokens;

/// A recorded trajectory.
#[derive(Clone, Debug, PartialEq)]
pub struct Recorded {
    /// Tokens of its prompt.
    pub prompt: Tokens,
    /// Its turns; at least one.
    pub turns: Vec<Turn>,
}

impl Recorded {
    /// Tokens it generated in all.
    pub fn total(&self) -> Tokens {
        self.turns.iter().map(|turn| turn.generated).sum()
    }
}

/// Trajectories of one prompt by one policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// Its task; several groups may share one.
    pub task: String,
    /// In the order of the file.
    pub members: Vec<Recorded>,
}

/// The trajectories of a file, in groups ordered by their first line.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// The groups.
    pub groups: Vec<Group>,
}

impl Trace {
    /// How many tasks there are.
    pub fn tasks(&self) -> usize {
        self.groups.iter().map(|group| &group.task).collect::<BTreeSet<_>>().len()
    }
}

/// What is wrong with a line.
#[derive(Debug, PartialEq)]
enum Bad {
    Json(String),
    Field { name: &'static str, wrong: &'static str },
}

impl fmt::Display for Bad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json(error) => write!(f, "is no JSON object: {error}"),
            Self::Field { name, wrong } => write!(f, "field `{name}` {wrong}"),
        }
    }
}

/// Reads a trace.
///
/// # Errors
/// The file cannot be read, or a line of it lacks a field or has one of the wrong kind.
pub fn read(path: &Path) -> Result<Trace, Failure> {
    let shown = path.display();
    let unreadable = |error: io::Error| {
        Failure::usage(
            format!("cannot read the trace {shown}: {error}"),
            "give files of trajectories, .jsonl or .jsonl.zst",
        )
    };
    let lines = BufReader::new(open(path).map_err(unreadable)?).lines();
    let mut trace = Trace::default();
    let mut places = std::collections::HashMap::new();
    for (number, line) in lines.enumerate() {
        let line = line.map_err(unreadable)?;
        if line.trim().is_empty() {
            continue;
        }
        let (task, group, recorded) = parse(&line).map_err(|bad| {
            let next = "`venus predict eval --help` says which fields a trajectory needs; totals alone are not enough";
            Failure::usage(format!("{shown} line {}: {bad}", number + 1), next)
        })?;
        let place = *places.entry(group).or_insert(trace.groups.len());
        if place == trace.groups.len() {
            trace.groups.push(Group { task, members: Vec::new() });
        }
        trace.groups[place].members.push(recorded);
    }
    Ok(trace)
}

/// The file's text, decompressed if its first bytes say that it is compressed.
fn open(path: &Path) -> io::Result<Box<dyn Read>> {
    const MAGIC: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];
    let mut file = File::open(path)?;
    let mut start = Vec::new();
    file.by_ref().take(4).read_to_end(&mut start)?;
    file.rewind()?;
    if start != MAGIC {
        return Ok(Box::new(file));
    }
    let decoder = ruzstd::decoding::StreamingDecoder::new(BufReader::new(file));
    Ok(Box::new(decoder.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?))
}

/// Task, group and trajectory of a line.
fn parse(line: &str) -> Result<(String, String, Recorded), Bad> {
    let row: Map<String, Value> = serde_json::from_str(line).map_err(|error| Bad::Json(error.to_string()))?;
    let task = text(&row, "task")?.ok_or(Bad::Field { name: "task", wrong: "is missing" })?;
    let group = text(&row, "group")?.unwrap_or(task);
    let generated = counts(&row, "gen")?;
    let added = counts(&row, "add")?;
    let turns = generated.len();
    if turns == 0 {
        return Err(Bad::Field { name: "gen", wrong: "is empty: a trajectory has a turn" });
    }
    if added.len() != turns {
        return Err(Bad::Field { name: "add", wrong: LENGTH });
    }
    let after_last = match row.get("last_obs") {
        None | Some(Value::Null) => 0,
        Some(value) => value.as_u64().ok_or(Bad::Field { name: "last_obs", wrong: "is no count of tokens" })?,
    };
    let (tools, categories) = (per_turn(&row, "tool", turns)?, per_turn(&row, "cat", turns)?);
    let (seconds, codes) = (per_turn(&row, "tool_s", turns)?, per_turn(&row, "rc", turns)?);
    let turn = |at: usize| {
        Ok(Turn {
            generated: Tokens(generated[at]),
            tool: kind(word(tools, at, "tool")?, word(categories, at, "cat")?),
            output: Tokens(added.get(at + 1).copied().unwrap_or(after_last)),
            seconds: number(seconds, at, "tool_s")?,
            failed: number(codes, at, "rc")? != 0.0,
        })
    };
    let recorded = Recorded { prompt: Tokens(added[0]), turns: (0..turns).map(turn).collect::<Result<_, _>>()? };
    Ok((task.to_owned(), group.to_owned(), recorded))
}

/// A field with one entry a turn, if it is there.
type Column<'a> = Option<&'a Vec<Value>>;

fn word<'a>(column: Column<'a>, turn: usize, name: &'static str) -> Result<&'a str, Bad> {
    let Some(values) = column else { return Ok("") };
    values[turn].as_str().ok_or(Bad::Field { name, wrong: "has an entry that is no text" })
}

/// 0 where it is not known.
fn number(column: Column<'_>, turn: usize, name: &'static str) -> Result<f64, Bad> {
    match column.map(|values| &values[turn]) {
        None | Some(Value::Null) => Ok(0.0),
        Some(value) => value.as_f64().ok_or(Bad::Field { name, wrong: "has an entry that is no number" }),
    }
}

const LENGTH: &str = "has not one entry a turn, as `gen` has";

fn text<'a>(row: &'a Map<String, Value>, name: &'static str) -> Result<Option<&'a str>, Bad> {
    match row.get(name) {
        None => Ok(None),
        Some(value) => value.as_str().map(Some).ok_or(Bad::Field { name, wrong: "is no text" }),
    }
}

fn counts(row: &Map<String, Value>, name: &'static str) -> Result<Vec<u64>, Bad> {
    let value = row.get(name).ok_or(Bad::Field { name, wrong: "is missing" })?;
    let list = value.as_array().ok_or(Bad::Field { name, wrong: "is no list" })?;
    // More than 2^40 tokens would overflow sums of them, and no trajectory has a millionth of that.
    let count = |value: &Value| value.as_u64().filter(|count| *count < 1 << 40);
    list.iter()
        .map(count)
        .collect::<Option<_>>()
        .ok_or(Bad::Field { name, wrong: "has an entry that is no count of tokens" })
}

fn per_turn<'a>(row: &'a Map<String, Value>, name: &'static str, turns: usize) -> Result<Column<'a>, Bad> {
    let Some(value) = row.get(name) else { return Ok(None) };
    let list = value.as_array().ok_or(Bad::Field { name, wrong: "is no list" })?;
    if list.len() == turns { Ok(Some(list)) } else { Err(Bad::Field { name, wrong: LENGTH }) }
}

/// The kind of a tool call: by category of command where there is one, else by name of the tool.
fn kind(tool: &str, category: &str) -> ToolKind {
    let named = |name| match name {
        "test" => ToolKind::Test,
        "run" | "build" | "install" | "python" | "sql" | "api_calculate" => ToolKind::Run,
        "edit" | "api_write" | "api_transfer" | "click" | "type" => ToolKind::Write,
        "read" | "search" | "view" | "api_read" | "scroll" | "navigate" | "extract" => ToolKind::Read,
        "user" => ToolKind::Ask,
        _ => ToolKind::Other,
    };
    match named(category) {
        ToolKind::Other => named(tool),
        kind => kind,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_becomes_a_trajectory() {
        let line = r#"{"src":"x","task":"t","gen":[52,54],"add":[721,117],"tool":["bash","bash"],"cat":["search","test"],
                       "tool_s":[0.5,null],"rc":[0,1],"last_obs":33}"#;
        let turn = |generated, tool, output, seconds, failed| Turn {
            generated: Tokens(generated),
            tool,
            output: Tokens(output),
            seconds,
            failed,
        };
        let turns = vec![turn(52, ToolKind::Read, 117, 0.5, false), turn(54, ToolKind::Test, 33, 0.0, true)];
        let recorded = Recorded { prompt: Tokens(721), turns };
        assert_eq!(parse(line), Ok(("t".to_owned(), "t".to_owned(), recorded)));
    }

    #[test]
    fn a_line_that_lacks_something_is_refused_with_the_field() {
        for (line, told) in [
            (r#"{"task":"t","add":[1]}"#, "field `gen` is missing"),
            (r#"{"gen":[1],"add":[1]}"#, "field `task` is missing"),
            (r#"{"task":"t","gen":[],"add":[]}"#, "field `gen` is empty: a trajectory has a turn"),
            (r#"{"task":"t","gen":[1,2],"add":[1]}"#, "field `add` has not one entry a turn, as `gen` has"),
            (r#"{"task":"t","gen":[-1],"add":[1]}"#, "field `gen` has an entry that is no count of tokens"),
            (r#"{"task":"t","gen":[1],"add":[1],"tool":[7]}"#, "field `tool` has an entry that is no text"),
            (r#"{"task":"t","gen":[1],"add":[1],"tool_s":["x"]}"#, "field `tool_s` has an entry that is no number"),
            (r#"{"task":7,"gen":[1],"add":[1]}"#, "field `task` is no text"),
        ] {
            assert_eq!(parse(line).unwrap_err().to_string(), told);
        }
        assert!(parse("[1]").unwrap_err().to_string().starts_with("is no JSON object"));
    }
}
