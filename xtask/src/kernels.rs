//! The kernel's programs under Debian's other kernels, in emulated machines: what one verifier
//! takes, another may not.

use std::path::Path;

use crate::machine::{self, Machine};
use crate::test::Outcome;

/// Series of Debian 12 and of its backports.
const SERIES: [&str; 2] = ["6.1", "6.12"];

/// Runs the tests of `crates/remote/src/kernel` in each.
pub(crate) fn check(root: &Path) -> Result<Outcome, String> {
    let program = machine::build(root, "tidegate-remote", &["--lib"])?;
    let mut bad = Vec::new();
    for series in SERIES {
        println!("== Linux {series}");
        let machine = Machine {
            series,
            options: &[],
            with: None,
            variables: &[],
            label: "",
            limit: None,
            program: &program,
            arguments: &["kernel::", "--test-threads=1", "--show-output"],
        };
        match machine::run(root, &machine)? {
            Outcome::Good => {}
            Outcome::Bad(what) if what.is_empty() => bad.push(format!("Linux {series}")),
            Outcome::Bad(what) => bad.extend(what),
            Outcome::Skipped(why) => return Ok(Outcome::Skipped(why)),
        }
    }
    Ok(match bad.is_empty() {
        true => Outcome::Good,
        false => Outcome::Bad(bad),
    })
}
