//! The best and the worst trajectories, to be read like a terminal session.

use super::markup::{Format, Text};
use crate::run::{Records, Told};
use std::cmp::Ordering;
use std::fmt::Write;
use venus_plane::agent::Turn;
use venus_plane::export::Exported;

/// Trajectories shown on each side.
const SHOWN: usize = 4;

/// The section; empty when no trajectory was recorded.
pub(super) fn section(records: &Records) -> String {
    let mut out = String::new();
    if records.trajectories.is_empty() {
        return out;
    }
    out.push_str("<section><h2>Trajectories</h2>");
    list(&mut out, "Best", "highest reward, latest first", &best(records));
    list(&mut out, "Worst", "lowest reward, latest first", &worst(records));
    out.push_str("</section>");
    out
}

/// A trajectory and its task.
type Shown<'r> = (&'r Exported, Told);

/// Highest reward, then latest, then most turns; of each family one.
fn best(records: &Records) -> Vec<Shown<'_>> {
    pick(records, |a, b| reward(b).total_cmp(&reward(a)).then(later(a, b)))
}

/// Lowest reward, then latest, then most turns; of each family one. Where all rewards are equal there is no worst.
fn worst(records: &Records) -> Vec<Shown<'_>> {
    let top = records.trajectories.iter().map(reward).max_by(f32::total_cmp);
    let mut least = pick(records, |a, b| reward(a).total_cmp(&reward(b)).then(later(a, b)));
    least.retain(|(exported, _)| Some(reward(exported)) < top);
    least
}

fn reward(exported: &Exported) -> f32 {
    exported.trajectory.train.reward
}

fn later(a: &Exported, b: &Exported) -> Ordering {
    let (turns_a, turns_b) = (a.trajectory.turns.len(), b.trajectory.turns.len());
    b.trained_into.cmp(&a.trained_into).then(turns_b.cmp(&turns_a)).then(a.group.cmp(&b.group))
}

fn pick(records: &Records, order: impl Fn(&Exported, &Exported) -> Ordering) -> Vec<Shown<'_>> {
    let mut sorted: Vec<&Exported> = records.trajectories.iter().filter(|t| !t.trajectory.turns.is_empty()).collect();
    sorted.sort_by(|a, b| order(a, b));
    let mut picked: Vec<Shown<'_>> = Vec::new();
    for candidate in sorted {
        let task = records.task(&candidate.task);
        if picked.len() < SHOWN && picked.iter().all(|(_, other)| other.family != task.family) {
            picked.push((candidate, task));
        }
    }
    picked
}

fn list(out: &mut String, title: &str, note: &str, picked: &[Shown<'_>]) {
    if picked.is_empty() {
        return;
    }
    let _ = write!(out, "<h3>{title} <span>{note}</span></h3>");
    for (index, (exported, task)) in picked.iter().enumerate() {
        one(out, exported, task, index == 0);
    }
}

fn one(out: &mut String, exported: &Exported, task: &Told, open: bool) {
    let t = &exported.trajectory;
    let step = exported.trained_into.map_or_else(|| "not trained".to_owned(), |version| format!("step {}", version.0));
    let turns = if t.turns.len() == 1 { "1 turn".to_owned() } else { format!("{} turns", t.turns.len()) };
    let (class, reward) = (if t.train.reward > 0.5 { "good" } else { "bad" }, f64::from(t.train.reward));
    let _ = write!(out, "<details class=\"trajectory\"{}><summary>", if open { " open" } else { "" });
    let _ = write!(out, "<span class=\"reward {class}\">reward {}</span> ", Format::Plain.show(reward));
    let _ = write!(out, "<b>{}</b> <span class=\"meta\">{step} · {turns} · ", Text(&exported.task));
    let _ = write!(out, "{} tokens · ended: {}</span></summary>", t.drawn(), Text(t.end.as_str()));
    let _ = write!(out, "<div class=\"session\"><p class=\"instruction\">{}</p>", Text(task.instruction.trim_end()));
    for turn in &t.turns {
        one_turn(out, turn);
    }
    out.push_str("</div></details>");
}

fn one_turn(out: &mut String, turn: &Turn) {
    let said = turn.command.as_ref().unwrap_or(&turn.message);
    let _ = write!(out, "<pre class=\"command\"><span class=\"prompt\">$ </span>{}</pre>", Text(said.trim_end()));
    if let Some(output) = &turn.output {
        let _ = write!(out, "<pre class=\"output\">{}</pre>", Text(output.trim_end()));
    }
}
