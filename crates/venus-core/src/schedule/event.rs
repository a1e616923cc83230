//! What the scheduler is told and what it decides.

use crate::ids::{AttemptId, BatchId, GroupId, TrajectoryId, Version, WorkerId};
use crate::message::engine::Class;
use crate::units::{Pages, Tokens};
use serde::{Deserialize, Serialize};

/// A fact. Events about something the scheduler no longer knows are ignored: they are late, not wrong.
/// Once the shell has carried out [`Action::Discard`] it reports nothing more about that start of the trajectory;
/// only turns name their attempt and are told apart by the scheduler itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// A prompt can be worked on. Groups start in the order offered, as the async window opens.
    GroupOffered {
        /// The group.
        group: GroupId,
        /// Its K trajectories.
        members: Vec<TrajectoryId>,
    },
    /// The trajectory's sandbox is up and its prompt known; its first turn is queued by [`Event::TurnQueued`].
    SandboxReady {
        /// Whose.
        trajectory: TrajectoryId,
    },
    /// A trajectory wants to generate a turn.
    TurnQueued {
        /// Who.
        trajectory: TrajectoryId,
        /// Length of its context.
        context: Tokens,
    },
    /// A dispatched turn ended (also when preempted or aborted: then it is queued again by the shell).
    TurnEnded {
        /// Who.
        trajectory: TrajectoryId,
        /// Which try; ignored unless current.
        attempt: AttemptId,
        /// Tokens drawn.
        generated: Tokens,
        /// First and last weight version that drew them; `None` when none were drawn.
        versions: Option<(Version, Version)>,
    },
    /// A tool call ended; the next turn follows with [`Event::TurnQueued`]. A turn that was cut short has no tool
    /// call: it is queued again without this event, and keeps its place.
    ToolEnded {
        /// Whose.
        trajectory: TrajectoryId,
    },
    /// The predictor spoke: tokens this trajectory will still generate.
    Prediction {
        /// Whose.
        trajectory: TrajectoryId,
        /// Expected remaining tokens.
        remaining: Tokens,
        /// Their spread (standard deviation).
        spread: Tokens,
    },
    /// Graded: the trajectory is complete.
    TrajectoryFinished {
        /// Which.
        trajectory: TrajectoryId,
    },
    /// The trajectory cannot be completed (sandbox lost, grader failed, engine rejected it). It is started anew
    /// until its restarts are used up; then its group is discarded.
    TrajectoryFailed {
        /// Which.
        trajectory: TrajectoryId,
    },
    /// The engines now run this version.
    VersionPublished {
        /// Which.
        version: Version,
    },
    /// A worker is there, with this many slots; also a change of its slots.
    WorkerJoined {
        /// Which.
        worker: WorkerId,
        /// Turns it may generate at once.
        slots: u32,
    },
    /// A worker's load.
    WorkerReport {
        /// Which.
        worker: WorkerId,
        /// Free pages.
        free: Pages,
        /// Pages in all.
        pages: Pages,
    },
    /// A worker is gone; the scheduler queues its turns again, with what they had before they were sent.
    WorkerLost {
        /// Which.
        worker: WorkerId,
    },
    /// The trainer can take a batch. Said again before one is delivered, it says nothing new.
    TrainerDemand,
    /// The trainer acknowledged a batch: its groups are consumed once the version made from it is published.
    BatchTrained {
        /// Which.
        batch: BatchId,
    },
    /// No more groups start: the run is ending. What is in flight goes on unless discarded by the shell.
    Drain,
}

/// A decision, to be carried out in order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Begin this trajectory from its prompt: get it a sandbox.
    Start {
        /// Which.
        trajectory: TrajectoryId,
        /// How often it was started before.
        restart: u32,
    },
    /// Send its queued turn to a worker.
    Dispatch {
        /// Whose turn.
        trajectory: TrajectoryId,
        /// Names this try.
        attempt: AttemptId,
        /// Where.
        worker: WorkerId,
        /// With what standing.
        class: Class,
    },
    /// Abort its running turn; the tokens so far are kept and the turn is queued again.
    Preempt {
        /// Whose turn.
        trajectory: TrajectoryId,
        /// Which try.
        attempt: AttemptId,
        /// Where it runs.
        worker: WorkerId,
    },
    /// Its class changed while it is bound to a worker.
    SetClass {
        /// Whose.
        trajectory: TrajectoryId,
        /// Where to.
        worker: WorkerId,
        /// The new class.
        class: Class,
    },
    /// Stop this trajectory and drop what it made: abort its turn, kill its tool, release sandbox and pages.
    /// A [`Action::Start`] of the same trajectory follows if it is to be tried again.
    Discard {
        /// Which.
        trajectory: TrajectoryId,
        /// Why.
        reason: DiscardReason,
    },
    /// This group is given up, and with it all its trajectories (each discarded before).
    DropGroup {
        /// Which.
        group: GroupId,
        /// Why.
        reason: DiscardReason,
    },
    /// Hand these complete groups to the trainer, once.
    Deliver {
        /// Names the batch.
        batch: BatchId,
        /// B groups, in the order they completed.
        groups: Vec<GroupId>,
    },
}

/// Why work was thrown away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DiscardReason {
    /// Its next token would span more weight versions than the limit.
    StaleSpan,
    /// It failed and its restarts are used up, or its group's are.
    Failed,
    /// It failed and is tried again.
    Retry,
    /// Its group was dropped.
    GroupDropped,
    /// The group was offered without K members of its own; nothing of it was started.
    Malformed,
}
