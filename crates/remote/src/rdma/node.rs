//! The node's side: registers the record area and, if they are given to it, the words; connects front-ends.
//!
//! Everything is registered once, when it starts, with the rights that it keeps. A queue pair is made for each front-end
//! that connects, up to [`RdmaNodeOptions::queue_pairs_max`], by `maker`; which one goes then is the business of `table`. No
//! thread of this process has a part in a READ or an atomic: they go on while it stands still, and end when it ends.
//!
//! **What is offered may be hostile**, though it comes with the node's key. On Ethernet a front-end's card must have the
//! address that its datagram came from: else one front-end could have the node's card speak to others.
//!
//! **User level and kernel level.** The record area is that of a [`RegionMemory`], which an agent writes, or a map that
//! the kernel's programs write: then not even the record's making needs a process (ULM and KLM in KLM-2005).
//!
//! Failure case: a READ succeeds for as long as the memory is registered, whether anything writes there or not. Its
//! reader judges a record's age by its sequence and clock, never by the success of the READ.

use std::fmt;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate_core::record::RECORD_BYTES_MAX;
use tidegate_core::time::Timestamp;

use super::RdmaDevice;
use super::exchange::Grant;
use super::maker::{Made, Maker, RdmaRefusals};
use super::memory::Registered;
use super::queue::{Completions, Endpoint, PeerMay};
use super::table::{Admitted, Offer, Table};
use super::words::{CardOptions, CardWords};
use crate::memory::{RegionMemory, WORDS_BYTES, WORDS_PAGE};
use crate::region::{Refusal, RegionError};
use crate::udp::Connect;
use crate::udp::wire::{CONNECT_BYTES, Request, Status};

/// Where the generation stands in a record.
const GENERATION_AT: usize = 16;

/// What a node serves over RDMA.
#[derive(Clone, Debug)]
pub struct RdmaNodeOptions {
    /// The address of the device; nothing: any.
    pub address: Option<IpAddr>,
    /// Front-ends that may be connected at once.
    pub queue_pairs_max: usize,
    /// Whether the words are served over RDMA. This process changes them by the card from then on, as long as their
    /// memory lives, and nothing else may.
    pub words: bool,
    /// How long this process waits for the card when it changes a word.
    pub words_wait: Duration,
    /// Whether what waits for the card then, and what connects front-ends, has real-time priority where permitted.
    pub realtime: bool,
}

impl Default for RdmaNodeOptions {
    /// Records for 256 front-ends, which is what cards have contexts for on board. A card carries an atomic out within
    /// microseconds; reads of the load wait behind one for no longer than 10 ms.
    fn default() -> Self {
        Self {
            address: None,
            queue_pairs_max: 256,
            words: false,
            words_wait: Duration::from_millis(10),
            realtime: false,
        }
    }
}

/// Whether front-ends read over RDMA, as far as they say so: READs themselves leave no trace at the node.
#[derive(Clone, Debug, Default)]
pub struct RdmaDemand(Arc<AtomicU64>);

/// A front-end says each 500 ms that it reads; this long after the last word it may have lost two.
const READS_WITHIN: Duration = Duration::from_millis(1500);

impl RdmaDemand {
    /// Whether some front-end reads now.
    pub fn is_there(&self, now: Timestamp) -> bool {
        match self.0.load(Ordering::Relaxed) {
            0 => false,
            heard_at => now.since(Timestamp::from_nanos(heard_at)) < READS_WITHIN,
        }
    }

    fn note(&self, now: Timestamp) {
        self.0.store(now.nanos(), Ordering::Relaxed);
    }
}

/// The node's side. Queue pairs are destroyed and memory is given back when it is dropped.
pub struct RdmaNode {
    // In the order in which they must go.
    table: Table<Made>,
    maker: Maker,
    refusals: RdmaRefusals,
    records: Registered,
    words: Option<Registered>,
    device: Arc<RdmaDevice>,
    demand: RdmaDemand,
}

impl fmt::Debug for RdmaNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RdmaNode")
            .field("device", &self.device)
            .field("queue_pairs", &self.table.len())
            .field("words", &self.words.is_some())
            .finish_non_exhaustive()
    }
}

impl RdmaNode {
    /// Serves the record that an agent publishes in this memory, and its words if that is wanted.
    ///
    /// # Errors
    /// If there is no device, it cannot do it, or the words are kept elsewhere.
    pub fn new(memory: &RegionMemory, options: &RdmaNodeOptions) -> Result<Self, RegionError> {
        Self::with_records(memory, memory, options)
    }

    /// Serves the record that lies at the start of other memory, which may be mapped: a map of the kernel's.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with_records(
        records: impl AsFd,
        memory: &RegionMemory,
        options: &RdmaNodeOptions,
    ) -> Result<Self, RegionError> {
        let device = RdmaDevice::open(options.address)?;
        if options.words && !device.has_atomics() {
            let name = device.name();
            return Err(RegionError::NoDevice(format!("{name} has no atomics")));
        }
        let records = Registered::records(&device, records, RECORD_BYTES_MAX)?;
        let words = match options.words {
            true => Some(give_words(&device, memory, options)?),
            false => None,
        };
        let may = match &words {
            Some(_) => PeerMay::ReadAndChangeWords,
            None => PeerMay::Read,
        };
        let completions = Arc::new(Completions::new(&device, 1)?);
        let refusals = RdmaRefusals::default();
        let maker = Maker::start(completions, may, options.realtime, refusals.clone())?;
        Ok(Self {
            table: Table::new(options.queue_pairs_max),
            maker,
            refusals,
            records,
            words,
            device,
            demand: RdmaDemand::default(),
        })
    }

    /// The device that serves.
    pub fn device(&self) -> &RdmaDevice {
        &self.device
    }

    /// Whether front-ends read, to be asked from elsewhere.
    pub fn demand(&self) -> RdmaDemand {
        self.demand.clone()
    }

    /// Why offers are refused, to be asked from elsewhere.
    pub fn refusals(&self) -> RdmaRefusals {
        self.refusals.clone()
    }

    fn grant(&self, endpoint: Endpoint) -> Grant {
        let mut generation = [0; 8];
        self.records.copy(GENERATION_AT, &mut generation);
        Grant {
            endpoint,
            records: self.records.remote(),
            words: self.words.as_ref().map(Registered::remote),
            generation: u64::from_le_bytes(generation),
            lines_split: self.device.is_in_software(),
        }
    }
}

/// Registers the words, and has this process change them by the device too.
fn give_words(
    device: &Arc<RdmaDevice>,
    memory: &RegionMemory,
    options: &RdmaNodeOptions,
) -> Result<Registered, RegionError> {
    let words = Registered::words(device, memory, WORDS_PAGE, WORDS_BYTES)?;
    match memory.words_device() {
        // A node before this one has given them.
        Some(name) if name == device.name() => {}
        Some(_) => return Err(RegionError::Refused(Refusal::WordsElsewhere)),
        None => {
            let card = CardOptions {
                wait: options.words_wait,
                realtime: options.realtime,
            };
            memory.give_words(Box::new(CardWords::start(device, memory, card)?))?;
        }
    }
    Ok(words)
}

impl Connect for RdmaNode {
    fn connect(
        &mut self,
        request: &Request,
        source: IpAddr,
        offer: &[u8; CONNECT_BYTES],
        grant: &mut [u8; CONNECT_BYTES],
        now: Timestamp,
    ) -> Option<Status> {
        let Ok(peer) = Endpoint::decode(offer) else {
            return Some(Status::BadOffer);
        };
        if peer.ip().is_some_and(|ip| ip != source.to_canonical()) {
            return Some(Status::NoWay);
        }
        let offer = Offer {
            initiator: request.initiator,
            sequence: request.sequence,
            bytes: offer,
        };
        match self.table.admit(offer, now) {
            Admitted::Stale => return Some(Status::Stale),
            Admitted::Full => return Some(Status::NoQueuePair),
            Admitted::Known => {}
            Admitted::Make => match self.maker.make(peer) {
                Some(made) => self.table.keep(offer, made, now),
                None => return Some(Status::NoQueuePair),
            },
        }
        let made = self.table.of(offer.initiator);
        match made.map(Made::endpoint) {
            Some(Some(Ok(endpoint))) => self.grant(endpoint).encode(grant),
            Some(Some(Err(status))) => return Some(status),
            Some(None) => return None,
            None => return Some(Status::NoQueuePair),
        }
        self.demand.note(now);
        Some(Status::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn front_ends_that_have_not_been_heard_of_for_a_while_do_not_read() {
        let demand = RdmaDemand::default();
        let at = Timestamp::from_millis;
        assert!(!demand.is_there(at(10)));
        demand.note(at(10_000));
        assert!(demand.clone().is_there(at(11_499)));
        assert!(!demand.is_there(at(11_500)));
    }
}
