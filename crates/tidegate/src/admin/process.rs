//! The process itself in the metrics, under the names that every dashboard of Prometheus knows.
//!
//! What `/proc` does not tell is left out.

use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Resource, getrlimit};

use crate::exposition::{Kind, Text};

/// What the kernel says of a process in its `stat` (proc(5)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    /// User and system time, ticks.
    cpu: u64,
    threads: u64,
    /// Since the boot, ticks.
    started: u64,
    virtual_bytes: u64,
    resident_pages: u64,
}

impl Stat {
    fn parse(text: &str) -> Option<Self> {
        // The name in front may hold blanks and brackets.
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<_> = rest.split_ascii_whitespace().collect();
        // The first of them is the third of proc(5).
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        Some(Self {
            cpu: field(14)? + field(15)?,
            threads: field(20)?,
            started: field(22)?,
            virtual_bytes: field(23)?,
            resident_pages: field(24)?,
        })
    }
}

/// Unix seconds of the boot, from `/proc/stat`.
fn boot_time(text: &str) -> Option<u64> {
    let mut lines = text.lines();
    lines.find_map(|line| line.strip_prefix("btime ")?.trim().parse().ok())
}

fn open_files() -> Option<u64> {
    let folder = "/proc/self/fd";
    match std::fs::metadata(folder).ok()?.len() {
        // Before Linux 6.2 they must be counted; the one that reads the folder is not ours.
        0 => Some((std::fs::read_dir(folder).ok()?.count() as u64).saturating_sub(1)),
        open => Some(open),
    }
}

/// Adds the metrics of this process.
pub(super) fn metrics(text: &mut Text) {
    let read = |path| std::fs::read_to_string(path).ok();
    let ticks = clock_ticks_per_second() as f64;
    let mut add = |name, kind, help, value: Option<f64>| {
        if let Some(value) = value {
            text.family(name, kind, help).sample(&[], value);
        }
    };
    if let Some(stat) = read("/proc/self/stat").and_then(|text| Stat::parse(&text)) {
        let help = "User and system CPU time of the process.";
        let cpu = stat.cpu as f64 / ticks;
        add("process_cpu_seconds", Kind::Counter, help, Some(cpu));
        let booted = read("/proc/stat").and_then(|text| boot_time(&text));
        let started = booted.map(|booted| booted as f64 + stat.started as f64 / ticks);
        let help = "Start of the process, in Unix seconds.";
        add("process_start_time_seconds", Kind::Gauge, help, started);
        let resident = stat.resident_pages as f64 * page_size() as f64;
        let help = "Resident memory.";
        add(
            "process_resident_memory_bytes",
            Kind::Gauge,
            help,
            Some(resident),
        );
        let help = "Virtual memory.";
        let virtual_bytes = Some(stat.virtual_bytes as f64);
        add(
            "process_virtual_memory_bytes",
            Kind::Gauge,
            help,
            virtual_bytes,
        );
        let threads = Some(stat.threads as f64);
        add(
            "process_threads",
            Kind::Gauge,
            "Threads of the process.",
            threads,
        );
    }
    let open = open_files().map(|open| open as f64);
    add(
        "process_open_fds",
        Kind::Gauge,
        "Open file descriptors.",
        open,
    );
    let most = getrlimit(Resource::Nofile).current;
    let help = "Most file descriptors that may be open.";
    let most = most.map_or(f64::INFINITY, |most| most as f64);
    add("process_max_fds", Kind::Gauge, help, Some(most));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_blanks_and_brackets_moves_no_field() {
        let text = "7 (a ) b) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 9 0 12345 \
                    1048576 256 18446744073709551615 1 1 0";
        let expected = Stat {
            cpu: 300,
            threads: 9,
            started: 12_345,
            virtual_bytes: 1_048_576,
            resident_pages: 256,
        };
        assert_eq!(Stat::parse(text), Some(expected));
        assert_eq!(Stat::parse("7 (a) S 1"), None);
        assert_eq!(
            boot_time("cpu 1 2\nbtime 1700000000\n"),
            Some(1_700_000_000)
        );
    }

    #[test]
    fn this_process_has_a_stat() {
        let text = std::fs::read_to_string("/proc/self/stat").unwrap();
        let stat = Stat::parse(&text).unwrap();
        assert!(stat.threads > 0 && stat.resident_pages > 0 && stat.started > 0);
        assert!(open_files().is_some_and(|open| open >= 3));
    }
}
