//! Whatever is heard, and however often that changes: few throttles, each explained, each with an end.

use super::*;
use crate::prng::Prng;
use crate::throttle::{SetBy, Throttle, Throttles};

/// A front-end's throttles and the loop over them.
struct Loop {
    automatic: Automatic,
    throttles: Throttles,
    most: usize,
}

impl Loop {
    fn new(most: usize) -> Self {
        let bounds = AutoConfig {
            most,
            ..AutoConfig::default()
        };
        Self {
            automatic: Automatic::new(bounds),
            throttles: Throttles::new(10),
            most,
        }
    }

    fn standing(&self) -> Vec<Throttle> {
        self.throttles.all().collect()
    }

    /// One look; checks what is done, and sets the throttles.
    fn look(&mut self, heard: &Heard<'_>, now: Timestamp) {
        let before = self.standing();
        let done = self.automatic.look(heard, &before, now);
        let is_new = |it: &&Done| {
            let known = before.iter().any(|old| old.pattern.name() == it.class);
            it.limits.is_some() && !known
        };
        assert!(done.iter().filter(is_new).count() <= 1, "{done:?}");
        for it in done {
            let explained = it.text.strip_prefix(&*it.class);
            assert!(explained.is_some_and(|why| why.len() > 5), "{it:?}");
            let Some(limits) = it.limits else {
                assert!(self.throttles.release(&it.class).is_some(), "{it:?}");
                continue;
            };
            assert!(limits.concurrency.is_none_or(|limit| limit >= 1), "{it:?}");
            let pattern = it.class.parse().unwrap();
            let set = self
                .throttles
                .set(pattern, limits, SetBy::Policy, None, now);
            set.unwrap();
        }
        assert!(self.throttles.all().count() <= self.most);
        assert_eq!(
            self.automatic.classes().count(),
            self.throttles.all().count()
        );
    }
}

/// Looks once a second at what clients could bring about at their worst.
fn provoked(seed: u64) -> (Loop, Timestamp) {
    let mut prng = Prng::new(seed);
    let mut tried = Loop::new(1 + prng.below(4));
    let names: Vec<_> = (0..40).map(|it| format!("GET /c{it}?")).collect();
    let mut now = Timestamp::from_millis(1_000);
    for _ in 0..300 {
        now = now + Duration::from_secs(1);
        let sure = [
            Confidence::FromOccupancy,
            Confidence::Strong,
            Confidence::Confirmed,
        ];
        let mut accused = Vec::new();
        for _ in 0..prng.below(8) {
            accused.push(Culprit {
                class: &names[prng.below(names.len())],
                resource: ["db", "disk", "gone"][prng.below(3)],
                share: prng.below(100) as f64 / 50.0,
                confidence: Some(sure[prng.below(3)]),
                presumed: false,
                in_flight: prng.below(1000) as f64,
                held_back: prng.below(10) as f64 / 10.0,
            });
        }
        let resources = ["db", "disk"].map(|resource| UsedPart {
            resource,
            usage: prng.below(130) as f64 / 100.0,
            capacity: prng.below(5) as f64,
        });
        let heard = Heard {
            took: None,
            culprits: &accused,
            resources: &resources[..prng.below(3)],
            latency: (prng.below(4) > 0).then(|| prng.below(500) as f64 / 100.0),
            held_back: prng.below(30) as f64 / 100.0,
            present: &[],
        };
        tried.look(&heard, now);
    }
    (tried, now)
}

#[test]
fn few_classes_are_slowed_at_a_time_one_more_at_a_look_each_explained() {
    let standing = (0..40).map(|seed| provoked(seed).0.standing().len());
    assert!(standing.max() > Some(1), "the bounds are reached");
}

#[test]
fn every_order_ends_with_calm_or_with_the_figures_of_its_resource() {
    let calm = ["db", "disk"].map(|resource| UsedPart {
        resource,
        usage: 0.3,
        capacity: 4.0,
    });
    for seed in 0..40 {
        for resources in [&calm[..], &[]] {
            let (mut tried, mut now) = provoked(seed);
            for _ in 0..61 {
                now = now + Duration::from_secs(1);
                let heard = Heard {
                    took: None,
                    culprits: &[],
                    resources,
                    latency: Some(0.1),
                    held_back: 0.0,
                    present: &[],
                };
                tried.look(&heard, now);
            }
            assert!(tried.standing().is_empty(), "seed {seed}");
        }
    }
}
