//! Seer's context-aware scheduling (arXiv 2511.14617): siblings tell how long a group is.
//!
//! As published: one probe per group runs ahead, probes in the order shortest first; a group is taken to be as long as
//! the longest of its finished members, and as long as can be while none is finished; then the longest group goes first.
//! It needs no predictor.
//!
//! Where we differ: Seer divides a generation into chunks and lets a slot change hands between two of them; the turns of
//! an agent are such chunks, so nothing that runs is preempted. Its occasional service of starved groups is not
//! quantified; here a group is served first once it is as old as the staleness boundary. Not here: the global KV pool
//! and speculative decoding from siblings, which are not decisions about slots.

use crate::schedule::outlook::Outlook;

/// Ranks of groups begin here; those of probes are below.
const GROUPS: u64 = 1 << 62;

/// Starved groups, then probes by what they have drawn, then the other members by the length of their group.
pub fn rank(outlook: &Outlook, index: usize) -> u64 {
    let member = &outlook.members[index];
    match outlook.longest_finished {
        _ if outlook.due => 0,
        None if member.leads => member.drawn.clamp(1, GROUPS - 1),
        None => GROUPS,
        Some(length) => GROUPS + (GROUPS - length.min(GROUPS)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::outlook::Prospect;

    fn ranked(due: bool, longest_finished: Option<u64>, leads: bool, drawn: u64) -> u64 {
        let members = vec![Prospect { leads, drawn, ..Prospect::default() }];
        rank(&Outlook { due, longest_finished, members, ..Outlook::default() }, 0)
    }

    #[test]
    fn starved_groups_then_probes_shortest_first_then_groups_longest_first() {
        let order = [
            ranked(true, Some(5), false, 900),
            ranked(false, None, true, 10),
            ranked(false, None, true, 20),
            ranked(false, None, false, 0),
            ranked(false, Some(800), false, 0),
            ranked(false, Some(90), true, 0),
        ];
        assert!(order.is_sorted_by(|a, b| a < b), "{order:?}");
    }
}
