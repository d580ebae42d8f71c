//! Discovery in a running front-end: a thread that hears of requests, reads counters, asks which classes are to blame,
//! and draws the picture.
//!
//! ```text
//! workers ── events ──> Requests ──┐
//! readers ── counters ──> Series ──┴──> Discovery ── each 2.5 s ──> verdicts ──> Findings (metrics, why)
//!                                                                      ├──> Policy ──> throttles
//!                                                                      └──> Report, when asked
//!                    Memory ── what was learned, each minute ──> file ──> the next process
//!                    HandedOver ── what was learned, throttles ─> channel ──> a successor
//! ```
//!
//! It decides nothing on a request's way; if it is slow or dies, traffic goes on. Resources are the nodes
//! of each site together (a request may go to any of them), and each node with `role = "resource"`. Both follow the
//! cluster: what joins is watched, what leaves counts no more, and what stays keeps what was learned of it.

mod asks;
mod cluster;
pub mod exchange;
mod experiment;
mod findings;
pub mod front_end;
mod handed_over;
mod memory;
mod past;
mod policy;
mod requests;
mod running;
mod series;
#[cfg(test)]
mod testing;
mod watch;
mod watched;

pub use asks::{AskError, Asks, ExperimentRequest};
pub use findings::{Finding, Findings};
pub use handed_over::{HandedOver, LearnedPolicy};
pub use memory::LEARNED_FILE;
pub use watch::{Actions, Settings, Watch, WatchParts};
