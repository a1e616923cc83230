//! What distinguishes one scheduling policy from another: which turn goes next, who keeps a slot, who loses one.
//!
//! A policy answers a few questions and holds no state of its own; the machine around it (queue, slots,
//! versions, lifecycle, order of groups) is the same for all. What is particular to a policy that looks ahead is in
//! its file below this one.

mod group_fcfs;
mod group_probe;
mod longest_first;
mod priority;

pub use priority::{GroupScore, PriorityConfig};

use super::outlook::Outlook;
use super::queue::{Place, Ticket};
use super::version::Standing;
use crate::message::engine::Class;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::fmt;
use std::str::FromStr;

/// Who gets a slot, and for how long.
///
/// All of them share what is not theirs to decide: one async window, versions, and the boundary class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// A trajectory holds its slot from its first dispatch to its end, tool time included (slime, verl). The
    /// slot idles while the tool runs: the paper's turn-level bubble.
    TrajectoryLevel,
    /// A slot is held for one turn; while the tool runs another trajectory uses it (ROLL Flash, SkyRL-Agent).
    #[default]
    ActionLevel,
    /// Action-level slots; the groups that the next batch still lacks are the high class, shortest remaining work
    /// first, and a high turn that finds no slot takes that of a running low one (VenusRL, sections 3.2 and 3.3).
    Priority,
    /// As [`Policy::Priority`], with groups in the order they started (the paper's FCFS-based priority, Fig. 15).
    GroupFcfs,
    /// Action-level slots, longest predicted remainder first, with preemption (Heddle).
    LongestFirst,
    /// Action-level slots; one member of each group goes ahead to show how long its group is, then the longest
    /// groups go first (Seer).
    GroupProbe,
}

/// When a waiting turn takes the slot of a running one. Always strict: between equals nobody is preempted, or two
/// turns could take one slot from each other for ever (vllm#54530).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Preemption {
    /// When its class is greater.
    ByClass,
    /// When its class is greater, or its rank better within the class.
    ByRank,
}

impl Policy {
    /// All policies, in the order in which they are shown.
    pub const ALL: [Self; 6] = [
        Self::TrajectoryLevel,
        Self::ActionLevel,
        Self::Priority,
        Self::GroupFcfs,
        Self::LongestFirst,
        Self::GroupProbe,
    ];

    /// Its name in configuration files and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::TrajectoryLevel => "trajectory-level",
            Self::ActionLevel => "action-level",
            Self::Priority => "priority",
            Self::GroupFcfs => "group-fcfs",
            Self::LongestFirst => "longest-first",
            Self::GroupProbe => "group-probe",
        }
    }

    /// Whether slot and seniority outlast the turn.
    pub(super) fn keeps_slot(self) -> bool {
        self == Self::TrajectoryLevel
    }

    /// Whether it asks how much work is left. For those that do not, no order is kept.
    pub(super) fn looks_ahead(self) -> bool {
        !matches!(self, Self::TrajectoryLevel | Self::ActionLevel)
    }

    /// Whether it gives the high class to the groups that the next batch lacks.
    pub(super) fn knows_critical_groups(self) -> bool {
        matches!(self, Self::Priority | Self::GroupFcfs)
    }

    /// When a waiting turn takes the slot of a running one, if ever.
    pub(super) fn preemption(self) -> Option<Preemption> {
        match self {
            Self::Priority | Self::GroupFcfs => Some(Preemption::ByClass),
            Self::LongestFirst => Some(Preemption::ByRank),
            Self::TrajectoryLevel | Self::ActionLevel | Self::GroupProbe => None,
        }
    }

    /// The place of a turn in the queue; the smallest goes first. Greater classes go first, whatever the
    /// policy (promise 2); within a class rank decides where the policy says so, then seniority.
    pub(super) fn place(self, class: Class, rank: u64, ticket: Ticket) -> Place {
        let by_rank = matches!(self, Self::LongestFirst | Self::GroupProbe);
        Place { class: Reverse(class), rank: if by_rank { rank } else { 0 }, ticket }
    }

    /// The class of a trajectory of this standing, in a group that is critical or not.
    pub(super) fn class(self, standing: Standing, critical: bool) -> Class {
        match standing {
            Standing::Boundary | Standing::Expired => Class::Boundary,
            Standing::Fresh if critical => Class::High,
            Standing::Fresh => Class::Low,
        }
    }

    /// What a group's place in the order of groups is decided by; the smallest is the most critical.
    /// `lanes`: see [`priority::lanes`].
    pub(super) fn group_score(self, config: &PriorityConfig, outlook: &Outlook, lanes: u64) -> u64 {
        match self {
            Self::Priority => priority::score(config, outlook, lanes),
            Self::GroupFcfs => group_fcfs::score(),
            Self::TrajectoryLevel | Self::ActionLevel | Self::LongestFirst | Self::GroupProbe => 0,
        }
    }

    /// The rank of the `index`-th unfinished member of a group; the smallest is the last to lose its slot and, where
    /// the queue goes by rank, the first to get one. `score`: its group's.
    pub(super) fn rank(self, outlook: &Outlook, index: usize, score: u64) -> u64 {
        match self {
            Self::Priority | Self::GroupFcfs => score,
            Self::LongestFirst => longest_first::rank(outlook.members[index].remaining),
            Self::GroupProbe => group_probe::rank(outlook, index),
            Self::TrajectoryLevel | Self::ActionLevel => 0,
        }
    }
}

pub(super) use priority::lanes;

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A policy name that is not one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown policy `{0}`: use one of {names}", names = Policy::ALL.map(|policy| format!("`{policy}`")).join(", "))]
pub struct UnknownPolicy(String);

impl FromStr for Policy {
    type Err = UnknownPolicy;

    fn from_str(name: &str) -> Result<Self, UnknownPolicy> {
        Self::ALL.into_iter().find(|policy| policy.name() == name).ok_or_else(|| UnknownPolicy(name.to_owned()))
    }
}
