//! The admin interface: the live page, the JSON API, metrics and health of the front-end
//! itself.
//!
//! | path | what |
//! |---|---|
//! | `/` | the live page |
//! | `/culprits` | the page of culprits |
//! | `/livez`, `/readyz` | health |
//! | `/metrics` | OpenMetrics or Prometheus text |
//! | `/api/status` | everything, as JSON |
//! | `/api/overview` | the same for the page, small |
//! | `/api/events` | what happened, and what operators ordered |
//! | `/api/requests` | what became of the last requests |
//! | `/api/access` | what the one that asks may do |
//! | `/api/history` | what happened at sites and nodes, step by step |
//! | `/api/why/NAME` | why a node gets what it gets, how a site chooses, what slows a class |
//! | `/api/throttles` | which classes are throttled, and what that does |
//! | `POST /api/nodes/NAME/{drain,ready,maint}` | runtime overrides of nodes |
//! | `/api/nodes`, `POST`, `DELETE /api/nodes/NAME` | nodes that operators add, change and remove |
//! | `POST /api/upgrade` | a new process takes over |
//! | `POST /api/throttle`, `POST /api/release` | runtime overrides of classes |
//!
//! It reads the shared tables and tells the driver; it decides nothing and no worker ever waits
//! for it.

mod access;
mod agents;
mod api;
mod certificates;
mod checks;
pub(crate) mod culprits;
mod events;
mod findings;
mod headline;
pub(crate) mod history;
mod metrics;
mod moves;
mod node_metrics;
mod nodes;
mod overview;
mod page;
pub(crate) mod plane;
mod process;
mod query;
mod requests;
mod retries;
pub(crate) mod server;
mod shares;
mod soft_limits;
mod sources;
mod status;
#[cfg(test)]
mod tests;
pub(crate) mod throttles;
mod traces;
mod trouble;
mod why;

pub(crate) use access::Access;
