//! The transport over RDMA with real verbs and without a card: the conformance suite and the tests of faults, in an
//! emulated machine whose kernel plays the card.

use std::path::Path;

use crate::machine::{self, Machine};
use crate::test::Outcome;

/// Of Debian 12: later ones carry RDMA out in a queue of work, where it starves.
const SERIES: &str = "6.1";

/// Runs every test of `crates/remote/tests/conformance.rs` that has to do with RDMA.
pub(crate) fn check(root: &Path) -> Result<Outcome, String> {
    let program = machine::build(root, &["--test", "conformance"])?;
    let machine = Machine {
        series: SERIES,
        options: &["--rdma"],
        program: &program,
        arguments: &["rdma", "--test-threads=1", "--show-output"],
    };
    machine::run(root, &machine)
}
