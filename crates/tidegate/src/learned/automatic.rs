//! What `automatic` has set and found out, as JSON, for a successor.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tidegate_core::throttle::{Eased, LearnedAutomatic, LearnedThrottle};
use tidegate_culprits::live::LearnedPolicy;

use super::written::{Ignored, seconds};

/// As it is written. Durations in seconds.
#[derive(Serialize)]
pub(super) struct AutomaticWritten {
    throttles: Vec<ThrottleWritten>,
    acquitted: Vec<(String, f64)>,
    harmful: Vec<(String, f64, u32)>,
    usual: Option<f64>,
    orders: Vec<(String, String)>,
    alone: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct ThrottleWritten {
    class: String,
    resource: String,
    limit: u32,
    needed: f64,
    #[serde(default)]
    trial: Option<f64>,
    /// The concurrency before an ease, and the pain.
    #[serde(default)]
    eased: Option<(u32, f64)>,
    #[serde(default)]
    relapses: u32,
}

/// As it is read, part by part.
#[derive(Deserialize)]
struct Parts<'a> {
    #[serde(borrow)]
    throttles: Option<&'a RawValue>,
    #[serde(borrow)]
    acquitted: Option<&'a RawValue>,
    #[serde(borrow)]
    harmful: Option<&'a RawValue>,
    #[serde(borrow)]
    usual: Option<&'a RawValue>,
    #[serde(borrow)]
    orders: Option<&'a RawValue>,
    #[serde(borrow)]
    alone: Option<&'a RawValue>,
}

/// As text has it.
pub(super) fn encoded(policy: &LearnedPolicy) -> AutomaticWritten {
    let known = &policy.automatic;
    let throttles = known.throttles.iter().map(|it| ThrottleWritten {
        class: it.class.clone(),
        resource: it.resource.clone(),
        limit: it.limit,
        needed: it.needed.as_secs_f64(),
        trial: it.trial,
        eased: it.eased.map(|it| (it.from, it.pain)),
        relapses: it.relapses,
    });
    let acquitted = known.acquitted.iter();
    let acquitted = acquitted.map(|(class, age)| (class.clone(), age.as_secs_f64()));
    let harmful = known.harmful.iter();
    let harmful = harmful.map(|(class, age, times)| (class.clone(), age.as_secs_f64(), *times));
    AutomaticWritten {
        throttles: throttles.collect(),
        acquitted: acquitted.collect(),
        harmful: harmful.collect(),
        usual: known.usual,
        orders: policy.orders.clone(),
        alone: policy.alone.clone(),
    }
}

/// What a part of a text of this age says.
pub(super) fn decoded(
    part: Option<&RawValue>,
    age: Duration,
    ignored: &mut Ignored,
) -> Option<LearnedPolicy> {
    let parts: Parts<'_> = ignored.one("what automatic has set", part)?;
    let aged = |age_then: f64| {
        let then = seconds(age_then).ok_or("its time is none")?;
        Ok::<_, String>(then.saturating_add(age))
    };
    let throttle = |it: ThrottleWritten| {
        Ok(LearnedThrottle {
            needed: aged(it.needed)?,
            class: it.class,
            resource: it.resource,
            limit: it.limit,
            trial: it.trial,
            eased: it.eased.map(|(from, pain)| Eased { from, pain }),
            relapses: it.relapses,
        })
    };
    let acquitted = |(class, then): (String, f64)| Ok((class, aged(then)?));
    let harmful = |(class, then, times): (String, f64, u32)| Ok((class, aged(then)?, times));
    let what = "throttles of automatic";
    Some(LearnedPolicy {
        automatic: LearnedAutomatic {
            throttles: ignored.items(what, parts.throttles, throttle),
            acquitted: ignored.items("acquitted classes", parts.acquitted, acquitted),
            harmful: ignored.items("harmful throttles", parts.harmful, harmful),
            usual: ignored.one("the usual latency", parts.usual).flatten(),
        },
        orders: ignored.items("classes of throttles", parts.orders, Ok),
        alone: ignored.one("the only site", parts.alone).flatten(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> LearnedPolicy {
        let second = Duration::from_secs(1);
        LearnedPolicy {
            automatic: LearnedAutomatic {
                throttles: vec![LearnedThrottle {
                    class: "GET /search?".into(),
                    resource: "db".into(),
                    limit: 3,
                    needed: 20 * second,
                    trial: Some(1.5),
                    eased: Some(Eased { from: 2, pain: 0.5 }),
                    relapses: 1,
                }],
                acquitted: vec![("GET /a".into(), 30 * second)],
                harmful: vec![("GET /b".into(), 40 * second, 2)],
                usual: Some(0.25),
            },
            orders: vec![("GET /search".into(), "GET /search?".into())],
            alone: Some("shop".into()),
        }
    }

    fn read(text: &str, age: Duration) -> (Option<LearnedPolicy>, Vec<String>) {
        let part: &RawValue = serde_json::from_str(text).unwrap();
        let mut ignored = Ignored::default();
        let read = decoded(Some(part), age, &mut ignored);
        (read, ignored.0)
    }

    #[test]
    fn what_is_written_is_read_again_and_has_grown_older() {
        let text = serde_json::to_string(&encoded(&known())).unwrap();
        assert_eq!(read(&text, Duration::ZERO), (Some(known()), Vec::new()));
        let later = read(&text, Duration::from_secs(5)).0.unwrap();
        assert_eq!(later.automatic.throttles[0].needed.as_secs(), 25);
        assert_eq!(later.automatic.acquitted[0].1.as_secs(), 35);
    }

    #[test]
    fn parts_that_make_no_sense_are_left_out_and_named() {
        let text = serde_json::to_string(&encoded(&known())).unwrap();
        for (from, to, named) in [
            (
                "\"limit\":3",
                "\"limit\":-3",
                "1 of 1 throttles of automatic",
            ),
            (
                "\"needed\":20.0",
                "\"needed\":-1",
                "1 of 1 throttles of automatic",
            ),
            ("30.0", "\"long\"", "1 of 1 acquitted classes"),
            ("40.0,2", "1e99,2", "1 of 1 harmful throttles"),
            ("\"usual\":0.25", "\"usual\":[]", "the usual latency"),
            ("\"alone\":\"shop\"", "\"alone\":7", "the only site"),
            (
                "\"orders\":[",
                "\"orders\":[0,",
                "1 of 2 classes of throttles",
            ),
        ] {
            assert!(text.contains(from), "{from}: {text}");
            let (policy, ignored) = read(&text.replace(from, to), Duration::ZERO);
            assert!(policy.is_some());
            assert_eq!(ignored.len(), 1, "{ignored:?}");
            assert!(ignored[0].starts_with(named), "{ignored:?}");
        }
        let (none, ignored) = read("[]", Duration::ZERO);
        assert_eq!((none, ignored.len()), (None, 1));
        let empty = read("{\"more\":1}", Duration::ZERO);
        assert_eq!(empty, (Some(LearnedPolicy::default()), Vec::new()));
    }
}
