//! The bytes of a request and its answer. Pure: no socket, no clock, no table.
//!
//! Little endian, a header of 64 bytes both ways, record lines after the answer's header. A
//! request is padded with zeros to the length of its answer, so that no sender can make a node
//! send more than was sent to it.
//!
//! | bytes | request | answer |
//! |---|---|---|
//! | 0 | magic "TGRQ" | magic "TGRP" |
//! | 4 | version, 2 | version, 2 |
//! | 5 | verb: 1 read, 2 compare-and-swap, 3 fetch-and-add, 4 connect | the same |
//! | 6 | lines to read; 0 for an atomic, 2 to connect | the same |
//! | 7 | flags, 0 | status, see [`Status`] |
//! | 8 | initiator: random, another one for each node that a front-end asks | the same |
//! | 16 | sequence: the node's clock as the initiator knows it from earlier answers, ns, and greater than before; 0: not yet | the same |
//! | 24 | nonce: 64 random bits for each read, and for each sequence of an atomic | the same |
//! | 32 | word u16 (of a read [`TRIAL`] or 0), key number u16, epoch u32 | node's clock when it answered, ns |
//! | 40 | operand: new value, or what to add | value that the word held; of word 0 for a read |
//! | 48 | expected value of a compare-and-swap | readers u32, epoch u32 |
//! | 56 | MAC of the node's number and bytes 0 .. 56, to connect also 64 .. end | MAC of the node's number, bytes 0 .. 56 and 64 .. end |
//! | 64 | zeros; to connect the offer of `rdma::exchange` | lines; to connect the grant of `rdma::exchange` |
//!
//! The epoch names one life of the responder: an atomic of another life is not carried out. It is 0 in the answer to a read
//! where the node does not know what word 0 holds.
//! A flag that is not zero belongs to a newer version: such a request is thrown away.

use subtle::ConstantTimeEq as _;
use tidegate_core::record::{LINE_BYTES, LINES_MAX};

use super::Key;

/// Bytes of the header, both ways.
pub const HEADER_BYTES: usize = 64;
/// Most bytes of a message: a header and a whole record, which fits one Ethernet frame.
pub const MESSAGE_BYTES_MAX: usize = HEADER_BYTES + LINES_MAX * LINE_BYTES;
/// Bytes of what is said behind the header to be connected over RDMA, both ways.
pub const CONNECT_BYTES: usize = CONNECT_LINES as usize * LINE_BYTES;
/// The same, as lines.
pub const CONNECT_LINES: u8 = 2;
/// Version of this layout.
pub const VERSION: u8 = 2;
/// Word of a read that tries whether its key is known: where it is not, that is no fault.
pub const TRIAL: u16 = 1;
pub(super) const REQUEST_MAGIC: [u8; 4] = *b"TGRQ";
const REPLY_MAGIC: [u8; 4] = *b"TGRP";
/// Where the MAC lies.
const MAC_AT: usize = 56;

/// Length of a request for this many lines, and of its answer.
pub const fn message_bytes(lines: u8) -> usize {
    HEADER_BYTES + lines as usize * LINE_BYTES
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Verb {
    /// Read record lines.
    Read = 1,
    /// Compare a word and swap it.
    CompareAndSwap = 2,
    /// Fetch a word and add to it.
    FetchAndAdd = 3,
    /// Connect two queue pairs, so that the other verbs go over RDMA. The kernel's programs leave it to a process.
    Connect = 4,
}

impl Verb {
    fn from_number(number: u8) -> Option<Self> {
        let known = [
            Self::Read,
            Self::CompareAndSwap,
            Self::FetchAndAdd,
            Self::Connect,
        ];
        known.into_iter().find(|verb| *verb as u8 == number)
    }

    /// Whether so many lines go with it.
    fn may_have(self, lines: u8) -> bool {
        match self {
            Self::Read => (1..=LINES_MAX).contains(&usize::from(lines)),
            Self::CompareAndSwap | Self::FetchAndAdd => lines == 0,
            Self::Connect => lines == CONNECT_LINES,
        }
    }

    /// What of a request's body its MAC covers: padding means nothing.
    fn signed(self, body: &[u8]) -> &[u8] {
        match self {
            Self::Read | Self::CompareAndSwap | Self::FetchAndAdd => &[],
            Self::Connect => body,
        }
    }
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Done.
    Done,
    /// There is no such word.
    NoWord,
    /// The sequence is one of the past, and its answer is not kept any more.
    Stale,
    /// Of another epoch than the responder's, which the answer tells. Not carried out.
    Epoch,
    /// Too many initiators. Not carried out.
    Full,
    /// Nothing was published yet.
    Absent,
    /// No whole record could be copied.
    Torn,
    /// The sequence lies too far back on the node's clock, which the answer tells. This
    /// datagram was not carried out.
    TooOld,
    /// The sequence lies ahead of the node's clock, which the answer tells. Not carried out yet:
    /// a copy may be, once its time has come.
    TooNew,
    /// The node has no RDMA device, or does not use it.
    NoDevice,
    /// The node keeps no more queue pairs. Not connected.
    NoQueuePair,
    /// The words are served over another transport. Not carried out.
    WordsElsewhere,
    /// The offer is none that a node can take up. Not connected.
    BadOffer,
    /// The node's card has no way to the front-end's. Not connected.
    NoWay,
    /// The node's card makes no queue pair. Not connected.
    CardFault,
    /// One of a newer version.
    Other(u8),
}

impl Status {
    const KNOWN: [Self; 15] = [
        Self::Done,
        Self::NoWord,
        Self::Stale,
        Self::Epoch,
        Self::Full,
        Self::Absent,
        Self::Torn,
        Self::TooOld,
        Self::TooNew,
        Self::NoDevice,
        Self::NoQueuePair,
        Self::WordsElsewhere,
        Self::BadOffer,
        Self::NoWay,
        Self::CardFault,
    ];

    /// As it stands in the answer.
    pub fn number(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::NoWord => 1,
            Self::Stale => 2,
            Self::Epoch => 3,
            Self::Full => 4,
            Self::Absent => 5,
            Self::Torn => 6,
            Self::TooOld => 7,
            Self::TooNew => 8,
            Self::NoDevice => 9,
            Self::NoQueuePair => 10,
            Self::WordsElsewhere => 11,
            Self::BadOffer => 12,
            Self::NoWay => 13,
            Self::CardFault => 14,
            Self::Other(number) => number,
        }
    }

    pub(crate) fn from_number(number: u8) -> Self {
        let known = Self::KNOWN
            .into_iter()
            .find(|status| status.number() == number);
        known.unwrap_or(Self::Other(number))
    }
}

macro_rules! drops {
    ($($name:ident $label:literal $what:literal;)*) => {
        /// Why a datagram is thrown away without an answer.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum DropReason { $( #[doc = $what] $name, )* }

        impl DropReason {
            /// Every reason with its label in metrics.
            pub const ALL: &'static [(Self, &'static str)] = &[$((Self::$name, $label)),*];
        }
    };
}

drops! {
    Source "source" "Its sender is not on the list.";
    Short "short" "Shorter than a header.";
    Magic "magic" "Not of this protocol.";
    Version "version" "Of another version, or with a flag of one.";
    Verb "verb" "No such verb.";
    Lines "lines" "A number of lines that does not go with the verb.";
    Length "length" "Not padded to the length of its answer, or longer.";
    Key "key" "Made with a key that is not known here.";
    Mac "mac" "Not made with the key that it names, or changed on the way.";
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// What is asked for.
    pub verb: Verb,
    /// Lines to read; 0 for an atomic.
    pub lines: u8,
    /// The initiator that asks.
    pub initiator: u64,
    /// The node's clock as the initiator knows it, ns; 0: not yet. The number of an atomic, which
    /// grows per initiator; what makes a read count as one of a front-end that is alive.
    pub sequence: u64,
    /// Comes back in the answer.
    pub nonce: u64,
    /// Word of an atomic; [`TRIAL`] or 0 of a read.
    pub word: u16,
    /// The responder's life that an atomic is meant for.
    pub epoch: u32,
    /// New value, or what to add.
    pub operand: u64,
    /// Value that a compare-and-swap expects.
    pub expected: u64,
}

/// An answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Verb of the request.
    pub verb: Verb,
    /// Lines that follow.
    pub lines: u8,
    /// How it ended.
    pub status: Status,
    /// Initiator of the request.
    pub initiator: u64,
    /// Sequence of the request.
    pub sequence: u64,
    /// Nonce of the request.
    pub nonce: u64,
    /// The node's clock, ns.
    pub node_now_ns: u64,
    /// Value that the word held; of word 0 for a read.
    pub value: u64,
    /// Initiators that read within the last second.
    pub readers: u32,
    /// This life of the responder; 0 if it does not know what word 0 holds, which a read asks for.
    pub epoch: u32,
}

impl Reply {
    /// What word 0 held, of an answer to a read.
    pub(crate) fn first_word(&self) -> Option<u64> {
        (self.epoch != 0).then_some(self.value)
    }
}

impl Request {
    /// A read. An atomic is made from it by setting the other fields.
    pub fn read(lines: u8, initiator: u64, nonce: u64) -> Self {
        Self {
            verb: Verb::Read,
            lines,
            initiator,
            sequence: 0,
            nonce,
            word: 0,
            epoch: 0,
            operand: 0,
            expected: 0,
        }
    }

    /// Writes the header. The padding, up to [`message_bytes`], is the caller's: zeros. A request to connect has a body,
    /// see [`Self::encode_message`].
    pub fn encode(&self, key: &Key, header: &mut [u8; HEADER_BYTES]) {
        debug_assert!(self.verb != Verb::Connect, "its body is signed too");
        self.sign(key, header, &[]);
    }

    /// Writes the header before the body, which stands in `message` already: zeros, or an offer. `message` is as long
    /// as [`message_bytes`] says.
    pub fn encode_message(&self, key: &Key, message: &mut [u8]) {
        let Some((header, body)) = message.split_first_chunk_mut::<HEADER_BYTES>() else {
            debug_assert!(false, "a message holds a header");
            return;
        };
        self.sign(key, header, body);
    }

    fn sign(&self, key: &Key, header: &mut [u8; HEADER_BYTES], body: &[u8]) {
        self.encode_unsigned(key.id(), header);
        let mac = key.mac(&[&header[..MAC_AT], self.verb.signed(body)]);
        put(header, MAC_AT, mac);
    }

    /// Writes all of the header but the MAC.
    pub(crate) fn encode_unsigned(&self, key: u16, header: &mut [u8; HEADER_BYTES]) {
        header[..4].copy_from_slice(&REQUEST_MAGIC);
        header[4..8].copy_from_slice(&[VERSION, self.verb as u8, self.lines, 0]);
        put(header, 8, self.initiator);
        put(header, 16, self.sequence);
        put(header, 24, self.nonce);
        let word = u64::from(self.word) | (u64::from(key) << 16);
        put(header, 32, word | (u64::from(self.epoch) << 32));
        put(header, 40, self.operand);
        put(header, 48, self.expected);
    }

    /// Whether a datagram calls itself a read that tries whether its key is known; its MAC is not checked.
    pub fn is_trial(message: &[u8]) -> bool {
        let Some((header, _)) = message.split_first_chunk::<HEADER_BYTES>() else {
            return false;
        };
        let verb = check_start(header, REQUEST_MAGIC).map(|(verb, _)| verb);
        verb == Ok(Verb::Read) && get(header, 32) as u16 == TRIAL
    }

    /// Reads a datagram and makes sure that it was made with one of the keys, whose index is
    /// given too.
    pub fn decode(message: &[u8], keys: &[Key]) -> Result<(Self, usize), DropReason> {
        let (header, verb, lines) = look(message)?;
        let signed = verb.signed(&message[HEADER_BYTES..]);
        let words = get(header, 32);
        let id = (words >> 16) as u16;
        let mut refused = DropReason::Key;
        for (index, key) in keys.iter().enumerate() {
            if key.id() != id {
                continue;
            }
            // Two keys may share a number: one in 65536 does.
            if !same(key.mac(&[&header[..MAC_AT], signed]), get(header, MAC_AT)) {
                refused = DropReason::Mac;
                continue;
            }
            let request = Self {
                verb,
                lines,
                initiator: get(header, 8),
                sequence: get(header, 16),
                nonce: get(header, 24),
                word: words as u16,
                epoch: (words >> 32) as u32,
                operand: get(header, 40),
                expected: get(header, 48),
            };
            return Ok((request, index));
        }
        Err(refused)
    }
}

/// What a message says of itself; its MAC is not checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) initiator: u64,
    pub(super) sequence: u64,
}

/// In whose name a message is, if it may be a request made with one of these keys, without computing a MAC.
pub(super) fn claim(message: &[u8], keys: &[Key]) -> Result<Claim, DropReason> {
    let (header, ..) = look(message)?;
    let id = (get(header, 32) >> 16) as u16;
    match keys.iter().any(|key| key.id() == id) {
        true => Ok(Claim {
            initiator: get(header, 8),
            sequence: get(header, 16),
        }),
        false => Err(DropReason::Key),
    }
}

/// What a request's header says by itself.
fn look(message: &[u8]) -> Result<(&[u8; HEADER_BYTES], Verb, u8), DropReason> {
    let (header, _) = message
        .split_first_chunk::<HEADER_BYTES>()
        .ok_or(DropReason::Short)?;
    let (verb, lines) = check_start(header, REQUEST_MAGIC)?;
    if header[7] != 0 {
        return Err(DropReason::Version);
    }
    if message.len() != message_bytes(lines) {
        return Err(DropReason::Length);
    }
    Ok((header, verb, lines))
}

impl Reply {
    /// Writes the header before the lines, which stand in `message` already, and the MAC over
    /// both. `message` is as long as [`message_bytes`] says.
    pub fn encode(&self, key: &Key, message: &mut [u8]) {
        let Some((header, lines)) = message.split_first_chunk_mut::<HEADER_BYTES>() else {
            debug_assert!(false, "a message holds a header");
            return;
        };
        header[..4].copy_from_slice(&REPLY_MAGIC);
        let status = self.status.number();
        header[4..8].copy_from_slice(&[VERSION, self.verb as u8, self.lines, status]);
        put(header, 8, self.initiator);
        put(header, 16, self.sequence);
        put(header, 24, self.nonce);
        put(header, 32, self.node_now_ns);
        put(header, 40, self.value);
        put(
            header,
            48,
            u64::from(self.readers) | (u64::from(self.epoch) << 32),
        );
        let mac = key.mac(&[&header[..MAC_AT], lines]);
        put(header, MAC_AT, mac);
    }

    /// Reads a datagram without checking its MAC.
    pub fn parse(message: &[u8]) -> Result<Unverified<'_>, DropReason> {
        let (header, lines) = message
            .split_first_chunk::<HEADER_BYTES>()
            .ok_or(DropReason::Short)?;
        let (verb, count) = check_start(header, REPLY_MAGIC)?;
        if message.len() != message_bytes(count) {
            return Err(DropReason::Length);
        }
        let words = get(header, 48);
        let reply = Self {
            verb,
            lines: count,
            status: Status::from_number(header[7]),
            initiator: get(header, 8),
            sequence: get(header, 16),
            nonce: get(header, 24),
            node_now_ns: get(header, 32),
            value: get(header, 40),
            readers: words as u32,
            epoch: (words >> 32) as u32,
        };
        Ok(Unverified {
            reply,
            header,
            lines,
        })
    }
}

/// An answer that anyone may have made. Its initiator and nonce tell whether it is worth the
/// work of [`Self::verify`], which gives the rest.
#[derive(Clone, Copy, Debug)]
pub struct Unverified<'a> {
    reply: Reply,
    header: &'a [u8; HEADER_BYTES],
    lines: &'a [u8],
}

impl<'a> Unverified<'a> {
    /// The initiator that it claims to be for.
    pub fn initiator(&self) -> u64 {
        self.reply.initiator
    }

    /// Which request it claims to answer.
    pub fn nonce(&self) -> u64 {
        self.reply.nonce
    }

    /// What it claims to be the answer to.
    pub fn verb(&self) -> Verb {
        self.reply.verb
    }

    /// Which atomic it claims to answer.
    pub fn sequence(&self) -> u64 {
        self.reply.sequence
    }

    /// The answer and its lines, if it was made with the key.
    pub fn verify(&self, key: &Key) -> Result<(Reply, &'a [u8]), DropReason> {
        let mac = key.mac(&[&self.header[..MAC_AT], self.lines]);
        if same(mac, get(self.header, MAC_AT)) {
            Ok((self.reply, self.lines))
        } else {
            Err(DropReason::Mac)
        }
    }
}

/// What both ways have in common; gives the verb and the lines.
fn check_start(header: &[u8; HEADER_BYTES], magic: [u8; 4]) -> Result<(Verb, u8), DropReason> {
    if header[..4] != magic {
        return Err(DropReason::Magic);
    }
    if header[4] != VERSION {
        return Err(DropReason::Version);
    }
    let verb = Verb::from_number(header[5]).ok_or(DropReason::Verb)?;
    if verb.may_have(header[6]) {
        Ok((verb, header[6]))
    } else {
        Err(DropReason::Lines)
    }
}

/// Compares tags without telling by the time it takes how much of them agrees.
fn same(ours: u64, theirs: u64) -> bool {
    ours.ct_eq(&theirs).into()
}

fn put(header: &mut [u8; HEADER_BYTES], at: usize, value: u64) {
    header[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

fn get(header: &[u8; HEADER_BYTES], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&header[at..at + 8]);
    u64::from_le_bytes(word)
}

#[cfg(test)]
mod tests;
