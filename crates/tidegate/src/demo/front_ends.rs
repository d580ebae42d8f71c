//! The demo's front-ends: each the same as `tidegate run` makes from a file, with its own
//! table, reader, director and one worker. They share nothing but the nodes.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::policy::PolicyKind;
use tidegate_core::topology::ClusterSpec;
use tidegate_culprits::names::ClassNames;
use tidegate_proxy::{ForwardedConfig, HistogramSnapshot, ListenerConfig, LogConfig, Ports};
use tidegate_sim::model::Stream;

use super::cluster::{Cluster, FRONT_ENDS};
use super::machines::Machines;
use crate::admin::plane::Plane;
use crate::config::file::{LimitsFile, defaults};
use crate::config::setting::At;
use crate::config::values::Auto;
use crate::config::{Culprits, FrontEnd, NodeRead, ReadPace, ReadPlan};
use crate::failure::Failure;
use crate::output::Output;
use crate::run::{Running, Start};

/// Time between two reads of a node's record, and for one read.
const INTERVAL: Duration = Duration::from_millis(1);
const TIMEOUT: Duration = Duration::from_millis(5);

/// All front-ends under one policy. Dropping them ends them.
pub(super) struct FrontEnds {
    running: Vec<Running>,
}

impl FrontEnds {
    /// Starts them; needs the runtime of the control thread.
    pub(super) fn start(
        cluster: &Cluster,
        policy: PolicyKind,
        machines: &Machines,
        seed: u64,
    ) -> Result<Self, Failure> {
        let mut running = Vec::new();
        for index in 0..FRONT_ENDS {
            let seed = Stream::Picker(index).prng(seed).bits();
            let spec = cluster.spec(policy, machines.nodes.addresses());
            let front_end = front_end(spec, machines, None, seed);
            // Their events are everyday ones here, six times over.
            running.push(Running::start(front_end, Start::plain(), Output::QUIET)?);
        }
        Ok(Self { running })
    }

    /// Where clients connect.
    pub(super) fn addresses(&self) -> Arc<[SocketAddr]> {
        let addresses = self.running.iter();
        addresses
            .flat_map(|running| running.proxy.addresses().to_vec())
            .collect()
    }

    /// What the live page of the first one looks at.
    pub(super) fn plane(&self) -> Arc<Plane> {
        Arc::clone(&self.running[0].plane)
    }

    /// Age of the load record at each decision so far.
    pub(super) fn load_age(&self) -> HistogramSnapshot {
        let mut all = HistogramSnapshot::default();
        for running in &self.running {
            all.merge(&running.proxy.stats().snapshot().load_age);
        }
        all
    }
}

/// A front-end of this process, as a file would describe it.
pub(super) fn front_end(
    cluster: ClusterSpec,
    machines: &Machines,
    culprits: Option<Culprits>,
    seed: u64,
) -> FrontEnd {
    let regions = machines.regions().cloned();
    FrontEnd {
        reconfigure: None,
        acme: None,
        listeners: vec![ListenerConfig::plain((Ipv4Addr::LOCALHOST, 0).into())],
        cluster,
        reads: regions.map(|path| NodeRead::Shm { path }).collect(),
        resources: Vec::new(),
        sources: Vec::new(),
        usual_read: ReadPlan::NONE,
        interval: INTERVAL,
        pace: ReadPace::default(),
        timeout: TIMEOUT,
        // Readers above everything else would take a small machine from the workers.
        realtime: false,
        limits: LimitsFile {
            workers: At::default_of(Auto::Set(1)),
            ..defaults()
        },
        timeouts: defaults(),
        forwarded: ForwardedConfig::default(),
        node_header: false,
        webhook: None,
        sites: Vec::new(),
        traces: Default::default(),
        log: LogConfig::default(),
        throttles: Vec::new(),
        culprits,
        class_names: ClassNames::default(),
        overrides_file: None,
        ports: Ports::default(),
        open_files: None,
        seed: Some(seed),
    }
}
