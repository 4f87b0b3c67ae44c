//! The program: parse and run.

use std::process::ExitCode;

fn main() -> ExitCode {
    actonce::cli::main()
}
