//! The table of steps: columns of fixed width, one line a step.

use crate::run::StepLine;

/// Title and width of each column; all are aligned to the right.
const COLUMNS: [(&str, usize); 11] = [
    ("step", 5),
    ("reward", 7),
    ("solved", 7),
    ("held-out", 9),
    ("turns", 6),
    ("tok/s", 7),
    ("KV hit", 7),
    ("sandboxes", 10),
    ("stale", 6),
    ("bound/high/low", 15),
    ("seconds", 8),
];

/// The titles, as a line.
#[must_use]
pub fn header() -> String {
    line(COLUMNS.map(|(title, _)| title.to_owned()))
}

/// One step as a line. `heldout`: the success measured with its weights, if it was.
#[must_use]
pub fn row(step: &StepLine, heldout: Option<f64>) -> String {
    let classes = step.classes;
    line([
        step.step.to_string(),
        format!("{:.3}", step.trainer.reward_mean),
        format!("{:.0}%", step.success * 100.0),
        heldout.map_or_else(|| "-".to_owned(), |success| format!("{:.1}%", success * 100.0)),
        format!("{:.0}", step.turns.p50),
        format!("{:.0}", step.tokens_per_second),
        format!("{:.0}%", step.hit_rate * 100.0),
        step.sandboxes_live.to_string(),
        format!("{:.2}", step.staleness_mean),
        format!("{}/{}/{}", classes.boundary, classes.high, classes.low),
        format!("{:.1}", step.seconds),
    ])
}

fn line(cells: [String; COLUMNS.len()]) -> String {
    let mut out = String::new();
    for (cell, (_, width)) in cells.iter().zip(COLUMNS) {
        out.push_str(&format!("{cell:>width$}"));
    }
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::{ClassCounts, Percentiles};
    use venus_core::message::trainer::StepMetrics;

    #[test]
    fn columns_stay_under_their_titles() {
        let step = StepLine {
            step: 20,
            seconds: 61.24,
            success: 0.41,
            turns: Percentiles { p50: 3.0, ..Default::default() },
            tokens_per_second: 5321.0,
            hit_rate: 0.84,
            staleness_mean: 0.5,
            sandboxes_live: 61,
            classes: ClassCounts { boundary: 4, high: 20, low: 37 },
            trainer: StepMetrics { reward_mean: 0.4123, ..Default::default() },
            ..StepLine::default()
        };
        insta::assert_snapshot!(format!("{}{}{}", header(), row(&step, None), row(&step, Some(0.4567))), @r"
        step reward solved held-out turns  tok/s KV hit sandboxes stale bound/high/low seconds
          20  0.412    41%        -     3   5321    84%        61  0.50        4/20/37    61.2
          20  0.412    41%    45.7%     3   5321    84%        61  0.50        4/20/37    61.2
        ");
    }
}
