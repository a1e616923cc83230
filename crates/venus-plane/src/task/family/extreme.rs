//! Write what comes first, last, smallest or largest.

use super::draw::Draw;
use super::script::{DONE, Script, Whim, report_name};
use super::{Draft, REPORTS, holds_lines};

pub(super) fn draft(draw: &mut Draw) -> Draft {
    if draw.chance(0.5) { words(draw) } else { numbers(draw) }
}

/// The first or last few words of each of a few files by the alphabet.
fn words(draw: &mut Draw) -> Draft {
    let mut deck = draw.deck();
    let mut word = || deck.next().expect("the deck is endless");
    let (report, end, n) = (draw.pick(&REPORTS), draw.pick(&[End::Low, End::High]), draw.between(1, 4));
    let (mut files, mut names, mut answers) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..draw.tail(1, 4, 0.25) {
        let mut lines: Vec<&'static str> = (0..draw.between(5, 7)).map(|_| word()).collect();
        names.push(word());
        files.push((names[names.len() - 1].to_owned(), lines.join("\n") + "\n"));
        lines.sort_unstable();
        let kept = if end == End::Low { &lines[..n] } else { &lines[lines.len() - n..] };
        answers.extend(kept.iter().map(|&word| word.to_owned()));
    }
    let which = if end == End::Low { "first" } else { "last" };
    let list = names.join(" , ");
    let instruction = match draw.below(2) {
        0 => format!("write the {which} {n} words of {list} in order of the alphabet to {report}"),
        _ => format!("put in {report} the {n} words of {list} that are {which} in the alphabet , in order"),
    };
    Draft {
        instruction,
        files,
        verdict: holds_lines(report, &answers),
        identity: vec![names[0], report, which],
        script: Box::new(Words { names, report, n, end, at: 0 }),
    }
}

/// The word with the smallest or largest digit in each of a few files.
fn numbers(draw: &mut Draw) -> Draft {
    let mut deck = draw.deck();
    let mut word = || deck.next().expect("the deck is endless");
    let (report, end) = (draw.pick(&REPORTS), draw.pick(&[End::Low, End::High]));
    let (mut files, mut names, mut answers) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..draw.tail(1, 4, 0.25) {
        let mut digits: Vec<usize> = (1..=9).collect();
        draw.shuffle(&mut digits);
        let lines: Vec<(usize, &'static str)> = digits[..draw.between(4, 6)].iter().map(|&d| (d, word())).collect();
        let answer = if end == End::Low { lines.iter().min() } else { lines.iter().max() };
        answers.push(answer.map_or_else(String::new, |(_, word)| (*word).to_owned()));
        let text: String = lines.iter().map(|(digit, word)| format!("{digit} {word}\n")).collect();
        names.push(word());
        files.push((names[names.len() - 1].to_owned(), text));
    }
    let which = if end == End::Low { "smallest" } else { "largest" };
    let list = names.join(" , ");
    let instruction = match draw.below(2) {
        0 => format!("write the word with the {which} number in {list} to {report}"),
        _ => format!("which word has the {which} number in {list} ? put it in {report}"),
    };
    Draft {
        instruction,
        files,
        verdict: holds_lines(report, &answers),
        identity: vec![names[0], report, which],
        script: Box::new(Numbers { names, report, end, at: 0, sorted: false }),
    }
}

#[derive(Clone, Copy, PartialEq)]
enum End {
    Low,
    High,
}

impl End {
    /// `head` or `tail`, on a slip the other.
    fn command(self, whim: &mut Whim, weight: f64) -> &'static str {
        if (self == Self::Low) == whim.slips(weight) { "tail" } else { "head" }
    }
}

struct Words {
    names: Vec<&'static str>,
    report: &'static str,
    n: usize,
    end: End,
    at: usize,
}

impl Script for Words {
    fn next(&mut self, _seen: &str, whim: &mut Whim) -> String {
        // Forgets the files that are left.
        if self.at == self.names.len() || self.at > 0 && whim.slips(0.12) {
            return DONE.into();
        }
        if self.at == 0 {
            self.report = report_name(self.report, whim, 0.2);
        }
        let end = self.end.command(whim, 0.25);
        let n = if whim.slips(0.25) { whim.pick(&[1, 2, 3, 4]) } else { self.n };
        let arrow = if self.at > 0 && whim.slips(0.2) { ">" } else { ">>" };
        self.at += 1;
        format!("sort {} | {end} -n {n} {arrow} {}", self.names[self.at - 1], self.report)
    }
}

struct Numbers {
    names: Vec<&'static str>,
    report: &'static str,
    end: End,
    at: usize,
    sorted: bool,
}

impl Script for Numbers {
    fn next(&mut self, seen: &str, whim: &mut Whim) -> String {
        if !self.sorted {
            // Forgets the files that are left.
            if self.at == self.names.len() || self.at > 0 && whim.slips(0.12) {
                return DONE.into();
            }
            self.sorted = true;
            return format!("sort -n {} | {} -n 1", self.names[self.at], self.end.command(whim, 0.2));
        }
        self.sorted = false;
        let (digit, word) = seen.trim().split_once(' ').unwrap_or((seen.trim(), seen.trim()));
        let answer = if whim.slips(0.15) { digit } else { word };
        if self.at == 0 {
            self.report = report_name(self.report, whim, 0.2);
        }
        let arrow = if self.at > 0 && whim.slips(0.2) { ">" } else { ">>" };
        self.at += 1;
        format!("echo {answer} {arrow} {}", self.report)
    }
}
