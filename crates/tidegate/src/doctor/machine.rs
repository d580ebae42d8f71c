//! What the system says of itself. What cannot be read is not known, and no check complains of it.

use std::path::Path;
use std::thread::available_parallelism;

use rustix::process::{Resource, geteuid, getrlimit};
use tidegate_remote::privilege::{self, CapabilitySet};

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    /// As `uname -r` prints it.
    pub(super) release: Option<String>,
    /// The kernel describes its own structures.
    pub(super) has_btf: bool,
    /// Whether programs of the kernel are compiled: 0 means that they are interpreted.
    pub(super) bpf_jit: Option<u64>,
    /// What the kernel keeps from root: `none`, `integrity` or `confidentiality`.
    pub(super) lockdown: Option<String>,
    pub(super) clock_source: Option<String>,
    pub(super) clock_sources: Vec<String>,
    pub(super) is_virtual: bool,
    /// Share of CPU time since the start of the machine that its host gave to others.
    pub(super) steal: Option<f64>,
    pub(super) cpus: usize,
    /// The user of this process.
    pub(super) user: u32,
    /// What this process may do.
    pub(super) capabilities: CapabilitySet,
    /// The highest real-time priority that needs no capability.
    pub(super) realtime_limit: u64,
    /// Most open files of this process, as far as it can raise that itself.
    pub(super) open_files: usize,
    /// Ports from this one on need no capability.
    pub(super) first_free_port: u16,
    pub(super) backlog_max: Option<u64>,
    /// Ports that connections to nodes can come from.
    pub(super) ports: Option<PortRange>,
    pub(super) tracked: Option<Tracked>,
}

/// First and last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PortRange {
    pub(super) first: u16,
    pub(super) last: u16,
}

impl PortRange {
    pub(super) fn count(self) -> usize {
        usize::from(self.last.saturating_sub(self.first)) + 1
    }
}

/// Connections that the firewall keeps track of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tracked {
    pub(super) now: u64,
    pub(super) most: u64,
}

impl Machine {
    /// This one, by its `/proc` and `/sys`.
    pub(super) fn of_system() -> Self {
        let root = Path::new("/");
        let limit = getrlimit(Resource::Nofile).maximum;
        Self {
            user: geteuid().as_raw(),
            capabilities: privilege::permitted().unwrap_or(privilege::NONE),
            realtime_limit: getrlimit(Resource::Rtprio).current.unwrap_or(u64::MAX),
            open_files: limit.map_or(usize::MAX, |limit| limit as usize),
            cpus: available_parallelism().map_or(1, usize::from),
            ..Self::below(root)
        }
    }

    /// What the files below a root say; nothing of this process.
    fn below(root: &Path) -> Self {
        let read = |path: &str| {
            let text = std::fs::read_to_string(root.join(path)).ok()?;
            Some(text.trim().to_owned())
        };
        let number = |path: &str| read(path)?.parse::<u64>().ok();
        let clock = |file: &str| {
            read(&format!(
                "sys/devices/system/clocksource/clocksource0/{file}"
            ))
        };
        let track = |file: &str| number(&format!("proc/sys/net/netfilter/nf_conntrack_{file}"));
        Self {
            release: read("proc/sys/kernel/osrelease"),
            has_btf: root.join("sys/kernel/btf/vmlinux").exists(),
            bpf_jit: number("proc/sys/net/core/bpf_jit_enable"),
            lockdown: read("sys/kernel/security/lockdown").and_then(|text| chosen(&text)),
            clock_source: clock("current_clocksource"),
            clock_sources: clock("available_clocksource").map_or(Vec::new(), |it| {
                it.split_whitespace().map(str::to_owned).collect()
            }),
            is_virtual: read("proc/cpuinfo").is_some_and(|text| is_virtual(&text)),
            steal: read("proc/stat").and_then(|text| steal(&text)),
            cpus: 1,
            user: 0,
            capabilities: privilege::NONE,
            realtime_limit: 0,
            open_files: 0,
            first_free_port: read("proc/sys/net/ipv4/ip_unprivileged_port_start")
                .and_then(|text| text.parse().ok())
                .unwrap_or(1024),
            backlog_max: number("proc/sys/net/core/somaxconn"),
            ports: read("proc/sys/net/ipv4/ip_local_port_range").and_then(|text| ports(&text)),
            tracked: track("count")
                .zip(track("max"))
                .map(|(now, most)| Tracked { now, most }),
        }
    }

    /// Whether this process may do all of this.
    pub(super) fn may(&self, wanted: CapabilitySet) -> bool {
        self.capabilities.contains(wanted)
    }
}

/// The word in brackets: `none [integrity] confidentiality`.
fn chosen(text: &str) -> Option<String> {
    let (_, behind) = text.split_once('[')?;
    let (word, _) = behind.split_once(']')?;
    Some(word.to_owned())
}

fn is_virtual(cpuinfo: &str) -> bool {
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags"));
    flags.is_some_and(|line| line.split_whitespace().any(|flag| flag == "hypervisor"))
}

/// The eighth number of the first line, of the first eight: what follows is counted in them already.
fn steal(stat: &str) -> Option<f64> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Option<Vec<u64>> = line.split_whitespace().map(|it| it.parse().ok()).collect();
    let ticks = ticks?;
    let all: u64 = ticks.iter().take(8).sum();
    let stolen = *ticks.get(7)?;
    (all > 0).then(|| stolen as f64 / all as f64)
}

fn ports(text: &str) -> Option<PortRange> {
    let mut numbers = text.split_whitespace().map(|it| it.parse().ok());
    Some(PortRange {
        first: numbers.next()??,
        last: numbers.next()??,
    })
}

#[cfg(test)]
impl Machine {
    /// A machine on which all is well, for root.
    pub(super) fn sound() -> Self {
        Self {
            release: Some("6.18.0-1-amd64".into()),
            has_btf: true,
            bpf_jit: Some(1),
            lockdown: Some("none".into()),
            clock_source: Some("tsc".into()),
            clock_sources: vec!["tsc".into(), "hpet".into()],
            is_virtual: false,
            steal: Some(0.0),
            cpus: 4,
            user: 0,
            capabilities: CapabilitySet::all(),
            realtime_limit: 0,
            open_files: 1 << 20,
            first_free_port: 1024,
            backlog_max: Some(4096),
            ports: ports("32768 60999"),
            tracked: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_the_system_are_understood() {
        assert_eq!(
            chosen("none [integrity] confidentiality").as_deref(),
            Some("integrity")
        );
        assert_eq!(chosen("none"), None);
        assert!(is_virtual("processor : 0\nflags : fpu hypervisor tsc\n"));
        assert!(!is_virtual("processor : 0\nflags : fpu tsc\n"));
        let stat = "cpu  10 0 10 60 0 0 0 20 5 5\ncpu0 1 2\n";
        assert_eq!(steal(stat), Some(0.2));
        assert_eq!(steal("cpu  1 2 3\n"), None);
        let range = ports("32768\t60999").unwrap();
        assert_eq!(range.count(), 28_232);
        assert_eq!(ports("60999"), None);
    }

    #[test]
    fn what_is_not_there_is_not_known() {
        let machine = Machine::below(Path::new("/nowhere"));
        assert_eq!(machine.release, None);
        assert_eq!((machine.backlog_max, machine.tracked), (None, None));
        assert_eq!(machine.first_free_port, 1024);
        assert!(!machine.has_btf);
    }
}
