//! What an agent tells programs other than front-ends: the tables, and what is wrong with them.

use std::net::SocketAddr;

use tidegate_core::policy::Parameters;

use super::address::overlap;
use super::file::AgentFile;
use super::policy::{WeightsFile, weigh};
use super::problem::Problems;
use super::setting::table;
use super::validate::overlapping;

table! {
    /// The agent answers HAProxy's agent check ([integrations.md](integrations.md#haproxy)): a server's weight follows its load.
    pub(crate) struct AgentCheckFile {
        /// Where it listens, over TCP. All that can connect learn the load.
        listen: SocketAddr;
        /// What CPU, memory and file descriptors weigh; they add up to 1. Not set: a third each.
        weights: Option<WeightsFile> = None;
    }
}

table! {
    /// The agent serves its record as metrics, to Prometheus and all that read its format, at `/metrics`.
    pub(crate) struct AgentMetricsFile {
        /// Where it listens, over HTTP. All that can connect learn the load.
        listen: SocketAddr;
    }
}

/// What an agent tells programs other than front-ends.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reports {
    /// To balancers that ask by the agent check.
    pub(crate) agent_check: Option<AgentCheckReport>,
    /// To scrapers.
    pub(crate) metrics: Option<SocketAddr>,
}

/// How the agent check is answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AgentCheckReport {
    pub(crate) listen: SocketAddr,
    /// Of CPU, memory and file descriptors.
    pub(crate) weights: [f32; 3],
}

impl AgentCheckReport {
    /// With a third each.
    pub(crate) fn new(listen: SocketAddr) -> Self {
        Self {
            listen,
            weights: Parameters::default().weights,
        }
    }
}

/// What this agent tells; what is wrong is among the problems.
pub(super) fn reports(file: &AgentFile, problems: &mut Problems) -> Reports {
    let check = file.agent_check.value.as_ref();
    let metrics = file.metrics.value.as_ref();
    let listens = [check.map(|it| &it.listen), metrics.map(|it| &it.listen)];
    if let [Some(one), Some(other)] = listens
        && overlap(one.value, other.value)
    {
        problems.push(overlapping(one, other));
    }
    Reports {
        agent_check: check.and_then(|it| agent_check(it, problems)),
        metrics: metrics.map(|it| it.listen.value),
    }
}

fn agent_check(file: &AgentCheckFile, problems: &mut Problems) -> Option<AgentCheckReport> {
    let usual = AgentCheckReport::new(file.listen.value);
    match &file.weights.value {
        None => Some(usual),
        Some(weights) => Some(AgentCheckReport {
            weights: weigh(weights, file.weights.place(), problems)?,
            ..usual
        }),
    }
}
