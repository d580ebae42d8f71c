//! What a site usually uses of its CPUs: it keeps that much when it gives a node.
//!
//! ```text
//! used   = min(demand, CPUs)
//! slow   exponential mean of used over 10 s, or over all that was seen
//! late   the same over 500 ms          fast   the same over 50 ms
//! keeps  = CPUs               until it was seen for 1 s
//!        = fast               if that is below 0.1 of the CPUs: the load has gone
//!        = max(late, fast)    before a node that is lent to it goes home
//!        = max(slow, fast)    else
//! ```
//!
//! Demand at a moment is mostly noise: a site whose CPUs are busy for 60 % of the time has an idle moment several times a second. A
//! donor that is chosen at such a moment wants its node back at once. What was borrowed has a claim on it: its own site in need has
//! it back as soon as the borrower has not used it for some requests' time.
//!
//! Inputs: demand and CPUs of the site, `now`. Failure case: a load that falls to a half keeps a donor's own nodes for ten seconds
//! or so; a borrower whose load comes in spells of a second or so gives nodes back in between, if their own site needs them.
//! Source: not in Reconfiguration-2004, whose donor is the least loaded node at the moment.

use std::time::Duration;

use super::choice::SiteLoad;
use crate::time::Timestamp;

/// What is usual is a mean over so long.
const SLOW: Duration = Duration::from_secs(10);
/// What a borrower uses of late is one over so long.
const LATE: Duration = Duration::from_millis(500);
/// What is there now is one over so long: several requests of most sites.
const FAST: Duration = Duration::from_millis(50);
/// Below this part of the CPUs the load has gone.
const GONE: f64 = 0.1;

/// Before that nothing is usual.
const FIRST: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct UsualLoad {
    slow: f64,
    late: f64,
    fast: f64,
    cpus: f64,
    seen: Option<UsualAge>,
}

/// CPUs that a site keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct KeptCpus {
    /// When it gives a node to a site that is not the node's own.
    pub own: f64,
    /// When a node that is lent to it goes home.
    pub lent: f64,
}

#[derive(Clone, Copy, Debug)]
struct UsualAge {
    since: Timestamp,
    last: Timestamp,
}

impl UsualLoad {
    /// The site was seen like that.
    pub fn on_look(&mut self, load: SiteLoad, now: Timestamp) {
        let used = load.demand.min(load.cpus);
        self.cpus = load.cpus;
        let Some(seen) = &mut self.seen else {
            (self.slow, self.late, self.fast) = (used, used, used);
            self.seen = Some(UsualAge {
                since: now,
                last: now,
            });
            return;
        };
        let passed = now.since(seen.last);
        seen.last = now;
        let weight =
            |time: Duration, over: Duration| 1.0 - (-time.as_secs_f64() / over.as_secs_f64()).exp();
        let age = seen.time();
        // Nothing has passed, or what has passed counts for as much as it is of all.
        let part = |over| weight(passed, over) / weight(age, over).max(f64::MIN_POSITIVE);
        self.slow += part(SLOW) * (used - self.slow);
        self.late += part(LATE) * (used - self.late);
        self.fast += part(FAST) * (used - self.fast);
    }

    /// CPUs that it keeps.
    pub fn keeps(&self) -> KeptCpus {
        if self.seen.is_none_or(|it| it.time() < FIRST) {
            return KeptCpus {
                own: self.cpus,
                lent: self.cpus,
            };
        }
        let has_gone = self.fast < GONE * self.cpus;
        let kept = |mean: f64| match has_gone {
            true => self.fast,
            false => mean.max(self.fast),
        };
        KeptCpus {
            own: kept(self.slow),
            lent: kept(self.late),
        }
    }
}

impl UsualAge {
    fn time(self) -> Duration {
        self.last.since(self.since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(usual: &mut UsualLoad, demand: f64, from: u64, millis: u64) {
        let load = SiteLoad { demand, cpus: 4.0 };
        for at in (from..from + millis).step_by(10) {
            usual.on_look(load, Timestamp::from_millis(at));
        }
    }

    #[test]
    fn an_idle_moment_is_not_usual_and_a_load_that_has_gone_is_not_kept() {
        let mut usual = UsualLoad::default();
        look(&mut usual, 3.0, 0, 6000);
        assert!((usual.keeps().own - 3.0).abs() < 1e-9, "{usual:?}");
        look(&mut usual, 0.0, 6000, 50);
        assert!(usual.keeps().own > 2.9, "{usual:?}");
        look(&mut usual, 0.0, 6050, 300);
        assert!(usual.keeps().own < 0.2, "{usual:?}");
        look(&mut usual, 40.0, 6350, 1000);
        assert!(
            (usual.keeps().own - 4.0).abs() < 0.01,
            "CPUs are all it can use"
        );
        look(&mut usual, 1.0, 7350, 1000);
        assert!(usual.keeps().own > 1.5, "{usual:?}");
        assert!(usual.keeps().lent < 1.5, "{usual:?}");
        look(&mut usual, 1.0, 8350, 60_000);
        assert!((usual.keeps().own - 1.0).abs() < 0.01, "{usual:?}");
    }

    #[test]
    fn a_site_keeps_all_until_it_was_seen_for_a_second_and_then_the_mean() {
        let mut usual = UsualLoad::default();
        look(&mut usual, 0.0, 0, 500);
        look(&mut usual, 3.0, 500, 500);
        assert!(usual.keeps().own == 4.0, "{usual:?}");
        look(&mut usual, 0.0, 1000, 20);
        look(&mut usual, 1.0, 1020, 480);
        look(&mut usual, 0.0, 1500, 20);
        let mean = usual.keeps().own;
        assert!((1.2..1.5).contains(&mean), "{mean}");
    }
}
