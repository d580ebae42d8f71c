//! The report of plain values: a minute of three classes, one of which loads a database.

use tidegate_core::culprits::Confidence;

use super::report::{CLASSES_MAX, RESOURCES_MAX, ROWS_MAX, SCATTER_MAX, STEPS_MAX};
use super::sample::*;
use super::*;
use crate::time::SECOND;

#[test]
fn a_minute_is_told_in_tenths_with_the_culprit_first() {
    let (requests, spans, verdicts) = (requests(), spans(), verdicts());
    let report = report(&material(&requests, &spans, Some(&verdicts)));
    assert_eq!((report.from, report.to), (1_717_149_600.0, 1_717_149_660.0));
    assert_eq!(report.requests, 630);
    assert_eq!(
        report.notes[1],
        "The clock of db1 cpu is 40 ms behind; this is corrected."
    );
    let resource = &report.resources[0];
    assert_eq!(
        (resource.step_seconds, resource.used.len()),
        (0.1, STEPS_MAX)
    );
    assert_eq!((resource.used[0], resource.used[5]), (Some(1.0), Some(0.1)));
    assert_eq!(
        (resource.unit.as_str(), resource.verdict_seconds),
        ("cores", Some(30.0))
    );
    // 500 ms of the two cores per search, in the 500 ms in which it runs: all that is used then.
    let part = &resource.parts[0];
    assert_eq!(
        (part.class.as_str(), part.used[0], part.used[7]),
        ("GET /search", Some(1.0), Some(0.0))
    );
    let names: Vec<_> = report.classes.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["GET /search", "GET /item/{n}"]);
    let search = &report.classes[0];
    assert_eq!(
        (search.requests, search.per_second, search.in_progress),
        (30, Some(0.5), Some(0.25))
    );
    assert_eq!((search.p50_ms, search.max_ms), (Some(500.0), Some(500.0)));
    let pair = &search.pairs[0];
    assert_eq!(
        (pair.share, pair.cost_ms, pair.cost_error),
        (Some(0.25), Some(500.0), Some(0.2))
    );
    assert_eq!(
        (pair.confidence.as_deref(), pair.named_at),
        (Some("strong"), Some(1_717_149_605.0))
    );
    assert_eq!(pair.shift_ms, [-100.0, 0.0, 100.0]);
    // 9.75 s of two cores in 30 s for 60 requests are 162.5 ms for each.
    assert!(
        (pair.lift.unwrap() - 0.5 / 0.1625).abs() < 0.01,
        "{:?}",
        pair.lift
    );
    assert!(pair.pearson_r.unwrap() > 0.9);
    assert_eq!(pair.scatter.len(), SCATTER_MAX);
    assert_eq!(pair.scatter[0], [1.0, 1.0]);
    let item = &report.classes[1].pairs[0];
    assert_eq!(
        (item.confidence.as_deref(), item.t, item.cost_ms, item.p),
        (None, None, None, None)
    );
    let map = report.heatmap.as_ref().unwrap();
    assert_eq!((map.step_seconds, map.cells.len()), (0.5, 2));
    assert_eq!(map.cells[0].counts.len(), ROWS_MAX);
    // The first search ends at 0.5 s: in the second row.
    assert_eq!(map.cells[0].counts[1].iter().sum::<u64>(), 1);
}

#[test]
fn a_report_comes_back_from_json_as_it_was() {
    let (requests, spans, verdicts) = (requests(), spans(), verdicts());
    let report = report(&material(&requests, &spans, Some(&verdicts)));
    let json = serde_json::to_string(&report).unwrap();
    assert!(json.contains("\"mode\":\"live\""));
    assert_eq!(serde_json::from_str::<Report>(&json).unwrap(), report);
}

#[test]
fn a_second_handed_over_as_a_tenth_makes_costs_and_shifts_ten_times_as_long() {
    let (requests, spans, verdicts) = (requests(), spans(), verdicts());
    let mut material = material(&requests, &spans, Some(&verdicts));
    material.resources[0].time_scale = 10.0;
    let report = report(&material);
    let pair = &report.classes[0].pairs[0];
    assert_eq!((pair.cost_ms, pair.share), (Some(5000.0), Some(0.25)));
    assert_eq!(pair.shift_ms, [-1000.0, 0.0, 1000.0]);
    assert_eq!(report.resources[0].verdict_seconds, Some(300.0));
    assert!((pair.lift.unwrap() - 0.5 / 0.1625).abs() < 0.01);
    // Parts are never more than what was used.
    let resource = &report.resources[0];
    let parts = resource.parts[0].used.iter().zip(&resource.used);
    parts.for_each(|(part, used)| assert!(part <= used));
}

#[test]
fn without_verdicts_there_is_pearson_and_nobody_is_accused() {
    let (requests, spans) = (requests(), spans());
    let mut material = material(&requests, &spans, None);
    material.resources[0].unit = Unit::Rate;
    let report = report(&material);
    let resource = &report.resources[0];
    assert_eq!(
        (resource.unit.as_str(), resource.capacity),
        ("per second", 1.0)
    );
    assert_eq!((resource.verdict_seconds, resource.parts.len()), (None, 0));
    let pair = &report.classes[0].pairs[0];
    assert!(pair.pearson_r.is_some() && pair.confidence.is_none() && pair.share.is_none());
    let text = report.text(1);
    for part in [
        "a note\n",
        "db1 cpu: mean 0.3 per second",
        "GET /search ",
        "and 1 more classes",
    ] {
        assert!(text.contains(part), "{part}:\n{text}");
    }
}

#[test]
fn text_tells_verdicts_first() {
    let (requests, spans, mut verdicts) = (requests(), spans(), verdicts());
    verdicts.classes[0].culprit = Some(Confidence::Ambiguous);
    verdicts.classes[0].ambiguous_with = vec![ClassId(2)];
    let mut material = material(&requests, &spans, Some(&verdicts));
    material.classes[1].throttle = Some(Throttle {
        class: "GET /search".into(),
        limits: "concurrency 2".into(),
        by: "operator".into(),
        since: None,
        until: None,
        held: None,
        held_ms: None,
        in_flight: None,
        waiting: None,
    });
    let text = report(&material).text(20);
    let lines: Vec<&str> = text.lines().collect();
    let place = |part: &str| {
        let found = lines.iter().position(|line| line.contains(part));
        found.unwrap_or_else(|| panic!("{part}:\n{text}"))
    };
    assert_eq!(
        lines[place("db1 cpu: mean use")],
        "db1 cpu: mean use 0.325 of 2 cores, full 2.0 % of the time"
    );
    let row: Vec<&str> = lines[place("ambiguous")].split_whitespace().collect();
    assert_eq!(
        row[..9],
        [
            "GET",
            "/search",
            "ambiguous",
            "25",
            "%",
            "500",
            "±",
            "20",
            "%"
        ]
    );
    assert_eq!(row[11..], ["2024-05-31", "10:00:05"]);
    assert!(
        place("cannot be told from GET /item/{n}: they run together")
            < place("completions and use")
    );
    assert!(place("GET /search is throttled: concurrency 2, by operator") > 0);
    verdicts
        .classes
        .iter_mut()
        .for_each(|it| it.flagged = false);
    let text = report(&self::material(&requests, &spans, Some(&verdicts))).text(20);
    assert!(
        text.contains("nobody is accused, by 30 s of data"),
        "{text}"
    );
}

#[test]
fn what_rests_on_durations_alone_does_not_look_sure() {
    let (requests, spans, mut verdicts) = (requests(), spans(), verdicts());
    verdicts.classes[0].culprit = Some(Confidence::FromOccupancy);
    verdicts.classes[0].relative_error = f64::INFINITY;
    let report = report(&material(&requests, &spans, Some(&verdicts)));
    assert!(report.classes[0].pairs[0].doubtful && !report.classes[1].pairs[0].doubtful);
    let text = report.text(20);
    for part in [
        "from occupancy?",
        "≤ 25 %",
        "≤ 500",
        "GET /search may be merely slow",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn a_cost_that_the_fit_cannot_tell_is_a_range() {
    let (requests, spans, mut verdicts) = (requests(), spans(), verdicts());
    let first = &mut verdicts.classes[0];
    (first.cost_range, first.bounded) = ([0.017, 0.41], true);
    let report = report(&material(&requests, &spans, Some(&verdicts)));
    let pair = &report.classes[0].pairs[0];
    assert_eq!(
        (pair.cost_low_ms, pair.cost_high_ms),
        (Some(17.0), Some(410.0))
    );
    assert_eq!((pair.cost_bounded, pair.least_cost_ms), (true, Some(20.0)));
    let text = report.text(20);
    for part in ["17.0 to 410", "seen from ms"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn names_of_clients_steer_no_terminal() {
    let (requests, spans, verdicts) = (requests(), spans(), verdicts());
    let mut material = material(&requests, &spans, Some(&verdicts));
    material.classes[1].name = "GET /\u{1b}[2J\n".into();
    let text = report(&material).text(20);
    assert!(text.contains("GET /\u{fffd}[2J\u{fffd}") && !text.contains('\u{1b}'));
}

#[test]
fn long_names_are_told_apart() {
    let (requests, spans, verdicts) = (requests(), spans(), verdicts());
    let mut material = material(&requests, &spans, Some(&verdicts));
    let name = |end: &str| format!("GET /{}/{end}", "catalogue/".repeat(8));
    material.classes[1].name = name("search");
    material.classes[2].name = name("item/{n}");
    let shown = report(&material).text(20);
    for end in ["search", "item/{n}"] {
        assert!(!shown.contains(&name(end)) && shown.contains(&format!("/{end} ")));
    }
    assert!(
        shown.contains("GET /catalogue/catalogue/catalogue/…"),
        "{shown}"
    );
    // What differs in its middle alone is shown whole.
    let middle = |middle: &str| format!("GET /{}/{middle}/{}", "a".repeat(50), "b".repeat(50));
    material.classes[1].name = middle("x");
    material.classes[2].name = middle("y");
    let shown = report(&material).text(20);
    assert!(
        shown.contains(&middle("x")) && shown.contains(&middle("y")),
        "{shown}"
    );
}

#[test]
fn a_clock_is_set_by_a_number_that_people_write() {
    let (requests, spans, mut verdicts) = (requests(), spans(), verdicts());
    verdicts.clock_shift_ms = 40;
    let mut material = material(&requests, &spans, Some(&verdicts));
    material.resources[0].time_scale = 9.999_99;
    let note = "The clock of db1 cpu is 400 ms ahead; this is corrected.";
    assert!(report(&material).notes.iter().any(|it| it == note));
}

#[test]
fn all_lists_keep_their_limits() {
    let requests: Vec<Lived> = (0..300).map(|class| lived(class, 10, 900)).collect();
    let spans = spans();
    let classes = (0..300).map(|it| ClassMaterial {
        name: format!("GET /{it}"),
        ..ClassMaterial::default()
    });
    let classes: Vec<_> = classes.collect();
    let verdicts = Verdicts {
        classes: (0..300).map(|it| verdict(it, 0.1, None)).collect(),
        ..verdicts()
    };
    let mut material = material(&requests, &spans, Some(&verdicts));
    let resource = material.resources[0].clone();
    material.classes = classes;
    material.resources = (0..40)
        .map(|it| ResourceMaterial {
            name: format!("disk {it}"),
            ..resource.clone()
        })
        .collect();
    material.notes = vec!["again".into(); 1000];
    // Eight days.
    material.to = FROM + 8 * 86_400 * SECOND;
    let report = report(&material);
    assert_eq!(
        (report.classes.len(), report.resources.len()),
        (CLASSES_MAX, RESOURCES_MAX)
    );
    assert!(report.resources[0].used.len() <= STEPS_MAX && report.notes.len() == 50);
    assert!(
        report
            .classes
            .iter()
            .all(|it| it.pairs.len() == RESOURCES_MAX)
    );
    let map = report.heatmap.unwrap();
    assert!(map.cells.len() <= CLASSES_MAX + 1 && map.cells[0].counts.len() <= ROWS_MAX);
    let counted: u64 = map
        .cells
        .iter()
        .flat_map(|it| it.counts.iter().flatten())
        .sum();
    assert_eq!(
        (counted, map.cells.last().unwrap().class.as_str()),
        (300, "other")
    );
}

#[test]
fn nothing_at_all_is_a_report_too() {
    let mut material = material(&[], &[], None);
    material.resources.clear();
    let report = report(&material);
    assert!(report.classes.is_empty() && report.heatmap.is_none() && report.requests == 0);
    assert!(report.text(20).ends_with("no resource is known\n"));
    let mut of_one = self::material(&[], &[], None);
    of_one.resources[0].unit = Unit::Rate;
    let resource = &super::report(&of_one).resources[0];
    assert!(resource.used.iter().all(Option::is_none) && resource.capacity > 0.0);
}

#[test]
fn until_enough_was_seen_it_says_that_it_is_not_known_yet() {
    let (requests, spans, verdicts) = (requests(), spans(), verdicts());
    let text = |basis, verdicts: &Verdicts| {
        let mut material = material(&requests, &spans, Some(verdicts));
        material.resources[0].basis = Some(basis);
        let report = report(&material);
        assert_eq!(report.resources[0].basis.as_deref(), Some(basis.label()));
        report.text(20)
    };
    let mut nobody = verdicts.clone();
    nobody.classes.iter_mut().for_each(|it| it.flagged = false);
    let early = |basis, verdicts| text(basis, verdicts).contains("\nnot known yet: ");
    for verdicts in [&verdicts, &nobody] {
        assert!(
            early(Basis::NotYet, verdicts),
            "{}",
            text(Basis::NotYet, verdicts)
        );
        assert!(!early(Basis::BeforeStart, verdicts) && !early(Basis::Seen, verdicts));
    }
    assert!(text(Basis::NotYet, &nobody).contains("nobody is accused"));
}
