//! A front-end's handle to one node over RDMA.
//!
//! ```text
//! no connection   offer a queue pair over UDP, take the grant, connect
//! a verb          READ or atomic, waited for until the deadline
//! silence         the connection may be broken, not the node: connect anew once; then the verb has timed out
//! each 500 ms     the offer again, not waited for: the node sees that it is used, its clock and its life are learned
//! ```
//!
//! * **A silent READ** is repeated on the new connection. **An atomic never is**: the first one may have been carried out.
//!   If the node has restarted meanwhile its words start anew, and that is the answer; else it is a time-out.
//! * **Whole lines.** A line is whole if its two ends hold one sequence (`memory::lines`), if no copy is older at its end
//!   than at its beginning. A card copies lines of 64 bytes as they are (FaRM-2014 relies on that); a device in
//!   software copies word by word from the start of a line to its end, which is the wrong way round. The node says so,
//!   and each read is three READs then, carried out one after the other: the ends of lines are taken from the first,
//!   their beginnings from the last, all else from the one between. The proof in `memory::lines` holds for that.
//! * **Word 0** comes with each read: an addition of nothing, since words may not be read.
//! * **Another generation** than the one granted means that other memory has taken the record's place: connect anew.
//!
//! Failure cases: a swap that comes too late by [`LATE_MAX`] because frames were held up on the way is carried out all the
//! same; only the time until it is sent, and sent again, is bounded here. A node whose process stands still is read
//! on, but cannot be connected to anew.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::time::Timestamp;

use super::RdmaDevice;
use super::link::{Link, on_word};
use super::memory::RemoteMemory;
use super::queue::{Completions, Operation, QueueFailure};
use super::table::RENEW_EVERY;
use crate::clock;
use crate::memory::WORDS;
use crate::memory::lines::clear_behind;
use crate::region::{LATE_MAX, Read, Refusal, Region, RegionError, check_lines};
use crate::udp::{Offered, UdpRegion};

/// Connections on which a READ is tried: the one there is, and a new one.
const CONNECTIONS: u32 = 2;
/// Tries of a read that meets a writer.
const TORN_TRIES: usize = 4;

/// How long to wait for a node's card.
#[derive(Clone, Copy, Debug)]
pub struct RdmaOptions {
    /// Time after which one verb, with all the tries that the card makes, counts as lost.
    pub wait: Duration,
}

impl Default for RdmaOptions {
    /// 50 ms: a card answers within microseconds, and needs four tries to be sure that there is no answer.
    fn default() -> Self {
        Self {
            wait: Duration::from_millis(50),
        }
    }
}

/// A handle to what an [`super::RdmaNode`] serves.
pub struct RdmaRegion {
    connection: Option<Connection>,
    device: Option<Arc<RdmaDevice>>,
    wire: UdpRegion,
    options: RdmaOptions,
    /// The life of the words that atomics were meant for; nothing before the first.
    words_epoch: Option<u32>,
}

struct Connection {
    link: Link,
    readers: u32,
    renewed_at: Timestamp,
    renewal: Option<Offered>,
}

/// Why a verb gave nothing on this connection.
enum Failure {
    /// No answer: perhaps on another connection.
    Silent,
    /// Other memory has taken the record's place.
    Replaced,
    /// For good.
    Error(RegionError),
}

impl From<RegionError> for Failure {
    fn from(error: RegionError) -> Self {
        Self::Error(error)
    }
}

impl From<QueueFailure> for Failure {
    fn from(failure: QueueFailure) -> Self {
        match failure {
            QueueFailure::Silent => Self::Silent,
            QueueFailure::Refused => Self::Error(RegionError::Refused(Refusal::Card)),
            QueueFailure::System(error) => Self::Error(error),
            QueueFailure::Status(status) => {
                let text = format!("the card's status {status}");
                let error = std::io::Error::other(text);
                Self::Error(RegionError::io("carry a request out over RDMA")(error))
            }
        }
    }
}

impl std::fmt::Debug for RdmaRegion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RdmaRegion")
            .field("device", &self.device)
            .field("grant", &self.connection.as_ref().map(|it| it.link.grant))
            .finish_non_exhaustive()
    }
}

impl RdmaRegion {
    /// A handle to the node that this one reaches over UDP. Connects when it is first used.
    pub fn new(wire: UdpRegion, options: RdmaOptions) -> Self {
        Self {
            connection: None,
            device: None,
            wire,
            options,
            words_epoch: None,
        }
    }

    /// Makes a queue pair and has the node connect it.
    fn connect(&mut self) -> Result<&mut Connection, RegionError> {
        self.connection = None;
        let device = match self.device.take() {
            Some(device) => device,
            None => RdmaDevice::open(Some(self.wire.local_address()?))?,
        };
        let completions = Arc::new(Completions::new(&device, 1)?);
        // An interface may have lost its address: what fails from here on is tried with a device that is opened anew.
        let (link, readers) = Link::connect(&completions, &mut self.wire, self.options.wait)?;
        self.device = Some(device);
        Ok(self.connection.insert(Connection {
            link,
            readers,
            renewed_at: clock::now(),
            renewal: None,
        }))
    }

    /// The connection, renewed where that is due.
    fn connected(&mut self) -> Result<&mut Connection, RegionError> {
        let Some(connection) = &mut self.connection else {
            return self.connect();
        };
        let serves = connection.renew(&mut self.wire)?;
        if serves {
            // The borrow checker does not let the first borrow go on to here.
            return self.connection.as_mut().ok_or(RegionError::Absent);
        }
        self.connect()
    }

    /// Reads once, on the connection there is.
    fn try_read(&mut self, lines: usize) -> Result<Read, Failure> {
        let wait = self.options.wait;
        let connection = self.connected()?;
        let mut tries = 0;
        let mut read = loop {
            tries += 1;
            match connection.read(lines, wait) {
                Err(Failure::Error(RegionError::Torn)) if tries < TORN_TRIES => {}
                done => break done?,
            }
        };
        let node_now = self.wire.node_clock(read.received_at);
        read.node_now_ns = (node_now != 0).then_some(node_now);
        Ok(read)
    }

    /// Carries an atomic out on a word, once.
    fn atomic(
        &mut self,
        word: u32,
        operation: Operation,
        since: Option<Timestamp>,
    ) -> Result<u64, RegionError> {
        if word as usize >= WORDS {
            return Err(RegionError::Refused(Refusal::Word(word)));
        }
        let wait = self.options.wait;
        let connection = self.connected()?;
        let (words, epoch) = (connection.link.grant.words, connection.link.epoch);
        let Some(words) = words else {
            return Err(RegionError::Refused(Refusal::WordsElsewhere));
        };
        if self
            .words_epoch
            .replace(epoch)
            .is_some_and(|it| it != epoch)
        {
            return Err(RegionError::Restarted);
        }
        let now = clock::now();
        let wait = match since.map(|since| LATE_MAX.checked_sub(now.since(since))) {
            None => wait,
            Some(Some(rest)) if !rest.is_zero() => wait.min(rest),
            Some(_) => return Err(RegionError::Refused(Refusal::TooOld)),
        };
        let connection = self.connection.as_mut().ok_or(RegionError::Absent)?;
        let held = connection.change(words, word, operation, now + wait);
        held.map_err(|failure| self.lost(failure, epoch))
    }

    /// What became of an atomic of which that is not known.
    fn lost(&mut self, failure: Failure, epoch: u32) -> RegionError {
        self.connection = None;
        match failure {
            Failure::Error(error) => error,
            Failure::Silent | Failure::Replaced => match self.connect() {
                Ok(connection) if connection.link.epoch != epoch => {
                    self.words_epoch = Some(connection.link.epoch);
                    RegionError::Restarted
                }
                Ok(_) | Err(_) => RegionError::Timeout { tries: 1 },
            },
        }
    }
}

impl Connection {
    /// Says that it is still used, if that is due; whether the node still serves it, as far as known.
    fn renew(&mut self, wire: &mut UdpRegion) -> Result<bool, RegionError> {
        if let Some(offered) = &self.renewal
            && let Some(granted) = wire.renewed(offered)
        {
            self.renewal = None;
            if !self.link.is_granted(&granted)? {
                return Ok(false);
            }
            self.readers = granted.reply.readers;
        }
        let now = clock::now();
        if now.since(self.renewed_at) >= RENEW_EVERY {
            self.renewed_at = now;
            self.renewal = Some(wire.renew_rdma(self.link.offer())?);
        }
        Ok(true)
    }

    /// Reads the record, and word 0 where there is one.
    fn read(&mut self, lines: usize, wait: Duration) -> Result<Read, Failure> {
        let sent_at = clock::now();
        let mut read = Read::empty(lines, sent_at)?;
        let bytes = read.bytes().len();
        let nothing = Operation::FetchAndAdd { delta: 0 };
        let word = self.link.grant.words;
        let word = word.map(|words| on_word(words, 0, nothing));
        self.link.read(bytes, word, sent_at + wait)?;
        read.received_at = clock::now();
        self.link.assemble(read.bytes_mut());
        clear_behind(read.bytes_mut());
        let record = read.record().map_err(RegionError::from)?;
        if !self.link.is_of(record.generation) {
            return Err(Failure::Replaced);
        }
        if self.link.grant.words.is_some() {
            read.first_word = Some(self.link.word());
        }
        read.readers = Some(self.readers);
        read.epoch = Some(self.link.epoch);
        Ok(read)
    }

    /// Carries an atomic out; gives the value that the word held.
    fn change(
        &mut self,
        words: RemoteMemory,
        word: u32,
        operation: Operation,
        deadline: Timestamp,
    ) -> Result<u64, Failure> {
        self.link
            .change(on_word(words, word, operation), deadline)?;
        Ok(self.link.word())
    }
}

impl Region for RdmaRegion {
    fn read(&mut self, lines: usize) -> Result<Read, RegionError> {
        check_lines(lines)?;
        let mut last = RegionError::Absent;
        for tries in 1..=CONNECTIONS {
            last = match self.try_read(lines) {
                Ok(read) => return Ok(read),
                Err(Failure::Silent) => RegionError::Timeout { tries },
                Err(Failure::Replaced) => RegionError::Restarted,
                Err(Failure::Error(error)) => {
                    // What is not of the record itself has broken the queue pair.
                    let whole = matches!(error, RegionError::Torn | RegionError::Absent);
                    self.connection = self.connection.take().filter(|_| whole);
                    return Err(error);
                }
            };
            self.connection = None;
        }
        Err(last)
    }

    fn compare_and_swap(&mut self, word: u32, expected: u64, new: u64) -> Result<u64, RegionError> {
        self.atomic(word, Operation::CompareAndSwap { expected, new }, None)
    }

    fn compare_and_swap_since(
        &mut self,
        word: u32,
        expected: u64,
        new: u64,
        since: Timestamp,
    ) -> Result<u64, RegionError> {
        let swap = Operation::CompareAndSwap { expected, new };
        self.atomic(word, swap, Some(since))
    }

    fn fetch_and_add(&mut self, word: u32, delta: u64) -> Result<u64, RegionError> {
        self.atomic(word, Operation::FetchAndAdd { delta }, None)
    }
}
