//! What a sandbox's root file system starts as.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use venus_core::message::sandbox::{SandboxError, SandboxErrorKind};

/// The lowest layer of the root.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Base {
    /// The host's programs and libraries (`/usr` and what belongs to it), a minimal made-up `/etc`, and nothing else of the host.
    #[default]
    HostUserland,
    /// An unpacked root file system. Needs namespaces.
    Directory(PathBuf),
}

/// A root file system to start sandboxes from. Layers are shared read-only between siblings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Template {
    /// Its name.
    pub name: String,
    /// The lowest layer.
    pub base: Base,
    /// Directories laid over the root, lowest first. They must not change while sandboxes use them.
    pub layers: Vec<PathBuf>,
    /// Working directory of commands, absolute; made if it does not exist.
    pub workdir: String,
    /// Environment of commands, over the node's small default one.
    pub env: BTreeMap<String, String>,
}

impl Template {
    /// The host userland with nothing on top, working in `/work`.
    #[must_use]
    pub fn host(name: &str) -> Self {
        Self { name: name.to_owned(), workdir: "/work".to_owned(), ..Self::default() }
    }

    pub(crate) fn validate(&self) -> Result<(), SandboxError> {
        let invalid = |message: String| Err(SandboxError { kind: SandboxErrorKind::Invalid, message });
        if !self.workdir.starts_with('/') || self.workdir.contains('\0') {
            return invalid(format!("template {}: workdir {:?} must be an absolute path", self.name, self.workdir));
        }
        let base = match &self.base {
            Base::HostUserland => None,
            Base::Directory(path) => Some(path),
        };
        for path in self.layers.iter().chain(base) {
            if !path.is_absolute() || !path.is_dir() {
                return invalid(format!(
                    "template {}: layer {} must be an absolute path of an existing directory",
                    self.name,
                    path.display()
                ));
            }
        }
        Ok(())
    }
}
