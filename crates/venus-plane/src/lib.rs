//! The coordinator: tasks, agent loops, group ledger and the record.
