//! The `venus` command: reads the command line and the configuration, puts the parts together, shows what they do.
//!
//! Nothing is decided here. What a run does is decided in `venus-core`, carried out by the other crates; this crate
//! turns a command line into their options ([`config`]), their figures into lines ([`progress`]), files ([`run`]) and
//! a page ([`report`]), and their errors into advice ([`failure`]).

pub mod cli;
pub mod config;
pub mod convert;
pub mod doctor;
pub mod embedded;
pub mod export;
pub mod failure;
pub mod machine;
pub mod model;
pub mod predict;
pub mod progress;
pub mod report;
pub mod run;
pub mod tasks;
pub mod train;
pub mod warmup;

pub use cli::main;
