//! Load: when requests are due, what they ask for, and what came of them.
//!
//! ```text
//!  LoadPlan ──> arrivals: when ──┐
//!           ──> requests: what ──┼──> generator ──> client: connections ──> front-ends
//!                                │        └──> tally: histograms, windows, errors ──> LoadResult
//!  process: the generator as a child in a Place, plan on stdin, result on stdout
//!  knee: how much load is much, found by a walk
//! ```
//!
//! Open loop: every request has an intended start, its latency counts from there, and no slow
//! answer holds back the next one (no coordinated omission). Closed loop: so many clients, each of
//! which waits for its answer, thinks and asks again; in a walk, for a page that follows the last one.
//!
//! What it does not know: what answers. It is pointed at addresses.

mod arrivals;
pub mod attack;
mod client;
mod files;
mod generator;
pub mod knee;
pub mod others;
mod plan;
mod process;
mod requests;
mod result;
mod tally;
mod traces;
pub mod visitors;
mod visits;
mod walk;

pub use files::zipf_files;
pub use knee::{Knee, Sample, knee, knee_from};
pub use plan::{Arrivals, LoadPlan, Mix, Pacing, Requests, Size, Spread, Stream};
pub use process::{LoadError, Running, answer, run, run_command, run_here, start, start_in};
pub use result::{Generator, LoadResult, StreamResult, Window, decode, encode};
pub use tidegate_emulator::load::{Connections, NoBody, SendError, Timer};
pub use traces::{Recorded, TraceError, recorded_requests, recorded_world_cup};
pub use visits::{PageResult, Sessions};
pub use walk::{Draw, Page, Walk};
