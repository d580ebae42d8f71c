//! Tables with plain values: which requests go, in which order, and the books.

use std::time::Duration;

use super::super::Marks;
use super::*;
use crate::prng::Prng;

fn pattern(text: &str) -> ClassPattern {
    text.parse().unwrap()
}

fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(1000 + millis)
}

fn concurrency(most: u32) -> ThrottleLimits {
    ThrottleLimits {
        concurrency: Some(most),
        ..ThrottleLimits::default()
    }
}

/// A table in which one class is throttled.
fn table(limits: ThrottleLimits) -> (Throttles, ThrottleId) {
    let mut table = Throttles::new(100);
    let pattern = pattern("GET /search/*");
    let id = table.set(pattern, limits, SetBy::Operator, None, at(0));
    (table, id.unwrap())
}

fn held(entry: Entry) -> HeldId {
    match entry {
        Entry::Held(id) => id,
        Entry::Passed | Entry::Full | Entry::Free => panic!("{entry:?}"),
    }
}

fn told(table: &mut Throttles, now: Timestamp) -> Vec<(HeldId, HeldOutcome)> {
    std::iter::from_fn(|| table.poll(now)).collect()
}

fn only(table: &Throttles) -> Throttle {
    table.all().next().unwrap()
}

/// None is lost: see the module of gates.
fn check_books(table: &Throttles) {
    for throttle in table.all() {
        let it = throttle.counters;
        assert_eq!(
            it.arrived,
            it.passed + it.rejected + it.left + throttle.waiting
        );
        assert_eq!(it.passed, it.ended + throttle.in_flight + throttle.lent);
        if let Some(most) = throttle.limits.concurrency {
            assert!(throttle.in_flight <= u64::from(most));
        }
    }
}

#[test]
fn so_many_are_in_flight_and_the_others_go_in_order() {
    let (mut table, id) = table(concurrency(2));
    assert_eq!(table.handle_arrival(id, at(0)), Entry::Passed);
    assert_eq!(table.handle_arrival(id, at(0)), Entry::Passed);
    let waiting = [1, 2, 3].map(|millis| held(table.handle_arrival(id, at(millis))));
    assert_eq!(told(&mut table, at(4)), []);
    assert_eq!(table.due(), None, "only an end lets one go");
    table.handle_end(id);
    assert_eq!(told(&mut table, at(10)), [(waiting[0], HeldOutcome::Pass)]);
    table.handle_left(id, waiting[1], at(11));
    table.handle_end(id);
    table.handle_end(id);
    assert_eq!(told(&mut table, at(13)), [(waiting[2], HeldOutcome::Pass)]);
    table.handle_end(id);
    check_books(&table);
    let it = only(&table);
    assert_eq!((it.in_flight, it.waiting), (0, 0));
    assert_eq!(it.counters.delayed, Duration::from_millis(9 + 9 + 10));
    let counted = [it.counters.arrived, it.counters.held, it.counters.left];
    assert_eq!(counted, [5, 3, 1]);
}

#[test]
fn the_place_of_a_refused_request_stays_taken_for_as_long_as_an_answer_takes() {
    let (mut table, id) = table(concurrency(1));
    assert_eq!(table.handle_arrival(id, at(0)), Entry::Passed);
    let waiting = [1, 2, 3, 4].map(|millis| held(table.handle_arrival(id, at(millis))));
    table.handle_answer(id, Duration::from_millis(40));
    assert_eq!(told(&mut table, at(40)), [(waiting[0], HeldOutcome::Pass)]);
    table.handle_refused(id, at(50));
    assert_eq!(told(&mut table, at(89)), []);
    assert_eq!((only(&table).in_flight, table.due()), (1, Some(at(90))));
    check_books(&table);
    assert_eq!(told(&mut table, at(90)), [(waiting[1], HeldOutcome::Pass)]);
    // One that has lent its place needs none of admission.
    table.handle_lent(id);
    assert_eq!(told(&mut table, at(90)), [(waiting[2], HeldOutcome::Pass)]);
    table.handle_refused(id, at(100));
    let returning = held(table.handle_return(id));
    assert_eq!(told(&mut table, at(100)), [(returning, HeldOutcome::Pass)]);
    check_books(&table);
    // It is over once none is held.
    table.handle_refused(id, at(110));
    table.handle_left(id, waiting[3], at(111));
    assert_eq!(told(&mut table, at(111)), []);
    assert_eq!(only(&table).in_flight, 0);
    assert_eq!(table.handle_arrival(id, at(112)), Entry::Passed);
    table.handle_refused(id, at(113));
    assert_eq!(only(&table).in_flight, 0, "nobody waits for it");
    check_books(&table);
}

#[test]
fn pauses_end_with_the_throttle_and_with_its_bound() {
    let (mut table, id) = table(concurrency(1));
    assert!(table.bounds(id));
    assert_eq!(table.handle_arrival(id, at(0)), Entry::Passed);
    let waiting = [1, 2].map(|millis| held(table.handle_arrival(id, at(millis))));
    table.handle_refused(id, at(3));
    assert_eq!(told(&mut table, at(3)), []);
    let class = pattern("GET /search/*");
    let gives_way = ThrottleLimits {
        lowest_priority: true,
        ..ThrottleLimits::default()
    };
    (table.set(class.clone(), gives_way, SetBy::Operator, None, at(4))).unwrap();
    assert!(!table.bounds(id));
    let both = waiting.map(|it| (it, HeldOutcome::Pass));
    assert_eq!(told(&mut table, at(4)), both);
    assert_eq!(only(&table).in_flight, 2);
    (table.set(class, concurrency(2), SetBy::Operator, None, at(5))).unwrap();
    let last = held(table.handle_arrival(id, at(6)));
    table.handle_refused(id, at(7));
    table.release("GET /search/*").unwrap();
    assert_eq!(told(&mut table, at(8)), [(last, HeldOutcome::Pass)]);
    assert!(!table.bounds(id));
    table.handle_refused(id, at(9));
    table.handle_answer(id, Duration::ZERO);
}

#[test]
fn a_lent_place_goes_to_the_next_and_comes_back_before_any_that_is_held() {
    let limits = ThrottleLimits {
        rate: Some(1.0),
        ..concurrency(1)
    };
    let (mut table, id) = table(limits);
    assert_eq!(table.handle_arrival(id, at(0)), Entry::Passed);
    let waiting = [1, 2].map(|millis| held(table.handle_arrival(id, at(millis))));
    assert_eq!(told(&mut table, at(2000)), []);
    table.handle_lent(id);
    assert_eq!(
        told(&mut table, at(2000)),
        [(waiting[0], HeldOutcome::Pass)]
    );
    assert_eq!((only(&table).in_flight, only(&table).lent), (1, 1));
    check_books(&table);
    // Its node is to do more for it: it waits for a place, and not for the rate.
    let returning = held(table.handle_return(id));
    assert_eq!(told(&mut table, at(2001)), []);
    table.handle_end(id);
    assert_eq!(told(&mut table, at(2001)), [(returning, HeldOutcome::Pass)]);
    assert_eq!((only(&table).in_flight, only(&table).lent), (1, 0));
    check_books(&table);
    table.handle_lent(id);
    assert_eq!(table.handle_return(id), Entry::Passed, "nobody has it yet");
    table.handle_end(id);
    assert_eq!(
        told(&mut table, at(9000)),
        [(waiting[1], HeldOutcome::Pass)]
    );
    check_books(&table);
}

#[test]
fn a_class_is_patient_with_all_its_requests_together() {
    let (mut table, id) = table(concurrency(2));
    let idle = Duration::from_secs(2);
    let stood = |millis| Stood {
        still: Duration::from_millis(millis),
        made_good: Duration::ZERO,
    };
    assert!(table.handle_still(id, stood(2000), idle, at(0)));
    assert!(table.handle_still(id, stood(1999), idle, at(0)));
    assert!(!table.handle_still(id, stood(1), idle, at(0)));
    let class = pattern("GET /search/*");
    (table.set(class, concurrency(4), SetBy::Operator, None, at(0))).unwrap();
    assert!(table.handle_still(id, Stood::default(), idle, at(0)));
    table.release("GET /search/*").unwrap();
    assert!(table.handle_still(id, stood(1_000_000), idle, at(0)));
}

#[test]
fn who_ends_without_a_place_takes_none_with_it() {
    let (mut table, id) = table(concurrency(1));
    for _ in 0..3 {
        assert_eq!(table.handle_arrival(id, at(0)), Entry::Passed);
        table.handle_lent(id);
    }
    assert_eq!(table.handle_return(id), Entry::Passed);
    let first = held(table.handle_return(id));
    table.handle_lent_end(id, None);
    let late = held(table.handle_arrival(id, at(1)));
    table.handle_lent_end(id, Some(first));
    check_books(&table);
    assert_eq!((only(&table).in_flight, only(&table).lent), (1, 0));
    table.handle_end(id);
    assert_eq!(told(&mut table, at(2)), [(late, HeldOutcome::Pass)]);
    // A release lets them go on as any that is held, and knows them no more.
    table.handle_lent(id);
    assert_eq!(table.handle_arrival(id, at(3)), Entry::Passed);
    let second = held(table.handle_return(id));
    let until = Some(at(50));
    let class = pattern("GET /search/*");
    (table.set(class, concurrency(1), SetBy::Operator, until, at(4))).unwrap();
    assert_eq!(
        table.due(),
        until,
        "one that returns waits for the end, too"
    );
    table.release("GET /search/*").unwrap();
    assert_eq!(told(&mut table, at(5)), [(second, HeldOutcome::Pass)]);
    assert_eq!(table.handle_return(id), Entry::Free);
    table.handle_lent_end(id, None);
    assert_eq!(told(&mut table, at(6)), []);
}

#[test]
fn a_rate_lets_them_go_one_by_one_when_it_is_time() {
    let limits = ThrottleLimits {
        rate: Some(10.0),
        ..ThrottleLimits::default()
    };
    let (mut table, id) = table(limits);
    assert_eq!(table.handle_arrival(id, at(0)), Entry::Passed);
    let waiting = [1, 2].map(|millis| held(table.handle_arrival(id, at(millis))));
    for (place, millis) in waiting.into_iter().zip([100, 200]) {
        let due = table.due().unwrap();
        assert_eq!(due.since(at(0)).as_millis(), millis);
        assert_eq!(told(&mut table, due - Duration::from_millis(1)), []);
        assert_eq!(told(&mut table, due), [(place, HeldOutcome::Pass)]);
    }
    assert_eq!(table.due(), None);
}

#[test]
fn a_deadline_ends_the_wait_and_without_one_it_lasts() {
    let limits = ThrottleLimits {
        queue: Some(Duration::from_millis(50)),
        ..concurrency(1)
    };
    let (mut table, id) = table(limits);
    assert_eq!(table.handle_arrival(id, at(0)), Entry::Passed);
    let late = held(table.handle_arrival(id, at(10)));
    let in_time = held(table.handle_arrival(id, at(30)));
    assert_eq!(table.due(), Some(at(60)));
    assert_eq!(told(&mut table, at(59)), []);
    assert_eq!(told(&mut table, at(60)), [(late, HeldOutcome::Late)]);
    table.handle_end(id);
    assert_eq!(
        told(&mut table, at(80)),
        [(in_time, HeldOutcome::Pass)],
        "whoever can go is not refused"
    );
    check_books(&table);
    assert_eq!(only(&table).counters.rejected, 1);
    let pattern = pattern("GET /search/*");
    table
        .set(pattern, concurrency(1), SetBy::Operator, None, at(81))
        .unwrap();
    held(table.handle_arrival(id, at(90)));
    assert_eq!(table.due(), None);
    assert_eq!(told(&mut table, at(1_000_000)), []);
}

#[test]
fn no_more_are_held_than_may_be() {
    let mut table = Throttles::new(2);
    let mut set = |text: &str| {
        table
            .set(pattern(text), concurrency(1), SetBy::Config, None, at(0))
            .unwrap()
    };
    let (one, other) = (set("GET /a"), set("GET /b"));
    for id in [one, other] {
        assert_eq!(table.handle_arrival(id, at(0)), Entry::Passed);
    }
    let first = held(table.handle_arrival(one, at(1)));
    held(table.handle_arrival(other, at(1)));
    assert_eq!(table.handle_arrival(other, at(1)), Entry::Full);
    table.handle_left(one, first, at(2));
    held(table.handle_arrival(other, at(3)));
    check_books(&table);
}

#[test]
fn release_lets_everybody_go_and_forgets_them() {
    let (mut table, id) = table(concurrency(1));
    assert_eq!(table.handle_arrival(id, at(0)), Entry::Passed);
    let waiting = [1, 2, 3].map(|millis| held(table.handle_arrival(id, at(millis))));
    assert_eq!(table.release("GET /other"), None);
    let released = table.release("GET /search/*").unwrap();
    assert_eq!((released.waiting, released.in_flight), (3, 1));
    table.handle_left(id, waiting[1], at(5));
    let pass = [
        (waiting[0], HeldOutcome::Pass),
        (waiting[2], HeldOutcome::Pass),
    ];
    assert_eq!(told(&mut table, at(5)), pass);
    // What such a request does from now on concerns nothing else.
    table.handle_end(id);
    assert_eq!(table.pace(id, 1 << 20, at(6)), None);
    assert_eq!(table.handle_arrival(id, at(6)), Entry::Free);
    assert_eq!((table.version(id), table.all().count()), (None, 0));
    assert!(table.rules().is_empty());
}

#[test]
fn a_throttle_ends_when_its_time_is_over() {
    let (mut table, id) = table(concurrency(1));
    let class = pattern("GET /search/*");
    let same = table.set(class, concurrency(1), SetBy::Policy, Some(at(100)), at(0));
    assert_eq!(same, Ok(id));
    assert_eq!(table.handle_arrival(id, at(0)), Entry::Passed);
    let waits = held(table.handle_arrival(id, at(1)));
    let rules = table.rules();
    assert!(rules.find("shop", "GET", "/search/a", at(99)).is_some());
    assert!(rules.find("shop", "GET", "/search/a", at(100)).is_none());
    assert_eq!(table.due(), Some(at(100)));
    assert_eq!(table.expire(at(99)), None);
    assert_eq!(table.expire(at(100)).unwrap().set_by, SetBy::Policy);
    assert_eq!(table.expire(at(100)), None);
    assert_eq!(told(&mut table, at(100)), [(waits, HeldOutcome::Pass)]);
}

#[test]
fn a_change_keeps_who_is_held_and_what_is_in_flight() {
    let (mut table, id) = table(concurrency(1));
    assert_eq!(table.handle_arrival(id, at(0)), Entry::Passed);
    let waiting = [1, 2, 3].map(|millis| held(table.handle_arrival(id, at(millis))));
    let version = table.version(id);
    let mut set = |limits| {
        let class = pattern("GET /search/*");
        table
            .set(class, limits, SetBy::Operator, None, at(4))
            .unwrap()
    };
    assert_eq!(set(concurrency(3)), id);
    assert_ne!(table.version(id), version);
    let pass = [
        (waiting[0], HeldOutcome::Pass),
        (waiting[1], HeldOutcome::Pass),
    ];
    assert_eq!(told(&mut table, at(5)), pass);
    check_books(&table);
}

#[test]
fn what_makes_no_sense_changes_nothing() {
    let (mut table, _) = table(concurrency(1));
    let refused = table.set(
        pattern("GET /a"),
        ThrottleLimits::default(),
        SetBy::Operator,
        None,
        at(0),
    );
    assert_eq!(refused, Err(SetError::Limits(ThrottleLimitsError::Nothing)));
    for number in 1..Throttles::MAX {
        let pattern = pattern(&format!("GET /{number}"));
        table
            .set(pattern, concurrency(1), SetBy::Operator, None, at(0))
            .unwrap();
    }
    let refused = table.set(
        pattern("GET /a"),
        concurrency(1),
        SetBy::Operator,
        None,
        at(0),
    );
    assert_eq!(refused, Err(SetError::Many));
    assert_eq!(table.all().count(), Throttles::MAX);
}

#[test]
fn bodies_are_paced_at_the_rate_that_is_set_now() {
    let limits = |bandwidth| ThrottleLimits {
        bandwidth: Some(bandwidth),
        marks: Marks {
            mark: Some(1),
            ..Marks::NONE
        },
        ..ThrottleLimits::default()
    };
    let (mut table, id) = table(limits(10 << 10));
    let first = table.pace(id, 4096, at(0)).unwrap();
    assert_eq!((first.bytes, first.at), (1024, at(0)));
    assert!(table.pace(id, 4096, at(0)).unwrap().at <= at(100));
    let later = table.pace(id, 4096, at(0)).unwrap();
    assert!(later.at > at(0));
    let class = pattern("GET /search/*");
    table
        .set(class, limits(1 << 30), SetBy::Operator, Some(at(9)), at(1))
        .unwrap();
    assert_eq!(
        table.pace(id, 4096, at(1)).unwrap(),
        Piece {
            bytes: 4096,
            at: at(1)
        }
    );
    assert_eq!(table.pace(id, 4096, at(9)), None, "its time is over");
    let rules = table.rules();
    let rule = rules.find("shop", "GET", "/search/x", at(2)).unwrap();
    assert_eq!((rule.id, rule.marks.mark), (id, Some(1)));
}

/// Requests that have lent their places, and those of them that need one again.
#[derive(Default)]
struct Lent {
    lent: Vec<ThrottleId>,
    returning: Vec<(ThrottleId, HeldId)>,
}

impl Lent {
    /// One lends its place, needs it again, or ends.
    fn step(&mut self, table: &mut Throttles, in_flight: &mut Vec<ThrottleId>, prng: &mut Prng) {
        let Self { lent, returning } = self;
        match prng.below(4) {
            0 if !in_flight.is_empty() => {
                let throttle = in_flight.swap_remove(prng.below(in_flight.len()));
                table.handle_lent(throttle);
                lent.push(throttle);
            }
            1 if !lent.is_empty() => {
                let throttle = lent.swap_remove(prng.below(lent.len()));
                match table.handle_return(throttle) {
                    Entry::Held(place) => returning.push((throttle, place)),
                    Entry::Passed | Entry::Free | Entry::Full => in_flight.push(throttle),
                }
            }
            2 if !lent.is_empty() => {
                table.handle_lent_end(lent.swap_remove(prng.below(lent.len())), None);
            }
            3 if !returning.is_empty() => {
                let (throttle, id) = returning.swap_remove(prng.below(returning.len()));
                table.handle_lent_end(throttle, Some(id));
            }
            _ => {}
        }
    }

    /// One that needed a place has it.
    fn take_back(&mut self, place: HeldId) -> Option<ThrottleId> {
        let index = self.returning.iter().position(|it| it.1 == place)?;
        Some(self.returning.swap_remove(index).0)
    }
}

/// Whatever happens in whatever order, none is lost, answered twice or let on too many.
#[test]
fn the_books_balance_through_any_history() {
    for seed in 0..50 {
        let mut prng = Prng::new(seed);
        let mut table = Throttles::new(20);
        let names = ["GET /a", "GET /b", "GET /c"];
        let (mut waiting, mut in_flight) = (Vec::new(), Vec::new());
        let mut lent = Lent::default();
        let mut ids = Vec::new();
        for step in 0..2000 {
            let now = at(step);
            let name = names[prng.below(3)];
            match prng.below(12) {
                0 => {
                    let limits = ThrottleLimits {
                        concurrency: Some(1 + prng.below(4) as u32),
                        rate: (prng.below(2) == 0).then_some(200.0),
                        queue: (prng.below(2) == 0).then_some(Duration::from_millis(30)),
                        ..ThrottleLimits::default()
                    };
                    // A class whose limits allow fewer than are in flight keeps them.
                    let busy = table.all().any(|it| it.pattern.name() == name);
                    if !busy {
                        ids.push(
                            table
                                .set(pattern(name), limits, SetBy::Policy, None, now)
                                .unwrap(),
                        );
                    }
                }
                1 if prng.below(20) == 0 => drop(table.release(name)),
                2 if !in_flight.is_empty() => {
                    let id = in_flight.swap_remove(prng.below(in_flight.len()));
                    match prng.below(3) {
                        0 => table.handle_end(id),
                        1 => table.handle_answer(id, Duration::from_millis(5)),
                        _ => table.handle_refused(id, now),
                    }
                }
                3 if !waiting.is_empty() => {
                    let (throttle, id) = waiting.swap_remove(prng.below(waiting.len()));
                    table.handle_left(throttle, id, now);
                }
                8..12 => lent.step(&mut table, &mut in_flight, &mut prng),
                _ if !ids.is_empty() => {
                    let id = ids[prng.below(ids.len())];
                    match table.handle_arrival(id, now) {
                        Entry::Passed => in_flight.push(id),
                        Entry::Held(place) => waiting.push((id, place)),
                        Entry::Full | Entry::Free => {}
                    }
                }
                _ => {}
            }
            for (place, told) in told(&mut table, now) {
                let throttle = lent.take_back(place).unwrap_or_else(|| {
                    let index = waiting.iter().position(|it| it.1 == place);
                    waiting.swap_remove(index.unwrap()).0
                });
                if told == HeldOutcome::Pass {
                    in_flight.push(throttle);
                }
            }
            check_books(&table);
            let held: u64 = table.all().map(|it| it.waiting).sum();
            assert_eq!(held, waiting.len() as u64, "seed {seed}");
        }
    }
}
