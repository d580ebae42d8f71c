//! How often nodes' loads are read, and how often the director thinks: as often as decisions can use, and no more.
//!
//! ```text
//! worth = max(S / 8, P P / S), P = 1 ms
//!                         a record that is S / 16 old on average has lost 3 % of its weight in `auto`, exp(-age / 2S);
//!                         where S is shorter than P, by S / P of the decisions at best is a record still of use
//! apart = 1 / lambda      of the reads between two decisions, of whatever site, only the last is of use
//! need  = max(worth, apart), 50 ms at most    of a site with requests; 0 while it is pressed
//! read  = clamp(least need of all sites, shortest, 100 ms)
//! tick  = 1 ms while pressed, else clamp(least need, 20 ms, 100 ms); 200 ms where no site has requests;
//!         not longer than a quarter of a check's interval, nor than 50 ms while a node is probed
//! ```
//!
//! What the director learns changes slowly beside a request; what does not, waiting and failing requests, ends its sleep.
//!
//! A site is pressed while requests of it wait, and for a second after one has found no room, or limits were near: then
//! admission goes by each millisecond.
//!
//! Inputs: of each site the mean service time S and its own requests per second, whose sum is lambda, as learned (`learn`), requests
//! that wait and that found no room; the shortest time between two reads that is wanted.
//!
//! Failure case: the first requests after silence go by records that are up to 100 ms old, and so does a front-end with few
//! requests among many others: what those have sent since is expected, not known (g in `learn`).
//! Source: how a record loses its weight in `policy::auto`; what it saves is measured, `docs/measurements.md`, what older records cost is not.

use std::time::Duration;

use crate::time::Timestamp;

/// Without requests nodes are read this often: what is known of them stays fresh, and their health is seen.
pub const HEARTBEAT: Duration = Duration::from_millis(100);
/// The director ticks no more often than this.
pub const TICK_MIN: Duration = Duration::from_millis(1);
/// Where no site is pressed it ticks this often at most.
const TICK_CALM: Duration = Duration::from_millis(20);
/// Where no site has requests; the first one ends its sleep.
const TICK_SILENT: Duration = Duration::from_millis(200);
/// While there are requests nodes are read this often at least: what classes of them use is worked out by steps of as much.
const STEP: Duration = Duration::from_millis(50);
/// Reads in a mean service time.
const READS_PER_SERVICE: f64 = 8.0;
/// A site is pressed for so long after a request found no room.
const PRESSED: Duration = Duration::from_secs(1);
/// P, seconds: reads of requests that are shorter follow the part of decisions that a record is of use for.
const SHORT: f64 = 1e-3;
/// Fewer own requests per second are none.
const RATE_MIN: f64 = 0.1;

/// How often to read and to think.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Time between two reads of a node.
    pub read: Duration,
    /// Time until the director's next tick.
    pub tick: Duration,
}

impl Pace {
    /// As often as ever.
    pub const fn constant(shortest: Duration) -> Self {
        Self {
            read: shortest,
            tick: TICK_MIN,
        }
    }

    /// The same with ticks that are no farther apart than this.
    #[must_use]
    pub(super) fn ticking(self, most: Duration) -> Self {
        Self {
            tick: self.tick.min(most).max(TICK_MIN),
            ..self
        }
    }
}

/// What a site is like at a tick.
#[derive(Clone, Copy, Debug)]
pub(super) struct SiteNeed {
    /// Mean service time, seconds.
    pub(super) service: f64,
    /// Own requests per second.
    pub(super) arrivals: f64,
    /// Requests wait, or limits are near.
    pub(super) is_full: bool,
    /// Requests that found no room so far.
    pub(super) no_room: u64,
}

/// What is remembered of a site.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SitePace {
    no_room: u64,
    pressed_at: Option<Timestamp>,
}

impl SitePace {
    /// How often the site needs its nodes read where so many requests a second come to all; none while it has none.
    pub(super) fn need(
        &mut self,
        site: &SiteNeed,
        lambda: f64,
        now: Timestamp,
    ) -> Option<Duration> {
        let more = std::mem::replace(&mut self.no_room, site.no_room) != site.no_room;
        if site.is_full || more {
            self.pressed_at = Some(now);
        }
        if self.pressed_at.is_some_and(|at| now.since(at) < PRESSED) {
            return Some(Duration::ZERO);
        }
        if site.arrivals < RATE_MIN {
            return None;
        }
        let worth = (site.service / READS_PER_SERVICE).max(SHORT * SHORT / site.service);
        let need = worth.max(1.0 / lambda);
        // What is no time is none.
        Some(Duration::try_from_secs_f64(need).map_or(STEP, |it| it.min(STEP)))
    }
}

/// The pace of a front-end whose sites need this.
pub(super) fn pace(needs: impl Iterator<Item = Duration>, shortest: Duration) -> Pace {
    let need = needs.min();
    // Nothing is read more often than is wanted, however seldom that is.
    let read = need.unwrap_or(HEARTBEAT).min(HEARTBEAT).max(shortest);
    let tick = match need {
        None => TICK_SILENT,
        Some(Duration::ZERO) => TICK_MIN,
        Some(need) => need.clamp(TICK_CALM, HEARTBEAT),
    };
    Pace { read, tick }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn site(service_ms: f64, arrivals: f64) -> SiteNeed {
        SiteNeed {
            service: service_ms * 1e-3,
            arrivals,
            is_full: false,
            no_room: 0,
        }
    }

    fn need(site: &SiteNeed) -> Option<Duration> {
        SitePace::default().need(site, site.arrivals, Timestamp::from_millis(5000))
    }

    #[test]
    fn in_silence_only_the_heartbeat_is_left() {
        assert_eq!(need(&site(10.0, 0.0)), None);
        assert_eq!(need(&site(10.0, 0.01)), None);
        let silent = pace([].into_iter(), MS);
        assert_eq!((silent.read, silent.tick), (HEARTBEAT, TICK_SILENT));
        assert_eq!(silent.ticking(25 * MS).tick, 25 * MS);
        assert_eq!(silent.ticking(Duration::ZERO).tick, TICK_MIN);
        assert_eq!(silent.ticking(Duration::from_secs(1)), silent);
    }

    #[test]
    fn a_site_is_read_as_often_as_its_requests_are_short_and_many() {
        for (service_ms, arrivals, wanted) in [
            // Reads between two requests are of no use.
            (10.0, 20.0, 50.0),
            (10.0, 100.0, 10.0),
            // Nor is a record that is young beside a request.
            (10.0, 10_000.0, 1.25),
            (80.0, 10_000.0, 10.0),
            (2.0, 4_000.0, 0.5),
            // Of requests that are over before the next read it serves few.
            (1.0, 10_000.0, 1.0),
            (0.1, 10_000.0, 10.0),
            (0.0, 10_000.0, 50.0),
            (10.0, 1.0, 50.0),
            (60_000.0, 1e9, 50.0),
        ] {
            let wanted = Duration::from_secs_f64(wanted * 1e-3);
            assert_eq!(need(&site(service_ms, arrivals)), Some(wanted));
        }
        // Requests of other sites make reads useful for this one as well.
        let now = Timestamp::from_millis(5000);
        let beside = SitePace::default().need(&site(10.0, 20.0), 200.0, now);
        assert_eq!(beside, Some(5 * MS));
        assert_eq!(need(&site(f64::NAN, 100.0)), Some(10 * MS));
        assert_eq!(need(&site(10.0, f64::NAN)), Some(MS * 5 / 4));
    }

    #[test]
    fn the_site_with_the_greatest_need_sets_the_pace_within_what_is_wanted() {
        let of = |needs: &[u32], shortest| pace(needs.iter().map(|it| MS * *it / 4), shortest);
        let fast = Pace {
            read: 2 * MS,
            tick: TICK_CALM,
        };
        assert_eq!(of(&[200, 8, 400], MS), fast);
        assert_eq!(of(&[160], MS).tick, 40 * MS);
        assert_eq!(of(&[1], MS).read, MS);
        assert_eq!(of(&[0], MS), Pace::constant(MS));
        // Seldom by choice: the director still thinks as often as there is need.
        let seldom = of(&[0], 500 * MS);
        assert_eq!((seldom.read, seldom.tick), (500 * MS, TICK_MIN));
        assert_eq!(pace([].into_iter(), 500 * MS).read, 500 * MS);
    }

    #[test]
    fn a_pressed_site_is_read_as_often_as_can_be_for_a_second() {
        let mut memory = SitePace::default();
        let at = Timestamp::from_millis;
        let calm = site(10.0, 100.0);
        let refused = SiteNeed { no_room: 3, ..calm };
        assert_eq!(memory.need(&calm, 100.0, at(5000)), Some(10 * MS));
        assert_eq!(memory.need(&refused, 100.0, at(5010)), Some(Duration::ZERO));
        assert_eq!(memory.need(&refused, 100.0, at(6009)), Some(Duration::ZERO));
        assert_eq!(memory.need(&refused, 100.0, at(6010)), Some(10 * MS));
        let full = SiteNeed {
            is_full: true,
            ..refused
        };
        assert_eq!(memory.need(&full, 100.0, at(6020)), Some(Duration::ZERO));
        assert_eq!(
            memory.need(&site(10.0, 0.0), 0.0, at(6030)),
            Some(Duration::ZERO)
        );
    }
}
