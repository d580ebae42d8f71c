//! Has a front-end replaced by a new process, which ends with the test.

use std::path::Path;

use super::{FrontEnd, signal, tidegate};

/// A process that has taken over.
pub(crate) struct Successor(u32);

impl Drop for Successor {
    fn drop(&mut self) {
        // The test may have ended it.
        if Path::new(&format!("/proc/{}", self.0)).exists() {
            signal(self.0, "KILL");
        }
    }
}

/// Carries out `tidegate upgrade`, and waits until the former process has ended.
#[track_caller]
pub(crate) fn upgrade(front_end: &mut FrontEnd) -> Successor {
    let successor = begin_upgrade(front_end);
    assert_eq!(front_end.process.wait(), Some(0));
    successor
}

/// Carries out `tidegate upgrade`. The former process ends its requests by itself.
#[track_caller]
pub(crate) fn begin_upgrade(front_end: &FrontEnd) -> Successor {
    let admin = front_end.admin.to_string();
    let mut command = tidegate();
    let done = command.args(["upgrade", "--admin", &admin]).output();
    let done = done.unwrap();
    assert!(done.status.success(), "{done:?}");
    let said = String::from_utf8(done.stdout).unwrap();
    let process = said.split_whitespace().find_map(|word| {
        let digits = word.trim_matches(|it: char| !it.is_ascii_digit());
        digits.parse().ok()
    });
    Successor(process.unwrap_or_else(|| panic!("no process in {said}")))
}
