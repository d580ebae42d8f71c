//! How many requests a server can use: a bound on those in flight, from its run queue and accept
//! queue.
//!
//! ```text
//! r, u, q   mean run queue, busy CPUs and accept queue, as the record's integrals tell
//! n, X      our requests at work there, and how many end per second; what rests does not count
//! e         time that a request spends off the run queue: n - r over X while the CPUs have time and r is no
//!           more than they are (1 s); nothing before that was seen for half a second, and of 8 requests
//! k         tasks beyond requests at work: r - (n - 0.9 e X)
//! o         requests that are taken to rest since their answer is overdue
//! h         tasks of others on the run queue: k - min(k, o) * min(1, k / o), found in 0.5 s and forgotten in 5 s,
//!           and no more than r (means of 100 ms)
//! w         = max(0, r - h - u) * min(1, n / (r - h)) + q     requests that wait for others of ours
//! useful    = n - w                                what the server is at work on
//! target    = useful + max(1, (gamma - 1) * useful)
//!             and 9 for each task of others, up to X SLO / 4
//!
//! n > gamma * useful and n > target:  L += (target - L) * (1 - e^(-dt / 10 ms)), L >= floor
//! else if the limit binds and the CPUs are full, or answers come as fast as ever, or within a quarter
//! of the SLO, or take longer than half of it by inherent latency, or each kind as long as with room while the CPUs
//! have time:
//!                                     L += max(1, 0.1 L) * dt / W, up to 1.05 * target, where
//!                                     slots that are held and empty count as useful
//!                                     without waiting for W where less than 0.7 of the CPUs is busy
//!                                     with ours, u (r - h) / r, and none of ours waits for them: 1 / 50 ms
//! else L stays: the knee does not move when load falls
//! floor     = C + max(1, 0.25 C), at least 2: one in service and the next one at hand
//! ```
//!
//! Inputs: records (any interval), own requests at work, whether the limit binds.
//!
//! A server that computes needs as many requests as it has CPUs; one that also waits for disks or
//! databases shows by itself how many more, since a request that waits for those is not on the
//! run queue; one with few workers shows it in its accept queue. No history and no baseline are
//! needed for that, so nothing is wrong after a change.
//!
//! Where others take the CPUs (hogs, other sites on the same host) requests are slow without being too
//! many: a request that waits for tasks of others is not kept from them by holding back the next
//! one, it is only served less. So what others' tasks do to the run queue is not ours, and with so
//! many of ours as are nine to one of theirs the site has nine tenths of the CPUs, which is all it can
//! get. Not more than a quarter of the SLO's worth: beyond that its answers would come late.
//!
//! A request without an answer may wait for something that takes no CPU (a long poll), or compute for longer than the SLO. Which of them,
//! no record says. Where others' answers come promptly no request waits unseen for its turn, so if these compute, all of them are on the run queue: the
//! fewer tasks there are for them, the less likely is it that any is theirs. What is theirs is neither others' work, which
//! would leave the limit without a bound, nor holds room.
//!
//! Failure case: requests that are many tasks each look like tasks of others; a server that queues by itself, unseen (an event loop, a pool that accepts all):
//! then all in flight look useful and the bound grows with them; [`super::control`] caps it by
//! Little's law at half the SLO.
//!
//! Source: the admission study, "Specification" (there others' part of the run queue is taken in proportion); gamma from its table, where 1.25 is the best of
//! five over all scenarios.

use super::ewma::{Ewma, weight};
use super::{SLO_PART, WithoutRecords};

/// How much more than useful may be in flight.
const GAMMA: f64 = 1.25;
/// The same where the record is old.
const GAMMA_STALE: f64 = 1.5 * GAMMA;
/// Time constant of what is seen and of the way down, seconds.
const BOUND_TAU_S: f64 = 0.01;
/// The way up in the time of a request, as a part of the bound.
const BOUND_GROWTH: f64 = 0.1;
/// What that time is taken to be at least, seconds.
const REQUEST_MIN: f64 = 0.01;
/// And at the most, seconds.
const REQUEST_MAX: f64 = 0.1;
/// Time constant of the way up where the CPUs have time, seconds.
const BOUND_RISE_TIME_S: f64 = 0.05;
/// Busy part of the CPUs, 0 to 1, below which they have time.
const CPU_SPARE_SHARE: f64 = 0.7;
/// Part of the requests in flight, 0 to 1, below which those that wait for the CPUs are none.
const QUEUED_SHARE_NONE: f64 = 0.1;
/// No further above the target.
const ABOVE_TARGET: f64 = 1.05;
/// Busy part of the CPUs, 0 to 1, from which on they want a queue before them.
const CPU_SATURATED_SHARE: f64 = 0.93;
/// Time constants of what is seen of others' tasks, of finding more of them, and of forgetting them,
/// seconds.
const TAU_OTHERS: f64 = 0.1;
const TAU_FIND: f64 = 0.5;
const TAU_FORGET: f64 = 5.0;
/// So many of ours for each task of others: nine tenths of the CPUs.
const AGAINST_OTHERS: f64 = 9.0;
/// Fewer of them than this are no matter.
const OTHERS_MIN: f64 = 0.5;
/// Time constant of the time that a request is elsewhere, seconds, and the part of it that is relied upon.
const TAU_ELSEWHERE: f64 = 1.0;
/// Requests of that second from which on their time is known.
const ELSEWHERE_LEAST: f64 = 8.0;
const SURELY: f64 = 0.9;
/// Answers come well within the SLO below this part of half of it.
const WELL_WITHIN: f64 = 0.5;
/// Answers are as fast as ever below this many times the base, and half the SLO.
const SWIFT: f64 = 1.5;

/// What a new record tells, and what is in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct ServerSeen {
    /// Seconds since the last one.
    pub(super) dt: f64,
    /// CPUs.
    pub(super) capacity: f64,
    /// Mean run queue.
    pub(super) run_queue: f64,
    /// Mean busy CPUs.
    pub(super) busy: f64,
    /// Mean accept queue.
    pub(super) accept_queue: f64,
    /// Requests at work, those of all front-ends.
    pub(super) in_flight: f64,
    /// Those that have ended since the last record.
    pub(super) ended: f64,
    /// So many at work make answers take half the SLO.
    pub(super) little: f64,
    /// Slots that front-ends hold for requests to come.
    pub(super) empty: f64,
    /// Requests that are taken to rest since their answer is overdue.
    pub(super) unanswered: f64,
    /// Whether it is too old to act upon at once.
    pub(super) stale: bool,
}

/// How the site as a whole stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pressure {
    /// Whether this server's limit keeps requests away.
    pub(super) binds: bool,
    /// Time that a request spends in service, without waiting for a CPU, seconds; zero if not
    /// known.
    pub(super) residence: f64,
    /// The same of an unloaded site.
    pub(super) base: Option<f64>,
    /// Whether they take longer than half the SLO by inherent latency.
    pub(super) inherently_long: bool,
    /// Whether requests of known kinds are answered as fast as with room.
    pub(super) unhurt: bool,
    /// Answers are wanted within, seconds.
    pub(super) slo: f64,
    /// What a server without a record gets.
    pub(super) without_records: WithoutRecords,
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Bound {
    limit: f64,
    useful: Ewma,
    in_flight: Ewma,
    busy: Ewma,
    empty: Ewma,
    /// The run queue and our requests over a longer time.
    run_queue: Ewma,
    present: Ewma,
    unanswered: Ewma,
    /// Tasks of others.
    others: f64,
    /// Time of requests off the run queue and requests that ended, fading, while the CPUs had time.
    elsewhere: f64,
    elsewhere_ended: f64,
    /// That time.
    calm: f64,
    /// Requests that end per second.
    rate: Ewma,
}

impl Bound {
    /// Of a server of which nothing but its CPUs is known.
    pub(super) fn new(capacity: f64) -> Self {
        Self {
            limit: 2.0 * capacity,
            useful: Ewma::new(BOUND_TAU_S),
            in_flight: Ewma::new(BOUND_TAU_S),
            busy: Ewma::new(BOUND_TAU_S),
            empty: Ewma::new(BOUND_TAU_S),
            run_queue: Ewma::new(TAU_OTHERS),
            present: Ewma::new(TAU_OTHERS),
            unanswered: Ewma::new(TAU_OTHERS),
            others: 0.0,
            elsewhere: 0.0,
            elsewhere_ended: 0.0,
            calm: 0.0,
            rate: Ewma::new(TAU_OTHERS),
        }
    }

    /// One that goes on from what was allowed before.
    pub(super) fn with_limit(self, limit: f64) -> Self {
        Self { limit, ..self }
    }

    /// The bound.
    pub(super) fn limit(&self) -> f64 {
        self.limit
    }

    /// The part of the requests in flight that the server is at work on.
    pub(super) fn at_work(&self) -> f64 {
        let all = self.in_flight.value();
        match all > 0.0 {
            true => (self.useful.value() / all).min(1.0),
            false => 1.0,
        }
    }

    /// CPUs that have nothing to do, where none waits: what any front-end may use beside its
    /// share.
    pub(super) fn idle(&self, capacity: f64) -> f64 {
        let waiting = self.in_flight.value() - self.useful.value();
        match waiting < 0.5 {
            true => (capacity - self.busy.value()).max(0.0),
            false => 0.0,
        }
    }

    /// Busy CPUs.
    pub(super) fn busy(&self) -> f64 {
        self.busy.value()
    }

    /// Takes in what a record tells.
    pub(super) fn on_record(&mut self, seen: &ServerSeen, pressure: &Pressure) {
        let n = seen.in_flight;
        self.follow_others(seen);
        let run_queue = (seen.run_queue - self.others).max(f64::MIN_POSITIVE);
        let ours = (n / run_queue).min(1.0);
        let waiting = (run_queue - seen.busy).max(0.0) * ours + seen.accept_queue;
        self.in_flight.add(n, seen.dt);
        self.useful.add((n - waiting).max(0.0), seen.dt);
        self.busy.add(seen.busy, seen.dt);
        self.empty.add(seen.empty, seen.dt);
        let gamma = if seen.stale { GAMMA_STALE } else { GAMMA };
        let (n, useful) = (self.in_flight.value(), self.useful.value());
        let target = useful + f64::max(1.0, (gamma - 1.0) * useful);
        let against = AGAINST_OTHERS * (self.others - OTHERS_MIN).max(0.0);
        let target = target.max((WELL_WITHIN * seen.little).min(target + against));
        let floor = floor(seen.capacity);
        if n > gamma * useful && n > target {
            let step = 1.0 - (-seen.dt / BOUND_TAU_S).exp();
            self.limit += (target - self.limit) * step;
        } else if pressure.binds && self.may_grow(seen, pressure) {
            let request = pressure.residence.clamp(REQUEST_MIN, REQUEST_MAX);
            let by_request = f64::max(1.0, BOUND_GROWTH * self.limit) * seen.dt / request;
            let grown = match self.has_time(seen.capacity) {
                true => self.limit + f64::max(by_request, self.limit * seen.dt / BOUND_RISE_TIME_S),
                false => self.limit + by_request,
            };
            let reach = ABOVE_TARGET * (target + self.empty.value());
            self.limit = grown.min(f64::max(self.limit, reach));
        }
        self.limit = self.limit.max(floor);
    }

    /// What of the run queue is others'. Of our requests some wait elsewhere, as long as they did while
    /// the CPUs had time.
    fn follow_others(&mut self, seen: &ServerSeen) {
        self.run_queue.add(seen.run_queue, seen.dt);
        self.present.add(seen.in_flight, seen.dt);
        self.unanswered.add(seen.unanswered, seen.dt);
        self.rate.add(seen.ended / seen.dt, seen.dt);
        let (present, most) = (self.present.value(), self.run_queue.value());
        // CPU time that comes in slices is not used now and then though tasks wait for it.
        let none_waits = most <= seen.capacity.max(1.0);
        if self.busy.value() < CPU_SPARE_SHARE * seen.capacity && none_waits {
            let kept = 1.0 - weight(seen.dt, TAU_ELSEWHERE);
            let elsewhere = present - most;
            self.elsewhere = self.elsewhere * kept + elsewhere * seen.dt;
            self.elsewhere_ended = self.elsewhere_ended * kept + self.rate.value() * seen.dt;
            self.calm = self.calm * kept + seen.dt;
        }
        let known = self.elsewhere_ended >= ELSEWHERE_LEAST;
        let each = match self.calm > TAU_ELSEWHERE / 2.0 && known {
            true => self.elsewhere.max(0.0) / self.elsewhere_ended,
            false => 0.0,
        };
        let ours = present - SURELY * each * self.rate.value();
        let beyond = (most - ours.max(0.0)).max(0.0);
        let least = beyond - unanswered_tasks(beyond, self.unanswered.value());
        let tau = match least > self.others {
            true => TAU_FIND,
            false => TAU_FORGET,
        };
        self.others += (least - self.others) * weight(seen.dt, tau);
        self.others = self.others.min(most);
    }

    /// Whether requests fill the CPUs, be there others or not.
    pub(super) fn fills(&self, part: f64, capacity: f64) -> bool {
        self.busy_with_ours() > part * capacity
    }

    /// Lowers it to what Little's law allows, but not below the floor.
    pub(super) fn cap(&mut self, most: f64, capacity: f64) {
        self.limit = self.limit.min(most.max(floor(capacity)));
    }

    /// Whether the CPUs have time for our requests, as far as these take it, and none waits for them.
    fn has_time(&self, capacity: f64) -> bool {
        let waiting = self.in_flight.value() - self.useful.value();
        self.busy_with_ours() < CPU_SPARE_SHARE * capacity
            && waiting < QUEUED_SHARE_NONE * self.in_flight.value()
    }

    /// CPUs that are busy with our requests: their part of the run queue.
    fn busy_with_ours(&self) -> f64 {
        let run_queue = self.run_queue.value();
        match run_queue > self.others {
            true => self.busy.value() * (1.0 - self.others / run_queue),
            false => 0.0,
        }
    }

    /// More requests would be of use: the CPUs are full and want a queue before them, or the server
    /// answers as fast as if it were idle, or well within the SLO, or those that do not are slow by
    /// themselves, or nothing can make it fast.
    fn may_grow(&self, seen: &ServerSeen, pressure: &Pressure) -> bool {
        let full = self.busy.value() > CPU_SATURATED_SHARE * seen.capacity;
        let swift = pressure
            .base
            .is_some_and(|base| pressure.residence < (SWIFT * base).min(SLO_PART * pressure.slo));
        let well = self.in_flight.value() < WELL_WITHIN * seen.little;
        let unhurt = pressure.unhurt && self.has_time(seen.capacity);
        full || swift || well || unhurt || pressure.inherently_long
    }
}

/// How many of so many tasks beyond requests at work are requests that are taken to rest, at the most likely.
fn unanswered_tasks(beyond: f64, unanswered: f64) -> f64 {
    match unanswered > 0.0 {
        true => beyond.min(unanswered) * (beyond / unanswered).min(1.0),
        false => 0.0,
    }
}

/// Keeps a server alive on which others take the CPUs.
fn floor(capacity: f64) -> f64 {
    (capacity + f64::max(1.0, 0.25 * capacity)).max(2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CPUS: f64 = 4.0;

    fn pressure(binds: bool) -> Pressure {
        Pressure {
            binds,
            residence: 0.01,
            base: Some(0.01),
            inherently_long: false,
            unhurt: false,
            slo: 0.1,
            without_records: WithoutRecords::Limit,
        }
    }

    /// A millisecond of a server with so many requests in flight, of which each is `cpu` of its
    /// time on the run queue and the rest elsewhere.
    fn seen(n: f64, cpu: f64) -> ServerSeen {
        let wants = n * cpu;
        let busy = wants.min(CPUS);
        ServerSeen {
            dt: 0.001,
            capacity: CPUS,
            run_queue: wants,
            busy,
            accept_queue: 0.0,
            in_flight: n,
            ended: 0.0,
            little: 0.0,
            empty: 0.0,
            unanswered: 0.0,
            stale: false,
        }
    }

    fn after(mut bound: Bound, millis: u32, mut seen: impl FnMut(&Bound) -> ServerSeen) -> f64 {
        for _ in 0..millis {
            let seen = seen(&bound);
            bound.on_record(&seen, &pressure(true));
        }
        bound.limit()
    }

    #[test]
    fn a_server_that_computes_gets_a_quarter_more_than_its_cpus() {
        let limit = after(Bound::new(CPUS), 500, |bound| seen(bound.limit(), 1.0));
        assert!((4.9..=5.6).contains(&limit), "{limit}");
        // From far above too, and within some tens of milliseconds.
        let mut crowded = Bound::new(CPUS);
        crowded.limit = 200.0;
        let limit = after(crowded, 60, |bound| seen(bound.limit(), 1.0));
        assert!(limit < 8.0, "{limit}");
    }

    #[test]
    fn a_server_that_waits_for_disks_gets_as_many_more_as_keep_its_cpus_busy() {
        // A tenth of a request's time is CPU: forty keep four CPUs busy.
        let limit = after(Bound::new(CPUS), 3000, |bound| {
            let n = bound.limit();
            // Processor sharing: what is beyond the CPUs' reach waits on the run queue.
            let wants = if n <= 40.0 { 0.1 * n } else { 4.0 + (n - 40.0) };
            ServerSeen {
                run_queue: wants,
                busy: wants.min(CPUS),
                ..seen(n, 0.0)
            }
        });
        assert!((40.0..=55.0).contains(&limit), "{limit}");
    }

    #[test]
    fn few_workers_show_in_the_accept_queue() {
        // Six workers that sleep: no CPU is wanted, the rest waits to be accepted.
        let limit = after(Bound::new(CPUS), 2000, |bound| {
            let n = bound.limit();
            ServerSeen {
                run_queue: 0.2,
                busy: 0.2,
                accept_queue: (n - 6.0).max(0.0),
                ..seen(n, 0.0)
            }
        });
        assert!((6.0..=8.5).contains(&limit), "{limit}");
    }

    #[test]
    fn antagonists_do_not_lower_it_below_its_floor() {
        let limit = after(Bound::new(CPUS), 500, |bound| ServerSeen {
            run_queue: 32.0 + bound.limit(),
            busy: CPUS,
            ..seen(bound.limit(), 1.0)
        });
        assert!(limit >= 5.0, "{limit}");
    }

    /// A server to which hogs come after a second, and so many requests a second of 10 ms of CPU and so
    /// much of something else; those at work in the end, and the limit.
    fn beside_hogs(hogs: f64, offered: f64, io: f64) -> (f64, f64) {
        let mut bound = Bound::new(CPUS);
        let (mut computing, mut waiting): (f64, f64) = (0.0, 0.0);
        let mut n = 0.0;
        for millis in 0..5000 {
            let hogs = if millis < 1000 { 0.0 } else { hogs };
            let run_queue = computing + hogs;
            let share = (CPUS / run_queue.max(CPUS)).min(1.0);
            let computed = computing * share / 0.01 * 0.001;
            let ended = match io > 0.0 {
                true => waiting / io * 0.001,
                false => computed,
            };
            computing -= computed;
            waiting += computed - ended;
            let wanted = computing + waiting + offered * 0.001;
            let binds = wanted > bound.limit();
            n = wanted.min(bound.limit().max(computing + waiting));
            computing = n - waiting;
            let seen = ServerSeen {
                run_queue,
                busy: run_queue.min(CPUS),
                ended,
                little: ended * 250.0,
                ..seen(n, 0.0)
            };
            let pressure = Pressure {
                base: None,
                ..pressure(binds)
            };
            bound.on_record(&seen, &pressure);
        }
        (n, bound.limit())
    }

    #[test]
    fn tasks_of_others_keep_no_request_away() {
        // Three CPUs' worth of requests beside four hogs on four CPUs: twelve at work share them with
        // four, and each takes 40 ms. And requests that wait for a database beside them.
        for (offered, io, n) in [(300.0, 0.0, 12.0), (200.0, 0.05, 14.0), (20.0, 0.0, 0.21)] {
            let (at_work, limit) = beside_hogs(4.0, offered, io);
            assert!((at_work / n - 1.0).abs() < 0.2, "{at_work} of {n}");
            assert!(limit >= at_work, "{limit} for {at_work}");
        }
    }

    #[test]
    fn requests_that_take_no_cpu_get_room_at_once_beside_hogs() {
        // Ten hogs on four CPUs, known from the time before there were any requests.
        let mut bound = Bound::new(CPUS);
        let hogs = |n: f64| ServerSeen {
            run_queue: 10.0,
            busy: CPUS,
            ..seen(n, 0.0)
        };
        (0..3000).for_each(|_| bound.on_record(&hogs(0.0), &pressure(false)));
        let pressure = Pressure {
            base: None,
            ..pressure(true)
        };
        // A burst of thirty that sleep: nothing ends, and nothing of theirs is on the run queue.
        for _ in 0..200 {
            let n = bound.limit().min(30.0);
            bound.on_record(&hogs(n), &pressure);
        }
        assert!(bound.limit() >= 30.0, "{}", bound.limit());
        // Requests that compute get no more than they can use, hogs or not.
        let mut bound = Bound::new(CPUS);
        for _ in 0..400 {
            let n = bound.limit();
            let run_queue = 2.0 + n;
            bound.on_record(
                &ServerSeen {
                    run_queue,
                    busy: CPUS,
                    ended: 0.4,
                    ..seen(n, 1.0)
                },
                &pressure,
            );
        }
        assert!(bound.limit() < 30.0, "{}", bound.limit());
    }

    #[test]
    fn what_is_known_of_others_is_not_more_than_there_is() {
        let mut bound = Bound::new(CPUS);
        let at = |n: f64, run_queue: f64| ServerSeen {
            run_queue,
            busy: run_queue.min(CPUS),
            ..seen(n, 0.0)
        };
        let mut others = |n, run_queue, millis| {
            for _ in 0..millis {
                bound.on_record(&at(n, run_queue), &pressure(false));
            }
            bound.others
        };
        assert!((others(0.5, 4.5, 3000) - 4.0).abs() < 0.1, "hogs");
        assert!((others(12.0, 16.0, 3000) - 4.0).abs() < 0.1, "and requests");
        assert!(others(12.0, 12.0, 20_000) < 0.1, "they have left");
        assert!(
            others(40.0, 8.0, 3000) < 0.1,
            "requests that wait elsewhere"
        );
        assert!(others(0.0, 0.0, 500) < 0.05, "nobody");
    }

    /// What is found of others on four CPUs, with so many requests at work, so many that rest without an answer, and a run queue.
    fn others_beside(n: f64, unanswered: f64, run_queue: f64) -> f64 {
        let mut bound = Bound::new(CPUS);
        let seen = ServerSeen {
            run_queue,
            busy: CPUS,
            unanswered,
            ..seen(n, 0.0)
        };
        (0..4000).for_each(|_| bound.on_record(&seen, &pressure(false)));
        bound.others
    }

    #[test]
    fn requests_without_an_answer_are_taken_for_tasks_where_there_are_as_many() {
        let beyond = |unanswered| others_beside(6.0, unanswered, 106.0);
        assert!((beyond(0.0) - 100.0).abs() < 1.0, "hogs");
        // They came, none was answered, and the run queue has grown by as many.
        for unanswered in [100.0, 120.0, 300.0] {
            assert!(beyond(unanswered) < 70.0, "{}", beyond(unanswered));
        }
        assert!(beyond(100.0) < 1.0, "{}", beyond(100.0));
        assert!((beyond(40.0) - 60.0).abs() < 1.0, "{}", beyond(40.0));
        // Long polls beside four hogs.
        let hogs = others_beside(1.0, 30.0, 5.0);
        assert!(hogs > 3.3, "{hogs}");
    }

    #[test]
    fn requests_that_compute_for_longer_than_the_slo_are_no_hogs_to_outnumber() {
        // Against sixty hogs a hundred more are let in; not against sixty requests that rest and compute.
        let limit = |unanswered| {
            after(Bound::new(CPUS), 3000, |bound| {
                let n = bound.limit();
                ServerSeen {
                    run_queue: n + 60.0,
                    little: 200.0,
                    unanswered,
                    ..seen(n, 1.0)
                }
            })
        };
        assert!(limit(60.0) < 6.0, "{}", limit(60.0));
        assert!(limit(0.0) > 40.0, "{}", limit(0.0));
    }

    /// Three quarters of a site's requests begin to take long by themselves; what was quick still is.
    #[test]
    fn requests_that_are_slow_by_themselves_get_room_while_the_cpus_have_time() {
        let after = |unhurt| {
            let pressure = Pressure {
                residence: 0.3,
                base: Some(0.005),
                unhurt,
                ..pressure(true)
            };
            let mut bound = Bound::new(CPUS);
            for _ in 0..300 {
                let seen = seen(bound.limit(), 0.01);
                bound.on_record(&seen, &pressure);
            }
            bound.limit()
        };
        assert_eq!(after(false), 2.0 * CPUS);
        assert!(after(true) > 100.0, "{}", after(true));
    }

    #[test]
    fn a_limit_that_does_not_bind_stays() {
        let mut bound = Bound::new(CPUS);
        bound.limit = 30.0;
        for _ in 0..1000 {
            bound.on_record(&seen(2.0, 1.0), &pressure(false));
        }
        assert_eq!(bound.limit(), 30.0);
    }

    /// A quarter of a CPU, given in slices each 10 ms, and a pool of 32 workers behind a socket that takes all: so many at
    /// work in the end, of requests of 4 ms of CPU that come twice as fast as they can be served, and of so many at first.
    fn pool_with_a_quota(first: f64) -> f64 {
        let (capacity, cost) = (0.25, 0.004);
        let mut bound = Bound::new(capacity);
        let mut rate = Ewma::new(0.15);
        let mut used = [0.0; 10];
        let (mut n, mut served): (f64, f64) = (first, 0.0);
        for millis in 0_usize..20_000 {
            let at = millis % 10;
            // The slice is used up after 2.5 ms, where there is something to do.
            let slice = [1.0, 1.0, 0.5].get(at).copied().unwrap_or(0.0);
            used[at] = f64::min(slice * 0.001, n * cost);
            served += used[at] / cost;
            let ended = served.floor();
            served -= ended;
            n = (n - ended).max(0.0);
            let wanted = n + 125.0 * 0.001;
            let binds = wanted > bound.limit() || n >= 0.9 * bound.limit();
            n = wanted.min(bound.limit().max(n));
            rate.add(ended / 0.001, 0.001);
            let little = rate.value() * 0.25;
            // What is seen of the CPUs is of windows that begin anywhere, and nginx takes its part.
            let busy = used.iter().sum::<f64>() / 0.01 * [1.0, 0.6, 0.4, 0.9][millis / 30 % 4];
            let seen = ServerSeen {
                capacity,
                run_queue: n.min(32.0) + f64::from(u8::from(millis % 7 < 3)),
                busy,
                ended,
                little,
                ..seen(n, 0.0)
            };
            let pressure = Pressure {
                base: None,
                residence: 0.016,
                slo: 0.5,
                ..pressure(binds)
            };
            bound.on_record(&seen, &pressure);
            if n > little && little > 0.0 && binds && bound.fills(0.9, capacity) {
                bound.cap(little, capacity);
            }
        }
        n
    }

    #[test]
    fn a_part_of_a_cpu_in_slices_is_not_taken_for_one_that_has_time() {
        for first in [2.0, 20.0, 60.0, 300.0] {
            let at_work = pool_with_a_quota(first);
            assert!(at_work < 12.0, "{at_work} of {first} at first");
        }
    }
}
