//! Slowing culprits down by itself: what the core's [`steps`] is told, and what is done of what it says.
//!
//! ```text
//! findings (told) ──> Culprit       all but those that somebody else throttles
//! series, requests ──> Pressure     use of the last 5 s; p95 of all other classes over the SLO
//! throttles ──> Standing            own ones, and when they held somebody
//! steps ──> concurrency orders, set by "policy"
//! ```
//!
//! Orders are on paths: a class with a query is throttled with all that has its path. A class that an
//! operator throttles or releases is his from then on, until it is accused anew. A class that was tried in
//! vain is not tried again for five minutes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::culprits::Confidence as Sure;
use tidegate_core::throttle::{
    AutoConfig, ClassPattern, Confidence, Culprit, Order, Pressure, SetBy, Standing, Step,
    Throttle, WhyReleased, steps,
};
use tidegate_core::time::Timestamp;
use tidegate_proxy::Throttling;

use super::Finding;
use crate::culprits::names::ClassNames;

/// How long a class that was tried in vain is left alone.
const ACQUITTED_FOR: Duration = Duration::from_secs(300);

/// How a resource does.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Pressed {
    pub(super) resource: String,
    /// Used part of its capacity.
    pub(super) usage: f64,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Policy {
    bounds: AutoConfig,
    names: Arc<ClassNames>,
    /// By class, as orders have it.
    own: BTreeMap<String, Own>,
    /// Classes that were tried in vain, and when.
    acquitted: BTreeMap<String, Timestamp>,
}

#[derive(Clone, Debug)]
struct Own {
    resource: String,
    limit: u32,
    changed_at: Timestamp,
    accused_at: Timestamp,
    held_at: Timestamp,
    /// Requests held so far.
    held: u64,
    /// Latency over SLO when it was set, as long as it is a trial.
    trial: Option<f64>,
}

impl Policy {
    pub(super) fn new(bounds: AutoConfig, names: Arc<ClassNames>) -> Self {
        Self {
            bounds,
            names,
            own: BTreeMap::new(),
            acquitted: BTreeMap::new(),
        }
    }

    /// Looks at what was found, and acts; says what it did, for the operator. `latency` is what others'
    /// requests take as a part of what they shall take.
    pub(super) fn act(
        &mut self,
        found: &[Finding],
        pressed: &[Pressed],
        latency: f64,
        throttling: &Throttling,
        now: Timestamp,
    ) -> Vec<(&'static str, String)> {
        let (standing, names) = (throttling.all(), Arc::clone(&self.names));
        self.note(&standing, found, now);
        let culprits: Vec<_> = found
            .iter()
            .filter_map(|it| culprit(it, names.order(&it.class), &standing))
            .filter(|it| !self.is_acquitted(it))
            .collect();
        let pressures: Vec<_> = (pressed.iter())
            .map(|it| Pressure {
                resource: &it.resource,
                usage: it.usage,
                latency,
            })
            .collect();
        let own = self.own.clone();
        let own: Vec<_> = own.iter().map(|(class, own)| own.standing(class)).collect();
        let wanted = steps(&self.bounds, &culprits, &pressures, &own, now);
        let mut said = Vec::new();
        for step in wanted {
            said.extend(self.carry_out(step, throttling, now));
        }
        said
    }

    /// Whether only lives accuse a class that was tried in vain not long ago.
    fn is_acquitted(&self, it: &Culprit<'_>) -> bool {
        it.confidence == Confidence::FromOccupancy && self.acquitted.contains_key(it.class)
    }

    /// What became of own throttles since.
    fn note(&mut self, standing: &[Throttle], found: &[Finding], now: Timestamp) {
        (self.acquitted).retain(|_, at| now.since(*at) < ACQUITTED_FOR);
        let (least, names) = (self.bounds.confidence, &self.names);
        let told = |class: &str| {
            let of_class = found.iter().filter(|it| names.order(&it.class) == class);
            let told = of_class.filter_map(|it| it.told.as_ref());
            told.map(|(sure, _)| confidence(sure)).max()
        };
        self.own.retain(|class, own| {
            let set = standing.iter().find(|it| it.pattern.name() == class);
            // Somebody has released it, or has the say over it now.
            let Some(set) = set.filter(|it| it.set_by == SetBy::Policy) else {
                return false;
            };
            if set.waiting > 0 || set.counters.held > own.held {
                own.held_at = now;
            }
            own.held = set.counters.held;
            let told = told(class);
            if told.is_some() {
                own.accused_at = now;
            }
            if told >= Some(least) {
                own.trial = None;
            }
            true
        });
    }

    fn carry_out(
        &mut self,
        step: Step<'_>,
        throttling: &Throttling,
        now: Timestamp,
    ) -> Option<(&'static str, String)> {
        match step {
            Step::Set {
                class,
                resource,
                limit,
                trial,
            } => {
                let own = Own {
                    resource: resource.into(),
                    limit,
                    changed_at: now,
                    accused_at: now,
                    held_at: now,
                    held: 0,
                    trial,
                };
                self.own.insert(class.into(), own);
                let fills = match trial {
                    None => "it fills",
                    Some(_) => "on trial: it may be what fills",
                };
                let why = format!("{class}: throttled to {limit} at a time, {fills} {resource}");
                Some(("throttled", self.order(class, limit, throttling, now, why)))
            }
            Step::Tighten { class, limit } => {
                let why = format!("{class}: throttled to {limit} at a time, others still wait");
                Some(("throttled", self.order(class, limit, throttling, now, why)))
            }
            Step::Ease { class, limit } => {
                let why = format!("{class}: {limit} at a time now, there is room");
                Some(("eased", self.order(class, limit, throttling, now, why)))
            }
            Step::Release { class, why } => {
                self.own.remove(class);
                if why == WhyReleased::Acquitted {
                    self.acquitted.insert(class.into(), now);
                }
                throttling.release(class, now)?;
                let why = match why {
                    WhyReleased::Idle => "it has held nobody for a while",
                    WhyReleased::Cleared => "nobody accuses it any more",
                    WhyReleased::Acquitted => "that made no difference",
                };
                Some((
                    "released",
                    format!("{class}: not throttled any more, {why}"),
                ))
            }
        }
    }

    /// Gives the order; what is to be said of it, or why it could not be given.
    fn order(
        &mut self,
        class: &str,
        limit: u32,
        throttling: &Throttling,
        now: Timestamp,
        why: String,
    ) -> String {
        let order = Order {
            concurrency: Some(limit),
            ..Order::default()
        };
        let given = class.parse::<ClassPattern>();
        let given = given.map_err(|error| error.to_string()).and_then(|it| {
            let set = throttling.set(it, order, SetBy::Policy, None, now);
            set.map_err(|error| error.to_string())
        });
        if let Err(error) = given {
            self.own.remove(class);
            return format!("{class}: cannot be throttled: {error}");
        }
        if let Some(own) = self.own.get_mut(class) {
            own.limit = limit;
            own.changed_at = now;
        }
        why
    }
}

impl Own {
    fn standing<'a>(&'a self, class: &'a str) -> Standing<'a> {
        Standing {
            class,
            resource: &self.resource,
            limit: self.limit,
            changed_at: self.changed_at,
            accused_at: self.accused_at,
            held_at: self.held_at,
            trial: self.trial,
        }
    }
}

fn confidence(sure: &Sure) -> Confidence {
    match sure {
        Sure::Confirmed => Confidence::Confirmed,
        Sure::Strong => Confidence::Strong,
        Sure::Likely => Confidence::Likely,
        Sure::FromOccupancy => Confidence::FromOccupancy,
        Sure::Ambiguous { .. } => Confidence::Ambiguous,
    }
}

/// What the core is told of a finding, whose class orders call so; nothing if it is not told, cannot be ordered, or is somebody
/// else's already.
fn culprit<'a>(it: &'a Finding, class: &'a str, standing: &[Throttle]) -> Option<Culprit<'a>> {
    let (sure, _) = it.told.as_ref()?;
    let pattern: ClassPattern = class.parse().ok()?;
    let mut others = standing.iter().filter(|it| it.set_by != SetBy::Policy);
    if others.any(|it| it.pattern == pattern) {
        return None;
    }
    Some(Culprit {
        class,
        resource: &it.resource,
        share: it.share,
        confidence: confidence(sure),
        in_flight: it.in_progress,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::culprits::class_pattern;

    fn finding(class: &str, told: Option<Sure>) -> Finding {
        Finding {
            class: class.into(),
            resource: "db cpu".into(),
            share: 0.5,
            cost_seconds: 0.1,
            cost_error: 0.1,
            evidence: [20.0, 10.0, 3.0],
            in_progress: 10.0,
            told: told.map(|sure| (sure, Timestamp::ZERO)),
        }
    }

    fn policy() -> Policy {
        let cart = class_pattern("cart=/cart/*").unwrap();
        Policy::new(AutoConfig::default(), Arc::new(ClassNames::new([&cart])))
    }

    fn full() -> [Pressed; 1] {
        [Pressed {
            resource: "db cpu".into(),
            usage: 0.98,
        }]
    }

    fn limit(throttling: &Throttling, class: &str) -> Option<u32> {
        let all = throttling.all();
        let set = all.iter().find(|it| it.pattern.name() == class)?;
        set.order.concurrency
    }

    #[test]
    fn a_strong_culprit_of_a_full_resource_is_throttled_and_eased() {
        let (mut policy, throttling) = (policy(), Throttling::new(10));
        let found = [finding("GET /search?q", Some(Sure::Strong))];
        let at = |seconds| Timestamp::ZERO + Duration::from_secs(seconds);
        let said = policy.act(&found, &full(), 2.0, &throttling, at(100));
        assert_eq!(said[0].0, "throttled");
        assert_eq!(limit(&throttling, "GET /search"), Some(7));
        // Others still wait.
        policy.act(&found, &full(), 2.0, &throttling, at(106));
        assert_eq!(limit(&throttling, "GET /search"), Some(4));
        // Nobody accuses it for a minute.
        let said = policy.act(&[], &full(), 0.1, &throttling, at(170));
        assert_eq!(said[0].0, "released");
        assert_eq!(throttling.all(), []);
    }

    #[test]
    fn who_is_not_sure_enough_or_not_ours_is_left_alone() {
        let (mut policy, throttling) = (policy(), Throttling::new(10));
        let now = Timestamp::from_millis(100_000);
        let unsure = [
            finding("GET /a", Some(Sure::Likely)),
            finding("GET /b", None),
            finding("other", Some(Sure::Strong)),
        ];
        assert_eq!(policy.act(&unsure, &full(), 2.0, &throttling, now), []);
        let order = Order {
            concurrency: Some(50),
            ..Order::default()
        };
        let pattern = "GET /c".parse().unwrap();
        throttling
            .set(pattern, order, SetBy::Operator, None, now)
            .unwrap();
        let strong = [finding("GET /c", Some(Sure::Strong))];
        assert_eq!(policy.act(&strong, &full(), 2.0, &throttling, now), []);
        assert_eq!(limit(&throttling, "GET /c"), Some(50));
        // Full, and nobody suffers.
        let calm = [finding("GET /d", Some(Sure::Strong))];
        assert_eq!(policy.act(&calm, &full(), 0.9, &throttling, now), []);
    }

    #[test]
    fn a_trial_ends_by_proof_or_in_vain() {
        let (mut policy, throttling) = (policy(), Throttling::new(10));
        let guess = |sure| [finding("GET /slow", Some(sure))];
        let at = |seconds| Timestamp::ZERO + Duration::from_secs(seconds);
        let mut act = |second, sure| {
            let said = policy.act(&guess(sure), &full(), 2.0, &throttling, at(second));
            said.into_iter().map(|(what, _)| what).collect::<Vec<_>>()
        };
        // 7, 4, 2, 1, and no better.
        let said: Vec<_> = (0..6)
            .flat_map(|step| act(100 + 5 * step, Sure::FromOccupancy))
            .collect();
        let [throttled, released] = ["throttled", "released"];
        assert_eq!(said, [throttled, throttled, throttled, throttled, released]);
        assert_eq!(act(400, Sure::FromOccupancy), [""; 0]);
        assert_eq!(act(431, Sure::FromOccupancy), [throttled]);
        // Sure by now, so it stays.
        let stays = (0..6).flat_map(|step| act(436 + 5 * step, Sure::Strong));
        assert!(stays.count() > 0);
        assert_eq!(act(470, Sure::FromOccupancy), [""; 0]);
        assert_eq!(limit(&throttling, "GET /slow"), Some(1));
    }

    #[test]
    fn a_class_with_a_name_of_its_own_is_throttled_as_what_it_stands_for() {
        let (mut policy, throttling) = (policy(), Throttling::new(10));
        let found = [finding("cart", Some(Sure::Strong))];
        let at = |seconds| Timestamp::ZERO + Duration::from_secs(seconds);
        for (second, wanted) in [(100, Some(7)), (106, Some(4)), (170, Some(2)), (231, None)] {
            let accused = if second < 200 { &found[..] } else { &[] };
            policy.act(accused, &full(), 2.0, &throttling, at(second));
            assert_eq!(limit(&throttling, "* /cart/*"), wanted, "{second}");
        }
    }

    #[test]
    fn a_class_that_an_operator_releases_is_not_ours_any_more() {
        let (mut policy, throttling) = (policy(), Throttling::new(10));
        let now = Timestamp::from_millis(100_000);
        let found = [finding("GET /a", Some(Sure::Confirmed))];
        policy.act(&found, &full(), 2.0, &throttling, now);
        throttling.release("GET /a", now).unwrap();
        let calm = policy.act(&found, &full(), 0.5, &throttling, now);
        assert_eq!(calm, []);
        assert!(policy.own.is_empty() && throttling.all().is_empty());
    }
}
