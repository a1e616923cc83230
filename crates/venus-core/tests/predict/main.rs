//! The predictors as their users meet them: trails in, predictions out.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod behaviour;
mod property;
mod world;
