//! `venus predict`: how well remaining length can be told, on recorded trajectories.

mod measure;
mod protocol;
mod table;
mod trace;

use crate::cli::say;
use crate::failure::Failure;
use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;

/// `venus predict`.
#[derive(Clone, Debug, Subcommand)]
pub enum PredictVerb {
    /// Measure the length predictors on recorded trajectories, split by task
    #[command(long_about = EVAL)]
    Eval(EvalArgs),
}

const EVAL: &str = "\
Measure the length predictors on recorded trajectories, split by task.

The tasks of a file are divided into folds. What is measured on one fold was learned from the trajectories of the other \
folds, one after the other, once. There is no split by trajectory or by turn, because both inflate what is measured: \
samples of one task resemble each other, and within one trajectory the remaining length falls turn by turn, so a model \
that has seen its siblings, or its other turns, remembers instead of predicting. The same predictor on the same data \
comes to 0.40 split by task, 0.74 by trajectory and 0.90 by turn.

What may be known of a task that is measured is stated in the column `history`:
  none      nothing: the prompt is seen for the first time, and alone
  siblings  its samples run in lockstep by tokens generated; those that finished by now are known
  epoch     all its other samples are known, as if they came from an earlier epoch

Spearman is given over all turn boundaries (`pooled`), and among the trajectories alive at the same turn: that is what \
orders trajectories which compete for a slot. `AUC` is how well the tenth with the most left is told from the rest. \
Figures are medians over seeds of the split; `±` is half of what they range over.

A file has one JSON object a line, compressed with zstd or not: `task` (text) and, one entry a turn, `gen` (tokens \
generated) and `add` (tokens new to the context since the turn before; first the prompt). Optional: `group` (samples \
that share a prompt and a policy; else those of a task), `tool`, `cat`, `tool_s`, `rc`, `last_obs`.";

/// `venus predict eval`.
#[derive(Clone, Debug, Args)]
pub struct EvalArgs {
    /// Files of trajectories, .jsonl or .jsonl.zst
    #[arg(value_name = "TRACES", required = true)]
    pub traces: Vec<PathBuf>,
    /// Ways to split the tasks
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub seeds: u64,
    /// Parts the tasks are divided into; each is measured by what was learned from the others
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u64).range(2..=100))]
    pub folds: u64,
    /// Print the figures as JSON
    #[arg(long)]
    pub json: bool,
}

/// Evaluates.
///
/// # Errors
/// A file that is no trace, with line and field.
pub fn run(verb: &PredictVerb) -> anyhow::Result<ExitCode> {
    let PredictVerb::Eval(args) = verb;
    let mut files = Vec::new();
    for path in &args.traces {
        let trace = trace::read(path)?;
        let tasks = trace.tasks();
        if tasks < args.folds as usize {
            let what =
                format!("{} has trajectories of {tasks} tasks, too few for {} folds", path.display(), args.folds);
            return Err(Failure::usage(what, "give a file with more tasks, or fewer --folds").into());
        }
        let figures = protocol::evaluate(&trace, args.seeds, args.folds as usize);
        if !args.json {
            say(&table::text(path, &figures))?;
        }
        files.push(table::Report { file: path.display().to_string(), figures });
    }
    if args.json {
        say(&format!("{}\n", serde_json::to_string_pretty(&files)?))?;
    }
    Ok(ExitCode::SUCCESS)
}
