//! The page: headline, figures, tables, trajectories, and what the run was.

use super::markup::{Format, Text, duration};
use super::{figures, trajectories};
use crate::run::{Records, Summary};
use std::fmt::Write;
use venus_plane::report::{EvalReport, StepReport};

const STYLE: &str = include_str!("style.css");

/// Patterns that the bars are filled with, so that they differ in more than colour.
const PATTERNS: &str = r#"<svg width="0" height="0" aria-hidden="true" style="position:absolute"><defs>
<pattern id="hatch" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect class="f1" width="5" height="5"/><rect class="ink" width="1.4" height="5"/></pattern>
<pattern id="dots" width="5" height="5" patternUnits="userSpaceOnUse"><rect class="f3" width="5" height="5"/><circle class="ink" cx="2.5" cy="2.5" r="1"/></pattern>
</defs></svg>"#;

/// The report of a run, also of one that has not ended.
#[must_use]
pub fn page(records: &Records) -> String {
    let mut out = String::from("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">");
    out.push_str("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">");
    // No script and nothing from outside, even if a trajectory's text found a way out of its element.
    out.push_str(
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
    );
    let _ = write!(out, "<title>Venus run report</title><style>{STYLE}</style></head><body>{PATTERNS}<main>");
    headline(&mut out, records);
    section(&mut out, "Learning", "wide", &figures::learning(records).concat());
    families(&mut out, &records.evals);
    section(&mut out, "Rollout", "wide", &figures::rollout(records).concat());
    section(&mut out, "Machinery", "small", &figures::machinery(records).concat());
    out.push_str(&trajectories::section(records));
    numbers(&mut out, records);
    conditions(&mut out, records);
    out.push_str("</main></body></html>\n");
    out
}

fn section(out: &mut String, title: &str, grid: &str, content: &str) {
    let _ = write!(out, "<section><h2>{title}</h2><div class=\"figures {grid}\">{content}</div></section>");
}

fn headline(out: &mut String, records: &Records) {
    out.push_str("<header><p class=\"kicker\">Venus run report</p><h1>Held-out success ");
    match (records.evals.first(), records.evals.last()) {
        (Some(first), Some(last)) if last.version > first.version => {
            let _ =
                write!(out, "<span class=\"from\">{}</span> <span class=\"arrow\">→</span> ", percent(first.success));
            let _ = write!(out, "<span class=\"to\">{}</span>", percent(last.success));
        }
        (Some(only), _) => drop(write!(out, "<span class=\"to\">{}</span>", percent(only.success))),
        _ => out.push_str("<span class=\"from\">was not measured</span>"),
    }
    let _ = write!(out, "</h1><p class=\"lead\">{}</p>", Text(&lead(records)));
    tiles(out, records);
    out.push_str("</header>");
}

fn lead(records: &Records) -> String {
    let steps = records.steps.last().map_or(0, |s| s.step);
    let Some(summary) = &records.summary else {
        return format!("{steps} trainer steps so far. The run has not ended, or was killed.");
    };
    let ending = if summary.interrupted() { ", ended early by Ctrl-C" } else { "" };
    let (time, trained) = (duration(summary.run.rl_seconds), summary.run.groups_trained);
    format!(
        "{steps} trainer steps on {trained} groups in {time} of reinforcement learning, seed {}{ending}.",
        summary.conditions.seed
    )
}

fn tiles(out: &mut String, records: &Records) {
    let Some(s) = &records.summary else { return };
    let tiles = [
        ("tokens drawn", Format::Plain.show(s.run.tokens_generated as f64)),
        ("tokens a second", Format::Plain.show(s.tokens_per_second)),
        ("KV hit rate", Format::Percent.show(s.hit_rate)),
        ("groups lost / doubled", format!("{} / {}", s.run.groups_lost, s.run.groups_doubled)),
        ("largest logprob gap", Format::Plain.show(s.run.logprob_gap_max)),
        ("time", duration(s.run.rl_seconds)),
    ];
    out.push_str("<dl class=\"tiles\">");
    for (name, value) in tiles {
        let _ = write!(out, "<div><dt>{name}</dt><dd>{}</dd></div>", Text(&value));
    }
    out.push_str("</dl>");
}

fn percent(share: f64) -> String {
    format!("{:.0}%", share * 100.0)
}

/// Held-out success by family, first and last measurement, largest gain first.
fn families(out: &mut String, evals: &[EvalReport]) {
    let (Some(first), Some(last)) = (evals.first(), evals.last()) else { return };
    if last.by_kind.is_empty() {
        return;
    }
    let row = |(name, &to): (&String, &f64)| (name.clone(), first.by_kind.get(name).copied().unwrap_or_default(), to);
    let mut rows: Vec<(String, f64, f64)> = last.by_kind.iter().map(row).collect();
    rows.sort_by(|a, b| (b.2 - b.1).total_cmp(&(a.2 - a.1)));
    out.push_str("<section><h2>By family</h2><div class=\"scroll\"><table><thead><tr><th>family</th>");
    let _ = write!(out, "<th class=\"n\">step {}</th><th class=\"n\">step {}</th>", first.version.0, last.version.0);
    out.push_str("<th class=\"n\">change</th><th class=\"bars\" aria-hidden=\"true\"></th></tr></thead><tbody>");
    for (name, from, to) in &rows {
        family(out, name, from * 100.0, to * 100.0);
    }
    out.push_str("</tbody></table></div>");
    out.push_str(
        "<p class=\"note\">Held-out success. Bar: last measurement; the thin bar inside it: the first.</p></section>",
    );
}

fn family(out: &mut String, name: &str, from: f64, to: f64) {
    let _ = write!(out, "<tr><td>{}</td><td class=\"n\">{from:.0}%</td><td class=\"n\">{to:.0}%</td>", Text(name));
    let _ = write!(out, "<td class=\"n\">{:+.0}</td><td class=\"bars\">", to - from);
    out.push_str("<svg viewBox=\"0 0 100 14\" preserveAspectRatio=\"none\" aria-hidden=\"true\">");
    out.push_str("<rect class=\"track\" width=\"100\" height=\"14\"/>");
    let _ = write!(out, "<rect class=\"after\" width=\"{to:.1}\" height=\"14\"/>");
    let _ = write!(out, "<rect class=\"before\" width=\"{from:.1}\" y=\"5\" height=\"4\"/></svg></td></tr>");
}

/// Every step as a row, for who wants the numbers.
fn numbers(out: &mut String, records: &Records) {
    type Column = (&'static str, fn(&StepReport) -> String);
    fn plain(value: f64) -> String {
        Format::Plain.show(value)
    }
    let columns: [Column; 15] = [
        ("step", |s| s.step.to_string()),
        ("time s", |s| plain(s.elapsed)),
        ("reward", |s| format!("{:.3}", s.reward_mean)),
        ("solved", |s| Format::Percent.show(s.success)),
        ("turns", |s| plain(s.turns_mean)),
        ("tokens p50", |s| s.length.p50.to_string()),
        ("tokens p99", |s| s.length.p99.to_string()),
        ("tok/s", |s| plain(s.tokens_per_second)),
        ("KV hit", |s| Format::Percent.show(s.kv_hit_rate)),
        ("stale", |s| plain(s.staleness_mean)),
        ("loss", |s| plain(s.metrics.loss)),
        ("entropy", |s| plain(s.metrics.entropy)),
        ("KL", |s| plain(s.metrics.kl)),
        ("grad norm", |s| plain(s.metrics.grad_norm)),
        ("discarded", |s| s.discards.values().sum::<u64>().to_string()),
    ];
    out.push_str("<section><h2>Numbers</h2><details><summary>Every step</summary><div class=\"scroll\"><table class=\"dense\"><thead><tr>");
    for (name, _) in &columns {
        let _ = write!(out, "<th class=\"n\">{name}</th>");
    }
    out.push_str("</tr></thead><tbody>");
    for step in &records.steps {
        out.push_str("<tr>");
        for (_, value) in &columns {
            let _ = write!(out, "<td class=\"n\">{}</td>", value(step));
        }
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table></div></details></section>");
}

/// What was run, where, and under which isolation.
fn conditions(out: &mut String, records: &Records) {
    out.push_str("<section><h2>Conditions</h2>");
    if let Some(summary) = &records.summary {
        environment(out, summary);
    }
    if !records.config.is_empty() {
        let _ = write!(out, "<details><summary>Configuration</summary><pre>{}</pre></details>", Text(&records.config));
    }
    out.push_str("</section>");
}

fn environment(out: &mut String, summary: &Summary) {
    let c = &summary.conditions;
    let missing = if c.missing.is_empty() { "nothing".to_owned() } else { c.missing.join("; ") };
    let rows = [
        ("command", c.command.join(" ")),
        ("machine", c.machine.clone()),
        ("isolation", c.level.clone()),
        ("isolation lacks", missing),
        ("venus", c.version.clone()),
        ("wall time", duration(c.wall_seconds)),
        ("trajectories discarded", summary.discarded.to_string()),
        ("groups without signal", summary.zero_variance_groups.to_string()),
        ("groups given up", summary.run.groups_dropped.to_string()),
    ];
    out.push_str("<dl class=\"facts\">");
    for (name, value) in rows.iter().filter(|(_, value)| !value.is_empty()) {
        let _ = write!(out, "<dt>{name}</dt><dd>{}</dd>", Text(value));
    }
    out.push_str("</dl>");
}
