//! What kind of thing a turn asked for.

use serde::{Deserialize, Serialize};

/// What a turn handed over to, as coarse as it helps a prediction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolKind {
    /// Ran a test suite.
    Test,
    /// Ran, built or installed a program.
    Run,
    /// Changed files or other state.
    Write,
    /// Looked at files or other state.
    Read,
    /// Asked a person, or somebody who plays one.
    Ask,
    /// Anything else, or not known.
    #[default]
    Other,
}

const TESTERS: [&str; 7] = ["pytest", "unittest", "ctest", "tox", "jest", "rspec", "nosetests"];
const BUILDERS: [&str; 9] = ["cargo", "go", "npm", "yarn", "pnpm", "make", "mvn", "gradle", "gradlew"];
const RUNNERS: [&str; 16] = [
    "python", "python3", "node", "bash", "sh", "perl", "ruby", "java", "gcc", "g++", "clang", "rustc", "cmake", "pip",
    "apt", "apt-get",
];
const WRITERS: [&str; 12] =
    ["tee", "cp", "mv", "rm", "mkdir", "rmdir", "touch", "chmod", "chown", "ln", "patch", "truncate"];
const READERS: [&str; 22] = [
    "cat", "ls", "head", "tail", "grep", "rg", "find", "sed", "awk", "wc", "less", "tree", "stat", "diff", "cmp",
    "sort", "uniq", "cut", "file", "du", "pwd", "cd",
];

impl ToolKind {
    /// All kinds, in the order of their [`ToolKind::index`].
    pub const ALL: [Self; 6] = [Self::Test, Self::Run, Self::Write, Self::Read, Self::Ask, Self::Other];

    /// Its place in [`ToolKind::ALL`].
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The kind of a shell command: of all programs it names the one that comes first in the order test, run, write,
    /// read. A guess by names; it reads no quoting.
    #[must_use]
    pub fn of_command(command: &str) -> Self {
        let words: Vec<&str> = command
            .split(|c: char| c.is_whitespace() || matches!(c, ';' | '|' | '&' | '(' | ')'))
            .filter(|word| !word.is_empty())
            .collect();
        let program = |word: &&str| word.rsplit('/').next().unwrap_or_default().to_owned();
        let names = |list: &[&str]| words.iter().map(program).any(|word| list.contains(&word.as_str()));
        let tests = words.windows(2).any(|pair| BUILDERS.contains(&pair[0]) && matches!(pair[1], "test" | "check"));
        let edits_in_place = words.windows(2).any(|pair| pair[0] == "sed" && pair[1].starts_with("-i"));
        if names(&TESTERS) || tests {
            Self::Test
        } else if names(&RUNNERS) || names(&BUILDERS) || words.iter().any(|word| word.starts_with("./")) {
            Self::Run
        } else if names(&WRITERS) || edits_in_place || command.contains('>') {
            Self::Write
        } else if names(&READERS) {
            Self::Read
        } else {
            Self::Other
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_of_the_kind_of_the_first_thing_it_does_in_the_order_of_kinds() {
        for (command, kind) in [
            ("cargo test -p core", ToolKind::Test),
            ("cd /app && python -m pytest -q", ToolKind::Test),
            ("python3 fix.py | head", ToolKind::Run),
            ("./configure", ToolKind::Run),
            ("sed -i s/a/b/ notes.txt", ToolKind::Write),
            ("echo done > answer.txt", ToolKind::Write),
            ("sed -n 1,20p notes.txt", ToolKind::Read),
            ("/usr/bin/grep -r key .", ToolKind::Read),
            ("done", ToolKind::Other),
            ("", ToolKind::Other),
        ] {
            assert_eq!(ToolKind::of_command(command), kind, "{command}");
        }
    }

    #[test]
    fn every_kind_has_its_place() {
        assert!(ToolKind::ALL.iter().enumerate().all(|(place, kind)| kind.index() == place));
    }
}
