//! Labelled scenarios for the discovery of culprits, its baselines, and how all of them do.
//!
//! * [`Family`]: 33 kinds of scenarios; a seed makes one of them, and [`run`] runs it.
//! * [`Trace`]: what a run leaves: requests, readings of counters, the truth.
//! * [`Replay`]: tells a trace to `tidegate_core::culprits` as a front-end would.
//! * [`truths`] and [`Score`]: which classes are culprits, and how well culprits were named.
//! * [`baselines`]: plain statistics on the same data.
//! * [`delay_experiment`]: the delay experiment on the same sites.
//! * [`quiet`]: hours without elephants, for false accusations.
//! * [`restart`]: starts with what was learned before.
//! * [`plateau`]: databases that an elephant drives to a level below full.
//!
//! Known to be unlike real sites: processors are shared fairly; there are no locks, no waits for a
//! disk inside a query and no read-ahead.

pub mod baselines;
pub mod delay_experiment;
mod draw;
mod family;
mod label;
pub mod plateau;
pub mod quiet;
mod replay;
pub mod restart;
mod score;
mod site;
pub mod suite;
mod tier;
mod trace;
mod world;

pub use family::Family;
pub use label::{Label, Truth, truths, truths_between};
pub use replay::{Evaluation, Replay};
pub use score::{Named, NamedClass, Score};
pub use trace::{Resource, START_MS, Trace};

/// Runs a scenario. The same family and seed make the same trace, byte for byte.
pub fn run(family: Family, seed: u64) -> Trace {
    world::run(&family.site(seed), seed)
}

/// The same for so many seconds.
pub fn run_for(family: Family, seed: u64, seconds: f64) -> Trace {
    let mut site = family.site(seed);
    site.seconds = seconds;
    world::run(&site, seed)
}
