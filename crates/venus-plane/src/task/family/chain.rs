//! Follow files that each name the next, and write the value at the end.

use super::draw::Draw;
use super::script::{DONE, Script, Whim, failed, report_name};
use super::{Draft, REPORTS, holds_lines};

pub(super) fn draft(draw: &mut Draw) -> Draft {
    let mut deck = draw.deck();
    let mut word = || deck.next().expect("the deck is endless");
    let names: Vec<&'static str> = (0..=draw.tail(1, 7, 0.6)).map(|_| word()).collect();
    let value = word();
    let report = draw.pick(&REPORTS);
    let mut files: Vec<(String, String)> =
        names.windows(2).map(|pair| (pair[0].to_owned(), format!("next {}\n", pair[1]))).collect();
    files.push((names[names.len() - 1].to_owned(), format!("value {value}\n")));
    for _ in 0..3 {
        files.push((word().to_owned(), format!("{} {}\n", draw.pick(&["next", "value"]), word())));
    }
    let start = names[0];
    let instruction = match draw.below(3) {
        0 => format!("start with {start} and follow each next to the value . write the value to {report}"),
        1 => format!("follow the files from {start} to a value and put it in {report}"),
        _ => format!("go from {start} to the next file until it says value . write it to {report}"),
    };
    Draft {
        instruction,
        files,
        verdict: holds_lines(report, &[value.to_owned()]),
        identity: vec![start, value],
        script: Box::new(Chain { start, report, state: State::Start }),
    }
}

struct Chain {
    start: &'static str,
    report: &'static str,
    state: State,
}

enum State {
    Start,
    Following,
    Written,
}

impl Script for Chain {
    fn next(&mut self, seen: &str, whim: &mut Whim) -> String {
        match self.state {
            State::Start if failed(seen) && whim.slips(0.4) => DONE.into(),
            // Looks at the result before there is one.
            State::Start if !failed(seen) && whim.slips(0.2) => format!("cat {}", self.report),
            State::Start => {
                self.state = State::Following;
                format!("cat {}", self.start)
            }
            State::Following => {
                let (kind, word) = seen.trim().split_once(' ').unwrap_or(("value", self.start));
                // Takes a name on the way for the value.
                if kind == "next" && !whim.slips(0.15) {
                    return format!("cat {word}");
                }
                self.state = State::Written;
                let word = if kind == "value" && whim.slips(0.12) { self.start } else { word };
                format!("echo {word} > {}", report_name(self.report, whim, 0.25))
            }
            State::Written => DONE.into(),
        }
    }
}
