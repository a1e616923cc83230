//! What a predictor is shown of a trajectory: counters only, no text.

use super::features::Features;
use super::{Prediction, ToolKind};
use crate::ids::{PromptId, TrajectoryId};
use crate::units::Tokens;

/// One turn and the tool call it led to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Turn {
    /// Tokens generated.
    pub generated: Tokens,
    /// What it handed over to.
    pub tool: ToolKind,
    /// Tokens that came back: what the context grew by beside the generated ones.
    pub output: Tokens,
    /// Seconds until they came back; 0 where not known.
    pub seconds: f64,
    /// The tool call failed (exit code other than 0, time-out).
    pub failed: bool,
}

/// The counters of a trajectory so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Progress {
    /// Length of the prompt.
    pub prompt: Tokens,
    /// Turns that ended.
    pub turns: u32,
    /// Tokens generated in them.
    pub generated: Tokens,
    /// Most tokens generated in one turn.
    pub longest: Tokens,
    /// Tokens generated in the turn before the last one.
    pub previous: Tokens,
    /// Tokens of tool output.
    pub output: Tokens,
    /// Seconds spent in tools.
    pub seconds: f64,
    /// Tool calls that failed.
    pub failures: u32,
    /// Turns by kind of tool, in the order of [`ToolKind::ALL`].
    pub kinds: [u32; ToolKind::ALL.len()],
    /// The last turn.
    pub last: Turn,
}

impl Progress {
    fn turn(&mut self, turn: Turn) {
        // A broken clock must not spoil the sum.
        let seconds = if turn.seconds.is_nan() { 0.0 } else { turn.seconds.clamp(0.0, MOST_SECONDS) };
        let turn = Turn { seconds, ..turn };
        self.previous = self.last.generated;
        self.turns += 1;
        self.generated += turn.generated;
        self.longest = self.longest.max(turn.generated);
        self.output += turn.output;
        self.seconds += turn.seconds;
        self.failures += u32::from(turn.failed);
        self.kinds[turn.tool.index()] += 1;
        self.last = turn;
    }
}

/// A tool call that is said to take longer than a year is taken for one that took a year.
const MOST_SECONDS: f64 = 3.2e7;

/// What an outside predictor answered. See [`Outside`](super::Outside).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// [`Progress::turns`] when it was asked.
    pub turns: u32,
    /// [`Progress::generated`] when it was asked.
    pub generated: Tokens,
    /// What it said.
    pub prediction: Prediction,
}

/// A trajectory as predictors see it: its counters, and what was noted at its boundaries.
#[derive(Clone, Debug)]
pub struct Trail {
    trajectory: TrajectoryId,
    prompt: PromptId,
    total: Option<Tokens>,
    answer: Option<Answer>,
    progress: Progress,
    boundaries: Vec<Boundary>,
    stride: u32,
}

/// What was known at one turn boundary.
#[derive(Clone, Debug)]
pub(super) struct Boundary {
    pub turns: u32,
    pub generated: Tokens,
    pub features: Features,
}

impl Trail {
    /// Boundaries kept. Of a longer trajectory every second one is kept, then every fourth, and so on.
    pub const MOST_BOUNDARIES: usize = 64;

    /// The trail of a trajectory that begins. `prompt` is the same for all trajectories of a task, in every epoch.
    #[must_use]
    pub fn new(trajectory: TrajectoryId, prompt: PromptId, length: Tokens) -> Self {
        let progress = Progress { prompt: length, ..Progress::default() };
        Self { trajectory, prompt, total: None, answer: None, progress, boundaries: Vec::new(), stride: 1 }
    }

    /// Says what the trajectory will have generated in the end. Known only where a recorded one is replayed; nobody
    /// but [`Oracle`](super::Oracle) and [`Noisy`](super::Noisy) looks at it.
    #[must_use]
    pub fn with_total(mut self, total: Tokens) -> Self {
        self.total = Some(total);
        self
    }

    /// A turn and its tool call ended.
    pub fn turn(&mut self, turn: Turn) {
        self.progress.turn(turn);
    }

    /// An outside predictor answered. One that was asked earlier than the answer already held is dropped.
    pub fn hear(&mut self, answer: Answer) {
        if self.answer.is_none_or(|held| held.turns <= answer.turns) {
            self.answer = Some(answer);
        }
    }

    /// Which trajectory.
    #[must_use]
    pub fn trajectory(&self) -> TrajectoryId {
        self.trajectory
    }

    /// Of which prompt.
    #[must_use]
    pub fn prompt(&self) -> PromptId {
        self.prompt
    }

    /// What it did so far.
    #[must_use]
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// What is left of the total it was given.
    pub(super) fn known_remaining(&self) -> Option<Tokens> {
        self.total.map(|total| total.saturating_sub(self.progress.generated))
    }

    pub(super) fn answer(&self) -> Option<Answer> {
        self.answer
    }

    /// Keeps what was known at this boundary. Asked twice, the later one counts.
    pub(super) fn note(&mut self, features: Features) {
        let turns = self.progress.turns;
        if self.boundaries.last().is_some_and(|last| last.turns >= turns) {
            self.boundaries.pop();
        }
        if !turns.is_multiple_of(self.stride) {
            return;
        }
        self.boundaries.push(Boundary { turns, generated: self.progress.generated, features });
        if self.boundaries.len() > Self::MOST_BOUNDARIES {
            self.stride *= 2;
            self.boundaries.retain(|boundary| boundary.turns.is_multiple_of(self.stride));
        }
    }

    /// The boundaries kept that a turn followed, each with what was left to generate then.
    pub(super) fn outcomes(&self) -> impl Iterator<Item = (&Boundary, Tokens)> {
        let left = |b: &Boundary| self.progress.generated.saturating_sub(b.generated);
        self.boundaries.iter().filter(|b| b.turns < self.progress.turns).map(move |b| (b, left(b)))
    }

    /// How many boundaries each one kept stands for.
    pub(super) fn weight(&self) -> f64 {
        f64::from(self.stride)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::predict::features;

    fn turn(generated: u64) -> Turn {
        Turn { generated: Tokens(generated), ..Turn::default() }
    }

    #[test]
    fn a_long_trail_keeps_few_boundaries_spread_over_its_whole_length() {
        let mut trail = Trail::new(TrajectoryId(0), PromptId(0), Tokens(9));
        for _ in 0..1000 {
            trail.note(features::NOTHING);
            trail.turn(turn(1));
        }
        let kept: Vec<u32> = trail.outcomes().map(|(boundary, _)| boundary.turns).collect();
        assert!(kept.len() <= Trail::MOST_BOUNDARIES && kept.len() >= Trail::MOST_BOUNDARIES / 2 - 1);
        assert!(kept.windows(2).all(|pair| f64::from(pair[1] - pair[0]) == trail.weight()));
        assert_eq!((kept[0], 1000 / kept.len() as u32), (0, trail.weight() as u32 - 1));
    }

    #[test]
    fn a_boundary_asked_about_twice_counts_once_and_the_end_is_none() {
        let mut trail = Trail::new(TrajectoryId(0), PromptId(0), Tokens(9));
        trail.note(features::NOTHING);
        trail.note(features::NOTHING);
        trail.turn(turn(5));
        trail.note(features::NOTHING);
        let left: Vec<Tokens> = trail.outcomes().map(|(_, left)| left).collect();
        assert_eq!(left, [Tokens(5)]);
    }

    #[test]
    fn seconds_that_are_no_number_count_as_none() {
        let mut trail = Trail::new(TrajectoryId(0), PromptId(0), Tokens(9));
        for seconds in [f64::NAN, -3.0, 2.0] {
            trail.turn(Turn { seconds, ..turn(1) });
        }
        assert_eq!(trail.progress().seconds, 2.0);
    }
}
