//! What a worker knows of the cluster: topology and routes as the control plane last published them, and the picker,
//! which decides by them.

use std::cell::RefCell;
use std::sync::Arc;

use arc_swap::{ArcSwap, Cache};
use tidegate_core::admission::Kind;
use tidegate_core::picker::Picker;
use tidegate_core::route::Routes;
use tidegate_core::topology::{NodeId, SiteId, Topology};

use crate::record::stats::WorkerStats;

/// What is published, as the cache of a worker has it.
type Published<T> = RefCell<Cache<Arc<ArcSwap<T>>, Arc<T>>>;

/// See the module.
pub(crate) struct Cluster {
    topology: Published<Topology>,
    routes: Published<Routes>,
    pub(crate) picker: RefCell<Picker>,
    stats: Arc<WorkerStats>,
}

impl Cluster {
    pub(crate) fn new(
        topology: Arc<ArcSwap<Topology>>,
        routes: Arc<ArcSwap<Routes>>,
        picker: Picker,
        stats: Arc<WorkerStats>,
    ) -> Self {
        stats.on_topology(picker.topology());
        Self {
            stats,
            topology: RefCell::new(Cache::new(topology)),
            routes: RefCell::new(Cache::new(routes)),
            picker: RefCell::new(picker),
        }
    }

    /// Takes over a newer topology.
    pub(crate) fn refresh(&self) {
        let mut cache = self.topology.borrow_mut();
        let latest = cache.load();
        let mut picker = self.picker.borrow_mut();
        if !Arc::ptr_eq(latest, picker.topology()) {
            picker.handle_topology(Arc::clone(latest));
            self.stats.on_topology(latest);
        }
    }

    /// The site that serves this host and path. Routes may be newer than the topology; a site
    /// that the topology does not know yet is none.
    pub(crate) fn site(&self, host: &str, path: &str) -> Option<SiteId> {
        let site = self.routes.borrow_mut().load().site(host, path)?;
        let known = self.picker.borrow().topology().sites.len();
        (site.index() < known).then_some(site)
    }

    /// What a request is, as far as its costs go.
    pub(crate) fn kind(&self, site: SiteId, method: &str, target: &str) -> Kind {
        self.picker.borrow().kind_of(site, method, target)
    }

    /// Whether the site has candidates besides these.
    pub(crate) fn has_others(&self, site: SiteId, tried: &[NodeId]) -> bool {
        let picker = self.picker.borrow();
        let site = picker.topology().sites.get(site.index());
        site.is_some_and(|site| site.candidates.iter().any(|node| !tried.contains(node)))
    }
}
