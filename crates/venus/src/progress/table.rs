//! The table of steps: columns of fixed width, one line a step.

use venus_plane::report::StepReport;

/// Title and width of each column; all are aligned to the right.
const COLUMNS: [(&str, usize); 11] = [
    ("step", 5),
    ("reward", 8),
    ("solved", 8),
    ("held-out", 10),
    ("turns", 7),
    ("tok/s", 7),
    ("KV hit", 8),
    ("sandboxes", 11),
    ("stale", 7),
    ("discarded", 11),
    ("seconds", 9),
];

/// The titles, as a line.
#[must_use]
pub fn header() -> String {
    line(COLUMNS.map(|(title, _)| title.to_owned()))
}

/// One step as a line. `heldout`: the success measured last.
#[must_use]
pub fn row(step: &StepReport, heldout: Option<f64>) -> String {
    line([
        step.step.to_string(),
        format!("{:.3}", step.reward_mean),
        format!("{:.0}%", step.success * 100.0),
        heldout.map_or_else(|| "-".to_owned(), |success| format!("{:.1}%", success * 100.0)),
        format!("{:.1}", step.turns_mean),
        format!("{:.0}", step.tokens_per_second),
        format!("{:.0}%", step.kv_hit_rate * 100.0),
        step.sandboxes_peak.to_string(),
        format!("{:.2}", step.staleness_mean),
        step.discards.values().sum::<u64>().to_string(),
        format!("{:.1}", step.elapsed),
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

    #[test]
    fn columns_stay_under_their_titles() {
        let step = StepReport {
            step: 20,
            elapsed: 61.24,
            success: 0.41,
            reward_mean: 0.4123,
            turns_mean: 3.25,
            tokens_per_second: 5321.0,
            kv_hit_rate: 0.84,
            staleness_mean: 0.5,
            sandboxes_peak: 61,
            discards: [("stale_span".to_owned(), 2)].into(),
            ..StepReport::default()
        };
        let lines = format!("|\n{}{}{}", header(), row(&step, None), row(&step, Some(0.4567)));
        insta::assert_snapshot!(lines, @r"
        |
         step  reward  solved  held-out  turns  tok/s  KV hit  sandboxes  stale  discarded  seconds
           20   0.412     41%         -    3.2   5321     84%         61   0.50          2     61.2
           20   0.412     41%     45.7%    3.2   5321     84%         61   0.50          2     61.2
        ");
    }
}
