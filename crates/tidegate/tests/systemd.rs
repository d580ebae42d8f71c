//! The units of `contrib/systemd` under a real systemd, and an agent whose hook has systemd reload nginx, in namespaces of their own:
//! `scripts/systemd.sh` has the steps.

#![allow(clippy::print_stdout, reason = "a test that cannot run says why")]

use std::path::Path;
use std::process::Command;

/// How the script says that no systemd can run here.
const CANNOT: i32 = 77;

#[test]
fn the_units_do_what_they_say_under_systemd() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/systemd.sh");
    let mut command = Command::new(script);
    let output = command.arg(env!("CARGO_BIN_EXE_tidegate")).output();
    let output = output.unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(CANNOT) {
        println!("SKIPPED: {}", said.trim());
        return;
    }
    let steps = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{steps}{said}");
    if steps.ends_with("systemd: no hooks: nginx is not installed\n") {
        println!("SKIPPED: nginx is not installed: no hooks");
        return;
    }
    assert!(
        steps.ends_with("nginx refuses the file, and serves on as before\n"),
        "{steps}"
    );
}
