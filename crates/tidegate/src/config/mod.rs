//! The configuration: one TOML file, read in three steps of which each reports all that it
//! finds wrong.
//!
//! ```text
//! text ──TOML──> tables ──`file`──> ConfigFile ──`validate`──> Config
//!       syntax           keys, types            what it means
//!                        ranges
//! ```
//!
//! A [`Config`] is sound: names are resolved, keys and tokens are read, nothing contradicts.
//! What comes after checks nothing again. It does not know sockets: whether an address can be
//! bound shows when it is bound.

pub(crate) mod acme;
pub(crate) mod address;
pub(crate) mod agent_moves;
mod agent_reports;
mod answers;
mod apis;
mod bounded;
mod check;
pub(crate) mod culprits;
pub(crate) mod discover;
#[cfg(test)]
mod docs;
mod events;
pub(crate) mod file;
mod group;
#[cfg(any(test, feature = "fuzzing"))]
#[path = "../../../../fuzz/invariants/config.rs"]
pub(crate) mod invariants;
mod log;
#[cfg(test)]
mod man_page;
mod misplaced;
mod mode;
mod notes;
pub(crate) mod own_files;
pub(crate) mod payload;
mod policy;
pub(crate) mod print;
pub(crate) mod problem;
pub(crate) mod reconfigure;
mod reported;
mod route;
pub(crate) mod setting;
mod site;
mod soft_limits;
pub(crate) mod state_folder;
mod sticky;
pub(crate) mod throttle;
mod tls;
mod traces;
mod validate;
pub(crate) mod values;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tidegate_core::load::Rung;
use tidegate_core::topology::ClusterSpec;
use tidegate_culprits::names::ClassNames;
use tidegate_node::{AgentConfig, RUNGS, Scope};
use tidegate_proxy::{ForwardedConfig, ListenerConfig, LogConfig, Ports, SiteConfig};
use tidegate_remote::udp::Key;
use tidegate_remote::udp::key_file::KeyFile;
use tidegate_reported::{Secret, SourceConfig};
use toml::de::DeTable;

use crate::open_files::Shares;
use crate::token::Token;

pub(crate) use acme::AcmeConfig;
pub(crate) use agent_reports::{
    AgentCheckReport, AgentxMaster, HeartbeatReport, OrcaReport, Reports,
};
pub(crate) use check::ServiceCheck;
pub(crate) use problem::{ConfigError, Problem};

pub(crate) use culprits::Culprits;
pub(crate) use discover::{NodeSource, ReadPlan};
pub(crate) use events::WebhookConfig;
use file::{ConfigFile, LimitsFile, TimeoutsFile};
use problem::Problems;
pub(crate) use reconfigure::{EtcdHomeConfig, Movable, MovesEngine, Reconfigure};
use setting::{Raw, Setting};
use throttle::Throttled;
pub(crate) use traces::{OtlpConfig, Traces};

/// Largest configuration file, bytes: ten thousand nodes fit.
const FILE_BYTES_MAX: usize = 8 << 20;

/// A sound configuration.
#[derive(Debug)]
pub(crate) struct Config {
    /// The file with every default filled in.
    pub(crate) file: ConfigFile,
    /// The admin interface.
    pub(crate) admin: Admin,
    /// What `tidegate run` needs; nothing if the file is an agent's.
    pub(crate) front_end: Option<FrontEnd>,
    /// What `tidegate agent` needs; nothing if the file is a front-end's.
    pub(crate) agent: Option<AgentConfig>,
    /// What that agent tells programs other than front-ends.
    pub(crate) reports: Reports,
    /// The services of its own host that it checks.
    pub(crate) service_checks: Vec<ServiceCheck>,
    /// What is sound and perhaps not meant, in sentences.
    pub(crate) notes: Vec<String>,
    /// What was read of files for their owner alone.
    pub(crate) secrets: Secrets,
    /// What it was read from.
    pub(crate) source: Source,
}

/// The text of a configuration, for what is found wrong with it once it is to be put in force.
#[derive(Clone, Debug, Default)]
pub(crate) struct Source {
    name: String,
    text: String,
}

impl Source {
    /// What is wrong at these bytes.
    pub(crate) fn error(&self, problem: Problem) -> ConfigError {
        ConfigError::in_file(&self.name, &self.text, problem)
    }
}

/// What files for their owner alone hold. A process that gave its rights away cannot read them again.
#[derive(Clone, Debug, Default)]
pub(crate) struct Secrets {
    /// Of key files.
    keys: BTreeMap<PathBuf, KeyFile>,
    /// Of the admin token's.
    tokens: BTreeMap<PathBuf, Token>,
    /// Of other secrets' files.
    texts: BTreeMap<PathBuf, Secret>,
    /// Files that could not be read this time: what they held before goes on.
    pub(crate) unread: Vec<PathBuf>,
}

/// The admin interface.
#[derive(Clone, Debug)]
pub(crate) struct Admin {
    /// Where it listens.
    pub(crate) address: SocketAddr,
    /// What requests must carry.
    pub(crate) token: Option<Token>,
    /// What those may carry that only look.
    pub(crate) read_token: Option<Token>,
}

/// A front-end.
#[derive(Debug)]
pub(crate) struct FrontEnd {
    /// Where clients connect.
    pub(crate) listeners: Vec<ListenerConfig>,
    /// Certificates that an authority issues while it runs; none: none.
    pub(crate) acme: Option<AcmeConfig>,
    /// Sites and nodes.
    pub(crate) cluster: ClusterSpec,
    /// How each node's load is read, in the order of the nodes.
    pub(crate) reads: Vec<NodeRead>,
    /// Nodes that serve nothing and are read.
    pub(crate) resources: Vec<Resource>,
    /// Where more nodes come from.
    pub(crate) sources: Vec<NodeSource>,
    /// How the load of nodes is read that operators add.
    pub(crate) usual_read: ReadPlan,
    /// Seeds the choices; drawn from the system's randomness if not given, as it must be
    /// where several front-ends serve the same nodes.
    pub(crate) seed: Option<u64>,
    /// Time between two reads, at least.
    pub(crate) interval: Duration,
    /// How often reads are needed.
    pub(crate) pace: ReadPace,
    /// Time for one read.
    pub(crate) timeout: Duration,
    /// Whether to ask for real-time priority.
    pub(crate) realtime: bool,
    /// Limits.
    pub(crate) limits: LimitsFile,
    /// Time-outs.
    pub(crate) timeouts: TimeoutsFile,
    /// What nodes learn about the client.
    pub(crate) forwarded: ForwardedConfig,
    /// Whether clients learn which node answered.
    pub(crate) node_header: bool,
    /// What the data plane knows of each site, in the order of the sites.
    pub(crate) sites: Vec<SiteConfig>,
    /// Access log.
    pub(crate) log: LogConfig,
    /// Traces that are exported.
    pub(crate) traces: Traces,
    /// Where events are sent.
    pub(crate) webhook: Option<WebhookConfig>,
    /// Classes that are throttled from the start.
    pub(crate) throttles: Vec<Throttled>,
    /// What discovery of culprits is given; none: it is off.
    pub(crate) culprits: Option<Culprits>,
    /// How nodes move between sites; none: they do not.
    pub(crate) reconfigure: Option<Reconfigure>,
    /// The classes that the configuration names.
    pub(crate) class_names: ClassNames,
    /// Where runtime overrides are kept over a restart.
    pub(crate) overrides_file: Option<PathBuf>,
    /// How listening sockets come by their ports: said on the command line.
    pub(crate) ports: Ports,
    /// What the limit on open files leaves; nothing if it has not been looked at.
    pub(crate) open_files: Option<Shares>,
}

/// A node that serves nothing and is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Resource {
    /// Its name.
    pub(crate) name: String,
    /// Its host.
    pub(crate) address: SocketAddr,
    /// How.
    pub(crate) read: NodeRead,
}

/// How one node's load is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NodeRead {
    /// Not at all.
    None,
    /// From the node's agent.
    Udp {
        /// Where it answers.
        address: SocketAddr,
        /// The node's keys: the one to ask with, and those before it.
        keys: Vec<Key>,
        /// Whether its memory is read instead where that can be.
        rdma: UseRdma,
    },
    /// From a shared file.
    Shm {
        /// The file.
        path: PathBuf,
    },
    /// From another program, by its protocol.
    Reported(Box<SourceConfig>),
    /// From the node's responses, in ORCA's header.
    Responses {
        /// A number is believed for four of these.
        period: Duration,
    },
}

/// Whether a node is read by RDMA where that can be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum UseRdma {
    /// Not at all.
    #[default]
    Never,
    /// It is as well without.
    IfAny,
    /// An operator has asked for it, and is to hear why it is not.
    Wanted,
}

impl NodeRead {
    /// Whether an operator has asked for RDMA.
    pub(crate) fn wants_rdma(&self) -> bool {
        matches!(
            self,
            Self::Udp {
                rdma: UseRdma::Wanted,
                ..
            }
        )
    }

    /// Whether it comes from a region, in which words are as well.
    pub(crate) fn has_region(&self) -> bool {
        matches!(self, Self::Udp { .. } | Self::Shm { .. })
    }

    /// Whether it tells the load of a node that has no requests.
    pub(crate) fn suits_resources(&self) -> bool {
        match self {
            Self::None | Self::Responses { .. } => false,
            Self::Udp { .. } | Self::Shm { .. } => true,
            Self::Reported(source) => match **source {
                SourceConfig::Snmp(_) | SourceConfig::Orca(_) => true,
                SourceConfig::AgentCheck(_) => false,
            },
        }
    }
}

/// Reads what an agent measures: `host`, or the path of a control group.
pub(crate) fn parse_scope(text: &str) -> Result<Scope, &'static str> {
    match text {
        "host" => Ok(Scope::Host),
        path if path.starts_with('/') => Ok(Scope::Cgroup(path.into())),
        _ => Err("neither `host` nor the absolute path of a control group"),
    }
}

/// Reads a rung of the agent's: its label, as in metrics.
pub(crate) fn parse_rung(text: &str) -> Option<Rung> {
    RUNGS.into_iter().find(|rung| rung.label() == text)
}

/// How often loads are read, beside the shortest time between two reads.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct ReadPace {
    /// Always as often as that.
    pub(crate) constant: bool,
    /// CPUs that it may take, or a tenth of what the process takes; none: as many as it does.
    pub(crate) budget: Option<f64>,
}

/// Time between two reads of nodes that are read so: as wanted, or as often as is affordable.
pub(crate) fn read_interval(reads: &[NodeRead], wanted: Option<Duration>) -> Duration {
    notes::interval(reads, wanted)
}

impl Config {
    /// Reads and checks a file, or what a pipe gives.
    pub(crate) fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = File::open(path).map_err(|error| error.to_string());
        Self::checked(
            path,
            text.and_then(|file| bounded::text(file, FILE_BYTES_MAX)),
            Secrets::default(),
        )
    }

    /// The same in a process that has read it before, and of a file alone: a pipe may never give anything again. Keys
    /// and tokens that it may not read any more are those of before.
    pub(crate) fn load_again(path: &Path, before: Secrets) -> Result<Self, ConfigError> {
        let text = bounded::regular(path).and_then(|file| bounded::text(file, FILE_BYTES_MAX));
        Self::checked(path, text, before)
    }

    fn checked(
        path: &Path,
        text: Result<String, String>,
        before: Secrets,
    ) -> Result<Self, ConfigError> {
        let text = text.map_err(|reason| ConfigError::Unreadable {
            file: path.display().to_string(),
            reason,
        })?;
        let folder = path.parent().unwrap_or(Path::new(""));
        Self::parse_again(
            &text,
            &path.display().to_string(),
            (folder, Some(path)),
            before,
        )
    }

    /// Checks a text; paths in it are relative to `folder`.
    pub(crate) fn parse(text: &str, name: &str, folder: &Path) -> Result<Self, ConfigError> {
        Self::parse_again(text, name, (folder, None), Secrets::default())
    }

    fn parse_again(
        text: &str,
        name: &str,
        (folder, path): (&Path, Option<&Path>),
        before: Secrets,
    ) -> Result<Self, ConfigError> {
        let mut problems = Problems::default();
        let config = parse(text, (folder, path), before, &mut problems);
        match config {
            Some(config) if problems.is_empty() => Ok(Self {
                source: Source {
                    name: name.into(),
                    text: text.into(),
                },
                ..config
            }),
            _ => Err(problems.into_error(name, text)),
        }
    }
}

fn parse(
    text: &str,
    (folder, path): (&Path, Option<&Path>),
    before: Secrets,
    problems: &mut Problems,
) -> Option<Config> {
    let (table, errors) = DeTable::parse_recoverable(text);
    // Behind the first one the parser guesses: a bracket that is missing makes dozens.
    let place = |error: &&toml::de::Error| error.span().map_or(0, |span| span.start);
    if let Some(error) = errors.iter().min_by_key(place) {
        if let Some(problem) = misplaced::problem(text) {
            problems.push(problem);
            return None;
        }
        let at = error.span().unwrap_or(0..0);
        let mut lines = error.message().lines();
        let message = lines.next().unwrap_or("not TOML").to_owned();
        let rest: Vec<_> = lines.collect();
        let in_list = message.contains("array elements");
        let mut problem = Problem::new(at, message, rest.join("; "));
        if in_list {
            problem = problem.help("or the `]` of the list before it is missing");
        }
        problems.push(problem);
        return None;
    }
    let raw: Raw<'_> = toml::Spanned::new(0..0, toml::de::DeValue::Table(table.into_inner()));
    let file = ConfigFile::decode(&raw, problems);
    if file.is_none()
        && let Some(problem) = misplaced::problem(text)
    {
        problems.push(problem);
    }
    let file = file?;
    if !problems.is_empty() {
        return None;
    }
    own_files::check(&file, folder, path, problems);
    validate::validate(file, folder, before, problems)
}
