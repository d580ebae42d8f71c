//! The `tidegate` command.

use std::process::ExitCode;

/// Many small, short-lived allocations of many threads: measurably cheaper than the system's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    tidegate::main()
}
