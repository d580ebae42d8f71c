//! The transport over RDMA with real verbs and without a card, in an emulated machine whose kernel plays the card: the
//! conformance suite, the tests of faults, and agent, front-end and doctor as processes.

use std::path::{Path, PathBuf};

use crate::machine::{self, Machine};
use crate::test::Outcome;

/// Of Debian 12: later ones carry RDMA out in a queue of work, where it starves.
const SERIES: &str = "6.1";
/// Seconds that each part may take, far more than it does.
const LIMIT: u32 = 900;

/// Runs every test of `crates/remote/tests/conformance.rs` that has to do with RDMA, and those of
/// `crates/node/tests/rdma.rs` and `crates/tidegate/tests/rdma.rs`.
pub(crate) fn check(root: &Path) -> Result<Outcome, String> {
    let verbs = machine::build(root, "tidegate-remote", &["--test", "conformance"])?;
    let outcome = run(root, None, &verbs, &["rdma"])?;
    if matches!(outcome, Outcome::Skipped(_)) {
        return Ok(outcome);
    }
    let agent = machine::build(root, "tidegate-node", &["--test", "rdma"])?;
    let outcome = outcome.and(run(root, None, &agent, &[])?);
    let processes = machine::build(root, "tidegate", &["--test", "rdma"])?;
    let product = product(&processes)?;
    Ok(outcome.and(run(root, Some(&product), &processes, &[])?))
}

/// Runs the tests of a program with this in their names.
fn run(
    root: &Path,
    with: Option<&Path>,
    program: &Path,
    names: &[&str],
) -> Result<Outcome, String> {
    let arguments = [names, &["--test-threads=1", "--show-output"]].concat();
    let machine = Machine {
        series: SERIES,
        options: &["--rdma"],
        with,
        limit: Some(LIMIT),
        program,
        arguments: &arguments,
    };
    machine::run(root, &machine)
}

/// The binary that was built for this test program, which starts it.
fn product(test: &Path) -> Result<PathBuf, String> {
    let profile = test.parent().and_then(Path::parent);
    let product = profile.map(|folder| folder.join("tidegate"));
    product.ok_or_else(|| format!("{} is in no folder of a profile", test.display()))
}
