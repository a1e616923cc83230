//! What distinguishes one scheduling policy from another: which turn goes next, and who keeps a slot.
//!
//! A policy is asked three questions and holds no state of its own; the machine around it (queue, slots,
//! versions, lifecycle) is the same for all. A policy that preempts needs nothing new from that machine: a
//! turn that ended before its tool was called and is queued again keeps its place.

use super::queue::{Place, Ticket};
use super::version::Standing;
use crate::message::engine::Class;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::fmt;
use std::str::FromStr;

/// Who gets a slot, and for how long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// A trajectory holds its slot from its first dispatch to its end, tool time included (slime, verl). The
    /// slot idles while the tool runs: the paper's turn-level bubble.
    TrajectoryLevel,
    /// A slot is held for one turn; while the tool runs another trajectory uses it (ROLL Flash, SkyRL-Agent).
    #[default]
    ActionLevel,
}

impl Policy {
    /// All policies, in the order in which they are shown.
    pub const ALL: [Self; 2] = [Self::TrajectoryLevel, Self::ActionLevel];

    /// Its name in configuration files and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::TrajectoryLevel => "trajectory-level",
            Self::ActionLevel => "action-level",
        }
    }

    /// Whether slot and seniority outlast the turn.
    pub(super) fn keeps_slot(self) -> bool {
        self == Self::TrajectoryLevel
    }

    /// The place of a turn in the queue; the smallest goes first. Greater classes go first, whatever the
    /// policy (promise 2); within a class, seniority decides.
    pub(super) fn place(self, class: Class, ticket: Ticket) -> Place {
        match self {
            Self::TrajectoryLevel | Self::ActionLevel => Place { class: Reverse(class), ticket },
        }
    }

    /// The class of a trajectory of this standing. Neither policy knows critical groups.
    pub(super) fn class(self, standing: Standing) -> Class {
        match (self, standing) {
            (_, Standing::Boundary | Standing::Expired) => Class::Boundary,
            (Self::TrajectoryLevel | Self::ActionLevel, Standing::Fresh) => Class::Low,
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A policy name that is not one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown policy `{0}`: use `trajectory-level` or `action-level`")]
pub struct UnknownPolicy(String);

impl FromStr for Policy {
    type Err = UnknownPolicy;

    fn from_str(name: &str) -> Result<Self, UnknownPolicy> {
        Self::ALL.into_iter().find(|policy| policy.name() == name).ok_or_else(|| UnknownPolicy(name.to_owned()))
    }
}
