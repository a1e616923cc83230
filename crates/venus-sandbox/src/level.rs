//! How strongly a host lets sandboxes be isolated.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The isolation a node gives its sandboxes. Ordered: a greater level isolates more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Landlock, seccomp and rlimits in a private directory; no namespaces. Absolute paths name the host's files, which
    /// can be read where harmless but not changed; the private root's path is in `VENUS_ROOT`.
    Confined,
    /// Own user, mount, pid, network, uts and ipc namespaces made without privilege. Limits as far as the host delegates them.
    UserNs,
    /// The same namespaces made by root: a range of ids mapped to unused host ids, and cgroup limits.
    Root,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Confined => "confined",
            Self::UserNs => "userns",
            Self::Root => "root",
        })
    }
}

/// A limit or a wall that this host does not let the node set, and what that costs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingLimit {
    /// What is missing, e.g. `memory limit`.
    pub name: String,
    /// Why, and what is done instead.
    pub detail: String,
}

impl MissingLimit {
    pub(crate) fn new(name: &str, detail: impl Into<String>) -> Self {
        Self { name: name.to_owned(), detail: detail.into() }
    }
}
