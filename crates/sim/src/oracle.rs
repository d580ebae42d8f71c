//! The delay-free central oracle: all nodes, their true state now, and what is on its way.
//!
//! ```text
//! by run queue   least (n + 1) / C * factor     n = requests and antagonists on the run queue
//! by in flight   least (R + 1) / C * factor     R = requests in flight
//! by slowdown    least (max(1, (n + 1) / C) + (R + 1) / 1000 C) * factor
//! factor         mean time that a request of the site takes there alone, over that elsewhere
//! ```
//!
//! Both count requests on their way to the node. Nodes that do not work, are barred or full are
//! left out while there are others. It knows nothing of the future: neither how much work a
//! request has left nor when an antagonist comes; so a policy may beat it by luck or by
//! spreading better, and the best one of the three is the bound to compare with.

use tidegate_core::prng::Prng;

use crate::chooser::OracleBy;
use crate::model::Stream;
use crate::node::{Condition, Node};
use crate::node_model::NodeModel;
use crate::scenario::{Scenario, SiteModel};

/// Added to the rank of nodes that are to be left out while there are others.
const UNWELL: f64 = 1e12;
/// Weight of the requests in flight where slowdowns are equal.
const TIE_BREAKER: f64 = 1e-3;
/// The rank of nodes that are not to be had at all.
const BARRED: f64 = f64::INFINITY;

/// See the module. Ranks are kept as nodes change, for a choice looks at all of them.
#[derive(Debug)]
pub(crate) struct Oracle {
    by: OracleBy,
    prng: Prng,
    /// By site, its nodes and their ranks.
    sites: Vec<(Vec<u32>, Vec<f64>)>,
    /// By node.
    seats: Vec<Seat>,
}

#[derive(Clone, Copy, Debug)]
struct Seat {
    site: usize,
    place: usize,
    /// 1 / C.
    per_core: f64,
    factor: f64,
    limit: u32,
}

impl Oracle {
    pub(crate) fn new(scenario: &Scenario, by: OracleBy, nodes: &[Node]) -> Self {
        let mut oracle = Self {
            by,
            prng: Stream::Picker(0).prng(scenario.seed),
            sites: vec![Default::default(); scenario.sites.len()],
            seats: Vec::with_capacity(nodes.len()),
        };
        for (number, model) in scenario.nodes.iter().enumerate() {
            let site = model.site.index();
            let (members, ranks) = &mut oracle.sites[site];
            oracle.seats.push(Seat {
                site,
                place: members.len(),
                per_core: 1.0 / model.cores,
                factor: factor(&scenario.sites[site], model),
                limit: model.limit.unwrap_or(u32::MAX),
            });
            members.push(number as u32);
            ranks.push(0.0);
            oracle.update(number as u32, &nodes[number]);
        }
        oracle
    }

    /// A node has changed.
    pub(crate) fn update(&mut self, number: u32, node: &Node) {
        let seat = self.seats[number as usize];
        let in_flight = node.processor.in_flight() + node.expected;
        let runnable = node.processor.runnable() + node.expected;
        let per_core = |length: u32| f64::from(length + 1) * seat.per_core;
        let length = match self.by {
            OracleBy::RunQueue => per_core(runnable),
            OracleBy::InFlight => per_core(in_flight),
            OracleBy::Slowdown => per_core(runnable).max(1.0) + per_core(in_flight) * TIE_BREAKER,
        };
        let rank = length * seat.factor;
        let works = matches!(node.condition, Condition::Well | Condition::Slow { .. });
        let well = works && in_flight < seat.limit;
        self.sites[seat.site].1[seat.place] = match (node.barred, well) {
            (Some(_), _) => BARRED,
            (None, true) => rank,
            (None, false) => rank + UNWELL,
        };
    }

    /// The node for a request to the site, if there is one; not this one.
    pub(crate) fn choose(&mut self, site: u32, tried: Option<u32>) -> Option<u32> {
        let (members, ranks) = &mut self.sites[site as usize];
        let left_out = tried.map(|node| self.seats[node as usize].place);
        let kept = left_out.map(|place| std::mem::replace(&mut ranks[place], BARRED));
        let least = ranks.iter().fold(BARRED, |least, rank| rank.min(least));
        let equals = ranks.iter().filter(|rank| **rank == least).count();
        let mut chosen = None;
        if least < BARRED {
            let places = ranks.iter().zip(members.iter());
            let mut best = places.filter(|(rank, _)| **rank == least);
            let skipped = if equals > 1 {
                self.prng.below(equals)
            } else {
                0
            };
            chosen = best.nth(skipped).map(|(_, node)| *node);
        }
        if let (Some(place), Some(rank)) = (left_out, kept) {
            ranks[place] = rank;
        }
        chosen
    }
}

/// Mean time of a request of the site at the node alone, over that at a plain one.
fn factor(site: &SiteModel, node: &NodeModel) -> f64 {
    let cpu = site.mean_demand.as_secs_f64();
    let io = site.io.map_or(0.0, |io| io.mean.as_secs_f64());
    (cpu / node.speed + io * node.io_slowness) / (cpu + io).max(f64::MIN_POSITIVE)
}
