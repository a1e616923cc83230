//! What a log says about groups, counted without the help of whoever wrote it.

use super::Entry;
use super::resume::Commits;
use std::collections::BTreeSet;
use venus_core::ids::GroupId;

/// The groups of a run according to its log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Audit {
    /// Opened, neither trained nor dropped.
    pub pending: BTreeSet<GroupId>,
    /// Trained into the present weights.
    pub trained: BTreeSet<GroupId>,
    /// Trained into them more than once. Must be empty.
    pub doubled: BTreeSet<GroupId>,
    /// Given up.
    pub dropped: BTreeSet<GroupId>,
}

impl Audit {
    /// Reads the entries of a log.
    #[must_use]
    pub fn of(entries: impl IntoIterator<Item = Entry>) -> Self {
        let mut audit = Self::default();
        let mut commits = Commits::default();
        for entry in entries {
            match entry {
                Entry::GroupOpened { group, .. } => drop(audit.pending.insert(group)),
                Entry::GroupDropped { group, .. } => drop(audit.dropped.insert(group)),
                Entry::RunResumed { version } => commits.undo_after(version),
                Entry::StepCommitted { groups, version, .. } => commits.0.entry(version).or_default().extend(groups),
                _ => {}
            }
        }
        for group in commits.0.into_values().flatten() {
            if !audit.trained.insert(group) {
                audit.doubled.insert(group);
            }
        }
        let ended: BTreeSet<_> = audit.trained.union(&audit.dropped).copied().collect();
        audit.pending.retain(|group| !ended.contains(group));
        audit
    }
}
