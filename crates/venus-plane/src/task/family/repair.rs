//! Edit files until the check that names one fault at a time is content.

use super::Draft;
use super::draw::Draw;
use super::script::{DONE, Script, Whim, failed};

const LINES: usize = 3;

pub(super) fn draft(draw: &mut Draw) -> Draft {
    let mut deck = draw.deck();
    let mut word = || deck.next().expect("the deck is endless");
    let names: Vec<&'static str> = (0..draw.between(2, 3)).map(|_| word()).collect();
    let wanted: Vec<&'static str> = (0..names.len() * LINES).map(|_| word()).collect();
    let mut places: Vec<usize> = (0..wanted.len()).collect();
    draw.shuffle(&mut places);
    places.truncate(draw.tail(1, 5, 0.6));
    let mut found = wanted.clone();
    for &place in &places {
        found[place] = word();
    }
    let mut files: Vec<(String, String)> = names
        .iter()
        .zip(found.chunks(LINES))
        .map(|(name, lines)| ((*name).to_owned(), lines.join("\n") + "\n"))
        .collect();
    let looks: String =
        places.iter().map(|&at| format!("look {} {} {}\n", names[at / LINES], at % LINES + 1, wanted[at])).collect();
    files.push(("check".to_owned(), format!("{CHECK}{looks}echo ok\n")));
    let verdicts = names.iter().zip(wanted.chunks(LINES));
    let verdicts = verdicts
        .map(|(name, lines)| super::holds_lines(name, &lines.iter().map(|&l| l.to_owned()).collect::<Vec<_>>()));
    Draft {
        instruction: match draw.below(3) {
            0 => "fix the files until sh check says ok".into(),
            1 => "make sh check say ok".into(),
            _ => "run sh check and fix what it says until it is ok".into(),
        },
        files,
        verdict: verdicts.collect::<Vec<_>>().join(" &&\n   "),
        identity: vec![found[places[0]], wanted[places[0]]],
        script: Box::new(Repair { edited: true }),
    }
}

/// Stops at the first line that is not as wanted.
const CHECK: &str = "\
look() {
  x=$(sed -n $2p $1)
  [ \"$x\" = $3 ] || { echo \"$1 line $2 has $x wants $3\"; exit 1; }
}
";

struct Repair {
    /// Something changed since the last check.
    edited: bool,
}

impl Script for Repair {
    fn next(&mut self, seen: &str, whim: &mut Whim) -> String {
        let first = seen.is_empty();
        if self.edited {
            // Trusts its edit and does not check again.
            if !first && whim.slips(0.3) {
                return DONE.into();
            }
            self.edited = false;
            return "sh check".into();
        }
        self.edited = true;
        let words: Vec<&str> = seen.lines().next().unwrap_or_default().split(' ').collect();
        match words[..] {
            [file, "line", line, "has", got, "wants", want] => {
                if whim.slips(0.12) {
                    return DONE.into();
                }
                // Writes what is there already, or to a file that is none: the next check says the same as this one.
                if whim.slips(0.2) {
                    return format!("sed -i '{line}c {got}' {file}");
                }
                if whim.slips(0.15) {
                    return format!("sed -i '{line}c {want}' {want}");
                }
                format!("sed -i '{line}c {want}' {file}")
            }
            _ if failed(seen) => "sh check".into(),
            _ => DONE.into(),
        }
    }
}
