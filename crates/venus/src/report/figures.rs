//! Which figures a report has, and what each shows.

use super::markup::Format;
use super::plot::{Plot, Point, Series, smooth};
use super::stack::Stack;
use crate::run::{EvalLine, Percentiles, Records, StepLine};

/// The figures that tell whether the agent learned.
pub(super) fn learning(records: &Records) -> Vec<String> {
    vec![heldout(&records.evals).draw(), reward(&records.steps).draw()]
}

/// The figures that tell what its trajectories look like and where the time went.
pub(super) fn rollout(records: &Records) -> Vec<String> {
    let steps = &records.steps;
    vec![
        time_split(steps).draw(),
        percentiles(steps, "Turns", "turns a trajectory", |s| s.turns).draw(),
        percentiles(steps, "Length", "tokens a trajectory drew", |s| s.tokens).draw(),
        throughput(steps).draw(),
    ]
}

/// Small figures of the machinery.
pub(super) fn machinery(records: &Records) -> Vec<String> {
    let steps = &records.steps;
    let small = |title, y_label: &'static str, format, value: fn(&StepLine) -> f64| Plot {
        small: true,
        floor: Some(0.0),
        ..one_line(title, String::new(), y_label, format, steps, value)
    };
    let staleness = Plot {
        series: vec![
            Series::new("mean", steps.iter().map(|s| (s.step as f64, s.staleness_mean))),
            Series::new("largest", steps.iter().map(|s| (s.step as f64, s.staleness_max as f64))),
        ],
        ..small("Staleness", "versions behind", Format::Plain, |s| s.staleness_mean)
    };
    let hit_rate = small("KV hit rate", "context tokens", Format::Percent, |s| s.hit_rate);
    vec![
        Plot { ceiling: Some(1.0), ..hit_rate }.draw(),
        staleness.draw(),
        small("Entropy", "nats a token", Format::Plain, |s| s.trainer.entropy).draw(),
        small("KL to the policy that drew", "nats a token", Format::Plain, |s| s.trainer.kl).draw(),
        small("Gradient norm", "before clipping", Format::Plain, |s| s.trainer.grad_norm).draw(),
        small("Clipped ratios", "loss tokens", Format::Percent, |s| s.trainer.clip_fraction).draw(),
        small("Groups without signal", "groups", Format::Count, |s| f64::from(s.trainer.zero_variance_groups)).draw(),
        small("Trajectories discarded", "trajectories", Format::Count, |s| s.discarded as f64).draw(),
        small("Log-probability gap", "nats, largest", Format::Plain, |s| s.trainer.logprob_gap_max).draw(),
    ]
}

fn heldout(evals: &[EvalLine]) -> Plot {
    let point = |e: &EvalLine| Point { x: e.step as f64, y: e.success(), error: e.standard_error() };
    let tasks = evals.iter().map(|e| e.tasks).max().unwrap_or_default();
    let temperature = evals.last().map_or(1.0, |e| e.temperature);
    Plot {
        title: "Held-out success",
        note: format!("{tasks} tasks never trained on, at T={temperature}; bars: one standard error"),
        y_label: "tasks solved",
        format: Format::Percent,
        floor: Some(0.0),
        ceiling: Some(1.0),
        small: false,
        series: vec![Series { label: "held-out", faint: false, points: evals.iter().map(point).collect() }],
    }
}

fn reward(steps: &[StepLine]) -> Plot {
    let raw = Series::new("each step", steps.iter().map(|s| (s.step as f64, s.trainer.reward_mean)));
    let note = "mean of the trajectories of each batch".to_owned();
    let mut plot = one_line("Training reward", note, "reward", Format::Plain, steps, |s| s.trainer.reward_mean);
    if steps.len() > 10 {
        plot.note = "mean of each batch (pale) and of the last 10".to_owned();
        plot.series = vec![Series { faint: true, ..raw.clone() }, smooth(&raw, "last 10", 10)];
    }
    Plot { floor: Some(0.0), ceiling: Some(1.0), ..plot }
}

fn time_split(steps: &[StepLine]) -> Stack {
    let parts = |s: &StepLine| {
        let t = s.time;
        vec![t.generation, t.tools, t.grading, t.training, t.waiting]
    };
    Stack {
        title: "Where the time goes",
        note: "mean life of a trajectory, and training its batch",
        y_label: "seconds",
        format: Format::Plain,
        parts: vec!["generation", "tools", "grading", "training", "waiting"],
        bars: steps.iter().map(|s| (s.step as f64, parts(s))).collect(),
    }
}

fn percentiles(
    steps: &[StepLine],
    title: &'static str,
    y_label: &'static str,
    of: fn(&StepLine) -> Percentiles,
) -> Plot {
    let line = |label, value: fn(Percentiles) -> f64| {
        Series::new(label, steps.iter().map(move |s| (s.step as f64, value(of(s)))))
    };
    Plot {
        series: vec![line("p99", |p| p.p99), line("p90", |p| p.p90), line("median", |p| p.p50)],
        floor: Some(0.0),
        ..one_line(title, "percentiles of each batch".to_owned(), y_label, Format::Plain, steps, |_| 0.0)
    }
}

fn throughput(steps: &[StepLine]) -> Plot {
    let note = "tokens drawn by the engines".to_owned();
    let plot = one_line("Throughput", note, "tokens a second", Format::Plain, steps, |s| s.tokens_per_second);
    Plot { floor: Some(0.0), ..plot }
}

fn one_line(
    title: &'static str,
    note: String,
    y_label: &'static str,
    format: Format,
    steps: &[StepLine],
    value: fn(&StepLine) -> f64,
) -> Plot {
    let series = vec![Series::new(title, steps.iter().map(|s| (s.step as f64, value(s))))];
    Plot { title, note, y_label, format, floor: None, ceiling: None, small: false, series }
}
