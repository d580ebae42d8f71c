//! `GET /api/history`: what happened at sites and nodes, second by second, and how it is taken down.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use http::StatusCode;
use percent_encoding::percent_decode_str;
use tidegate_core::topology::{AdminState, Health, Node, NodeId, SiteId, Topology};
use tidegate_proxy::{SiteSnapshot, Snapshot};
use tidegate_remote::clock;

use super::api::{self, Answer};
use super::plane::Plane;
use super::status::SERVER_ERRORS;
use crate::history::{Counted, History, NodeSample, Place, SiteSample, Step};

/// Steps that are shown unless more or fewer are asked for.
const LAST: usize = 90;

/// What happened, and the counters at the last look.
#[derive(Debug)]
pub(super) struct Recorder {
    history: History,
    before: Arc<Snapshot>,
}

impl Recorder {
    /// One that begins with these counters.
    pub(super) fn new(before: Arc<Snapshot>) -> Self {
        Self {
            history: History::default(),
            before,
        }
    }
}

/// Until the wall clock's next second.
pub(super) fn until_next_second() -> Duration {
    let part = Duration::from_nanos(clock::unix().subsec_nanos().into());
    Duration::from_secs(1) - part
}

impl Plane {
    /// Takes down what happened since the last time, as that of the second of the wall clock that has just ended.
    pub(super) fn record_second(&self) {
        let second = clock::unix().as_secs().saturating_sub(1);
        self.record(second);
    }

    pub(super) fn record(&self, second: u64) {
        let now = Arc::new(self.shared.stats.snapshot());
        let topology = self.shared.topology.load();
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        let recorder = &mut window.recorder;
        let before = std::mem::replace(&mut recorder.before, Arc::clone(&now));
        let none = SiteSnapshot::default();
        let sites = topology.served().filter_map(|(id, site)| {
            let counted = Counted {
                then: before.sites.get(id.index()).unwrap_or(&none),
                now: now.sites.get(id.index())?,
                answered_errors: answered_errors(&topology, id, &before, &now),
            };
            Some((site.name.as_str(), SiteSample::between(counted)))
        });
        let members = topology.members().map(|(id, node)| {
            let site = topology.site(node.site).name.as_str();
            (node.name.as_str(), site, self.node_sample(id, node))
        });
        recorder.history.record(second, sites, members);
    }

    fn node_sample(&self, id: NodeId, node: &Node) -> NodeSample {
        let last = self.shared.table.last(id);
        let is_fresh = (self.clock)().since(last.observed_at) <= last.freshness();
        NodeSample::new(Some(&last).filter(|_| is_fresh), place(node))
    }
}

/// Whether a node gets requests; what an operator or its agent wants comes before experience.
fn place(node: &Node) -> Place {
    if [node.admin, node.agent.state] != [AdminState::Ready; 2] {
        Place::Drained
    } else if node.withheld {
        Place::Moving
    } else if node.health == Health::Ejected {
        Place::Out
    } else {
        Place::In
    }
}

/// Answers of a site's nodes with a server error.
fn answered_errors(topology: &Topology, site: SiteId, then: &Snapshot, now: &Snapshot) -> u64 {
    let of_node = |node: &NodeId| {
        let errors = |all: &Snapshot| {
            let node = all.nodes.get(node.index());
            node.map_or(0, |it| it.status_classes[SERVER_ERRORS])
        };
        errors(now).saturating_sub(errors(then))
    };
    topology.site(site).nodes.iter().map(of_node).sum()
}

/// The answer to `?step=10&last=90&site=shop`.
pub(super) fn answer(plane: &Plane, query: Option<&str>) -> Answer {
    let wanted = match Wanted::parsed(query.unwrap_or_default()) {
        Ok(wanted) => wanted,
        Err(why) => return api::error(StatusCode::BAD_REQUEST, &why),
    };
    let window = plane.window.lock().unwrap_or_else(PoisonError::into_inner);
    let history = &window.recorder.history;
    let shown = history.show(wanted.step, wanted.last, wanted.site.as_deref());
    drop(window);
    api::json(StatusCode::OK, &shown)
}

/// What is asked for.
#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    step: Step,
    last: usize,
    site: Option<String>,
}

impl Wanted {
    fn parsed(query: &str) -> Result<Self, String> {
        let mut pairs = BTreeMap::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            if !["step", "last", "site"].contains(&name) {
                return Err("the history knows `step`, `last` and `site` only".into());
            }
            pairs.insert(name, value);
        }
        let step = pairs.get("step").copied().unwrap_or("10").parse();
        let Some(step) = step.ok().and_then(Step::of) else {
            return Err("`step` is 1 or 10 seconds".into());
        };
        let last = pairs.get("last").map_or(Ok(LAST), |last| last.parse());
        let is_kept = |last: &usize| (1..=step.most()).contains(last);
        let last = last.ok().filter(is_kept).ok_or_else(|| {
            let (most, seconds) = (step.most(), step.seconds());
            format!("`last` is 1 to {most} steps of {seconds} s")
        })?;
        let site = pairs.get("site");
        Ok(Self {
            step,
            last,
            site: site.map(|it| percent_decode_str(it).decode_utf8_lossy().into_owned()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn a_question_is_understood_or_its_fault_named() {
        let parsed = |query| Wanted::parsed(query);
        let wanted = |step, last, site: Option<&str>| Wanted {
            step,
            last,
            site: site.map(str::to_owned),
        };
        assert_eq!(parsed(""), Ok(wanted(Step::TenSeconds, 90, None)));
        let all = "step=1&last=900&site=a%20b";
        assert_eq!(parsed(all), Ok(wanted(Step::Second, 900, Some("a b"))));
        for (query, why) in [
            ("step=5", "`step` is 1 or 10 seconds"),
            ("step=x", "`step` is 1 or 10 seconds"),
            ("last=0", "`last` is 1 to 2160 steps of 10 s"),
            ("step=1&last=901", "`last` is 1 to 900 steps of 1 s"),
            ("last=-1", "`last` is 1 to 2160 steps of 10 s"),
            ("from=1", "the history knows `step`, `last` and `site` only"),
        ] {
            assert_eq!(parsed(query), Err(why.to_owned()), "{query}");
        }
    }

    #[test]
    fn a_second_is_taken_down_with_loads_and_states() {
        let (_driver, plane) = testing::plane();
        plane.record(1000);
        plane.record(1001);
        let window = plane.window.lock().unwrap();
        let shown = window.recorder.history.show(Step::Second, 2, None);
        let sites: Vec<_> = shown.sites.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(sites, ["blog", "shop"]);
        assert_eq!(shown.sites[1].requests_per_second, [Some(0.0); 2]);
        // n1's three tasks share two CPUs, n2's load is old, n3's was never read.
        let loads: Vec<_> = shown
            .nodes
            .iter()
            .map(|it| (&*it.site, &*it.load))
            .collect();
        assert_eq!(loads, [("shop", "++"), ("shop", ".."), ("blog", "..")]);
    }
}
