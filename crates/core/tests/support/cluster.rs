//! The simplest cluster.

use tidegate_core::admission::AdmissionConfig;
use tidegate_core::policy::PolicyConfig;
use tidegate_core::topology::{Capacity, ClusterSpec, NodeSpec, SiteId, SiteSpec};

pub(crate) const SITE: SiteId = SiteId(0);

/// One site with nodes n0, n1, … of these weights.
pub(crate) fn cluster(weights: &[f32], policy: PolicyConfig, front_ends: u32) -> ClusterSpec {
    ClusterSpec {
        sites: vec![SiteSpec {
            name: "site".into(),
            hosts: vec!["*".into()],
            paths: Vec::new(),
            policy,
            admission: AdmissionConfig::default(),
            health: Default::default(),
        }],
        nodes: weights
            .iter()
            .enumerate()
            .map(|(node, weight)| NodeSpec {
                name: format!("n{node}"),
                address: ([127, 0, 0, 1], 8000).into(),
                site: SITE,
                weight: *weight,
                capacity: Capacity::default(),
            })
            .collect(),
        groups: Vec::new(),
        front_ends,
    }
}
