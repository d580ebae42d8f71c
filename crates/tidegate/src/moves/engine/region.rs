//! Words in regions: a home's in that of any agent, a node's in its own.
//!
//! ```text
//! read     fetch-and-add of 0         count   fetch-and-add of 1
//! swap     compare-and-swap; of a node's word with the moment of its birth, after which a node refuses it 250 ms later
//! lost     no answer, or the region began anew: nothing is known of what was asked
//! ```
//!
//! Handles have initiator numbers of their own, so that no atomic of admission's is taken for one of these. Keys are
//! those that the node may have; once it has answered to one, none older is asked with.
//!
//! Inputs: where a region is, words, moments. Failure case: words do not outlive the home's agent. Moves stop until a
//! front-end has begun them anew, half a second later.
//! Source: not in Reconfiguration-2004, whose shared state is memory of the load balancer's own host.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use tidegate_core::moves::atomics::{HomeWords, WordAtomic};
use tidegate_core::moves::steps::MoveReply;
use tidegate_core::moves::words::{
    AGENT_WORD, ASSIGNMENT_WORD, CONSTITUTION_WORD, NodeNumber, SITE_LIST_WORD, SITES_MAX,
    SiteNumber,
};
use tidegate_remote::shm::ShmRegion;
use tidegate_remote::udp::{Key, UdpOptions, UdpRegion};
use tidegate_remote::{Refusal, Region, RegionError, clock};

use super::{AgentWords, Home};
use crate::config::NodeRead;

/// How long answers are waited for: twice as long as those of load reads, since a lost one costs a move and not a record.
pub(in crate::moves) const WAITS: UdpOptions = UdpOptions {
    wait: Duration::from_millis(10),
    tries: 3,
};

/// A region that is opened when it is first asked.
pub(super) struct Reachable {
    way: Way,
    open: Option<Box<dyn Region + Send>>,
}

enum Way {
    Shm(PathBuf),
    Udp {
        address: SocketAddr,
        /// The newest first.
        keys: Vec<Key>,
        current: usize,
        /// It has answered to that one.
        is_known: bool,
        options: UdpOptions,
    },
    /// It is not read at all.
    None,
}

impl fmt::Debug for Reachable {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.way {
            Way::Shm(path) => write!(out, "region {}", path.display()),
            Way::Udp { address, .. } => write!(out, "region at {address}"),
            Way::None => write!(out, "no region"),
        }
    }
}

impl Reachable {
    pub(super) fn new(read: &NodeRead, options: UdpOptions) -> Self {
        let way = match read {
            NodeRead::Shm { path } => Way::Shm(path.clone()),
            NodeRead::Udp { address, keys, .. } if !keys.is_empty() => Way::Udp {
                address: *address,
                keys: keys.clone(),
                current: 0,
                is_known: false,
                options,
            },
            NodeRead::Udp { .. }
            | NodeRead::None
            | NodeRead::Reported(_)
            | NodeRead::Responses { .. } => Way::None,
        };
        Self { way, open: None }
    }

    fn region(&mut self) -> Result<&mut (dyn Region + Send + 'static), RegionError> {
        let open: Box<dyn Region + Send> = match (self.open.take(), &self.way) {
            (Some(open), _) => open,
            (None, Way::Shm(path)) => Box::new(ShmRegion::new(path)),
            (
                None,
                Way::Udp {
                    address,
                    keys,
                    current,
                    options,
                    ..
                },
            ) => {
                let key = keys[*current].clone();
                Box::new(UdpRegion::connect(*address, key, *options)?)
            }
            (None, Way::None) => return Err(RegionError::Absent),
        };
        Ok(self.open.insert(open).as_mut())
    }

    /// Does something with the region. What it makes of the key follows from the answer.
    fn with(
        &mut self,
        verb: impl FnOnce(&mut (dyn Region + Send + 'static)) -> Result<u64, RegionError>,
    ) -> Result<u64, RegionError> {
        let done = self.region().and_then(verb);
        let is_unheard = matches!(
            done,
            Err(RegionError::Timeout { .. } | RegionError::WrongKey { .. })
        );
        if let Way::Udp {
            keys,
            current,
            is_known,
            ..
        } = &mut self.way
        {
            match is_unheard {
                false if done.is_ok() => {
                    *is_known = true;
                    keys.truncate(*current + 1);
                }
                true if !*is_known && keys.len() > 1 => {
                    *current = (*current + 1) % keys.len();
                    self.open = None;
                }
                true | false => {}
            }
        }
        done
    }

    fn add(&mut self, word: u32, delta: u64) -> Result<u64, RegionError> {
        self.with(|region| region.fetch_and_add(word, delta))
    }

    fn atomic(&mut self, word: u32, atomic: WordAtomic) -> Result<u64, RegionError> {
        match atomic {
            WordAtomic::Read(_) => self.add(word, 0),
            WordAtomic::Count(_) => self.add(word, 1),
            WordAtomic::Swap {
                expected,
                new,
                born: Some(born),
                ..
            } => self.with(|region| region.compare_and_swap_since(word, expected, new, born)),
            WordAtomic::Swap { expected, new, .. } => {
                self.with(|region| region.compare_and_swap(word, expected, new))
            }
        }
    }
}

/// What became of a verb.
fn reply(done: Result<u64, RegionError>) -> MoveReply {
    match done {
        Ok(held) => MoveReply::Held(held),
        Err(RegionError::Refused(Refusal::TooOld)) => MoveReply::TooOld,
        Err(_) => MoveReply::Lost,
    }
}

/// A home in a region.
#[derive(Debug)]
pub(super) struct RegionHome {
    region: Reachable,
}

impl RegionHome {
    pub(super) fn new(read: &NodeRead, options: UdpOptions) -> Self {
        Self {
            region: Reachable::new(read, options),
        }
    }
}

impl Home for RegionHome {
    fn read(&mut self, sites: usize) -> Result<HomeWords, String> {
        let mut word = |word| {
            let held = self.region.add(word, 0);
            held.map_err(|error| error.to_string())
        };
        let constitution = word(CONSTITUTION_WORD)?;
        let numbers = (0..sites.min(SITES_MAX)).map(|number| SiteNumber(number as u8));
        let sites = numbers.map(|site| Ok((word(site.lock_word())?, word(site.updates_word())?)));
        let sites = sites.collect::<Result<_, String>>()?;
        Ok(HomeWords {
            constitution,
            sites,
            at: clock::now(),
        })
    }

    fn atomic(&mut self, word: u32, atomic: WordAtomic) -> MoveReply {
        reply(self.region.atomic(word, atomic))
    }
}

/// The regions of the nodes that can be moved, by number.
#[derive(Debug, Default)]
pub(in crate::moves) struct NodeRegions {
    regions: BTreeMap<NodeNumber, Reachable>,
}

impl NodeRegions {
    /// That are read so.
    pub(in crate::moves) fn new<'a>(
        reads: impl Iterator<Item = (NodeNumber, &'a NodeRead)>,
        options: UdpOptions,
    ) -> Self {
        let regions = reads.map(|(node, read)| (node, Reachable::new(read, options)));
        Self {
            regions: regions.collect(),
        }
    }

    /// What a node's agent says; none if the node does not answer.
    pub(super) fn agent(&mut self, node: NodeNumber) -> Option<AgentWords> {
        let region = self.regions.get_mut(&node)?;
        Some(AgentWords {
            status: region.add(AGENT_WORD, 0).ok()?,
            sites: region.add(SITE_LIST_WORD, 0).ok()?,
        })
    }

    /// A node's word A, and then what its agent says; none if the node does not answer.
    pub(in crate::moves) fn assignment(&mut self, node: NodeNumber) -> Option<(u64, AgentWords)> {
        let assignment = self.regions.get_mut(&node)?.add(ASSIGNMENT_WORD, 0).ok()?;
        Some((assignment, self.agent(node)?))
    }

    /// Says which sites numbers mean, if the word is still what was read. A next read shows what became of it.
    pub(super) fn set_site_list(&mut self, node: NodeNumber, read: u64, list: u64) {
        if let Some(region) = self.regions.get_mut(&node) {
            region
                .with(|region| region.compare_and_swap(SITE_LIST_WORD, read, list))
                .ok();
        }
    }

    /// Carries an atomic out on a node's assignment. Of a node without a region nothing is known.
    pub(super) fn atomic(&mut self, node: NodeNumber, atomic: WordAtomic) -> MoveReply {
        let region = self.regions.get_mut(&node);
        region.map_or(MoveReply::Lost, |region| {
            reply(region.atomic(ASSIGNMENT_WORD, atomic))
        })
    }
}
