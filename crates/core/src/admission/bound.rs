//! How many requests a server can use: a bound on those in flight, from its run queue and accept
//! queue.
//!
//! ```text
//! r, u, q   mean run queue, busy CPUs and accept queue, as the record's integrals tell
//! w         = max(0, r - u) * min(1, n / r) + q    requests that wait for a CPU or a worker
//! useful    = n - w                                n in flight: what the server is at work on
//! target    = useful + max(1, (gamma - 1) * useful)
//!
//! n > gamma * useful and n > target:  L += (target - L) * (1 - e^(-dt / 10 ms)), L >= floor
//! else if the limit binds and the CPUs are full, or answers come as fast as ever, or take longer
//! than half the SLO by nature:
//!                                     L += max(1, 0.1 L) * dt / W, up to 1.05 * target, where
//!                                     slots that are held and empty count as useful
//!                                     without waiting for W where CPUs have time and nobody waits for
//!                                     them: 1 / 50 ms
//! else L stays: the knee does not move when load falls
//! floor     = C + max(1, 0.25 C), at least 2: one in service and the next one at hand
//! ```
//!
//! Inputs: records (any interval), own requests in flight, whether the limit binds.
//!
//! A server that computes needs as many requests as it has CPUs; one that also waits for disks or
//! databases shows by itself how many more, since a request that waits for those is not on the
//! run queue; one with few workers shows it in its accept queue. No history and no baseline are
//! needed, so nothing is wrong after a change. Of the run queue only the part that is the
//! requests' counts: antagonists make it long without any request's doing.
//!
//! Failure case: a server that queues by itself, unseen (an event loop, a pool that accepts all):
//! then all in flight look useful and the bound grows with them; [`super::control`] caps it by
//! Little's law at half the SLO.
//!
//! Source: the admission study, "Specification"; gamma from its table, where 1.25 is the best of
//! five over all scenarios.

use super::ewma::Ewma;
use super::{SLO_PART, WithoutRecords};

/// How much more than useful may be in flight.
const GAMMA: f64 = 1.25;
/// The same where the record is old.
const GAMMA_STALE: f64 = 1.5 * GAMMA;
/// Time constant of what is seen and of the way down, seconds.
const TAU: f64 = 0.01;
/// The way up: a tenth in the time of a request, which is taken to be between these, seconds.
const STEP: f64 = 0.1;
const REQUEST_MIN: f64 = 0.01;
const REQUEST_MAX: f64 = 0.1;
/// The way up where CPUs have time: time constant, seconds; the used part of them below which they
/// have; those who wait for them, over those in flight.
const TAU_UP: f64 = 0.05;
const TIME: f64 = 0.7;
const NOBODY: f64 = 0.1;
/// No further above the target.
const ABOVE_TARGET: f64 = 1.05;
/// CPUs count as full from here.
const FULL: f64 = 0.93;
/// Answers are as fast as ever below this many times the base, and half the SLO.
const SWIFT: f64 = 1.5;

/// What a new record tells, and what is in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
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
    /// Requests in flight, those of all front-ends.
    pub(super) in_flight: f64,
    /// Slots that front-ends hold for requests to come.
    pub(super) empty: f64,
    /// Whether it is too old to act upon at once.
    pub(super) stale: bool,
}

/// How the site as a whole stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pressure {
    /// Whether this server's limit keeps requests away.
    pub(super) binds: bool,
    /// Time that a request spends in service, without waiting for a CPU, seconds; zero if nobody
    /// knows.
    pub(super) residence: f64,
    /// The same of an unloaded site.
    pub(super) base: Option<f64>,
    /// Whether they take longer than half the SLO by nature.
    pub(super) natural: bool,
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
}

impl Bound {
    /// Of a server of which nothing but its CPUs is known.
    pub(super) fn new(capacity: f64) -> Self {
        Self {
            limit: 2.0 * capacity,
            useful: Ewma::new(TAU),
            in_flight: Ewma::new(TAU),
            busy: Ewma::new(TAU),
            empty: Ewma::new(TAU),
        }
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

    /// CPUs that have nothing to do, where nobody waits: what any front-end may use beside its
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
    pub(super) fn on_record(&mut self, seen: &Seen, pressure: &Pressure) {
        let n = seen.in_flight;
        let ours = (n / seen.run_queue.max(f64::MIN_POSITIVE)).min(1.0);
        let waiting = (seen.run_queue - seen.busy).max(0.0) * ours + seen.accept_queue;
        self.in_flight.add(n, seen.dt);
        self.useful.add((n - waiting).max(0.0), seen.dt);
        self.busy.add(seen.busy, seen.dt);
        self.empty.add(seen.empty, seen.dt);
        let gamma = if seen.stale { GAMMA_STALE } else { GAMMA };
        let (n, useful) = (self.in_flight.value(), self.useful.value());
        let target = useful + f64::max(1.0, (gamma - 1.0) * useful);
        let floor = floor(seen.capacity);
        if n > gamma * useful && n > target {
            let step = 1.0 - (-seen.dt / TAU).exp();
            self.limit += (target - self.limit) * step;
        } else if pressure.binds && self.may_grow(seen.capacity, pressure) {
            let request = pressure.residence.clamp(REQUEST_MIN, REQUEST_MAX);
            let by_request = f64::max(1.0, STEP * self.limit) * seen.dt / request;
            let grown = match self.has_time(seen.capacity) {
                true => self.limit + f64::max(by_request, self.limit * seen.dt / TAU_UP),
                false => self.limit + by_request,
            };
            let reach = ABOVE_TARGET * (target + self.empty.value());
            self.limit = grown.min(f64::max(self.limit, reach));
        }
        self.limit = self.limit.max(floor);
    }

    /// Lowers it to what Little's law allows, but not below the floor.
    pub(super) fn cap(&mut self, most: f64, capacity: f64) {
        self.limit = self.limit.min(most.max(floor(capacity)));
    }

    /// Whether the CPUs have time and nobody waits for them.
    fn has_time(&self, capacity: f64) -> bool {
        let waiting = self.in_flight.value() - self.useful.value();
        self.busy.value() < TIME * capacity && waiting < NOBODY * self.in_flight.value()
    }

    /// More requests would be of use: the CPUs are full and want a queue before them, or the server
    /// answers as fast as if it were idle, or nothing can make it fast.
    fn may_grow(&self, capacity: f64, pressure: &Pressure) -> bool {
        let full = self.busy.value() > FULL * capacity;
        let swift = pressure
            .base
            .is_some_and(|base| pressure.residence < (SWIFT * base).min(SLO_PART * pressure.slo));
        full || swift || pressure.natural
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
            natural: false,
            slo: 0.1,
            without_records: WithoutRecords::Limit,
        }
    }

    /// A millisecond of a server with so many requests in flight, of which each is `cpu` of its
    /// time on the run queue and the rest elsewhere.
    fn seen(n: f64, cpu: f64) -> Seen {
        let wants = n * cpu;
        let busy = wants.min(CPUS);
        Seen {
            dt: 0.001,
            capacity: CPUS,
            run_queue: wants,
            busy,
            accept_queue: 0.0,
            in_flight: n,
            empty: 0.0,
            stale: false,
        }
    }

    fn after(mut bound: Bound, millis: u32, mut seen: impl FnMut(&Bound) -> Seen) -> f64 {
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
            Seen {
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
            Seen {
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
        let limit = after(Bound::new(CPUS), 500, |bound| Seen {
            run_queue: 32.0 + bound.limit(),
            busy: CPUS,
            ..seen(bound.limit(), 1.0)
        });
        assert!(limit >= 5.0, "{limit}");
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
}
