//! VenusRL's priority: the groups that complete soonest are critical (paper sections 3.2 and 3.3).
//!
//! Which groups make the next batch soonest is NP-hard to say (paper, appendix B), so a score orders them. The paper
//! does not print its score; this is ours. A group whose members are served on `m` slots is done no later than
//! Graham's bound for list scheduling, `sum / m + (1 - 1/m) max`, where sum and max are over the tokens that its
//! unfinished members will still generate. Multiplied by `m`, which is the same for all groups, that is
//! `sum + (m - 1) max`:
//!
//! - Slots are the bottleneck, `m = 1`: the critical groups share fewer slots than they are, tokens come at a constant
//!   rate, and the **sum** of the work decides when the B-th is done.
//! - Slots are ample, `m = K`: all members run side by side, and the slowest, the **max**, decides. Graham's bound is
//!   not tight there, so it gives way to the max itself.
//! - Between: **mixed**, the bound as it stands.
//!
//! `m` is the slots of the cluster over B, the groups that a batch needs. It is not taken over the need of the
//! moment: then every completion would change the score of every group.

use crate::schedule::outlook::Outlook;
use serde::{Deserialize, Serialize};

/// How the remaining work of its members makes the score of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GroupScore {
    /// Sum, mixed or max, by how many slots there are for each group of a batch.
    #[default]
    Auto,
    /// The slowest member.
    Max,
    /// All work of the group.
    Sum,
    /// Graham's bound, at any number of slots.
    Mixed,
}

/// Settings of the policies that know critical groups or lengths.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PriorityConfig {
    /// How the score of a group is made ([`Policy::Priority`](super::Policy::Priority) alone).
    pub score: GroupScore,
    /// A critical group stays critical until it ranks beyond the need times this; 1 or more. The paper states none;
    /// without one, two groups of near equal score take turns at being critical.
    pub hysteresis: f64,
    /// Tokens that a trajectory is taken to have left until the predictor speaks about it, however much it has drawn.
    pub default_remaining: u64,
}

impl Default for PriorityConfig {
    fn default() -> Self {
        Self { score: GroupScore::Auto, hysteresis: 1.25, default_remaining: 1024 }
    }
}

impl PriorityConfig {
    /// The rank, counted from 1, up to which a critical group stays critical when `need` groups are needed.
    #[must_use]
    pub fn keep(&self, need: usize) -> usize {
        ((need as f64 * self.hysteresis + 1e-9).floor() as usize).max(need)
    }
}

/// Slots for each group of a batch, between 1 (the bottleneck) and the size of a group (ample).
pub fn lanes(slots: u64, groups_per_batch: usize, group_size: usize) -> u64 {
    (slots / groups_per_batch.max(1) as u64).clamp(1, group_size.max(1) as u64)
}

/// When the group will be done, in an arbitrary unit; finished members have no part in it.
pub fn score(config: &PriorityConfig, outlook: &Outlook, lanes: u64) -> u64 {
    let max = || outlook.members.iter().map(|member| member.remaining).max().unwrap_or(0);
    let sum = || outlook.members.iter().fold(0_u64, |sum, member| sum.saturating_add(member.remaining));
    let mixed = || sum().saturating_add(max().saturating_mul(lanes - 1));
    match config.score {
        GroupScore::Max => max(),
        GroupScore::Sum => sum(),
        GroupScore::Auto if lanes == outlook.group_size as u64 => max(),
        GroupScore::Auto | GroupScore::Mixed => mixed(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::outlook::Prospect;

    fn scored(score: GroupScore, slots: u64, remaining: &[u64]) -> u64 {
        let members = remaining.iter().map(|&remaining| Prospect { remaining, ..Prospect::default() }).collect();
        let outlook = Outlook { group_size: 4, members, ..Outlook::default() };
        super::score(&PriorityConfig { score, ..PriorityConfig::default() }, &outlook, lanes(slots, 2, 4))
    }

    #[test]
    fn with_slots_for_all_the_slowest_member_decides_and_with_few_the_work_of_all() {
        let (even, lopsided) = ([60, 60, 60, 60], [100, 1, 1, 1]);
        let auto = |slots| scored(GroupScore::Auto, slots, &even).cmp(&scored(GroupScore::Auto, slots, &lopsided));
        assert!(auto(8).is_lt(), "60 < 100");
        assert!(auto(2).is_gt(), "240 > 103");
        assert_eq!(scored(GroupScore::Auto, 8, &lopsided), 100);
        assert_eq!(scored(GroupScore::Auto, 0, &lopsided), 103);
        assert_eq!(scored(GroupScore::Auto, 4, &lopsided), 203, "two slots a group: sum + max");
        assert_eq!(scored(GroupScore::Mixed, 8, &lopsided), 403);
    }

    #[test]
    fn absurd_predictions_saturate() {
        for score in [GroupScore::Auto, GroupScore::Max, GroupScore::Sum, GroupScore::Mixed] {
            assert_eq!(scored(score, 4, &[u64::MAX, u64::MAX]), u64::MAX);
        }
    }

    #[test]
    fn hysteresis_is_counted_in_whole_ranks_and_never_below_the_need() {
        let keep = |need| PriorityConfig::default().keep(need);
        assert_eq!([keep(0), keep(1), keep(3), keep(4), keep(8), keep(32)], [0, 1, 3, 5, 10, 40]);
    }
}
