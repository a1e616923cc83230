//! The page: headline, figures, tables, trajectories, and what the run was.

use super::markup::{Format, Text, duration};
use super::{figures, trajectories};
use crate::run::{EvalLine, FamilyScore, Records, StepLine, Summary};
use std::fmt::Write;

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
    out.push_str(&trajectories::section(&records.trajectories));
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
        (Some(first), Some(last)) if last.step > first.step => {
            let _ =
                write!(out, "<span class=\"from\">{}</span> <span class=\"arrow\">→</span> ", percent(first.success()));
            let _ = write!(out, "<span class=\"to\">{}</span>", percent(last.success()));
        }
        (Some(only), _) => drop(write!(out, "<span class=\"to\">{}</span>", percent(only.success()))),
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
    let ending = if summary.interrupted { ", ended early by Ctrl-C" } else { "" };
    let (time, trained) = (duration(summary.rl_seconds), summary.groups_trained);
    format!(
        "{steps} trainer steps on {trained} groups in {time} of reinforcement learning, seed {}{ending}.",
        summary.seed
    )
}

fn tiles(out: &mut String, records: &Records) {
    let Some(s) = &records.summary else { return };
    let tiles = [
        ("tokens drawn", Format::Plain.show(s.tokens_generated as f64)),
        ("tokens a second", Format::Plain.show(s.tokens_per_second)),
        ("KV hit rate", Format::Percent.show(s.hit_rate)),
        ("groups lost / doubled", format!("{} / {}", s.groups_lost, s.groups_doubled)),
        ("largest logprob gap", Format::Plain.show(s.logprob_gap_max)),
        ("wall time", duration(s.wall_seconds)),
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
fn families(out: &mut String, evals: &[EvalLine]) {
    let (Some(first), Some(last)) = (evals.first(), evals.last()) else { return };
    if last.families.is_empty() {
        return;
    }
    let before = |name: &str| first.families.get(name).copied().unwrap_or_default();
    let mut rows: Vec<(&String, FamilyScore, FamilyScore)> =
        last.families.iter().map(|(n, s)| (n, before(n), *s)).collect();
    let gain = |row: &(&String, FamilyScore, FamilyScore)| row.2.success() - row.1.success();
    rows.sort_by(|a, b| gain(b).total_cmp(&gain(a)).then(a.0.cmp(b.0)));
    let _ = write!(
        out,
        "<section><h2>By family</h2><div class=\"scroll\"><table><thead><tr><th>family</th><th class=\"n\">tasks</th>"
    );
    let _ = write!(
        out,
        "<th class=\"n\">step {}</th><th class=\"n\">step {}</th><th class=\"n\">change</th><th class=\"bars\" aria-hidden=\"true\"></th></tr></thead><tbody>",
        first.step, last.step
    );
    for (name, first, last) in &rows {
        let (from, to) = (first.success() * 100.0, last.success() * 100.0);
        let _ = write!(
            out,
            "<tr><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{from:.0}%</td><td class=\"n\">{to:.0}%</td><td class=\"n\">{:+.0}</td>",
            Text(name),
            last.tasks,
            to - from
        );
        let _ = write!(
            out,
            "<td class=\"bars\"><svg viewBox=\"0 0 200 14\" preserveAspectRatio=\"none\" aria-hidden=\"true\"><rect class=\"track\" width=\"200\" height=\"14\"/>"
        );
        let _ = write!(
            out,
            "<rect class=\"after\" width=\"{:.1}\" height=\"14\"/><rect class=\"before\" width=\"{:.1}\" y=\"5\" height=\"4\"/></svg></td></tr>",
            to * 2.0,
            from * 2.0
        );
    }
    out.push_str("</tbody></table></div><p class=\"note\">Bar: last measurement; the thin bar inside it: the first.</p></section>");
}

/// Every step as a row, for who wants the numbers.
fn numbers(out: &mut String, records: &Records) {
    type Column = (&'static str, fn(&StepLine) -> String);
    fn plain(value: f64) -> String {
        Format::Plain.show(value)
    }
    let columns: [Column; 16] = [
        ("step", |s| s.step.to_string()),
        ("time s", |s| plain(s.seconds)),
        ("reward", |s| format!("{:.3}", s.trainer.reward_mean)),
        ("solved", |s| Format::Percent.show(s.success)),
        ("turns p50", |s| plain(s.turns.p50)),
        ("turns p99", |s| plain(s.turns.p99)),
        ("tokens p50", |s| plain(s.tokens.p50)),
        ("tokens p99", |s| plain(s.tokens.p99)),
        ("tok/s", |s| plain(s.tokens_per_second)),
        ("KV hit", |s| Format::Percent.show(s.hit_rate)),
        ("stale mean", |s| plain(s.staleness_mean)),
        ("loss", |s| plain(s.trainer.loss)),
        ("entropy", |s| plain(s.trainer.entropy)),
        ("KL", |s| plain(s.trainer.kl)),
        ("grad norm", |s| plain(s.trainer.grad_norm)),
        ("discarded", |s| s.discarded.to_string()),
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
    let missing = if summary.missing.is_empty() { "nothing".to_owned() } else { summary.missing.join("; ") };
    let rows = [
        ("command", summary.command.join(" ")),
        ("machine", summary.machine.clone()),
        ("isolation", summary.level.clone()),
        ("isolation lacks", missing),
        ("venus", summary.versions.venus.clone()),
        ("weights", format!("version {}", summary.versions.weights)),
        ("trajectories discarded", summary.discarded.to_string()),
        ("groups without signal", summary.zero_variance_groups.to_string()),
    ];
    out.push_str("<dl class=\"facts\">");
    for (name, value) in rows.iter().filter(|(_, value)| !value.is_empty()) {
        let _ = write!(out, "<dt>{name}</dt><dd>{}</dd>", Text(value));
    }
    out.push_str("</dl>");
}
