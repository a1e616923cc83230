//! What a run prints: what is about to happen, one line a step, how it ended.
//!
//! Lines go to standard output, in columns of fixed width or as JSON. On a terminal a live line on standard error says
//! what is going on between two steps; elsewhere nothing is drawn over, so that a log file stays readable.

mod banner;
mod counter;
mod table;

pub use banner::{Banner, Start};
pub use counter::Counter;
pub use table::{header, row};

use crate::report::markup::{Format, duration, standard_error};
use crate::run::Summary;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::Duration;
use venus_plane::report::{EvalReport, Phase, Progress, RunEvent, RunSummary, StepReport};

/// The header is printed again after this many lines.
const LINES_BETWEEN_HEADERS: usize = 20;

/// Where a run's lines go.
#[derive(Debug)]
pub struct Console {
    live: Option<ProgressBar>,
    lines: usize,
    heldout: Option<f64>,
    json: bool,
}

impl Console {
    /// Prints a table, with a live line if standard error is a terminal; or, with `json`, an object a line and nothing else.
    #[must_use]
    pub fn new(json: bool) -> Self {
        let live = (!json && std::io::stderr().is_terminal()).then(spinner);
        Self { live, lines: 0, heldout: None, json }
    }

    /// Says what is about to happen.
    pub fn start(&self, banner: &Banner) {
        if !self.json {
            self.print(&banner.text());
        }
    }

    /// Shows what the coordinator says.
    pub fn event(&mut self, event: &RunEvent) {
        match event {
            RunEvent::Started { version, resumed: true, .. } => {
                self.note(&format!("going on after step {}", version.0));
            }
            RunEvent::Started { .. } => {}
            RunEvent::Progress(progress) => {
                if let Some(bar) = &self.live {
                    bar.set_message(live(progress));
                }
            }
            RunEvent::StepFinished(report) => self.step(report),
            RunEvent::EvalFinished(report) => self.measured(report),
            RunEvent::Notice(text) => self.note(text),
        }
    }

    fn step(&mut self, report: &StepReport) {
        if self.json {
            return self.print_json(report);
        }
        if self.lines.is_multiple_of(LINES_BETWEEN_HEADERS) {
            self.print(&header());
        }
        self.lines += 1;
        self.print(&row(report, self.heldout));
    }

    fn measured(&mut self, report: &EvalReport) {
        self.heldout = Some(report.success);
        if self.json {
            return self.print_json(report);
        }
        let (success, error) = (Format::Percent.show(report.success), Format::Percent.show(standard_error(report)));
        let (version, tasks, took) = (report.version.0, report.tasks, duration(report.seconds));
        self.note(&format!("  held-out success after step {version}: {success} ± {error} of {tasks} tasks, in {took}"));
    }

    /// Anything else worth a line; not with `json`.
    pub fn note(&self, text: &str) {
        if !self.json {
            self.print(&format!("{text}\n"));
        }
    }

    /// How the run ended, and where things are.
    pub fn end(&self, summary: &Summary, report: &Path) {
        if !self.json {
            self.print(&ending(summary, report));
        }
    }

    fn print_json(&self, value: &impl Serialize) {
        self.print(&(serde_json::to_string(value).unwrap_or_default() + "\n"));
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

/// However a run ends, its live line does not stay on the terminal.
impl Drop for Console {
    fn drop(&mut self) {
        if let Some(bar) = &self.live {
            bar.finish_and_clear();
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

/// What goes on between two steps, in one line.
fn live(p: &Progress) -> String {
    let doing = match p.phase {
        Phase::Rollout => format!("{} of {} groups", p.groups_complete, p.groups_wanted),
        Phase::Training => "training".to_owned(),
        Phase::Loading => "loading weights".to_owned(),
        Phase::Evaluating => format!("measuring, {} of {} held-out tasks", p.evaluated, p.to_evaluate),
    };
    let (step, generating, queued) = (p.version.0 + 1, p.generating, p.queued);
    format!(
        "step {step}: {doing}; {generating} generating, {queued} queued, {} in tools, {} sandboxes",
        p.acting, p.sandboxes
    )
}

fn ending(summary: &Summary, report: &Path) -> String {
    let percent = |share: Option<f64>| share.map_or_else(|| "not measured".to_owned(), |s| Format::Percent.show(s));
    let how = if summary.interrupted() { "ended by Ctrl-C" } else { "done" };
    let RunSummary { steps, groups_trained, groups_lost, groups_doubled, .. } = &summary.run;
    let time = duration(summary.run.rl_seconds);
    let (first, last) = (percent(summary.run.heldout_success_first), percent(summary.run.heldout_success_last));
    format!(
        "\n{how}: {steps} steps in {time} of reinforcement learning\n  held-out success  {first} -> {last}\n  groups            {groups_trained} trained, {groups_lost} lost, {groups_doubled} doubled\n  report            {}\n",
        report.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Conditions;
    use venus_plane::report::Ending;

    #[test]
    fn an_ending_says_what_came_of_it_and_where_to_look() {
        let run = RunSummary {
            ending: Ending::Finished,
            steps: 100,
            dir: None,
            rl_seconds: 312.0,
            heldout_success_first: Some(0.34),
            heldout_success_last: Some(0.865),
            groups_trained: 800,
            groups_lost: 0,
            groups_doubled: 0,
            groups_dropped: 0,
            logprob_gap_max: 0.0,
            tokens_generated: 0,
        };
        let summary = Summary::new(run, &[], Conditions::default());
        insta::assert_snapshot!(ending(&summary, Path::new("runs/0001/report.html")), @r"

        done: 100 steps in 5 min 12 s of reinforcement learning
          held-out success  34% -> 86.5%
          groups            800 trained, 0 lost, 0 doubled
          report            runs/0001/report.html
        ");
    }
}
