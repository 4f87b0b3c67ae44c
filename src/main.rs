//! The program: parse and run.

use std::process::ExitCode;

/// Most of what a request allocates is small and soon freed: in a profile of intents and outcomes
/// about a seventh of the service's time went into the system's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    actonce::cli::main()
}
