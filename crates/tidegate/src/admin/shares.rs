//! Why `auto` gives a node another share of the requests than its part of the site's capacity.

use tidegate_core::load::LoadTable;
use tidegate_core::policy::PolicyKind;
use tidegate_core::topology::{NodeId, Site};

use super::plane::Look;

/// A learned factor is worth a sentence this far from 1.
const FACTOR_TOLD: f64 = 0.05;
/// A share is worth a sentence this far from the node's part of the capacity.
const SHARE_TOLD: f64 = 0.05;
/// Standard deviations within which a difference is put down to chance.
const CHANCE_DEVIATIONS: f64 = 3.0;

/// What is known of a node's share.
#[derive(Clone, Copy, Debug)]
struct Share {
    /// Part of the site's requests.
    given: f64,
    /// Part of the capacity of the site's candidates.
    even: f64,
    /// The site's requests in that time.
    requests: f64,
}

/// The sentences for a node, if there is anything to be explained.
pub(super) fn reasons(table: &LoadTable, look: &Look, site: &Site, id: NodeId) -> Vec<String> {
    if site.policy.kind != PolicyKind::Auto || !site.candidates.contains(&id) {
        return Vec::new();
    }
    let terms = |node: NodeId| table.compared(node).terms;
    let capacity = |node: NodeId| 1.0 / f64::from(terms(node).per_core);
    let all: f64 = site.candidates.iter().map(|node| capacity(*node)).sum();
    let requests: u64 = site.nodes.iter().map(|node| look.answered(*node)).sum();
    let share = Share {
        given: look.answered(id) as f64 / requests.max(1) as f64,
        even: capacity(id) / all,
        requests: requests as f64,
    };
    let cost = cost_reason(f64::from(terms(id).factor / table.relief(id)));
    cost.into_iter().chain(chance_reason(share)).collect()
}

/// What the node's answers have taught of it.
fn cost_reason(factor: f64) -> Option<String> {
    let what = match factor {
        factor if factor >= 1.0 + FACTOR_TOLD => {
            "while others are as idle it gets no requests, until that is forgotten"
        }
        factor if factor <= 1.0 - FACTOR_TOLD => "while others are as idle it gets their requests",
        _ => return None,
    };
    Some(format!(
        "a request seems to cost {factor:.2} times here what it costs at the site's other nodes, by the answers and \
         errors of about the last 10 s: {what}"
    ))
}

/// That a difference is no more than what draws at random make of so few requests.
fn chance_reason(share: Share) -> Option<String> {
    let Share {
        given,
        even,
        requests,
    } = share;
    if requests == 0.0 {
        return None;
    }
    let deviation = (even * (1.0 - even) / requests).sqrt();
    let difference = (given - even).abs();
    let is_chance = (SHARE_TOLD..=CHANCE_DEVIATIONS * deviation).contains(&difference);
    is_chance.then(|| {
        format!(
            "by its capacity it would have {:.0} %: equal scores are drawn at random, and of {requests:.0} requests that \
             is as far off as chance makes it",
            even * 100.0
        )
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tidegate_core::director::Director;
    use tidegate_core::load::NodeTerms;
    use tidegate_core::topology::SiteId;
    use tidegate_proxy::Stats;

    use super::*;
    use crate::testing;

    #[test]
    fn the_terms_of_the_node_decide_and_only_where_they_are_used() {
        let topology = Director::new(testing::cluster(), 1).topology();
        let mut site = topology.site(SiteId(0)).clone();
        let table = LoadTable::new(3, 2);
        let dear = NodeTerms {
            factor: 1.5,
            ..NodeTerms::default()
        };
        table.set_terms(NodeId(0), &dear);
        let snapshot = Arc::new(Stats::new(1, 2, 3).snapshot());
        let look = Look {
            now: testing::now(),
            earlier: Arc::clone(&snapshot),
            snapshot,
            earlier_nodes: Arc::default(),
            earlier_resources: Arc::default(),
            seconds: 5.0,
        };
        let told = |site: &Site, node| reasons(&table, &look, site, NodeId(node)).len();
        assert_eq!((told(&site, 0), told(&site, 1), told(&site, 2)), (1, 0, 0));
        site.policy.kind = PolicyKind::RoundRobin;
        assert_eq!(told(&site, 0), 0);
    }

    #[test]
    fn a_learned_cost_is_told_once_it_tells_nodes_apart() {
        for factor in [1.0, 1.04, 0.96, f64::NAN] {
            assert_eq!(cost_reason(factor), None, "{factor}");
        }
        let dear = cost_reason(1.418).unwrap();
        assert!(
            dear.contains("cost 1.42 times here") && dear.contains("it gets no requests"),
            "{dear}"
        );
        let cheap = cost_reason(0.7).unwrap();
        assert!(cheap.ends_with("it gets their requests"), "{cheap}");
    }

    #[test]
    fn a_share_that_chance_explains_is_put_down_to_it() {
        let share = |given, requests| Share {
            given,
            even: 1.0 / 3.0,
            requests,
        };
        let few = chance_reason(share(0.5, 20.0)).unwrap();
        assert!(
            few.starts_with("by its capacity it would have 33 %") && few.contains("of 20 requests"),
            "{few}"
        );
        assert!(chance_reason(share(0.0, 10.0)).is_some());
        // As it should be; more than chance; too many requests for chance.
        for (given, requests) in [(0.36, 20.0), (0.9, 20.0), (0.5, 2000.0), (0.0, 0.0)] {
            assert_eq!(
                chance_reason(share(given, requests)),
                None,
                "{given} {requests}"
            );
        }
    }
}
