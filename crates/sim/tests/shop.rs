//! Admission, discovery and `automatic` together, before a database that searches fill.

use tidegate_core::admission::{AdmissionConfig, AdmissionKind};
use tidegate_core::throttle::AutoConfig;
use tidegate_sim::shop::{ONSET, Outcome, Tally, auction, run};

const STATIC: [usize; 1] = [0];
/// Pages that ask the database for a little, and a form that asks it for nothing.
const PAGES: [usize; 3] = [1, 2, 3];
const SEARCHES: [usize; 1] = [4];

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
        // The searches complete, in their turn.
        let searches = after(&tally, &SEARCHES, 10.0, 160.0);
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
        // Who does not use what is full is hardly ever refused for it, whoever is named.
        for tally in [&alone, &last] {
            assert!(
                over(tally, &STATIC) < 0.003,
                "seed {seed}: {}",
                over(tally, &STATIC)
            );
        }
        let (before, now) = (over(&alone, &PAGES), over(&last, &PAGES));
        assert!(now < 0.2 * before, "seed {seed}: {before} {now}");
    }
}
