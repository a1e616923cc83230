//! Counts between two steps, and over the run.

use crate::agent::Failure;
use crate::ledger::CommittedGroup;
use crate::report::{Percentiles, StepReport, TimeSplit};
use std::collections::BTreeMap;
use venus_core::message::engine::TurnResult;
use venus_core::message::trainer::StepResult;
use venus_core::schedule::DiscardReason;
use venus_core::units::Instant;

/// What happened since the last step.
#[derive(Debug, Default)]
struct Interval {
    since: f64,
    generated: u64,
    context: u64,
    cached: u64,
    recomputed: u64,
    discards: BTreeMap<String, u64>,
    failures: BTreeMap<String, u64>,
    sandboxes_peak: usize,
    time: TimeSplit,
}

/// All counts of a run.
#[derive(Debug, Default)]
pub(super) struct Tally {
    interval: Interval,
    /// Tokens drawn since the start, evaluation included.
    pub generated: u64,
    /// Answers that came too late to count.
    pub late: u64,
    /// Sandboxes up now.
    pub sandboxes: usize,
    /// Seconds spent on evaluation.
    pub evaluation: f64,
    /// Seconds that earlier parts of the run took.
    pub earlier: f64,
}

impl Tally {
    /// Counts on where earlier parts of the run ended.
    pub fn resume(&mut self, steps: &[StepReport]) {
        self.earlier = steps.iter().map(|step| step.seconds).sum();
        self.generated = steps.iter().map(|step| step.generated_tokens).sum();
        self.interval.since = self.earlier;
    }

    /// Seconds of the run so far without evaluation.
    pub fn elapsed(&self, now: Instant) -> f64 {
        self.earlier + now.as_secs_f64() - self.evaluation
    }

    pub fn turn(&mut self, context: usize, result: &TurnResult) {
        self.interval.generated += result.tokens.len() as u64;
        self.interval.context += context as u64;
        self.interval.cached += result.cached_tokens.0;
        self.interval.recomputed += result.recomputed_tokens.0;
        self.generated += result.tokens.len() as u64;
    }

    pub fn evaluation_turn(&mut self, result: &TurnResult) {
        self.generated += result.tokens.len() as u64;
    }

    /// Counts an answer to an attempt that is no longer current: its tokens were drawn all the same.
    pub fn late(&mut self, result: &TurnResult) {
        self.late += 1;
        self.interval.generated += result.tokens.len() as u64;
        self.generated += result.tokens.len() as u64;
    }

    pub fn discard(&mut self, reason: DiscardReason) {
        let name = serde_json::to_value(reason).ok().and_then(|v| v.as_str().map(str::to_owned));
        *self.interval.discards.entry(name.unwrap_or_default()).or_default() += 1;
    }

    /// Counts a failure; whether it is the first of its kind since the last step.
    pub fn failure(&mut self, failure: &Failure) -> bool {
        let count = self.interval.failures.entry(failure.as_str().to_owned()).or_default();
        *count += 1;
        *count == 1
    }

    pub fn sandbox_up(&mut self) {
        self.sandboxes += 1;
        self.interval.sandboxes_peak = self.interval.sandboxes_peak.max(self.sandboxes);
    }

    pub fn waited(&mut self, seconds: f64) {
        self.interval.time.waiting += seconds;
    }

    pub fn trained(&mut self, seconds: f64) {
        self.interval.time.training += seconds;
    }

    pub fn loaded(&mut self, seconds: f64) {
        self.interval.time.loading += seconds;
    }

    /// The report of a step that ends now; counting starts anew.
    pub fn close(&mut self, now: Instant, result: StepResult, groups: Vec<CommittedGroup>) -> StepReport {
        let elapsed = self.elapsed(now);
        let interval = std::mem::replace(&mut self.interval, Interval { since: elapsed, ..Interval::default() });
        self.interval.sandboxes_peak = self.sandboxes;
        let seconds = elapsed - interval.since;
        let mut report = StepReport {
            step: result.version.0,
            batch: result.batch,
            groups: groups.iter().map(|g| g.group).collect(),
            dir: result.dir,
            metrics: result.metrics,
            generated_tokens: interval.generated,
            tokens_per_second: if seconds > 0.0 { interval.generated as f64 / seconds } else { 0.0 },
            kv_hit_rate: ratio(interval.cached.saturating_sub(interval.recomputed), interval.context),
            discards: interval.discards,
            failures: interval.failures,
            sandboxes: self.sandboxes,
            sandboxes_peak: interval.sandboxes_peak,
            time: interval.time,
            seconds,
            elapsed,
            ..StepReport::default()
        };
        describe(&mut report, &groups);
        report
    }
}

/// Fills in what the batch itself says.
fn describe(report: &mut StepReport, groups: &[CommittedGroup]) {
    let all: Vec<_> = groups.iter().flat_map(|g| &g.trajectories).collect();
    let trained_on = report.step.saturating_sub(1);
    let (mut reward, mut success, mut age_sum, mut drawn) = (0.0, 0, 0, 0);
    for trajectory in &all {
        reward += f64::from(trajectory.train.reward);
        success += u64::from(trajectory.train.reward >= 1.0);
        *report.ends.entry(trajectory.end).or_default() += 1;
        report.time.add(trajectory);
        for span in &trajectory.train.spans {
            let tokens = u64::from(span.end - span.start);
            age_sum += tokens * trained_on.saturating_sub(span.version.0);
            drawn += tokens;
        }
        if let (Some(first), Some(last)) = (trajectory.train.spans.first(), trajectory.train.spans.last()) {
            report.staleness_max = report.staleness_max.max(trained_on.saturating_sub(first.version.0));
            report.span_max = report.span_max.max(last.version.0 - first.version.0 + 1);
        }
    }
    let count = all.len() as u64;
    report.trajectories = count;
    let turns: Vec<_> = all.iter().map(|t| t.turns.len() as u64).collect();
    report.turns_mean = ratio(turns.iter().sum(), count);
    report.turns = Percentiles::of(turns);
    report.success = ratio(success, count);
    report.staleness_mean = ratio(age_sum, drawn);
    report.reward_mean = if count > 0 { reward / count as f64 } else { 0.0 };
    report.length = Percentiles::of(all.iter().map(|t| t.drawn()).collect());
}

pub(super) fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
