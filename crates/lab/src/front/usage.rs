//! CPU time of a process group, and the time that it waited for a CPU, from the scheduler's own account
//! (`/proc/PID/task/TID/schedstat`, nanoseconds); its memory. Threads that have ended are not in it: front-ends
//! keep theirs.

use std::fs;
use std::path::Path;
use std::time::Duration;

/// Place of the process group in `/proc/PID/stat`, after the command's name.
const GROUP_FIELD: usize = 2;

/// Places in `schedstat`.
const RAN: usize = 0;
const WAITED: usize = 1;

/// CPU time so far of all processes of this group.
pub(super) fn group_cpu_time(group: u32) -> Duration {
    time(group, RAN)
}

/// Time so far that their threads wanted a CPU and had none, added up.
pub(super) fn group_waited(group: u32) -> Duration {
    time(group, WAITED)
}

fn time(group: u32, which: usize) -> Duration {
    let ids = self::group(group).into_iter();
    ids.map(|id| of_process(Path::new(&format!("/proc/{id}")), which))
        .sum()
}

/// Memory that all processes of this group have resident, added up, in bytes (`VmRSS` of `/proc/PID/status`).
pub(super) fn group_resident(group: u32) -> u64 {
    self::group(group).into_iter().filter_map(resident).sum()
}

fn resident(id: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let line = status.lines().find_map(|it| it.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.split_ascii_whitespace().next()?.parse().ok()?;
    Some(kib << 10)
}

/// The processes of this group.
pub(super) fn group(group: u32) -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.filter(|id| group_of(*id) == Some(group)).collect()
}

/// The group that a process is in, if it is still there.
fn group_of(id: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    fields
        .split_ascii_whitespace()
        .nth(GROUP_FIELD)?
        .parse()
        .ok()
}

fn of_process(process: &Path, which: usize) -> Duration {
    let Ok(threads) = fs::read_dir(process.join("task")) else {
        return Duration::ZERO;
    };
    let nanos = threads.flatten().filter_map(|thread| {
        let stat = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        let mut words = stat.split_ascii_whitespace();
        words.nth(which)?.parse::<u64>().ok()
    });
    Duration::from_nanos(nanos.sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_group_has_used_some_time() {
        let own = group_of(std::process::id()).unwrap();
        assert!(group(own).contains(&std::process::id()));
        assert!(group_cpu_time(own) > Duration::ZERO);
        assert_eq!(group_cpu_time(u32::MAX), Duration::ZERO);
        assert_eq!(group_waited(u32::MAX), Duration::ZERO);
        assert!(group_resident(own) > 1 << 16);
        assert_eq!(group_resident(u32::MAX), 0);
    }
}
