//! The adaptive controller of one site: from records, own counts and shared words to a limit of own
//! requests in flight at each server.
//!
//! ```text
//! each server     L, for all front-ends together ([`super::server`])
//! all together    L * min(1, cap / sum of L): what lies behind the servers ([`super::downstream`]), by
//!                 the mean opinion of the front-ends
//! one of several  slots that it holds in the server's words ([`super::slots`]); no words: a share
//! rank            L + max(1, 0.15 L) * ranks below, for a request of a rank
//! throttled       up to 8 / front-ends of a site's requests that a throttle of so many places has let on have an
//!                 account of their own: they need room at a server, not behind it, and no slot; L for all
//!                 others is less by as many, and half at least
//! ```
//!
//! A throttle bounds its requests already. Counted with all others, one that takes a second looks like something
//! slow behind the servers, and others are held for it. A throttle of many places is no bound: what is beyond those 8
//! counts as all others do.
//!
//! A share is 1 / front-ends and what CPUs have nothing to do; a fraction of a request is a whole
//! one for that part of the time, decided anew each 20 ms. Where requests wait, slots are asked for:
//! of the highest priority first, at the servers with most room first, one each and tick, with a
//! chance that halves when there was none left and doubles when there was.
//!
//! Inputs: the load table, the site's candidates, the number of front-ends, time. Called once a
//! tick by the director.
//!
//! Failure case: without words, front-ends with unequal demand; the shares of the idle ones are lost.
//!
//! Source: the admission study, "Specification".

mod recall;

use std::time::Duration;

use super::bound::Pressure;
use super::downstream::{Downstream, SiteSeen, WELL};
use super::inherent_latency::InherentLatency;
use super::kinds::{Kinds, Room};
use super::server::{Age, Server, Span, Sum};
use super::slots::{Slots, Wanted, WordTally, scale_by, vote_for};
use super::surge::Surges;
use super::{AdmissionConfig, Priority, Rank, WithoutRecords};
use crate::ids::{NodeId, SiteId};
use crate::load::{Agreed, LimitBy, LoadTable};
use crate::prng::Prng;
use crate::request::{KindPlaces, PLACES, Tenants};
use crate::time::Timestamp;

pub use recall::LearnedAdmission;

/// A limit binds for so long after a request found no room.
const BINDS: Duration = Duration::from_millis(20);
/// Or while so much of it is in flight.
const NEAR: f64 = 0.9;
/// Front-ends up to which each may use all CPUs that are idle; more of them use a part each.
const FRONT_ENDS_FEW: f64 = 4.0;
/// CPUs have time while this part of them has nothing to do; then so many requests may come to each of these
/// at once that do not use what is full behind them.
const IDLE: f64 = 0.3;
const AT_ONCE: f64 = 2.0;
/// So many requests of a site's throttled classes have an account of their own, over all front-ends: more of them
/// would be a load that the law for what is behind the servers must see.
const THROTTLED_MAX: f64 = 8.0;
/// The coin for a fraction of a request is thrown this often.
const COIN: Duration = Duration::from_millis(20);
/// What a rank has beyond the next lower one, as a part of the limit.
const RANK_STEP: f64 = 0.15;
/// Most slots that are asked for in a tick.
const ASKS_MAX: u64 = 64;

/// What a tick gets beside the table.
#[derive(Debug)]
pub struct Tick<'a> {
    /// The controller's site.
    pub site: SiteId,
    /// Its servers.
    pub candidates: &'a [NodeId],
    /// Front-ends that serve these, ourselves included.
    pub front_ends: u32,
    /// When it is.
    pub now: Timestamp,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Control {
    slo: f64,
    priorities: u8,
    without_records: WithoutRecords,
    servers: Vec<Server>,
    downstream: Downstream,
    inherent_latency: InherentLatency,
    tenants: Tenants,
    kinds: Kinds,
    surges: Surges,
    /// What all limits should be scaled by for what lies behind, as this front-end sees it.
    scale: f64,
    /// What they are scaled by, as all agree, the servers' mean.
    agreed: f64,
    ticked_at: Option<Timestamp>,
    thrown_at: Timestamp,
    no_room: u64,
    no_room_at: Option<Timestamp>,
    /// With which chance a slot is asked for, by priority.
    ask_probability: [f64; Priority::COUNT],
    /// Servers by room, the most first; kept so that a tick allocates nothing.
    order: Vec<usize>,
    by: LimitBy,
    /// Whether requests in flight came near the limits at the last tick.
    near: bool,
}

impl Control {
    /// Of a site that admits in this way.
    pub fn new(config: &AdmissionConfig) -> Self {
        Self {
            slo: config.slo.as_secs_f64(),
            priorities: config.priorities,
            without_records: config.without_records,
            servers: Vec::new(),
            downstream: Downstream::default(),
            inherent_latency: InherentLatency::default(),
            tenants: Tenants::default(),
            kinds: Kinds::default(),
            surges: Surges::default(),
            scale: 1.0,
            agreed: 1.0,
            ticked_at: None,
            thrown_at: Timestamp::ZERO,
            no_room: 0,
            no_room_at: None,
            ask_probability: [1.0; Priority::COUNT],
            order: Vec::new(),
            by: LimitBy::Record,
            near: false,
        }
    }

    /// Looks at the table, decides, and publishes limits for each candidate.
    pub fn on_tick(&mut self, tick: &Tick<'_>, table: &LoadTable, prng: &mut Prng) {
        let now = tick.now;
        self.keep(tick.candidates, table);
        let Some(before) = self.ticked_at.replace(now) else {
            return;
        };
        let dt = now.seconds_since(before);
        if dt <= 0.0 {
            return;
        }
        let share = 1.0 / f64::from(tick.front_ends.max(1));
        self.throw(now, prng);
        self.take_in(tick, table);
        self.inherent_latency
            .on_tick(dt, table.firsts(tick.site), self.slo);
        let binds = self.binds(tick.site, table, now);
        self.tell_kinds(table.kinds(tick.site), binds, dt);
        self.decide(tick, table, Span { share, dt }, binds);
        self.publish(tick, table, share, binds, prng);
        table.set_limited_by(tick.site, self.by);
        let sojourn = Duration::try_from_secs_f64(self.downstream.sojourn());
        table.set_sojourn(tick.site, sojourn.unwrap_or_default());
    }

    /// Whether requests in flight came near the limits at the last tick, of all servers together or of one.
    pub fn is_near(&self) -> bool {
        self.near || self.servers.iter().any(|server| server.near)
    }

    /// Which kinds of requests take longer than they do with room, and which have surged.
    fn tell_kinds(&mut self, places: &KindPlaces, binds: bool, dt: f64) {
        let room = match self.downstream.state() {
            (_, true) => Room::ProbePhase,
            (true, false) => Room::Held,
            (false, false) if binds || self.near => Room::Bound,
            (false, false) => Room::Free,
        };
        let new = self.tenants.on_tick(dt, places);
        let answers = |place| places.answers(place);
        self.kinds.forget(new, answers);
        let waiting = (0..PLACES).map(|place| places.waiting(place)).sum::<u64>();
        self.kinds.on_tick(dt, answers, waiting as f64, room);
        self.surges.forget(new);
        self.surges.on_tick(dt, |place| places.waiting(place), room);
        let (spared, surged) = (self.kinds.spared(), self.surges.surged());
        places.set_judged(spared, surged);
        places.set_vacant(self.tenants.idle() & !spared & !surged);
    }

    /// Takes in what the servers' words tell; one front-end alone needs none.
    fn take_in(&mut self, tick: &Tick<'_>, table: &LoadTable) {
        let (several, now) = (tick.front_ends > 1, tick.now);
        let vote = vote_for(self.scale);
        for server in &mut self.servers {
            let node = server.node;
            let answered = |ticket| table.answered_word(node, ticket);
            server.slots.take_in(answered, now);
            let in_flight = table.in_slots(node) as i64;
            let total = server.slots.total(in_flight, vote, now);
            server.total = total.filter(|_| several);
        }
    }

    /// Decides on a limit for each server, and on what all of them are scaled by.
    fn decide(&mut self, tick: &Tick<'_>, table: &LoadTable, span: Span, binds: bool) {
        let Span { share, dt } = span;
        let now = tick.now;
        let mut sum = Sum::default();
        self.by = LimitBy::Latency;
        let (slowdown, mix) = (self.kinds.slowdown(), self.kinds.mix());
        let (residence, base) = self.downstream.by_kinds(slowdown, mix);
        let unhurt = slowdown.is_some_and(|it| it < WELL);
        for server in &mut self.servers {
            let pressure = Pressure {
                binds: is_near(server, table, share) || binds && server.total.is_none(),
                residence,
                base,
                inherently_long: self.inherent_latency.is_long(),
                unhurt,
                slo: self.slo,
                without_records: self.without_records,
            };
            match server.look(table, span, &pressure, now, &mut sum) {
                Age::Fresh => self.by = LimitBy::Record,
                Age::Old => self.by = LimitBy::OldRecord,
                Age::None => {}
            }
        }
        // By words it is known whether slots are lacking or only where they are.
        let lacks = binds && sum.agreed < self.servers.len();
        let near = sum.held >= NEAR * sum.limits * self.agreed;
        self.near = near;
        let seen = SiteSeen {
            dt,
            in_flight: sum.in_flight,
            throttled: self.throttled(table),
            useful: sum.useful,
            ended: sum.ended,
            utilization: sum.busy / sum.capacity,
            binds: lacks || near,
            limits: sum.limits,
            slo: self.slo,
            inherently_long: self.inherent_latency.is_long(),
            alone: self.inherent_latency.alone(),
            together: sum.agreed > 0,
            slowdown,
            mix,
        };
        // What lies behind the servers cannot be separated from them by old records.
        let all_fresh = sum.fresh == self.servers.len();
        let cap = match all_fresh {
            true => self.downstream.on_tick(&seen, self.common_clock(now)),
            false => None,
        };
        self.scale = cap.map_or(1.0, |cap| (cap / sum.limits).min(1.0));
        let front_ends = f64::from(tick.front_ends.max(1));
        let mut scaled = 0.0;
        for server in &mut self.servers {
            server.scale = match &server.total {
                Some(total) => scale_by(total.votes, front_ends),
                None => self.scale,
            };
            scaled += server.limit * server.scale;
        }
        self.agreed = scaled / sum.limits;
        if self.agreed < 1.0 {
            self.by = match self.downstream.state() {
                (_, true) => LimitBy::ProbePhase,
                _ => LimitBy::Downstream,
            };
        }
    }

    /// Requests of throttled classes that have an account of their own.
    fn throttled(&self, table: &LoadTable) -> f64 {
        let accounts = table.accounts();
        let many = |server: &Server| accounts.in_flight(server.node) as f64;
        self.servers.iter().map(many).sum()
    }

    /// A clock that front-ends have in common if they have words in common: the first server's.
    fn common_clock(&self, now: Timestamp) -> Timestamp {
        let mut clocks = self.servers.iter().filter_map(|it| it.slots.node_now(now));
        clocks.next().map_or(now, Timestamp::from_nanos)
    }

    /// Publishes what follows for each server, and asks for slots.
    fn publish(
        &mut self,
        tick: &Tick<'_>,
        table: &LoadTable,
        share: f64,
        binds: bool,
        prng: &mut Prng,
    ) {
        let mut needs = Needs::of(tick.site, tick.candidates, table);
        let binds = binds || needs.any();
        let keeps = self.keeps(share);
        let steady = self.surges.room();
        let tell = self.servers.iter().all(Server::tells);
        let most = if tell {
            (THROTTLED_MAX * share).max(1.0)
        } else {
            0.0
        };
        table.accounts().set_most(tick.site, most as u64);
        for server in &mut self.servers {
            let limit = server.limit * server.scale;
            let in_flight = table.in_slots(server.node) as i64;
            server.near = false;
            server.held = in_flight;
            let total = server.total.filter(|_| limit.is_finite());
            let spared = for_spared(server, total.as_ref(), in_flight, share);
            table.set_spared_limit(server.node, spared);
            table.set_steady_limit(server.node, in_flight as f64 + steady);
            let throttled = for_throttled(server, total.as_ref(), table, share);
            table.accounts().set_limit(server.node, throttled);
            let agreed = total.map(|total| Agreed {
                held: u32::try_from(total.held).unwrap_or(0),
                limit: limit.ceil() as u32,
            });
            table.set_agreed(server.node, agreed);
            let Some(total) = total else {
                let limits = by_share(server, share, self.priorities);
                table.set_limits(server.node, limits);
                continue;
            };
            if !binds && Slots::is_far(&total, limit) {
                let room = Slots::far_room(&total, limit) * (FRONT_ENDS_FEW * share).min(1.0);
                let most = in_flight as f64 + whole(room, prng.unit());
                table.set_limits(server.node, [most as f32; Rank::COUNT]);
                continue;
            }
            if total.held as f64 >= limit && needs.any() {
                let ended = 0..server.ended as u64;
                let leave = ended.filter(|_| prng.unit() > keeps).count();
                server.slots.give_up(leave as i64);
            }
            server.near = true;
            let open = |rank| (total.held as f64) < ranked(limit, rank, self.priorities) + 1.0;
            let waits = needs
                .first()
                .is_some_and(|priority| open(Rank::of(priority)));
            let (held, usable) = server.slots.keep(in_flight, waits);
            server.held = held;
            needs.met((usable - in_flight).max(0) as u64);
            let limits = Rank::ALL.map(|rank| if open(rank) { usable as f32 } else { 0.0 });
            table.set_limits(server.node, limits);
        }
        if tick.front_ends > 1 {
            self.ask(&mut needs, share, table, tick.now, prng);
        }
    }

    /// The chance with which a slot that comes free stays here while others want it.
    fn keeps(&self, share: f64) -> f64 {
        let limits: f64 = self.servers.iter().map(|it| it.limit).sum();
        let fair = limits * self.agreed * share;
        let own: i64 = self.servers.iter().map(|it| it.slots.usable()).sum();
        (fair / (own as f64).max(1.0)).min(1.0)
    }

    /// Tells the servers' words what is wanted of them: where most room is, first.
    fn ask(
        &mut self,
        needs: &mut Needs,
        share: f64,
        table: &LoadTable,
        now: Timestamp,
        prng: &mut Prng,
    ) {
        let vote = vote_for(self.scale);
        let servers = &mut self.servers;
        let room = |server: &Server| {
            let held = server.total.map_or(f64::INFINITY, |it| it.held as f64);
            server.limit * server.scale - held
        };
        self.order.clear();
        self.order.extend(0..servers.len());
        self.order
            .sort_unstable_by(|one, other| room(&servers[*other]).total_cmp(&room(&servers[*one])));
        for place in &self.order {
            let server = &mut servers[*place];
            if let Some(granted) = server.slots.granted() {
                let factor = if granted { 2.0 } else { 0.5 };
                let probability = &mut self.ask_probability[server.asked_for.index()];
                *probability = (*probability * factor).clamp(share, 1.0);
            }
            if !server.slots.is_ready(now) {
                continue;
            }
            let limit = server.limit * server.scale;
            let mut wanted = Wanted {
                in_flight: table.in_slots(server.node) as i64,
                held: server.held,
                vote,
                asked: 0,
                limit,
                ended: server.done,
                share,
                near: server.near,
            };
            if let (Some(priority), Some(total), true) = (needs.first(), &server.total, server.near)
            {
                let limit = ranked(limit, Rank::of(priority), self.priorities);
                if (total.held as f64) < limit
                    && prng.unit() < self.ask_probability[priority.index()]
                {
                    server.asked_for = priority;
                    (wanted.asked, wanted.limit) = (1, limit);
                    needs.met(1);
                }
            }
            if let Some(op) = server.slots.ask(&wanted, now) {
                server.slots.asked_as(table.ask_word(server.node, op));
            }
        }
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
        // A node that is no candidate any more has no limit.
        for gone in known {
            table.set_limits(gone.node, [f32::INFINITY; Rank::COUNT]);
        }
    }

    /// Whether a request found no room of late.
    fn binds(&mut self, site: SiteId, table: &LoadTable, now: Timestamp) -> bool {
        let no_room = table.found_no_room(site);
        if no_room != self.no_room {
            self.no_room = no_room;
            self.no_room_at = Some(now);
        }
        self.no_room_at.is_some_and(|at| now.since(at) <= BINDS)
    }

    fn throw(&mut self, now: Timestamp, prng: &mut Prng) {
        if now.since(self.thrown_at) >= COIN {
            self.thrown_at = now;
            for server in &mut self.servers {
                server.coin = prng.unit();
            }
        }
    }
}

/// Requests that wait and for which no slot is at hand, by priority.
#[derive(Clone, Copy, Debug)]
struct Needs([u64; Priority::COUNT]);

impl Needs {
    /// A request that waits for the nodes' group, or for what their agents allow, needs no slot.
    fn of(site: SiteId, candidates: &[NodeId], table: &LoadTable) -> Self {
        if !candidates.iter().any(|node| table.bears_another(*node)) {
            return Self([0; Priority::COUNT]);
        }
        Self(Priority::ALL.map(|priority| table.waiting(site, priority).min(ASKS_MAX)))
    }

    fn any(&self) -> bool {
        self.0.iter().any(|waiting| *waiting > 0)
    }

    /// Whose turn it is.
    fn first(&self) -> Option<Priority> {
        let mut priorities = Priority::all().zip(self.0);
        priorities.find(|it| it.1 > 0).map(|it| it.0)
    }

    /// So many have one, the highest first.
    fn met(&mut self, mut slots: u64) {
        for waiting in &mut self.0 {
            let met = slots.min(*waiting);
            *waiting -= met;
            slots -= met;
        }
    }
}

fn is_near(server: &Server, table: &LoadTable, share: f64) -> bool {
    match &server.total {
        Some(total) => total.held as f64 >= NEAR * server.limit,
        None => table.in_slots(server.node) as f64 >= NEAR * server.limit * share,
    }
}

/// The limit for a request of a rank.
fn ranked(limit: f64, rank: Rank, priorities: u8) -> f64 {
    if limit.is_infinite() {
        return limit;
    }
    let below = (2 * usize::from(priorities)).saturating_sub(rank.index() + 1);
    limit + step(limit) * below as f64 / 2.0
}

/// What a priority has beyond the next lower one, one slot at least where there is one; established sessions
/// have half of it.
fn step(limit: f64) -> f64 {
    (RANK_STEP * limit).max(limit.min(1.0))
}

/// Most own requests in flight at a server when one comes that does not use what is full behind it: as
/// many more as its CPUs have time for in a moment, or else its own limit; where front-ends agree on slots,
/// none but by these.
fn for_spared(server: &Server, total: Option<&WordTally>, in_flight: i64, share: f64) -> f64 {
    let part = (FRONT_ENDS_FEW * share).min(1.0);
    let more = AT_ONCE * server.idle * part;
    let own = match total {
        Some(_) => 0.0,
        None => server.limit * share,
    };
    match server.idle > IDLE * server.capacity {
        true => own.max(in_flight as f64 + more),
        false => own,
    }
}

/// Most own requests at work at a server when one of a throttled class comes that takes no slot: what the server
/// itself bears.
fn for_throttled(server: &Server, total: Option<&WordTally>, table: &LoadTable, share: f64) -> f64 {
    let own = table.at_work(server.node) as f64;
    match total {
        Some(total) => {
            own + (server.limit - total.held as f64).max(0.0) * (FRONT_ENDS_FEW * share).min(1.0)
        }
        None => server.limit * share + table.accounts().in_flight(server.node) as f64,
    }
}

/// Own limits where front-ends cannot agree.
fn by_share(server: &Server, share: f64, priorities: u8) -> [f32; Rank::COUNT] {
    // No share is kept from a front-end that could use it.
    let idle = match share < 1.0 && server.scale >= 1.0 {
        true => server.idle * (FRONT_ENDS_FEW * share).min(1.0),
        false => 0.0,
    };
    let own = whole(server.limit * server.scale * share + idle, server.coin);
    // A server that tells nothing by itself must be asked to be known.
    let least = if server.tells() { 0.0 } else { 1.0 };
    Rank::ALL.map(|rank| ranked(own.max(least), rank, priorities) as f32)
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
    fn each_rank_finds_room_a_little_longer_than_the_next_lower_one() {
        let of = |rank: usize| ranked(10.0, Rank::ALL[rank], 3);
        let limits: Vec<_> = (0..Rank::COUNT).map(of).collect();
        for (limit, wanted) in limits
            .iter()
            .zip([13.75, 13.0, 12.25, 11.5, 10.75, 10.0, 10.0, 10.0])
        {
            assert!((limit - wanted).abs() < 1e-9, "{limits:?}");
        }
        // By a slot at least.
        assert_eq!(ranked(2.0, Rank::of(Priority::HIGHEST), 3), 4.0);
        assert_eq!(ranked(0.0, Rank::of(Priority::HIGHEST), 3), 0.0);
        assert_eq!(ranked(f64::INFINITY, Rank::LOWEST, 3), f64::INFINITY);
    }

    #[test]
    fn so_many_slots_are_asked_for_at_once_and_no_more() {
        let nodes = [NodeId(0)];
        let table = LoadTable::new(1, 1);
        for waiting in [ASKS_MAX - 1, ASKS_MAX, ASKS_MAX + 1] {
            let before = table.waiting(SiteId(0), Priority::HIGHEST);
            table.add_waiting(SiteId(0), Priority::HIGHEST, waiting - before);
            let needs = Needs::of(SiteId(0), &nodes, &table);
            assert_eq!(needs.0[Priority::HIGHEST.index()], waiting.min(ASKS_MAX));
        }
    }

    #[test]
    fn needs_are_met_from_the_highest_priority_on() {
        let mut needs = Needs([0, 2, 0, 5]);
        assert_eq!(needs.first(), Priority::new(1));
        needs.met(3);
        assert_eq!(needs.0, [0, 0, 0, 4]);
        needs.met(9);
        assert!(!needs.any() && needs.first().is_none());
    }
}
