//! Situations and what is done in them; and a loop with a modelled resource.

use super::*;

const NOW: Timestamp = Timestamp::from_millis(1_000_000);

fn ago(seconds: u64) -> Timestamp {
    NOW - Duration::from_secs(seconds)
}

fn culprit(class: &str, share: f64, confidence: Confidence) -> Culprit<'_> {
    Culprit {
        class,
        resource: "db",
        share,
        confidence,
        in_flight: 10.0,
    }
}

fn pressure(usage: f64, latency: f64) -> [Pressure<'static>; 1] {
    [Pressure {
        resource: "db",
        usage,
        latency,
    }]
}

const PRESSED: (f64, f64) = (0.97, 1.5);
const CALM: (f64, f64) = (0.5, 0.5);
const BETWEEN: (f64, f64) = (0.95, 0.9);

fn standing(class: &str, limit: u32) -> Standing<'_> {
    Standing {
        class,
        resource: "db",
        limit,
        changed_at: ago(10),
        accused_at: ago(1),
        held_at: ago(1),
        trial: None,
    }
}

fn done<'a>(
    culprits: &[Culprit<'a>],
    (usage, latency): (f64, f64),
    throttles: &[Standing<'a>],
) -> Vec<Step<'a>> {
    let config = AutoConfig::default();
    steps(&config, culprits, &pressure(usage, latency), throttles, NOW)
}

#[test]
fn the_worst_sure_culprit_of_a_pressed_resource_is_throttled_first() {
    let culprits = [
        culprit("small", 0.1, Confidence::Confirmed),
        culprit("large", 0.4, Confidence::Strong),
        culprit("unsure", 0.9, Confidence::Likely),
        culprit("twin", 0.9, Confidence::Ambiguous),
    ];
    let set = |class| Step::Set {
        class,
        resource: "db",
        limit: 7,
        trial: None,
    };
    assert_eq!(done(&culprits, PRESSED, &[]), [set("large")]);
    let mut large = standing("large", 7);
    large.changed_at = ago(1);
    assert_eq!(done(&culprits, PRESSED, &[large]), [set("small")]);
    for situation in [CALM, BETWEEN, (0.99, 0.9), (0.5, 3.0)] {
        assert_eq!(done(&culprits, situation, &[]), [], "{situation:?}");
    }
    assert_eq!(done(&culprits[2..], PRESSED, &[]), []);
    let elsewhere = Culprit {
        resource: "disk",
        ..culprits[0]
    };
    assert_eq!(done(&[elsewhere], PRESSED, &[]), []);
}

#[test]
fn no_more_classes_than_allowed_and_none_below_the_least() {
    let culprits = ["a", "b", "c", "d"].map(|class| culprit(class, 0.3, Confidence::Strong));
    let three = ["a", "b", "c"].map(|class| standing(class, 1));
    assert_eq!(done(&culprits, PRESSED, &three), [], "at the least already");
    let four = [standing("a", 4), standing("b", 3)];
    let found = done(&culprits[..2], PRESSED, &four);
    let tighten = |class, limit| Step::Tighten { class, limit };
    assert_eq!(found, [tighten("a", 2), tighten("b", 2)]);
    let idle = Culprit {
        in_flight: 0.1,
        ..culprits[3]
    };
    let Some(Step::Set { limit, .. }) = done(&[idle], PRESSED, &[]).first().copied() else {
        panic!("it is throttled");
    };
    assert_eq!(limit, 1);
}

#[test]
fn calm_eases_what_binds_and_releases_what_does_not() {
    let ease = |limit| Step::Ease { class: "a", limit };
    assert_eq!(done(&[], CALM, &[standing("a", 2)]), [ease(3)]);
    assert_eq!(done(&[], CALM, &[standing("a", 40)]), [ease(44)]);
    assert_eq!(done(&[], BETWEEN, &[standing("a", 2)]), []);
    let mut fresh = standing("a", 2);
    fresh.changed_at = ago(4);
    assert_eq!(
        done(&[], CALM, &[fresh]),
        [],
        "its effect is looked at first"
    );
    let idle = |seconds| Standing {
        changed_at: ago(50),
        held_at: ago(seconds),
        ..standing("a", 2)
    };
    assert_eq!(done(&[], CALM, &[idle(29)]), [ease(3)]);
    let release = |why| Step::Release { class: "a", why };
    assert_eq!(done(&[], CALM, &[idle(30)]), [release(WhyReleased::Idle)]);
    assert_eq!(done(&[], BETWEEN, &[idle(30)]), []);
}

#[test]
fn nobody_stays_throttled_whom_nobody_accuses() {
    let cleared = Standing {
        accused_at: ago(60),
        ..standing("a", 2)
    };
    let release = Step::Release {
        class: "a",
        why: WhyReleased::Cleared,
    };
    for situation in [PRESSED, CALM, BETWEEN] {
        assert_eq!(done(&[], situation, &[cleared]), [release]);
    }
}

#[test]
fn who_fills_a_full_resource_by_lives_alone_is_tried_one_at_a_time() {
    let guesses = [
        culprit("a", 0.5, Confidence::FromOccupancy),
        culprit("b", 0.3, Confidence::FromOccupancy),
        culprit("small", 0.09, Confidence::FromOccupancy),
    ];
    let set = |class, trial| Step::Set {
        class,
        resource: "db",
        limit: 7,
        trial,
    };
    assert_eq!(done(&guesses, PRESSED, &[]), [set("a", Some(1.5))]);
    assert_eq!(done(&guesses[2..], PRESSED, &[]), []);
    let sure = [guesses[0], culprit("c", 0.1, Confidence::Strong)];
    assert_eq!(done(&sure, PRESSED, &[]), [set("c", None)]);
    // Undecided, and decided: others wait less than they did.
    let trial = |before| Standing {
        changed_at: ago(1),
        trial: Some(before),
        ..standing("a", 7)
    };
    assert_eq!(done(&guesses, PRESSED, &[trial(1.6)]), []);
    assert_eq!(
        done(&guesses, PRESSED, &[trial(2.0)]),
        [set("b", Some(1.5))]
    );
    let config = AutoConfig {
        trials: false,
        ..AutoConfig::default()
    };
    let pressed = pressure(PRESSED.0, PRESSED.1);
    assert_eq!(steps(&config, &guesses, &pressed, &[], NOW), []);
}

#[test]
fn a_trial_that_makes_no_difference_ends() {
    let trial = |limit, before| Standing {
        trial: Some(before),
        ..standing("a", limit)
    };
    let tighten = Step::Tighten {
        class: "a",
        limit: 2,
    };
    assert_eq!(done(&[], PRESSED, &[trial(3, 1.5)]), [tighten]);
    let acquitted = Step::Release {
        class: "a",
        why: WhyReleased::Acquitted,
    };
    assert_eq!(done(&[], PRESSED, &[trial(1, 1.5)]), [acquitted]);
    assert_eq!(done(&[], PRESSED, &[trial(1, 2.0)]), [], "it helps");
    assert_eq!(done(&[], BETWEEN, &[trial(1, 0.9)]), []);
}

#[test]
fn a_resource_that_is_not_known_changes_nothing() {
    let config = AutoConfig::default();
    let accused = [culprit("a", 0.5, Confidence::Confirmed)];
    assert_eq!(steps(&config, &accused, &[], &[standing("b", 2)], NOW), []);
}

/// A database of which the class uses a twentieth per request in flight, and others half.
#[test]
fn the_loop_finds_the_limit_at_which_the_resource_has_room() {
    let mut limit: Option<u32> = None;
    let mut changed_at = Timestamp::ZERO;
    let mut limits = Vec::new();
    for second in 0..600 {
        let now = Timestamp::from_millis(1000 * (second + 1));
        let in_flight = limit.map_or(40, |limit| limit.min(40));
        let usage = (0.5 + f64::from(in_flight) / 20.0).min(1.0);
        let latency = if usage > 0.9 { 2.0 } else { 0.5 };
        let accused = [Culprit {
            in_flight: 40.0,
            ..culprit("a", 0.5, Confidence::Strong)
        }];
        let throttles = limit.map(|limit| Standing {
            limit,
            changed_at,
            accused_at: now,
            held_at: now,
            ..standing("a", limit)
        });
        let throttles: Vec<_> = throttles.into_iter().collect();
        let config = AutoConfig::default();
        for step in steps(
            &config,
            &accused,
            &pressure(usage, latency),
            &throttles,
            now,
        ) {
            changed_at = now;
            limit = match step {
                Step::Set { limit, .. }
                | Step::Tighten { limit, .. }
                | Step::Ease { limit, .. } => Some(limit),
                Step::Release { .. } => None,
            };
        }
        if second > 100 {
            limits.push(limit.unwrap());
        }
    }
    // Eight in flight is what is left for it.
    let (least, most) = (limits.iter().min().unwrap(), limits.iter().max().unwrap());
    assert!(*least >= 6 && *most <= 9, "{least} to {most}");
}
