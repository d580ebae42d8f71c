//! Settings of an agent.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use tidegate_core::load::Rung;
use tidegate_remote::udp::key_file::NodeKey;
use tidegate_remote::udp::{Key, Network, REALTIME_SHARE};

/// The default publication interval. KLM-2005 used 50 ms.
pub const INTERVAL_DEFAULT: Duration = Duration::from_millis(1);
/// Shortest interval: below, the agent would do nothing but sample.
pub const INTERVAL_MIN: Duration = Duration::from_micros(100);
/// Longest interval: such records are old before they are read.
pub const INTERVAL_MAX: Duration = Duration::from_secs(10);
/// Up to this interval a run queue is integrated from samples; above, there are too few of them
/// and the scheduler's own times are taken where there are any. Those lack the waits that are
/// still going on, which come in lumps when they end: six threads that never rest, on two CPUs,
/// by schedstat of Linux 6.1 were a queue of 6.4 ± 6.4 over 10 ms, 6.6 ± 1.8 over 50 ms and
/// 6.6 ± 0.1 over a second; by samples each millisecond 6.1 ± 0.4 over 10 ms.
pub(crate) const SAMPLED_INTERVAL_MAX: Duration = Duration::from_millis(10);
/// Where an agent listens by default.
pub const LISTEN_DEFAULT: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED), 9901);

/// The rungs of an agent, best first. The last two are one program: which it is, the system
/// decides by granting real-time priority or not, unless only the last one may be tried.
pub const RUNGS: [Rung; 6] = [
    Rung::XdpNative,
    Rung::XdpGeneric,
    Rung::Tc,
    Rung::KernelRecord,
    Rung::AgentRealtime,
    Rung::Agent,
];

/// Those that need nothing of the kernel, and so are never refused.
pub(crate) const USER_RUNGS: [Rung; 2] = [Rung::AgentRealtime, Rung::Agent];

/// What the record covers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// The whole machine.
    #[default]
    Host,
    /// A control group, by its path as `/proc/PID/cgroup` shows it or by a directory below a
    /// mounted hierarchy.
    Cgroup(PathBuf),
}

/// What is sampled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SamplerConfig {
    /// The publication interval, as the record will say.
    pub interval: Duration,
    /// What the record covers.
    pub scope: Scope,
    /// Processes whose open files are held against their limits: names as in
    /// `/proc/PID/comm`, or paths of pid files (anything with a slash).
    pub watch: Vec<String>,
    /// Where `/proc` and `/sys` are found; "/" but for tests.
    pub root: PathBuf,
}

impl Default for SamplerConfig {
    fn default() -> Self {
        Self {
            interval: INTERVAL_DEFAULT,
            scope: Scope::Host,
            watch: Vec::new(),
            root: "/".into(),
        }
    }
}

/// What an agent does.
#[derive(Clone, Debug)]
pub struct AgentConfig {
    /// Where it answers reads over UDP. Port 0: any that is free.
    pub listen: SocketAddr,
    /// The node's keys, of which a request must be made with one: the one to use, and others while keys
    /// change.
    pub keys: Vec<NodeKey>,
    /// A file through which front-ends on this host read the region by mapping it.
    pub shm: Option<PathBuf>,
    /// The publication interval, [`INTERVAL_MIN`] to [`INTERVAL_MAX`].
    pub interval: Duration,
    /// What the record covers.
    pub scope: Scope,
    /// See [`SamplerConfig::watch`].
    pub watch: Vec<String>,
    /// Whether to ask for real-time priority.
    pub realtime: bool,
    /// Share of a CPU that what is answered in vain or thrown away may take at that priority, 0 to 1.
    pub realtime_share: f64,
    /// The rungs that may be tried; see [`RUNGS`].
    pub rungs: Vec<Rung>,
    /// Networks that are listened to; empty: all.
    pub allow: Vec<Network>,
    /// Whether the other end of a veth is known to have an XDP program.
    pub veth_native: bool,
    /// How many front-ends may read the record over RDMA; none: RDMA is not served.
    pub rdma: Option<usize>,
    /// Whether they may change words over RDMA too. The kernel's programs answer no datagrams then: they would keep words
    /// of their own.
    pub rdma_words: bool,
    /// What it does when its node moves to another site; none: nothing.
    pub moves: Option<MovesConfig>,
    /// See [`SamplerConfig::root`].
    pub root: PathBuf,
}

impl AgentConfig {
    /// Whether to ask for real-time priority: not if `agent` may be tried and `agent_realtime` may not.
    pub(crate) fn wants_realtime(&self) -> bool {
        let ordinary = self.rungs.contains(&Rung::Agent);
        self.realtime && (self.rungs.contains(&Rung::AgentRealtime) || !ordinary)
    }

    /// The whole machine, each millisecond, at real-time priority where permitted.
    pub fn new(keys: Vec<NodeKey>) -> Self {
        let sampler = SamplerConfig::default();
        Self {
            listen: LISTEN_DEFAULT,
            keys,
            shm: None,
            interval: sampler.interval,
            scope: sampler.scope,
            watch: sampler.watch,
            realtime: true,
            realtime_share: REALTIME_SHARE,
            rungs: RUNGS.to_vec(),
            allow: Vec::new(),
            veth_native: false,
            rdma: None,
            rdma_words: false,
            moves: None,
            root: sampler.root,
        }
    }
}

impl AgentConfig {
    /// The keys without their names.
    pub(crate) fn plain_keys(&self) -> Vec<Key> {
        self.keys.iter().map(|it| it.key.clone()).collect()
    }
}

/// Shortest time for a hook.
pub const HOOK_TIMEOUT_MIN: Duration = Duration::from_millis(100);
/// Longest time.
pub const HOOK_TIMEOUT_MAX: Duration = Duration::from_secs(300);
/// The default.
pub const HOOK_TIMEOUT: Duration = Duration::from_secs(10);
/// Most commands of a hook.
pub const COMMANDS_MAX: usize = 16;

/// What an agent does for moves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MovesConfig {
    /// The port whose connections are counted while the node drains.
    pub port: u16,
    /// A folder that keeps what a later agent must know.
    pub state: Option<PathBuf>,
    /// The node's name, for templates and commands.
    pub node: String,
    /// All sites that take part in moves; none: the agent counts connections and runs nothing.
    pub sites: Vec<SiteHook>,
}

/// What is done on a node that is to serve a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteHook {
    /// The site.
    pub name: String,
    /// A file and what it is made from.
    pub template: Option<HookTemplate>,
    /// What is run then: programs by absolute paths, with their arguments.
    pub commands: Vec<Vec<String>>,
    /// How long all of that may take, and how long undoing it.
    pub timeout: Duration,
}

/// A file that is made anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookTemplate {
    /// From this file.
    pub template: PathBuf,
    /// This one.
    pub target: PathBuf,
}

impl From<&AgentConfig> for SamplerConfig {
    fn from(config: &AgentConfig) -> Self {
        Self {
            interval: config.interval,
            scope: config.scope.clone(),
            watch: config.watch.clone(),
            root: config.root.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_that_may_be_ordinary_only_asks_for_no_priority() {
        let with = |rungs: &[Rung]| AgentConfig {
            rungs: rungs.to_vec(),
            ..AgentConfig::new(Vec::new())
        };
        assert!(with(&RUNGS).wants_realtime() && with(&USER_RUNGS).wants_realtime());
        assert!(with(&[Rung::AgentRealtime]).wants_realtime());
        assert!(with(&[Rung::XdpNative]).wants_realtime());
        assert!(!with(&[Rung::Agent]).wants_realtime());
        assert!(!with(&[Rung::Tc, Rung::Agent]).wants_realtime());
        let unwanted = AgentConfig {
            realtime: false,
            ..with(&RUNGS)
        };
        assert!(!unwanted.wants_realtime());
    }
}
