//! What is known about the load of every node, and how it comes to be known.
//!
//! ```text
//!  reader ── LoadRecord ──> History ── NodeLoad ──> LoadTable <── own traffic ── Ticket
//!                           (rates, age)              │    ^
//!                                                     v    └── NodeTerms ── Director
//!                                                   Picker
//! ```

mod history;
mod rates;
mod rung;
mod table;

pub use history::{History, Progress, Reading};
pub use rates::Rates;
pub use rung::Rung;
pub use table::{LoadTable, NodeLoad, NodeTerms, Outcomes, OwnTraffic, SiteTerms};
