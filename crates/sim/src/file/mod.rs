//! Scenario files: a [`Scenario`] as TOML, with where it comes from and what is expected.
//!
//! ```text
//! text ──TOML──> tables ──`build`──> ScenarioFile { name, family, scenario, … }
//!       syntax, keys,    ranges, what
//!       types, units     belongs together
//! ```
//!
//! Unknown keys are errors; durations carry units ("10ms"). The first thing that is wrong ends
//! the reading with a [`FileError`], which says what and at which bytes; the caller, which has a terminal,
//! draws the caret. `docs/simulate.md` has every key.

mod build;
mod check;
mod error;
mod nodes;
mod tables;
#[cfg(test)]
mod tests;

pub use error::FileError;

use std::time::Duration;

use crate::scenario::{FaultKind, Scenario};

/// Longest duration that a file may name, but for the end of a fault.
const HOUR: Duration = Duration::from_secs(3600);

/// The half of the standard matrix that a scenario is in: policies are tuned on one and
/// reported on the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Half {
    /// May be looked at while a policy is changed.
    Tune,
    /// Tells whether the change holds elsewhere.
    Report,
}

impl Half {
    /// Its name in files and tables.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Tune => "tune",
            Self::Report => "report",
        }
    }
}

/// A scenario file that was read and found sound.
#[derive(Clone, Debug, PartialEq)]
pub struct ScenarioFile {
    /// What it is called in tables.
    pub name: String,
    /// What it is for, in a line.
    pub description: String,
    /// Where it comes from.
    pub source: String,
    /// Scenarios that look at the same thing share a family.
    pub family: String,
    /// Its half of the standard matrix.
    pub half: Half,
    /// What the source does not say, and what stands here instead.
    pub guessed: Vec<String>,
    /// Requests of the short run whose exact result is kept.
    pub golden_requests: u32,
    /// What is run; its seed is the first.
    pub scenario: Scenario,
}

impl ScenarioFile {
    /// Reads the text of a scenario file.
    pub fn parse(text: &str) -> Result<Self, FileError> {
        let table = toml::from_str(text).map_err(|error| FileError::of_toml(&error))?;
        build::build(table)
    }

    /// The scenario of the short run whose exact result is kept.
    pub fn golden(&self) -> Scenario {
        self.shortened(self.golden_requests)
    }

    /// The scenario with at most so many requests. Orders and faults come as much earlier as it
    /// is shorter.
    pub fn shortened(&self, requests: u32) -> Scenario {
        let requests = requests.min(self.scenario.requests);
        let share = f64::from(requests) / f64::from(self.scenario.requests.max(1));
        let mut scenario = self.scenario.clone().requests(requests);
        for change in &mut scenario.overrides {
            change.at = change.at.mul_f64(share);
        }
        for leave in &mut scenario.leaves {
            leave.from = leave.from.mul_f64(share);
            leave.to = leave.to.mul_f64(share);
        }
        for fault in &mut scenario.faults {
            fault.from = fault.from.mul_f64(share);
            fault.to = fault.to.mul_f64(share);
            if let FaultKind::Flapping { period, .. } = &mut fault.kind {
                *period = period.mul_f64(share);
            }
        }
        scenario
    }
}
