//! The coordinator's scheduler: which groups start, which turns get a slot, what is handed to the trainer.
//!
//! `Scheduler::on` is the only way in. The shell feeds it facts ([`Event`]) and carries out what it decides
//! ([`Action`]); it never asks the scheduler to do something.

pub mod event;

pub use event::{Action, DiscardReason, Event};
