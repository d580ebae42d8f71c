//! A front-end's end of a connection: a queue pair, the memory where answers arrive, and what the node has granted.
//!
//! A read is one READ, or three where lines come split (see `region`), posted with one call and announced by one completion.
//! It is waited for here, or by what looks after the completions of many links.
//!
//! Failure case: a link of which any request has failed is of no more use, and is dropped.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::load::WordOp;
use tidegate_core::record::{LINE_BYTES, RECORD_BYTES_MAX};
use tidegate_core::time::Timestamp;

use super::exchange::Grant;
use super::memory::{Registered, RemoteMemory};
use super::queue::{Completions, Endpoint, Operation, PeerMay, Posted, QueueFailure, QueuePair};
use crate::memory::random;
use crate::region::RegionError;
use crate::udp::wire::CONNECT_BYTES;
use crate::udp::{Granted, UdpRegion};

/// READs that tell whether lines that come split are whole.
const SPLIT_READS: usize = 3;
/// Bytes of an atomic's answer.
const WORD_BYTES: usize = size_of::<u64>();
/// Where the answers of atomics arrive, behind those of all READs.
const WORD_AT: usize = SPLIT_READS * RECORD_BYTES_MAX;
const BUFFER_BYTES: usize = WORD_AT + WORD_BYTES;
/// Bytes at either end of a line that hold its sequence.
const END: usize = 4;

/// One connection to one node.
pub(crate) struct Link {
    // In the order in which they must go: nothing is written to the buffer once the queue pair is gone.
    pair: QueuePair,
    buffer: Registered,
    pub(super) grant: Grant,
    offer: [u8; CONNECT_BYTES],
    /// Life of the node's words, as it was when it was connected.
    pub(super) epoch: u32,
}

impl Link {
    /// Makes a queue pair and has the node connect it, over this wire; the node's readers with it. No answer to a request
    /// within `wait` is a failure.
    ///
    /// # Errors
    /// If the system, the device or the node refuses, or the node does not answer.
    pub(crate) fn connect(
        completions: &Arc<Completions>,
        wire: &mut UdpRegion,
        wait: Duration,
    ) -> Result<(Self, u32), RegionError> {
        let buffer = Registered::buffer(completions.device(), BUFFER_BYTES)?;
        let mut pair = QueuePair::new(completions, PeerMay::Nothing, random()? as u32)?;
        let mut offer = [0; CONNECT_BYTES];
        pair.endpoint().encode(&mut offer);
        let granted = wire.connect_rdma(&offer)?;
        let grant = decode(&granted.grant)?;
        check_address(&grant.endpoint, wire.node_address()?)?;
        pair.meet(&grant.endpoint)?;
        pair.ask(wait)?;
        let link = Self {
            pair,
            buffer,
            grant,
            offer,
            epoch: granted.reply.epoch,
        };
        Ok((link, granted.reply.readers))
    }

    /// What it was connected by, to be said again.
    pub(crate) fn offer(&self) -> &[u8; CONNECT_BYTES] {
        &self.offer
    }

    /// Where its completions come in.
    pub(crate) fn completions(&self) -> &Arc<Completions> {
        self.pair.completions()
    }

    /// What of it a node's later answers must repeat.
    pub(crate) fn standing(&self) -> Standing {
        Standing {
            grant: self.grant,
            epoch: self.epoch,
        }
    }

    /// Whether a later answer to the same offer is about this connection.
    pub(super) fn is_granted(&self, granted: &Granted) -> Result<bool, RegionError> {
        self.standing().is_granted(granted)
    }

    /// Whether a record of this generation lies where the node has granted it. Where nothing was published by then, the
    /// first one that is seen is.
    pub(crate) fn is_of(&mut self, generation: u64) -> bool {
        if self.grant.generation == 0 {
            self.grant.generation = generation;
        }
        self.grant.generation == generation
    }

    /// The life of the words that were granted; nothing where none were.
    pub(crate) fn words_epoch(&self) -> Option<u32> {
        self.grant.words.map(|_| self.epoch)
    }

    /// Posts a read of the record's first bytes, and an atomic behind it where words were granted, and does not wait. Their
    /// one completion has this number.
    ///
    /// # Errors
    /// If the system refuses.
    pub(crate) fn post_read(
        &mut self,
        bytes: usize,
        then: Option<WordOp>,
        id: u64,
    ) -> Result<(), RegionError> {
        let then = then.and_then(|op| {
            let (word, operation) = by_card(op);
            Some(on_word(self.grant.words?, word, operation))
        });
        let (posted, count) = self.with_read(bytes, then);
        self.pair.post(&posted[..count], &self.buffer, id)
    }

    /// Reads the record's first bytes and carries out what follows it, by the deadline.
    pub(super) fn read(
        &mut self,
        bytes: usize,
        then: Option<Posted>,
        deadline: Timestamp,
    ) -> Result<(), QueueFailure> {
        let (posted, count) = self.with_read(bytes, then);
        self.pair
            .carry_out(&posted[..count], &self.buffer, deadline)
    }

    /// A read and what follows it; so many of these.
    fn with_read(&self, bytes: usize, then: Option<Posted>) -> ([Posted; SPLIT_READS + 1], usize) {
        let copies = self.copies();
        let [first, second, third] = self.reads(bytes);
        let mut posted = [first, second, third, then.unwrap_or(first)];
        posted[copies] = posted[SPLIT_READS];
        (posted, copies + usize::from(then.is_some()))
    }

    /// Carries an atomic out by the deadline.
    pub(super) fn change(
        &mut self,
        atomic: Posted,
        deadline: Timestamp,
    ) -> Result<(), QueueFailure> {
        self.pair.carry_out(&[atomic], &self.buffer, deadline)
    }

    fn copies(&self) -> usize {
        match self.grant.lines_split {
            true => SPLIT_READS,
            false => 1,
        }
    }

    fn reads(&self, bytes: usize) -> [Posted; SPLIT_READS] {
        let records = self.grant.records;
        let bytes = bytes.min(records.bytes as usize) as u32;
        std::array::from_fn(|copy| Posted {
            operation: Operation::Read { bytes },
            address: records.address,
            key: records.key,
            answer_at: copy * RECORD_BYTES_MAX,
        })
    }

    /// Makes one copy of those that have arrived.
    pub(crate) fn assemble(&self, out: &mut [u8]) {
        let bytes = out.len().min(self.grant.records.bytes as usize);
        let out = &mut out[..bytes];
        if self.copies() == 1 {
            return self.buffer.copy(0, out);
        }
        self.buffer.copy(RECORD_BYTES_MAX, out);
        for (at, line) in out.chunks_exact_mut(LINE_BYTES).enumerate() {
            let start = at * LINE_BYTES;
            let (head, rest) = line.split_at_mut(END);
            let (_, tail) = rest.split_at_mut(LINE_BYTES - 2 * END);
            self.buffer.copy(2 * RECORD_BYTES_MAX + start, head);
            self.buffer.copy(start + LINE_BYTES - END, tail);
        }
    }

    /// What an atomic has brought: a number as this machine writes it, in which order of bytes a card keeps it too.
    pub(crate) fn word(&self) -> u64 {
        let mut word = [0; WORD_BYTES];
        self.buffer.copy(WORD_AT, &mut word);
        u64::from_ne_bytes(word)
    }
}

/// An atomic on a word, whose answer arrives at [`WORD_AT`].
pub(super) fn on_word(words: RemoteMemory, word: u32, operation: Operation) -> Posted {
    Posted {
        operation,
        address: words.address + u64::from(word) * WORD_BYTES as u64,
        key: words.key,
        answer_at: WORD_AT,
    }
}

fn by_card(op: WordOp) -> (u32, Operation) {
    match op {
        WordOp::FetchAndAdd { word, delta } => (word, Operation::FetchAndAdd { delta }),
        WordOp::CompareAndSwap {
            word,
            expected,
            new,
        } => (word, Operation::CompareAndSwap { expected, new }),
    }
}

/// What a connection is known by at its node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing {
    grant: Grant,
    epoch: u32,
}

impl Standing {
    /// Whether a later answer to the same offer is about the same connection.
    ///
    /// # Errors
    /// If the node grants what no node has.
    pub(crate) fn is_granted(&self, granted: &Granted) -> Result<bool, RegionError> {
        let grant = decode(&granted.grant)?;
        Ok(grant.endpoint == self.grant.endpoint && granted.reply.epoch == self.epoch)
    }
}

fn decode(grant: &[u8; CONNECT_BYTES]) -> Result<Grant, RegionError> {
    Grant::decode(grant).map_err(|why| RegionError::Peer(why.to_string()))
}

/// On Ethernet a node's card has the address that was asked: a node could have this host's card speak to others else.
fn check_address(node: &Endpoint, asked: IpAddr) -> Result<(), RegionError> {
    match node.ip() {
        Some(ip) if ip != asked.to_canonical() => Err(RegionError::Peer(format!(
            "it is at {ip}, and {asked} was asked: let the agent listen there"
        ))),
        Some(_) | None => Ok(()),
    }
}
