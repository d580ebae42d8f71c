//! What a site usually uses of its CPUs: it keeps that much when it gives a node.
//!
//! ```text
//! used   = min(demand, CPUs)
//! slow   exponential mean of used over 5 s          fast   over 50 ms; both begin at the first value
//! keeps  = fast           if that is below 0.1 of the CPUs: the load has gone
//!        = max(slow, fast) else
//! ```
//!
//! Demand at a moment is mostly noise: a site whose CPUs are busy for 60 % of the time has an idle moment several times a second. A
//! donor that is chosen at such a moment wants its node back at once.
//!
//! Inputs: demand and CPUs of the site, `now`. Failure case: a load that falls to a half keeps a donor's nodes for some seconds.
//! Source: not in Reconfiguration-2004, whose donor is the least loaded node at the moment.

use std::time::Duration;

use super::choice::SiteLoad;
use crate::time::Timestamp;

/// What is usual is a mean over so long.
const SLOW: Duration = Duration::from_secs(5);
/// What is there now is one over so long: several requests of most sites.
const FAST: Duration = Duration::from_millis(50);
/// Below this part of the CPUs the load has gone.
const GONE: f64 = 0.1;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct UsualLoad {
    slow: f64,
    fast: f64,
    cpus: f64,
    seen_at: Option<Timestamp>,
}

impl UsualLoad {
    /// The site was seen like that.
    pub fn on_look(&mut self, load: SiteLoad, now: Timestamp) {
        let used = load.demand.min(load.cpus);
        self.cpus = load.cpus;
        let Some(seen_at) = self.seen_at.replace(now) else {
            (self.slow, self.fast) = (used, used);
            return;
        };
        let passed = now.since(seen_at).as_secs_f64();
        let part = |over: Duration| 1.0 - (-passed / over.as_secs_f64()).exp();
        self.slow += part(SLOW) * (used - self.slow);
        self.fast += part(FAST) * (used - self.fast);
    }

    /// CPUs that it keeps.
    pub fn keeps(&self) -> f64 {
        match self.fast < GONE * self.cpus {
            true => self.fast,
            false => self.slow.max(self.fast),
        }
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
        look(&mut usual, 3.0, 0, 100);
        assert!((usual.keeps() - 3.0).abs() < 1e-9, "the first is usual");
        look(&mut usual, 0.0, 100, 50);
        assert!(usual.keeps() > 2.9, "{usual:?}");
        look(&mut usual, 0.0, 150, 300);
        assert!(usual.keeps() < 0.2, "{usual:?}");
        look(&mut usual, 40.0, 450, 1000);
        assert!(
            (usual.keeps() - 4.0).abs() < 0.01,
            "CPUs are all it can use"
        );
        look(&mut usual, 1.0, 1450, 1000);
        assert!(usual.keeps() > 1.5, "{usual:?}");
        look(&mut usual, 1.0, 2450, 30_000);
        assert!((usual.keeps() - 1.0).abs() < 0.01, "{usual:?}");
    }
}
