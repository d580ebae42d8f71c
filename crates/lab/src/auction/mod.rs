//! The auction site of Elephants-2005's experiment, our own: what is in it, and what the database says that
//! it spent; `load::visitors` has its visitors. Its pages, tables and settings are in `assets/auction/`.
//!
//! ```text
//!  visitors ──> front-end ──> node web: nginx ──> PHP-FPM, W workers ──TCP──> node db: PostgreSQL
//!                                                 each with a connection       a process per connection
//! ```
//!
//! Its data are a hash of their own numbers: the same in every run. What it does not know: front-ends,
//! experiments, clusters.

mod accounting;
pub mod files;

pub use accounting::{RESET, STATEMENTS, Statement, statements};

/// Members of the site.
pub const MEMBERS: u32 = 18_000;
/// Items, four of five of which are still open.
pub const ITEMS: u32 = 36_000;
/// Bids.
pub const BIDS: u32 = 288_000;
/// Comments on members.
pub const COMMENTS: u32 = 72_000;
/// Categories; the first ones have most items.
pub const CATEGORIES: u32 = 30;
/// Regions that members live in.
pub const REGIONS: u32 = 40;

/// The response header with the CPU time that the database spent on a page, nanoseconds.
pub const CPU_HEADER: &str = "x-auction-db-cpu-ns";
