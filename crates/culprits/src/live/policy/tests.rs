//! Which classes the policy slows and releases, given what was found and how others do.

use std::cell::RefCell;
use std::time::Duration;

use tidegate_core::classes::{ClassTable, Request, TreeConfig, Weight};
use tidegate_core::culprits::Confidence;
use tidegate_core::throttle::{ClassPattern, SetError, ThrottleLimits, Throttles as ThrottleTable};

use super::*;
use crate::names::class_pattern;

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
        presumed: None,
    }
}

fn policy() -> Policy {
    let cart = class_pattern("cart=/cart/*").unwrap();
    Policy::new(AutoConfig::default(), ClassNames::new(&[cart]))
}

/// One look at what was found.
fn act(
    policy: &mut Policy,
    found: &[Finding],
    pressed: &[Pressed],
    Fares { others, held_back }: Fares,
    throttling: &Throttling,
    now: Timestamp,
) -> Vec<PolicyEvent> {
    let scene = Scene {
        found,
        pressed,
        others,
        held_back,
        took: &|class| (class == "GET /page").then_some(0.011),
    };
    policy.act(&scene, throttling, now)
}

fn full() -> [Pressed; 1] {
    [Pressed {
        resource: "db cpu".into(),
        usage: 0.98,
        capacity: 0.0,
    }]
}

/// The throttles of a front-end, of which the requests are left out.
#[derive(Debug)]
struct Throttling(RefCell<ThrottleTable>);

impl Throttling {
    fn new(held_max: usize) -> Self {
        Self(RefCell::new(ThrottleTable::new(held_max)))
    }
}

impl Throttles for Throttling {
    fn all(&self) -> Vec<Throttle> {
        self.0.borrow().all().collect()
    }

    fn set(
        &self,
        pattern: ClassPattern,
        limits: ThrottleLimits,
        set_by: SetBy,
        now: Timestamp,
    ) -> Result<(), SetError> {
        let mut table = self.0.borrow_mut();
        table.set(pattern, limits, set_by, None, now).map(|_| ())
    }

    fn release(&self, name: &str, _now: Timestamp) -> Option<Throttle> {
        self.0.borrow_mut().release(name)
    }
}

/// How others do, and what part of a class is held back.
#[derive(Clone, Copy)]
struct Fares {
    others: OthersDo,
    held_back: &'static dyn Fn(&str) -> f64,
}

fn others(latency: f64) -> Fares {
    fare(latency, 0.0, &|_| 0.0)
}

fn fare(latency: f64, held_back: f64, own: &'static dyn Fn(&str) -> f64) -> Fares {
    let others = OthersDo {
        latency: Some(latency),
        held_back,
        took: Some(0.010),
    };
    Fares {
        others,
        held_back: own,
    }
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
    let said = act(
        &mut policy,
        &found,
        &full(),
        others(2.0),
        &throttling,
        at(100),
    );
    assert_eq!(said[0].event, "throttled");
    assert_eq!(limit(&throttling, "GET /search?q"), Some(7));
    // Others still wait.
    act(
        &mut policy,
        &found,
        &full(),
        others(2.0),
        &throttling,
        at(106),
    );
    assert_eq!(limit(&throttling, "GET /search?q"), Some(4));
    // It is not accused for a minute, which is what it is to bring about: it is released as it holds none.
    let said = act(&mut policy, &[], &full(), others(0.9), &throttling, at(170));
    assert_eq!(said, []);
    let said = act(&mut policy, &[], &full(), others(0.1), &throttling, at(170));
    assert_eq!(said[0].event, "released");
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
        act(&mut policy, &found, &full(), others(0.4), &throttling, now),
        []
    );
    let refused = fare(0.4, 0.3, &|_| 0.0);
    let said = act(&mut policy, &found, &full(), refused, &throttling, now);
    assert!(said[0].text.contains("on trial"), "{said:?}");
    assert_eq!(limit(&throttling, "GET /search?q"), Some(7));
}

#[test]
fn a_class_on_trial_that_takes_no_longer_than_others_do_is_let_go() {
    let released = |class: &str| {
        let (mut policy, throttling) = (policy(), Throttling::new(10));
        let found = [Finding {
            suspected: Some(0.5),
            in_progress: 1.0,
            ..finding(class, None)
        }];
        let refused = fare(0.9, 0.3, &|_| 0.0);
        let at = |seconds: u64| Timestamp::from_millis(100_000 + 1000 * seconds);
        act(&mut policy, &found, &full(), refused, &throttling, at(0));
        let well = others(0.9);
        let said = act(&mut policy, &found, &full(), well, &throttling, at(5));
        said.into_iter().next().map(|it| it.text)
    };
    let text = released("GET /page").unwrap();
    assert!(
        text.ends_with("its requests take no longer than others do"),
        "{text}"
    );
    assert_eq!(released("GET /search"), None, "what it takes is not known");
}

#[test]
fn a_class_that_is_only_presumed_is_tried_when_others_have_been_refused_for_a_while() {
    let (mut policy, throttling) = (policy(), Throttling::new(10));
    let found = [Finding {
        presumed: Some(0.5),
        ..finding("GET /search?q", None)
    }];
    let refused = fare(0.4, 0.3, &|_| 0.0);
    let mut tried_at = (100..130).filter(|second| {
        let now = Timestamp::from_millis(1000 * second);
        let said = act(&mut policy, &found, &full(), refused, &throttling, now);
        said.iter().any(|it| it.text.contains("on trial"))
    });
    assert_eq!(tried_at.next(), Some(115));
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
    assert_eq!(
        act(&mut policy, &found, &held, others(0.4), &throttling, now),
        []
    );
    act(&mut policy, &found, &held, refused, &throttling, now);
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
    assert_eq!(
        act(&mut policy, &found, &full, calm, &throttling, at(1000)),
        []
    );
    let of_another = fare(0.05, 0.0, &|class| f64::from(class != "GET /search?q"));
    let said = act(
        &mut policy,
        &found,
        &full,
        of_another,
        &throttling,
        at(2000),
    );
    assert_eq!(said, []);
    let refused = fare(0.05, 0.0, &|class| f64::from(class == "GET /search?q"));
    act(&mut policy, &found, &full, refused, &throttling, at(3000));
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
        act(&mut policy, &unsure, &full(), others(2.0), &throttling, now),
        []
    );
    let limits = ThrottleLimits {
        concurrency: Some(50),
        ..ThrottleLimits::default()
    };
    let pattern = "GET /c".parse().unwrap();
    throttling
        .set(pattern, limits, SetBy::Operator, now)
        .unwrap();
    let strong = [finding("GET /c", Some(Confidence::Strong))];
    assert_eq!(
        act(&mut policy, &strong, &full(), others(2.0), &throttling, now),
        []
    );
    assert_eq!(limit(&throttling, "GET /c"), Some(50));
    // Full, and none suffers.
    let calm = [finding("GET /d", Some(Confidence::Strong))];
    assert_eq!(
        act(&mut policy, &calm, &full(), others(0.9), &throttling, now),
        []
    );
}

#[test]
fn a_trial_ends_by_proof_or_in_vain() {
    let (mut policy, throttling) = (policy(), Throttling::new(10));
    // What was at the servers before has drained by the next look.
    let guess = |sure| {
        let in_progress = limit(&throttling, "GET /slow?").map_or(10.0, f64::from);
        let found = finding("GET /slow", Some(sure));
        [Finding {
            in_progress,
            ..found
        }]
    };
    let at = |seconds| Timestamp::ZERO + Duration::from_secs(seconds);
    let mut act = |second, sure| {
        let said = act(
            &mut policy,
            &guess(sure),
            &full(),
            others(2.0),
            &throttling,
            at(second),
        );
        said.into_iter().map(|it| it.event).collect::<Vec<_>>()
    };
    // 7, 4, 2, 1, and no better.
    let said: Vec<_> = (0..6)
        .flat_map(|step| act(100 + 5 * step, Confidence::FromOccupancy))
        .collect();
    let [throttled, released] = ["throttled", "released"];
    assert_eq!(said, [throttled, throttled, throttled, throttled, released]);
    assert_eq!(act(130, Confidence::FromOccupancy), [""; 0]);
    // The last resort's second round.
    assert_eq!(act(136, Confidence::FromOccupancy), [throttled]);
    // Sure by now, so it stays.
    let stays = (0..6).flat_map(|step| act(141 + 5 * step, Confidence::Strong));
    assert!(stays.count() > 0);
    assert_eq!(act(175, Confidence::FromOccupancy), [""; 0]);
    assert_eq!(limit(&throttling, "GET /slow?"), Some(1));
}

#[test]
fn a_class_with_a_name_of_its_own_is_throttled_as_what_it_stands_for() {
    let (mut policy, throttling) = (policy(), Throttling::new(10));
    let found = [finding("cart", Some(Confidence::Strong))];
    let at = |seconds| Timestamp::ZERO + Duration::from_secs(seconds);
    for (second, latency, wanted) in [(100, 2.0, Some(7)), (106, 2.0, Some(4)), (170, 0.1, None)] {
        act(
            &mut policy,
            &found,
            &full(),
            others(latency),
            &throttling,
            at(second),
        );
        assert_eq!(limit(&throttling, "cart"), wanted, "{second}");
    }
}

/// An operator's order on a class that the policy slows: neither more pressure nor calm changes it again.
#[test]
fn a_class_that_an_operator_takes_over_keeps_the_operators_order() {
    let (mut policy, throttling) = (policy(), Throttling::new(10));
    let at = |seconds| Timestamp::ZERO + Duration::from_secs(seconds);
    let found = [finding("GET /a", Some(Confidence::Confirmed))];
    act(
        &mut policy,
        &found,
        &full(),
        others(2.0),
        &throttling,
        at(100),
    );
    assert_eq!(limit(&throttling, "GET /a?"), Some(7));
    let limits = ThrottleLimits {
        concurrency: Some(50),
        ..ThrottleLimits::default()
    };
    let class = "GET /a".parse().unwrap();
    let set = throttling.set(class, limits, SetBy::Operator, at(101));
    set.unwrap();
    for (second, latency) in [(106, 2.0), (112, 2.0), (180, 0.1), (400, 0.1)] {
        act(
            &mut policy,
            &found,
            &full(),
            others(latency),
            &throttling,
            at(second),
        );
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
    act(&mut policy, &found, &full(), others(2.0), &throttling, now);
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
    act(
        &mut policy,
        &found("GET /item/{*^new}?"),
        &full(),
        others(2.0),
        &throttling,
        at(100),
    );
    // Another name has come out of what is merged.
    let later = found("GET /item/{*^new|old}?");
    act(
        &mut policy,
        &later,
        &full(),
        others(2.0),
        &throttling,
        at(106),
    );
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
    (throttling.set(pattern, limits, SetBy::Operator, now)).unwrap();
    let found = [finding("GET /search?q", Some(Confidence::Strong))];
    assert_eq!(
        act(&mut policy, &found, &full(), others(2.0), &throttling, now),
        []
    );
    assert_eq!(throttling.all().len(), 1);
}

#[test]
fn a_class_that_an_operator_releases_is_not_ours_any_more() {
    let (mut policy, throttling) = (policy(), Throttling::new(10));
    let now = Timestamp::from_millis(100_000);
    let found = [finding("GET /a", Some(Confidence::Confirmed))];
    act(&mut policy, &found, &full(), others(2.0), &throttling, now);
    throttling.release("GET /a?", now).unwrap();
    let calm = act(&mut policy, &found, &full(), others(0.5), &throttling, now);
    assert_eq!(calm, []);
    assert!(!policy.throttles("GET /a") && throttling.all().is_empty());
}

#[test]
fn a_throttle_goes_on_under_its_sites_name_when_there_is_another_site() {
    let (mut policy, throttling) = (policy(), Throttling::new(10));
    let now = Timestamp::from_millis(100_000);
    let found = [
        finding("GET /search?q", Some(Confidence::Strong)),
        finding("cart", Some(Confidence::Strong)),
    ];
    for seconds in [0, 10] {
        let now = now + Duration::from_secs(seconds);
        act(&mut policy, &found, &full(), others(2.0), &throttling, now);
    }
    let search = limit(&throttling, "GET /search?q");
    assert!(search.is_some() && limit(&throttling, "cart").is_some());
    policy.name_site("shop", &throttling, now);
    assert_eq!(limit(&throttling, "shop GET /search?q"), search);
    assert_eq!(limit(&throttling, "GET /search?q"), None);
    assert!(limit(&throttling, "cart").is_some());
    assert!(policy.throttles("shop GET /search?q") && policy.throttles("cart"));
    // The class has its new name there too, and its throttle is the same to the policy.
    let found = [finding("shop GET /search?q", Some(Confidence::Strong))];
    let later = now + Duration::from_secs(20);
    act(
        &mut policy,
        &found,
        &full(),
        others(2.0),
        &throttling,
        later,
    );
    assert!(limit(&throttling, "shop GET /search?q") < search);
}

#[test]
fn what_has_left_is_throttled_no_more() {
    for (gone, resources) in [("shop", vec![]), ("none", vec!["db cpu".to_owned()])] {
        let (mut policy, throttling) = (policy(), Throttling::new(10));
        let now = Timestamp::from_millis(100_000);
        let found = [finding("shop GET /search?q", Some(Confidence::Strong))];
        act(&mut policy, &found, &full(), others(2.0), &throttling, now);
        assert!(policy.throttles("shop GET /search?q"));
        let nothing = policy.leave(&|_| false, &[], &throttling, now);
        assert_eq!(nothing, []);
        let is_gone = |pattern: &ClassPattern| pattern.site() == Some(gone);
        let said = policy.leave(&is_gone, &resources, &throttling, now);
        assert_eq!(said[0].event, "released");
        assert!(said[0].text.ends_with("out of the cluster"), "{said:?}");
        assert_eq!(throttling.all(), []);
        assert!(!policy.throttles("shop GET /search?q"));
    }
}

#[test]
fn a_successor_goes_on_with_the_throttles_but_for_those_of_others() {
    let search = [finding("GET /search", Some(Confidence::Strong))];
    let throttling = Throttling::new(10);
    let mut former = policy();
    let now = Timestamp::from_millis(1_000_000);
    act(&mut former, &search, &full(), others(2.0), &throttling, now);
    let limits = throttling.all()[0].limits;
    let known = former.learned(Some("shop".into()), now);
    let recall = |known: &LearnedPolicy, here: Option<&str>, given: Option<&str>| {
        let throttling = Throttling::new(10);
        if let Some(given) = given {
            let pattern = given.parse().unwrap();
            let one = ThrottleLimits {
                concurrency: Some(1),
                ..ThrottleLimits::default()
            };
            throttling.set(pattern, one, SetBy::Operator, now).unwrap();
        }
        let mut successor = policy();
        let said = successor.recall(known, here, &throttling, now);
        let all = throttling.all().into_iter();
        let own = all.filter(|it| it.set_by == SetBy::Policy);
        let own: Vec<_> = own
            .map(|it| (it.pattern.name().to_owned(), it.limits))
            .collect();
        assert_eq!(said.len(), own.len(), "{said:?}");
        (successor, own)
    };
    let (successor, own) = recall(&known, Some("shop"), None);
    assert_eq!(own, [("GET /search?".to_owned(), limits)]);
    assert!(successor.throttles("GET /search"));
    assert_eq!(successor.learned(Some("shop".into()), now), known);
    // A second site has come, or has left.
    let (successor, own) = recall(&known, None, None);
    assert_eq!(own, [("shop GET /search?".to_owned(), limits)]);
    assert!(successor.throttles("shop GET /search"));
    let several = successor.learned(None, now);
    let (_, own) = recall(&several, Some("shop"), None);
    assert_eq!(own, [("GET /search?".to_owned(), limits)]);
    for (known, here) in [(&known, "blog"), (&several, "blog")] {
        assert_eq!(recall(known, Some(here), None).1, []);
    }
    // What an operator has set is the later word.
    let (successor, own) = recall(&known, Some("shop"), Some("GET /search"));
    assert_eq!((own, successor.throttles("GET /search")), (vec![], false));
    // Nonsense is left out.
    let mut lies = known;
    lies.automatic.throttles[0].class = "no method".into();
    assert_eq!(recall(&lies, Some("shop"), None).1, []);
}
