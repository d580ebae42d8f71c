//! Evidence that stays: on a plateau the use says nothing anew of what fills the resource.
//!
//! ```text
//! plateau   scatter of the last 10 s of use < 0.5 x what the class's own coming and going would make of it at its
//!           cost: in a bin cost x 0.1 s x sqrt(rate / max(life, 0.1 s)), as chance has it
//! stays     named by the fit twice, rate >= 0.75 x what it was, use >= 0.9 x the highest since; on a plateau, or off it
//!           for less than 30 s; at that cost and as it is served now its share is >= 10.5 %, and it costs as much
//!           beside others as a culprit does
//! ```
//!
//! A resource with a queue that never empties is used at one level: all of it, or 0.92 where a lock, a pool or
//! admission in front of it takes the rest. No level by itself says which, so none is asked for: a resource has no
//! more to give if its use does not follow a class that is known to move it. What is slow is left out of the fit, so
//! the last window with evidence is the one with the rise; thirty seconds later there is none, though nothing has
//! changed. While as many requests of the class come and the use stays where it is, what was found stays, too.
//!
//! Inputs: what each evaluation found. Failure case: a class that becomes cheap at the moment at which something
//! else takes all that it leaves stays named until the plateau ends.
//! Source: Poisson arrivals for the scatter; measured on sites whose database is never used to more than a part.

use std::collections::BTreeMap;

use super::bins::BIN_SECONDS;
use super::decision::{GREAT, LIFT_MIN};
use super::study::{ClassFinding, FULL_TIME_SHARE, Study};

/// Part of the scatter that a class alone would make below which the use does not follow it.
const UNMOVED: f64 = 0.5;
/// Part of its rate at which a class comes as it did, and of the highest use at which the use stays.
const SAME_RATE: f64 = 0.75;
const SAME_USE: f64 = 0.9;
/// Evaluations in which the fit must have named a class: the first seconds of a plateau have chance meetings as well.
const NAMED_MIN: u32 = 2;
/// Evaluations off the plateau after which evidence is forgotten: as many as a window is long.
const FORGOTTEN: u32 = 12;

/// See the module. By class.
#[derive(Debug, Default)]
pub(super) struct LastEvidence(BTreeMap<usize, Last>);

/// What the fit last said of a class that it named.
#[derive(Clone, Debug)]
struct Last {
    seen: ClassFinding,
    /// Evaluations in which the fit named it.
    named: u32,
    /// The highest use since, as a part of the capacity.
    use_max: f64,
    /// Evaluations since that neither named it nor saw a plateau.
    silent: u32,
}

impl LastEvidence {
    /// The fit has said nothing of this class.
    pub(super) fn forget(&mut self, class: usize) {
        self.0.remove(&class);
    }

    /// Keeps what the fit says now, and names again what it said where it can say nothing any more; whether that was
    /// so of any class.
    pub(super) fn keep(&mut self, study: &mut Study) -> bool {
        let mut before = std::mem::take(&mut self.0);
        let (full, utilization) = (study.full > FULL_TIME_SHARE, study.utilization);
        let (scatter, cores) = (study.scatter, study.cores);
        let served: f64 = study.seen.iter().map(served).sum();
        let mean_cost = utilization * cores / served.max(f64::MIN_POSITIVE);
        let mut on_plateau = false;
        for seen in &mut study.seen {
            if seen.named && !seen.by_occupancy {
                let named = before.get(&seen.class).map_or(0, |it| it.named);
                let last = Last {
                    seen: seen.clone(),
                    named: named.saturating_add(1),
                    use_max: utilization,
                    silent: 0,
                };
                self.0.insert(seen.class, last);
                continue;
            }
            let Some(mut last) = before.remove(&seen.class) else {
                continue;
            };
            if seen.cleared || !last.stays(seen.rate, utilization) {
                continue;
            }
            let unmoved = full || last.is_unmoved(scatter);
            last.silent = if unmoved { 0 } else { last.silent + 1 };
            last.use_max = last.use_max.max(utilization);
            if unmoved && !full && last.named >= NAMED_MIN {
                on_plateau = true;
                let again = last.again(seen, cores, mean_cost);
                if again.evidence.share >= GREAT && again.evidence.lift >= LIFT_MIN {
                    *seen = again;
                }
            }
            if last.silent < FORGOTTEN {
                self.0.insert(seen.class, last);
            }
        }
        on_plateau
    }
}

impl Last {
    /// Whether as many requests come, and as much is used.
    fn stays(&self, rate: f64, utilization: f64) -> bool {
        rate >= SAME_RATE * self.seen.rate && utilization >= SAME_USE * self.use_max
    }

    /// Whether the use scatters less than the class alone would make it.
    fn is_unmoved(&self, scatter: f64) -> bool {
        let evidence = &self.seen.evidence;
        let life = evidence.mean_life.max(BIN_SECONDS);
        scatter < UNMOVED * evidence.cost * BIN_SECONDS * (self.seen.rate / life).sqrt()
    }

    /// The class as it is now, with the evidence of then: as many requests at the same cost.
    fn again(&self, now: &ClassFinding, cores: f64, mean_cost: f64) -> ClassFinding {
        let mut seen = self.seen.clone();
        let then = seen.evidence;
        seen.rate = now.rate;
        seen.evidence.share = then.cost * served(now) / cores.max(f64::MIN_POSITIVE);
        seen.evidence.lift = then.cost / mean_cost.max(f64::MIN_POSITIVE);
        seen.evidence.requests = now.evidence.requests;
        seen.evidence.mean_life = now.evidence.mean_life;
        seen
    }
}

/// Requests of a class that are served in a second, fewer than come while a queue grows.
fn served(seen: &ClassFinding) -> f64 {
    seen.evidence.requests / seen.evidence.window.max(BIN_SECONDS)
}

#[cfg(test)]
mod tests {
    use super::super::decision::Evidence;
    use super::*;

    /// Six requests a second of 50 ms on one CPU, each for 100 ms: 0.039 s of scatter in a bin.
    fn named() -> ClassFinding {
        ClassFinding {
            class: 3,
            evidence: Evidence {
                cost: 0.05,
                mean_life: 0.1,
                share: 0.3,
                ..Evidence::default()
            },
            rate: 6.0,
            named: true,
            ..ClassFinding::default()
        }
    }

    fn served_all(class: usize, rate: f64) -> ClassFinding {
        let evidence = Evidence {
            requests: 30.0 * rate,
            window: 30.0,
            ..Evidence::default()
        };
        ClassFinding {
            class,
            evidence,
            rate,
            ..ClassFinding::default()
        }
    }

    /// Beside 60 requests a second of another class.
    fn study(seen: ClassFinding, utilization: f64, scatter: f64) -> Study {
        let other = served_all(4, 60.0);
        Study {
            seen: vec![seen, other],
            utilization,
            scatter,
            cores: 1.0,
            ..Study::default()
        }
    }

    /// What is known after the fit has named it twice.
    fn known(utilization: f64) -> LastEvidence {
        let mut last = LastEvidence::default();
        (0..NAMED_MIN).for_each(|_| assert!(!last.keep(&mut study(named(), utilization, 0.05))));
        last
    }

    fn silent(rate: f64) -> ClassFinding {
        served_all(3, rate)
    }

    /// Whether it is named after it was named at a use of 0.7 and then at 0.92.
    fn stays(now: ClassFinding, utilization: f64, scatter: f64) -> bool {
        let mut last = known(0.7);
        last.keep(&mut study(silent(6.0), 0.92, 0.002));
        let mut now = study(now, utilization, scatter);
        assert_eq!(last.keep(&mut now), now.seen[0].named);
        now.seen[0].named
    }

    #[test]
    fn evidence_stays_while_rate_and_use_do_and_the_use_says_nothing() {
        assert!(stays(silent(6.0), 0.92, 0.002));
        assert!(stays(silent(4.6), 0.84, 0.019));
        assert!(!stays(silent(4.4), 0.92, 0.002), "fewer come");
        assert!(!stays(silent(6.0), 0.82, 0.002), "less is used");
        assert!(!stays(silent(6.0), 0.92, 0.021), "the use says something");
        let cleared = ClassFinding {
            cleared: true,
            ..silent(6.0)
        };
        assert!(!stays(cleared, 0.92, 0.002));
    }

    #[test]
    fn what_is_named_again_has_todays_share() {
        let mut last = known(0.7);
        let mut now = study(silent(10.0), 0.92, 0.002);
        assert!(last.keep(&mut now));
        let seen = &now.seen[0];
        assert!((seen.evidence.share - 0.5).abs() < 1e-9 && seen.evidence.cost == 0.05);
    }

    #[test]
    fn a_class_that_others_have_become_as_dear_as_is_named_no_more() {
        let mut last = known(0.7);
        let mut now = study(silent(6.0), 0.92, 0.002);
        now.seen[1] = served_all(4, 25.0);
        // 0.92 of a CPU for 31 requests a second: 30 ms each, and the class takes 50.
        assert!(last.keep(&mut now) && !now.seen[0].named);
        now.seen[1] = served_all(4, 30.0);
        assert!(last.keep(&mut now) && now.seen[0].named);
    }

    #[test]
    fn what_the_fit_does_not_bear_out_for_a_window_is_forgotten() {
        let after = |evaluations: u32| {
            let mut last = known(0.9);
            for _ in 0..evaluations {
                assert!(!last.keep(&mut study(silent(6.0), 0.9, 0.05)));
            }
            last.keep(&mut study(silent(6.0), 0.92, 0.002))
        };
        assert!(after(FORGOTTEN - 1) && !after(FORGOTTEN));
    }

    #[test]
    fn what_the_fit_has_named_once_may_be_chance() {
        let mut last = LastEvidence::default();
        last.keep(&mut study(named(), 0.9, 0.05));
        assert!(!last.keep(&mut study(silent(6.0), 0.92, 0.002)));
    }

    #[test]
    fn a_full_resource_is_judged_by_lives_and_forgets_nothing() {
        let mut last = known(0.9);
        for _ in 0..2 * FORGOTTEN {
            let mut full = study(silent(6.0), 1.0, 0.0);
            full.full = 1.0;
            assert!(!last.keep(&mut full));
        }
        assert!(last.keep(&mut study(silent(6.0), 0.92, 0.002)));
    }
}
