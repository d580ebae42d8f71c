//! The picture: one report of who loads what, for the live page, the page as a file, `--json` and
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
pub(crate) mod report;
mod steps;
#[cfg(test)]
pub(crate) mod tests;
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
pub(crate) struct Material<'a> {
    /// Where the data come from.
    pub(crate) mode: Mode,
    /// Start of what is shown.
    pub(crate) from: i64,
    /// Its end.
    pub(crate) to: i64,
    /// Sentences for people.
    pub(crate) notes: Vec<String>,
    /// By number. One without a name is in no use.
    pub(crate) classes: Vec<ClassMaterial>,
    /// Requests that ended, in any order; those that ended outside of what is shown are left out.
    pub(crate) requests: &'a [Lived],
    /// Requests that have not ended: class, and when they were sent.
    pub(crate) unfinished: &'a [(ClassId, Timestamp)],
    /// In the order in which they are shown; those beyond the limit are not.
    pub(crate) resources: Vec<ResourceMaterial<'a>>,
}

/// What is known of a class besides its requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClassMaterial {
    /// Its name.
    pub(crate) name: String,
    /// What an order on its requests calls it, where one can be given.
    pub(crate) order: Option<String>,
    /// What slows it.
    pub(crate) throttle: Option<Throttle>,
}

/// What is known of a resource.
#[derive(Clone, Debug)]
pub(crate) struct ResourceMaterial<'a> {
    /// Its name; no two have the same.
    pub(crate) name: String,
    /// The node that it belongs to.
    pub(crate) node: Option<String>,
    /// What its spans tell.
    pub(crate) unit: Unit,
    /// Its use, in order of time.
    pub(crate) spans: &'a [Span],
    /// What discovery says; none where it was not asked.
    pub(crate) verdicts: Option<&'a Verdicts>,
    /// What verdicts rest on besides their window; none of recordings and rates.
    pub(crate) basis: Option<Basis>,
    /// When it was asked, by the Unix clock.
    pub(crate) evaluated_at: Option<i64>,
    /// Times and costs of the verdicts are so many times as long: 1 live, 10 where a second was
    /// handed over as 100 ms.
    pub(crate) time_scale: f64,
    /// Since when classes are told.
    pub(crate) named_at: BTreeMap<ClassId, i64>,
}

/// The report.
pub(crate) fn report(material: &Material<'_>) -> Report {
    build::Builder::new(material).report()
}
