//! The coordinator: tasks, agent loops, group ledger and the record.
//!
//! | module | holds |
//! |---|---|
//! | [`task`] | what an agent is asked to do and how it is graded |
//! | [`stream`] | which group gets which task |
//! | [`agent`] | one trajectory: prompt, turns, tools |
//! | [`grading`] | from a sandbox to a reward |
//! | [`coordinator`] | many trajectories: groups, batches, versions, evaluation |
//! | [`ledger`] | each complete group to the trainer, once |
//! | [`record`] | the log a killed run goes on from |
//! | [`export`], [`atif`] | finished trajectories for programs and for people |
//! | [`report`] | what a run says about itself |
//! | [`engine`], [`sandbox`], [`trainer`], [`tokenize`], [`stop`] | the doors to the rest of the world |

pub mod agent;
pub mod atif;
pub mod coordinator;
pub mod engine;
pub mod export;
pub mod grading;
pub mod ledger;
pub mod record;
pub mod report;
pub mod sandbox;
pub mod stop;
pub mod stream;
pub mod task;
pub mod tokenize;
pub mod trainer;
