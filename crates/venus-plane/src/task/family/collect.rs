//! Write the values of several keys, one a line.

use super::draw::Draw;
use super::script::{DONE, Script, Whim, report_name};
use super::{Draft, REPORTS, holds_lines};

const LINES: usize = 4;

pub(super) fn draft(draw: &mut Draw) -> Draft {
    let mut deck = draw.deck();
    let mut word = || deck.next().expect("the deck is endless");
    let entries: Vec<_> = (0..draw.tail(2, 6, 0.3)).map(|_| (word(), word())).collect();
    let report = draw.pick(&REPORTS);
    let names: Vec<&str> = (0..3).map(|_| word()).collect();
    let mut lines: Vec<String> = entries.iter().map(|(key, value)| format!("{key} {value}")).collect();
    while lines.len() < names.len() * LINES {
        lines.push(format!("{} {}", word(), word()));
    }
    draw.shuffle(&mut lines);
    let keys: Vec<&'static str> = entries.iter().map(|&(key, _)| key).collect();
    let list = keys.join(" , ");
    let instruction = match draw.below(2) {
        0 => format!("write the values of {list} to {report} , one a line"),
        _ => format!("find the values of {list} and put each in {report} , one a line"),
    };
    let values: Vec<String> = entries.iter().map(|&(_, value)| value.to_owned()).collect();
    let files = names.iter().zip(lines.chunks(LINES));
    Draft {
        instruction,
        files: files.map(|(name, lines)| ((*name).to_owned(), lines.join("\n") + "\n")).collect(),
        verdict: holds_lines(report, &values),
        identity: entries.iter().take(2).flat_map(|&(key, value)| [key, value]).collect(),
        script: Box::new(Collect { keys, report, at: 0, searched: false }),
    }
}

struct Collect {
    keys: Vec<&'static str>,
    report: &'static str,
    /// Key in hand.
    at: usize,
    searched: bool,
}

impl Script for Collect {
    fn next(&mut self, seen: &str, whim: &mut Whim) -> String {
        if !self.searched {
            // Forgets the keys that are left.
            if self.at == self.keys.len() || self.at > 0 && whim.slips(0.12) {
                return DONE.into();
            }
            self.searched = true;
            return format!("grep -h {} *", self.keys[self.at]);
        }
        self.searched = false;
        let (key, value) = seen.trim().split_once(' ').unwrap_or((seen.trim(), seen.trim()));
        let value = if whim.slips(0.1) { key } else { value };
        if self.at == 0 {
            self.report = report_name(self.report, whim, 0.15);
        }
        // `>` throws away what was written before.
        let arrow = if self.at > 0 && whim.slips(0.22) { ">" } else { ">>" };
        self.at += 1;
        format!("echo {value} {arrow} {}", self.report)
    }
}
