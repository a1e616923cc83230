//! Find the value of a key in one of several files.

use super::draw::Draw;
use super::script::{DONE, Script, Whim, failed, report_name};
use super::{Draft, REPORTS, holds_lines};

const LINES: usize = 3;

pub(super) fn draft(draw: &mut Draw) -> Draft {
    let mut deck = draw.deck();
    let mut word = || deck.next().expect("the deck is endless");
    let (key, value, lure) = (word(), word(), word());
    let report = draw.pick(&REPORTS);
    let names: Vec<&str> = (0..draw.between(2, 4)).map(|_| word()).collect();
    let mut lines: Vec<String> = (0..names.len() * LINES).map(|_| format!("{} {}", word(), word())).collect();
    lines[0] = format!("{key} {value}");
    if draw.chance(0.2) {
        // The key also stands where a value does: a reader who takes any line with it is wrong.
        lines[1] = format!("{lure} {key}");
    }
    draw.shuffle(&mut lines);
    let files = names.iter().zip(lines.chunks(LINES));
    let instruction = match draw.below(3) {
        0 => format!("find the value of {key} and write it to {report}"),
        1 => format!("write the value of {key} to {report}"),
        _ => format!("what is the value of {key} ? put it in {report}"),
    };
    Draft {
        instruction,
        files: files.map(|(name, lines)| ((*name).to_owned(), lines.join("\n") + "\n")).collect(),
        verdict: holds_lines(report, &[value.to_owned()]),
        identity: vec![key, value],
        script: Box::new(Lookup { key, report, state: State::Start }),
    }
}

struct Lookup {
    key: &'static str,
    report: &'static str,
    state: State,
}

enum State {
    Start,
    Searched,
    Written,
}

impl Script for Lookup {
    fn next(&mut self, seen: &str, whim: &mut Whim) -> String {
        match self.state {
            State::Start if failed(seen) && whim.slips(0.4) => DONE.into(),
            // Takes the key for a file: fails, and shows how to go on after a failure.
            State::Start if !failed(seen) && whim.slips(0.3) => format!("cat {}", self.key),
            State::Start => {
                self.state = State::Searched;
                format!("grep -h {} *", self.key)
            }
            State::Searched => {
                self.state = State::Written;
                let value = answer(seen, self.key, whim);
                format!("echo {value} > {}", report_name(self.report, whim, 0.3))
            }
            State::Written => DONE.into(),
        }
    }
}

/// The word after the key at the start of a line; on a slip the key itself, or the word before it where it is a value.
fn answer(seen: &str, key: &str, whim: &mut Whim) -> String {
    let pairs = seen.lines().filter_map(|line| line.split_once(' '));
    let (found, lures): (Vec<_>, Vec<_>) = pairs.partition(|&(name, _)| name == key);
    let mut wrong: Vec<&str> = lures.iter().map(|&(name, _)| name).collect();
    wrong.push(key);
    let right = found.first().map_or(key, |&(_, value)| value);
    if whim.slips(0.4) { whim.pick(&wrong).into() } else { right.into() }
}
