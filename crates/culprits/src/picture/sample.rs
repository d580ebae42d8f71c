//! A minute of three classes, one of which loads a database, as plain values: for tests.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate_core::classes::ClassId;
use tidegate_core::culprits::{Basis, Confidence, Pearson, ResourceId, Verdict, Verdicts};
use tidegate_core::time::Timestamp;

use super::report::{Mode, Report};
use super::{ClassMaterial, Material, ResourceMaterial, report};
use crate::evidence::Lived;
use crate::resource::{Span, Unit};
use crate::time::SECOND;

/// Unix nanoseconds.
pub(super) const FROM: i64 = 1_717_149_600 * SECOND;
pub(super) const TO: i64 = FROM + 60 * SECOND;
pub(super) const SEARCH: ClassId = ClassId(1);

pub(super) fn at(millis: i64) -> Timestamp {
    Timestamp::from_nanos((FROM + millis * SECOND / 1000) as u64)
}

pub(super) fn lived(class: u16, sent_ms: i64, ended_ms: i64) -> Lived {
    Lived {
        class: ClassId(class),
        sent: at(sent_ms),
        ended: at(ended_ms),
    }
}

/// A search of 500 ms every other second, an item of 10 ms every 100 ms, and one that ended before.
pub(super) fn requests() -> Vec<Lived> {
    let searches = (0..30).map(|it| lived(1, 2000 * it, 2000 * it + 500));
    let items = (0..600).map(|it| lived(2, 100 * it, 100 * it + 10));
    let before = [lived(2, -5000, -4000)];
    searches.chain(items).chain(before).collect()
}

/// One core of two while a search runs, a tenth else.
pub(super) fn spans() -> Vec<Span> {
    let span = |place: i64| {
        let from = FROM + place * SECOND / 10;
        let mean = if place % 20 < 5 { 1.0 } else { 0.1 };
        let to = from + SECOND / 10;
        Span { from, to, mean }
    };
    (0..600).map(span).collect()
}

pub(crate) fn verdict(class: u16, share: f64, culprit: Option<Confidence>) -> Verdict {
    let flagged = culprit.is_some();
    Verdict {
        class: ClassId(class),
        requests: 30.0,
        share,
        cost_seconds: 2.0 * share,
        relative_error: if flagged { 0.2 } else { f64::INFINITY },
        cost_range: [1.6 * share, 2.4 * share],
        bounded: false,
        least_cost_seconds: 0.02,
        t: if flagged { 10.0 } else { 0.0 },
        z: 9.0,
        shift_ratio: 2.5,
        p: 1e-9,
        p_adjusted: 1e-8,
        pearson: Pearson::UNKNOWN,
        shift_curve: if flagged {
            vec![0.1, 0.8, 0.1]
        } else {
            Vec::new()
        },
        window: Duration::from_secs(30),
        culprit,
        ambiguous_with: Vec::new(),
        suspected: None,
        presumed: None,
        flagged,
    }
}

pub(crate) fn verdicts() -> Verdicts {
    Verdicts {
        resource: ResourceId(0),
        at: Timestamp::ZERO,
        utilization: 0.1625,
        full: 0.02,
        clock_shift_ms: -40,
        classes: vec![
            verdict(1, 0.25, Some(Confidence::Strong)),
            verdict(2, 0.0, None),
        ],
    }
}

pub(super) fn material<'a>(
    requests: &'a [Lived],
    spans: &'a [Span],
    verdicts: Option<&'a Verdicts>,
) -> Material<'a> {
    let class = |name: &str| ClassMaterial {
        name: name.into(),
        ..ClassMaterial::default()
    };
    Material {
        mode: Mode::Live,
        from: FROM,
        to: TO,
        notes: vec!["a note".into()],
        classes: vec![
            class("other"),
            class("GET /search"),
            class("GET /item/{n}"),
            class(""),
        ],
        requests,
        unfinished: &[],
        resources: vec![ResourceMaterial {
            name: "db1 cpu".into(),
            node: Some("db1".into()),
            unit: Unit::Busy { capacity: 2.0 },
            spans,
            verdicts,
            basis: Some(Basis::Seen),
            evaluated_at: Some(TO),
            time_scale: 1.0,
            named_at: BTreeMap::from([(SEARCH, FROM + 5 * SECOND)]),
        }],
    }
}

/// The report of it.
pub fn sample() -> Report {
    let (requests, spans, verdicts) = (requests(), spans(), verdicts());
    report(&material(&requests, &spans, Some(&verdicts)))
}
