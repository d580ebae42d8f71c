//! Admission, discovery and `automatic` together, before a database that searches fill.

use std::time::Duration;

use tidegate_core::admission::{AdmissionConfig, AdmissionKind};
use tidegate_core::throttle::AutoConfig;
use tidegate_sim::shop::{
    Class, ClassSummary, Come, ONSET, Shop, ShopRun, auction, misleading, overloaded, queueing,
    run, stocktaking, worn_out,
};

const STATIC: [usize; 1] = [0];
/// Pages that ask the database for a little, and a form that asks it for nothing.
const PAGES: [usize; 3] = [1, 2, 3];
const SEARCHES: [usize; 1] = [4];
/// Pages of the shop that counts its stock.
const STOCK_PAGES: [usize; 10] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10];

fn ran(kind: AdmissionKind, automatic: Option<AutoConfig>, seed: u64) -> ShopRun {
    run(&auction(AdmissionConfig::new(kind), automatic, seed))
}

/// Seconds after the searches set in.
fn after(tally: &ShopRun, classes: &[usize], from: f64, to: f64) -> ClassSummary {
    let onset = ONSET.as_secs_f64();
    tally.over(classes, onset + from, onset + to)
}

fn refused(it: ClassSummary) -> f64 {
    it.refused as f64 / (it.refused + it.answered).max(1) as f64
}

#[test]
fn admission_costs_nobody_anything_where_nothing_is_full() {
    for seed in 1..=3 {
        let ours = ran(AdmissionKind::Adaptive, None, seed);
        let off = ran(AdmissionKind::Off, None, seed);
        for classes in [&STATIC[..], &PAGES] {
            let calm = |tally: &ShopRun| after(tally, classes, -50.0, 0.0);
            let (ours, off) = (calm(&ours), calm(&off));
            assert_eq!(ours.refused, 0, "seed {seed}");
            assert!(
                ours.p95_ms < 1.1 * off.p95_ms,
                "seed {seed}: {ours:?} {off:?}"
            );
        }
    }
}

#[test]
fn with_automatic_everybody_else_is_fast_again() {
    for seed in 1..=3 {
        let tally = ran(AdmissionKind::Adaptive, Some(AutoConfig::default()), seed);
        let all = after(&tally, &STATIC, -50.0, 180.0);
        assert_eq!(
            all.refused, 0,
            "seed {seed}: pictures ask the database for nothing"
        );
        let before = after(&tally, &PAGES, -50.0, 0.0);
        let then = after(&tally, &PAGES, 10.0, 180.0);
        assert_eq!(then.refused, 0, "seed {seed}: {:?}", tally.said);
        assert!(
            then.p95_ms <= 1.3 * before.p95_ms,
            "seed {seed}: {then:?} {before:?}"
        );
        // The searches complete, in their turn; the last that was refused came before they were throttled.
        let searches = after(&tally, &SEARCHES, 11.0, 160.0);
        assert!(searches.answered > 1500, "seed {seed}: {searches:?}");
        assert_eq!(searches.refused, 0, "seed {seed}");
        // What works is not released for the lack of evidence that it brings about.
        let released = tally
            .said
            .iter()
            .any(|(_, text)| text.contains("not throttled any more"));
        assert!(!released, "seed {seed}: {:?}", tally.said);
    }
}

/// From the first second on, whether the searches are throttled later or not.
#[test]
fn pages_that_were_there_before_the_searches_go_first() {
    let last = AutoConfig {
        holds: false,
        ..AutoConfig::default()
    };
    for automatic in [None, Some(last), Some(AutoConfig::default())] {
        for seed in 1..=4 {
            let adaptive = AdmissionConfig::new(AdmissionKind::Adaptive);
            let mut shop = auction(adaptive, automatic, seed);
            shop.length = ONSET + Duration::from_secs(15);
            let tally = run(&shop);
            let pages = after(&tally, &PAGES, 0.0, 10.0);
            assert!(refused(pages) < 0.01, "seed {seed}: {pages:?}");
            assert!(pages.p95_ms < 100.0, "seed {seed}: {pages:?}");
            let searches = after(&tally, &SEARCHES, 0.0, 10.0);
            assert!(searches.answered > 200, "seed {seed}: {searches:?}");
        }
    }
}

/// All pages come five or six times as often: none of them is new, and they are refused alike. If one does, the
/// other one is not refused for it.
#[test]
fn growth_of_all_is_overload_and_growth_of_one_is_its_own_affair() {
    let grown = |more: &[(usize, f64)], seed| {
        let adaptive = AdmissionConfig::new(AdmissionKind::Adaptive);
        let mut shop = auction(adaptive, None, seed);
        shop.cpus = [8.0, 2.0];
        shop.length = ONSET + Duration::from_secs(15);
        shop.classes.truncate(4);
        for (class, rate) in more {
            let class = Class {
                from: ONSET,
                come: Come::Open(*rate),
                ..shop.classes[*class]
            };
            shop.classes.push(class);
        }
        run(&shop)
    };
    for seed in 1..=2 {
        let all = grown(&[(2, 300.0), (3, 250.0)], seed);
        let of = |classes: &[usize]| refused(after(&all, classes, 1.0, 14.0));
        let (browse, item) = (of(&[2, 4]), of(&[3, 5]));
        assert!(browse > 0.05 && item > 0.05, "seed {seed}: {browse} {item}");
        assert!((browse - item).abs() < 0.05, "seed {seed}: {browse} {item}");
        let one = grown(&[(2, 480.0)], seed);
        let of = |classes: &[usize]| refused(after(&one, classes, 0.0, 14.0));
        assert!(of(&[2, 4]) > 0.05, "seed {seed}: {}", of(&[2, 4]));
        assert!(of(&[3]) < 0.005, "seed {seed}: {}", of(&[3]));
    }
}

#[test]
fn where_nobody_is_throttled_the_culprit_waits_first() {
    let last = AutoConfig {
        holds: false,
        ..AutoConfig::default()
    };
    for seed in 1..=3 {
        let alone = ran(AdmissionKind::Adaptive, None, seed);
        let last = ran(AdmissionKind::Adaptive, Some(last), seed);
        let over = |tally: &ShopRun, classes| refused(after(tally, classes, 10.0, 180.0));
        // What was there before is hardly ever refused, whether it uses what is full or not, and whatever is named.
        for tally in [&alone, &last] {
            for classes in [&STATIC[..], &PAGES] {
                let part = over(tally, classes);
                assert!(part < 0.001, "seed {seed}, {classes:?}: {part}");
            }
            assert!(over(tally, &SEARCHES) > 0.5, "seed {seed}");
        }
    }
}

/// Pages of the site whose database is full, and its searches.
const OTHERS: [usize; 4] = [0, 1, 2, 3];
const DEAR: [usize; 3] = [4, 5, 6];

type Site = fn(AdmissionConfig, Option<AutoConfig>, u64) -> Shop;

fn shop(site: Site, seed: u64, seconds: u64) -> Shop {
    let adaptive = AdmissionConfig::new(AdmissionKind::Adaptive);
    let mut shop = site(adaptive, Some(AutoConfig::default()), seed);
    shop.length = Duration::from_secs(seconds);
    shop
}

/// When each throttle of a class began and ended; the last may go on until the end of the run.
fn throttled(tally: &ShopRun, class: &str, until: f64) -> Vec<(f64, f64)> {
    let mut spans = Vec::new();
    let mut since = None;
    let own = tally
        .said
        .iter()
        .filter(|(_, text)| text.starts_with(class));
    for (at, text) in own {
        match text.contains("not throttled any more") {
            true => spans.extend(since.take().map(|since| (since, *at))),
            false => since = since.or(Some(*at)),
        }
    }
    spans.extend(since.map(|since| (since, until)));
    spans
}

/// With seeds 7 and 12 the searches that fill the database between them are suspected one after the other, or only when it
/// has been full for longer than 20 s.
#[test]
fn a_database_that_is_full_from_the_start_keeps_others_out_for_some_seconds_only() {
    let mut at_first = 0;
    for (seed, seconds) in [
        (1, 120),
        (2, 60),
        (3, 60),
        (4, 60),
        (5, 60),
        (6, 60),
        (7, 60),
        (12, 60),
    ] {
        let tally = run(&shop(worn_out, seed, seconds));
        at_first += tally.over(&OTHERS, 0.0, 5.0).refused;
        // A search that is throttled takes no slot from them, however dear it is.
        let end = seconds as f64;
        let then = tally.over(&OTHERS, 20.0, end);
        println!("seed {seed}: {then:?}");
        assert!(
            refused(then) < 0.0005,
            "seed {seed}: {then:?} {:?}",
            tally.said
        );
        // What is slowed comes in its turn, and no page is slowed.
        let searches = tally.over(&DEAR, 20.0, end);
        let rate = searches.answered as f64 / (end - 20.0);
        assert!(rate > 10.0, "seed {seed}: {searches:?}");
        let mut said = tally.said.iter();
        let innocent = said.find(|(_, text)| !text.contains("/search/"));
        assert_eq!(innocent, None, "seed {seed}");
    }
    assert!(at_first > 1000, "the database is full: {at_first}");
}

/// The page that only waits looks as if it filled the database; slowed, it makes no difference and is let go.
#[test]
fn a_page_that_waits_for_something_else_is_slowed_for_moments_at_the_most() {
    const WAITING: &str = "GET /browse/category";
    let mut tried = 0;
    for seed in 1..=6 {
        let tally = run(&shop(misleading, seed, 60));
        let then = tally.over(&OTHERS, 20.0, 60.0);
        let slowed = throttled(&tally, WAITING, 60.0);
        println!("seed {seed}: {then:?}, {WAITING} {slowed:?}");
        assert!(
            refused(then) < 0.0005,
            "seed {seed}: {then:?} {:?}",
            tally.said
        );
        let longest = slowed
            .iter()
            .map(|(from, to)| to - from)
            .fold(0.0, f64::max);
        assert!(longest < 30.0, "seed {seed}: {slowed:?} {:?}", tally.said);
        tried += slowed.len();
        let dear = throttled(&tally, "GET /search/category", 60.0);
        let held = dear.last().is_some_and(|(_, to)| *to == 60.0);
        assert!(held, "seed {seed}: {dear:?}");
    }
    assert!(tried >= 3, "it looks guilty: {tried}");
}

/// What searches have at the servers when they are slowed is there for ten seconds and more, and others wait behind it.
#[test]
fn searches_are_slowed_although_hundreds_of_requests_wait_at_the_servers_already() {
    let round = |searchers, automatic, seed| {
        let off = AdmissionConfig::new(AdmissionKind::Off);
        let mut shop = queueing(searchers, off, automatic, seed);
        shop.length = Duration::from_secs(90);
        run(&shop)
    };
    let alone = round(390, None, 1).over(&OTHERS, 40.0, 80.0);
    assert!(alone.p95_ms > 5000.0, "{alone:?}");
    for (searchers, seed) in seeds_of([360, 390], 4) {
        let tally = round(searchers, Some(AutoConfig::default()), seed);
        let then = tally.over(&OTHERS, 40.0, 80.0);
        println!("{searchers} searchers, seed {seed}: {then:?}");
        assert!(then.p95_ms < 50.0, "seed {seed}: {then:?} {:?}", tally.said);
        let searches = tally.over(&DEAR, 40.0, 60.0);
        assert!(searches.answered > 200, "seed {seed}: {searches:?}");
    }
}

/// Each of these numbers of searchers with each of so many seeds.
fn seeds_of(searchers: [u32; 2], seeds: u64) -> impl Iterator<Item = (u32, u64)> {
    let rounds = searchers.map(|it| (1..=seeds).map(move |seed| (it, seed)));
    rounds.into_iter().flatten()
}

/// The same site with the default admission, which sees nothing of the workers' queue. With seed 1 of 390 searchers no class
/// is suspected, since what is let in is so little and so even; with seeds 3, 4 and 13 of 360 the searches are tried one
/// after the other in vain, and acquitted.
#[test]
fn searches_that_admission_holds_back_before_a_full_database_are_slowed_as_well() {
    let (mut refused_then, mut all_then) = (0, 0);
    for (searchers, seed) in seeds_of([360, 390], 13) {
        let adaptive = AdmissionConfig::new(AdmissionKind::Adaptive);
        let mut shop = queueing(searchers, adaptive, Some(AutoConfig::default()), seed);
        shop.length = Duration::from_secs(125);
        let tally = run(&shop);
        let last = tally.over(&OTHERS, 85.0, 125.0);
        let then = tally.over(&OTHERS, 40.0, 125.0);
        println!("{searchers} searchers, seed {seed}: {last:?} {then:?}");
        assert!(last.p95_ms < 50.0, "seed {seed}: {last:?} {:?}", tally.said);
        // A search that takes a second makes all others slower for a moment, and admission refuses some of them.
        assert!(
            refused(then) < 0.01,
            "seed {seed}: {then:?} {:?}",
            tally.said
        );
        refused_then += then.refused;
        all_then += then.refused + then.answered;
        let held = DEAR.map(|class| {
            let path = shop.classes[class].path;
            throttled(&tally, &format!("GET {path}"), 125.0)
        });
        let held = held
            .iter()
            .any(|it| it.last().is_some_and(|it| it.1 == 125.0));
        assert!(held, "seed {seed}: {:?}", tally.said);
    }
    let part = f64::from(refused_then as u32) / f64::from(all_then as u32);
    assert!(part < 0.0005, "{refused_then} of {all_then}");
}

/// Two dear classes, and a third now and then, that set in where there was room.
#[test]
fn dear_classes_that_set_in_later_keep_others_out_for_some_seconds_only() {
    let onset = ONSET.as_secs_f64();
    for seed in 1..=6 {
        let mut shop = shop(worn_out, seed, ONSET.as_secs() + 40);
        for class in DEAR {
            shop.classes[class].from = ONSET;
        }
        let tally = run(&shop);
        let before = tally.over(&OTHERS, 10.0, onset);
        let then = tally.over(&OTHERS, onset + 10.0, onset + 40.0);
        println!("seed {seed}: {before:?} {then:?}");
        assert_eq!(then.refused, 0, "seed {seed}: {then:?} {:?}", tally.said);
        // Up to twice as long admission is left to do it alone.
        let slower = then.p95_ms / before.p95_ms;
        assert!(
            slower < 2.0,
            "seed {seed}: {before:?} {then:?} {:?}",
            tally.said
        );
        let searches = tally.over(&DEAR, onset + 10.0, onset + 40.0);
        assert!(searches.answered > 300, "seed {seed}: {searches:?}");
    }
}

/// All pages cost the same, and there are too many of them.
#[test]
fn where_no_class_is_at_fault_none_is_slowed_for_longer_than_a_trial() {
    const PATHS: [&str; 4] = ["/static/logo.png", "/sell.php", "/browse.php", "/item.php"];
    for seed in 1..=6 {
        let tally = run(&shop(overloaded, seed, 50));
        let mut said = tally.said.iter();
        let blamed = said.find(|(_, text)| text.contains("it fills"));
        assert_eq!(blamed, None, "seed {seed}");
        for path in PATHS {
            let spans = throttled(&tally, &format!("GET {path}"), 50.0);
            let all: f64 = spans.iter().map(|(from, to)| to - from).sum();
            assert!(
                all <= 12.0,
                "seed {seed}, {path}: {spans:?} {:?}",
                tally.said
            );
        }
    }
}

/// Pages are the dearer the more seldom the stock is counted. With seed 3 others do well for a moment after the throttle
/// is set, so that it takes longer.
#[test]
fn a_throttle_after_which_others_wait_longer_is_taken_back_and_not_tried_again_at_once() {
    for seed in 1..=12 {
        let tally = run(&shop(stocktaking, seed, ONSET.as_secs() + 75));
        let onset = ONSET.as_secs_f64();
        let said: Vec<_> = tally.said.iter().map(|it| &*it.1).collect();
        let expected = [
            "GET /stock/count: throttled to 1 at a time, it fills db cpu",
            "GET /stock/count: not throttled any more, others wait longer for it",
        ];
        assert_eq!(said, expected, "seed {seed}");
        let [set, back] = [0, 1].map(|place| tally.said[place].0 - onset);
        let took = back - set;
        assert!(took > 13.5 && took < 30.0, "seed {seed}: {set} {back}");
        let pages = |from, to| after(&tally, &STOCK_PAGES, from, to).mean_ms;
        let (before, slowed) = (pages(0.0, set), pages(set + 5.0, back));
        let then = pages(back + 15.0, 75.0);
        assert!(slowed > 2.5 * before, "seed {seed}: {before} {slowed}");
        assert!(2.0 * then < slowed, "seed {seed}: {slowed} {then}");
        println!("seed {seed}: pages {before:.0} ms, {slowed:.0} slowed, {then:.0} afterwards");
    }
}
