//! CPU time of a process group, from the scheduler's own account (`/proc/PID/task/TID/schedstat`,
//! nanoseconds). Threads that have ended are not in it: front-ends keep theirs.

use std::fs;
use std::path::Path;
use std::time::Duration;

/// Place of the process group in `/proc/PID/stat`, after the command's name.
const GROUP_FIELD: usize = 2;

/// CPU time so far of all processes of this group.
pub(super) fn group_cpu_time(group: u32) -> Duration {
    let paths = self::group(group)
        .into_iter()
        .map(|id| format!("/proc/{id}"));
    paths.map(|process| cpu_time(Path::new(&process))).sum()
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

fn cpu_time(process: &Path) -> Duration {
    let Ok(threads) = fs::read_dir(process.join("task")) else {
        return Duration::ZERO;
    };
    let nanos = threads.flatten().filter_map(|thread| {
        let stat = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        stat.split_ascii_whitespace().next()?.parse::<u64>().ok()
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
    }
}
