//! Service checks on the node: a node is out while its own agent says that a service of it fails.
//!
//! ```text
//! a record that is fresh and says of service checks    out = one of them fails
//! none                                                 as before; after a minute without any, in
//! ```
//!
//! Inputs: each new record that is fresh when it is seen (`record`, fields `services` and `services_checked`). The agent has
//! counted `rise` and `fall` by then (`check`), so one record is enough.
//!
//! A record that is stale, or of an agent that has just begun and knows no result yet, is no evidence: neither against a node
//! nor for it. So an agent that restarts beside a service that is down does not bring its node back.
//!
//! Ejection fails open as for checks: a node whose services fail counts as one that answers with errors.
//!
//! Failure case: an agent asks over its own machine's loopback, and may find well what clients cannot reach; requests and the
//! site's own checks show that. One whose services fail and whose agent then ends is in again after a minute.
//! Source: SLBL-ARPN §5, which watches web, file and name services of a server beside its load.

use std::time::Duration;

use super::{Director, Event};
use crate::ids::CheckSet;
use crate::load::{LoadTable, NodeLoad};
use crate::time::Timestamp;
use crate::topology::{Cause, Ejection, NodeId};

/// Time between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// After so long without a record that says of service checks nothing is known.
const KNOWN_FOR: Duration = Duration::from_secs(60);

/// What is remembered of one node.
#[derive(Debug, Default)]
pub(super) struct NodeServices {
    /// When the last record was made that was seen.
    seen: Timestamp,
    /// When the last one was seen that says of service checks.
    said: Timestamp,
    failing: CheckSet,
    /// It is out since then, if any fails.
    since: Timestamp,
}

impl NodeServices {
    /// Looks at the node's newest record, if it is a new one. Whether others fail than before.
    fn on_look(&mut self, table: &LoadTable, node: NodeId, now: Timestamp) -> bool {
        let observed_at = table.brief(node).observed_at;
        let load = (observed_at != self.seen).then(|| table.last(node));
        self.seen = observed_at;
        self.on_load(load.filter(|load| load.is_fresh(now)).as_ref(), now)
    }

    fn on_load(&mut self, load: Option<&NodeLoad>, now: Timestamp) -> bool {
        let failing = match load.and_then(|load| load.services) {
            Some(services) => {
                self.said = now;
                services.failing
            }
            None if now.since(self.said) > KNOWN_FOR => CheckSet::default(),
            None => self.failing,
        };
        self.set(failing, now)
    }

    /// Whether others fail than before.
    fn set(&mut self, failing: CheckSet, now: Timestamp) -> bool {
        if self.failing.is_empty() && !failing.is_empty() {
            self.since = now;
        }
        std::mem::replace(&mut self.failing, failing) != failing
    }

    /// Those that have it out.
    pub(super) fn failing(&self) -> CheckSet {
        self.failing
    }

    /// Since when it is out by them.
    pub(super) fn ejection(&self) -> Option<Ejection> {
        (!self.failing.is_empty()).then_some(Ejection {
            cause: Cause::Check,
            since: self.since,
            until: self.since,
        })
    }
}

impl Director {
    /// Looks at records, and takes out nodes whose agents say that a service of theirs fails.
    pub(super) fn tick_services(&mut self, table: &LoadTable, now: Timestamp) {
        if now.since(self.services_seen) < LOOK_EVERY {
            return;
        }
        self.services_seen = now;
        for place in 0..self.services.len() {
            let node = NodeId(place as u32);
            if !self.topology.is_member(node) {
                continue;
            }
            let site = self.topology.node(node).site;
            let ignores = self.known[site.index()].spec.health.ignores_services;
            let services = &mut self.services[place];
            let changed = match ignores {
                true => services.set(CheckSet::default(), now),
                false => services.on_look(table, node, now),
            };
            if changed {
                let failing = services.failing();
                let event = match failing.is_empty() {
                    true => Event::ServicesPassed(node),
                    false => Event::ServicesFailed(node, failing),
                };
                self.set_health(node, event, now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Services;
    use crate::policy::{PolicyConfig, PolicyKind};
    use crate::testing::cluster;
    use crate::topology::{ClusterSpec, SiteId};

    const SITE: SiteId = SiteId(0);

    struct World {
        director: Director,
        table: LoadTable,
        now: Timestamp,
    }

    fn world(change: impl FnOnce(&mut ClusterSpec)) -> World {
        let mut spec = cluster(3, PolicyConfig::new(PolicyKind::RoundRobin));
        change(&mut spec);
        World {
            director: Director::new(spec, 1),
            table: LoadTable::new(3, 1),
            now: Timestamp::from_millis(1000),
        }
    }

    impl World {
        /// A record of a node, of which these services fail, or that says nothing of services; and a look.
        fn record(&mut self, node: u32, failing: Option<u64>) {
            let services = failing.map(|failing| Services {
                checked: CheckSet::from_bits(0b111),
                failing: CheckSet::from_bits(failing),
            });
            self.pass(10);
            let load = NodeLoad {
                observed_at: self.now,
                services,
                ..NodeLoad::UNKNOWN
            };
            self.table.store(NodeId(node), &load);
            self.pass(10);
        }

        fn pass(&mut self, millis: u64) {
            self.now = self.now + Duration::from_millis(millis);
            self.director.handle_tick(&self.table, self.now);
        }

        fn candidates(&self) -> Vec<u32> {
            let topology = self.director.topology();
            let candidates = &topology.site(SITE).candidates;
            candidates.iter().map(|node| node.0).collect()
        }

        fn events(&mut self) -> Vec<Event> {
            std::iter::from_fn(|| self.director.poll_event()).collect()
        }
    }

    #[test]
    fn a_node_is_out_while_its_record_says_that_a_service_fails() {
        let mut world = world(|_| {});
        world.record(1, Some(0));
        assert_eq!(world.candidates(), [0, 1, 2]);
        world.record(1, Some(0b100));
        assert_eq!(world.candidates(), [0, 2]);
        let node = world.director.topology().node(NodeId(1)).clone();
        assert!(node.fails_check() && node.failing_checks.is_empty());
        assert_eq!(node.ejection.unwrap().cause, Cause::Check);
        world.record(1, Some(0b001));
        let (first, second) = (CheckSet::from_bits(0b100), CheckSet::from_bits(0b001));
        let failed = |set| Event::ServicesFailed(NodeId(1), set);
        assert_eq!(world.events(), [failed(first), failed(second)]);
        assert_eq!(world.director.ejections(), 1, "it was out already");
        world.record(1, Some(0));
        assert_eq!(world.candidates(), [0, 1, 2]);
        assert_eq!(world.events(), [Event::ServicesPassed(NodeId(1))]);
    }

    #[test]
    fn what_says_nothing_is_no_evidence_and_after_a_minute_nothing_is_known() {
        let mut world = world(|_| {});
        world.record(1, Some(0b1));
        // The agent begins anew, and has no result yet.
        world.record(1, None);
        assert_eq!(world.candidates(), [0, 2]);
        // It ends.
        world.pass(59_000);
        assert_eq!(world.candidates(), [0, 2]);
        world.pass(2000);
        assert_eq!(world.candidates(), [0, 1, 2]);
        // A record that is old when it is seen.
        let old = NodeLoad {
            observed_at: world.now,
            services: Some(Services {
                checked: CheckSet::from_bits(1),
                failing: CheckSet::from_bits(1),
            }),
            ..NodeLoad::UNKNOWN
        };
        world.table.store(NodeId(1), &old);
        world.pass(5000);
        assert_eq!(world.candidates(), [0, 1, 2]);
    }

    #[test]
    fn where_all_fail_the_site_fails_open() {
        let mut world = world(|_| {});
        for node in 0..3 {
            world.record(node, Some(1));
        }
        assert_eq!(world.candidates(), [0, 1, 2]);
        assert!(world.director.topology().site(SITE).fail_open);
        world.record(2, Some(0));
        assert_eq!(world.candidates(), [2]);
    }

    #[test]
    fn a_site_may_ignore_them() {
        let mut world = world(|spec| spec.sites[0].health.ignores_services = true);
        world.record(1, Some(1));
        assert_eq!(world.candidates(), [0, 1, 2]);
        assert_eq!(world.events(), []);
    }
}
