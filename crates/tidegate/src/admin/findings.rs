//! What discovery has found, in the metrics and in `why`.

use tidegate_core::culprits::Confidence;
use tidegate_core::time::Timestamp;

use super::plane::Plane;
use crate::exposition::{Kind, Text};
use tidegate_culprits::live::Finding;

/// A share that is worth a sentence though no class is accused.
const SHARE_TOLD: f64 = 0.01;

/// Which classes are named, and what the looking costs.
pub(super) fn metrics(plane: &Plane, text: &mut Text) {
    let Some(culprits) = &plane.culprits else {
        return;
    };
    let findings = culprits.findings();
    type Value = fn(&Finding) -> f64;
    let families: [(_, _, Value); 2] = [
        (
            "tidegate_culprit_share",
            "Part of the resource's capacity that a class flagged as a culprit uses.",
            |it| it.share,
        ),
        (
            "tidegate_culprit_cost_seconds",
            "What it costs the resource per request.",
            |it| it.cost_seconds,
        ),
    ];
    for (name, help, value) in families {
        let mut family = text.family(name, Kind::Gauge, help);
        for it in findings.flagged() {
            let Some((confidence, _)) = &it.flagged else {
                continue;
            };
            let labels = [
                ("class", &*it.class),
                ("resource", &*it.resource),
                ("confidence", confidence.label()),
            ];
            family.sample(&labels, value(it));
        }
    }
    for (name, help, value) in [
        (
            "tidegate_culprit_evaluations",
            "Times that somebody asked who loads a resource.",
            findings.evaluations as f64,
        ),
        (
            "tidegate_culprit_evaluation_seconds",
            "Time that the answers took.",
            findings.evaluated.as_secs_f64(),
        ),
        (
            "tidegate_culprit_overflows",
            "Times that there were more requests than could be followed.",
            findings.overflows as f64,
        ),
    ] {
        text.family(name, Kind::Counter, help).sample(&[], value);
    }
}

/// What is known of a class, in sentences, the weightiest first; nothing if discovery is off or nothing is.
pub(super) fn reasons(plane: &Plane, class: &str) -> Vec<String> {
    let Some(culprits) = &plane.culprits else {
        return Vec::new();
    };
    let findings = culprits.findings();
    let now = (plane.clock)();
    let own = findings.all.iter();
    let pattern = plane.names.pattern(class).ok();
    let is_covered = |it: &Finding| {
        let mut pattern = pattern.iter();
        pattern.any(|pattern| plane.is_covered(it, pattern))
    };
    let own = own.filter(|it| &*it.class == class || is_covered(it));
    let mut reasons: Vec<_> = own.filter_map(|it| sentence(it, now)).collect();
    let experiment = findings.experiment.iter().filter(|it| it.class == class);
    reasons.extend(experiment.map(|it| it.text.clone()));
    reasons
}

fn sentence(it: &Finding, now: Timestamp) -> Option<String> {
    let [t, z, ratio] = it.evidence;
    let cost = it.cost_seconds * 1e3;
    let Some((confidence, since)) = &it.flagged else {
        return (it.share >= SHARE_TOLD).then(|| {
            format!(
                "{} may use {:.1} % of {}, {cost:.2} ms per request; that is not enough or not sure \
                 enough to accuse it (t {t:.1}, z {z:.1}, {ratio:.1} times the best wrong time)",
                it.class,
                it.share * 100.0,
                it.resource
            )
        });
    };
    let sure = match confidence {
        Confidence::Confirmed => "confirmed by experiment",
        Confidence::Strong => "the evidence is strong",
        Confidence::Likely => "likely",
        Confidence::Ambiguous => "or one that always runs together with it",
        Confidence::FromOccupancy => "flagged from lives alone, since the resource is full",
    };
    Some(format!(
        "{} uses {:.0} % of {}: {sure}; {cost:.2} ms per request, +-{:.0} % (t {t:.1}, z {z:.1}, {ratio:.1} \
         times the best wrong time), flagged since {:.0} s",
        it.class,
        it.share * 100.0,
        it.resource,
        it.cost_error * 100.0,
        now.seconds_since(*since)
    ))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn finding() -> Finding {
        Finding {
            class: "GET /search".into(),
            pattern: Some("GET /search?".into()),
            resource: "db cpu".into(),
            share: 0.314,
            cost_seconds: 0.042,
            cost_error: 0.08,
            evidence: [25.0, 14.5, 4.2],
            in_progress: 3.0,
            flagged: Some((Confidence::Strong, Timestamp::from_millis(2000))),
            suspected: None,
            presumed: None,
        }
    }

    #[test]
    fn sentences_say_what_is_known_and_how_sure_it_is() {
        let now = Timestamp::from_millis(2000) + Duration::from_secs(12);
        assert_eq!(
            sentence(&finding(), now).unwrap(),
            "GET /search uses 31 % of db cpu: the evidence is strong; 42.00 ms per request, +-8 % (t 25.0, \
             z 14.5, 4.2 times the best wrong time), flagged since 12 s"
        );
        let small = Finding {
            share: 0.02,
            flagged: None,
            suspected: None,
            presumed: None,
            ..finding()
        };
        assert!(
            sentence(&small, now)
                .unwrap()
                .contains("may use 2.0 % of db cpu")
        );
        let smaller = Finding {
            share: 0.001,
            ..small
        };
        assert_eq!(sentence(&smaller, now), None);
    }
}
