//! What the tests of several modules need.

use crate::admission::AdmissionConfig;
use crate::policy::PolicyConfig;
use crate::topology::{Capacity, ClusterSpec, NodeSpec, SiteId, SiteSpec};

/// One site with nodes n0, n1, ….
pub(crate) fn cluster(nodes: u32, policy: PolicyConfig) -> ClusterSpec {
    ClusterSpec {
        sites: vec![SiteSpec {
            name: "site".into(),
            hosts: vec!["*".into()],
            paths: Vec::new(),
            policy,
            admission: AdmissionConfig::default(),
            health: Default::default(),
        }],
        nodes: (0..nodes)
            .map(|node| NodeSpec {
                name: format!("n{node}"),
                address: ([127, 0, 0, 1], 8000).into(),
                site: SiteId(0),
                weight: 1.0,
                capacity: Capacity::default(),
            })
            .collect(),
        groups: Vec::new(),
        front_ends: 1,
    }
}
