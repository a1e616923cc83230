//! The coordinator: tasks, agent loops, group ledger and the record.

pub mod task;
