//! The thread that connects nodes over RDMA for the reader, and says to them that they are read.
//!
//! ```text
//!  reader's thread ── Connect, Drop ──> this thread ── offer, each 500 ms again ──> node
//!         ^                                 │
//!         └──── Stands(link), No, Ended ────┘
//! ```
//!
//! Queue pairs take milliseconds to make and to destroy, and a node's answer takes its time: nothing for a thread at
//! real-time priority. This one has normal priority, is there only if a node is to be read by RDMA, and sleeps while
//! there is nothing to do.
//!
//! Queue pairs of one address share a device and a queue of completions, which has room for [`LANE_PAIRS`]. A device on
//! which a connection has failed is opened anew for the next one: its address may have moved, or its card be gone.
//!
//! Failure case: nodes that do not answer hold up the others' connections by 15 ms each. Reads go over UDP meanwhile.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use tidegate_core::time::Timestamp;
use tidegate_core::topology::NodeId;

use super::ReaderState;
use crate::clock;
use crate::rdma::{Completions, Link, RENEW_EVERY, RdmaDevice, Standing};
use crate::realtime;
use crate::region::{AGE_MAX, RegionError};
use crate::udp::{Key, Offered, UdpOptions, UdpRegion};

/// Queue pairs that share a queue of completions.
const LANE_PAIRS: usize = 1024;
/// How long a node's grant is waited for: its kernel makes a queue pair for it, which takes milliseconds on a busy machine.
/// All tries end before an offer is too old to be taken.
const GRANT: UdpOptions = UdpOptions {
    wait: Duration::from_millis(40),
    tries: 4,
};
const _: () = assert!(GRANT.wait.as_millis() * (GRANT.tries as u128) < AGE_MAX.as_millis());
/// Queue pairs of one reader: what a card keeps at hand, and more.
const PAIRS_MAX: usize = 8 * LANE_PAIRS;

/// What the reader's thread asks for.
pub(super) enum Order {
    /// Connect a node; the ticket comes back with what becomes of it.
    Connect {
        ticket: u64,
        node: NodeId,
        address: SocketAddr,
        /// That of the node's reads: it counts front-ends by these.
        initiator: u64,
        key: Key,
    },
    /// Destroy a link, which is used no more, and why.
    Drop {
        ticket: u64,
        node: NodeId,
        link: Box<Link>,
        why: Option<String>,
    },
}

/// What has become of it.
pub(super) enum Connected {
    Stands(Box<Link>),
    /// Not now; or, as far as this host goes, not at all.
    No {
        for_good: bool,
    },
    /// The node does not serve the link any more.
    Ended,
}

/// The reader's end.
pub(super) struct Connector {
    orders: Sender<Order>,
    outcomes: Receiver<(u64, Connected)>,
    thread: Option<JoinHandle<()>>,
}

impl Connector {
    /// Starts the thread. `wait`: how long a node's card may take. To be called by the thread that uses the links: the kernel
    /// takes requests for a device from threads with the credentials of the one that has opened it, to the very object. A
    /// thread shares those of its parent until either changes its own.
    pub(super) fn spawn(shared: &Arc<ReaderState>, wait: Duration) -> Result<Self, RegionError> {
        let (orders, ordered) = channel();
        let (tell, outcomes) = channel();
        let shared = Arc::clone(shared);
        let thread = std::thread::Builder::new()
            .name("tidegate-rdma".to_owned())
            .spawn(move || {
                // It was started by a thread at real-time priority.
                if realtime::try_normal().is_ok() {
                    Connecting::new(shared, tell, wait).run(&ordered);
                }
            })
            .map_err(RegionError::io("start the thread that connects over RDMA"))?;
        Ok(Self {
            orders,
            outcomes,
            thread: Some(thread),
        })
    }

    /// Asks for something; whether the thread is there to do it.
    pub(super) fn order(&self, order: Order) -> bool {
        self.orders.send(order).is_ok()
    }

    /// What has become of the next order.
    pub(super) fn outcome(&self) -> Option<(u64, Connected)> {
        self.outcomes.try_recv().ok()
    }
}

impl Drop for Connector {
    fn drop(&mut self) {
        // Without a sender the thread ends.
        let (closed, _) = channel();
        self.orders = closed;
        if let Some(thread) = self.thread.take() {
            // A panic was printed by the thread itself; there is nothing to add.
            thread.join().ok();
        }
    }
}

/// A device at an address, and where completions of its queue pairs come in.
struct Lane {
    address: IpAddr,
    completions: Arc<Completions>,
}

/// A link that the reader uses, as its node must be reminded of it.
struct Used {
    wire: UdpRegion,
    offer: [u8; crate::udp::wire::CONNECT_BYTES],
    standing: Standing,
    renewed_at: Timestamp,
    renewal: Option<Offered>,
}

/// What the thread owns.
struct Connecting {
    shared: Arc<ReaderState>,
    tell: Sender<(u64, Connected)>,
    wait: Duration,
    lanes: Vec<Lane>,
    used: HashMap<u64, Used>,
    /// Whether a device was ever there: then one that is missing may come back.
    had_device: bool,
}

impl Connecting {
    fn new(shared: Arc<ReaderState>, tell: Sender<(u64, Connected)>, wait: Duration) -> Self {
        Self {
            shared,
            tell,
            wait,
            lanes: Vec::new(),
            used: HashMap::new(),
            had_device: false,
        }
    }

    fn run(mut self, orders: &Receiver<Order>) {
        loop {
            let next = self.used.values().map(|it| it.renewed_at).min();
            let order = match next {
                None => orders.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(oldest) => {
                    orders.recv_timeout(RENEW_EVERY.saturating_sub(clock::now().since(oldest)))
                }
            };
            match order {
                Ok(Order::Connect {
                    ticket,
                    node,
                    address,
                    initiator,
                    key,
                }) => self.connect(ticket, node, address, initiator, key),
                Ok(Order::Drop {
                    ticket,
                    node,
                    link,
                    why,
                }) => {
                    self.used.remove(&ticket);
                    if why.is_some() {
                        self.shared.nodes[node.index()].rdma_lacks(why.as_deref());
                    }
                    drop(link);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.renew();
        }
    }

    fn connect(
        &mut self,
        ticket: u64,
        node: NodeId,
        address: SocketAddr,
        initiator: u64,
        key: Key,
    ) {
        let outcome = match self.try_connect(ticket, address, initiator, key) {
            Ok(link) => {
                self.shared.nodes[node.index()].rdma_lacks(None);
                Connected::Stands(Box::new(link))
            }
            Err(error) => {
                let for_good = matches!(error, RegionError::NoDevice(_)) && !self.had_device;
                self.shared.nodes[node.index()].rdma_lacks(Some(&error.to_string()));
                Connected::No { for_good }
            }
        };
        // A reader that ends takes nothing.
        self.tell.send((ticket, outcome)).ok();
    }

    fn try_connect(
        &mut self,
        ticket: u64,
        address: SocketAddr,
        initiator: u64,
        key: Key,
    ) -> Result<Link, RegionError> {
        if self.used.len() >= PAIRS_MAX {
            return Err(RegionError::NoDevice(format!(
                "{PAIRS_MAX} nodes are read over RDMA already"
            )));
        }
        let mut wire = UdpRegion::connect(address, key, GRANT)?.with_initiator(initiator);
        let own = wire.local_address()?;
        let completions = self.lane(own)?;
        let connected = Link::connect(&completions, &mut wire, self.wait);
        let (link, _) = connected.inspect_err(|error| {
            // What the node says or leaves unsaid is no fault of the device.
            if matches!(error, RegionError::Io { .. }) {
                self.lanes.retain(|lane| lane.address != own);
            }
        })?;
        self.used.insert(
            ticket,
            Used {
                wire,
                offer: *link.offer(),
                standing: link.standing(),
                renewed_at: clock::now(),
                renewal: None,
            },
        );
        Ok(link)
    }

    /// Where the completions of one more queue pair at this address come in.
    fn lane(&mut self, address: IpAddr) -> Result<Arc<Completions>, RegionError> {
        // Each queue pair holds on to it, and so do the reader's thread and this one.
        let has_room = |lane: &&Lane| {
            Arc::strong_count(&lane.completions) <= LANE_PAIRS && lane.address == address
        };
        if let Some(lane) = self.lanes.iter().find(has_room) {
            return Ok(Arc::clone(&lane.completions));
        }
        let device = RdmaDevice::open(Some(address))?;
        self.had_device = true;
        let completions = Arc::new(Completions::new(&device, LANE_PAIRS)?);
        self.lanes.push(Lane {
            address,
            completions: Arc::clone(&completions),
        });
        Ok(completions)
    }

    /// Says to nodes that they are read, where that is due, and looks at what they said to that before.
    fn renew(&mut self) {
        let now = clock::now();
        let mut ended = Vec::new();
        for (ticket, used) in &mut self.used {
            if now.since(used.renewed_at) < RENEW_EVERY {
                continue;
            }
            if let Some(offered) = used.renewal.take()
                && let Some(granted) = used.wire.renewed(&offered)
                && !used.standing.is_granted(&granted).unwrap_or(false)
            {
                ended.push(*ticket);
                continue;
            }
            used.renewed_at = now;
            // If it cannot be sent, the next one says the same.
            used.renewal = used.wire.renew_rdma(&used.offer).ok();
        }
        for ticket in ended {
            self.used.remove(&ticket);
            self.tell.send((ticket, Connected::Ended)).ok();
        }
    }
}
