//! What the controller knows of one server, and the bound that follows from it.
//!
//! | what is known | its bound |
//! |---|---|
//! | a fresh record | run queue and accept queue ([`super::bound`]) |
//! | an old one, over two of its intervals and 5 ms | the same, wider |
//! | none for a second and four intervals | own latency ([`super::own_latency`]), or none if the site says so |
//!
//! What it does not know: other servers, sites, shares.

use std::time::Duration;

use super::bound::{Bound, Pressure, ServerSeen};
use super::downstream::CPU_FULL_SHARE;
use super::ewma::{Ewma, weight};
use super::own_latency::{OwnLatency, OwnSeen};
use super::slots::{Slots, WordTally};
use super::{Priority, SLO_PART, WithoutRecords};
use crate::ids::NodeId;
use crate::load::{LoadTable, NodeLoad, Outcomes, OwnTraffic};
use crate::time::Timestamp;

/// A record older than this, and than two intervals, is not acted upon at once.
const STALE: Duration = Duration::from_millis(5);
/// Older than this and than four intervals it is none.
const LOST: Duration = Duration::from_secs(1);
/// Time constant of a server's completions, seconds.
const COMPLETIONS_TAU_S: f64 = 0.15;
/// Time over which others must be answered while some requests are not, seconds.
const TAU_OVERDUE: f64 = 2.0;
/// They are if they are answered within this part of the SLO, in the geometric mean. Less than half: where all
/// are held to that, one that takes longer is only unlucky.
const PROMPT: f64 = 0.25;

/// What is known of one server.
#[derive(Clone, Debug)]
pub(super) struct Server {
    pub(super) node: NodeId,
    /// The limit that another process had, until a law goes on from it.
    recalled: Option<f64>,
    /// While records tell of it.
    bound: Option<Bound>,
    /// While none does.
    latency: Option<OwnLatency>,
    /// The record that was taken in last.
    observed_at: Timestamp,
    own: OwnTraffic,
    /// As the words said last.
    ended_by_all: u64,
    completions: Ewma,
    /// Requests of all that ended since the record that was taken in last.
    ended_since: f64,
    /// Own answers as reported last; how many there were, and the sum of the logarithms of their times, fading.
    outcomes: Outcomes,
    answered: f64,
    ln_time: f64,
    /// Whether those that are overdue are taken to rest.
    overdue_rest: bool,
    /// Own requests that are at work no more since the last tick: they ended, or rest.
    pub(super) ended: f64,
    /// All of them so far.
    pub(super) done: u64,
    /// Own requests that rest, as reported last, and throttled ones with an account of their own that have ended.
    resting: u64,
    throttled_ended: u64,
    /// Below this part of the time a fraction counts as a whole request.
    pub(super) coin: f64,
    /// What the last tick decided, for all front-ends together.
    pub(super) limit: f64,
    /// What that is scaled by.
    pub(super) scale: f64,
    /// CPUs without work, and all.
    pub(super) idle: f64,
    pub(super) capacity: f64,
    /// What is agreed with other front-ends.
    pub(super) slots: Slots,
    /// What all of them have there, if they tell.
    pub(super) total: Option<WordTally>,
    /// Slots that are kept.
    pub(super) held: i64,
    /// Whether slots count.
    pub(super) near: bool,
    /// The request that a slot was asked for last.
    pub(super) asked_for: Priority,
}

/// What a tick adds up over the servers, for all front-ends together.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sum {
    pub(super) in_flight: f64,
    pub(super) useful: f64,
    pub(super) ended: f64,
    pub(super) busy: f64,
    pub(super) capacity: f64,
    pub(super) limits: f64,
    /// Requests in flight, or slots held where these are known.
    pub(super) held: f64,
    /// Servers whose record is fresh.
    pub(super) fresh: usize,
    /// Servers whose words tell.
    pub(super) agreed: usize,
}

/// What passed since the tick before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    /// This front-end's part of all requests, 0 to 1.
    pub(super) share: f64,
    /// Seconds.
    pub(super) dt: f64,
}

/// What is there of requests at a server with a record, of all front-ends.
#[derive(Clone, Copy, Debug)]
struct Present {
    in_flight: f64,
    /// Slots that are held without a request.
    empty: f64,
    resting: f64,
    /// Those of them that have no answer yet.
    unanswered: f64,
    /// As many as Little's law gives half the SLO.
    little: f64,
}

impl Server {
    /// One of which nothing is known yet.
    pub(super) fn new(node: NodeId, table: &LoadTable) -> Self {
        Self {
            node,
            recalled: None,
            bound: None,
            latency: None,
            observed_at: Timestamp::ZERO,
            own: table.own(node),
            ended_by_all: 0,
            completions: Ewma::new(COMPLETIONS_TAU_S),
            ended_since: 0.0,
            outcomes: table.outcomes(node),
            answered: 0.0,
            ln_time: 0.0,
            overdue_rest: false,
            ended: 0.0,
            done: 0,
            resting: table.resting(node),
            throttled_ended: table.accounts().ended(node),
            coin: 0.5,
            limit: f64::INFINITY,
            scale: 1.0,
            idle: 0.0,
            capacity: 0.0,
            slots: Slots::default(),
            total: None,
            held: 0,
            near: false,
            asked_for: Priority::HIGHEST,
        }
    }

    /// It goes on from a limit that was known before.
    pub(super) fn recall(&mut self, limit: f64) {
        self.recalled = Some(limit);
    }

    /// Whether a record tells of it.
    pub(super) fn tells(&self) -> bool {
        self.bound.is_some()
    }

    /// Looks at it and adds it to the sum; how old its record is.
    pub(super) fn look(
        &mut self,
        table: &LoadTable,
        span: Span,
        pressure: &Pressure,
        now: Timestamp,
        sum: &mut Sum,
    ) -> Age {
        let Span { share, dt } = span;
        let ended = self.note_done(table);
        self.judge_overdue(table, dt, pressure);
        let in_flight = table.in_slots(self.node) as f64;
        // Others are taken to have as many.
        let throttled = table.accounts().in_flight(self.node) as f64 / share;
        let ended_by_all = self.slots.ended() - self.ended_by_all;
        self.ended_by_all += ended_by_all;
        let (all, empty, all_ended) = match &self.total {
            Some(total) => {
                let all = (total.in_flight as f64).max(in_flight);
                (all, (total.held as f64 - all).max(0.0), ended_by_all as f64)
            }
            None => (in_flight / share, 0.0, ended / share),
        };
        self.completions.add(all_ended / dt, dt);
        let load = table.last(self.node);
        let age = Age::of(&load, now);
        let useful = match age {
            Age::None => {
                let seen = OwnSeen {
                    dt,
                    in_flight,
                    ended,
                };
                self.by_latency(&seen, share, pressure, now);
                all
            }
            Age::Fresh | Age::Old => {
                let capacity = f64::from(load.capacity);
                let little = self.completions.value() * SLO_PART * pressure.slo;
                let slow = little > 0.0 && all > little;
                self.ended_since += all_ended;
                let resting = table.resting(self.node) as f64 / share;
                let unanswered = match self.overdue_rest {
                    true => table.unanswered(self.node) as f64 / share,
                    false => 0.0,
                };
                let present = Present {
                    in_flight: all + throttled,
                    empty,
                    resting,
                    unanswered,
                    little: little + throttled,
                };
                let bound = self.by_record(&load, dt, &present, age, pressure);
                let (busy, at_work) = (bound.busy(), bound.at_work());
                if slow && pressure.binds && bound.fills(CPU_FULL_SHARE, capacity) {
                    bound.cap(little + throttled, capacity);
                }
                let (limit, idle) = (bound.limit(), bound.idle(capacity));
                // They have no slots, and never leave less than half to others.
                self.limit = (limit - throttled).max(limit / 2.0);
                self.idle = idle;
                self.capacity = capacity;
                sum.busy += busy;
                sum.capacity += capacity;
                sum.fresh += usize::from(age == Age::Fresh);
                all * at_work
            }
        };
        sum.useful += useful;
        sum.in_flight += all;
        sum.held += all + empty;
        sum.agreed += usize::from(self.total.is_some());
        sum.ended += all_ended;
        sum.limits += self.limit;
        age
    }

    /// Own requests that are at work no more. One that rests is done with, as far as the server's room goes;
    /// when it ends it was not at work. One with an account of its own held no slot.
    fn note_done(&mut self, table: &LoadTable) -> f64 {
        let (own, resting) = (table.own(self.node), table.resting(self.node));
        let throttled = table.accounts().ended(self.node);
        let ended = own.completed.wrapping_sub(self.own.completed);
        let done = ended.saturating_add(resting).saturating_sub(self.resting);
        let done = done.saturating_sub(throttled.wrapping_sub(self.throttled_ended));
        (self.own, self.resting, self.throttled_ended) = (own, resting, throttled);
        self.done += done;
        self.ended = done as f64;
        self.ended
    }

    /// Whether requests whose answer is overdue wait for something that takes no CPU's time here: they
    /// do while most others are answered promptly, or as fast as with room and the CPUs are not full of ours.
    fn judge_overdue(&mut self, table: &LoadTable, dt: f64, pressure: &Pressure) {
        let (before, outcomes) = (self.outcomes, table.outcomes(self.node));
        self.outcomes = outcomes;
        let kept = 1.0 - weight(dt, TAU_OVERDUE);
        let answered = outcomes.successes.saturating_sub(before.successes);
        self.answered = self.answered * kept + answered as f64;
        let took = outcomes.sum_ln_latency - before.sum_ln_latency;
        self.ln_time = self.ln_time * kept + took.max(0.0);
        // The sum is of nanoseconds; a mean of logarithms is that of the many.
        let prompt = self.ln_time <= self.answered * (PROMPT * pressure.slo * 1e9).ln();
        let overdue = table.unanswered(self.node) > 0;
        // Where ours fill the CPUs, what has no answer waits for them; how long a kind takes then is no measure of that, since
        // it may never have been seen with room.
        let full = (self.bound.as_ref()).is_some_and(|it| it.fills(CPU_FULL_SHARE, self.capacity));
        let rest = overdue && (prompt || pressure.unhurt && !full) && self.answered >= 1.0;
        if rest != self.overdue_rest {
            self.overdue_rest = rest;
            table.believe_unanswered(self.node, rest);
        }
    }

    /// The law for a server that tells nothing speaks of own requests; the share is taken off
    /// again.
    fn by_latency(&mut self, seen: &OwnSeen, share: f64, pressure: &Pressure, now: Timestamp) {
        self.bound = None;
        self.idle = 0.0;
        if pressure.without_records == WithoutRecords::Admit {
            self.latency = None;
            self.limit = f64::INFINITY;
            return;
        }
        let known = self.recalled.take();
        let before = known.unwrap_or(self.limit) * share;
        let law = self
            .latency
            .get_or_insert_with(|| match before.is_finite() {
                true => OwnLatency::from_limit(before),
                false => OwnLatency::new(share),
            });
        law.on_tick(seen, pressure.binds, pressure.slo, now);
        self.limit = law.limit() / share;
    }

    /// The law for a server with a record.
    fn by_record(
        &mut self,
        load: &NodeLoad,
        dt: f64,
        present: &Present,
        age: Age,
        pressure: &Pressure,
    ) -> &mut Bound {
        self.latency = None;
        let recalled = self.recalled.take();
        let bound = self.bound.get_or_insert_with(|| {
            let fresh = Bound::new(load.capacity.into());
            match recalled {
                Some(limit) => fresh.with_limit(limit),
                None => fresh,
            }
        });
        if load.observed_at > self.observed_at {
            let since = match self.observed_at {
                Timestamp::ZERO => dt,
                before => load.observed_at.seconds_since(before),
            };
            self.observed_at = load.observed_at;
            let all = match load.in_flight.is_finite() {
                true => (f64::from(load.in_flight) - present.resting).max(0.0),
                false => present.in_flight,
            };
            let seen = ServerSeen {
                dt: since,
                ended: std::mem::take(&mut self.ended_since),
                little: present.little,
                empty: present.empty,
                unanswered: present.unanswered,
                stale: age == Age::Old,
                ..seen(load, all)
            };
            bound.on_record(&seen, pressure);
        }
        bound
    }
}

/// How old a server's record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Age {
    /// It can be acted upon at once.
    Fresh,
    /// It can be believed.
    Old,
    /// There is none.
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

fn seen(load: &NodeLoad, in_flight: f64) -> ServerSeen {
    let known = |value: f32| {
        if value.is_finite() {
            f64::from(value)
        } else {
            0.0
        }
    };
    ServerSeen {
        dt: 0.0,
        capacity: load.capacity.into(),
        run_queue: known(load.run_queue),
        busy: known(load.utilization) * f64::from(load.capacity),
        accept_queue: known(load.accept_queue),
        in_flight,
        ended: 0.0,
        little: 0.0,
        empty: 0.0,
        unanswered: 0.0,
        stale: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::SiteId;
    use crate::load::RestKind;

    #[test]
    fn who_comes_to_rest_is_done_with_and_not_once_more_as_it_ends() {
        let (node, table) = (NodeId(0), LoadTable::new(1, 1));
        let mut server = Server::new(node, &table);
        (0..5).for_each(|_| _ = table.dispatch(node, None));
        assert_eq!(server.note_done(&table), 0.0);
        table.complete(node, None);
        table.begin_rest(node, RestKind::Answered);
        assert_eq!(server.note_done(&table), 2.0);
        table.end_rest(node, RestKind::Answered);
        table.complete(node, None);
        assert_eq!(server.note_done(&table), 0.0);
        // Those that are overdue rest as soon as it is believed, and are at work again when it is not.
        (0..2).for_each(|_| table.begin_rest(node, RestKind::Unanswered));
        table.believe_unanswered(node, true);
        assert_eq!(server.note_done(&table), 2.0);
        table.believe_unanswered(node, false);
        assert_eq!(server.note_done(&table), 0.0);
        assert_eq!(server.done, 4);
    }

    /// Fifty requests a second that are answered after so many milliseconds, and three that are not answered at all, at a server
    /// whose tasks are thirty to a CPU: whether the three are taken to rest.
    fn rests_beside(answered_after: usize) -> bool {
        let (node, table) = (NodeId(0), LoadTable::new(1, 1));
        let mut server = Server::new(node, &table);
        let pressure = Pressure {
            binds: true,
            residence: 0.0,
            base: None,
            inherently_long: false,
            unhurt: false,
            slo: 0.5,
            without_records: WithoutRecords::Limit,
        };
        (0..3).for_each(|_| _ = table.dispatch(node, None));
        (0..3).for_each(|_| table.begin_rest(node, RestKind::Unanswered));
        for millis in (0..4000).step_by(20) {
            table.dispatch(node, None);
            if millis >= answered_after {
                table.complete(node, None);
                let latency = Duration::from_millis(answered_after as u64);
                table.succeeded(node, latency, 30.0);
            }
            server.judge_overdue(&table, 0.02, &pressure);
        }
        server.overdue_rest
    }

    #[test]
    fn what_waits_for_an_answer_rests_where_the_others_have_theirs_soon_and_not_where_all_wait() {
        assert!(rests_beside(20));
        assert!(rests_beside(100));
        assert!(!rests_beside(300), "a crowded server answers none promptly");
        assert!(!rests_beside(1000));
    }

    #[test]
    fn one_with_an_account_of_its_own_is_done_with_unseen() {
        let (node, site, table) = (NodeId(0), SiteId(0), LoadTable::new(1, 1));
        let mut server = Server::new(node, &table);
        for _ in 0..4 {
            table.dispatch(node, None);
        }
        (0..3).for_each(|_| table.accounts().begin(site, node));
        assert_eq!((table.at_work(node), table.in_slots(node)), (4, 1));
        // One has ended; one has its answer's head, and is as all others are from then on.
        table.accounts().end(site, node, true);
        table.complete(node, None);
        assert_eq!(server.note_done(&table), 0.0);
        table.accounts().end(site, node, false);
        assert_eq!((table.at_work(node), table.in_slots(node)), (3, 2));
        assert_eq!(server.note_done(&table), 0.0);
        (0..2).for_each(|_| table.complete(node, None));
        assert_eq!(server.note_done(&table), 2.0);
        assert_eq!(
            (table.in_slots(node), table.accounts().in_flight(node)),
            (0, 1)
        );
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
