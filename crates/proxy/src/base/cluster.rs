//! What a worker knows of the cluster: the topology as the control plane last published it, and the picker,
//! which decides by it.

use std::cell::RefCell;
use std::sync::Arc;

use arc_swap::{ArcSwap, Cache};
use tidegate_core::admission::Kind;
use tidegate_core::picker::Picker;
use tidegate_core::topology::{SiteId, Topology};

use crate::record::stats::WorkerStats;

/// See the module.
pub(crate) struct Cluster {
    /// What is published.
    topology: RefCell<Cache<Arc<ArcSwap<Topology>>, Arc<Topology>>>,
    pub(crate) picker: RefCell<Picker>,
    stats: Arc<WorkerStats>,
}

impl Cluster {
    pub(crate) fn new(
        topology: Arc<ArcSwap<Topology>>,
        picker: Picker,
        stats: Arc<WorkerStats>,
    ) -> Self {
        stats.on_topology(picker.topology());
        Self {
            stats,
            topology: RefCell::new(Cache::new(topology)),
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

    /// The site that serves this host and path.
    pub(crate) fn site(&self, host: &str, path: &str) -> Option<SiteId> {
        self.picker.borrow().topology().routes.site(host, path)
    }

    /// The site of this name.
    pub(crate) fn site_named(&self, name: &str) -> Option<SiteId> {
        let picker = self.picker.borrow();
        let mut sites = picker.topology().sites.iter();
        let index = sites.position(|site| &*site.name == name)?;
        Some(SiteId(index as u32))
    }

    /// What a request is, as far as its costs go.
    pub(crate) fn kind(&self, site: SiteId, method: &str, target: &str) -> Kind {
        self.picker.borrow().kind_of(site, method, target)
    }
}
