//! What is known about the load of every node, and how it comes to be known.
//!
//! ```text
//!  reader ── LoadRecord ──> History ── NodeLoad ──> LoadTable <── own traffic ── Ticket
//!                           (rates, age)              │    ^
//!                                                     v    └── NodeTerms ── Director
//!                                                   Picker
//! ```

mod accounts;
mod counters;
mod group;
mod history;
mod limit_by;
mod measured;
mod node_load;
mod orca;
mod plausible;
mod rates;
mod recent;
mod reported;
mod rung;
mod slot;
mod table;
mod terms;
mod words;

pub use accounts::Accounts;
pub use counters::Counters;
pub use group::Group;
pub use history::{History, Progress, Reading};
pub use limit_by::LimitBy;
pub use measured::Measured;
pub use node_load::{LoadBrief, NodeLoad, OwnTraffic, Services};
pub use orca::{ORCA_BYTES_MAX, OrcaReport};
pub use plausible::Implausible;
pub use rates::{Point, Rates};
pub use recent::{Recent, groups};
pub use reported::{Exchange, ReportedLoad, ReportedMetric, ReportedValue, expected_runnable};
pub use rung::Rung;
pub(crate) use table::Firsts;
pub use table::{Compared, LoadReport, LoadTable, Outcomes, Ramp, RestKind};
pub use terms::{NodeTerms, SiteTerms};
pub use words::{Agreed, WordOp, WordReply, WordRequest};
