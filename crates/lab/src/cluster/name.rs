//! Whose leftovers are whose: the names of everything that the lab makes on a machine.
//!
//! ```text
//! tglab-PID-BIRTH-SERIAL-WHAT     tglab-4711-1c9f2-0-front
//! ```
//!
//! PID and BIRTH (start time in clock ticks since boot, hexadecimal) tell the process that made
//! it, also after its number has gone to another process; SERIAL tells its clusters apart.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};

use super::ClusterError;

/// What every name begins with.
const PREFIX: &str = "tglab-";
/// Place of the state and of the start time in `/proc/PID/stat`, after the command's name.
const STATE_FIELD: usize = 0;
const BIRTH_FIELD: usize = 19;

/// Clusters that this process has made.
static SERIAL: AtomicU32 = AtomicU32::new(0);

/// The process that made something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner {
    /// Its number.
    pub pid: u32,
    birth: u64,
}

impl Owner {
    /// This process.
    pub(crate) fn this() -> Result<Self, ClusterError> {
        let pid = std::process::id();
        Self::running(pid).ok_or_else(|| {
            ClusterError::Missing(format!("/proc/{pid}/stat does not tell when it started"))
        })
    }

    /// The process of this number, if it runs.
    pub(crate) fn running(pid: u32) -> Option<Self> {
        birth(pid).map(|birth| Self { pid, birth })
    }

    /// The process that made something of this name, if it is one of ours.
    pub(crate) fn of(name: &str) -> Option<Self> {
        let mut parts = name.strip_prefix(PREFIX)?.splitn(3, '-');
        let pid = parts.next()?.parse().ok()?;
        let birth = u64::from_str_radix(parts.next()?, 16).ok()?;
        parts.next()?;
        Some(Self { pid, birth })
    }

    /// Whether that very process still runs.
    pub(crate) fn lives(self) -> bool {
        birth(self.pid) == Some(self.birth)
    }

    /// The beginning of all names of a new cluster of this owner.
    pub(crate) fn next(self) -> Stem {
        Stem(format!("{self}{}-", SERIAL.fetch_add(1, Ordering::Relaxed)))
    }
}

/// The beginning of all names of this owner.
impl fmt::Display for Owner {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{PREFIX}{}-{:x}-", self.pid, self.birth)
    }
}

/// The beginning of all names of one cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stem(String);

impl Stem {
    pub(crate) fn name(&self, what: &str) -> String {
        format!("{}{what}", self.0)
    }

    pub(crate) fn text(&self) -> &str {
        &self.0
    }
}

/// When the process started, if it runs; one that has ended and is not yet waited for does not.
fn birth(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    born(&stat)
}

fn born(stat: &str) -> Option<u64> {
    // The command's name may hold anything, also brackets and blanks.
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<_> = rest.split_ascii_whitespace().collect();
    if matches!(*fields.get(STATE_FIELD)?, "Z" | "X") {
        return None;
    }
    fields.get(BIRTH_FIELD)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_tells_its_owner() {
        let this = Owner::this().unwrap();
        assert!(this.lives());
        let (first, second) = (this.next(), this.next());
        assert_ne!(first, second);
        assert_eq!(Owner::of(&first.name("front")), Some(this));
        assert!(first.name("n1").starts_with(first.text()));
    }

    #[test]
    fn other_names_are_nobodys() {
        for name in [
            "",
            "tglab",
            "tglab-1",
            "tglab-1-2",
            "tglab-x-2-0-a",
            "tglab-1-zz-0-a",
            "x-1-2-0-a",
        ] {
            assert_eq!(Owner::of(name), None, "{name}");
        }
    }

    #[test]
    fn a_number_that_went_to_another_process_is_another_owner() {
        let this = Owner::this().unwrap();
        let former = Owner {
            birth: this.birth - 1,
            ..this
        };
        assert!(!former.lives());
    }

    #[test]
    fn the_start_time_is_found_behind_any_command_name() {
        let tail = "S 1 1 1 0 -1 4 1 0 0 0 0 0 0 0 20 0 1 0 777 0";
        assert_eq!(born(&format!("5 (a) b (c)) {tail}")), Some(777));
        assert_eq!(born(&format!("5 (z) {}", tail.replacen('S', "Z", 1))), None);
        assert_eq!(born("5 (x"), None);
    }
}
