//! The `venus` command line.

use std::process::ExitCode;

fn main() -> ExitCode {
    venus::main()
}
