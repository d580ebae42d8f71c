//! The adaptive controller of one site: from records and own counts to a limit of own requests in
//! flight at each server.
//!
//! ```text
//! record fresh     L by the server's own bound ([`super::bound`]); of it a front-end takes its share
//! record too old   the same with a wider bound (more than two of its intervals, 5 ms at least)
//! no record        by own latency ([`super::own_latency`])
//! then             capped by Little's law at half the SLO where the CPUs are full and answers
//!                  are slow all the same (a queue that no record shows)
//! then             all together capped by what lies behind the servers ([`super::hidden`])
//! share            1 / front-ends, and what CPUs have nothing to do; a fraction of a request is a
//!                  whole one for that part of the time, decided anew each 20 ms
//! ```
//!
//! Inputs: the load table, the site's candidates, the number of front-ends, time. Called once a
//! tick by the director.
//!
//! Failure case: front-ends with unequal demand; the shares of the idle ones are lost.
//!
//! Source: the admission study, "Specification".

use std::time::Duration;

use super::bound::{Bound, Pressure, Seen};
use super::ewma::Ewma;
use super::hidden::{Hidden, SiteSeen};
use super::own_latency::OwnLatency;
use crate::load::{LoadTable, NodeLoad, OwnTraffic};
use crate::prng::Prng;
use crate::time::Timestamp;
use crate::topology::{NodeId, SiteId};

/// A record older than this, and than two intervals, is not acted upon at once.
const STALE: Duration = Duration::from_millis(5);
/// Older than this and than four intervals it is none.
const LOST: Duration = Duration::from_secs(1);
/// A limit binds for so long after a request found no room.
const BINDS: Duration = Duration::from_millis(20);
/// Or while so much of it is in flight.
const NEAR: f64 = 0.9;
/// Part of the SLO that a request may spend at a server whose CPUs are full.
const SLO_PART: f64 = 0.5;
/// CPUs count as full from here.
const FULL: f64 = 0.9;
/// Time constant of a server's completions, seconds.
const TAU: f64 = 0.15;
/// So many front-ends may each use what idle CPUs there are; more of them less.
const FEW: f64 = 4.0;
/// The coin for a fraction of a request is thrown this often.
const COIN: Duration = Duration::from_millis(20);

/// What is known of one server.
#[derive(Clone, Debug)]
struct Server {
    node: NodeId,
    /// While records tell of it.
    bound: Option<Bound>,
    /// While none does.
    latency: Option<OwnLatency>,
    /// The record that was taken in last.
    observed_at: Timestamp,
    own: OwnTraffic,
    completions: Ewma,
    /// Below this part of the time a fraction counts as a whole request.
    coin: f64,
    /// What the last tick decided.
    limit: f64,
    /// CPUs without work.
    idle: f64,
}

/// Why a limit is what it is, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitBy {
    /// The server's run queue and accept queue.
    Record,
    /// The same, from an old record.
    OldRecord,
    /// Own latency: no record.
    Latency,
    /// Something behind the servers.
    Hidden,
    /// The same, while it is measured with less.
    Dip,
}

impl LimitBy {
    /// Every reason, with what it means.
    pub const ALL: &'static [(Self, &'static str)] = &[
        (Self::Record, "by the servers' run queues and accept queues"),
        (
            Self::OldRecord,
            "by the servers' last records, which are old",
        ),
        (
            Self::Latency,
            "by how long answers take: there are no load records",
        ),
        (
            Self::Hidden,
            "by how long answers take while the CPUs have time: something behind the servers is slow",
        ),
        (
            Self::Dip,
            "to a quarter, for a moment, to see how fast what lies behind the servers can be",
        ),
    ];

    /// What it means.
    pub fn what(self) -> &'static str {
        let mut all = Self::ALL.iter();
        all.find(|it| it.0 == self).map_or("", |it| it.1)
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Control {
    slo: f64,
    servers: Vec<Server>,
    hidden: Hidden,
    ticked_at: Option<Timestamp>,
    thrown_at: Timestamp,
    wanting: u64,
    wanting_at: Option<Timestamp>,
    completions: Ewma,
    by: LimitBy,
}

/// What a tick adds up over the servers.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    in_flight: f64,
    useful: f64,
    ended: f64,
    busy: f64,
    capacity: f64,
    limits: f64,
    /// Servers whose record is fresh.
    fresh: usize,
}

impl Control {
    /// Of a site whose answers are wanted within `slo`.
    pub fn new(slo: Duration) -> Self {
        Self {
            slo: slo.as_secs_f64(),
            servers: Vec::new(),
            hidden: Hidden::default(),
            ticked_at: None,
            thrown_at: Timestamp::ZERO,
            wanting: 0,
            wanting_at: None,
            completions: Ewma::new(TAU),
            by: LimitBy::Record,
        }
    }

    /// Who set the limits.
    pub fn by(&self) -> LimitBy {
        self.by
    }

    /// Own requests that end per second.
    pub fn completions(&self) -> f64 {
        self.completions.value()
    }

    /// Looks at the table, decides, and publishes a limit for each candidate.
    pub fn on_tick(
        &mut self,
        (site, candidates): (SiteId, &[NodeId]),
        table: &LoadTable,
        front_ends: u32,
        now: Timestamp,
        prng: &mut Prng,
    ) {
        let Some(before) = self.ticked_at.replace(now) else {
            self.keep(candidates, table);
            return;
        };
        let dt = now.seconds_since(before);
        if dt <= 0.0 {
            return;
        }
        self.keep(candidates, table);
        let share = 1.0 / f64::from(front_ends.max(1));
        let binds = self.binds(site, table, now);
        self.throw(now, prng);
        let mut sum = Sum::default();
        self.by = LimitBy::Latency;
        for index in 0..self.servers.len() {
            let pressure = Pressure {
                binds: binds || self.is_near(index, table, share),
                residence: self.hidden.residence(),
                base: self.hidden.base(),
                slo: self.slo,
            };
            self.server(index, table, (share, dt), &pressure, now, &mut sum);
        }
        self.completions.add(sum.ended / dt, dt);
        let near = sum.in_flight >= NEAR * sum.limits;
        let seen = SiteSeen {
            dt,
            in_flight: sum.in_flight,
            useful: sum.useful,
            ended: sum.ended,
            utilization: sum.busy / sum.capacity,
            binds: binds || near,
            limits: sum.limits,
            slo: self.slo,
        };
        // What lies behind the servers cannot be told from them by old records.
        let all_fresh = sum.fresh == self.servers.len();
        let cap = match all_fresh {
            true => self.hidden.on_tick(&seen, now),
            false => None,
        };
        let scale = cap.map_or(1.0, |cap| (cap / sum.limits).min(1.0));
        if scale < 1.0 {
            self.by = match self.hidden.state() {
                (_, true) => LimitBy::Dip,
                _ => LimitBy::Hidden,
            };
        }
        for server in &self.servers {
            // Nobody's share is kept from whoever could use it.
            let idle = match share < 1.0 && scale >= 1.0 {
                true => server.idle * (FEW * share).min(1.0),
                false => 0.0,
            };
            let own = whole(server.limit * scale * share + idle, server.coin);
            // A server that tells nothing by itself must be asked to be known.
            let least = if server.tells() { 0.0 } else { 1.0 };
            table.set_limit(server.node, own.max(least) as f32);
        }
        table.set_limited_by(site, self.by);
    }

    /// Keeps what is known of servers that stay, and no others.
    fn keep(&mut self, candidates: &[NodeId], table: &LoadTable) {
        let same = self
            .servers
            .iter()
            .map(|it| it.node)
            .eq(candidates.iter().copied());
        if same {
            return;
        }
        let mut known = std::mem::take(&mut self.servers);
        let server = |node: &NodeId| {
            let place = known.iter().position(|it| it.node == *node);
            match place {
                Some(place) => known.swap_remove(place),
                None => Server::new(*node, table),
            }
        };
        self.servers = candidates.iter().map(server).collect();
        // Whoever is no candidate any more has no limit.
        for gone in known {
            table.set_limit(gone.node, f32::INFINITY);
        }
    }

    /// Whether a request found no room of late.
    fn binds(&mut self, site: SiteId, table: &LoadTable, now: Timestamp) -> bool {
        let wanting = table.found_no_room(site);
        if wanting != self.wanting {
            self.wanting = wanting;
            self.wanting_at = Some(now);
        }
        self.wanting_at.is_some_and(|at| now.since(at) <= BINDS)
    }

    fn is_near(&self, index: usize, table: &LoadTable, share: f64) -> bool {
        let server = &self.servers[index];
        table.in_flight(server.node) as f64 >= NEAR * server.limit * share
    }

    fn throw(&mut self, now: Timestamp, prng: &mut Prng) {
        if now.since(self.thrown_at) >= COIN {
            self.thrown_at = now;
            for server in &mut self.servers {
                server.coin = prng.unit();
            }
        }
    }

    /// Looks at one server and adds it to the sum.
    fn server(
        &mut self,
        index: usize,
        table: &LoadTable,
        (share, dt): (f64, f64),
        pressure: &Pressure,
        now: Timestamp,
        sum: &mut Sum,
    ) {
        let server = &mut self.servers[index];
        let own = table.own(server.node);
        let ended = own.completed.wrapping_sub(server.own.completed) as f64;
        server.own = own;
        server.completions.add(ended / dt, dt);
        let in_flight = own.in_flight() as f64;
        let load = table.last(server.node);
        let useful = match Age::of(&load, now) {
            Age::None => {
                server.by_latency((dt, in_flight, ended), share, pressure, now);
                in_flight
            }
            age @ (Age::Fresh | Age::Old) => {
                let capacity = f64::from(load.capacity);
                let little = server.completions.value() / share * SLO_PART * pressure.slo;
                let bound = server.by_record(&load, (dt, in_flight / share), age, pressure);
                let slow = little > 0.0 && in_flight / share > little;
                let (busy, at_work) = (bound.busy(), bound.at_work());
                if slow && pressure.binds && busy > FULL * capacity {
                    bound.cap(little, capacity);
                }
                let (limit, idle) = (bound.limit(), bound.idle(capacity));
                (server.limit, server.idle) = (limit, idle);
                sum.busy += busy;
                sum.capacity += capacity;
                sum.fresh += usize::from(age == Age::Fresh);
                self.by = match age {
                    Age::Old => LimitBy::OldRecord,
                    Age::Fresh | Age::None => LimitBy::Record,
                };
                in_flight * at_work
            }
        };
        sum.useful += useful;
        sum.in_flight += in_flight;
        sum.ended += ended;
        sum.limits += self.servers[index].limit * share;
    }
}

impl Server {
    fn new(node: NodeId, table: &LoadTable) -> Self {
        Self {
            node,
            bound: None,
            latency: None,
            observed_at: Timestamp::ZERO,
            own: table.own(node),
            completions: Ewma::new(TAU),
            coin: 0.5,
            limit: f64::INFINITY,
            idle: 0.0,
        }
    }

    /// Whether a record tells of it.
    fn tells(&self) -> bool {
        self.bound.is_some()
    }

    /// The law for a server that tells nothing speaks of own requests; the share is taken off
    /// again.
    fn by_latency(
        &mut self,
        seen: (f64, f64, f64),
        share: f64,
        pressure: &Pressure,
        now: Timestamp,
    ) {
        self.bound = None;
        self.idle = 0.0;
        let before = self.limit * share;
        let law = self
            .latency
            .get_or_insert_with(|| match before.is_finite() {
                true => OwnLatency::from_limit(before),
                false => OwnLatency::default(),
            });
        law.on_tick(seen, pressure.binds, pressure.slo, now);
        self.limit = law.limit() / share;
    }

    /// The law for a server with a record; `in_flight` counts for all front-ends.
    fn by_record(
        &mut self,
        load: &NodeLoad,
        (dt, in_flight): (f64, f64),
        age: Age,
        pressure: &Pressure,
    ) -> &mut Bound {
        self.latency = None;
        let bound = self
            .bound
            .get_or_insert_with(|| Bound::new(load.capacity.into()));
        if load.observed_at > self.observed_at {
            let since = match self.observed_at {
                Timestamp::ZERO => dt,
                before => load.observed_at.seconds_since(before),
            };
            self.observed_at = load.observed_at;
            let all = match load.in_flight.is_finite() {
                true => f64::from(load.in_flight),
                false => in_flight,
            };
            bound.on_record(&seen(load, all, since, age == Age::Old), pressure);
        }
        bound
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Age {
    Fresh,
    Old,
    None,
}

impl Age {
    fn of(load: &NodeLoad, now: Timestamp) -> Self {
        let age = now.since(load.observed_at);
        let tells = load.run_queue.is_finite() && load.utilization.is_finite();
        if load.observed_at == Timestamp::ZERO || !tells || age > LOST.max(load.interval * 4) {
            Self::None
        } else if age > STALE.max(load.interval * 2) {
            Self::Old
        } else {
            Self::Fresh
        }
    }
}

fn seen(load: &NodeLoad, in_flight: f64, dt: f64, stale: bool) -> Seen {
    let known = |value: f32| {
        if value.is_finite() {
            f64::from(value)
        } else {
            0.0
        }
    };
    Seen {
        dt,
        capacity: load.capacity.into(),
        run_queue: known(load.run_queue),
        busy: known(load.utilization) * f64::from(load.capacity),
        accept_queue: known(load.accept_queue),
        in_flight,
        stale,
    }
}

/// A fraction is a whole request where the coin says so.
fn whole(limit: f64, coin: f64) -> f64 {
    let floor = limit.floor();
    let one_more = limit - floor > coin;
    floor + f64::from(u8::from(one_more))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fraction_is_a_whole_one_for_its_part_of_the_time() {
        let mut prng = Prng::new(1);
        let sum: f64 = (0..10_000).map(|_| whole(3.3, prng.unit())).sum();
        assert!((sum / 10_000.0 - 3.3).abs() < 0.02);
        assert_eq!(whole(0.2, 0.9), 0.0);
        assert_eq!(whole(f64::INFINITY, 0.5), f64::INFINITY);
    }

    #[test]
    fn records_age_by_their_interval() {
        let at = Timestamp::from_millis;
        let load = NodeLoad {
            observed_at: at(1000),
            interval: Duration::from_millis(50),
            run_queue: 1.0,
            utilization: 0.5,
            ..NodeLoad::UNKNOWN
        };
        assert_eq!(Age::of(&load, at(1100)), Age::Fresh);
        assert_eq!(Age::of(&load, at(1101)), Age::Old);
        assert_eq!(Age::of(&load, at(2001)), Age::None);
        let blind = NodeLoad {
            run_queue: f32::NAN,
            ..load
        };
        assert_eq!(Age::of(&blind, at(1001)), Age::None);
    }
}
