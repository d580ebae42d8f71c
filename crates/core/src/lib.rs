//! Every decision of Tidegate: load indices, policies, admission, health, topology.
//!
//! What this crate does **not** know: sockets, files, clocks, threads, locks, environment
//! variables and the system's randomness. Time comes in as [`time::Timestamp`], randomness as
//! a seed, and all else as plain values; so the proxy, the simulator and the tests run the
//! same decisions, and a seed replays them. `clippy.toml` beside this crate bans the rest.
//!
//! * [`record`]: the bytes that a node publishes.
//! * [`load`]: from records to what is known of each node, and the table that shares it.
//! * [`request`]: what is known of a request: its priority, and which are alike.
//! * [`topology`]: which nodes serve what, as an immutable snapshot; [`ids`]: its places.
//! * [`topology::routes`]: which site a request belongs to.
//! * [`director`]: control plane; takes outcomes, probes and orders in, puts topology and
//!   terms out.
//! * [`policy`]: which node gets the next request.
//! * [`admission`]: which requests come in at all.
//! * [`picker`]: data plane; asks both for each request.
//! * [`classes`]: which requests are alike, and what they are called.
//! * [`culprits`]: which classes of requests explain the load of a resource.
//! * [`moves`]: nodes that change their site, by words that front-ends share.
//! * [`places`]: tables that grow while they are read.
//! * [`retry_budget`]: which failed requests may be tried again.
//! * [`hedge_budget`]: which slow ones may have a second node asked.
//! * [`source_limits`]: what one client's address may take.
//! * [`steer`]: weights and limits for a balancer that is not Tidegate's.
//! * [`stats`]: quantile, median and mean, as all crates take them.
//! * [`throttle`]: orders that slow one class of requests down.
//! * [`units`]: durations and sizes as people write them.

pub mod admission;
pub mod allowance;
pub mod classes;
pub mod culprits;
pub mod director;
pub mod hedge_budget;
pub mod ids;
pub mod load;
pub mod moves;
pub mod picker;
pub mod places;
pub mod policy;
pub mod prng;
pub mod protobuf;
pub mod record;
pub mod request;
pub mod retry_budget;
pub mod source_limits;
pub mod stats;
pub mod steer;
pub mod throttle;
pub mod time;
pub mod topology;
pub mod units;

#[cfg(test)]
mod testing;
