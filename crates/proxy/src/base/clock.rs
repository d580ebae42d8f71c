//! A worker's clock. Deadlines are ticks: to set one is a store, and once per tick all of them are compared.

use std::cell::Cell;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tidegate_core::picker::LONG_ANSWER;
use tidegate_core::time::{Timestamp, nanos};

use crate::config::route::RouteTimeouts;
use crate::config::{Limits, Timeouts};

/// How often deadlines are looked at. Time-outs are kept to within one of these.
pub const TICK: Duration = Duration::from_millis(20);
const TICKS_PER_SECOND: u64 = 1000 / TICK.as_millis() as u64;

/// Time-outs in ticks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticks {
    pub(crate) client_head: u64,
    pub(crate) client_idle: u64,
    pub(crate) response_head: u64,
    pub(crate) body_idle: u64,
    pub(crate) request_body: Option<u64>,
    pub(crate) response_body: Option<u64>,
    pub(crate) total: Option<u64>,
    /// Bytes of a body that buy a tick.
    pub(crate) body_bytes: u64,
    pub(crate) throttled_idle: u64,
    /// Bytes of a throttled request's bodies that buy a tick at its place.
    pub(crate) throttled_bytes: u64,
    pub(crate) tunnel_idle: u64,
    pub(crate) leaving: u64,
    pub(crate) upstream_idle: u64,
    pub(crate) linger: u64,
    /// An answer that takes longer from its head on is a long one.
    pub(crate) long_answer: u64,
}

impl Ticks {
    pub(crate) fn new(timeouts: &Timeouts, limits: &Limits) -> Self {
        Self {
            client_head: ticks(timeouts.client_head),
            client_idle: ticks(timeouts.client_idle),
            response_head: ticks(timeouts.response_head),
            body_idle: ticks(timeouts.body_idle),
            request_body: timeouts.request_body.map(ticks),
            response_body: timeouts.response_body.map(ticks),
            total: timeouts.total.map(ticks),
            body_bytes: limits.body_rate.div_ceil(TICKS_PER_SECOND),
            throttled_idle: ticks(timeouts.throttled_idle),
            throttled_bytes: limits.throttled_rate.div_ceil(TICKS_PER_SECOND),
            tunnel_idle: ticks(timeouts.tunnel_idle),
            leaving: ticks(timeouts.leaving),
            upstream_idle: ticks(timeouts.upstream_idle),
            linger: ticks(timeouts.linger),
            long_answer: ticks(LONG_ANSWER),
        }
    }

    /// The same for a request of a route that has some of its own.
    pub(crate) fn of_route(self, route: &RouteTimeouts) -> Self {
        let own = |timeout: Option<Duration>| timeout.map(ticks);
        Self {
            total: own(route.total).or(self.total),
            response_head: own(route.response_head).unwrap_or(self.response_head),
            body_idle: own(route.body_idle).unwrap_or(self.body_idle),
            request_body: own(route.request_body).or(self.request_body),
            response_body: own(route.response_body).or(self.response_body),
            tunnel_idle: own(route.tunnel_idle).unwrap_or(self.tunnel_idle),
            ..self
        }
    }
}

/// Whole ticks that are no shorter.
fn ticks(timeout: Duration) -> u64 {
    nanos(timeout).div_ceil(nanos(TICK))
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Clock {
    source: fn() -> Timestamp,
    start: Timestamp,
    tick: Cell<u64>,
    /// The Unix time at the source's zero, nanoseconds.
    unix_base: Cell<u64>,
}

impl Clock {
    pub(crate) fn new(source: fn() -> Timestamp) -> Self {
        let clock = Self {
            source,
            start: source(),
            tick: Cell::new(0),
            unix_base: Cell::new(0),
        };
        clock.set_wall_clock();
        clock
    }

    pub(crate) fn now(&self) -> Timestamp {
        (self.source)()
    }

    /// Gives the time.
    pub(crate) fn source(&self) -> fn() -> Timestamp {
        self.source
    }

    /// The present tick.
    pub(crate) fn tick(&self) -> u64 {
        self.tick.get()
    }

    /// Time has passed: the tick that it is now.
    pub(crate) fn on_tick(&self) -> u64 {
        let tick = nanos(self.now().since(self.start)) / nanos(TICK);
        self.tick.set(tick);
        self.set_wall_clock();
        tick
    }

    /// The tick at which so many ticks have passed whole.
    pub(crate) fn due(&self, ticks: u64) -> u64 {
        self.tick.get().saturating_add(ticks).saturating_add(1)
    }

    /// The Unix time of a point in time, nanoseconds.
    pub(crate) fn unix_nanos(&self, at: Timestamp) -> u64 {
        self.unix_base.get().saturating_add(at.nanos())
    }

    /// The same as a time of day.
    pub(crate) fn unix(&self, at: Timestamp) -> SystemTime {
        UNIX_EPOCH + Duration::from_nanos(self.unix_nanos(at))
    }

    /// The wall clock is set now and then; the log follows it.
    #[expect(
        clippy::disallowed_methods,
        reason = "a proxy is given one clock; only its log needs the time of day, twice a second"
    )]
    fn set_wall_clock(&self) {
        let unix = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, nanos);
        self.unix_base.set(unix.saturating_sub(self.now().nanos()));
    }
}
