//! What is said of a class and a resource.

use std::time::Duration;

use super::false_discovery::adjust;
use super::{ClassId, Pearson, ResourceId};
use crate::time::Timestamp;

/// How sure it is that a class is a culprit, the least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Confidence {
    /// It is this class, one of [`Verdict::ambiguous_with`], or several: they run together. The delay
    /// experiment can tell.
    Ambiguous,
    /// The resource is full; only lives tell, and they cannot tell slow from dear.
    FromOccupancy,
    /// It passes all gates.
    Likely,
    /// t of 8 and more, and twice as good a fit as at any wrong time.
    Strong,
    /// The delay experiment has shown it: no confounder can have done it.
    Confirmed,
}

impl Confidence {
    /// The word that is shown.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Confirmed => "confirmed",
            Self::Strong => "strong",
            Self::Likely => "likely",
            Self::Ambiguous => "ambiguous",
            Self::FromOccupancy => "from occupancy",
        }
    }
}

/// One class against one resource.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// Which class.
    pub class: ClassId,
    /// Requests of the class in the window; parts of those that reach beyond it.
    pub requests: f64,
    /// Part of the resource's capacity that it uses, 0 to 1.
    pub share: f64,
    /// Seconds of the resource per request.
    pub cost_seconds: f64,
    /// Half width of the cost's 95 % interval as a part of it: 2 / t. Infinite if nothing is known.
    pub relative_error: f64,
    /// What a request costs at least and at the most, seconds: by the error, or by all that was used where the
    /// resource was full or as many requests were in progress all the time.
    pub cost_range: [f64; 2],
    /// Whether the range has such a bound, and is no mere error.
    pub bounded: bool,
    /// The least cost of a request, seconds, that would have been named; zero where none was looked for.
    pub least_cost_seconds: f64,
    /// t of what one half of the window tells of the other.
    pub t: f64,
    /// How far the fit at the true time stands out from those at wrong times.
    pub z: f64,
    /// The fit at the true time over the best at a wrong one.
    pub shift_ratio: f64,
    /// One-sided p of t; 1 if the class was not tested.
    pub p: f64,
    /// The same, adjusted for the number of classes and resources (Benjamini and Hochberg).
    pub p_adjusted: f64,
    /// Completions per second against use, as Elephants-2005 has it.
    pub pearson: Pearson,
    /// How well the class fits at each time from -10 to 10 s, in steps of 100 ms; empty if it was
    /// not tested. A spike in the middle convinces.
    pub shift_curve: Vec<f32>,
    /// Length of the window that this rests on.
    pub window: Duration,
    /// Whether this evaluation names it, and how sure it is.
    pub culprit: Option<Confidence>,
    /// The others that it may be as well; empty unless it is [`Confidence::Ambiguous`].
    pub ambiguous_with: Vec<ClassId>,
    /// The share of which this evaluation suspects it: a few seconds are enough, where much is at stake.
    pub suspected: Option<f64>,
    /// The share that its requests' lives alone tell of a full resource, whatever is known of the class, if it is great:
    /// worth a trial when nothing else helps.
    pub presumed: Option<f64>,
    /// Whether two of the last three evaluations named it: then the operator sees it.
    pub flagged: bool,
}

/// All classes against one resource.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdicts {
    /// Which resource.
    pub resource: ResourceId,
    /// When.
    pub at: Timestamp,
    /// Mean use over the window, as a part of the capacity.
    pub utilization: f64,
    /// Part of the window in which the resource was full.
    pub full: f64,
    /// How far the resource's clock was found ahead of the front-end's, milliseconds.
    pub clock_shift_ms: i64,
    /// Each class with requests in the window, the greatest share first.
    pub classes: Vec<Verdict>,
}

impl Verdicts {
    /// What is shown to the operator.
    pub fn flagged(&self) -> impl Iterator<Item = &Verdict> {
        self.classes.iter().filter(|it| it.flagged)
    }

    /// What this evaluation names.
    pub fn named(&self) -> impl Iterator<Item = &Verdict> {
        self.classes.iter().filter(|it| it.culprit.is_some())
    }

    /// Classes that are not flagged yet but are worth a trial while other requests are refused.
    pub fn suspected(&self) -> impl Iterator<Item = &Verdict> {
        let suspected = |it: &&Verdict| it.suspected.is_some() && !it.flagged;
        self.classes.iter().filter(suspected)
    }

    /// Classes that are neither flagged nor suspected, and are worth a trial when nothing else helps.
    pub fn presumed(&self) -> impl Iterator<Item = &Verdict> {
        let classes = self.classes.iter().filter(|it| it.presumed.is_some());
        classes.filter(|it| it.suspected.is_none() && !it.flagged)
    }

    /// Adjusts the p values of verdicts that are shown together: all classes, all resources.
    pub fn adjust_together(all: &mut [Self]) {
        let verdicts = all.iter_mut().flat_map(|it| &mut it.classes);
        let mut p: Vec<_> = verdicts
            .map(|verdict| {
                verdict.p_adjusted = verdict.p;
                &mut verdict.p_adjusted
            })
            .collect();
        adjust(&mut p);
    }
}
