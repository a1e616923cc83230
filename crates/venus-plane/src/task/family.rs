//! Generated shell tasks for a small policy, and a scripted agent that shows how they are done.
//!
//! Success hangs on what a model of a million parameters can represent and reinforcement can find: which command comes
//! next, what to copy from where, when to stop, how to go on after a failed command. All computing is done by the shell.
//! Names and values are single words of a closed [`vocabulary`]; a command is one line; lengths have a long tail.
//!
//! A task is a pure function of (family, split, seed, index). The words its answer hangs on are hashed, and the hash alone
//! decides which split may use them, so no held-out combination is ever trained on, whatever the seed or number of tasks.

mod chain;
mod collect;
mod count;
mod draw;
mod extreme;
mod lookup;
mod repair;
mod restore;
mod script;
mod words;

pub use script::{DEFAULT_SKILL, Demonstrator};

use super::{Environment, File, Oracle, Source, Split, Task, Verifier};
use draw::{Draw, hash};
use script::Script;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;
use venus_core::message::sandbox::Limits;
use venus_core::units::Bytes;

/// Working directory of every generated task.
pub const WORKDIR: &str = "/work";

/// One combination in this many is held out.
const HELDOUT_ONE_IN: u64 = 4;

/// A family of generated tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// Find the value of a key in one of several files.
    Lookup,
    /// Write the values of several keys, one a line.
    Collect,
    /// Follow files that each name the next, and write the value at the end.
    Chain,
    /// Count lines with a property, once or several times.
    Count,
    /// Write what comes first, last, smallest or largest.
    Extreme,
    /// Edit files until the check that names one fault at a time is content.
    Repair,
    /// Bring files and directories back until a script that stops at the first one missing runs through.
    Restore,
}

impl Family {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Lookup, Self::Collect, Self::Chain, Self::Count, Self::Extreme, Self::Repair, Self::Restore];

    /// The word used in names and configuration.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Lookup => "lookup",
            Self::Collect => "collect",
            Self::Chain => "chain",
            Self::Count => "count",
            Self::Extreme => "extreme",
            Self::Repair => "repair",
            Self::Restore => "restore",
        }
    }

    /// One line for a person.
    #[must_use]
    pub fn summary(self) -> &'static str {
        match self {
            Self::Lookup => "find the value of a key in one of several files",
            Self::Collect => "write the values of two to six keys, one a line",
            Self::Chain => "follow one to seven files that each name the next, write the value at the end",
            Self::Count => "count lines that hold or lack a word, or differ, one to three times",
            Self::Extreme => {
                "write the first or last words, or the one with the largest or smallest number, of one to four files"
            }
            Self::Repair => "edit files until a check that names one to five faults, one at a time, is content",
            Self::Restore => "copy, move, remove and make files until a script runs through",
        }
    }

    /// Turns a faultless agent takes, shortest and longest, the last one that says `done` included.
    #[must_use]
    pub fn turns(self) -> (usize, usize) {
        match self {
            Self::Lookup => (3, 3),
            Self::Collect => (5, 13),
            Self::Chain => (4, 10),
            Self::Count => (3, 5),
            Self::Extreme => (2, 9),
            Self::Repair => (4, 12),
            Self::Restore => (4, 14),
        }
    }

    /// The task at `index` of the set `seed`. Never fails: every index has a task.
    #[must_use]
    pub fn task(self, split: Split, seed: u64, index: u64) -> Task {
        let draft = self.draft(split, seed, index);
        let files = draft.files.iter();
        let files = files.map(|(name, text)| File::held(format!("{WORKDIR}/{name}"), 0o644, text.as_bytes()));
        Task {
            name: format!("{}-{}-{seed}-{index}", self.name(), split.as_str()),
            source: Source::Family { family: self, seed, index },
            split,
            instruction: draft.instruction,
            environment: Environment { workdir: WORKDIR.into(), files: files.collect(), ..Environment::default() },
            tests: vec![File::held("test.sh", 0o755, grader(&draft.verdict))],
            verifier: Verifier { timeout: Duration::from_secs(10), env: BTreeMap::new() },
            limits: Limits {
                memory: Some(Bytes(64 << 20)),
                pids: Some(32),
                cpu_millis: None,
                file_size: Some(Bytes(1 << 20)),
            },
            agent_timeout: Duration::from_secs(120),
            oracle: Some(Oracle::Demonstrator),
            notices: Vec::new(),
        }
    }

    /// Draws until the combination of words belongs to `split`: four draws on average for a held-out task.
    fn draft(self, split: Split, seed: u64, index: u64) -> Draft {
        let mut attempt = 0;
        loop {
            let draft = self.draw(&mut Draw::new(&[self as u64, split as u64, seed, index, attempt]));
            let heldout = hash(&draft.identity).is_multiple_of(HELDOUT_ONE_IN);
            if heldout == (split == Split::Heldout) {
                return draft;
            }
            attempt += 1;
        }
    }

    fn draw(self, draw: &mut Draw) -> Draft {
        match self {
            Self::Lookup => lookup::draft(draw),
            Self::Collect => collect::draft(draw),
            Self::Chain => chain::draft(draw),
            Self::Count => count::draft(draw),
            Self::Extreme => extreme::draft(draw),
            Self::Repair => repair::draft(draw),
            Self::Restore => restore::draft(draw),
        }
    }
}

/// The task at `index` of a set that takes `families` in turn. `families` must not be empty.
#[must_use]
pub fn mixed(families: &[Family], split: Split, seed: u64, index: u64) -> Task {
    let n = families.len() as u64;
    families[(index % n) as usize].task(split, seed, index / n)
}

/// A family's name, as written in configuration.
impl std::str::FromStr for Family {
    type Err = UnknownFamily;

    fn from_str(name: &str) -> Result<Self, UnknownFamily> {
        let found = Self::ALL.into_iter().find(|family| family.name() == name);
        found.ok_or_else(|| UnknownFamily { name: name.into(), known: Self::ALL.map(Self::name).join(", ") })
    }
}

/// No family has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no task family `{name}`; the families are {known}")]
pub struct UnknownFamily {
    name: String,
    known: String,
}

/// Every word of two letters or more that can appear in an instruction, a command or its usual output: a tokenizer
/// that holds these, single characters and the special tokens spells every demonstration one token a word.
#[must_use]
pub fn vocabulary() -> Vec<&'static str> {
    [words::WORDS].into_iter().chain(words::PHRASES).flat_map(str::split_whitespace).collect()
}

/// A task as its family draws it.
struct Draft {
    instruction: String,
    /// Names beneath the working directory, and contents.
    files: Vec<(String, String)>,
    /// A shell condition, run in the working directory: true if the task is done.
    verdict: String,
    /// The words the answer hangs on; decides the split.
    identity: Vec<&'static str>,
    /// How to do it.
    script: Box<dyn Script>,
}

/// The names a result is asked under.
const REPORTS: [&str; 4] = ["answer", "reply", "report", "result"];

/// A verdict: `file` is a plain file of exactly these lines; space at the ends of lines and empty last lines are forgiven.
fn holds_lines(file: &str, lines: &[String]) -> String {
    let want = lines.join("\n");
    format!("[ -f {file} ] && [ \"$(head -c 4096 {file} | sed 's/[[:space:]]*$//')\" = '{want}' ]")
}

/// `test.sh` around a verdict. Says 1 or 0 and nothing else, so a grader that dies leaves no reward.
fn grader(verdict: &str) -> String {
    format!(
        "#!/bin/sh\n\
         # Looks at what the agent left in the working directory and writes 1 or 0.\n\
         logs=${{VERIFIER_LOGS:-/logs/verifier}}\n\
         reward=0\n\
         if {verdict}\n\
         then reward=1\n\
         fi\n\
         mkdir -p \"$logs\" && echo $reward > \"$logs/reward.txt\"\n"
    )
}
