//! What happened at each site and node over the last minutes and hours, in memory that is bounded.
//!
//! ```text
//! counters ── each second ──> sample.rs ──> series.rs: 15 min in steps of 1 s ──> HistoryModel ──> the page
//! loads, states ──────────────────────┘      │        6 h in steps of 10 s ──> kept.rs: over a restart
//!                                            └──> spells.rs: refusals and errors begin, and end
//! ```
//!
//! A site's sample is 52 bytes and a node's 3, so a site has at most 160 kB and a node 10 kB; no more than [`SITES_MAX`] sites
//! and [`NODES_MAX`] nodes have a history, those first that came first. One that is gone keeps its history until its room is
//! wanted. Steps are seconds of the wall clock: a second that comes twice, as the clock is set back, is counted as one,
//! and what lies ahead of the newest step is not known.

mod kept;
mod sample;
mod series;
pub(crate) mod spells;

use std::collections::BTreeMap;

use crate::models::{HistoryModel, NodeHistory, SiteHistory};

pub(crate) use sample::{Counted, NodeSample, Place, SiteSample};
use series::{Ring, Series};

/// Most sites that have a history.
const SITES_MAX: usize = 64;
/// Most nodes that have one.
const NODES_MAX: usize = 1024;

/// Length of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// One second, of the last 15 minutes.
    Second,
    /// Ten seconds, of the last six hours.
    TenSeconds,
}

impl Step {
    /// The step of so many seconds; none: there is no such one.
    pub(crate) fn of(seconds: u64) -> Option<Self> {
        match seconds {
            1 => Some(Self::Second),
            10 => Some(Self::TenSeconds),
            _ => None,
        }
    }

    pub(crate) const fn seconds(self) -> u64 {
        match self {
            Self::Second => 1,
            Self::TenSeconds => 10,
        }
    }

    /// Steps that are kept.
    pub(crate) const fn most(self) -> usize {
        match self {
            Self::Second => 900,
            Self::TenSeconds => 2160,
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct History {
    sites: BTreeMap<String, Series<SiteSample>>,
    nodes: BTreeMap<String, Kept>,
    /// The newest second that was recorded.
    newest: u64,
}

/// A node's history, and the site that it served last.
#[derive(Debug, Default)]
struct Kept {
    site: String,
    series: Series<NodeSample>,
}

impl History {
    /// Takes what happened in the second that ends now, `second` since 1970.
    pub(crate) fn record<'a>(
        &mut self,
        second: u64,
        sites: impl IntoIterator<Item = (&'a str, SiteSample)>,
        nodes: impl IntoIterator<Item = (&'a str, &'a str, NodeSample)>,
    ) {
        self.newest = self.newest.max(second);
        for (name, sample) in sites {
            let newest = |it: &Series<SiteSample>| it.newest();
            if let Some(series) = place(&mut self.sites, name, SITES_MAX, self.newest, newest) {
                series.put(second, sample);
            }
        }
        for (name, site, sample) in nodes {
            let newest = |it: &Kept| it.series.newest();
            if let Some(kept) = place(&mut self.nodes, name, NODES_MAX, self.newest, newest) {
                if kept.site != site {
                    site.clone_into(&mut kept.site);
                }
                kept.series.put(second, sample);
            }
        }
    }

    /// Whether anything is known of a site of this name, be it served or not.
    pub(crate) fn knows_site(&self, name: &str) -> bool {
        self.sites.contains_key(name)
    }

    /// The last so many steps, the one that has not ended left out. Only this site and its nodes, if one is named.
    pub(crate) fn show(&self, step: Step, last: usize, site: Option<&str>) -> HistoryModel {
        let last = last.min(step.most());
        let end = match step {
            Step::Second => self.newest + 1,
            Step::TenSeconds => (self.newest + 1) / step.seconds(),
        };
        let from = end.saturating_sub(last as u64);
        let is_shown = |name: &str| site.is_none_or(|wanted| wanted == name);
        let sites = self.sites.iter().filter(|(name, _)| is_shown(name));
        let sites = sites.map(|(name, series)| {
            let ring = series.ring(step);
            site_history(name, ring, from..end, step)
        });
        let nodes = self.nodes.iter().filter(|(_, kept)| is_shown(&kept.site));
        let nodes = nodes.map(|(name, kept)| NodeHistory {
            name: name.clone(),
            site: kept.site.clone(),
            load: letters(kept.series.ring(step), from..end),
        });
        HistoryModel {
            step_seconds: step.seconds(),
            end_seconds: end * step.seconds(),
            steps: end - from,
            sites: sites.collect(),
            nodes: nodes.collect(),
        }
    }
}

/// The series of this name; where there is none and no room, that which ended first gives way. None: all are in use.
fn place<'m, T: Default>(
    all: &'m mut BTreeMap<String, T>,
    name: &str,
    most: usize,
    now: u64,
    newest: impl Fn(&T) -> u64,
) -> Option<&'m mut T> {
    if !all.contains_key(name) {
        if all.len() >= most {
            let over = all.iter().filter(|(_, it)| newest(it) < now);
            let over = over.min_by_key(|(_, it)| newest(it)).map(|(name, _)| name);
            let over = over?.clone();
            all.remove(&over);
        }
        all.insert(name.to_owned(), T::default());
    }
    all.get_mut(name)
}

fn site_history(
    name: &str,
    ring: &Ring<SiteSample>,
    steps: std::ops::Range<u64>,
    step: Step,
) -> SiteHistory {
    let samples: Vec<_> = steps.map(|step| ring.at(step)).collect();
    let rate = |of: fn(&SiteSample) -> u32| {
        let rates = samples.iter().map(|it| {
            let it = it.as_ref()?;
            Some(f64::from(of(it)) / step.seconds() as f64)
        });
        rates.collect::<Vec<_>>()
    };
    let known = |of: fn(&SiteSample) -> f32| {
        let each = samples.iter().map(|it| {
            let value = of(it.as_ref()?);
            // An `f32` has no more digits than that.
            value
                .is_finite()
                .then(|| (f64::from(value) * 1e6).round() / 1e6)
        });
        each.collect::<Vec<_>>()
    };
    SiteHistory {
        name: name.to_owned(),
        requests_per_second: rate(|it| it.ended),
        refused_per_second: rate(|it| it.refused),
        errors_per_second: rate(|it| it.failed + it.answered_errors),
        p50_seconds: known(|it| it.p50),
        p99_seconds: known(|it| it.p99),
        queued: samples
            .iter()
            .map(|it| it.as_ref().map(|it| it.queued))
            .collect(),
        reasons: reasons(&samples),
    }
}

/// How often each reason was met in each step that is known.
fn reasons(samples: &[Option<SiteSample>]) -> BTreeMap<String, Vec<Option<u32>>> {
    let never: Vec<_> = samples.iter().map(|it| it.as_ref().map(|_| 0)).collect();
    let mut all: BTreeMap<String, Vec<Option<u32>>> = BTreeMap::new();
    for (step, sample) in samples.iter().enumerate() {
        for (label, count) in sample.iter().flat_map(SiteSample::reasons) {
            let steps = all.entry(label.to_owned()).or_insert_with(|| never.clone());
            steps[step] = steps[step].map(|it| it.saturating_add(count));
        }
    }
    all
}

/// A letter for each step.
fn letters(ring: &Ring<NodeSample>, steps: std::ops::Range<u64>) -> String {
    let letter = |step| ring.at(step).map_or(' ', NodeSample::letter);
    steps.map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(ended: u32) -> SiteSample {
        SiteSample {
            ended,
            ..SiteSample::default()
        }
    }

    fn node(load: u8) -> NodeSample {
        NodeSample {
            load,
            ..NodeSample::default()
        }
    }

    #[test]
    fn seconds_and_tens_of_them_are_shown_up_to_the_one_that_has_ended() {
        let mut history = History::default();
        for second in 1000..1025 {
            let nodes = [("n1", "shop", node(50))];
            history.record(second, [("shop", site(3)), ("blog", site(0))], nodes);
        }
        let shown = history.show(Step::Second, 4, Some("shop"));
        assert_eq!(
            (shown.step_seconds, shown.end_seconds, shown.steps),
            (1, 1025, 4)
        );
        assert_eq!(shown.sites.len(), 1);
        assert_eq!(shown.sites[0].requests_per_second, [Some(3.0); 4]);
        assert_eq!(shown.nodes[0].load, "5555");
        // The third ten of seconds has not ended, the one before the first is not known.
        let shown = history.show(Step::TenSeconds, 3, None);
        assert_eq!((shown.end_seconds, shown.steps), (1020, 3));
        let rates = &shown.sites[1].requests_per_second;
        assert_eq!(rates, &[None, Some(3.0), Some(3.0)]);
        assert_eq!(shown.nodes[0].load, " 55");
        assert_eq!(shown.sites[0].p99_seconds, [None; 3], "there was no answer");
    }

    #[test]
    fn no_more_is_shown_than_is_kept() {
        let mut history = History::default();
        history.record(5000, [("shop", site(3))], []);
        let shown = history.show(Step::Second, usize::MAX, None);
        assert_eq!(shown.steps, 900);
        let early = History::default().show(Step::Second, 5, None);
        assert_eq!(
            (early.steps, early.sites.len()),
            (1, 0),
            "nothing is recorded"
        );
    }

    #[test]
    fn what_is_gone_gives_way_and_what_is_there_does_not() {
        let mut history = History::default();
        let names: Vec<_> = (0..=SITES_MAX)
            .map(|number| format!("s{number:03}"))
            .collect();
        history.record(10, names.iter().map(|it| (it.as_str(), site(1))), []);
        assert_eq!(history.sites.len(), SITES_MAX);
        assert!(!history.sites.contains_key(&names[SITES_MAX]), "no room");
        history.record(11, names[1..].iter().map(|it| (it.as_str(), site(1))), []);
        assert_eq!(history.sites.len(), SITES_MAX);
        assert!(!history.sites.contains_key(&names[0]), "it is gone");
        assert!(history.sites.contains_key(&names[SITES_MAX]));
    }

    #[test]
    fn a_node_that_has_moved_is_shown_with_its_new_site() {
        let mut history = History::default();
        history.record(10, [], [("n1", "shop", node(10))]);
        history.record(11, [], [("n1", "blog", node(90))]);
        assert!(history.show(Step::Second, 2, Some("shop")).nodes.is_empty());
        let shown = history.show(Step::Second, 2, Some("blog"));
        assert_eq!(shown.nodes[0].load, "19");
    }
}
