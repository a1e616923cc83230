//! A trajectory's life, and the live trajectories.

use super::queue::Ticket;
use super::stats::{ClassCounts, StageCounts};
use super::version::Span;
use crate::ids::{AttemptId, GroupId, TrajectoryId, WorkerId};
use crate::message::engine::Class;
use std::collections::BTreeMap;
use std::fmt;

/// Where a trajectory is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Its group has not started.
    Waiting,
    /// Its sandbox is being made.
    Starting,
    /// Between two turns: the sandbox is up or the tool has ended, the next turn is not queued yet.
    Ready,
    /// Its turn waits for a slot.
    Queued,
    /// Its turn is being generated.
    Running {
        /// The try that counts.
        attempt: AttemptId,
    },
    /// Its turn ended: a tool or the grader runs.
    Acting,
    /// Graded.
    Finished,
}

impl Stage {
    /// The only place where a stage changes.
    fn to(self, next: Self) -> Result<Self, IllegalMove> {
        let legal = match (self, next) {
            (Self::Waiting | Self::Queued | Self::Running { .. }, Self::Starting) => true,
            // Begun again from the prompt, from wherever it was.
            (Self::Starting | Self::Ready | Self::Acting, Self::Starting) => true,
            (Self::Starting | Self::Acting, Self::Ready) => true,
            // Acting: the turn was cut short and is queued again. Running: its worker was lost.
            (Self::Ready | Self::Acting | Self::Running { .. }, Self::Queued) => true,
            (Self::Queued, Self::Running { .. }) => true,
            (Self::Running { .. }, Self::Acting) => true,
            (Self::Ready | Self::Acting, Self::Finished) => true,
            _ => false,
        };
        if legal { Ok(next) } else { Err(IllegalMove { from: self, to: next }) }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Waiting => f.write_str("waiting"),
            Self::Starting => f.write_str("starting"),
            Self::Ready => f.write_str("ready"),
            Self::Queued => f.write_str("queued"),
            Self::Running { attempt } => write!(f, "running {attempt}"),
            Self::Acting => f.write_str("acting"),
            Self::Finished => f.write_str("finished"),
        }
    }
}

/// A move that the lifecycle does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a trajectory cannot go from {from} to {to}")]
pub(super) struct IllegalMove {
    from: Stage,
    to: Stage,
}

/// Why an event changed nothing: it speaks of something unknown, or of a past that was left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Late;

impl From<IllegalMove> for Late {
    fn from(_: IllegalMove) -> Self {
        Self
    }
}

/// A trajectory known to the scheduler. Stage and class change through [`Trajectories`], which counts them.
#[derive(Debug)]
pub(super) struct Trajectory {
    pub group: GroupId,
    stage: Stage,
    class: Class,
    /// Seniority of its current turn, or of all of it where slots outlast turns.
    pub ticket: Option<Ticket>,
    /// The worker on which it holds a slot.
    pub slot: Option<WorkerId>,
    /// The worker that has its prefix.
    pub home: Option<WorkerId>,
    pub span: Span,
    /// How often it was begun again.
    pub restarts: u32,
    /// How often it failed; becoming stale is not failing.
    pub failures: u32,
    /// The policy's order among those of its class; the smallest is the best.
    pub rank: u64,
    /// Its running turn is being aborted for a greater one.
    pub preempted: bool,
    /// Tokens drawn since it was started.
    pub drawn: u64,
    /// Tokens it will still draw, if the predictor spoke since it was started; less what was drawn after that.
    pub predicted: Option<u64>,
}

impl Trajectory {
    pub fn stage(&self) -> Stage {
        self.stage
    }

    pub fn class(&self) -> Class {
        self.class
    }

    /// A turn ended with this many tokens more.
    pub fn drew(&mut self, tokens: u64) {
        self.drawn = self.drawn.saturating_add(tokens);
        self.predicted = self.predicted.map(|remaining| remaining.saturating_sub(tokens));
    }
}

/// The trajectories of all groups that are neither consumed nor dropped.
#[derive(Debug, Default)]
pub(super) struct Trajectories {
    known: BTreeMap<TrajectoryId, Trajectory>,
    stages: StageCounts,
    classes: ClassCounts,
}

impl Trajectories {
    /// Adds a trajectory at the stage where its life begins here.
    pub fn add(&mut self, id: TrajectoryId, group: GroupId, stage: Stage) {
        let trajectory = Trajectory {
            group,
            stage,
            class: Class::Low,
            ticket: None,
            slot: None,
            home: None,
            span: Span::Empty,
            restarts: 0,
            failures: 0,
            rank: 0,
            preempted: false,
            drawn: 0,
            predicted: None,
        };
        *self.stages.of(trajectory.stage) += 1;
        if stage != Stage::Finished {
            *self.classes.of(trajectory.class) += 1;
        }
        self.known.insert(id, trajectory);
    }

    /// Forgets a trajectory.
    pub fn remove(&mut self, id: TrajectoryId) {
        let Some(trajectory) = self.known.remove(&id) else { return };
        *self.stages.of(trajectory.stage) -= 1;
        if trajectory.stage != Stage::Finished {
            *self.classes.of(trajectory.class) -= 1;
        }
    }

    pub fn get(&self, id: TrajectoryId) -> Result<&Trajectory, Late> {
        self.known.get(&id).ok_or(Late)
    }

    pub fn get_mut(&mut self, id: TrajectoryId) -> Result<&mut Trajectory, Late> {
        self.known.get_mut(&id).ok_or(Late)
    }

    pub fn iter(&self) -> impl Iterator<Item = (TrajectoryId, &Trajectory)> {
        self.known.iter().map(|(&id, trajectory)| (id, trajectory))
    }

    /// Moves a trajectory to its next stage and returns the one it left.
    pub fn advance(&mut self, id: TrajectoryId, next: Stage) -> Result<Stage, Late> {
        let trajectory = self.known.get_mut(&id).ok_or(Late)?;
        let left = trajectory.stage;
        trajectory.stage = left.to(next)?;
        *self.stages.of(left) -= 1;
        *self.stages.of(next) += 1;
        if next == Stage::Finished {
            *self.classes.of(trajectory.class) -= 1;
        }
        Ok(left)
    }

    /// Sets the class of a trajectory that is not finished; the one it had, if that is another.
    pub fn set_class(&mut self, id: TrajectoryId, class: Class) -> Option<Class> {
        let trajectory = self.known.get_mut(&id)?;
        let before = std::mem::replace(&mut trajectory.class, class);
        if before == class || trajectory.stage == Stage::Finished {
            return None;
        }
        *self.classes.of(before) -= 1;
        *self.classes.of(class) += 1;
        Some(before)
    }

    pub fn stages(&self) -> StageCounts {
        self.stages
    }

    pub fn classes(&self) -> ClassCounts {
        self.classes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUNNING: Stage = Stage::Running { attempt: AttemptId(0) };

    #[test]
    fn a_life_goes_from_waiting_to_finished_through_turns_and_tools() {
        let life = [
            Stage::Starting,
            Stage::Ready,
            Stage::Queued,
            RUNNING,
            Stage::Acting,
            Stage::Ready,
            Stage::Queued,
            RUNNING,
            Stage::Queued,
            RUNNING,
            Stage::Acting,
            Stage::Queued,
            RUNNING,
            Stage::Acting,
            Stage::Finished,
        ];
        life.into_iter().try_fold(Stage::Waiting, Stage::to).unwrap();
    }

    #[test]
    fn nothing_leaves_finished_and_nothing_skips_its_sandbox_or_its_slot() {
        for next in
            [Stage::Waiting, Stage::Starting, Stage::Ready, Stage::Queued, RUNNING, Stage::Acting, Stage::Finished]
        {
            assert_eq!(Stage::Finished.to(next), Err(IllegalMove { from: Stage::Finished, to: next }));
        }
        for (from, to) in [
            (Stage::Waiting, Stage::Ready),
            (Stage::Starting, Stage::Queued),
            (Stage::Ready, RUNNING),
            (Stage::Queued, Stage::Finished),
            (RUNNING, Stage::Finished),
            (RUNNING, RUNNING),
        ] {
            assert_eq!(from.to(to), Err(IllegalMove { from, to }));
        }
    }
}
