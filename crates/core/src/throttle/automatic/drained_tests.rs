//! From when on the time of a trial counts: its class has drained at the servers.

use super::*;
use crate::throttle::{Entry, SetBy, ThrottleId, Throttles};

const CLASS: &str = "GET /a";

/// A full database, a class on trial at one at a time, and its throttle.
struct Trial {
    automatic: Automatic,
    throttles: Throttles,
    id: ThrottleId,
}

fn at(second: u64) -> Timestamp {
    Timestamp::from_millis(1000 * (second + 1))
}

impl Trial {
    /// Forty of the class are in flight when it is set.
    fn new() -> Self {
        let mut automatic = Automatic::new(AutoConfig::default());
        let mut throttles = Throttles::new(10);
        let done = look(&mut automatic, &throttles, Some(40.0), 0);
        let limits = done.and_then(|it| it.limits).unwrap();
        assert_eq!(limits.concurrency, Some(1));
        let pattern = CLASS.parse().unwrap();
        let id = throttles.set(pattern, limits, SetBy::Policy, None, at(0));
        Self {
            automatic,
            throttles,
            id: id.unwrap(),
        }
    }

    /// One of the class is let on and ends.
    fn pass(&mut self, second: u64) {
        let entry = self.throttles.handle_arrival(self.id, at(second));
        assert_eq!(entry, Entry::Passed);
        self.throttles.handle_answer(self.id, Duration::ZERO);
    }

    /// When the trial is found to be in vain, looked at each second, with so many in flight at a second.
    fn ends(mut self, in_flight: impl Fn(u64) -> Option<f64>, passes_at: Option<u64>) -> u64 {
        for second in 1..100 {
            if passes_at == Some(second) {
                self.pass(second);
            }
            let many = in_flight(second);
            if let Some(done) = look(&mut self.automatic, &self.throttles, many, second) {
                assert!(done.text.ends_with("that made no difference"), "{done:?}");
                return second;
            }
        }
        panic!("it has no end");
    }
}

/// A full database, before which others wait.
const FULL: Heard<'static> = Heard {
    took: None,
    culprits: &[],
    resources: &[UsedPart {
        resource: "db",
        usage: 0.97,
        capacity: 1.0,
    }],
    latency: Some(4.0),
    held_back: 0.0,
    present: &[],
};

/// One look while others wait, whether the class is suspected still or not.
fn look(
    automatic: &mut Automatic,
    throttles: &Throttles,
    in_flight: Option<f64>,
    second: u64,
) -> Option<Done> {
    let suspect = in_flight.map(|in_flight| Culprit {
        class: CLASS,
        resource: "db",
        share: 0.9,
        confidence: None,
        presumed: false,
        in_flight,
        held_back: 0.0,
    });
    let heard = Heard {
        culprits: suspect.as_slice(),
        ..FULL
    };
    let standing: Vec<_> = throttles.all().collect();
    let mut done = automatic.look(&heard, &standing, at(second));
    assert!(done.len() < 2, "{done:?}");
    done.pop()
}

#[test]
fn a_trial_is_judged_five_seconds_after_its_class_has_drained() {
    let falls_to = |many| move |second| Some(if second < 7 { 40.0 } else { many });
    assert_eq!(Trial::new().ends(falls_to(1.0), None), 12);
    // Twice as many, and one that was let on since has ended.
    assert_eq!(Trial::new().ends(falls_to(2.0), Some(9)), 14);
    assert_eq!(Trial::new().ends(falls_to(2.0), Some(3)), 12);
    // That one alone, where it is not known how many are in flight.
    assert_eq!(Trial::new().ends(|_| None, Some(9)), 14);
}

#[test]
fn a_trial_is_judged_after_a_minute_if_its_class_does_not_drain() {
    let waits_for_room = |mut trial: Trial| {
        for _ in 0..2 {
            trial.throttles.handle_arrival(trial.id, at(1));
        }
        trial
    };
    assert_eq!(waits_for_room(Trial::new()).ends(|_| Some(40.0), None), 60);
    assert_eq!(waits_for_room(Trial::new()).ends(|_| Some(2.0), None), 60);
    assert_eq!(waits_for_room(Trial::new()).ends(|_| None, None), 60);
    let one_ends = Trial::new().ends(|second| Some(if second < 40 { 2.1 } else { 2.0 }), Some(9));
    assert_eq!(one_ends, 45);
}

/// What a class that is not suspected any more has in flight says when it has drained, too.
#[test]
fn a_class_that_is_not_accused_any_more_has_drained_when_as_few_are_in_flight_as_may() {
    let mut trial = Trial::new();
    let ends = (1..100).find(|second| {
        let present = Present {
            class: CLASS,
            took: None,
            in_flight: if *second < 30 { 40.0 } else { 1.0 },
        };
        let heard = Heard {
            present: &[present],
            ..FULL
        };
        let standing: Vec<_> = trial.throttles.all().collect();
        let done = trial.automatic.look(&heard, &standing, at(*second));
        done.iter().any(|it| it.limits.is_none())
    });
    assert_eq!(ends, Some(35));
}

/// Refusals that only begin when a class is slowed are not of its making: it is to better the worst until it has drained.
#[test]
fn a_trial_is_compared_with_the_worst_until_its_class_has_drained() {
    let ends = |worst: f64| {
        let mut trial = Trial::new();
        (1..60).find(|second| {
            let heard = Heard {
                latency: Some(if *second < 20 { worst } else { 4.0 }),
                present: &[Present {
                    class: CLASS,
                    took: None,
                    in_flight: if *second < 20 { 40.0 } else { 1.0 },
                }],
                ..FULL
            };
            let standing: Vec<_> = trial.throttles.all().collect();
            let done = trial.automatic.look(&heard, &standing, at(*second));
            done.iter().any(|it| it.limits.is_none())
        })
    };
    assert_eq!(ends(4.0), Some(25));
    assert_eq!(ends(5.5), None, "it helps");
}

/// Slowing any class helps where there are too many of all. What takes no longer than others do is let go, and is not tried
/// again by any rule, although others are refused as soon as it is let in.
#[test]
fn a_class_that_is_no_dearer_than_others_is_not_tried_again_soon() {
    let said = |took: f64| {
        let mut trial = Trial::new();
        let mut said: Vec<String> = Vec::new();
        for second in 1..=120 {
            let standing: Vec<_> = trial.throttles.all().collect();
            let suspect = Culprit {
                class: CLASS,
                resource: "db",
                share: 0.9,
                confidence: None,
                presumed: false,
                in_flight: 1.0,
                held_back: 0.0,
            };
            let heard = Heard {
                culprits: &[suspect],
                latency: Some(0.9),
                held_back: if standing.is_empty() { 0.5 } else { 0.0 },
                took: Some(0.010),
                present: &[Present {
                    class: CLASS,
                    in_flight: 1.0,
                    took: Some(took),
                }],
                ..FULL
            };
            for done in trial.automatic.look(&heard, &standing, at(second)) {
                if done.limits.is_none() {
                    trial.throttles.release(CLASS).unwrap();
                }
                said.push(done.text);
            }
        }
        said
    };
    let no_dearer =
        format!("{CLASS}: not throttled any more, its requests take no longer than others do");
    assert_eq!(said(0.0149), [no_dearer]);
    assert_eq!(said(0.0151), [""; 0], "it is kept");
}
