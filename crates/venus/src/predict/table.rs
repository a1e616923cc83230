//! Figures as a table for people and as JSON for programs.

use super::measure::{Figures, STRAGGLER_TURNS, TURNS};
use super::protocol::{Evaluation, Row};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::path::Path;

/// A file and its figures.
#[derive(Debug)]
pub struct Report {
    /// Its name as given.
    pub file: String,
    /// Its figures.
    pub figures: Evaluation,
}

/// One figure over all seeds.
#[derive(Clone, Copy, Debug, Serialize)]
struct Over {
    median: f64,
    min: f64,
    max: f64,
}

fn over(row: &Row, field: impl Fn(&Figures) -> Option<f64>) -> Option<Over> {
    let mut values: Vec<f64> = row.by_seed.iter().filter_map(field).collect();
    values.sort_by(f64::total_cmp);
    let (min, max) = (*values.first()?, *values.last()?);
    let (low, high) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
    Some(Over { median: (low + high) / 2.0, min, max })
}

/// The table of a file.
pub fn text(path: &Path, evaluation: &Evaluation) -> String {
    let Evaluation { trajectories, boundaries, tasks, groups, folds, mean_left, rows } = evaluation;
    let mut out = format!(
        "{}: {trajectories} trajectories, {boundaries} boundaries, {tasks} tasks in {folds} folds, \
         {groups} prompts with siblings; mean left {mean_left:.0} tokens\n",
        path.display()
    );
    let at = TURNS.map(|turn| format!("@{turn}"));
    let straggler = STRAGGLER_TURNS.map(|turn| format!("@{turn}"));
    let titles =
        ["predictor", "history"].map(str::to_owned).into_iter().chain(["pooled", "fixed turn"].map(str::to_owned));
    let titles = titles.chain(at).chain(["MAE", "MAE/mean"].map(str::to_owned)).chain(straggler);
    out.push_str(&format!("{:19}{:-^57}{:19}{:-^24}\n", "", " Spearman ", "", " AUC "));
    out.push_str(&line(titles.collect()));
    for row in rows {
        out.push_str(&line(cells(row)));
    }
    if *groups == 0 {
        out.push_str("no prompt has siblings here: nothing to say about histories\n");
    }
    out.push('\n');
    out
}

/// Widths of the columns; the first two are aligned to the left.
const WIDTHS: [usize; 15] = [10, 9, 12, 15, 6, 6, 6, 6, 6, 9, 10, 6, 6, 6, 6];

fn line(cells: Vec<String>) -> String {
    let padded = cells.iter().zip(WIDTHS).enumerate().map(|(at, (cell, width))| match at {
        0 | 1 => format!("{cell:<width$}"),
        _ => format!("{cell:>width$}"),
    });
    format!("{}\n", padded.collect::<String>().trim_end())
}

fn cells(row: &Row) -> Vec<String> {
    let plain = |value: Option<Over>, digits: usize| value.map_or("-".into(), |v| format!("{:.digits$}", v.median));
    let ranged =
        |value: Option<Over>| value.map_or("-".into(), |v| format!("{:.2} ±{:.2}", v.median, (v.max - v.min) / 2.0));
    let mut cells = vec![row.predictor.to_owned(), row.history.name().to_owned()];
    cells.extend([ranged(over(row, |f| f.pooled)), ranged(over(row, |f| f.fixed))]);
    cells.extend((0..TURNS.len()).map(|turn| plain(over(row, |f| f.at[turn]), 2)));
    cells.extend([plain(over(row, |f| f.mae), 0), plain(over(row, |f| f.relative), 2)]);
    cells.extend((0..STRAGGLER_TURNS.len()).map(|turn| plain(over(row, |f| f.straggler[turn]), 2)));
    cells
}

impl Serialize for Report {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Evaluation { trajectories, boundaries, tasks, groups, folds, mean_left, rows } = &self.figures;
        let rows: Vec<Value> = rows.iter().map(row_json).collect();
        json!({
            "file": self.file, "trajectories": trajectories, "boundaries": boundaries, "tasks": tasks,
            "groups": groups, "folds": folds, "seeds": self.figures.rows.first().map_or(0, |row| row.by_seed.len()),
            "mean_left": mean_left, "rows": rows,
        })
        .serialize(serializer)
    }
}

fn row_json(row: &Row) -> Value {
    let at = |turns: &[u32], field: &dyn Fn(&Figures, usize) -> Option<f64>| -> Map<String, Value> {
        turns.iter().enumerate().map(|(n, turn)| (turn.to_string(), json!(over(row, |f| field(f, n))))).collect()
    };
    json!({
        "predictor": row.predictor,
        "history": row.history,
        "spearman_pooled": over(row, |f| f.pooled),
        "spearman_fixed_turn": over(row, |f| f.fixed),
        "spearman_at_turn": at(&TURNS, &|f, n| f.at[n]),
        "mae": over(row, |f| f.mae),
        "mae_over_mean": over(row, |f| f.relative),
        "straggler_auc_at_turn": at(&STRAGGLER_TURNS, &|f, n| f.straggler[n]),
    })
}
