//! What becomes of all that is known when sites, nodes and resources come, go and move.
//!
//! ```text
//! Members ──> Requests: names of sites            ──> Policy, experiments: classes that are called otherwise
//!         ──> WatchedAll: members, resources      ──> Memory keeps, Discovery forgets what is watched no more
//!         ──> Policy: throttles of what has left  ──> released
//! ```

use std::collections::BTreeSet;
use std::sync::Arc;

use tidegate_core::throttle::ClassPattern;
use tidegate_core::time::Timestamp;
use tidegate_core::topology::Topology;

use super::Running;

impl Running {
    /// Takes in what workers have said, and what has become of the cluster since. In this order: an event's site is in the
    /// cluster by then.
    pub(super) fn hear(&mut self, now: Timestamp) {
        self.requests
            .drain(&mut *self.events, &mut self.discovery, now);
        self.follow(now);
        self.requests.take_early(&mut self.discovery);
    }

    /// Takes over a change of the cluster, if there is one.
    pub(super) fn follow(&mut self, now: Timestamp) {
        if self.cluster.version() == self.followed {
            return;
        }
        let members = self.cluster.members();
        self.followed = members.version();
        let sites = members.topology.sites.iter();
        let sites = sites.map(|site| (site.name.as_str(), !site.removed));
        if let Some(site) = self.requests.follow(sites) {
            self.name_site(&site, now);
        }
        let names = self.requests.names();
        let mut gone = Vec::new();
        let (memory, discovery) = (&mut self.memory, &mut self.discovery);
        self.watched.follow(&members, |watched| {
            if let Some(memory) = memory {
                memory.leave(&watched, &names, discovery);
            }
            discovery.forget_resource(watched.id);
            gone.push(watched.name);
        });
        self.break_off(&gone, now);
        self.let_go(&members.topology, &gone, now);
        self.publish(self.found());
    }

    /// Takes over which other front-ends there are, if that has changed.
    pub(super) fn follow_peers(&mut self) {
        let wanted = self.peers.load_full();
        if !Arc::ptr_eq(&wanted, &self.followed_peers) {
            self.requests.follow_peers(&wanted);
            self.followed_peers = wanted;
        }
    }

    /// Classes of the site that was alone are called by its name from now on.
    fn name_site(&mut self, site: &str, now: Timestamp) {
        if let Some(policy) = &mut self.policy {
            policy.name_site(site, &*self.throttles, now);
        }
        let before = std::mem::take(&mut self.experimented_at).into_iter();
        let renamed = before.map(|((class, resource), at)| {
            let class = match self.names.is_configured(&class) {
                true => class,
                false => format!("{site} {class}"),
            };
            ((class, resource), at)
        });
        self.experimented_at = renamed.collect();
    }

    /// Releases throttles of sites and for resources that have left.
    fn let_go(&mut self, topology: &Topology, resources: &[String], now: Timestamp) {
        let Some(policy) = &mut self.policy else {
            return;
        };
        let removed = topology.sites.iter().filter(|site| site.removed);
        let removed: BTreeSet<_> = removed.map(|site| site.name.as_str()).collect();
        let is_gone = |pattern: &ClassPattern| {
            let site = pattern.site();
            site.is_some_and(|site| removed.contains(site))
        };
        for it in policy.leave(&is_gone, resources, &*self.throttles, now) {
            self.log.event(it.event, &it.text);
        }
    }

    /// Ends an experiment on a resource that has left, or on a class whose site has.
    fn break_off(&mut self, resources: &[String], now: Timestamp) {
        let Some(experiment) = &mut self.experiment else {
            return;
        };
        let is_served = self.requests.is_served(experiment.class());
        let report = experiment.report(now);
        if is_served && !resources.contains(&report.resource) {
            return;
        }
        let report = experiment.stop(now);
        self.log.event("experiment", &report.text);
        self.last_experiment = Some(report);
        self.experiment = None;
    }
}
