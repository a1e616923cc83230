//! The coordinator against a world of fakes: whole runs, crashes at any point, and chance.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod chance;
mod fakes;
mod resume;
mod run;
