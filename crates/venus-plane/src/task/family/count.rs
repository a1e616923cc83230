//! Count lines with a property, once or several times.

use super::draw::Draw;
use super::script::{DONE, Script, Whim, report_name};
use super::{Draft, REPORTS, holds_lines};

#[derive(Clone, Copy, PartialEq)]
enum Property {
    Holds,
    Lacks,
    Differs,
}

pub(super) fn draft(draw: &mut Draw) -> Draft {
    let mut deck = draw.deck();
    let mut word = || deck.next().expect("the deck is endless");
    let property = draw.pick(&[Property::Holds, Property::Lacks, Property::Differs]);
    let n = draw.tail(1, 3, 0.25);
    let report = draw.pick(&REPORTS);
    let (mut files, mut counts, mut subjects) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..n {
        let name = word();
        let mut lines: Vec<&str> = (0..draw.between(2, 9)).map(|_| word()).collect();
        let kinds = lines.len();
        let common = if property == Property::Differs { lines[0] } else { word() };
        let again = draw.between(2, 9);
        lines.extend((0..again).map(|_| common));
        draw.shuffle(&mut lines);
        counts.push(if property == Property::Holds { again } else { kinds }.to_string());
        files.push((name.to_owned(), lines.join("\n") + "\n"));
        subjects.push(Subject { file: name, word: common });
    }
    Draft {
        instruction: instruction(property, &subjects, report, draw.below(2)),
        files,
        verdict: holds_lines(report, &counts),
        identity: vec![subjects[0].file, subjects[0].word],
        script: Box::new(Count { property, subjects, report, at: 0, state: State::Counting }),
    }
}

fn instruction(property: Property, subjects: &[Subject], report: &str, phrase: usize) -> String {
    let each = |subject: &Subject| match property {
        Property::Differs => subject.file.to_owned(),
        Property::Holds | Property::Lacks => format!("{} in {}", subject.word, subject.file),
    };
    let list = subjects.iter().map(each).collect::<Vec<_>>().join(" , ");
    let what = match property {
        Property::Holds => format!("lines that hold {list}"),
        Property::Lacks => format!("lines that lack {list}"),
        Property::Differs => format!("different lines of {list}"),
    };
    match phrase {
        0 => format!("count the {what} . write the number to {report}"),
        _ => format!("put in {report} the number of {what}"),
    }
}

struct Subject {
    file: &'static str,
    word: &'static str,
}

struct Count {
    property: Property,
    subjects: Vec<Subject>,
    report: &'static str,
    at: usize,
    state: State,
}

enum State {
    Counting,
    Looking,
    Looked,
}

impl Script for Count {
    fn next(&mut self, seen: &str, whim: &mut Whim) -> String {
        match self.state {
            State::Counting => self.count(whim),
            State::Looking => {
                self.state = State::Looked;
                format!("cat {}", self.report)
            }
            State::Looked if plausible(seen, self.subjects.len()) || whim.slips(0.5) => DONE.into(),
            State::Looked => {
                self.state = State::Counting;
                format!("rm {}", self.report)
            }
        }
    }
}

impl Count {
    fn count(&mut self, whim: &mut Whim) -> String {
        let subject = &self.subjects[self.at];
        if self.at == 0 {
            self.report = report_name(self.report, whim, 0.2);
        }
        let command = command(self.property, subject, whim);
        // `>` throws away the counts before.
        let arrow = if self.at > 0 && whim.slips(0.25) { ">" } else { ">>" };
        self.at += 1;
        // Forgets the counts that are left.
        if self.at == self.subjects.len() || whim.slips(0.12) {
            self.at = 0;
            self.state = State::Looking;
        }
        format!("{command} {arrow} {}", self.report)
    }
}

fn command(property: Property, Subject { file, word }: &Subject, whim: &mut Whim) -> String {
    let slip = whim.slips(0.45);
    // A slip lists instead of counting, which shows when the result is looked at, or counts something else.
    match (property, slip, slip && whim.pick(&[true, false])) {
        (Property::Holds, false, _) | (Property::Lacks, true, true) => format!("grep -c {word} {file}"),
        (Property::Lacks, false, _) | (Property::Holds, true, true) => format!("grep -v -c {word} {file}"),
        (Property::Holds, true, false) => format!("grep {word} {file}"),
        (Property::Lacks, true, false) => format!("grep -v {word} {file}"),
        (Property::Differs, false, _) => format!("sort -u {file} | wc -l"),
        (Property::Differs, true, true) => format!("sort {file} | wc -l"),
        (Property::Differs, true, false) => format!("sort -u {file}"),
    }
}

/// As many lines as asked for, all numbers.
fn plausible(seen: &str, lines: usize) -> bool {
    seen.lines().count() == lines && seen.lines().all(|line| line.trim().parse::<u32>().is_ok())
}
