//! What a node can be asked by, and what can be wrong with its answers.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use tidegate_core::load::{ReportedValue, Rung};

use crate::agent_check::{self, AgentCheckConfig, AgentLine};
use crate::orca::{self, OrcaConfig, OrcaStream};
use crate::snmp::{SnmpConfig, SnmpPoll};

/// A text that is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Keeps a text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text without the end of its line; nothing if it is empty or more than a line.
    pub fn line(&self) -> Option<Self> {
        let line = self.0.trim_end_matches(['\r', '\n']);
        let is_line = !line.is_empty() && !line.contains(['\r', '\n', '\0']);
        is_line.then(|| Self::new(line))
    }

    /// The text, for what it is the secret of; never for a log.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Secret(…)")
    }
}

/// By what a node is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceConfig {
    /// An agent of SNMP.
    Snmp(SnmpConfig),
    /// An agent of HAProxy's agent check.
    AgentCheck(AgentCheckConfig),
    /// A stream of ORCA's reports.
    Orca(OrcaConfig),
}

impl SourceConfig {
    /// What it is called.
    pub fn label(&self) -> &'static str {
        self.rung().label()
    }

    /// Where it is asked.
    pub fn address(&self) -> SocketAddr {
        match self {
            Self::Snmp(config) => config.address,
            Self::AgentCheck(config) => config.address,
            Self::Orca(config) => config.address,
        }
    }

    pub(crate) fn rung(&self) -> Rung {
        match self {
            Self::Snmp(_) => Rung::Snmp,
            Self::AgentCheck(_) => Rung::AgentCheck,
            Self::Orca(_) => Rung::Orca,
        }
    }

    /// Shortest time between two polls.
    pub(crate) fn tick(&self) -> Duration {
        match self {
            Self::Snmp(config) => config.periods.shortest(),
            Self::AgentCheck(config) => config.period,
            Self::Orca(config) => config.period,
        }
    }

    /// Whether it is an agent that says what becomes of the node.
    pub(crate) fn agent(&self) -> Option<SocketAddr> {
        match self {
            Self::AgentCheck(config) => Some(config.address),
            Self::Snmp(_) | Self::Orca(_) => None,
        }
    }

    /// Whether it is the same agent that says what becomes of the node.
    pub(crate) fn is_same_agent(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::AgentCheck(one), Self::AgentCheck(other)) => one.address == other.address,
            (Self::Snmp(_) | Self::Orca(_), _) | (_, Self::Snmp(_) | Self::Orca(_)) => false,
        }
    }
}

/// Why a poll gave nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PollFault {
    /// No answer in time. The text says what to look at.
    NoAnswer(&'static str),
    /// The node answers that it does not want this question.
    Refused(&'static str),
    /// Nothing of what was asked for is there.
    NothingThere(&'static str),
    /// What came cannot be understood.
    Malformed,
    /// What came cannot be true.
    Implausible,
    /// The system could not send.
    Unsent(String),
}

impl fmt::Display for PollFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoAnswer(look_at) => write!(f, "no answer in time: {look_at}"),
            Self::Refused(why) => write!(f, "refused: {why}"),
            Self::NothingThere(what) => f.write_str(what),
            Self::Malformed => f.write_str("what it answers cannot be understood"),
            Self::Implausible => f.write_str("what it answers cannot be true"),
            Self::Unsent(why) => write!(f, "the system cannot send to it: {why}"),
        }
    }
}

/// How one node is heard.
pub(crate) enum Source {
    /// By questions, one each period.
    Asked(Poll),
    /// By what it streams.
    Streamed(Box<OrcaStream>),
}

/// What asks one node.
pub(crate) enum Poll {
    Snmp(Box<SnmpPoll>),
    AgentCheck(AgentCheckConfig),
}

/// What a poll brought.
pub(crate) enum Polled {
    Values(Vec<ReportedValue>),
    Line(AgentLine),
}

impl Source {
    pub(crate) fn new(config: &SourceConfig) -> Self {
        match config {
            SourceConfig::Snmp(config) => {
                Self::Asked(Poll::Snmp(Box::new(SnmpPoll::new(config.clone()))))
            }
            SourceConfig::AgentCheck(config) => Self::Asked(Poll::AgentCheck(config.clone())),
            SourceConfig::Orca(config) => Self::Streamed(Box::new(OrcaStream::new(config.clone()))),
        }
    }
}

impl Poll {
    /// Asks once. `elapsed` is the time since the first poll.
    pub(crate) async fn ask(&mut self, elapsed: Duration) -> Result<Polled, PollFault> {
        match self {
            Self::Snmp(poll) => poll.ask(elapsed).await.map(Polled::Values),
            Self::AgentCheck(config) => agent_check::ask(config).await.map(Polled::Line),
        }
    }
}

/// What one question to a node has brought.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Probe {
    /// Numbers.
    pub values: Vec<ReportedValue>,
    /// What an agent of HAProxy's agent check says, which gives none.
    pub agent: Option<AgentLine>,
    /// Whether two answers tell the used share of the CPUs, where it is not among those.
    pub counts_cpu: bool,
}

/// Longest period of a number that is asked for anew, and below that of the looks at what there is.
const NEXT: Duration = Duration::from_secs(59);

/// Asks a node as a front-end that begins: once for what is best, then for what there is beside it. Where it is silent it is asked
/// once more, for the reason.
///
/// # Errors
/// What is wrong, as a front-end says it.
pub async fn probe(source: &SourceConfig) -> Result<Probe, PollFault> {
    match source {
        SourceConfig::Snmp(config) => probe_snmp(SnmpPoll::new(config.clone())).await,
        SourceConfig::AgentCheck(config) => Ok(Probe {
            agent: Some(agent_check::ask(config).await?),
            ..Probe::default()
        }),
        SourceConfig::Orca(config) => Ok(Probe {
            values: orca::ask(config).await?,
            ..Probe::default()
        }),
    }
}

async fn probe_snmp(mut poll: SnmpPoll) -> Result<Probe, PollFault> {
    let first = match poll.ask(Duration::ZERO).await {
        Err(PollFault::NoAnswer(_)) => poll.ask(Duration::ZERO).await?,
        Err(PollFault::NothingThere(_)) => Vec::new(),
        asked => asked?,
    };
    let mut values = poll.ask(NEXT).await?;
    let is_new = |it: &ReportedValue| values.iter().all(|value| value.metric != it.metric);
    let kept: Vec<_> = first.into_iter().filter(is_new).collect();
    values.extend(kept);
    Ok(Probe {
        values,
        counts_cpu: poll.counts_cpu(),
        ..Probe::default()
    })
}
