//! Slowing culprits down by itself: what the core's [`Automatic`] is given, and what is done of what it says.
//!
//! ```text
//! findings ──> Culprit              named or suspected; all but those that an operator throttles
//! series ──> UsedPart               use of the last 5 s
//! requests ──> Others               p95 of all other classes, and what admission held back of them
//! throttles ──> Automatic ──> concurrency orders, set by "policy"
//! ```
//!
//! An order is for the requests of the class that it was made from, and for no others. It keeps the text that it had
//! when it was set, whatever else gets a name of its own in that place since.

use std::collections::BTreeMap;

use tidegate_core::throttle::{
    AutoConfig, Automatic, Culprit, Done, Heard, SetBy, Throttle, UsedPart,
};
use tidegate_core::time::Timestamp;
use tidegate_culprits::names::ClassNames;
use tidegate_proxy::Throttling;

use super::Finding;

/// How a resource does.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Pressed {
    pub(super) resource: String,
    /// Used part of its capacity.
    pub(super) usage: f64,
    /// Its CPUs, or disks.
    pub(super) capacity: f64,
}

/// How requests of all other classes fare.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct OthersDo {
    /// What they take as a part of what they shall take; none if there are too few.
    pub(super) latency: Option<f64>,
    /// Part of them that was refused, or waited for long.
    pub(super) held_back: f64,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Policy {
    automatic: Automatic,
    names: ClassNames,
    /// Orders that were set, by the class's name.
    orders: BTreeMap<String, String>,
}

impl Policy {
    pub(super) fn new(bounds: AutoConfig, names: ClassNames) -> Self {
        Self {
            automatic: Automatic::new(bounds),
            names,
            orders: BTreeMap::new(),
        }
    }

    /// Whether it throttles this class, by its name among the findings.
    pub(super) fn throttles(&self, class: &str) -> bool {
        self.orders.contains_key(class)
    }

    /// Looks at what was found, at how others do, at what part of a class was held back, and acts; says what it did, for the operator.
    pub(super) fn act(
        &mut self,
        found: &[Finding],
        pressed: &[Pressed],
        (others, held_back): (OthersDo, &dyn Fn(&str) -> f64),
        throttling: &Throttling,
        now: Timestamp,
    ) -> Vec<(&'static str, String)> {
        let given_up = self.give_up(throttling, now);
        let standing = throttling.all();
        let orders: Vec<_> = found.iter().map(|it| self.order(it)).collect();
        let culprits: Vec<_> = (found.iter().zip(&orders))
            .filter_map(|(it, order)| {
                let culprit = self.culprit(it, order.as_deref()?, &standing)?;
                let held_back = held_back(&it.class);
                Some(Culprit {
                    held_back,
                    ..culprit
                })
            })
            .collect();
        let resources: Vec<_> = (pressed.iter())
            .map(|it| UsedPart {
                resource: &it.resource,
                usage: it.usage,
                capacity: it.capacity,
            })
            .collect();
        let heard = Heard {
            culprits: &culprits,
            resources: &resources,
            latency: others.latency,
            held_back: others.held_back,
        };
        let done = self.automatic.look(&heard, &standing, now);
        let done = done.into_iter();
        let said = (given_up.into_iter())
            .chain(done.filter_map(|it| self.carry_out(it, throttling, now)))
            .collect();
        for (it, order) in found.iter().zip(orders) {
            if let Some(order) =
                order.filter(|order| self.automatic.classes().any(|it| it == order))
            {
                self.orders.entry(it.class.to_string()).or_insert(order);
            }
        }
        let automatic = &self.automatic;
        (self.orders).retain(|_, order| automatic.classes().any(|it| it == order));
        said
    }

    /// Releases own orders on requests that an operator's order is for: the more exact one would count, which is ours.
    fn give_up(&mut self, throttling: &Throttling, now: Timestamp) -> Vec<(&'static str, String)> {
        let standing = throttling.all();
        let (own, others): (Vec<_>, Vec<_>) =
            (standing.iter()).partition(|it| it.set_by == SetBy::Policy);
        let given_up = own.into_iter().filter_map(|own| {
            let other = others.iter().find(|it| it.pattern.covers(&own.pattern))?;
            let (class, by) = (own.pattern.name(), other.pattern.name());
            self.automatic.forget(class);
            throttling.release(class, now)?;
            let text = format!("{class}: not throttled any more, there is an order on {by}");
            Some(("released", text))
        });
        given_up.collect()
    }

    /// What the order on a class is called: as it was set, or as it would be.
    fn order(&self, it: &Finding) -> Option<String> {
        let set = self.orders.get(&*it.class).map(String::as_str);
        set.or(it.pattern.as_deref()).map(str::to_owned)
    }

    /// What the core is given of a finding; nothing if it is neither named nor suspected, cannot be ordered, or is
    /// an operator's already.
    fn culprit<'a>(
        &self,
        it: &'a Finding,
        order: &'a str,
        standing: &[Throttle],
    ) -> Option<Culprit<'a>> {
        let (confidence, share) = match &it.flagged {
            Some((confidence, _)) => (Some(*confidence), it.share),
            None => (None, it.suspected?),
        };
        let pattern = self.names.pattern(order).ok()?;
        let mut others = standing.iter().filter(|it| it.set_by != SetBy::Policy);
        if others.any(|it| it.pattern.covers(&pattern)) {
            return None;
        }
        Some(Culprit {
            class: order,
            resource: &it.resource,
            share,
            confidence,
            in_flight: it.in_progress,
            held_back: 0.0,
        })
    }

    /// Sets or releases a throttle; what is to be said of it, or why it could not be set.
    fn carry_out(
        &mut self,
        done: Done,
        throttling: &Throttling,
        now: Timestamp,
    ) -> Option<(&'static str, String)> {
        let Done {
            class,
            limits,
            what,
            text,
        } = done;
        let Some(limits) = limits else {
            throttling.release(&class, now)?;
            return Some((what, text));
        };
        let given = self.names.pattern(&class);
        let given = given.map_err(|error| error.to_string()).and_then(|it| {
            let set = throttling.set(it, limits, SetBy::Policy, None, now);
            set.map_err(|error| error.to_string())
        });
        if let Err(error) = given {
            self.automatic.forget(&class);
            return Some((what, format!("{class}: cannot be throttled: {error}")));
        }
        Some((what, text))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use tidegate_core::classes::{ClassTable, Request, TreeConfig, Weight};
    use tidegate_core::culprits::Confidence;
    use tidegate_core::throttle::ThrottleLimits;

    use tidegate_culprits::names::class_pattern;

    fn finding(class: &str, flagged: Option<Confidence>) -> Finding {
        // As discovery would call it: `cart` by the configuration, and paths without a query.
        let pattern = match class {
            "other" => None,
            "cart" => Some(class.into()),
            _ if class.contains('?') => Some(class.into()),
            _ => Some(format!("{class}?").into()),
        };
        Finding {
            class: class.into(),
            pattern,
            resource: "db cpu".into(),
            share: 0.5,
            cost_seconds: 0.1,
            cost_error: 0.1,
            evidence: [20.0, 10.0, 3.0],
            in_progress: 10.0,
            flagged: flagged.map(|sure| (sure, Timestamp::ZERO)),
            suspected: None,
        }
    }

    fn policy() -> Policy {
        let cart = class_pattern("cart=/cart/*").unwrap();
        Policy::new(AutoConfig::default(), ClassNames::new(&[cart]))
    }

    fn full() -> [Pressed; 1] {
        [Pressed {
            resource: "db cpu".into(),
            usage: 0.98,
            capacity: 0.0,
        }]
    }

    type Heard = (OthersDo, &'static dyn Fn(&str) -> f64);

    fn others(latency: f64) -> Heard {
        fare(latency, 0.0, &|_| 0.0)
    }

    /// How others do, and what part of a class is held back.
    fn fare(latency: f64, held_back: f64, own: &'static dyn Fn(&str) -> f64) -> Heard {
        let others = OthersDo {
            latency: Some(latency),
            held_back,
        };
        (others, own)
    }

    fn limit(throttling: &Throttling, class: &str) -> Option<u32> {
        let all = throttling.all();
        let set = all.iter().find(|it| it.pattern.name() == class)?;
        set.limits.concurrency
    }

    #[test]
    fn a_strong_culprit_of_a_full_resource_is_throttled_and_eased() {
        let (mut policy, throttling) = (policy(), Throttling::new(10));
        let found = [finding("GET /search?q", Some(Confidence::Strong))];
        let at = |seconds| Timestamp::ZERO + Duration::from_secs(seconds);
        let said = policy.act(&found, &full(), others(2.0), &throttling, at(100));
        assert_eq!(said[0].0, "throttled");
        assert_eq!(limit(&throttling, "GET /search?q"), Some(7));
        // Others still wait.
        policy.act(&found, &full(), others(2.0), &throttling, at(106));
        assert_eq!(limit(&throttling, "GET /search?q"), Some(4));
        // It is not accused for a minute, which is what it is to bring about: it is released as it holds none.
        let said = policy.act(&[], &full(), others(0.9), &throttling, at(170));
        assert_eq!(said, []);
        let said = policy.act(&[], &full(), others(0.1), &throttling, at(170));
        assert_eq!(said[0].0, "released");
        assert_eq!(throttling.all(), []);
    }

    #[test]
    fn a_class_that_is_only_suspected_is_tried_while_others_are_refused() {
        let (mut policy, throttling) = (policy(), Throttling::new(10));
        let found = [Finding {
            suspected: Some(0.5),
            ..finding("GET /search?q", None)
        }];
        let now = Timestamp::from_millis(100_000);
        assert_eq!(
            policy.act(&found, &full(), others(0.4), &throttling, now),
            []
        );
        let refused = fare(0.4, 0.3, &|_| 0.0);
        let said = policy.act(&found, &full(), refused, &throttling, now);
        assert!(said[0].1.contains("on trial"), "{said:?}");
        assert_eq!(limit(&throttling, "GET /search?q"), Some(7));
    }

    #[test]
    fn what_admission_refuses_others_is_enough_to_act() {
        let (mut policy, throttling) = (policy(), Throttling::new(10));
        let found = [finding("GET /search?q", Some(Confidence::Strong))];
        let now = Timestamp::from_millis(100_000);
        let held = [Pressed {
            usage: 0.8,
            ..full()[0].clone()
        }];
        let refused = fare(0.4, 0.3, &|_| 0.0);
        assert_eq!(policy.act(&found, &held, others(0.4), &throttling, now), []);
        policy.act(&found, &held, refused, &throttling, now);
        assert_eq!(limit(&throttling, "GET /search?q"), Some(7));
        let limits = throttling.all()[0].limits;
        assert!(
            limits.lowest_priority,
            "it waits first, where admission lets anybody wait"
        );
        assert!(policy.throttles("GET /search?q") && !policy.throttles("GET /other"));
    }

    #[test]
    fn a_class_that_admission_refuses_is_throttled_where_others_are_slower_than_before() {
        let (mut policy, throttling) = (policy(), Throttling::new(10));
        let found = [finding("GET /search?q", Some(Confidence::Strong))];
        let full = [Pressed {
            usage: 0.8,
            ..full()[0].clone()
        }];
        let at = Timestamp::from_millis;
        let calm = fare(0.02, 0.0, &|_| 0.0);
        assert_eq!(policy.act(&found, &full, calm, &throttling, at(1000)), []);
        let of_another = fare(0.05, 0.0, &|class| f64::from(class != "GET /search?q"));
        let said = policy.act(&found, &full, of_another, &throttling, at(2000));
        assert_eq!(said, []);
        let refused = fare(0.05, 0.0, &|class| f64::from(class == "GET /search?q"));
        policy.act(&found, &full, refused, &throttling, at(3000));
        assert!(limit(&throttling, "GET /search?q").is_some());
    }

    #[test]
    fn who_is_not_sure_enough_or_not_ours_is_left_alone() {
        let (mut policy, throttling) = (policy(), Throttling::new(10));
        let now = Timestamp::from_millis(100_000);
        let unsure = [
            finding("GET /a", Some(Confidence::Likely)),
            finding("GET /b", None),
            finding("other", Some(Confidence::Strong)),
        ];
        assert_eq!(
            policy.act(&unsure, &full(), others(2.0), &throttling, now),
            []
        );
        let limits = ThrottleLimits {
            concurrency: Some(50),
            ..ThrottleLimits::default()
        };
        let pattern = "GET /c".parse().unwrap();
        throttling
            .set(pattern, limits, SetBy::Operator, None, now)
            .unwrap();
        let strong = [finding("GET /c", Some(Confidence::Strong))];
        assert_eq!(
            policy.act(&strong, &full(), others(2.0), &throttling, now),
            []
        );
        assert_eq!(limit(&throttling, "GET /c"), Some(50));
        // Full, and none suffers.
        let calm = [finding("GET /d", Some(Confidence::Strong))];
        assert_eq!(
            policy.act(&calm, &full(), others(0.9), &throttling, now),
            []
        );
    }

    #[test]
    fn a_trial_ends_by_proof_or_in_vain() {
        let (mut policy, throttling) = (policy(), Throttling::new(10));
        let guess = |sure| [finding("GET /slow", Some(sure))];
        let at = |seconds| Timestamp::ZERO + Duration::from_secs(seconds);
        let mut act = |second, sure| {
            let said = policy.act(&guess(sure), &full(), others(2.0), &throttling, at(second));
            said.into_iter().map(|(what, _)| what).collect::<Vec<_>>()
        };
        // 7, 4, 2, 1, and no better.
        let said: Vec<_> = (0..6)
            .flat_map(|step| act(100 + 5 * step, Confidence::FromOccupancy))
            .collect();
        let [throttled, released] = ["throttled", "released"];
        assert_eq!(said, [throttled, throttled, throttled, throttled, released]);
        assert_eq!(act(400, Confidence::FromOccupancy), [""; 0]);
        assert_eq!(act(431, Confidence::FromOccupancy), [throttled]);
        // Sure by now, so it stays.
        let stays = (0..6).flat_map(|step| act(436 + 5 * step, Confidence::Strong));
        assert!(stays.count() > 0);
        assert_eq!(act(470, Confidence::FromOccupancy), [""; 0]);
        assert_eq!(limit(&throttling, "GET /slow?"), Some(1));
    }

    #[test]
    fn a_class_with_a_name_of_its_own_is_throttled_as_what_it_stands_for() {
        let (mut policy, throttling) = (policy(), Throttling::new(10));
        let found = [finding("cart", Some(Confidence::Strong))];
        let at = |seconds| Timestamp::ZERO + Duration::from_secs(seconds);
        for (second, latency, wanted) in
            [(100, 2.0, Some(7)), (106, 2.0, Some(4)), (170, 0.1, None)]
        {
            policy.act(&found, &full(), others(latency), &throttling, at(second));
            assert_eq!(limit(&throttling, "cart"), wanted, "{second}");
        }
    }

    /// An operator's order on a class that the policy slows: neither more pressure nor calm changes it again.
    #[test]
    fn a_class_that_an_operator_takes_over_keeps_the_operators_order() {
        let (mut policy, throttling) = (policy(), Throttling::new(10));
        let at = |seconds| Timestamp::ZERO + Duration::from_secs(seconds);
        let found = [finding("GET /a", Some(Confidence::Confirmed))];
        policy.act(&found, &full(), others(2.0), &throttling, at(100));
        assert_eq!(limit(&throttling, "GET /a?"), Some(7));
        let limits = ThrottleLimits {
            concurrency: Some(50),
            ..ThrottleLimits::default()
        };
        let class = "GET /a".parse().unwrap();
        let set = throttling.set(class, limits, SetBy::Operator, None, at(101));
        set.unwrap();
        for (second, latency) in [(106, 2.0), (112, 2.0), (180, 0.1), (400, 0.1)] {
            policy.act(&found, &full(), others(latency), &throttling, at(second));
            let all = throttling.all();
            assert_eq!(limit(&throttling, "GET /a"), Some(50), "{second}");
            assert_eq!((all.len(), all[0].set_by), (1, SetBy::Operator), "{second}");
        }
        assert!(!policy.throttles("GET /a"));
    }

    #[test]
    fn a_star_in_a_url_throttles_no_other_page() {
        let (mut policy, throttling) = (policy(), Throttling::new(10));
        let mut table = ClassTable::new(Vec::new(), TreeConfig::default());
        let request = Request {
            site: "shop",
            method: "GET",
            target: "/*?q",
        };
        let class = table.add(&request, Weight::ARRIVAL);
        let (name, order) = (
            table.name(class).unwrap(),
            table.class_pattern(class).unwrap(),
        );
        let found = [Finding {
            pattern: Some(order.into()),
            ..finding(&name, Some(Confidence::Strong))
        }];
        let now = Timestamp::from_millis(100_000);
        policy.act(&found, &full(), others(2.0), &throttling, now);
        assert!(policy.throttles(&name));
        let set = &throttling.all()[0];
        let is_slowed = |target| set.pattern.matches("shop", "GET", target);
        assert!(is_slowed("/*?q=1"));
        for other in ["/", "/cart", "/cart?q", "/a/b", "/*"] {
            assert!(!is_slowed(other), "{other}");
        }
    }

    #[test]
    fn an_order_keeps_its_text_while_it_stands() {
        let (mut policy, throttling) = (policy(), Throttling::new(10));
        let found = |order: &str| {
            [Finding {
                pattern: Some(order.into()),
                ..finding("GET /item/{*}", Some(Confidence::Strong))
            }]
        };
        let at = |seconds| Timestamp::ZERO + Duration::from_secs(seconds);
        policy.act(
            &found("GET /item/{*^new}?"),
            &full(),
            others(2.0),
            &throttling,
            at(100),
        );
        // Another name has come out of what is merged.
        let later = found("GET /item/{*^new|old}?");
        policy.act(&later, &full(), others(2.0), &throttling, at(106));
        let all = throttling.all();
        let names: Vec<_> = all.iter().map(|it| it.pattern.name()).collect();
        assert_eq!(names, ["GET /item/{*^new}?"]);
        assert_eq!(limit(&throttling, "GET /item/{*^new}?"), Some(4));
    }

    #[test]
    fn a_class_that_an_operator_throttles_by_its_path_is_left_alone() {
        let (mut policy, throttling) = (policy(), Throttling::new(10));
        let now = Timestamp::from_millis(100_000);
        let limits = ThrottleLimits {
            concurrency: Some(50),
            ..ThrottleLimits::default()
        };
        let pattern = "GET /search".parse().unwrap();
        (throttling.set(pattern, limits, SetBy::Operator, None, now)).unwrap();
        let found = [finding("GET /search?q", Some(Confidence::Strong))];
        assert_eq!(
            policy.act(&found, &full(), others(2.0), &throttling, now),
            []
        );
        assert_eq!(throttling.all().len(), 1);
    }

    #[test]
    fn a_class_that_an_operator_releases_is_not_ours_any_more() {
        let (mut policy, throttling) = (policy(), Throttling::new(10));
        let now = Timestamp::from_millis(100_000);
        let found = [finding("GET /a", Some(Confidence::Confirmed))];
        policy.act(&found, &full(), others(2.0), &throttling, now);
        throttling.release("GET /a?", now).unwrap();
        let calm = policy.act(&found, &full(), others(0.5), &throttling, now);
        assert_eq!(calm, []);
        assert!(!policy.throttles("GET /a") && throttling.all().is_empty());
    }
}
