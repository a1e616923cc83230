//! What the scheduler says about itself.

use super::event::DiscardReason;
use super::trajectory::Stage;
use crate::ids::Version;
use crate::message::engine::Class;
use serde::{Deserialize, Serialize};

/// Trajectories by stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageCounts {
    /// Of groups that have not started.
    pub waiting: usize,
    /// Getting a sandbox.
    pub starting: usize,
    /// Between two turns.
    pub ready: usize,
    /// Waiting for a slot.
    pub queued: usize,
    /// Being generated.
    pub running: usize,
    /// In a tool or being graded.
    pub acting: usize,
    /// Graded, not yet consumed.
    pub finished: usize,
}

impl StageCounts {
    pub(super) fn of(&mut self, stage: Stage) -> &mut usize {
        match stage {
            Stage::Waiting => &mut self.waiting,
            Stage::Starting => &mut self.starting,
            Stage::Ready => &mut self.ready,
            Stage::Queued => &mut self.queued,
            Stage::Running { .. } => &mut self.running,
            Stage::Acting => &mut self.acting,
            Stage::Finished => &mut self.finished,
        }
    }
}

/// Unfinished trajectories by class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassCounts {
    /// Low class.
    pub low: usize,
    /// High class.
    pub high: usize,
    /// At their staleness boundary.
    pub boundary: usize,
}

impl ClassCounts {
    pub(super) fn of(&mut self, class: Class) -> &mut usize {
        match class {
            Class::Low => &mut self.low,
            Class::High => &mut self.high,
            Class::Boundary => &mut self.boundary,
        }
    }
}

/// Groups that are neither consumed nor dropped, by where they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupCounts {
    /// Offered, waiting for the async window.
    pub offered: usize,
    /// Started, some member unfinished.
    pub in_flight: usize,
    /// Complete, not delivered.
    pub ready: usize,
    /// Delivered, not consumed: the batch is not acknowledged or its version not published.
    pub delivered: usize,
}

/// Discards since the start, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiscardCounts {
    /// Would have spanned too many versions.
    pub stale_span: u64,
    /// Failed for good.
    pub failed: u64,
    /// Failed and begun again.
    pub retry: u64,
    /// Lost with their group.
    pub group_dropped: u64,
    /// Refused when offered; counted once a group, as nothing of it was started.
    pub malformed: u64,
}

impl DiscardCounts {
    pub(super) fn of(&mut self, reason: DiscardReason) -> &mut u64 {
        match reason {
            DiscardReason::StaleSpan => &mut self.stale_span,
            DiscardReason::Failed => &mut self.failed,
            DiscardReason::Retry => &mut self.retry,
            DiscardReason::GroupDropped => &mut self.group_dropped,
            DiscardReason::Malformed => &mut self.malformed,
        }
    }
}

/// Counters since the start of the scheduler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Turns sent to a worker.
    pub dispatches: u64,
    /// Turns queued again with their place kept: preempted, aborted, or their worker lost.
    pub requeues: u64,
    /// Dispatches to another worker than the one that had the prefix.
    pub moves: u64,
    /// Running turns told to stop for a greater one (vllm#9342: users could not tell whether priority works).
    pub preemptions: u64,
    /// Times a group became critical or ceased to be.
    pub critical_changes: u64,
    /// Discards by reason.
    pub discards: DiscardCounts,
    /// Groups handed to the trainer.
    pub groups_delivered: u64,
    /// Groups whose batch is acknowledged and whose version is published.
    pub groups_consumed: u64,
    /// Groups given up or refused.
    pub groups_dropped: u64,
    /// Events that spoke of something unknown or past.
    pub events_ignored: u64,
}

/// A snapshot of the scheduler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchedulerStats {
    /// The version in use.
    pub version: Version,
    /// Trajectories by stage.
    pub stages: StageCounts,
    /// Unfinished trajectories by class.
    pub classes: ClassCounts,
    /// Groups by where they are.
    pub groups: GroupCounts,
    /// Of those in flight, critical: needed for the next batch.
    pub critical_groups: usize,
    /// Turns waiting for a slot.
    pub queued_turns: usize,
    /// Running turns that were told to stop and have not yet.
    pub preempting: usize,
    /// Slots of all workers.
    pub slots: u64,
    /// Of these, free.
    pub free_slots: u64,
    /// Oldest start version of an unfinished trajectory that has one.
    pub oldest_start: Option<Version>,
    /// Newest start version of an unfinished trajectory that has one.
    pub newest_start: Option<Version>,
    /// Counters since the start.
    pub totals: Totals,
}
