//! What changes by what requests of a running data plane are served.

use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::sync::Notify;

use super::seats::AllSeats;
use crate::config::requests::RequestConfig;

/// See the module.
#[derive(Clone, Debug)]
pub struct RequestSetter {
    pub(crate) published: Arc<ArcSwap<RequestConfig>>,
    pub(crate) seats: Arc<AllSeats>,
    pub(crate) news: Arc<Notify>,
}

impl RequestSetter {
    /// Workers take these over with their next tick, and each connection then with its next request. How many
    /// connections and tunnels there may be holds at once; those that are open stay. What belongs to a connection as a
    /// whole holds for those that begin from then on: heads, fields, buffers, probes of silent ones.
    pub fn set(&self, config: RequestConfig) {
        self.seats.set(&config.limits);
        self.published.store(Arc::new(config));
        self.news.notify_waiters();
    }
}
