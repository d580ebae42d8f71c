//! From the configuration to what the data plane and the reader start with.

use tidegate_proxy::{ProxyConfig, RequestConfig};
use tidegate_remote::reader::{ONE_SIDED_TIMEOUT, ReaderOptions};
use tidegate_remote::{allocator, clock};

use crate::config::FrontEnd;
use crate::privilege::Kept;
use crate::reload::requests::{request_config, workers};

/// Room for events of requests, per worker: half a second of 16 000 requests a second.
const EVENTS: usize = 16_384;

pub(super) fn reader_options(front_end: &FrontEnd) -> ReaderOptions {
    ReaderOptions {
        interval: front_end.interval,
        budget: front_end.pace.budget,
        timeout: front_end.timeout,
        one_sided_timeout: ONE_SIDED_TIMEOUT,
        realtime: front_end.realtime,
    }
}

pub(super) fn proxy_config(front_end: &FrontEnd, kept: Kept) -> ProxyConfig {
    let RequestConfig {
        limits,
        timeouts,
        forwarded,
        node_header,
        traces,
        ..
    } = request_config(front_end);
    ProxyConfig {
        thread_start: kept.in_data_plane(),
        listeners: front_end.listeners.clone(),
        ports: front_end.ports,
        workers: workers(&front_end.limits),
        seed: front_end.seed.unwrap_or_else(seed),
        limits,
        timeouts,
        sites: front_end.sites.clone(),
        forwarded,
        log: front_end.log.clone(),
        node_header,
        traces,
        events: front_end.culprits.as_ref().map_or(0, |_| EVENTS),
        clock: clock::now,
        give_back_memory: allocator::give_back,
    }
}

/// A number that differs between front-ends: the standard library keys its hashers from the
/// system's randomness.
fn seed() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish()
}
