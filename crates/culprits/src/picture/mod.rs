//! The picture: one report of what loads what, for the live page, the page as a file, `--json` and
//! text.
//!
//! ```text
//! requests, spans of use, verdicts ──> Material ──> report() ──> Report ──> JSON, page, text
//! ```
//!
//! Both the front-end and the command that reads files fill in a [`Material`]; what is worked out from
//! it, and its limits, are here alone.

mod build;
mod lives;
pub mod report;
#[cfg(any(test, feature = "testing"))]
pub mod sample;
mod steps;
#[cfg(test)]
mod tests;
mod text;

use std::collections::BTreeMap;

use tidegate_core::classes::ClassId;
use tidegate_core::culprits::{Basis, Verdicts};
use tidegate_core::time::Timestamp;

use super::evidence::Lived;
use super::resource::{Span, Unit};
use report::{Mode, Report, Throttle};

/// All that a report is made of. Times are nanoseconds of the Unix epoch.
#[derive(Clone, Debug)]
pub struct Material<'a> {
    /// Where the data come from.
    pub mode: Mode,
    /// Start of what is shown.
    pub from: i64,
    /// Its end.
    pub to: i64,
    /// Sentences for people.
    pub notes: Vec<String>,
    /// By number. One without a name is in no use.
    pub classes: Vec<ClassMaterial>,
    /// Requests that ended, in any order; those that ended outside of what is shown are left out.
    pub requests: &'a [Lived],
    /// Requests that have not ended: class, and when they were sent.
    pub unfinished: &'a [(ClassId, Timestamp)],
    /// In the order in which they are shown; those beyond the limit are not.
    pub resources: Vec<ResourceMaterial<'a>>,
}

/// What is known of a class besides its requests.
#[derive(Clone, Debug, Default)]
pub struct ClassMaterial {
    /// Its name.
    pub name: String,
    /// What an override of its requests calls it, where there can be one.
    pub pattern: Option<String>,
    /// What slows it.
    pub throttle: Option<Throttle>,
}

/// What is known of a resource.
#[derive(Clone, Debug)]
pub struct ResourceMaterial<'a> {
    /// Its name; no two have the same.
    pub name: String,
    /// The node that it belongs to.
    pub node: Option<String>,
    /// What its spans tell.
    pub unit: Unit,
    /// Its use, in order of time.
    pub spans: &'a [Span],
    /// What discovery says; none where it was not asked.
    pub verdicts: Option<&'a Verdicts>,
    /// What verdicts rest on besides their window; none of recordings and rates.
    pub basis: Option<Basis>,
    /// When it was asked, by the Unix clock.
    pub evaluated_at: Option<i64>,
    /// Times and costs of the verdicts are so many times as long: 1 live, 10 where a second was
    /// handed over as 100 ms.
    pub time_scale: f64,
    /// Since when classes are named.
    pub named_at: BTreeMap<ClassId, i64>,
}

/// The report.
pub fn report(material: &Material<'_>) -> Report {
    build::Builder::new(material).report()
}
