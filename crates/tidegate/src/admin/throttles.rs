//! Throttles in the admin interface: `GET /api/throttles`, `POST /api/throttle`, `POST /api/release`,
//! and what other answers tell of them.

use std::time::Duration;

use tidegate_core::throttle::{ClassPattern, Marks, SetBy, Throttle, ThrottleLimits};
use tidegate_core::time::Timestamp;
use tidegate_core::units::{Size, format_size};
use tidegate_proxy::Throttling;

use super::plane::Plane;
use crate::exposition::{Family, Kind, Text};
use crate::models::{
    LimitsModel, ReleaseRequest, ThrottleGiven, ThrottleRequest, ThrottleStatus, Throttles,
};

/// Longest time for which a class may be throttled: a year is for ever.
const FOR_SECONDS_MAX: f64 = 366.0 * 86_400.0;

/// All throttles.
pub(super) fn list(plane: &Plane) -> Throttles {
    let throttling = &plane.shared.throttles;
    Throttles {
        throttles: all(plane),
        unmarked: throttling.unmarked().map(str::to_owned),
    }
}

/// All throttles, those that were set first before the others.
pub(super) fn all(plane: &Plane) -> Vec<ThrottleStatus> {
    all_where(plane, |_| true)
}

/// Those on classes of which this is so.
pub(super) fn all_where(
    plane: &Plane,
    wanted: impl Fn(&ClassPattern) -> bool,
) -> Vec<ThrottleStatus> {
    let now = (plane.clock)();
    let all = plane.shared.throttles.all();
    let wanted = all.iter().filter(|it| wanted(&it.pattern));
    wanted.map(|it| status(it, now)).collect()
}

/// The throttle of this name, or the one that requests of the class meet that discovery calls so.
pub(super) fn of_class<'a>(plane: &Plane, name: &str, all: &'a [Throttle]) -> Option<&'a Throttle> {
    let pattern = plane.names.pattern(name).ok();
    let own = all.iter().find(|it| pattern.as_ref() == Some(&it.pattern));
    own.or_else(|| {
        let findings = plane.culprits.as_ref()?.findings();
        let found = findings.all.iter().find(|it| *it.class == *name)?;
        let met = all.iter().filter(|it| plane.is_covered(found, &it.pattern));
        met.max_by(|one, other| one.pattern.compare(&other.pattern))
    })
}

/// Throttles a class, as an operator wants it.
///
/// # Errors
/// What is wrong with the override.
pub(crate) fn throttle(plane: &Plane, wanted: &ThrottleRequest) -> Result<ThrottleGiven, String> {
    let now = (plane.clock)();
    let seconds = wanted.for_seconds;
    if seconds.is_some_and(|it| !(0.001..=FOR_SECONDS_MAX).contains(&it)) {
        return Err("`for_seconds` must be from 0.001 to a year".into());
    }
    let class = parse(plane, &wanted.class)?;
    if let Some(site) = class.site()
        && plane.shared.topology.load().site_named(site).is_none()
    {
        return Err(format!("no site is called `{site}`"));
    }
    let until = seconds.map(|seconds| now + Duration::from_secs_f64(seconds));
    let throttling = &plane.shared.throttles;
    wanted.limits.give(throttling, class.clone(), until, now)?;
    let all = throttling.all();
    let set = all.iter().find(|it| it.pattern == class);
    let set = set.ok_or("it was released at once")?;
    Ok(given(plane, status(set, now), now))
}

/// Releases a class.
///
/// # Errors
/// It is not throttled.
pub(super) fn release(plane: &Plane, wanted: &ReleaseRequest) -> Result<ThrottleGiven, String> {
    let now = (plane.clock)();
    // So that the same class is meant however its words are spaced.
    let class = parse(plane, &wanted.class)?;
    let released = plane.shared.throttles.release(class.name(), now);
    let released = released.ok_or_else(|| format!("class `{class}` is not throttled"))?;
    Ok(given(plane, status(&released, now), now))
}

fn given(plane: &Plane, throttle: ThrottleStatus, now: Timestamp) -> ThrottleGiven {
    let saved = plane.overrides_file.save(&plane.shared.throttles, now);
    // What the configuration says comes back with it.
    let own = throttle.set_by == SetBy::Operator.label();
    ThrottleGiven {
        throttle,
        kept: own && saved.is_ok() && plane.overrides_file.is_set(),
        note: saved.err(),
    }
}

fn parse(plane: &Plane, class: &str) -> Result<ClassPattern, String> {
    plane
        .names
        .pattern(class)
        .map_err(|error| error.to_string())
}

fn status(throttle: &Throttle, now: Timestamp) -> ThrottleStatus {
    let it = &throttle.counters;
    ThrottleStatus {
        class: throttle.pattern.name().into(),
        limits: LimitsModel::of(&throttle.limits),
        set_by: throttle.set_by.label().into(),
        seconds_ago: now.seconds_since(throttle.since),
        seconds_left: throttle.until.map(|until| until.seconds_since(now)),
        in_flight: throttle.in_flight,
        lent: throttle.lent,
        waiting: throttle.waiting,
        arrived: it.arrived,
        passed: it.passed,
        held: it.held,
        rejected: it.rejected,
        left: it.left,
        delayed_seconds: it.delayed.as_secs_f64(),
        paced_bytes: it.paced_bytes,
        paced_seconds: it.paced.as_secs_f64(),
    }
}

impl LimitsModel {
    /// What is limited, as the API has it.
    pub(crate) fn of(limits: &ThrottleLimits) -> Self {
        Self {
            concurrency: limits.concurrency,
            rate: limits.rate,
            bandwidth: limits.bandwidth,
            queue_seconds: limits.queue.map(|queue| queue.as_secs_f64()),
            priority: limits.lowest_priority,
            mark: limits.marks.mark,
            dscp: limits.marks.dscp,
            so_priority: limits.marks.priority,
        }
    }

    /// What is limited, as the core has it.
    ///
    /// # Errors
    /// It makes no sense.
    pub(crate) fn checked(&self) -> Result<ThrottleLimits, String> {
        let queue = self.queue_seconds.map(Duration::try_from_secs_f64);
        let limits = ThrottleLimits {
            concurrency: self.concurrency,
            rate: self.rate,
            bandwidth: self.bandwidth,
            queue: queue
                .transpose()
                .map_err(|error| format!("`queue_seconds`: {error}"))?,
            lowest_priority: self.priority,
            marks: Marks {
                mark: self.mark,
                priority: self.so_priority,
                dscp: self.dscp,
            },
        };
        limits.check().map_err(|error| error.to_string())?;
        Ok(limits)
    }

    /// Throttles a class as an operator does.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn give(
        &self,
        throttling: &Throttling,
        class: ClassPattern,
        until: Option<Timestamp>,
        now: Timestamp,
    ) -> Result<(), String> {
        let set = throttling.set(class, self.checked()?, SetBy::Operator, until, now);
        set.map_err(|error| error.to_string())
    }
}

/// What a throttle does, in sentences, the weightiest first.
pub(super) fn reasons(throttle: &ThrottleStatus) -> Vec<String> {
    let by = match throttle.set_by.as_str() {
        "config" => "by the configuration",
        "operator" => "by an operator",
        _ => "because it loads a resource too much",
    };
    let limits = match throttle.limits.checked() {
        Ok(limits) => limits.to_string(),
        Err(error) => error,
    };
    let mut first = format!(
        "{} is throttled {by} since {:.0} s: {limits}",
        throttle.class, throttle.seconds_ago
    );
    if let Some(left) = throttle.seconds_left {
        first.push_str(&format!("; it ends in {left:.0} s"));
    }
    let mut reasons = vec![first];
    reasons.push(format!(
        "{} of its requests are in flight, {} are held; of {} so far {} were held, {} answered 429",
        throttle.in_flight, throttle.waiting, throttle.arrived, throttle.held, throttle.rejected
    ));
    if throttle.lent > 0 {
        reasons.push(format!(
            "{} wait for slow clients and have lent their places to others",
            throttle.lent
        ));
    }
    if throttle.held > 0 {
        let mean = throttle.delayed_seconds / throttle.held as f64;
        reasons.push(format!(
            "who was held waited {:.1} ms on average",
            mean * 1e3
        ));
    }
    if throttle.paced_bytes > 0 {
        reasons.push(format!(
            "{} of its responses were paced, {:.1} s added up",
            format_size(Size(throttle.paced_bytes)),
            throttle.paced_seconds
        ));
    }
    reasons
}

/// Counters of one throttle as metrics.
pub(super) fn metrics(plane: &Plane, text: &mut Text) {
    let all = all(plane);
    type Value = fn(&ThrottleStatus) -> f64;
    let families: [(_, _, _, Value); 9] = [
        (
            "tidegate_throttle_in_flight",
            Kind::Gauge,
            "Requests of the throttled class that were let on and have not ended, less those lent.",
            |it| it.in_flight as f64,
        ),
        (
            "tidegate_throttle_lent",
            Kind::Gauge,
            "Requests that have lent their places while they wait for their clients.",
            |it| it.lent as f64,
        ),
        (
            "tidegate_throttle_waiting",
            Kind::Gauge,
            "Requests of the class that are held.",
            |it| it.waiting as f64,
        ),
        (
            "tidegate_throttle_requests",
            Kind::Counter,
            "Requests of the class since it is throttled.",
            |it| it.arrived as f64,
        ),
        (
            "tidegate_throttle_held",
            Kind::Counter,
            "Those that were held, whatever became of them.",
            |it| it.held as f64,
        ),
        (
            "tidegate_throttle_rejected",
            Kind::Counter,
            "Those that were answered 429.",
            |it| it.rejected as f64,
        ),
        (
            "tidegate_throttle_delay_seconds",
            Kind::Counter,
            "Time that requests were held, added up.",
            |it| it.delayed_seconds,
        ),
        (
            "tidegate_throttle_paced_bytes",
            Kind::Counter,
            "Bytes of response bodies that were sent piece by piece.",
            |it| it.paced_bytes as f64,
        ),
        (
            "tidegate_throttle_pacing_seconds",
            Kind::Counter,
            "Time that their pieces waited, added up.",
            |it| it.paced_seconds,
        ),
    ];
    for (name, kind, help, value) in families {
        let mut family: Family<'_> = text.family(name, kind, help);
        for throttle in &all {
            family.sample(&[("class", &throttle.class)], value(throttle));
        }
    }
}
