//! Requests as they come and go: what is counted, what is bounded, and what numbers bring with them.

use tidegate_core::culprits::{EVERY, LearnedClass, Limits, UsagePoint};
use tidegate_core::prng::Prng;

use super::fare::{LATE_MAX, OthersFare};
use super::shipped::AGE_MICROS_MAX;
use super::*;
use crate::live::exchange::{self, Shipment};
use crate::live::testing::{CPU, at};

/// Workers that say nothing.
#[derive(Debug)]
struct Silent;

impl RequestEvents for Silent {
    fn drain(&mut self, _take: &mut dyn FnMut(RequestEvent)) -> bool {
        false
    }
}

fn sent(id: u64, millis: u64, target: &str) -> RequestEvent {
    RequestEvent::Sent {
        id,
        asked: at(millis),
        at: at(millis),
        site: tidegate_core::topology::SiteId(0),
        words: Words::of("GET", target),
    }
}

fn ended(id: u64, millis: u64) -> RequestEvent {
    RequestEvent::Ended { id, at: at(millis) }
}

fn requests(sites: &[&str], peers: &[SocketAddr]) -> (Requests, Discovery) {
    let mut requests = Requests::new(Vec::new(), peers);
    requests.follow(sites.iter().map(|site| (*site, true)));
    (requests, Discovery::new(Limits::default()))
}

/// Names of classes with requests that have ended, and how long those took, in ms.
fn lived(requests: &Requests) -> Vec<(String, u64)> {
    let names = requests.names();
    let of = |it: &Lived| {
        let millis = it.ended.since(it.sent).as_millis() as u64;
        (names[it.class.index()].clone(), millis)
    };
    requests.ended().map(of).collect()
}

#[test]
fn what_one_front_end_has_the_other_knows() {
    let there = "10.0.0.2:8100".parse().unwrap();
    // Sites stand in another order there.
    let (mut one, mut found) = requests(&["shop", "blog"], &[]);
    let (mut other, mut found_there) = requests(&["blog", "shop"], &[there]);
    assert_eq!(one.ship(0, at(0)).ended, []);
    for event in [
        sent(1, 10, "/item/7?page=2"),
        sent(2, 20, "/slow"),
        ended(1, 60),
    ] {
        one.take(event, &mut found);
    }
    let shipment = one.ship(0, at(100));
    assert_eq!((shipment.ended.len(), shipment.unfinished.len()), (1, 1));
    let next = shipment.next;
    // The clock there is another one.
    let heard = at(5_000_100);
    other.accept(there, Ok(shipment), heard, &mut found_there);
    assert_eq!(lived(&other), [("shop GET /item/{n}?page".into(), 50)]);
    let unfinished: Vec<_> = other.unfinished().collect();
    assert_eq!(unfinished[0].1, at(5_000_020));
    // Nothing comes twice.
    assert_eq!(one.ship(next, at(200)).ended, []);
    // Silence: what was in progress there is not, any more.
    other.drain(&mut Silent, &mut found_there, heard + SILENT + SILENT);
    assert_eq!(other.unfinished().count(), 0);
    other.accept(there, Err("gone".into()), heard, &mut found_there);
    assert_eq!(other.silent().collect::<Vec<_>>(), [(there, "gone")]);
}

/// What is known of the one class of a site after two minutes.
fn learned() -> LearnedClass {
    let mut discovery = Discovery::new(Limits::default());
    let mut prng = Prng::new(1);
    let mut busy_ns = 0;
    for ms in (0..120_000).step_by(20) {
        if prng.unit() < 0.3 {
            busy_ns += 10_000_000;
            let request = Request {
                class: ClassId(1),
                sent: at(ms),
                ended: Some(at(ms + 20)),
            };
            discovery.on_request(&request);
        }
        let point = UsagePoint {
            at: at(ms + 20),
            busy_ns,
            cores: 1.0,
        };
        discovery.on_usage(CPU, point);
        if u128::from(ms).is_multiple_of(EVERY.as_millis()) {
            discovery.evaluate(at(ms), CPU);
        }
    }
    discovery.learned(CPU)[&ClassId(1)]
}

/// Another class gets the number of the first one, and nothing of what was known of that.
#[test]
fn a_number_that_is_given_away_anew_brings_nothing_with_it() {
    let (mut requests, mut found) = requests(&["shop"], &[]);
    let number = |requests: &Requests, name: &str| {
        let names = requests.names();
        names
            .iter()
            .position(|it| it == name)
            .map(|it| ClassId(it as u16))
    };
    // One of them is still there when its number is another's.
    requests.take(sent(0, 0, "/old"), &mut found);
    requests.take(sent(1, 0, "/old"), &mut found);
    requests.take(ended(1, 10), &mut found);
    requests.drain(&mut Silent, &mut found, at(0));
    let old = number(&requests, "GET /old").unwrap();
    assert!(found.recall(CPU, old, learned()));
    assert!(found.learned(CPU).contains_key(&old));
    // First names change nothing of what is known.
    requests.drain(&mut Silent, &mut found, at(10_000));
    assert!(found.learned(CPU).contains_key(&old));
    // So many others that it weighs too little for a number, and others again each minute.
    let mut id = 10;
    let mut load = |requests: &mut Requests, found: &mut Discovery, millis| {
        for page in 0..360 {
            let (folder, kind) = (page % 12, ["a", "b"][page / 12 % 2]);
            let target = format!("/d{folder}-{}/{kind}/p{}", millis / 60_000, page / 24);
            requests.take(sent(id, millis, &target), found);
            requests.take(ended(id, millis + 100), found);
            id += 1;
        }
    };
    let mut millis = 10_000;
    while number(&requests, "GET /old").is_some() {
        millis += 10_000;
        assert!(millis < 10_000_000, "it keeps its name");
        load(&mut requests, &mut found, millis);
        requests.drain(&mut Silent, &mut found, at(millis));
    }
    let unfinished: Vec<_> = requests.unfinished().map(|it| it.0).collect();
    assert_eq!(unfinished, [ClassId::OTHER]);
    assert_eq!((requests.counts[old.index()], requests.counts[0]), (0, 1));
    while requests.names()[old.index()].is_empty() {
        millis += 10_000;
        assert!(millis < 10_000_000, "the number is given away");
        load(&mut requests, &mut found, millis);
        requests.drain(&mut Silent, &mut found, at(millis));
    }
    assert_eq!(found.learned(CPU).get(&old), None);
    requests.take(ended(0, millis), &mut found);
    assert_eq!((requests.counts[old.index()], requests.counts[0]), (0, 0));
}

#[test]
fn nonsense_from_elsewhere_is_left_out() {
    let there = "10.0.0.2:8100".parse().unwrap();
    let (mut requests, mut found) = requests(&["shop"], &[there]);
    let nonsense = Shipment {
        words: vec![("GET".into(), "/a".into())],
        ended: vec![(0, 9, u64::MAX, 5), (7, 0, 2, 1), (0, 0, 1, 5)],
        unfinished: vec![(3, 0, 1)],
        ..Shipment::default()
    };
    requests.accept(there, Ok(nonsense), at(0), &mut found);
    assert!(requests.ended().count() <= 2);
    assert_eq!(requests.unfinished().count(), 0);
    let stranger = "10.0.0.3:8100".parse().unwrap();
    requests.accept(stranger, Ok(Shipment::default()), at(0), &mut found);
    assert_eq!(requests.silent().count(), 0);
}

/// A peer that is captured, or broken, costs no more than this.
#[test]
fn what_another_front_end_ships_is_bounded() {
    let there = "10.0.0.2:8100".parse().unwrap();
    let (mut requests, mut found) = requests(&["shop"], &[there]);
    let long_ago = AGE_MICROS_MAX + 1;
    let shipment = |ended: usize, unfinished: usize| Shipment {
        words: vec![("GET".into(), "/a".into())],
        ended: vec![(0, 0, 2000, 1000); ended],
        unfinished: vec![(0, 0, long_ago); unfinished],
        ..Shipment::default()
    };
    let heard = Timestamp::from_millis(10_000_000);
    let most = shipment(exchange::KEPT_MAX, IN_PROGRESS_MAX);
    requests.accept(there, Ok(most), heard, &mut found);
    assert_eq!(requests.ended().count(), exchange::KEPT_MAX);
    assert_eq!(requests.unfinished().count(), IN_PROGRESS_MAX);
    let oldest = requests.unfinished().map(|(_, sent)| sent).min();
    assert_eq!(oldest, Some(heard - Duration::from_micros(AGE_MICROS_MAX)));
    let more = shipment(exchange::KEPT_MAX + 1, IN_PROGRESS_MAX + 1);
    requests.accept(there, Ok(more), heard, &mut found);
    assert_eq!(requests.ended().count(), 2 * exchange::KEPT_MAX);
    assert_eq!(requests.unfinished().count(), IN_PROGRESS_MAX);
}

#[test]
fn so_many_requests_in_progress_are_followed_and_no_more() {
    let (mut requests, mut found) = requests(&["shop"], &[]);
    for id in 0..=IN_PROGRESS_MAX as u64 {
        requests.take(sent(id, 0, "/a"), &mut found);
    }
    assert_eq!(requests.unfinished().count(), IN_PROGRESS_MAX);
    // The end of one that is not followed is no harm, and of one that is makes room.
    requests.take(ended(IN_PROGRESS_MAX as u64, 1), &mut found);
    assert_eq!(requests.unfinished().count(), IN_PROGRESS_MAX);
    requests.take(ended(0, 1), &mut found);
    requests.take(sent(u64::MAX, 1, "/a"), &mut found);
    assert_eq!(requests.unfinished().count(), IN_PROGRESS_MAX);
}

#[test]
fn so_many_requests_that_have_ended_are_kept_and_no_more() {
    let (mut requests, mut found) = requests(&["shop"], &[]);
    for millis in 0..=KEPT_MAX as u64 {
        let sent = Timestamp::from_millis(millis);
        requests.end(ClassId::OTHER, sent, sent, &mut found);
        requests.note(ClassId::OTHER, sent, None);
    }
    let last = Timestamp::from_millis(KEPT_MAX as u64);
    let kept: Vec<_> = requests.ended().collect();
    assert_eq!((kept.len(), requests.late.len()), (KEPT_MAX, LATE_MAX));
    // The oldest has made room.
    assert_eq!(kept[0].sent, Timestamp::from_millis(1));
    assert_eq!(requests.late.back().map(|it| it.at), Some(last));
}

#[test]
fn what_others_take_leaves_culprits_out() {
    let (mut requests, mut found) = requests(&["shop"], &[]);
    for id in 0..100 {
        requests.take(sent(id, 0, "/fast"), &mut found);
        requests.take(ended(id, 10), &mut found);
        requests.take(sent(1000 + id, 0, "/slow"), &mut found);
    }
    let take = |but: &dyn Fn(&str) -> bool| requests.others_fare(but, 0.05, at(500)).seconds;
    assert!((take(&|name| name == "GET /slow").unwrap() - 0.01).abs() < 1e-9);
    // What waits shows by its age.
    assert!((take(&|_| false).unwrap() - 0.5).abs() < 1e-9);
    assert_eq!(take(&|_| true), None);
}

#[test]
fn who_waits_for_room_or_is_refused_is_held_back() {
    let (mut requests, mut found) = requests(&["shop"], &[]);
    for id in 0..40 {
        let RequestEvent::Sent {
            id,
            at,
            site,
            words,
            ..
        } = sent(id, 100, "/fast")
        else {
            unreachable!();
        };
        // Every fourth waited for 80 ms.
        let waited = Duration::from_millis(if id % 4 == 0 { 80 } else { 0 });
        let asked = at - waited;
        requests.take(
            RequestEvent::Sent {
                id,
                asked,
                at,
                site,
                words,
            },
            &mut found,
        );
        requests.take(ended(id, 110), &mut found);
    }
    let fare = requests.others_fare(&|_| false, 0.05, at(500));
    assert!((fare.seconds.unwrap() - 0.09).abs() < 1e-9, "{fare:?}");
    assert_eq!(fare.held_back, 0.25);
    let at_servers = |name: &str| requests.take_at_servers(&|it| it == name, at(500));
    assert!((at_servers("GET /fast").unwrap() - 0.01).abs() < 1e-9);
    assert_eq!(at_servers("GET /slow"), None);
    let words = Words::of("GET", "/fast");
    for (many, target) in [(40, words), (80, Words::of("GET", "/slow"))] {
        for _ in 0..many {
            let refused = RequestEvent::Refused {
                at: at(120),
                site: tidegate_core::topology::SiteId(0),
                words: target,
            };
            requests.take(refused, &mut found);
        }
    }
    let fare = requests.others_fare(&|name| name == "GET /slow", 0.05, at(500));
    assert_eq!(fare.held_back, 50.0 / 80.0);
    // What was five seconds ago counts no more.
    let later = requests.others_fare(&|_| false, 0.05, at(5200));
    assert_eq!(later, OthersFare::default());
}

fn sent_to(site: u32, id: u64, millis: u64, target: &str) -> RequestEvent {
    RequestEvent::Sent {
        id,
        asked: at(millis),
        at: at(millis),
        site: tidegate_core::topology::SiteId(site),
        words: Words::of("GET", target),
    }
}

/// Workers that have said this.
#[derive(Debug)]
struct Said(Vec<RequestEvent>);

impl RequestEvents for Said {
    fn drain(&mut self, take: &mut dyn FnMut(RequestEvent)) -> bool {
        self.0.drain(..).for_each(take);
        false
    }
}

#[test]
fn classes_of_the_site_that_was_alone_keep_their_numbers_when_there_is_another() {
    let (mut requests, mut found) = requests(&["shop"], &[]);
    requests.take(sent(1, 0, "/search"), &mut found);
    requests.take(ended(1, 30), &mut found);
    let number = |requests: &Requests, name: &str| {
        let names = requests.names();
        names.iter().position(|it| it == name)
    };
    let before = number(&requests, "GET /search").unwrap();
    // A request of a site that is not known yet waits for its name, and its end for it.
    let events = [
        sent_to(1, 2, 40, "/search"),
        ended(2, 50),
        sent(3, 60, "/search"),
        ended(3, 70),
    ];
    requests.drain(&mut Said(events.into()), &mut found, at(80));
    assert_eq!(lived(&requests).len(), 1);
    let sites = [("shop", true), ("blog", true)];
    assert_eq!(requests.follow(sites.into_iter()).as_deref(), Some("shop"));
    requests.take_early(&mut found);
    assert_eq!(number(&requests, "shop GET /search"), Some(before));
    assert_eq!(number(&requests, "GET /search"), None);
    let all = [
        ("shop GET /search".to_owned(), 30),
        ("blog GET /search".to_owned(), 10),
        ("shop GET /search".to_owned(), 10),
    ];
    assert_eq!(lived(&requests), all);
    let patterns = requests.class_patterns();
    assert_eq!(patterns[before].as_deref(), Some("shop GET /search?"));
    // Once there have been several each goes on under its site's name.
    let shop = ClassId(before as u16);
    assert!(requests.is_served(shop));
    assert_eq!(
        requests.follow([("shop", false), ("blog", true)].into_iter()),
        None
    );
    assert!(!requests.is_served(shop) && requests.is_served(ClassId::OTHER));
    assert_eq!(number(&requests, "shop GET /search"), Some(before));
}

#[test]
fn what_another_front_end_tells_of_a_site_that_is_not_here_counts_for_none_here() {
    let there = "10.0.0.2:8100".parse().unwrap();
    let (mut one, mut found) = requests(&["shop"], &[there]);
    let (mut other, mut found_there) = requests(&["shop", "blog"], &[]);
    other.ship(0, at(0));
    for (site, id) in [(0, 1), (1, 2)] {
        other.take(sent_to(site, id, 10, "/search"), &mut found_there);
        other.take(ended(id, 20), &mut found_there);
    }
    one.accept(there, Ok(other.ship(0, at(100))), at(100), &mut found);
    assert_eq!(lived(&one), [("GET /search".to_owned(), 10)]);
}
