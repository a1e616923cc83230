//! The env node: templates, runtimes, exec and files of the sandboxes in which tools run.
//!
//! An [`EnvNode`] keeps one small single-threaded helper process, the *launcher*, so that creating a sandbox never forks
//! the process that holds the model. The launcher clones one *init* a sandbox, which builds the private root, gives up
//! every privilege and then starts commands, opens files and reaps. The node talks to each init over its own socket;
//! command output flows through a pipe straight to the node.
//!
//! ```text
//!   node (tokio) --socket--> launcher --clone3--> init of s1 --> commands
//!        \------------------socket---------------/   (one socket a sandbox, one pipe a command)
//! ```
//!
//! Everything dies with its parent: an init whose launcher or node goes away ends, and a pid namespace ends with its init.
//!
//! A program that uses this crate calls [`launcher::run_if_requested`] first thing in `main`, because the launcher is
//! the same executable started again.

mod cgroup;
mod command;
mod confine;
mod init;
pub mod launcher;
mod level;
mod link;
mod node;
mod output;
mod probe;
mod protocol;
mod rootfs;
mod sandbox;
mod sys;
mod template;
mod wire;

pub use level::{Level, MissingLimit};
pub use node::{EnvNode, NodeOptions, NodeStats};
pub use probe::{Check, Probe};
pub use sandbox::Sandbox;
pub use template::{Base, Template};
pub use venus_core::message::sandbox::{
    CreateSandbox, Exec, ExecResult, ExecStatus, Limits, SandboxError, SandboxErrorKind,
};
