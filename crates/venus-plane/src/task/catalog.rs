//! What tasks there are.

use super::family::Family;

/// One family of tasks, for a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogEntry {
    /// What to write in the configuration.
    pub name: &'static str,
    /// One line.
    pub summary: &'static str,
    /// Turns a faultless agent takes, shortest and longest, the last one that says `done` included.
    pub turns: (usize, usize),
}

/// The generated families. Each has any number of tasks in both splits: three of four word combinations are trained on,
/// one of four is held out.
#[must_use]
pub fn catalog() -> Vec<CatalogEntry> {
    let entry = |family: Family| CatalogEntry { name: family.name(), summary: family.summary(), turns: family.turns() };
    Family::ALL.into_iter().map(entry).collect()
}
