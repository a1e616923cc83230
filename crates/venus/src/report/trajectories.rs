//! The best and the worst trajectories, to be read like a terminal session.

use super::markup::{Format, Text};
use crate::run::{Transcript, TranscriptTurn};
use std::cmp::Ordering;
use std::fmt::Write;

/// Trajectories shown on each side.
const SHOWN: usize = 4;

/// The section; empty when no trajectory was recorded.
pub(super) fn section(all: &[Transcript]) -> String {
    let mut out = String::new();
    if all.is_empty() {
        return out;
    }
    out.push_str("<section><h2>Trajectories</h2>");
    list(&mut out, "Best", "highest reward, latest first", &best(all));
    list(&mut out, "Worst", "lowest reward, latest first", &worst(all));
    out.push_str("</section>");
    out
}

/// Highest reward, then latest, then most turns; different families as far as there are any.
fn best(all: &[Transcript]) -> Vec<&Transcript> {
    pick(all, |a, b| b.reward.total_cmp(&a.reward).then(later(a, b)))
}

/// Lowest reward, then latest, then most turns; different families as far as there are any.
fn worst(all: &[Transcript]) -> Vec<&Transcript> {
    let least = pick(all, |a, b| a.reward.total_cmp(&b.reward).then(later(a, b)));
    let top = all.iter().map(|t| t.reward).max_by(f64::total_cmp);
    // Where all rewards are equal there is no worst.
    least.into_iter().filter(|t| Some(t.reward) < top).collect()
}

fn later(a: &Transcript, b: &Transcript) -> Ordering {
    b.step.cmp(&a.step).then(b.turns.len().cmp(&a.turns.len())).then(a.trajectory.cmp(&b.trajectory))
}

fn pick(all: &[Transcript], order: impl Fn(&Transcript, &Transcript) -> Ordering) -> Vec<&Transcript> {
    let mut sorted: Vec<&Transcript> = all.iter().filter(|t| !t.turns.is_empty()).collect();
    sorted.sort_by(|a, b| order(a, b));
    let mut picked: Vec<&Transcript> = Vec::new();
    for candidate in &sorted {
        if picked.len() < SHOWN && picked.iter().all(|p| p.family != candidate.family) {
            picked.push(candidate);
        }
    }
    picked
}

fn list(out: &mut String, title: &str, note: &str, picked: &[&Transcript]) {
    if picked.is_empty() {
        return;
    }
    let _ = write!(out, "<h3>{title} <span>{note}</span></h3>");
    for (index, transcript) in picked.iter().enumerate() {
        one(out, transcript, index == 0);
    }
}

fn one(out: &mut String, t: &Transcript, open: bool) {
    let step = t.step.map_or_else(|| "held-out".to_owned(), |step| format!("step {step}"));
    let turns = if t.turns.len() == 1 { "1 turn".to_owned() } else { format!("{} turns", t.turns.len()) };
    let tokens: u64 = t.turns.iter().map(|turn| turn.tokens).sum();
    let _ = write!(out, "<details class=\"trajectory\"{}><summary>", if open { " open" } else { "" });
    let _ = write!(
        out,
        "<span class=\"reward {}\">reward {}</span> ",
        if t.reward > 0.5 { "good" } else { "bad" },
        Format::Plain.show(t.reward)
    );
    let _ = write!(
        out,
        "<b>{}</b> <span class=\"meta\">{} · {step} · {turns} · {tokens} tokens · ended: {}</span></summary>",
        Text(&t.task),
        Text(&t.family),
        Text(&t.end)
    );
    let _ = write!(out, "<div class=\"session\"><p class=\"instruction\">{}</p>", Text(t.instruction.trim_end()));
    for turn in &t.turns {
        one_turn(out, turn);
    }
    out.push_str("</div></details>");
}

fn one_turn(out: &mut String, turn: &TranscriptTurn) {
    let _ =
        write!(out, "<pre class=\"command\"><span class=\"prompt\">$ </span>{}</pre>", Text(turn.command.trim_end()));
    if let Some(output) = &turn.output {
        let _ = write!(out, "<pre class=\"output\">{}</pre>", Text(output.trim_end()));
    }
}
