//! What an agent tells programs other than front-ends: the tables, and what is wrong with them.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use tidegate_core::policy::Parameters;
use tidegate_core::topology::SoftLimits;
use tidegate_core::units::Size;
use tidegate_node::report::agent_check::AtLimit;

use super::address::overlap;
use super::file::AgentFile;
use super::policy::{WeightsFile, weigh};
use super::problem::{Problem, Problems};
use super::setting::{At, names, table};
use super::soft_limits::agent_soft_limits;
use super::validate::overlapping;

table! {
    /// The agent answers HAProxy's agent check ([integrations.md](integrations.md#haproxy)): a server's weight follows its load.
    pub(crate) struct AgentCheckFile {
        /// Where it listens, over TCP. All that can connect learn the load.
        listen: SocketAddr;
        /// What CPU, memory and file descriptors weigh; they add up to 1. Not set: a third each.
        weights: Option<WeightsFile> = None;
        /// What is said while one of `[agent.soft_limits]` is crossed, or one of `[[agent.check]]` fails.
        at_limit: AtLimitName = AtLimitName::Least;
    }
}

names! {
    /// What an agent says of a node at a soft limit.
    pub(crate) enum AtLimitName as "answer" {
        /// Nearly no new requests; not even all servers together are out by it.
        Least = "1%",
        /// No new requests.
        Nothing = "0%",
        /// Out, with the reason.
        Down = "down",
    }
}

impl From<AtLimitName> for AtLimit {
    fn from(name: AtLimitName) -> Self {
        match name {
            AtLimitName::Least => Self::Least,
            AtLimitName::Nothing => Self::Nothing,
            AtLimitName::Down => Self::Down,
        }
    }
}

table! {
    /// The agent sends heartbeats as Apache's `mod_heartbeat` does, once a second ([integrations.md](integrations.md#apache)).
    pub(crate) struct AgentHeartbeatFile {
        /// Where they go, over UDP: `HeartbeatListen` of each balancer, or the group that all listen to, like
        /// `239.0.0.1:27999`.
        to: Vec<At<SocketAddr>>;
        /// The IP address that they come from, by which a balancer knows the server: that of its `BalancerMember`. Not set:
        /// as the system chooses.
        from: Option<String> = None;
    }
}

/// Most addresses that heartbeats go to.
const HEARTBEATS_MAX: usize = 64;

table! {
    /// The agent serves its record as metrics, to Prometheus and all that read its format, at `/metrics`.
    pub(crate) struct AgentMetricsFile {
        /// Where it listens, over HTTP. All that can connect learn the load.
        listen: SocketAddr;
    }
}

table! {
    /// The agent streams its load as ORCA reports, to Envoy and clients of gRPC
    /// ([integrations.md](integrations.md#envoy-and-grpc)).
    pub(crate) struct AgentOrcaFile {
        /// Where it listens, over HTTP/2 without TLS. All that can connect learn the load.
        listen: SocketAddr;
        /// Between two reports, at least: a client that asks for less, or for no interval, gets this one.
        min_interval: Duration = MIN_INTERVAL, in MIN_INTERVAL..=MIN_INTERVAL_MAX;
        /// What a request and its answer have on the network, on average. Clients weigh nodes by requests per second; the
        /// agent, which sees none, reckons them by this from the network's bytes. Only how nodes compare matters. Not set:
        /// nothing is said of requests.
        bytes_per_request: Option<Size> = None, in Some(Size(1))..=Some(Size::kib(1 << 20));
    }
}

/// The agent takes a sample over so often.
const MIN_INTERVAL: Duration = Duration::from_millis(100);
const MIN_INTERVAL_MAX: Duration = Duration::from_secs(3600);

table! {
    /// The agent gives a stock `snmpd` the values of TIDEGATE-MIB, by AgentX ([integrations.md](integrations.md#snmp)).
    pub(crate) struct AgentSnmpFile {
        /// Where that listens for subagents: the path of a Unix socket, or an address like `tcp:127.0.0.1:705`.
        agentx: String = AGENTX_DEFAULT.into();
    }
}

/// Debian's.
const AGENTX_DEFAULT: &str = "/var/agentx/master";

/// Where the master of subagents listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AgentxMaster {
    /// A Unix socket.
    Path(PathBuf),
    /// TCP.
    Address(SocketAddr),
}

impl FromStr for AgentxMaster {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.strip_prefix("tcp:") {
            Some(address) => {
                let address = address.parse().map_err(|_| "not an address and a port")?;
                Ok(Self::Address(address))
            }
            None if text.starts_with('/') => Ok(Self::Path(text.into())),
            None => Err("neither an absolute path nor `tcp:` and an address"),
        }
    }
}

impl fmt::Display for AgentxMaster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => write!(f, "{}", path.display()),
            Self::Address(address) => write!(f, "tcp:{address}"),
        }
    }
}

/// What an agent tells programs other than front-ends.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reports {
    /// What is said to be crossed.
    pub(crate) soft_limits: SoftLimits,
    /// To balancers that ask by the agent check.
    pub(crate) agent_check: Option<AgentCheckReport>,
    /// To scrapers.
    pub(crate) metrics: Option<SocketAddr>,
    /// To Apache's monitors.
    pub(crate) heartbeat: Option<HeartbeatReport>,
    /// To clients of ORCA.
    pub(crate) orca: Option<OrcaReport>,
    /// To the snmpd of its host.
    pub(crate) agentx: Option<AgentxMaster>,
}

/// How the agent check is answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AgentCheckReport {
    pub(crate) listen: SocketAddr,
    /// Of CPU, memory and file descriptors.
    pub(crate) weights: [f32; 3],
    pub(crate) at_limit: AtLimit,
}

impl AgentCheckReport {
    /// With a third each.
    pub(crate) fn new(listen: SocketAddr) -> Self {
        Self {
            listen,
            weights: Parameters::default().weights,
            at_limit: AtLimit::default(),
        }
    }
}

/// Where heartbeats go.
#[derive(Clone, Debug)]
pub(crate) struct HeartbeatReport {
    pub(crate) to: Vec<SocketAddr>,
    pub(crate) from: Option<IpAddr>,
}

/// How load is streamed as ORCA reports.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OrcaReport {
    pub(crate) listen: SocketAddr,
    pub(crate) min_interval: Duration,
    /// NaN if it is not set.
    pub(crate) bytes_per_request: f32,
}

impl OrcaReport {
    /// As often as a client likes, without requests.
    pub(crate) fn new(listen: SocketAddr) -> Self {
        Self {
            listen,
            min_interval: MIN_INTERVAL,
            bytes_per_request: f32::NAN,
        }
    }
}

/// What this agent tells; what is wrong is among the problems.
pub(super) fn reports(file: &AgentFile, problems: &mut Problems) -> Reports {
    let check = file.agent_check.value.as_ref();
    let metrics = file.metrics.value.as_ref();
    let orca = file.orca.value.as_ref();
    let listens = [
        check.map(|it| &it.listen),
        metrics.map(|it| &it.listen),
        orca.map(|it| &it.listen),
    ];
    let listens: Vec<_> = listens.into_iter().flatten().collect();
    for (index, again) in listens.iter().enumerate() {
        let before = listens[..index].iter();
        let mut taken = before.filter(|it| overlap(it.value, again.value));
        if let Some(before) = taken.next() {
            problems.push(overlapping(before, again));
        }
    }
    Reports {
        soft_limits: agent_soft_limits(&file.soft_limits),
        agent_check: check.and_then(|it| agent_check(it, problems)),
        metrics: metrics.map(|it| it.listen.value),
        heartbeat: file
            .heartbeat
            .value
            .as_ref()
            .and_then(|it| heartbeat(it, problems)),
        orca: orca.map(|it| OrcaReport {
            listen: it.listen.value,
            min_interval: it.min_interval.value,
            bytes_per_request: it
                .bytes_per_request
                .value
                .map_or(f32::NAN, |it| it.0 as f32),
        }),
        agentx: file
            .snmp
            .value
            .as_ref()
            .and_then(|it| agentx(&it.agentx, problems)),
    }
}

fn heartbeat(file: &AgentHeartbeatFile, problems: &mut Problems) -> Option<HeartbeatReport> {
    let to: Vec<_> = file.to.value.iter().map(|it| it.value).collect();
    if to.is_empty() || to.len() > HEARTBEATS_MAX {
        let message = format!("heartbeats go to {} addresses", to.len());
        let label = format!("expected from 1 to {HEARTBEATS_MAX}");
        problems.push(Problem::new(file.to.place(), message, label));
        return None;
    }
    let Some(from) = &file.from.value else {
        return Some(HeartbeatReport { to, from: None });
    };
    let parsed = from.parse().ok();
    let is_alike = |from: &IpAddr| to.iter().all(|it| it.is_ipv4() == from.is_ipv4());
    let Some(from) = parsed.filter(is_alike) else {
        let message = format!("heartbeats cannot come from `{from}`");
        let label = "expected an IP address without a port, of the same kind as those of `to`";
        problems.push(Problem::new(file.from.place(), message, label));
        return None;
    };
    Some(HeartbeatReport {
        to,
        from: Some(from),
    })
}

fn agentx(at: &At<String>, problems: &mut Problems) -> Option<AgentxMaster> {
    match at.parse() {
        Ok(master) => Some(master),
        Err(reason) => {
            let message = format!("bad address of a master `{}`", at.value);
            problems.push(Problem::new(at.place(), message, reason));
            None
        }
    }
}

fn agent_check(file: &AgentCheckFile, problems: &mut Problems) -> Option<AgentCheckReport> {
    let usual = AgentCheckReport {
        at_limit: file.at_limit.value.into(),
        ..AgentCheckReport::new(file.listen.value)
    };
    match &file.weights.value {
        None => Some(usual),
        Some(weights) => Some(AgentCheckReport {
            weights: weigh(weights, file.weights.place(), problems)?,
            ..usual
        }),
    }
}
