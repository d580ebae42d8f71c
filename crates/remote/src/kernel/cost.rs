//! What programs cost, as the kernel counts it: runs, and the CPU time that they took.

use std::collections::BTreeMap;
use std::os::fd::{FromRawFd, OwnedFd};
use std::time::Duration;

use libbpf_rs::libbpf_sys::{BPF_STATS_RUN_TIME, bpf_enable_stats};
use libbpf_rs::query::{ProgInfoIter, ProgramInfo};

use super::KernelError;

/// Runs of programs and the CPU time of them all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// How often they ran.
    pub runs: u64,
    /// For how long.
    pub time: Duration,
}

impl Cost {
    /// The same with one program more.
    pub(super) fn and(self, program: &ProgramInfo) -> Self {
        Self {
            runs: self.runs + program.run_cnt,
            time: self.time + Duration::from_nanos(program.run_time_ns),
        }
    }

    /// What was added to an earlier look.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            runs: self.runs.saturating_sub(before.runs),
            time: self.time.saturating_sub(before.time),
        }
    }

    /// Of one run.
    #[must_use]
    pub fn mean(self) -> Option<Duration> {
        let nanos = u64::try_from(self.time.as_nanos()).unwrap_or(u64::MAX);
        nanos.checked_div(self.runs).map(Duration::from_nanos)
    }
}

/// While this lives the kernel counts, which itself takes some tens of nanoseconds per run;
/// the same as setting `kernel.bpf_stats_enabled`.
#[derive(Debug)]
pub struct Costs(#[expect(dead_code, reason = "open is all that it has to be")] OwnedFd);

impl Costs {
    /// Begins to count.
    ///
    /// # Errors
    /// Without permission (`CAP_SYS_ADMIN`).
    pub fn count() -> Result<Self, KernelError> {
        // SAFETY: a call without pointers.
        let file = unsafe { bpf_enable_stats(BPF_STATS_RUN_TIME) };
        if file < 0 {
            let error = std::io::Error::from_raw_os_error(-file);
            return Err(KernelError::Refused {
                what: "count what programs cost",
                error: error.to_string(),
                permission: error.kind() == std::io::ErrorKind::PermissionDenied,
            });
        }
        // SAFETY: the kernel has just opened it for us alone.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(file) }))
    }

    /// Of all programs on this machine that have a name, by it: names are cut to fifteen characters.
    #[must_use]
    pub fn so_far(&self) -> BTreeMap<String, Cost> {
        let mut costs = BTreeMap::<String, Cost>::new();
        for program in ProgInfoIter::default() {
            let name = program.name.to_string_lossy().into_owned();
            let cost = costs.entry(name).or_default();
            *cost = cost.and(&program);
        }
        costs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_is_of_what_was_added() {
        let cost = |runs, micros| Cost {
            runs,
            time: Duration::from_micros(micros),
        };
        let added = cost(30, 70).since(cost(10, 30));
        assert_eq!(added.mean(), Some(Duration::from_micros(2)));
        assert_eq!(cost(3, 5).since(cost(3, 5)).mean(), None);
    }
}
