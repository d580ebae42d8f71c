//! Situations and what is done in them; and a loop with a modelled resource.

use super::*;
use crate::throttle::{SetBy, Throttles};

const NOW: Timestamp = Timestamp::from_millis(1_000_000);

fn ago(seconds: u64) -> Timestamp {
    NOW - Duration::from_secs(seconds)
}

fn culprit(class: &str, share: f64, confidence: impl Into<Option<Confidence>>) -> Culprit<'_> {
    Culprit {
        class,
        resource: "db",
        share,
        confidence: confidence.into(),
        presumed: false,
        in_flight: 10.0,
        held_back: 0.0,
    }
}

fn pressure(usage: f64, latency: f64) -> [Pressure<'static>; 1] {
    suffering(usage, latency, 1.0, 0.0)
}

fn suffering(usage: f64, latency: f64, slowed: f64, held_back: f64) -> [Pressure<'static>; 1] {
    [Pressure {
        resource: "db",
        usage,
        capacity: 0.0,
        others: Others {
            latency,
            slowed,
            held_back,
            rising: 0.0,
        },
    }]
}

const PRESSED: (f64, f64) = (0.97, 1.5);
const CALM: (f64, f64) = (0.5, 0.5);
const BETWEEN: (f64, f64) = (0.95, 0.9);

fn standing(class: &str, limit: u32) -> Standing<'_> {
    Standing::of(class, limit, NOW)
}

/// How others did is a test of its own.
const BEFORE: Before = Before {
    at: NOW,
    pain: 0.0,
    rising: 0.0,
    usage: 0.0,
    in_flight: 0.0,
};

fn but_for_before(mut step: Step<'_>) -> Step<'_> {
    if let Step::Set { before, .. } = &mut step {
        *before = BEFORE;
    }
    step
}

fn done<'a>(
    culprits: &[Culprit<'a>],
    (usage, latency): (f64, f64),
    throttles: &[Standing<'a>],
) -> Vec<Step<'a>> {
    about(&pressure(usage, latency), culprits, throttles)
}

#[test]
fn a_culprit_that_admission_holds_back_is_throttled_where_others_are_slower_all_the_same() {
    let config = AutoConfig::default();
    let held = |held_back, confidence: Option<Confidence>| Culprit {
        held_back,
        ..culprit("search", 0.6, confidence)
    };
    let sets = |usage, slowed, culprit| {
        let pressures = suffering(usage, 0.05, slowed, 0.0);
        let steps = steps(&config, &[culprit], &pressures, &[], NOW);
        matches!(steps[..], [Step::Set { trial: None, .. }])
    };
    let sure = held(0.1, Some(Confidence::Strong));
    assert!(sets(0.7, 2.0, sure));
    assert!(!sets(0.69, 2.0, sure));
    assert!(!sets(0.7, 1.99, sure));
    assert!(!sets(0.7, 2.0, held(0.09, Some(Confidence::Strong))));
    assert!(!sets(0.7, 2.0, held(0.5, None)));
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
        before: BEFORE,
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
fn a_suspected_class_is_tried_at_what_is_left_beside_others() {
    let suspected = Culprit {
        in_flight: 40.0,
        ..culprit("searches", 0.6, None)
    };
    let mut refusing = suffering(0.97, 0.4, 1.0, 0.3);
    refusing[0].capacity = 8.0;
    let set = Step::Set {
        class: "searches",
        resource: "db",
        // 8 x (0.75 - 0.37)
        limit: 3,
        trial: Some(15.0),
        before: BEFORE,
    };
    assert_eq!(about(&refusing, &[suspected], &[]), [set]);
    // Others do not suffer, or its share is small.
    assert_eq!(done(&[suspected], CALM, &[]), []);
    let small = Culprit {
        share: 0.09,
        ..suspected
    };
    assert_eq!(about(&refusing, &[small], &[]), []);
}

#[test]
fn two_classes_that_fill_a_resource_between_them_are_judged_together() {
    let suspects = ["one", "other"].map(|class| culprit(class, 0.4, Confidence::FromOccupancy));
    let refusing = suffering(0.97, 0.4, 1.0, 0.09);
    let trial = |class, seconds| Standing {
        changed_at: ago(seconds),
        trial: Some(4.5),
        ..standing(class, 1)
    };
    // The first has had no time yet; then it has, and made no difference: the other one, too.
    assert_eq!(about(&refusing, &suspects, &[trial("one", 4)]), []);
    let steps = about(&refusing, &suspects, &[trial("one", 5)]);
    assert!(
        matches!(
            steps[..],
            [Step::Set {
                class: "other",
                trial: Some(_),
                ..
            }]
        ),
        "{steps:?}"
    );
    let both = |seconds| [trial("one", 5 + seconds), trial("other", seconds)];
    assert_eq!(about(&refusing, &suspects, &both(4)), []);
    let steps = about(&refusing, &suspects, &both(5));
    let why = WhyReleased::Acquitted;
    let acquitted = |class| Step::Release { class, why };
    assert_eq!(steps, ["one", "other"].map(acquitted));
}

#[test]
fn a_class_that_fills_a_resource_is_not_eased_while_it_is_full() {
    let mut searches = standing("searches", 4);
    let full = pressure(0.97, 0.2);
    assert_eq!(about(&full, &[], &[searches]), []);
    // Not accused for a minute: it may be another one that fills it.
    searches.accused_at = ago(60);
    let eased = about(&full, &[], &[searches]);
    assert!(
        matches!(eased[..], [Step::Ease { limit: 5, .. }]),
        "{eased:?}"
    );
    searches.accused_at = ago(1);
    let eased = about(&pressure(0.9, 0.2), &[], &[searches]);
    assert!(
        matches!(eased[..], [Step::Ease { limit: 5, .. }]),
        "{eased:?}"
    );
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
    let ease = |from, limit| ease(from, limit, CALM.1);
    assert_eq!(done(&[], CALM, &[standing("a", 2)]), [ease(2, 3)]);
    assert_eq!(done(&[], CALM, &[standing("a", 40)]), [ease(40, 50)]);
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
    assert_eq!(done(&[], CALM, &[idle(29)]), [ease(2, 3)]);
    let release = |why| Step::Release { class: "a", why };
    assert_eq!(done(&[], CALM, &[idle(30)]), [release(WhyReleased::Idle)]);
    assert_eq!(done(&[], BETWEEN, &[idle(30)]), []);
}

fn ease(from: u32, limit: u32, pain: f64) -> Step<'static> {
    Step::Ease {
        class: "a",
        limit,
        before: Eased { from, pain },
    }
}

/// What is done about one accused class and these throttles where others suffer so.
fn about<'a>(
    pressure: &[Pressure<'a>; 1],
    culprits: &[Culprit<'a>],
    throttles: &[Standing<'a>],
) -> Vec<Step<'a>> {
    let steps = steps(&AutoConfig::default(), culprits, pressure, throttles, NOW);
    steps.into_iter().map(but_for_before).collect()
}

fn set(limit: u32) -> [Step<'static>; 1] {
    [Step::Set {
        class: "a",
        resource: "db",
        limit,
        trial: None,
        before: BEFORE,
    }]
}

#[test]
fn what_admission_holds_back_is_pain() {
    let accused = [culprit("a", 0.6, Confidence::Strong)];
    let tighten = |limit| [Step::Tighten { class: "a", limit }];
    // Admission keeps the resource below full, and what it lets in fast.
    let held = suffering(0.8, 0.4, 1.1, 0.2);
    assert_eq!(about(&held, &accused, &[]), set(7));
    assert_eq!(about(&held, &accused, &[standing("a", 7)]), tighten(4));
    for nobody in [
        suffering(0.8, 0.4, 1.1, 0.01),
        suffering(0.6, 0.4, 1.1, 0.2),
    ] {
        assert_eq!(about(&nobody, &accused, &[]), []);
    }
    // Held back now and then is no calm.
    let some = suffering(0.5, 0.1, 1.0, 0.015);
    assert_eq!(about(&some, &accused, &[standing("a", 7)]), []);
}

#[test]
fn others_are_to_be_as_fast_as_they_were() {
    let accused = [culprit("a", 0.6, Confidence::Strong)];
    let tighten = |limit| [Step::Tighten { class: "a", limit }];
    assert_eq!(about(&suffering(0.9, 0.2, 3.0, 0.0), &accused, &[]), set(7));
    for (usage, latency, slowed) in [(0.9, 0.05, 3.0), (0.9, 0.2, 1.9), (0.8, 0.2, 3.0)] {
        let fine = suffering(usage, latency, slowed, 0.0);
        assert_eq!(
            about(&fine, &accused, &[]),
            [],
            "{usage} {latency} {slowed}"
        );
    }
    let throttled = [standing("a", 4)];
    let still = suffering(0.8, 0.03, 1.4, 0.0);
    assert_eq!(about(&still, &[], &throttled), tighten(2));
    let enough = suffering(0.8, 0.03, 1.2, 0.0);
    assert_eq!(about(&enough, &[], &throttled), []);
}

#[test]
fn as_many_are_left_at_once_as_the_resource_has_cpus_for() {
    let accused = |share| {
        [Culprit {
            in_flight: 60.0,
            ..culprit("a", share, Confidence::Strong)
        }]
    };
    let full = |capacity| {
        [Pressure {
            capacity,
            ..pressure(0.95, 2.0)[0]
        }]
    };
    assert_eq!(about(&full(0.0), &accused(0.6), &[]), set(42));
    // Others take 0.35 of eight CPUs, so 3.2 of them are left.
    assert_eq!(about(&full(8.0), &accused(0.6), &[]), set(3));
    assert_eq!(about(&full(2.0), &accused(0.2), &[]), set(1));
}

#[test]
fn a_throttle_that_works_is_released_by_trying_only() {
    // It removes the evidence: the class was not accused for minutes.
    let works = Standing {
        accused_at: ago(300),
        ..standing("a", 4)
    };
    assert_eq!(done(&[], CALM, &[works]), [ease(4, 5, CALM.1)]);
    assert_eq!(done(&[], BETWEEN, &[works]), []);
    let eased = Standing {
        changed_at: ago(1),
        eased: Some(Eased { from: 4, pain: 0.5 }),
        ..Standing { limit: 5, ..works }
    };
    let back = Step::TakeBack {
        class: "a",
        limit: 4,
    };
    assert_eq!(done(&[], PRESSED, &[eased]), [back], "at once");
    // The next try comes later.
    let relapsed = |seconds| Standing {
        changed_at: ago(seconds),
        relapses: 2,
        ..works
    };
    assert_eq!(done(&[], CALM, &[relapsed(19)]), []);
    assert_eq!(done(&[], CALM, &[relapsed(20)]), [ease(4, 5, CALM.1)]);
}

#[test]
fn a_class_whose_throttle_does_not_help_is_let_go() {
    let useless = Standing {
        changed_at: ago(60),
        accused_at: ago(60),
        ..standing("a", 1)
    };
    let pain = PRESSED.1;
    assert_eq!(done(&[], PRESSED, &[useless]), [ease(1, 2, pain)]);
    let accused = Standing {
        accused_at: ago(59),
        ..useless
    };
    assert_eq!(done(&[], PRESSED, &[accused]), []);
    let eased = |pain| Standing {
        limit: 2,
        changed_at: ago(5),
        eased: Some(Eased { from: 1, pain }),
        ..useless
    };
    assert_eq!(done(&[], PRESSED, &[eased(pain)]), [ease(2, 4, pain)]);
    let back = Step::TakeBack {
        class: "a",
        limit: 1,
    };
    assert_eq!(done(&[], PRESSED, &[eased(1.0)]), [back]);
    let free = Standing {
        changed_at: ago(31),
        held_at: ago(31),
        ..eased(pain)
    };
    let release = Step::Release {
        class: "a",
        why: WhyReleased::Cleared,
    };
    assert_eq!(done(&[], PRESSED, &[free]), [release]);
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
        before: BEFORE,
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
fn a_resource_that_is_not_known_changes_nothing_for_a_minute_and_then_ends_its_throttles() {
    let config = AutoConfig::default();
    let accused = [culprit("a", 0.5, Confidence::Confirmed)];
    let silent = |seconds| Standing {
        known_at: ago(seconds),
        ..standing("b", 2)
    };
    let found = |seconds| steps(&config, &accused, &[], &[silent(seconds)], NOW);
    assert_eq!(found(59), []);
    let why = WhyReleased::Unknown;
    assert_eq!(found(60), [Step::Release { class: "b", why }]);
}

#[test]
fn a_throttle_ends_that_nothing_shows_to_be_needed_any_more() {
    let needed = |seconds| Standing {
        needed_at: ago(seconds),
        ..standing("a", 2)
    };
    let longest = AutoConfig::default().longest.as_secs();
    assert_eq!(longest, 900);
    assert_eq!(done(&[], BETWEEN, &[needed(longest - 1)]), []);
    let why = WhyReleased::Expired;
    let release = [Step::Release { class: "a", why }];
    for situation in [BETWEEN, CALM, PRESSED] {
        assert_eq!(done(&[], situation, &[needed(longest)]), release);
    }
}

#[test]
fn a_throttle_says_how_others_did_when_it_was_set() {
    let accused = [culprit("a", 0.6, Confidence::Strong)];
    let mut pressed = suffering(0.97, 1.5, 1.0, 0.0);
    pressed[0].others.rising = 0.2;
    let steps = steps(&AutoConfig::default(), &accused, &pressed, &[], NOW);
    let [Step::Set { before, .. }] = steps[..] else {
        panic!("{steps:?}");
    };
    let expected = Before {
        pain: 1.5,
        rising: 0.2,
        usage: 0.97,
        in_flight: 10.0,
        ..BEFORE
    };
    assert_eq!(before, expected);
}

/// A database of which the class uses a twentieth per request in flight, and others half.
#[test]
fn the_loop_finds_the_limit_at_which_the_resource_has_room() {
    let mut limit: Option<u32> = None;
    let mut changed_at = Timestamp::ZERO;
    let (mut eased, mut relapses) = (None, 0);
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
            eased,
            relapses,
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
            relapses += u32::from(matches!(step, Step::TakeBack { .. }));
            eased = match step {
                Step::Ease { before, .. } => Some(before),
                Step::Set { .. }
                | Step::Tighten { .. }
                | Step::TakeBack { .. }
                | Step::Keep { .. }
                | Step::Release { .. } => None,
            };
            limit = match step {
                Step::Set { limit, .. }
                | Step::Tighten { limit, .. }
                | Step::TakeBack { limit, .. }
                | Step::Keep { limit, .. }
                | Step::Ease { limit, .. } => Some(limit),
                Step::Release { .. } => None,
            };
        }
        if second > 100 {
            limits.push(limit.unwrap());
        }
    }
    // Eight in flight is what is left for it; more is taken back within a second, and tried ever later.
    let (least, most) = (limits.iter().min().unwrap(), limits.iter().max().unwrap());
    assert!(*least >= 7 && *most <= 10, "{least} to {most}");
    let too_many = limits.iter().filter(|limit| **limit > 8).count();
    assert!(too_many <= 20, "{too_many} of {} s", limits.len());
}

#[test]
fn a_class_that_was_tried_in_vain_is_tried_once_more_beside_a_new_suspect() {
    let mut automatic = Automatic::new(AutoConfig::default());
    let mut throttles = Throttles::new(10);
    let mut done = |second: u64, suspects: &[&'static str]| -> Vec<(&'static str, String)> {
        let now = NOW + Duration::from_secs(second);
        let suspects: Vec<_> = (suspects.iter())
            .map(|class| Culprit {
                in_flight: 1.0,
                ..culprit(class, 0.3, None)
            })
            .collect();
        let used = UsedPart {
            resource: "db",
            usage: 0.97,
            capacity: 0.0,
        };
        let heard = Heard {
            culprits: &suspects,
            resources: &[used],
            latency: Some(0.4),
            took: None,
            // Well for a moment: else the last resort would be due before the end.
            held_back: if second == 14 { 0.0 } else { 0.3 },
            present: &[],
        };
        let standing: Vec<_> = throttles.all().collect();
        let done = automatic.look(&heard, &standing, now);
        for it in &done {
            let Some(limits) = it.limits else {
                throttles.release(&it.class).unwrap();
                continue;
            };
            let class = it.class.parse().unwrap();
            (throttles.set(class, limits, SetBy::Policy, None, now)).unwrap();
        }
        done.into_iter().map(|it| (it.what, it.class)).collect()
    };
    let [a, b, c] = ["GET /a", "GET /b", "GET /c"];
    let throttled = |class: &str| vec![("throttled", class.to_owned())];
    let released = |class: &str| ("released", class.to_owned());
    assert_eq!(done(0, &[a]), throttled(a));
    assert_eq!(done(5, &[a]), [released(a)]);
    assert_eq!(done(6, &[a]), []);
    assert_eq!(done(7, &[a, b]), throttled(b));
    assert_eq!(done(8, &[a, b]), throttled(a));
    assert_eq!(done(13, &[a, b]), [released(a), released(b)]);
    assert_eq!(done(14, &[a, b]), []);
    // Each once only.
    assert_eq!(done(15, &[a, b, c]), throttled(c));
    assert_eq!(done(16, &[a, b, c]), throttled(b));
    assert_eq!(done(17, &[a, b, c]), []);
}
