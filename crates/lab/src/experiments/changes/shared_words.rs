//! The words that front-ends share, as they are in the regions: read beside the front-ends, and never changed.
//!
//! They are asked for by adding 0: what reads a record counts as a front-end. Failure case: words that change so often that
//! two readings are never alike; then there are none.

use std::time::Duration;

use tidegate_core::moves::words::{ASSIGNMENT_WORD, Assignment, LockState, SiteLock, SiteNumber};
use tidegate_remote::Region as _;
use tidegate_remote::udp::{UdpOptions, UdpRegion};

use crate::cluster::{Cluster, LoadAt};

use super::super::ExperimentError;
use super::orders::{EACH, SITES};

/// All share a CPU with the front-ends.
const OPTIONS: UdpOptions = UdpOptions {
    wait: Duration::from_millis(100),
    tries: 5,
};
/// Readings of which two must be alike.
const READINGS_MAX: usize = 20;

/// See the module.
#[derive(Debug)]
pub(super) struct SharedWords {
    /// By number: names in their order.
    nodes: Vec<(String, UdpRegion)>,
    /// Names by number.
    sites: Vec<&'static str>,
    home: UdpRegion,
}

impl SharedWords {
    /// Those of all nodes, by this agent over UDP; the home is the first node's region.
    pub(super) fn of(cluster: &Cluster, agent: &str) -> Result<Self, ExperimentError> {
        let connect = |node: usize| {
            let mut agents = cluster.nodes()[node].agents.iter();
            let found = agents.find(|it| it.name == agent);
            let Some(LoadAt::Udp { address, key }) = found.map(|it| &it.load) else {
                return Err("it is not asked over the network".to_owned());
            };
            let region = UdpRegion::connect(*address, key.read()?, OPTIONS);
            region.map_err(|error| error.to_string())
        };
        let connect_all = || {
            let named = |node: usize| {
                let name = format!("{}-{}", SITES[node / EACH], cluster.nodes()[node].name);
                connect(node).map(|region| (name, region))
            };
            let nodes: Result<Vec<_>, String> = (0..SITES.len() * EACH).map(named).collect();
            Ok((nodes?, connect(0)?))
        };
        let connected = cluster.front().inside(connect_all)?;
        let unfit = |why: String| ExperimentError::Unfit(format!("agent {agent}: {why}"));
        let (mut nodes, home) = connected.map_err(unfit)?;
        nodes.sort_by(|one, other| one.0.cmp(&other.0));
        let mut sites = SITES.to_vec();
        sites.sort_unstable();
        Ok(Self { nodes, sites, home })
    }

    /// Names of nodes by number.
    pub(super) fn nodes(&self) -> Vec<String> {
        self.nodes.iter().map(|(name, _)| name.clone()).collect()
    }

    /// Names of sites by number.
    pub(super) fn sites(&self) -> &[&'static str] {
        &self.sites
    }

    /// All nodes' words at one moment; none if one does not answer, has none yet, or they do not stand still.
    pub(super) fn assignments(&mut self) -> Option<Vec<Assignment>> {
        let mut before = self.read()?;
        for _ in 0..READINGS_MAX {
            let now = self.read()?;
            if now == before {
                let words = now.into_iter().map(Assignment::unpack);
                return words.map(|it| it.ok().flatten()).collect();
            }
            before = now;
        }
        None
    }

    fn read(&mut self) -> Option<Vec<u64>> {
        let nodes = self.nodes.iter_mut();
        let words = nodes.map(|(_, region)| region.fetch_and_add(ASSIGNMENT_WORD, 0).ok());
        words.collect()
    }

    /// How many sites' locks are taken; none if the home does not answer.
    pub(super) fn taken_locks(&mut self) -> Option<usize> {
        let numbers = 0..self.sites.len();
        let locks = numbers.map(|site| {
            let word = SiteNumber(site as u8).lock_word();
            let lock = self.home.fetch_and_add(word, 0).ok()?;
            SiteLock::unpack(lock).ok().flatten()
        });
        let locks: Option<Vec<_>> = locks.collect();
        let is_taken = |lock: &&SiteLock| lock.state != LockState::Idle;
        locks.map(|locks| locks.iter().filter(is_taken).count())
    }
}
