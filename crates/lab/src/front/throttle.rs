//! What an operator does at a running Tidegate: throttles classes by its command line, and looks at its
//! report of culprits.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::cluster::{Place, tidegate};

use super::TidegateArm;
use super::ready::get;

/// Where the report of culprits is.
const REPORT: &str = "/api/culprits";
/// What is read of it.
const REPORT_MAX: u64 = 16 << 20;

/// Whether this program can do what the arm wants, or why not.
pub(super) fn possible(program: &Path, arm: &TidegateArm) -> Result<(), String> {
    if arm.throttles.is_empty() {
        return Ok(());
    }
    let mut command = Command::new(program);
    command.args(["throttle", "--help"]).stdin(Stdio::null());
    let told = command.output().map_err(|error| error.to_string())?;
    match told.status.success() {
        true => Ok(()),
        false => Err("this tidegate has no command `throttle`".into()),
    }
}

/// Throttles the arm's classes.
pub(super) fn order(place: &Place, admin: SocketAddr, arm: &TidegateArm) -> Result<(), String> {
    for throttle in &arm.throttles {
        let program = tidegate().map_err(|error| error.to_string())?;
        let mut command = place.command(program);
        let at_once = throttle.concurrency.to_string();
        command.args(["throttle", throttle.class, "--concurrency", &at_once]);
        command.args(["--admin", &admin.to_string()]);
        let told = command.stdin(Stdio::null()).output();
        let told = told.map_err(|error| error.to_string())?;
        if !told.status.success() {
            let why = String::from_utf8_lossy(&told.stderr).trim().to_owned();
            return Err(format!("{} is not throttled: {why}", throttle.class));
        }
    }
    Ok(())
}

/// The report of culprits of a Tidegate with this admin interface, asked from this place; why there is none.
///
/// # Errors
/// As a sentence.
pub fn report(place: &Place, admin: SocketAddr) -> Result<Value, String> {
    let asked = place.inside(|| get(admin, REPORT, REPORT_MAX));
    let answer = asked
        .map_err(|error| error.to_string())?
        .map_err(|error| error.to_string())?;
    let Some((head, body)) = answer.split_once("\r\n\r\n") else {
        return Err(format!("{REPORT}: the answer has no end"));
    };
    let line = head.lines().next().unwrap_or_default();
    if line.split(' ').nth(1) != Some("200") {
        return Err(format!("{REPORT}: it answers `{line}`"));
    }
    serde_json::from_str(body).map_err(|error| format!("{REPORT}: {error}"))
}
