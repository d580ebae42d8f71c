//! What chooses the nodes in a run: one of the core's policies, or the oracle that bounds them.

use tidegate_core::policy::{PolicyConfig, Signal};

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Chooser {
    /// Each front-end by itself, as the core does it.
    Policy(PolicyConfig),
    /// One place that knows the true state of all nodes at every moment, without delay. It
    /// gives a bound to compare with: nothing that could be built.
    Oracle(OracleBy),
}

impl From<PolicyConfig> for Chooser {
    fn from(config: PolicyConfig) -> Self {
        Self::Policy(config)
    }
}

impl Chooser {
    /// What it looks at through the core.
    pub(crate) fn signals(&self) -> &'static [Signal] {
        match self {
            Self::Policy(config) => config.kind.signals(),
            Self::Oracle(_) => &[],
        }
    }

    /// Its name in tables.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Policy(config) => config.kind.name(),
            Self::Oracle(OracleBy::RunQueue) => "oracle_run_queue",
            Self::Oracle(OracleBy::InFlight) => "oracle_in_flight",
            Self::Oracle(OracleBy::Slowdown) => "oracle_slowdown",
        }
    }
}

/// What the oracle minimises, requests on their way to a node included. Ties at random.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OracleBy {
    /// Run queue, antagonists included, per CPU and speed.
    RunQueue,
    /// Requests in flight per CPU and speed.
    InFlight,
    /// Expected slowdown and speed; among equals requests in flight.
    Slowdown,
}
