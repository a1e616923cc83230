//! Evaluation: held-out tasks through the same agent loop, engines and sandboxes, between two steps.
//!
//! It runs on the newest weights once all engines have them and before they are published: no batch is trained meanwhile, so the weights stay
//! the same. Nothing of the next batch starts either; what is in flight, with an async factor above 1, goes on beside it.
//!
//! Its trajectories are no group members: neither the scheduler nor the ledger knows them, and they are not recorded. Each goes to a fixed
//! engine, which queues what it cannot run.

use super::tally::ratio;
use super::{Coordinator, RunError};
use crate::agent::{EpisodeOptions, Failure, FinishedTrajectory, Who};
use crate::record::Entry;
use crate::report::{EvalReport, RunEvent};
use crate::sandbox::SandboxClient;
use crate::stop::Urgency;
use crate::stream::family;
use crate::task::Task;
use crate::trainer::TrainerClient;
use std::collections::BTreeMap;
use std::sync::Arc;
use venus_core::ids::{AttemptId, GroupId, TrajectoryId, Version};
use venus_core::message::engine::Class;
use venus_core::units::Instant;

/// Set in every id of an evaluation, so that none is ever taken for a training one.
const MARK: u64 = 1 << 63;
/// Times a held-out task is started before it counts as failed.
const STARTS: u32 = 3;

pub(super) fn is_evaluation(trajectory: TrajectoryId) -> bool {
    trajectory.0 & MARK != 0
}

/// An evaluation that runs.
#[derive(Debug)]
pub(super) struct Evaluation {
    since: Instant,
    options: Arc<EpisodeOptions>,
    /// Next held-out task to start.
    next: usize,
    running: usize,
    done: usize,
    next_attempt: u64,
    totals: Totals,
}

#[derive(Debug, Default)]
struct Totals {
    report: EvalReport,
    reward: f64,
    turns: u64,
    drawn: u64,
    /// Solved and tried, by family.
    families: BTreeMap<&'static str, (u64, u64)>,
}

impl Totals {
    fn add(&mut self, task: &Task, finished: &FinishedTrajectory) {
        let success = u64::from(finished.train.reward >= 1.0);
        self.report.tasks += 1;
        self.report.solved += success;
        self.reward += f64::from(finished.train.reward);
        self.turns += finished.turns.len() as u64;
        self.drawn += finished.drawn();
        *self.report.ends.entry(finished.end).or_default() += 1;
        let (solved, tasks) = self.families.entry(family(task)).or_default();
        *solved += success;
        *tasks += 1;
    }

    fn finish(self, version: Version) -> EvalReport {
        let mut report = self.report;
        report.version = version;
        let share = |(family, (solved, tasks)): (&str, _)| (family.to_owned(), ratio(solved, tasks));
        report.by_kind = self.families.into_iter().map(share).collect();
        report.success = ratio(report.solved, report.tasks);
        report.reward_mean = if report.tasks == 0 { 0.0 } else { self.reward / report.tasks as f64 };
        report.turns_mean = ratio(self.turns, report.tasks);
        report.tokens_mean = ratio(self.drawn, report.tasks);
        report
    }
}

impl<C: SandboxClient, T: TrainerClient> Coordinator<C, T> {
    pub(super) fn evaluation_due(&self) -> bool {
        let (version, every) = (self.version.0, self.options.evaluation.every);
        let regular = every > 0 && version.is_multiple_of(every);
        let due = version == 0 || version >= self.target.0 || regular;
        let done = self.evaluations.iter().any(|report| report.version == self.version);
        due && !done && !self.heldout.is_empty() && self.urgency == Urgency::None
    }

    pub(super) fn evaluate(&mut self) -> Result<(), RunError> {
        let mut options = EpisodeOptions::clone(&self.training_episodes);
        options.temperature = self.options.evaluation.temperature;
        self.evaluation = Some(Evaluation {
            since: self.now(),
            options: Arc::new(options),
            next: 0,
            running: 0,
            done: 0,
            next_attempt: 0,
            totals: Totals::default(),
        });
        self.refill();
        Ok(())
    }

    /// Starts held-out tasks up to the number that may run at once.
    fn refill(&mut self) {
        let slots: u32 = self.engines.values().map(|engine| engine.slots).sum();
        let at_once = match self.options.evaluation.concurrency {
            0 => 2 * slots as usize,
            given => given,
        };
        let Some(evaluation) = &mut self.evaluation else { return };
        let mut starting = Vec::new();
        while evaluation.running < at_once.max(1) && evaluation.next < self.heldout.len() {
            starting.push(Who { trajectory: TrajectoryId(MARK | evaluation.next as u64), restart: 0 });
            evaluation.next += 1;
            evaluation.running += 1;
        }
        starting.into_iter().for_each(|who| self.start_evaluation(who));
    }

    fn start_evaluation(&mut self, who: Who) {
        let (Some(task), Some(evaluation)) = (self.heldout.get(place(who.trajectory)), &self.evaluation) else {
            return;
        };
        let live = self.crew.start(who, task.clone(), evaluation.options.clone());
        self.live.insert(who.trajectory, live);
    }

    /// Sends a turn to the engine of its task.
    pub(super) fn evaluate_turn(&mut self, trajectory: TrajectoryId) -> Result<(), RunError> {
        let Some(evaluation) = &mut self.evaluation else { return Ok(()) };
        let attempt = AttemptId(MARK | evaluation.next_attempt);
        evaluation.next_attempt += 1;
        let chosen = place(trajectory) % self.engines.len().max(1);
        let Some(&worker) = self.engines.keys().nth(chosen) else { return Err(RunError::NoEngine) };
        self.submit(trajectory, GroupId(trajectory.0), attempt, worker, Class::Low)
    }

    /// A held-out trajectory ended, with a reward or without.
    pub(super) fn evaluated(
        &mut self,
        trajectory: TrajectoryId,
        result: Result<Box<FinishedTrajectory>, Failure>,
    ) -> Result<(), RunError> {
        let restart = self.live.get(&trajectory).map_or(0, |live| live.who.restart);
        self.remove(trajectory);
        let Some(evaluation) = &mut self.evaluation else { return Ok(()) };
        match result {
            Err(_) if restart + 1 < STARTS => {
                self.start_evaluation(Who { trajectory, restart: restart + 1 });
                return Ok(());
            }
            Err(failure) => {
                evaluation.totals.report.failed += 1;
                let name = self.heldout.get(place(trajectory)).map_or("", |task| task.name.as_str());
                self.notice(format!("held-out task {name} failed {STARTS} times: {failure}"));
            }
            Ok(finished) => {
                if let Some(task) = self.heldout.get(place(trajectory)) {
                    evaluation.totals.add(task, &finished);
                }
            }
        }
        if let Some(evaluation) = &mut self.evaluation {
            evaluation.running -= 1;
            evaluation.done += 1;
        }
        self.refill();
        self.conclude_evaluation()
    }

    fn conclude_evaluation(&mut self) -> Result<(), RunError> {
        let now = self.now();
        let all = self.heldout.len();
        let Some(evaluation) = self.evaluation.take_if(|evaluation| evaluation.done >= all) else { return Ok(()) };
        let took = now.as_secs_f64() - evaluation.since.as_secs_f64();
        self.tally.evaluation += took;
        let mut report = evaluation.totals.finish(self.version);
        (report.seconds, report.at) = (took, self.tally.earlier + now.as_secs_f64());
        report.temperature = evaluation.options.temperature;
        self.note(&Entry::Evaluated(report.clone()))?;
        self.emit(RunEvent::EvalFinished(report.clone()));
        self.evaluations.push(report);
        self.end_evaluation()
    }

    fn end_evaluation(&mut self) -> Result<(), RunError> {
        let super::cycle::Cycle::Evaluating { batch } = self.cycle else { return Ok(()) };
        self.publish(batch)
    }

    /// Ends an evaluation without a result.
    pub(super) fn cancel_evaluation(&mut self) {
        let Some(evaluation) = self.evaluation.take() else { return };
        self.tally.evaluation += self.now().as_secs_f64() - evaluation.since.as_secs_f64();
        let running: Vec<_> = self.live.keys().copied().filter(|&id| is_evaluation(id)).collect();
        running.into_iter().for_each(|trajectory| self.remove(trajectory));
    }

    /// Held-out tasks done, and in all; zero while none run.
    pub(super) fn evaluation_progress(&self) -> (usize, usize) {
        self.evaluation.as_ref().map_or((0, 0), |evaluation| (evaluation.done, self.heldout.len()))
    }
}

/// A trajectory's place among the held-out tasks.
fn place(trajectory: TrajectoryId) -> usize {
    (trajectory.0 & !MARK) as usize
}
