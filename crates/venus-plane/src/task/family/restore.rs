//! Bring files and directories back until a script that stops at the first one missing runs through.

use super::Draft;
use super::draw::Draw;
use super::script::{DONE, Script, Whim, failed};

/// What is wrong, and with which words.
#[derive(Clone, Copy)]
enum Fault {
    Missing { file: &'static str, store: &'static str },
    Moved { file: &'static str, to: &'static str },
    Stale { file: &'static str },
    NoDirectory { name: &'static str },
}

pub(super) fn draft(draw: &mut Draw) -> Draft {
    let mut deck = draw.deck();
    let mut word = || deck.next().expect("the deck is endless");
    let faults: Vec<Fault> = (0..draw.tail(1, 6, 0.6))
        .map(|_| match draw.below(4) {
            0 => Fault::Missing { file: word(), store: word() },
            1 => Fault::Moved { file: word(), to: word() },
            2 => Fault::Stale { file: word() },
            _ => Fault::NoDirectory { name: word() },
        })
        .collect();
    let mut files = Vec::new();
    let (mut run, mut verdicts) = (String::new(), Vec::new());
    for &fault in &faults {
        let content = word();
        if let Fault::Missing { store: name, .. } | Fault::Moved { to: name, .. } | Fault::Stale { file: name } = fault
        {
            files.push((name.to_owned(), format!("{content}\n")));
        }
        let (good, message, verdict) = expectation(fault, content);
        run += &format!("{good} || {{ echo \"{message}\"; exit 1; }}\n");
        verdicts.push(verdict);
    }
    files.push(("run".to_owned(), run + "echo ok\n"));
    Draft {
        instruction: match draw.below(3) {
            0 => "make sh run say ok".into(),
            1 => "run sh run and fix what is missing or stale until it says ok".into(),
            _ => "fix what sh run says until it is ok".into(),
        },
        files,
        verdict: verdicts.join(" &&\n   "),
        identity: identity(&faults),
        script: Box::new(Restore { mended: true }),
    }
}

/// The words of the first two faults, each with its kind.
fn identity(faults: &[Fault]) -> Vec<&'static str> {
    let words = |fault: &Fault| match *fault {
        Fault::Missing { file, store } => ["missing", file, store],
        Fault::Moved { file, to } => ["moved", file, to],
        Fault::Stale { file } => ["stale", file, ""],
        Fault::NoDirectory { name } => ["directory", name, ""],
    };
    faults.iter().take(2).flat_map(words).collect()
}

/// The script's own test, what it says when that fails, and the grader's test.
fn expectation(fault: Fault, content: &str) -> (String, String, String) {
    let same = |file: &str| format!("[ -f {file} ] && [ \"$(head -c 99 {file})\" = {content} ]");
    match fault {
        Fault::Missing { file, store } => (
            format!("[ -s {file} ]"),
            format!("missing {file} copy it from {store}"),
            format!("{} && {}", same(file), same(store)),
        ),
        Fault::Moved { file, to } => {
            (format!("[ -s {file} ]"), format!("{file} was moved to {to}"), format!("{} && [ ! -e {to} ]", same(file)))
        }
        Fault::Stale { file } => (format!("[ ! -e {file} ]"), format!("stale file {file}"), format!("[ ! -e {file} ]")),
        Fault::NoDirectory { name } => {
            (format!("[ -d {name} ]"), format!("no directory {name}"), format!("[ -d {name} ]"))
        }
    }
}

struct Restore {
    /// Something changed since the last run.
    mended: bool,
}

impl Script for Restore {
    fn next(&mut self, seen: &str, whim: &mut Whim) -> String {
        let first = seen.is_empty();
        if self.mended {
            // Gives up after a failure, or trusts its mending and does not run again.
            if !first && whim.slips(if failed(seen) { 0.35 } else { 0.22 }) {
                return DONE.into();
            }
            self.mended = false;
            return "sh run".into();
        }
        self.mended = true;
        let words: Vec<&str> = seen.lines().next().unwrap_or_default().split(' ').collect();
        if words != ["ok"] && whim.slips(0.12) {
            return DONE.into();
        }
        match words[..] {
            ["missing", file, "copy", "it", "from", store] => {
                // An empty file, which is no use, or the wrong way round, which fails.
                if whim.slips(0.2) {
                    return format!("touch {file}");
                }
                if whim.slips(0.15) {
                    return format!("cp {file} {store}");
                }
                format!("cp {store} {file}")
            }
            [file, "was", "moved", "to", to] if whim.slips(0.25) => format!("mv {file} {to}"),
            // Leaves the file where it was not wanted: the script is content, the grader is not.
            [file, "was", "moved", "to", to] if whim.slips(0.2) => format!("cp {to} {file}"),
            [file, "was", "moved", "to", to] => format!("mv {to} {file}"),
            ["stale", "file", file] if whim.slips(0.25) => format!("touch {file}"),
            ["stale", "file", file] => format!("rm {file}"),
            // A file of that name stands in the way of the directory until it is removed.
            ["no", "directory", name] => format!("{} {name}", if whim.slips(0.25) { "rm" } else { "mkdir" }),
            _ if words != ["ok"] => "sh run".into(),
            _ => DONE.into(),
        }
    }
}
