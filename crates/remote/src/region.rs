//! The three verbs, what they give and why they fail.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use tidegate_core::record::{LINE_BYTES, LINES_MAX, LoadRecord, RECORD_BYTES_MAX, RecordError};
use tidegate_core::time::Timestamp;

/// Oldest number of an atomic that a node carries out. Part of the protocol of moves: a
/// compare-and-swap that was delayed longer than this never happens.
pub(crate) const AGE_MAX: Duration = Duration::from_millis(200);
/// How much later than it was decided a swap may be numbered that has to come in time: it must be greater than all
/// of its handle's numbers before.
pub(crate) const NUMBERED_LATE_MAX: Duration = Duration::from_millis(50);
/// How late such a swap may come.
pub const LATE_MAX: Duration = AGE_MAX.saturating_add(NUMBERED_LATE_MAX);

/// One front-end's handle to one node's memory.
///
/// The record is read whole or not at all. Words are 64 bits wide, are zero when the owner
/// starts, and do not outlive it: a user that needs more puts a generation into the word.
pub trait Region {
    /// Reads the first `lines` lines of the record, 1 to [`LINES_MAX`]. Lines that the record
    /// does not have are zero.
    fn read(&mut self, lines: usize) -> Result<Read, RegionError>;

    /// Sets the word to `new` if it holds `expected`; gives the value that it held.
    fn compare_and_swap(&mut self, word: u32, expected: u64, new: u64) -> Result<u64, RegionError>;

    /// The same, for a swap that was decided at `since`: more than [`LATE_MAX`] later it is not carried out any more, however
    /// long this process stood still or a datagram was on its way, and [`Refusal::TooOld`] says so.
    ///
    /// Shared memory has no clock that could refuse: the process looks at its own right before the swap.
    fn compare_and_swap_since(
        &mut self,
        word: u32,
        expected: u64,
        new: u64,
        since: Timestamp,
    ) -> Result<u64, RegionError>;

    /// Adds to the word, wrapping; gives the value that it held.
    fn fetch_and_add(&mut self, word: u32, delta: u64) -> Result<u64, RegionError>;
}

/// What one read gave.
#[derive(Clone, Debug)]
pub struct Read {
    bytes: [u8; RECORD_BYTES_MAX],
    length: usize,
    /// When the read was sent, on this process's clock.
    pub sent_at: Timestamp,
    /// When it was answered.
    pub received_at: Timestamp,
    /// The node's clock when it answered, where the transport tells.
    pub node_now_ns: Option<u64>,
    /// What word 0 held; nothing where the words are served over another transport, or did not answer.
    pub first_word: Option<u64>,
    /// Front-ends that read this node within the last second, where the transport tells.
    pub readers: Option<u32>,
    /// The life of the node's words: another one, and they have started anew.
    pub epoch: Option<u32>,
}

impl Read {
    /// An empty read of `lines` lines, to be filled by a transport.
    pub(crate) fn empty(lines: usize, sent_at: Timestamp) -> Result<Self, RegionError> {
        Ok(Self {
            bytes: [0; RECORD_BYTES_MAX],
            length: check_lines(lines)? * LINE_BYTES,
            sent_at,
            received_at: sent_at,
            node_now_ns: None,
            first_word: None,
            readers: None,
            epoch: None,
        })
    }

    /// The lines as they were read.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// Room for the lines.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.length]
    }

    /// The record in them.
    pub fn record(&self) -> Result<LoadRecord, RecordError> {
        LoadRecord::decode(self.bytes())
    }
}

/// The number of lines, if a record can have as many.
pub(crate) fn check_lines(lines: usize) -> Result<usize, RegionError> {
    if (1..=LINES_MAX).contains(&lines) {
        Ok(lines)
    } else {
        Err(RegionError::Refused(Refusal::Lines(lines)))
    }
}

/// What the owner of a region, or the transport in its name, does not do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There is no such word.
    #[error("there is no word {0}")]
    Word(u32),
    /// No record has as many lines, or none were asked for.
    #[error("{0} lines were asked for; a record has 1 to {LINES_MAX}")]
    Lines(usize),
    /// The sequence is one of the past, and it is not known any more what became of it.
    #[error("the request's sequence is one of the past")]
    Stale,
    /// The request was on its way for too long.
    #[error("the request was on its way for too long to be carried out")]
    TooOld,
    /// The node's clock has stood still.
    #[error("the request's sequence lies ahead of the node's clock")]
    TooNew,
    /// Too many front-ends at once.
    #[error("the node keeps track of no more front-ends")]
    Full,
    /// The node has no RDMA device, or does not use it.
    #[error("the node serves nothing over RDMA")]
    NoDevice,
    /// The node keeps no more queue pairs.
    #[error("the node keeps no more queue pairs")]
    NoQueuePair,
    /// The node's card has no way to this host's.
    #[error(
        "the node's card has no way to this host's: another network, subnet or kind of fabric; its agent says more"
    )]
    NoWay,
    /// The node's card makes no queue pair.
    #[error("the node's card makes no queue pair; its agent says why")]
    CardFault,
    /// The node does not understand what it was offered.
    #[error("the node takes no such offer: an older or a newer version")]
    BadOffer,
    /// Its words are served over another transport: an atomic there and one here would not be atomic to each other.
    #[error("the node's words are served over another transport")]
    WordsElsewhere,
    /// A card refused: not what was registered there, or not with these rights.
    #[error("the node's card refused")]
    Card,
    /// A newer version knows why.
    #[error("refused with status {0}")]
    Other(u8),
}

/// Why a verb gave nothing.
#[derive(Debug, thiserror::Error)]
pub enum RegionError {
    /// Every try met a writer at work, or a writer died at work.
    #[error("the record changed each time while it was read")]
    Torn,
    /// There is no region, or nothing was published in it yet.
    #[error("nothing is published here")]
    Absent,
    /// No answer. A node gives none to a request with the wrong key. Whether an atomic was
    /// carried out is not known then: read the word, or do it again in a way that tells.
    #[error("no answer to {tries} tries")]
    Timeout {
        /// Requests sent.
        tries: u32,
    },
    /// Answers came, and none was made with our key.
    #[error("{forged} answers came, none made with our key")]
    WrongKey {
        /// Answers thrown away.
        forged: u32,
    },
    /// The node understood and does not do it.
    #[error("{0}")]
    Refused(Refusal),
    /// The node restarted in the middle: its words start anew, and whether the old ones were
    /// changed before does not matter any more.
    #[error("the node restarted; its words start anew")]
    Restarted,
    /// What was read is no record that we understand.
    #[error("not a load record: {0}")]
    Record(RecordError),
    /// The file is something else.
    #[error("{0} is not a region")]
    NotRegion(PathBuf),
    /// Of a user that this process does not trust.
    #[error("{path} belongs to user {uid}: only root's and this user's regions are believed")]
    Untrusted {
        /// The region's name.
        path: PathBuf,
        /// Whose it is.
        uid: u32,
    },
    /// Something of another user has the name, and this process may neither ask nor replace it.
    #[error("{path} belongs to user {uid}: only that user and root can replace it")]
    Foreign {
        /// The region's name.
        path: PathBuf,
        /// Whose it is.
        uid: u32,
    },
    /// Another owner publishes there.
    #[error("{0} belongs to another running process")]
    Owned(PathBuf),
    /// RDMA cannot be used here.
    #[error("no RDMA device: {0}")]
    NoDevice(String),
    /// The other side's card cannot be used, by what that side says of it.
    #[error("the other side's card cannot be used: {0}")]
    Peer(String),
    /// The system refused.
    #[error("{what}: {error}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        error: io::Error,
    },
}

impl RegionError {
    /// For `map_err`: the system refused `what`.
    pub(crate) fn io<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> Self {
        move |error| Self::Io {
            what,
            error: error.into(),
        }
    }
}

impl From<RecordError> for RegionError {
    fn from(error: RecordError) -> Self {
        match error {
            RecordError::Torn(_) => Self::Torn,
            RecordError::Absent => Self::Absent,
            RecordError::Short(_)
            | RecordError::Magic(_)
            | RecordError::Version
            | RecordError::Lines { .. } => Self::Record(error),
        }
    }
}
