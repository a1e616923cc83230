//! Identities. All are handed in from outside or counted up by a state machine; none is random.

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty), $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

id!(
    /// A group: the K trajectories of one prompt, handed to the trainer whole.
    GroupId(u64), "g"
);
id!(
    /// A trajectory, unique in the run. A trajectory that is restarted keeps its id; its attempts differ.
    TrajectoryId(u64), "t"
);
id!(
    /// A prompt: what the groups of one task have in common, in every epoch.
    PromptId(u64), "p"
);
id!(
    /// One try at one turn. An answer that names an attempt which is no longer current is dropped.
    AttemptId(u64), "a"
);
id!(
    /// An inference engine that generates turns.
    WorkerId(u32), "w"
);
id!(
    /// A sandbox on some env node.
    SandboxId(u64), "s"
);
id!(
    /// A batch of B complete groups, delivered to the trainer once.
    BatchId(u64), "b"
);
id!(
    /// A weight version: the number of trainer updates applied (paper section 2, "weight version").
    Version(u64), "v"
);

/// A token of the model's vocabulary.
pub type TokenId = u32;
