//! Files of one process or thread.

use super::{lines, number, number32, words};

/// What a thread is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TaskState {
    /// Runs or waits to run.
    Runnable,
    /// Sleeps and cannot be woken by a signal: mostly waits for IO.
    Uninterruptible,
    /// Anything else.
    Other,
}

/// A thread's state from its `stat` file. The name in parentheses is the thread's own choice
/// and may hold anything, so that the state is what follows the last parenthesis.
pub(crate) fn state(stat: &[u8]) -> Option<TaskState> {
    let name_end = stat.iter().rposition(|byte| *byte == b')')?;
    match words(&stat[name_end + 1..]).next()? {
        b"R" => Some(TaskState::Runnable),
        b"D" => Some(TaskState::Uninterruptible),
        _ => Some(TaskState::Other),
    }
}

/// Time that a thread ran and waited for a CPU, ns, from its `schedstat` file.
pub(crate) fn run_and_wait(schedstat: &[u8]) -> Option<(u64, u64)> {
    let mut numbers = words(schedstat).map(number);
    Some((numbers.next()??, numbers.next()??))
}

/// The soft limit of open files from a process's `limits` file.
pub(crate) fn files_max(limits: &[u8]) -> Option<u32> {
    let line = lines(limits).find_map(|line| line.strip_prefix(b"Max open files"))?;
    match words(line).next()? {
        b"unlimited" => Some(u32::MAX),
        soft => number32(soft),
    }
}

/// The CPUs that a process may run on, from its `status` file.
pub(crate) fn cpus_allowed(status: &[u8]) -> Option<u32> {
    let list = lines(status).find_map(|line| line.strip_prefix(b"Cpus_allowed_list:"))?;
    super::cpu::cpu_list(list)
}

/// The process in a pid file.
pub(crate) fn pid_file(bytes: &[u8]) -> Option<u32> {
    let first = words(bytes).next()?;
    number(first)
        .and_then(|pid| u32::try_from(pid).ok())
        .filter(|pid| *pid > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_follows_the_last_parenthesis() {
        let table: &[(&[u8], Option<TaskState>)] = &[
            (b"1 (init) S 0 1", Some(TaskState::Other)),
            (b"9 (nginx) R 0 1", Some(TaskState::Runnable)),
            (b"9 (a) R) D 0 1", Some(TaskState::Uninterruptible)),
            (b"9 (a", None),
            (b"9 (a)", None),
            (b"", None),
        ];
        for (stat, expected) in table {
            assert_eq!(state(stat), *expected);
        }
    }

    #[test]
    fn schedstat_is_run_and_wait() {
        assert_eq!(
            run_and_wait(b"230135922 18087778 451\n"),
            Some((230_135_922, 18_087_778))
        );
        assert_eq!(run_and_wait(b"230135922\n"), None);
    }

    #[test]
    fn the_soft_limit_counts() {
        let limits = b"Limit                     Soft Limit           Hard Limit           Units\n\
            Max cpu time              unlimited            unlimited            seconds\n\
            Max open files            1024                 20000                files\n";
        assert_eq!(files_max(limits), Some(1024));
        assert_eq!(
            files_max(b"Max open files  unlimited unlimited files\n"),
            Some(u32::MAX)
        );
        assert_eq!(files_max(b"Max cpu time 5 5\n"), None);
    }

    #[test]
    fn allowed_cpus_are_counted() {
        let status = b"Name:\tx\nCpus_allowed:\t3\nCpus_allowed_list:\t0-1,4\n";
        assert_eq!(cpus_allowed(status), Some(3));
        assert_eq!(cpus_allowed(b"Name:\tx\n"), None);
    }

    #[test]
    fn a_pid_file_holds_one_process() {
        assert_eq!(pid_file(b"1234\n"), Some(1234));
        assert_eq!(pid_file(b"0\n"), None);
        assert_eq!(pid_file(b"\n"), None);
        assert_eq!(pid_file(b"99999999999\n"), None);
    }
}
