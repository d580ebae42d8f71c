//! The transport over RDMA with real verbs and without a card: the conformance suite and the tests of faults, in an
//! emulated machine whose kernel plays the card.

use std::path::Path;

use crate::machine::{self, Machine};
use crate::test::Outcome;

/// Of Debian 12: later ones carry RDMA out in a queue of work, where it starves.
const SERIES: &str = "6.1";

/// Runs every test of `crates/remote/tests/conformance.rs` that has to do with RDMA, and those of the agent's.
pub(crate) fn check(root: &Path) -> Result<Outcome, String> {
    let transport = machine::build(root, "tidegate-remote", &["--test", "conformance"])?;
    let agent = machine::build(root, "tidegate-node", &["--test", "rdma"])?;
    match run(root, &transport, &["rdma"])? {
        Outcome::Good => run(root, &agent, &[]),
        ended @ (Outcome::Bad(_) | Outcome::Skipped(_)) => Ok(ended),
    }
}

fn run(root: &Path, program: &Path, which: &[&str]) -> Result<Outcome, String> {
    let arguments = [which, &["--test-threads=1", "--show-output"]].concat();
    let machine = Machine {
        series: SERIES,
        options: &["--rdma"],
        program,
        arguments: &arguments,
    };
    machine::run(root, &machine)
}
