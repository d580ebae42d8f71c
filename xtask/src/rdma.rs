//! The transport over RDMA with real verbs and without a card, in an emulated machine whose kernel plays the card: the
//! conformance suite, the tests of faults, and agent, front-end and doctor as processes. With two such machines, the processes of
//! both and the cable between.

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
        variables: &[],
        label: "",
        limit: Some(LIMIT),
        program,
        arguments: &arguments,
    };
    machine::run(root, &machine)
}

/// Where the two machines are: addresses that are for trials between networks.
const NODE: &str = "198.18.0.1";
const FRONT_END: &str = "198.18.0.2";

/// Runs the two tests of `crates/tidegate/tests/rdma_pair.rs`, each in a machine of its own, with a cable between.
pub(crate) fn pair(root: &Path) -> Result<Outcome, String> {
    let program = machine::build(root, "tidegate", &["--test", "rdma_pair"])?;
    let product = product(&program)?;
    let cable = std::env::temp_dir().join(format!("tidegate-pair-{}", std::process::id()));
    std::fs::create_dir(&cable).map_err(|error| format!("{}: {error}", cable.display()))?;
    let end = |name: &str| cable.join(name).display().to_string();
    let (node, front_end) = (end("node"), end("front-end"));
    let run = |label, test, cable: [&str; 3]| {
        let options = ["--rdma", "--cable", cable[0], cable[1], cable[2]];
        let machine = Machine {
            series: SERIES,
            options: &options,
            with: Some(&product),
            variables: &[
                ("TIDEGATE_PAIR_NODE", NODE),
                ("TIDEGATE_PAIR_INTERFACE", "eth0"),
            ],
            label,
            limit: Some(LIMIT),
            program: &program,
            arguments: &[test, "--test-threads=1", "--show-output"],
        };
        machine::run(root, &machine)
    };
    let done = std::thread::scope(|scope| {
        let there = scope.spawn(|| run("node: ", "a_node_for", [NODE, &node, &front_end]));
        let here = run("front-end: ", "loads_are", [FRONT_END, &front_end, &node]);
        let there = there.join().map_err(|_| "the node's thread panicked")?;
        Ok(here?.and(there?))
    });
    std::fs::remove_dir_all(&cable).ok();
    done
}

/// The binary that was built for this test program, which starts it.
fn product(test: &Path) -> Result<PathBuf, String> {
    let profile = test.parent().and_then(Path::parent);
    let product = profile.map(|folder| folder.join("tidegate"));
    product.ok_or_else(|| format!("{} is in no folder of a profile", test.display()))
}
