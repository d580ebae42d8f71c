//! What requests are served by, as a worker has it now, and as one client connection has taken it over.
//!
//! ```text
//! published ── worker: next tick ──> Settings ── connection: after an answer, or with the next head ──> Settings
//! ```
//!
//! So a request sees one set from its head to its end, whatever is published meanwhile. What is read on each request's
//! way is a plain copy; the versions alone are compared. A route's own time-outs hold until its request ends.

use std::cell::{Cell, Ref, RefCell};
use std::sync::Arc;

use arc_swap::ArcSwap;

use super::clock::Ticks;
use crate::config::log_fields::LogFields;
use crate::config::requests::RequestConfig;
use crate::config::route::RouteTimeouts;
use crate::config::{
    ForwardedConfig, Limits, LogFormat, SourceLimits, Timeouts, TraceConfig, TraceSampling,
};

/// See the module.
pub(crate) struct Settings {
    version: Cell<u64>,
    config: RefCell<Arc<RequestConfig>>,
    limits: Cell<Limits>,
    ticks: Cell<Ticks>,
    /// The present request's route has some of its own.
    of_route: Cell<bool>,
    looks_at_answers: Cell<bool>,
    log: Cell<LogFormat>,
    keeps_recent: Cell<bool>,
    looks_at_traces: Cell<bool>,
}

impl Settings {
    /// A worker's first.
    pub(crate) fn new(config: Arc<RequestConfig>) -> Self {
        Self {
            version: Cell::new(0),
            limits: Cell::new(config.limits),
            ticks: Cell::new(Ticks::new(&config.timeouts, &config.limits)),
            of_route: Cell::new(false),
            looks_at_answers: Cell::new(config.looks_at_answers()),
            log: Cell::new(config.log),
            keeps_recent: Cell::new(config.recent > 0),
            looks_at_traces: Cell::new(config.looks_at_traces()),
            config: RefCell::new(config),
        }
    }

    /// A connection's first.
    pub(crate) fn copy_of(worker: &Self) -> Self {
        Self {
            version: worker.version.clone(),
            config: worker.config.clone(),
            limits: worker.limits.clone(),
            ticks: worker.ticks.clone(),
            of_route: Cell::new(false),
            looks_at_answers: worker.looks_at_answers.clone(),
            log: worker.log.clone(),
            keeps_recent: worker.keeps_recent.clone(),
            looks_at_traces: worker.looks_at_traces.clone(),
        }
    }

    /// A worker takes over what is published. Whether that is newer.
    pub(crate) fn follow_published(&self, published: &ArcSwap<RequestConfig>) -> bool {
        let published = published.load();
        let is_newer = !Arc::ptr_eq(&published, &self.config.borrow());
        if is_newer {
            self.take(Arc::clone(&published), self.version.get() + 1);
        }
        is_newer
    }

    /// A connection takes over what its worker has.
    #[inline]
    pub(crate) fn follow(&self, worker: &Self) {
        if self.version.get() != worker.version.get() {
            self.take(Arc::clone(&worker.config.borrow()), worker.version.get());
        }
    }

    /// These are the present request's.
    pub(crate) fn take_route(&self, timeouts: &RouteTimeouts) {
        self.ticks.set(self.ticks.get().of_route(timeouts));
        self.of_route.set(true);
    }

    /// The request has ended: what its route had of its own holds no more.
    #[inline]
    pub(crate) fn leave_route(&self) {
        if self.of_route.replace(false) {
            let config = self.config.borrow();
            (self.ticks).set(Ticks::new(&config.timeouts, &config.limits));
        }
    }

    #[cold]
    fn take(&self, config: Arc<RequestConfig>, version: u64) {
        self.version.set(version);
        self.limits.set(config.limits);
        self.ticks.set(Ticks::new(&config.timeouts, &config.limits));
        self.looks_at_answers.set(config.looks_at_answers());
        self.log.set(config.log);
        self.keeps_recent.set(config.recent > 0);
        self.looks_at_traces.set(config.looks_at_traces());
        self.config.replace(config);
    }

    /// Grows with each change.
    pub(crate) fn version(&self) -> u64 {
        self.version.get()
    }

    #[inline]
    pub(crate) fn limits(&self) -> Limits {
        self.limits.get()
    }

    /// Most bytes of a target.
    #[inline]
    pub(crate) fn uri_bytes(&self) -> usize {
        self.limits.get().uri_bytes
    }

    /// Most bytes of a request's body, where there is a limit.
    #[inline]
    pub(crate) fn body_bytes(&self) -> Option<u64> {
        self.limits.get().body_bytes
    }

    /// What one source may take.
    #[inline]
    pub(crate) fn per_source(&self) -> SourceLimits {
        self.limits.get().per_source
    }

    /// Time-outs in ticks.
    pub(crate) fn ticks(&self) -> Ticks {
        self.ticks.get()
    }

    pub(crate) fn timeouts(&self) -> Timeouts {
        self.config.borrow().timeouts
    }

    /// Whether heads of answers are to name their node, or are logged.
    pub(crate) fn looks_at_answers(&self) -> bool {
        self.looks_at_answers.get()
    }

    pub(crate) fn names_node(&self) -> bool {
        self.config.borrow().node_header
    }

    /// The form of the access log's lines.
    pub(crate) fn log_format(&self) -> LogFormat {
        self.log.get()
    }

    /// The fields of those that are JSON.
    pub(crate) fn log_fields(&self) -> Ref<'_, LogFields> {
        Ref::map(self.config.borrow(), |config| &config.log_fields)
    }

    /// Whether the last requests are kept.
    pub(crate) fn keeps_recent(&self) -> bool {
        self.keeps_recent.get()
    }

    /// Whether something is to be done with the trace that a request belongs to.
    #[inline]
    pub(crate) fn looks_at_traces(&self) -> bool {
        self.looks_at_traces.get()
    }

    /// How often traces that are begun here are recorded, if any are begun; and which requests are traced.
    pub(crate) fn traces(&self) -> (Option<TraceSampling>, TraceConfig) {
        let config = self.config.borrow();
        (config.forwarded.traceparent, config.traces)
    }

    /// Whether clients learn by what their requests are known.
    pub(crate) fn names_requests(&self) -> bool {
        self.config.borrow().id_header
    }

    /// How many of them.
    pub(crate) fn recent(&self) -> usize {
        self.config.borrow().recent
    }

    /// What nodes learn about the client.
    pub(crate) fn forwarded(&self) -> Ref<'_, ForwardedConfig> {
        Ref::map(self.config.borrow(), |config| &config.forwarded)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn config(tries: u32, body_idle_s: u64) -> Arc<RequestConfig> {
        let mut config = RequestConfig::default();
        config.limits.tries = tries;
        config.timeouts.body_idle = Duration::from_secs(body_idle_s);
        config.forwarded.via = Some(format!("gate-{tries}"));
        config.node_header = tries > 3;
        Arc::new(config)
    }

    fn seen(settings: &Settings) -> (u32, u64, Option<String>, bool) {
        let via = settings.forwarded().via.clone();
        let ticks = settings.ticks().body_idle;
        (settings.limits().tries, ticks, via, settings.names_node())
    }

    #[test]
    fn a_connection_keeps_its_set_until_it_follows() {
        let published = ArcSwap::new(config(2, 1));
        let worker = Settings::new(published.load_full());
        let connection = Settings::copy_of(&worker);
        let before = (2, 50, Some("gate-2".into()), false);
        assert_eq!(seen(&connection), before);
        assert!(!worker.follow_published(&published));
        published.store(config(5, 2));
        assert!(worker.follow_published(&published));
        assert!(!worker.follow_published(&published), "once");
        assert_eq!(seen(&connection), before);
        connection.follow(&worker);
        assert_eq!(seen(&connection), (5, 100, Some("gate-5".into()), true));
        assert_eq!(seen(&connection), seen(&worker));
    }

    #[test]
    fn a_routes_time_outs_hold_until_its_request_ends() {
        let connection = Settings::new(config(2, 1));
        let ticks = |it: &Settings| {
            let ticks = it.ticks();
            (ticks.body_idle, ticks.response_head, ticks.total)
        };
        let before = (50, 3000, None);
        assert_eq!(ticks(&connection), before);
        connection.take_route(&RouteTimeouts {
            total: Some(Duration::from_millis(90)),
            response_head: Some(Duration::from_secs(1)),
            ..RouteTimeouts::default()
        });
        assert_eq!(ticks(&connection), (50, 50, Some(5)));
        connection.leave_route();
        assert_eq!(ticks(&connection), before);
        connection.leave_route();
        assert_eq!(ticks(&connection), before);
    }
}
