//! Which figures a report has, and what each shows.

use super::markup::{Format, standard_error};
use super::plot::{Plot, Point, Series, smooth};
use super::stack::Stack;
use crate::run::Records;
use std::collections::BTreeMap;
use venus_plane::report::{EvalReport, Percentiles, StepReport};

/// The figures that tell whether the agent learned.
pub(super) fn learning(records: &Records) -> Vec<String> {
    vec![heldout(&records.evals).draw(), reward(&records.steps).draw()]
}

/// The figures that tell what its trajectories look like and where the time went.
pub(super) fn rollout(records: &Records) -> Vec<String> {
    let steps = &records.steps;
    let lengths = steps.iter().map(|s| (s.step, s.length)).collect();
    vec![
        time_split(steps).draw(),
        percentiles("Turns", "turns a trajectory", &records.turns()).draw(),
        percentiles("Length", "tokens a trajectory drew", &lengths).draw(),
        throughput(steps).draw(),
    ]
}

/// Small figures of the machinery.
pub(super) fn machinery(records: &Records) -> Vec<String> {
    let steps = &records.steps;
    let small = |title, y_label: &'static str, format, value: fn(&StepReport) -> f64| Plot {
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
    let hit_rate = small("KV hit rate", "context tokens", Format::Percent, |s| s.kv_hit_rate);
    vec![
        Plot { ceiling: Some(1.0), ..hit_rate }.draw(),
        staleness.draw(),
        small("Entropy", "nats a token", Format::Plain, |s| s.metrics.entropy).draw(),
        small("KL to the policy that drew", "nats a token", Format::Plain, |s| s.metrics.kl).draw(),
        small("Gradient norm", "before clipping", Format::Plain, |s| s.metrics.grad_norm).draw(),
        small("Clipped ratios", "loss tokens", Format::Percent, |s| s.metrics.clip_fraction).draw(),
        small("Groups without signal", "groups", Format::Count, |s| f64::from(s.metrics.zero_variance_groups)).draw(),
        small("Trajectories discarded", "trajectories", Format::Count, |s| s.discards.values().sum::<u64>() as f64)
            .draw(),
        small("Log-probability gap", "nats, largest", Format::Plain, |s| s.metrics.logprob_gap_max).draw(),
    ]
}

fn heldout(evals: &[EvalReport]) -> Plot {
    let point = |e: &EvalReport| Point { x: e.version.0 as f64, y: e.success, error: standard_error(e) };
    let tasks = evals.iter().map(|e| e.tasks).max().unwrap_or_default();
    Plot {
        title: "Held-out success",
        note: format!("{tasks} tasks never trained on; bars: one standard error"),
        y_label: "tasks solved",
        format: Format::Percent,
        floor: Some(0.0),
        ceiling: Some(1.0),
        small: false,
        series: vec![Series { label: "held-out", faint: false, points: evals.iter().map(point).collect() }],
    }
}

fn reward(steps: &[StepReport]) -> Plot {
    let raw = Series::new("each step", steps.iter().map(|s| (s.step as f64, s.reward_mean)));
    let note = "mean of the trajectories of each batch".to_owned();
    let mut plot = one_line("Training reward", note, "reward", Format::Plain, steps, |s| s.reward_mean);
    if steps.len() > 10 {
        plot.note = "mean of each batch (pale) and of the last 10".to_owned();
        plot.series = vec![Series { faint: true, ..raw.clone() }, smooth(&raw, "last 10", 10)];
    }
    Plot { floor: Some(0.0), ceiling: Some(1.0), ..plot }
}

fn time_split(steps: &[StepReport]) -> Stack {
    let parts = |s: &StepReport| {
        let (t, count) = (s.time, s.trajectories.max(1) as f64);
        vec![t.generation / count, (t.create + t.tool) / count, t.grading / count, t.training, t.queued / count]
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

fn percentiles(title: &'static str, y_label: &'static str, of: &BTreeMap<u64, Percentiles>) -> Plot {
    let line = |label, value: fn(&Percentiles) -> u64| {
        Series::new(label, of.iter().map(|(&step, p)| (step as f64, value(p) as f64)))
    };
    Plot {
        series: vec![line("p99", |p| p.p99), line("p90", |p| p.p90), line("median", |p| p.p50)],
        floor: Some(0.0),
        ..one_line(title, "percentiles of each batch".to_owned(), y_label, Format::Plain, &[], |_| 0.0)
    }
}

fn throughput(steps: &[StepReport]) -> Plot {
    let note = "tokens drawn by the engines".to_owned();
    let plot = one_line("Throughput", note, "tokens a second", Format::Plain, steps, |s| s.tokens_per_second);
    Plot { floor: Some(0.0), ..plot }
}

fn one_line(
    title: &'static str,
    note: String,
    y_label: &'static str,
    format: Format,
    steps: &[StepReport],
    value: fn(&StepReport) -> f64,
) -> Plot {
    let series = vec![Series::new(title, steps.iter().map(|s| (s.step as f64, value(s))))];
    Plot { title, note, y_label, format, floor: None, ceiling: None, small: false, series }
}
