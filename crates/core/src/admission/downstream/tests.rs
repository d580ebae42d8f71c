//! What is held for what lies behind the servers, and when it lets go.

use super::*;

/// A millisecond at a site of which nothing is known yet, with limits that bind.
const COLD: SiteSeen = SiteSeen {
    dt: 0.001,
    in_flight: 0.0,
    throttled: 0.0,
    useful: 0.0,
    ended: 0.4,
    utilization: 0.1,
    binds: true,
    limits: 1000.0,
    slo: 0.5,
    inherently_long: false,
    alone: 0.0,
    together: false,
    slowdown: None,
    mix: None,
};

/// A site whose servers idle before a database that does `channels` things at once, each in
/// `service` seconds: closed by the limit, offered more than it can do.
struct Database {
    downstream: Downstream,
    now: Timestamp,
    in_flight: f64,
    channels: f64,
    service: f64,
}

impl Database {
    fn new(channels: f64, service: f64) -> Self {
        Self {
            downstream: Downstream::default(),
            now: Timestamp::from_millis(1000),
            in_flight: 0.0,
            channels,
            service,
        }
    }

    /// So many milliseconds at this rate of arrivals; the cap at the end.
    fn run(&mut self, millis: u32, offered: f64) -> Option<f64> {
        let limits = 400.0_f64;
        let mut cap = None;
        for _ in 0..millis {
            let dt = COLD.dt;
            self.now = self.now + Duration::from_millis(1);
            let ended = (self.in_flight.min(self.channels) / self.service * dt).min(self.in_flight);
            self.in_flight -= ended;
            let most = cap.unwrap_or(limits).min(limits);
            let wanted = self.in_flight + offered * dt;
            let binds = wanted > most;
            self.in_flight = wanted.min(most.max(self.in_flight));
            let seen = SiteSeen {
                in_flight: self.in_flight,
                useful: self.in_flight,
                ended,
                utilization: 0.2,
                binds,
                limits,
                ..COLD
            };
            cap = self.downstream.on_tick(&seen, self.now);
        }
        cap
    }
}

#[test]
fn an_overloaded_database_gets_twice_what_it_can_do_at_once() {
    // 20 at once in 20 ms: 1000 a second.
    let mut database = Database::new(20.0, 0.02);
    assert_eq!(database.run(2000, 600.0), None, "below its capacity");
    let base = database.downstream.base().unwrap();
    assert!((0.015..0.025).contains(&base), "{base}");
    database.run(4000, 2000.0);
    let (engaged, _) = database.downstream.state();
    assert!(engaged);
    let cap = database.downstream.cap;
    assert!((20.0..=60.0).contains(&cap), "{cap}");
    database.run(4000, 300.0);
    assert_eq!(database.downstream.state(), (false, false), "it lets go");
}

/// Two at a time that took 9 ms each with room, beside throttled ones that fill the database now. They come by chance, so
/// the cap often holds one back.
#[test]
fn a_cap_that_meets_what_comes_lets_go_though_requests_are_slower_than_with_room() {
    let lets_go = |each: f64| {
        let mut downstream = Downstream {
            time: SITE_TAU_S,
            served: 2.0 * SITE_TAU_S,
            ended: 2.0 / each * SITE_TAU_S,
            present: 2.0 * SITE_TAU_S,
            base: Some(0.009),
            unloaded: true,
            engaged: true,
            cap: 3.0,
            next_probe: Timestamp::from_millis(15_000),
            ..Downstream::default()
        };
        let seen = SiteSeen {
            in_flight: 2.0,
            useful: 2.0,
            ended: 2.0 / each * COLD.dt,
            slowdown: Some(each / 0.009),
            mix: Some(0.009),
            ..COLD
        };
        (1..10_000).any(|millis| {
            downstream.on_tick(&seen, Timestamp::from_millis(1000 + millis));
            !downstream.state().0
        })
    };
    assert!(lets_go(0.0125));
    // As slow as the cap allows: more would come if it let them.
    assert!(!lets_go(0.018));
}

/// One at a time takes 17 ms beside two throttled ones that fill the database, where it took 5 ms alone.
#[test]
fn throttled_requests_do_not_keep_all_others_at_one_at_a_time() {
    let cap = |throttled: f64| {
        let mut downstream = Downstream {
            time: SITE_TAU_S,
            served: SITE_TAU_S,
            ended: SITE_TAU_S / 0.017,
            present: SITE_TAU_S,
            throttled: throttled * SITE_TAU_S,
            base: Some(0.005),
            unloaded: true,
            engaged: true,
            cap: 1.0,
            next_probe: Timestamp::from_millis(15_000),
            ..Downstream::default()
        };
        let mut in_flight: f64 = 1.0;
        (1..4000).find_map(|millis| {
            let ended = in_flight / 0.017 * COLD.dt;
            let seen = SiteSeen {
                in_flight,
                throttled,
                useful: in_flight,
                ended,
                slowdown: Some(3.4),
                mix: Some(0.005),
                ..COLD
            };
            let cap = downstream.on_tick(&seen, Timestamp::from_millis(1000 + millis));
            in_flight = cap.map_or(8.0, |cap| cap.min(8.0));
            (in_flight >= 3.0).then_some(in_flight)
        })
    };
    assert_eq!(cap(0.0), None);
    assert!(cap(2.0).is_some());
}

#[test]
fn a_cold_start_in_overload_finds_the_base_by_probe_phases() {
    let mut database = Database::new(20.0, 0.02);
    database.run(6000, 3000.0);
    let base = database.downstream.base().unwrap();
    assert!((0.015..0.04).contains(&base), "{base}");
    assert!(
        database.downstream.cap < 90.0,
        "{}",
        database.downstream.cap
    );
}

#[test]
fn full_cpus_are_not_its_affair() {
    let mut downstream = Downstream::default();
    let mut now = Timestamp::from_millis(1000);
    for _ in 0..3000 {
        now = now + Duration::from_millis(1);
        let seen = SiteSeen {
            in_flight: 40.0,
            useful: 32.0,
            ended: 3.2,
            utilization: 0.99,
            limits: 40.0,
            ..COLD
        };
        assert_eq!(downstream.on_tick(&seen, now), None);
    }
}

#[test]
fn a_burst_takes_no_longer_than_is_known() {
    let mut downstream = Downstream::default();
    let mut now = Timestamp::from_millis(1000);
    let mut run = |millis: u32, in_flight: f64, ended: f64| {
        for _ in 0..millis {
            now = now + Duration::from_millis(1);
            let seen = SiteSeen {
                in_flight,
                useful: in_flight,
                ended,
                utilization: 1.0,
                limits: 9.0,
                ..COLD
            };
            downstream.on_tick(&seen, now);
        }
        downstream.sojourn()
    };
    // Nine requests of 100 ms after a second without any: none has ended yet.
    run(100, 9.0, 0.0);
    run(1000, 0.0, 0.0);
    let sojourn = run(60, 9.0, 0.0);
    assert!((0.04..=0.07).contains(&sojourn), "{sojourn}");
    // Nine at a time that go on and on: 90 end each second.
    let sojourn = run(1000, 9.0, 0.09);
    assert!((sojourn - 0.1).abs() < 0.01, "{sojourn}");
}

/// Limits that bind from the start, at a site whose requests in service are ever more: whether it
/// engages within a second.
fn engages(seen: &SiteSeen, in_flight: impl Fn(f64) -> f64) -> bool {
    let mut downstream = Downstream::default();
    let mut now = Timestamp::from_millis(1000);
    (1..1000).any(|millis| {
        now = now + Duration::from_millis(1);
        let in_flight = in_flight(f64::from(millis) * 1e-3);
        let seen = SiteSeen {
            in_flight,
            useful: in_flight,
            ..*seen
        };
        downstream.on_tick(&seen, now);
        downstream.state().0
    })
}

#[test]
fn what_was_never_unloaded_is_no_overload_while_no_kind_is_slower() {
    assert!(engages(&COLD, |_| 20.0));
    let quick = SiteSeen {
        slowdown: Some(1.05),
        mix: Some(0.005),
        ..COLD
    };
    assert!(!engages(&quick, |_| 20.0));
}

#[test]
fn long_polls_that_gather_take_no_longer_than_one_alone() {
    // Four hundred more of them a second, which rest after half a second.
    let gather = |seconds: f64| 2.0 + 400.0 * seconds.min(0.5);
    let long_polls = SiteSeen {
        inherently_long: true,
        ..COLD
    };
    assert!(engages(&long_polls, gather));
    let known = SiteSeen {
        alone: 0.3,
        ..long_polls
    };
    assert!(!engages(&known, gather));
}

#[test]
fn probe_phases_begin_on_the_grid() {
    let at = Timestamp::from_millis;
    assert_eq!(next(at(1001), PROBE_GRID), at(1500));
    assert_eq!(next(at(1500), PROBE_GRID), at(1500));
    assert_eq!(next(at(1501), PROBE_LATER), at(10_000));
}
