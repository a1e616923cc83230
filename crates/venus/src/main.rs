//! The `venus` command line.

use std::process::ExitCode;

fn main() -> ExitCode {
    // The launcher of the sandboxes is this executable started again: nothing may come before.
    venus_sandbox::launcher::run_if_requested();
    venus::main()
}
