//! A node's queue pairs, made and destroyed on a thread of their own.
//!
//! Both take the system milliseconds, and before a queue pair on Ethernet stands the kernel asks for its peer's hardware
//! address, up to a second where none answers. All other answers of the node would wait for that. So an offer is handed on
//! here, and waited for no longer than [`PROMPT`]; a copy of the offer, which comes 40 ms later, finds what has become of it.
//!
//! The thread has real-time priority where the responder has: a loaded node would take up no offer in time else. So after
//! each it rests for as long as that took: a captured front-end that offers without end has half of a CPU at most.
//!
//! Failure case: so many offers that are hard to take up that [`PENDING_MAX`] are under way. Others are refused meanwhile, and
//! come again after a second.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::queue::{Completions, Endpoint, PeerMay, QueuePair};
use crate::clock;
use crate::memory::random;
use crate::privilege::NONE;
use crate::realtime;
use crate::region::RegionError;
use crate::udp::wire::Status;

/// How long the first copy of an offer waits.
const PROMPT: Duration = Duration::from_millis(1);
/// Offers under way.
const PENDING_MAX: usize = 16;
/// Longest rest after one: what takes longer has waited for the network, not worked.
const REST_MAX: Duration = Duration::from_millis(10);

/// Whether a queue pair has met its peer: this node's end of it.
type Met = Result<Endpoint, Status>;

enum Order {
    Make {
        id: u64,
        peer: Endpoint,
        done: Sender<Met>,
    },
    Destroy(u64),
}

/// Why the last offer could not be taken up, until someone looks.
#[derive(Clone, Debug, Default)]
pub struct RdmaRefusals(Arc<Mutex<Option<String>>>);

impl RdmaRefusals {
    /// Takes the last one's reason.
    pub fn take(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn note(&self, why: &RegionError) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *last = Some(why.to_string());
    }
}

/// Makes queue pairs. Those that still stand are destroyed when it is dropped.
pub(super) struct Maker {
    orders: Option<Sender<Order>>,
    thread: Option<JoinHandle<()>>,
    ends: Arc<AtomicBool>,
    pending: Arc<AtomicUsize>,
    last_id: u64,
}

impl Maker {
    /// `realtime`: whether to ask for real-time priority, without which a loaded node makes none in time.
    pub(super) fn start(
        completions: Arc<Completions>,
        may: PeerMay,
        realtime: bool,
        refusals: RdmaRefusals,
    ) -> Result<Self, RegionError> {
        let (orders, taken) = channel();
        let (ends, pending) = (Arc::default(), Arc::default());
        let mut worker = Worker {
            completions,
            may,
            refusals,
            ends: Arc::clone(&ends),
            pending: Arc::clone(&pending),
            pairs: HashMap::new(),
        };
        let run = move || {
            // Its work is the same without it.
            realtime::ask_and_settle(realtime, NONE).ok();
            worker.run(&taken);
        };
        let thread = std::thread::Builder::new()
            .name("tidegate-connect".into())
            .spawn(run)
            .map_err(RegionError::io("start a thread"))?;
        Ok(Self {
            orders: Some(orders),
            thread: Some(thread),
            ends,
            pending,
            last_id: 0,
        })
    }

    /// Begins one that answers this peer; nothing if too many are under way.
    pub(super) fn make(&mut self, peer: Endpoint) -> Option<Made> {
        let orders = self.orders.as_ref()?.clone();
        let before = self.pending.load(Ordering::Relaxed);
        if before >= PENDING_MAX {
            return None;
        }
        self.pending.fetch_add(1, Ordering::Relaxed);
        self.last_id += 1;
        let (id, (done, outcome)) = (self.last_id, channel());
        orders.send(Order::Make { id, peer, done }).ok()?;
        // What stands behind others is not waited for.
        let prompt = if before == 0 { PROMPT } else { Duration::ZERO };
        Some(Made {
            id,
            orders,
            known: outcome.recv_timeout(prompt).ok(),
            outcome,
        })
    }
}

impl Drop for Maker {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Release);
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            // One that panicked has destroyed what it had.
            thread.join().ok();
        }
    }
}

/// A queue pair that stands or will, destroyed when this is dropped.
pub(super) struct Made {
    id: u64,
    orders: Sender<Order>,
    outcome: Receiver<Met>,
    known: Option<Met>,
}

impl Made {
    /// This node's end; why there is none; nothing while that is not known.
    pub(super) fn endpoint(&mut self) -> Option<Met> {
        self.known = self.known.or_else(|| self.outcome.try_recv().ok());
        self.known
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        // A maker that has ended has destroyed it.
        self.orders.send(Order::Destroy(self.id)).ok();
    }
}

struct Worker {
    completions: Arc<Completions>,
    may: PeerMay,
    refusals: RdmaRefusals,
    ends: Arc<AtomicBool>,
    pending: Arc<AtomicUsize>,
    pairs: HashMap<u64, QueuePair>,
}

impl Worker {
    fn run(&mut self, orders: &Receiver<Order>) {
        for order in orders {
            match order {
                Order::Destroy(id) => drop(self.pairs.remove(&id)),
                Order::Make { .. } if self.ends.load(Ordering::Acquire) => {}
                Order::Make { id, peer, done } => {
                    let began = clock::now();
                    let outcome = self.make(id, &peer);
                    // The offer may have given way to another one meanwhile; what undoes this follows then.
                    done.send(outcome).ok();
                    let now = clock::now();
                    clock::sleep_until(now + now.since(began).min(REST_MAX));
                    self.pending.fetch_sub(1, Ordering::Relaxed);
                }
            }
        }
    }

    fn make(&mut self, id: u64, peer: &Endpoint) -> Met {
        let made = random().and_then(|it| QueuePair::new(&self.completions, self.may, it as u32));
        let mut pair = made
            .inspect_err(|why| self.refusals.note(why))
            .map_err(|_| Status::CardFault)?;
        // The kernel looks for a way to the peer's address, which may not be there.
        pair.meet(peer)
            .inspect_err(|why| self.refusals.note(why))
            .map_err(|_| Status::NoWay)?;
        let endpoint = pair.endpoint();
        self.pairs.insert(id, pair);
        Ok(endpoint)
    }
}
