//! Which classes are culprits in truth.
//!
//! ```text
//! culprit   >= 5 % of the capacity in the last 30 s  and  >= 2.5 x the mean cost of a request
//! innocent  <  2 % of the capacity                   or   <  1.5 x the mean cost
//! grey      what lies between: never scored
//! ```

use super::trace::{Resource, Trace};

/// Seconds that count.
const SECONDS: f64 = 30.0;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Label {
    /// To be named.
    Culprit,
    /// Neither right nor wrong to name.
    Grey,
    /// Not to be named.
    Innocent,
}

/// The truth about a class.
#[derive(Clone, Copy, Debug)]
pub struct Truth {
    /// What it is.
    pub label: Label,
    /// Part of the capacity that it used.
    pub share: f64,
    /// Seconds per request that it asked for.
    pub cost_seconds: f64,
}

/// Of each class, over the 30 s before a moment, in seconds after the start.
pub fn truths(trace: &Trace, resource: Resource, until: f64) -> Vec<Truth> {
    truths_between(trace, resource, until - SECONDS, until)
}

/// Of each class, between two moments, in seconds after the start.
pub fn truths_between(trace: &Trace, resource: Resource, from: f64, until: f64) -> Vec<Truth> {
    let place = |seconds: f64| (seconds.round().max(0.0) as usize).min(trace.seconds.len());
    let seconds = &trace.seconds[place(from)..place(until)];
    let place = resource.index();
    let capacity = trace.cores[place] * (seconds.len() as f64).max(1.0);
    let mut truths = Vec::new();
    let (mut asked_of_all, mut came_of_all) = (0.0, 0.0);
    for class in 0..trace.classes {
        let (mut used, mut asked, mut came) = (0.0, 0.0, 0.0);
        for second in seconds {
            used += f64::from(second.used[place][class]);
            asked += f64::from(second.asked[place][class]);
            came += f64::from(second.came[class]);
        }
        asked_of_all += asked;
        came_of_all += came;
        truths.push(Truth {
            label: Label::Innocent,
            share: used / capacity,
            cost_seconds: if came > 0.0 { asked / came } else { 0.0 },
        });
    }
    let mean = asked_of_all / f64::max(came_of_all, 1.0);
    for truth in &mut truths {
        let lift = truth.cost_seconds / mean.max(1e-12);
        truth.label = if truth.share >= 0.05 && lift >= 2.5 {
            Label::Culprit
        } else if truth.share < 0.02 || lift < 1.5 {
            Label::Innocent
        } else {
            Label::Grey
        };
    }
    truths
}
