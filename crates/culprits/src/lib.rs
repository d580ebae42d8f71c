//! The culprits: which requests load which resource, from access logs and recordings that are there already or live
//! in a running front-end (`live`), and the one report of it.
//!
//! ```text
//! access logs ─ access ──> requests ──┐
//! recordings ── resource ─────────────┴─> evidence ─ replay ─> offline ─┬─> picture ─> text, JSON, page
//! front-end ─── live: requests, series, discovery ──────────────────────┘
//! ```

mod access;
mod correlate;
pub mod delay_experiment;
mod evidence;
mod files;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod input;
pub mod live;
pub mod names;
mod offline;
mod order;
pub mod page;
pub mod picture;
mod replay;
mod report;
mod requests;
mod resource;
pub mod search;
pub mod table;
mod time;

pub use evidence::Lived;
pub use report::Printed;
pub use resource::{Span, Unit};
pub use time::utc_offset;
