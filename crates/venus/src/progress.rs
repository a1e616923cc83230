//! What a run prints: what is about to happen, one line a step, how it ended.
//!
//! Lines go to standard output, in columns of fixed width or as JSON. On a terminal a live line on standard error says
//! what is going on between two steps; elsewhere nothing is drawn over, so that a log file stays readable.

mod table;

pub use table::{header, row};

use crate::report::markup::{Format, duration};
use crate::run::{EvalLine, StepLine, Summary};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::Duration;

/// The header is printed again after this many lines.
const LINES_BETWEEN_HEADERS: usize = 20;

/// What is said before a run starts.
#[derive(Clone, Debug, Default)]
pub struct Banner {
    /// What is about to happen, in one sentence.
    pub headline: String,
    /// Name and description of each part: engine, sandboxes, trainer, tasks, output.
    pub parts: Vec<(&'static str, String)>,
    /// What this host lacks, and what that costs; empty when nothing.
    pub missing: Vec<String>,
}

/// What goes on between two steps.
#[derive(Clone, Copy, Debug, Default)]
pub struct Live {
    /// Step being worked on, from 1.
    pub step: u64,
    /// Groups complete for it.
    pub groups_complete: u64,
    /// Groups it needs.
    pub groups_needed: u64,
    /// Turns being generated.
    pub generating: u64,
    /// Commands running.
    pub in_tools: u64,
    /// The trainer is at work.
    pub training: bool,
}

/// Where a run's lines go.
#[derive(Debug)]
pub struct Progress {
    live: Option<ProgressBar>,
    lines: usize,
    json: bool,
}

impl Progress {
    /// Prints a table, with a live line if standard error is a terminal; or, with `json`, an object a line and nothing else.
    #[must_use]
    pub fn new(json: bool) -> Self {
        let live = (!json && std::io::stderr().is_terminal()).then(spinner);
        Self { live, lines: 0, json }
    }

    /// Says what is about to happen.
    pub fn start(&self, banner: &Banner) {
        if !self.json {
            self.print(&banner.text());
        }
    }

    /// Shows what is going on; nothing where there is no terminal.
    pub fn live(&self, live: &Live) {
        if let Some(bar) = &self.live {
            bar.set_message(live.text());
        }
    }

    /// A finished step. `heldout`: the success measured with its weights, if it was.
    pub fn step(&mut self, line: &StepLine, heldout: Option<f64>) {
        if self.json {
            return self.print(&(serde_json::to_string(line).unwrap_or_default() + "\n"));
        }
        if self.lines.is_multiple_of(LINES_BETWEEN_HEADERS) {
            self.print(&header());
        }
        self.lines += 1;
        self.print(&row(line, heldout));
    }

    /// A finished measurement on held-out tasks.
    pub fn measured(&self, eval: &EvalLine) {
        if self.json {
            return self.print(&(serde_json::to_string(eval).unwrap_or_default() + "\n"));
        }
        let (success, error) = (Format::Percent.show(eval.success()), Format::Percent.show(eval.standard_error()));
        let took = duration(eval.took);
        self.print(&format!(
            "held-out success after {} steps: {success} ± {error} of {} tasks, measured in {took}\n",
            eval.step, eval.tasks
        ));
    }

    /// Anything else worth a line.
    pub fn note(&self, text: &str) {
        if !self.json {
            self.print(&format!("{text}\n"));
        }
    }

    /// How the run ended, and where things are.
    pub fn end(&self, summary: &Summary, report: &Path) {
        if let Some(bar) = &self.live {
            bar.finish_and_clear();
        }
        if !self.json {
            self.print(&ending(summary, report));
        }
    }

    /// A reader of standard output that has gone away is no reason to stop a run.
    fn print(&self, text: &str) {
        let write = || drop(std::io::stdout().lock().write_all(text.as_bytes()));
        match &self.live {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }
}

fn spinner() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(8));
    // The template is fixed and known to parse; the default style would do as well.
    bar.set_style(ProgressStyle::with_template("{spinner} {msg}").unwrap_or_else(|_| ProgressStyle::default_spinner()));
    bar.enable_steady_tick(Duration::from_millis(250));
    bar
}

impl Banner {
    fn text(&self) -> String {
        let width = self.parts.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        let mut out = format!("{}\n", self.headline);
        for (name, what) in &self.parts {
            out.push_str(&format!("  {name:<width$}  {what}\n"));
        }
        for missing in &self.missing {
            out.push_str(&format!("  missing here: {missing}\n"));
        }
        out.push('\n');
        out
    }
}

impl Live {
    fn text(&self) -> String {
        let Self { step, groups_complete, groups_needed, generating, in_tools, .. } = self;
        let training = if self.training { ", training" } else { "" };
        format!(
            "step {step}: {groups_complete} of {groups_needed} groups, {generating} generating, {in_tools} in tools{training}"
        )
    }
}

fn ending(summary: &Summary, report: &Path) -> String {
    let percent = |share: Option<f64>| share.map_or_else(|| "not measured".to_owned(), |s| Format::Percent.show(s));
    let how = if summary.interrupted { "ended by Ctrl-C" } else { "done" };
    let Summary { steps, groups_trained, groups_lost, groups_doubled, .. } = summary;
    let time = duration(summary.rl_seconds);
    let (first, last) = (percent(summary.heldout_success_first), percent(summary.heldout_success_last));
    format!(
        "\n{how}: {steps} steps in {time} of reinforcement learning\n  held-out success  {first} -> {last}\n  groups            {groups_trained} trained, {groups_lost} lost, {groups_doubled} doubled\n  report            {}\n",
        report.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_banner_names_the_parts_and_what_is_missing() {
        let banner = Banner {
            headline: "Training for 100 steps, seed 1.".to_owned(),
            parts: vec![("model", "0.9M parameters".to_owned()), ("sandboxes", "user namespaces".to_owned())],
            missing: vec!["cgroups: memory is limited by rlimits".to_owned()],
        };
        insta::assert_snapshot!(banner.text(), @r"
        Training for 100 steps, seed 1.
          model      0.9M parameters
          sandboxes  user namespaces
          missing here: cgroups: memory is limited by rlimits
        ");
    }

    #[test]
    fn an_ending_says_what_came_of_it_and_where_to_look() {
        let summary = Summary {
            steps: 100,
            rl_seconds: 312.0,
            heldout_success_first: Some(0.34),
            heldout_success_last: Some(0.865),
            groups_trained: 800,
            ..Summary::default()
        };
        insta::assert_snapshot!(ending(&summary, Path::new("runs/0001/report.html")), @r"

        done: 100 steps in 5 min 12 s of reinforcement learning
          held-out success  34% -> 86.5%
          groups            800 trained, 0 lost, 0 doubled
          report            runs/0001/report.html
        ");
    }
}
