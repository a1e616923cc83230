//! What is known of the future of a group: all that a policy may judge it by.

use crate::ids::TrajectoryId;

/// The future of a group that is in flight.
#[derive(Clone, Debug, Default)]
pub(super) struct Outlook {
    /// It is as old as the staleness boundary, or one of its members is at it.
    pub due: bool,
    /// Place in the order in which groups started.
    pub order: u64,
    /// K, finished members included.
    pub group_size: usize,
    /// Tokens drawn by the finished member that drew most.
    pub longest_finished: Option<u64>,
    /// Members that are not finished.
    pub members: Vec<Prospect>,
}

/// The future of an unfinished trajectory.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Prospect {
    /// Which.
    pub id: TrajectoryId,
    /// Whether it is the first member of its group.
    pub leads: bool,
    /// Tokens drawn since it was started.
    pub drawn: u64,
    /// Tokens it will still draw, as predicted or by default.
    pub remaining: u64,
}
