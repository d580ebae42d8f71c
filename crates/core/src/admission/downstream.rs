//! A bound for what no record shows: a database, a lock, a remote service behind all servers of a
//! site.
//!
//! ```text
//! W = sum of useful / completions per second     Little's law; no latency sample is needed. One that
//!                                                comes to rest has left the servers' work, and counts as
//!                                                completed then
//! B = W of the unloaded site                     follows down in 0.2 s; up in 10 s while no limit
//!                                                binds, in 1 s while the CPUs are full
//! R           how many times longer than with room requests take, kind by kind ([`super::kinds`]);
//!             where it is known, W stands for no more than R B', and for B stands B' = B * how much dearer
//!             the mix is by now
//! D = B (1 + k)                                  k throttled requests with an account of their own are at the servers
//! long        answers take longer than half the SLO by inherent latency, see [`super::inherent_latency`]
//! T           what a request takes that waits for no other, see there: B is no less, if long or while B
//!             was never seen unloaded
//! full        CPUs 90 % busy, or most requests in flight wait for them
//! engage      CPUs not full, limits bind, and W > 2 D or, unless R < 1.5, in flight > 3 D X (or limits have
//!             bound for 0.3 s and B was never seen unloaded); if long, W > 2 D for longer than B, whether
//!             limits bind or not
//! cap         X * min(2 D, SLO / 2) in flight, X * 2 D if long; 20 ms down and 100 ms up
//! disengage   CPUs full, or no limit binds and W < 1.2 B, or R < 1.2, or W < 2 D and over two seconds less than 0.8
//!             of the cap is in flight
//! probe phase at multiples of half a second: a quarter of the cap for 8 W, 100 to 400 ms;
//!             B = W in its last two thirds, at most three times what it was; then again after
//!             0.25 s if B moved by more than a quarter, else at a multiple of 10 s
//! void        a probe phase in which not even a third went away: others were in none. It tells nothing but
//!             that they see nothing slow: this one lets go too, until the next multiple of 10 s
//! ```
//!
//! While the limit binds, time in service says nothing about the best of it: it grows with whatever
//! is let in. A probe phase shows what it would be with less. It must go down to a quarter: at a half every
//! B is a fixed point (L = 2 X B makes the phase X B, and W then B), and a front-end that starts
//! overloaded never finds out. Probe phases are at multiples of a server's clock, so that front-ends on one
//! have them together: a quarter of one of many shows nothing.
//!
//! A mix that becomes dearer raises W, and no overload is it: no kind takes longer than it did.
//!
//! In an overload the cap is in flight all the time, and W is what it allows. Where less is in flight all that come are
//! served, and the cap makes some of them wait only since they come at the same moment by chance: every third, where a
//! few at a time are enough.
//!
//! Throttled requests keep what is behind the servers full and all others slower than with room. Where it is shared
//! fairly one of the others takes up to 1 + k times as long beside k of them, however few there are: held to twice B all others
//! would end at one at a time.
//!
//! Inputs: requests in service and completions of the whole site, but for throttled ones with an account of their
//! own ([`super::control`]), CPU, time.
//!
//! Failure case: beside throttled requests that do not use what is full it lets in 1 + k times as many. Both the CPUs
//! and something behind them full at once is judged by the CPUs. One
//! server alone with something slow behind it is the policy's affair.
//!
//! Source: the admission study, "Hidden bottleneck".

use std::time::Duration;

use super::SLO_PART;
use super::ewma::weight;
use crate::time::{Timestamp, nanos};

/// Time constant of what is seen of the whole site, seconds.
const SITE_TAU_S: f64 = 0.15;
/// Time constants of the base: down, up while no limit binds, up while the CPUs are full.
const BASE_DOWN: f64 = 0.2;
const BASE_UP: f64 = 10.0;
const BASE_UP_FULL: f64 = 1.0;
/// Busy part of the CPUs, 0 to 1, from which on they, and nothing behind them, limit the site.
pub(super) const CPU_FULL_SHARE: f64 = 0.9;
/// Most requests wait for the CPUs if fewer than this part is at work.
const AT_WORK: f64 = 0.5;
/// It engages where service takes so many times the base, or so much is in flight.
const SLOW: f64 = 2.0;
const CROWDED: f64 = 3.0;
/// The latter, and what was never seen unloaded, only where requests take so many times longer than with room,
/// if that is known.
const SLOW_BY_KIND: f64 = 1.5;
/// And lets go below this.
pub(super) const WELL: f64 = 1.2;
/// Or where so much of the cap is in flight at the most, over this time constant, seconds, and it would not engage.
const CAP_USED_MAX: f64 = 0.8;
const CAP_USED_TAU_S: f64 = 2.0;
/// Time constants of the cap.
const CAP_DOWN: f64 = 0.02;
const CAP_UP: f64 = 0.1;
/// Little's law is believed once so many have ended for each one in flight.
const ENDED_ENOUGH: f64 = 0.5;
/// A probe phase's part of the cap, its length in times of service, and its bounds.
const PROBE_SHARE: f64 = 0.25;
const PROBE_SERVICES: f64 = 8.0;
const PROBE_MIN: f64 = 0.1;
const PROBE_MAX: f64 = 0.4;
/// Means are of enough time from this part of the time constant on.
const KNOWN: f64 = 0.8;
/// What has lasted for so long is no chance, seconds: means are then of that time.
const LASTING: f64 = 2.0 * SITE_TAU_S;
/// Probe phases begin at multiples of this.
const PROBE_GRID: Duration = Duration::from_millis(500);
const PROBE_SOON: Duration = Duration::from_millis(250);
const PROBE_LATER: Duration = Duration::from_secs(10);
/// In a probe phase no more than this part may be left of what was in flight before.
const LEFT_MAX: f64 = 2.0 / 3.0;
/// A base that moved by more than this part is not known yet.
const MOVED: f64 = 0.25;
/// Most that a probe phase raises the base.
const RAISED_MAX: f64 = 3.0;

/// What is seen of the whole site at a tick.
#[derive(Clone, Copy, Debug)]
pub(super) struct SiteSeen {
    /// Seconds since the last tick.
    pub(super) dt: f64,
    /// Requests in flight.
    pub(super) in_flight: f64,
    /// Beside these, throttled ones with an account of their own.
    pub(super) throttled: f64,
    /// Those that wait neither for a CPU nor for a worker.
    pub(super) useful: f64,
    /// Requests that ended since the last tick.
    pub(super) ended: f64,
    /// Used share of the CPUs.
    pub(super) utilization: f64,
    /// Whether limits keep requests away.
    pub(super) binds: bool,
    /// Sum of the servers' own limits.
    pub(super) limits: f64,
    /// Answers are wanted within, seconds.
    pub(super) slo: f64,
    /// Whether they take longer by inherent latency.
    pub(super) inherently_long: bool,
    /// How long one takes that waits for no other, seconds; zero if that is not known.
    pub(super) alone: f64,
    /// Whether all this is what several front-ends do together.
    pub(super) together: bool,
    /// How many times longer than with room requests take, kind by kind, and how long one of the present
    /// mix takes with room, seconds; none if that is not known.
    pub(super) slowdown: Option<f64>,
    pub(super) mix: Option<f64>,
}

/// How much of the cap is in flight while it holds requests back, but for probe phases.
#[derive(Clone, Copy, Debug, Default)]
struct CapUsed {
    /// Of the last seconds, fading: time, time of requests in flight, time of the cap.
    time: f64,
    present: f64,
    cap: f64,
}

impl CapUsed {
    fn add(&mut self, dt: f64, in_flight: f64, cap: f64) {
        let kept = 1.0 - weight(dt, CAP_USED_TAU_S);
        self.time = self.time * kept + dt;
        self.present = self.present * kept + in_flight * dt;
        self.cap = self.cap * kept + cap * dt;
    }

    /// Whether the cap holds back none but those that come at the same moment by chance.
    fn is_met(&self) -> bool {
        self.time >= KNOWN * CAP_USED_TAU_S && self.present < CAP_USED_MAX * self.cap
    }
}

#[derive(Clone, Copy, Debug)]
struct ProbePhase {
    from: Timestamp,
    until: Timestamp,
    together: bool,
    /// What was in flight when it began.
    before: f64,
    time: f64,
    present: f64,
    useful: f64,
    ended: f64,
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Downstream {
    /// Of the last moments, fading: time, time of requests in service, requests that ended, CPU,
    /// time of requests in flight.
    /// Their ratios are right from the first tick on, as means that begin with it are not.
    time: f64,
    served: f64,
    ended: f64,
    busy: f64,
    present: f64,
    /// Time of throttled requests with an account of their own.
    throttled: f64,
    /// Requests in flight now.
    in_flight: f64,
    base: Option<f64>,
    /// How dear the mix was of which the base is.
    base_mix: Option<f64>,
    /// Whether the base is of a site whose limits did not bind for a while, or of a probe phase.
    unloaded: bool,
    /// For how long no limit has bound, or some have, seconds.
    calm: f64,
    tight: f64,
    /// For how long service has been slow, seconds.
    slow: f64,
    engaged: bool,
    cap: f64,
    used: CapUsed,
    /// How dear the mix is.
    mix: Option<f64>,
    /// No request is served faster than this, seconds: what one takes that waits for no other, while nothing
    /// better is known.
    alone: f64,
    probe: Option<ProbePhase>,
    next_probe: Timestamp,
    /// After a probe phase alone it does not engage for a while.
    void_until: Timestamp,
    /// Time since the last probe phase, seconds: what is seen just after one is of that phase.
    after_probe: f64,
}

impl Default for Downstream {
    fn default() -> Self {
        Self {
            time: 0.0,
            served: 0.0,
            ended: 0.0,
            busy: 0.0,
            present: 0.0,
            throttled: 0.0,
            in_flight: 0.0,
            base: None,
            base_mix: None,
            unloaded: false,
            calm: 0.0,
            tight: 0.0,
            slow: 0.0,
            engaged: false,
            cap: f64::INFINITY,
            used: CapUsed::default(),
            mix: None,
            alone: 0.0,
            probe: None,
            next_probe: Timestamp::ZERO,
            void_until: Timestamp::ZERO,
            after_probe: LASTING,
        }
    }
}

impl Downstream {
    /// B of the unloaded site, for the next process; none before it was seen unloaded.
    pub(super) fn unloaded_base(&self) -> Option<f64> {
        self.base.filter(|_| self.unloaded)
    }

    /// It was seen unloaded before, and that was its B.
    pub(super) fn recall(&mut self, base: f64) {
        (self.base, self.unloaded) = (Some(base), true);
    }

    /// Time in service, seconds; zero if not known.
    pub(super) fn residence(&self) -> f64 {
        match self.ended > 0.0 {
            true => self.served / self.ended,
            false => 0.0,
        }
    }

    /// Time at the servers, seconds, waiting for them included; zero if it is unknown. Where few requests
    /// have ended beside those in flight, as in a burst's first moments or while all are downloads, it is
    /// the least that it can be: each of those as if it ended now.
    pub(super) fn sojourn(&self) -> f64 {
        let ended = match self.ended >= ENDED_ENOUGH * self.in_flight {
            true => self.ended,
            false => self.ended + self.in_flight,
        };
        match ended > 0.0 {
            true => self.present / ended,
            false => 0.0,
        }
    }

    /// Requests that end per second.
    fn completions(&self) -> f64 {
        match self.time > 0.0 {
            true => self.ended / self.time,
            false => 0.0,
        }
    }

    /// How many times longer a request may take beside throttled ones, which share what is behind the servers with it,
    /// whatever is held back.
    fn beside_throttled(&self) -> f64 {
        match self.time > 0.0 {
            true => 1.0 + self.throttled / self.time,
            false => 1.0,
        }
    }

    /// Whether requests wait for the CPUs, over the last moments: because those are full, or, under
    /// a quota of less than one, held back.
    fn is_full(&self) -> bool {
        self.busy >= CPU_FULL_SHARE * self.time || self.served < AT_WORK * self.present
    }

    /// Time in service at an unloaded site, if it was ever seen.
    #[cfg(test)]
    pub(super) fn base(&self) -> Option<f64> {
        self.base
    }

    /// Time in service as a site of one kind would have it, and its base: a dearer mix is no longer service.
    pub(super) fn by_kinds(&self, slowdown: Option<f64>, mix: Option<f64>) -> (f64, Option<f64>) {
        let residence = self.residence();
        let base = self.base.map(|base| base.max(self.alone));
        // Then kinds are slower by waiting for the CPUs, which is no matter of what lies behind.
        if self.is_full() {
            return (residence, base);
        }
        let (Some(slowdown), Some(mix), Some(known)) = (slowdown, mix, base) else {
            return (residence, base);
        };
        let dearer = self.base_mix.map_or(1.0, |of_base| mix / of_base);
        let base = known * dearer.max(1.0);
        (residence.min(slowdown * base), Some(base))
    }

    /// Whether it holds requests back, and whether in a probe phase.
    pub(super) fn state(&self) -> (bool, bool) {
        (self.engaged, self.probe.is_some())
    }

    /// Takes in a tick; the most that may be in flight at the site, if it has an opinion.
    pub(super) fn on_tick(&mut self, seen: &SiteSeen, now: Timestamp) -> Option<f64> {
        if seen.dt <= 0.0 {
            return self.answer();
        }
        self.mix = seen.mix;
        let kept = (-seen.dt / SITE_TAU_S).exp();
        self.time = self.time * kept + seen.dt;
        self.served = self.served * kept + seen.useful * seen.dt;
        self.ended = self.ended * kept + seen.ended;
        self.busy = self.busy * kept + seen.utilization * seen.dt;
        self.present = self.present * kept + seen.in_flight * seen.dt;
        self.throttled = self.throttled * kept + seen.throttled * seen.dt;
        self.in_flight = seen.in_flight;
        if let Some(probe) = &mut self.probe {
            // The first third is for what was let in before it.
            let length = probe.until.since(probe.from);
            if now.since(probe.from) * 3 > length {
                probe.time += seen.dt;
                probe.present += seen.in_flight * seen.dt;
                probe.useful += seen.useful * seen.dt;
                probe.ended += seen.ended;
            }
            if !(probe.from..probe.until).contains(&now) {
                self.end_probe(now);
            }
            return self.answer();
        }
        self.after_probe += seen.dt;
        self.note_binding(seen);
        self.follow_base(seen);
        self.alone = match seen.inherently_long || !self.unloaded {
            true => seen.alone,
            false => 0.0,
        };
        self.engage(seen, now);
        if self.engaged {
            self.follow_cap(seen);
            // A clock that was set leaves no wait for it.
            if now >= self.next_probe || self.next_probe.since(now) > 2 * PROBE_LATER {
                let length = (PROBE_SERVICES * self.residence()).clamp(PROBE_MIN, PROBE_MAX);
                self.probe = Some(ProbePhase {
                    from: now,
                    until: now + Duration::from_secs_f64(length),
                    together: seen.together,
                    before: seen.in_flight,
                    time: 0.0,
                    present: 0.0,
                    useful: 0.0,
                    ended: 0.0,
                });
            }
        }
        self.answer()
    }

    fn answer(&self) -> Option<f64> {
        let share = if self.probe.is_some() {
            PROBE_SHARE
        } else {
            1.0
        };
        self.engaged.then_some(self.cap * share)
    }

    /// For how long limits have bound, or have not; nothing counts before something was served.
    fn note_binding(&mut self, seen: &SiteSeen) {
        if self.residence() <= 0.0 {
            return;
        }
        (self.calm, self.tight) = match seen.binds {
            true => (0.0, self.tight + seen.dt),
            false => (self.calm + seen.dt, 0.0),
        };
        self.unloaded |= self.calm >= LASTING;
    }

    fn follow_base(&mut self, seen: &SiteSeen) {
        let residence = self.residence();
        if residence <= 0.0 {
            return;
        }
        let base = *self.base.get_or_insert(residence);
        // The first requests' time is not all known yet.
        let tau = if residence < base || self.time < KNOWN * SITE_TAU_S {
            BASE_DOWN
        } else if !seen.binds {
            BASE_UP
        } else if self.is_full() {
            BASE_UP_FULL
        } else {
            return;
        };
        let part = weight(seen.dt, tau);
        self.base = Some(base + (residence - base) * part);
        if let Some(mix) = seen.mix {
            let before = self.base_mix.unwrap_or(mix);
            self.base_mix = Some(before + (mix - before) * part);
        }
    }

    fn engage(&mut self, seen: &SiteSeen, now: Timestamp) {
        let (residence, Some(base)) = self.by_kinds(seen.slowdown, seen.mix) else {
            return;
        };
        let shared = base * self.beside_throttled();
        let full = self.is_full();
        if self.engaged {
            let settled = self.after_probe >= LASTING;
            let unhurt = seen.slowdown.is_some_and(|slowdown| slowdown < WELL);
            let fast = !seen.binds && residence < WELL * base;
            self.used.add(seen.dt, seen.in_flight, self.cap);
            let met = residence < SLOW * shared && self.used.is_met();
            let well = settled && (unhurt || fast || met);
            self.engaged = !(full || well);
            return;
        }
        // The first requests' time is not all known yet; or others have seen nothing slow.
        let early = self.time < KNOWN * SITE_TAU_S;
        let held_off = now < self.void_until && self.void_until.since(now) <= PROBE_LATER;
        if early || held_off {
            return;
        }
        let slow = residence > SLOW * shared;
        self.slow = if slow { self.slow + seen.dt } else { 0.0 };
        if seen.inherently_long {
            // While the load grows, fewer end than will: their time seems longer for as long as it is.
            if !full && self.slow > base {
                self.begin(seen, now);
            }
            return;
        }
        let unhurt = seen
            .slowdown
            .is_some_and(|slowdown| slowdown < SLOW_BY_KIND);
        let crowded = seen.in_flight > CROWDED * shared * self.completions();
        let unknown = !self.unloaded && self.tight >= LASTING;
        if !full && seen.binds && (slow || !unhurt && (crowded || unknown)) {
            self.begin(seen, now);
        }
    }

    fn begin(&mut self, seen: &SiteSeen, now: Timestamp) {
        self.engaged = true;
        self.used = CapUsed::default();
        self.cap = seen.limits.min(seen.in_flight.max(1.0));
        // A front-end that has found out of late knows.
        self.next_probe = self.next_probe.max(next(now, PROBE_GRID));
    }

    fn follow_cap(&mut self, seen: &SiteSeen) {
        let (_, Some(base)) = self.by_kinds(seen.slowdown, seen.mix) else {
            return;
        };
        let base = base * self.beside_throttled();
        let time = match seen.inherently_long {
            true => SLOW * base,
            false => (SLOW * base).min(SLO_PART * seen.slo),
        };
        let target = self.completions() * time;
        let target = target.max(1.0);
        let tau = if target < self.cap { CAP_DOWN } else { CAP_UP };
        self.cap += (target - self.cap) * weight(seen.dt, tau);
    }

    fn end_probe(&mut self, now: Timestamp) {
        let Some(probe) = self.probe.take() else {
            return;
        };
        self.after_probe = 0.0;
        let before = self.base.unwrap_or(f64::INFINITY);
        let seen = probe.useful / probe.ended;
        if !(seen.is_finite() && seen > 0.0) {
            // Nothing ended in it: it was too short to tell.
            self.next_probe = next(now + PROBE_SOON, PROBE_GRID);
            return;
        }
        if probe.together && probe.present > LEFT_MAX * probe.before * probe.time {
            // The others see nothing that would be slow; when they do, all have their probe phase at such a multiple.
            self.engaged = false;
            self.next_probe = next(now, PROBE_LATER);
            self.void_until = self.next_probe;
            return;
        }
        let base = seen.min(RAISED_MAX * before);
        self.base = Some(base);
        self.base_mix = self.mix.or(self.base_mix);
        self.unloaded = true;
        let moved = (base / before - 1.0).abs() > MOVED;
        self.next_probe = match moved {
            true => next(now + PROBE_SOON, PROBE_GRID),
            false => next(now + PROBE_LATER / 2, PROBE_LATER),
        };
    }
}

/// The next multiple of `grid`.
fn next(now: Timestamp, grid: Duration) -> Timestamp {
    let grid = nanos(grid);
    Timestamp::from_nanos(now.nanos().div_ceil(grid) * grid)
}

#[cfg(test)]
mod tests;
