//! What an agent is told.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use tidegate_remote::udp::Key;

/// The default publication interval. Paper 000 used 50 ms.
pub const INTERVAL_DEFAULT: Duration = Duration::from_millis(1);
/// Shortest interval: below, the agent would do nothing but sample.
pub const INTERVAL_MIN: Duration = Duration::from_micros(100);
/// Longest interval: such records are old before they are read.
pub const INTERVAL_MAX: Duration = Duration::from_secs(10);
/// Where an agent listens unless told otherwise.
pub const LISTEN_DEFAULT: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED), 9901);

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
    /// The secret that it shares with the front-ends.
    pub key: Key,
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
    /// See [`SamplerConfig::root`].
    pub root: PathBuf,
}

impl AgentConfig {
    /// The whole machine, each millisecond, at real-time priority where permitted.
    pub fn new(key: Key) -> Self {
        let sampler = SamplerConfig::default();
        Self {
            listen: LISTEN_DEFAULT,
            key,
            shm: None,
            interval: sampler.interval,
            scope: sampler.scope,
            watch: sampler.watch,
            realtime: true,
            root: sampler.root,
        }
    }
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
