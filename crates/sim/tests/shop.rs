//! Admission, discovery and `automatic` together, before a database that searches fill.

use std::time::Duration;

use tidegate_core::admission::{AdmissionConfig, AdmissionKind};
use tidegate_core::throttle::AutoConfig;
use tidegate_sim::shop::{Class, Come, ONSET, Outcome, Tally, auction, run, stocktaking, worn_out};

const STATIC: [usize; 1] = [0];
/// Pages that ask the database for a little, and a form that asks it for nothing.
const PAGES: [usize; 3] = [1, 2, 3];
const SEARCHES: [usize; 1] = [4];
/// Pages of the shop that counts its stock.
const STOCK_PAGES: [usize; 10] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10];

fn ran(kind: AdmissionKind, automatic: Option<AutoConfig>, seed: u64) -> Tally {
    run(&auction(AdmissionConfig::new(kind), automatic, seed))
}

/// Seconds after the searches set in.
fn after(tally: &Tally, classes: &[usize], from: f64, to: f64) -> Outcome {
    let onset = ONSET.as_secs_f64();
    tally.over(classes, onset + from, onset + to)
}

fn refused(it: Outcome) -> f64 {
    it.refused as f64 / (it.refused + it.answered).max(1) as f64
}

#[test]
fn admission_costs_nobody_anything_where_nothing_is_full() {
    for seed in 1..=3 {
        let ours = ran(AdmissionKind::Adaptive, None, seed);
        let off = ran(AdmissionKind::Off, None, seed);
        for classes in [&STATIC[..], &PAGES] {
            let calm = |tally: &Tally| after(tally, classes, -50.0, 0.0);
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
        let over = |tally: &Tally, classes| refused(after(tally, classes, 10.0, 180.0));
        // What was there before is hardly ever refused, whether it uses what is full or not, and whatever is named.
        for tally in [&alone, &last] {
            for classes in [&STATIC[..], &PAGES] {
                let part = over(tally, classes);
                assert!(part < 0.003, "seed {seed}, {classes:?}: {part}");
            }
            assert!(over(tally, &SEARCHES) > 0.5, "seed {seed}");
        }
    }
}

#[test]
fn a_database_that_is_full_from_the_start_keeps_others_out_for_some_seconds_only() {
    const OTHERS: [usize; 4] = [0, 1, 2, 3];
    let mut at_first = 0;
    for seed in 1..=6 {
        let shop = worn_out(
            AdmissionConfig::new(AdmissionKind::Adaptive),
            Some(AutoConfig::default()),
            seed,
        );
        let tally = run(&shop);
        at_first += tally.over(&OTHERS, 0.0, 5.0).refused;
        // A search that is throttled takes no slot from them, however dear it is.
        let then = tally.over(&OTHERS, 20.0, 120.0);
        assert!(
            refused(then) < 0.002,
            "seed {seed}: {then:?} {:?}",
            tally.said
        );
        // What is slowed comes in its turn, and no page is slowed.
        let searches = tally.over(&[4, 5, 6], 20.0, 120.0);
        assert!(searches.answered > 1000, "seed {seed}: {searches:?}");
        let innocent = tally
            .said
            .iter()
            .find(|(_, text)| !text.contains("/search/"));
        assert_eq!(innocent, None, "seed {seed}");
    }
    assert!(at_first > 1000, "the database is full: {at_first}");
}

/// Pages are the dearer the more seldom the stock is counted. With seed 3 others do well for a moment after the throttle
/// is set, so that it takes longer.
#[test]
fn a_throttle_after_which_others_wait_longer_is_taken_back_and_not_tried_again_at_once() {
    for seed in 1..=12 {
        let adaptive = AdmissionConfig::new(AdmissionKind::Adaptive);
        let mut shop = stocktaking(adaptive, Some(AutoConfig::default()), seed);
        shop.length = ONSET + Duration::from_secs(75);
        let tally = run(&shop);
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
