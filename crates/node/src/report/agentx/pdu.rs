//! AgentX on the wire: what a subagent reads and what it says, no more.
//!
//! ```text
//! PDU     = version type flags 0 | session | transaction | packet | length | payload       20 bytes and a multiple of 4
//! OID     = count prefix include 0 | sub-identifiers        prefix p stands for 1.3.6.1.p before them
//! octets  = length | bytes, filled up to a multiple of 4
//! ```
//!
//! Numbers are in the byte order that the flags tell; ours in network order. A reader never looks beyond its bytes; what is
//! longer than its limit is an error.
//! Source: RFC 2741 §5 and §6. Why not the crate `agentx`: decision 049.

/// Bytes of a header.
pub const HEADER_BYTES: usize = 20;
/// Longest payload that is read.
pub const PAYLOAD_BYTES_MAX: usize = 64 << 10;
/// Sub-identifiers of an OID (RFC 2578 §3.5).
const SUB_IDS_MAX: usize = 128;
/// `internet`, which a prefix stands behind.
const INTERNET: [u32; 4] = [1, 3, 6, 1];
const VERSION: u8 = 1;
const NON_DEFAULT_CONTEXT: u8 = 1 << 3;
const NETWORK_BYTE_ORDER: u8 = 1 << 4;

/// An object identifier.
pub type Oid = Vec<u32>;

/// Why bytes are no PDU that is understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PduError {
    /// Not version 1.
    #[error("AgentX version {0}; expected 1")]
    Version(u8),
    /// Longer than [`PAYLOAD_BYTES_MAX`], or no multiple of 4.
    #[error("a payload of {0} bytes; expected a multiple of 4 of at most {PAYLOAD_BYTES_MAX}")]
    Length(u32),
    /// It ends before its time.
    #[error("{0} breaks off")]
    Short(&'static str),
    /// Too many sub-identifiers.
    #[error("an OID of {0} sub-identifiers; expected at most {SUB_IDS_MAX}")]
    Oid(usize),
}

/// Types of PDU (RFC 2741 §6.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PduKind {
    /// A subagent begins.
    Open = 1,
    /// Either side ends.
    Close = 2,
    /// A subagent answers for a subtree.
    Register = 3,
    /// Values of these names.
    Get = 5,
    /// Values of the names behind these.
    GetNext = 6,
    /// The same several times.
    GetBulk = 7,
    /// Whether values can be set.
    TestSet = 8,
    /// Set them.
    CommitSet = 9,
    /// Take that back.
    UndoSet = 10,
    /// Forget about it.
    CleanupSet = 11,
    /// A trap.
    Notify = 12,
    /// Whether the other side is there.
    Ping = 13,
    /// An answer.
    Response = 18,
}

impl PduKind {
    const ALL: [Self; 13] = [
        Self::Open,
        Self::Close,
        Self::Register,
        Self::Get,
        Self::GetNext,
        Self::GetBulk,
        Self::TestSet,
        Self::CommitSet,
        Self::UndoSet,
        Self::CleanupSet,
        Self::Notify,
        Self::Ping,
        Self::Response,
    ];

    fn of_byte(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|it| *it as u8 == byte)
    }
}

/// A header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// None for a type that is not known.
    pub kind: Option<PduKind>,
    flags: u8,
    /// The session.
    pub session: u32,
    /// The transaction, which an answer repeats.
    pub transaction: u32,
    /// The packet, which an answer repeats.
    pub packet: u32,
    /// Bytes that follow.
    pub length: usize,
}

impl Header {
    /// From its bytes.
    ///
    /// # Errors
    /// If it is of another version, or too long a payload follows.
    pub fn parse(bytes: &[u8; HEADER_BYTES]) -> Result<Self, PduError> {
        let [version, kind, flags, ..] = *bytes;
        if version != VERSION {
            return Err(PduError::Version(version));
        }
        let mut numbers = Reader {
            rest: &bytes[4..],
            network_order: flags & NETWORK_BYTE_ORDER != 0,
        };
        let mut number = || numbers.number("a header");
        let (session, transaction, packet) = (number()?, number()?, number()?);
        let length = number()?;
        match usize::try_from(length) {
            Ok(bytes) if bytes <= PAYLOAD_BYTES_MAX && bytes.is_multiple_of(4) => Ok(Self {
                kind: PduKind::of_byte(kind),
                flags,
                session,
                transaction,
                packet,
                length: bytes,
            }),
            _ => Err(PduError::Length(length)),
        }
    }

    /// A reader of the payload, behind its context: all are answered alike.
    pub(super) fn payload<'b>(&self, bytes: &'b [u8]) -> Result<Reader<'b>, PduError> {
        let mut reader = Reader {
            rest: bytes,
            network_order: self.flags & NETWORK_BYTE_ORDER != 0,
        };
        if self.flags & NON_DEFAULT_CONTEXT != 0 {
            reader.octets("a context")?;
        }
        Ok(reader)
    }
}

/// Where a search begins, and the first name that is beyond it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchRange {
    /// The name.
    pub start: Oid,
    /// Whether the name itself may be found by a search for the next.
    pub include: bool,
    /// Empty: there is no end.
    pub end: Oid,
}

/// Takes a payload apart.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'b> {
    rest: &'b [u8],
    network_order: bool,
}

impl<'b> Reader<'b> {
    fn take(&mut self, bytes: usize, what: &'static str) -> Result<&'b [u8], PduError> {
        let (taken, rest) = self
            .rest
            .split_at_checked(bytes)
            .ok_or(PduError::Short(what))?;
        self.rest = rest;
        Ok(taken)
    }

    /// Four bytes.
    pub(super) fn number(&mut self, what: &'static str) -> Result<u32, PduError> {
        let mut bytes = [0; 4];
        bytes.copy_from_slice(self.take(4, what)?);
        Ok(match self.network_order {
            true => u32::from_be_bytes(bytes),
            false => u32::from_le_bytes(bytes),
        })
    }

    /// Two bytes.
    pub(super) fn short(&mut self, what: &'static str) -> Result<u16, PduError> {
        let mut bytes = [0; 2];
        bytes.copy_from_slice(self.take(2, what)?);
        Ok(match self.network_order {
            true => u16::from_be_bytes(bytes),
            false => u16::from_le_bytes(bytes),
        })
    }

    fn octets(&mut self, what: &'static str) -> Result<&'b [u8], PduError> {
        let length = usize::try_from(self.number(what)?).map_err(|_| PduError::Short(what))?;
        let filled = length
            .checked_next_multiple_of(4)
            .ok_or(PduError::Short(what))?;
        self.take(filled, what)?
            .get(..length)
            .ok_or(PduError::Short(what))
    }

    fn oid(&mut self) -> Result<(Oid, bool), PduError> {
        let head = self.take(4, "an OID")?;
        let (count, prefix, include) = (usize::from(head[0]), head[1], head[2] != 0);
        let prefixed = if prefix == 0 { 0 } else { INTERNET.len() + 1 };
        if count + prefixed > SUB_IDS_MAX {
            return Err(PduError::Oid(count + prefixed));
        }
        let mut oid = Oid::with_capacity(count + prefixed);
        if prefix != 0 {
            oid.extend(INTERNET);
            oid.push(prefix.into());
        }
        for _ in 0..count {
            oid.push(self.number("an OID")?);
        }
        Ok((oid, include))
    }

    /// All that is left, as names and what their values are in words.
    #[cfg(test)]
    pub(super) fn bindings(&mut self) -> Result<Vec<(Oid, String)>, PduError> {
        let mut bindings = Vec::new();
        while !self.rest.is_empty() {
            let kind = self.short("a type")?;
            self.short("nothing")?;
            let (name, _) = self.oid()?;
            let value = match kind {
                66 => format!("Gauge({})", self.number("a gauge")?),
                128 => "NoSuchObject".to_owned(),
                130 => "EndOfMibView".to_owned(),
                kind => format!("type {kind}"),
            };
            bindings.push((name, value));
        }
        Ok(bindings)
    }

    /// All that is left, as ranges.
    pub(super) fn ranges(&mut self) -> Result<Vec<SearchRange>, PduError> {
        let mut ranges = Vec::new();
        while !self.rest.is_empty() {
            let (start, include) = self.oid()?;
            let (end, _) = self.oid()?;
            ranges.push(SearchRange {
                start,
                include,
                end,
            });
        }
        Ok(ranges)
    }
}

/// A value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SnmpValue {
    /// INTEGER.
    Integer(i32),
    /// OCTET STRING.
    Text(String),
    /// OBJECT IDENTIFIER.
    Name(Oid),
    /// Gauge32.
    Gauge(u32),
    /// Counter64.
    Counter(u64),
    /// There is no such object.
    NoSuchObject,
    /// Nothing follows.
    EndOfMibView,
}

impl SnmpValue {
    fn kind(&self) -> u16 {
        match self {
            Self::Integer(_) => 2,
            Self::Text(_) => 4,
            Self::Name(_) => 6,
            Self::Gauge(_) => 66,
            Self::Counter(_) => 70,
            Self::NoSuchObject => 128,
            Self::EndOfMibView => 130,
        }
    }
}

/// Puts a PDU together.
#[derive(Debug)]
pub(super) struct Writer(Vec<u8>);

impl Writer {
    /// One with this header, and no payload yet.
    pub(super) fn new(kind: PduKind, session: u32, transaction: u32, packet: u32) -> Self {
        let mut writer = Self(vec![VERSION, kind as u8, NETWORK_BYTE_ORDER, 0]);
        for number in [session, transaction, packet, 0] {
            writer.number(number);
        }
        writer
    }

    pub(super) fn bytes(&mut self, bytes: [u8; 4]) {
        self.0.extend(bytes);
    }

    pub(super) fn short(&mut self, number: u16) {
        self.0.extend(number.to_be_bytes());
    }

    pub(super) fn number(&mut self, number: u32) {
        self.0.extend(number.to_be_bytes());
    }

    /// At most [`SUB_IDS_MAX`] sub-identifiers, as all that is read has.
    pub(super) fn oid(&mut self, oid: &[u32]) {
        let oid = &oid[..oid.len().min(SUB_IDS_MAX)];
        self.bytes([oid.len() as u8, 0, 0, 0]);
        oid.iter().for_each(|it| self.number(*it));
    }

    pub(super) fn octets(&mut self, octets: &[u8]) {
        let octets = &octets[..octets.len().min(PAYLOAD_BYTES_MAX)];
        self.number(octets.len() as u32);
        self.0.extend(octets);
        let filled = self.0.len().next_multiple_of(4);
        self.0.resize(filled, 0);
    }

    pub(super) fn binding(&mut self, name: &[u32], value: &SnmpValue) {
        self.short(value.kind());
        self.short(0);
        self.oid(name);
        match value {
            SnmpValue::Integer(value) => self.0.extend(value.to_be_bytes()),
            SnmpValue::Text(text) => self.octets(text.as_bytes()),
            SnmpValue::Name(oid) => self.oid(oid),
            SnmpValue::Gauge(value) => self.number(*value),
            SnmpValue::Counter(value) => self.0.extend(value.to_be_bytes()),
            SnmpValue::NoSuchObject | SnmpValue::EndOfMibView => {}
        }
    }

    /// The whole PDU.
    pub(super) fn finish(mut self) -> Vec<u8> {
        let length = (self.0.len() - HEADER_BYTES) as u32;
        self.0[HEADER_BYTES - 4..HEADER_BYTES].copy_from_slice(&length.to_be_bytes());
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(bytes: &[u8]) -> (Header, Reader<'_>) {
        let header = Header::parse(bytes[..HEADER_BYTES].try_into().unwrap()).unwrap();
        assert_eq!(header.length, bytes.len() - HEADER_BYTES);
        (header, header.payload(&bytes[HEADER_BYTES..]).unwrap())
    }

    #[test]
    fn what_is_written_is_read() {
        let mut writer = Writer::new(PduKind::GetNext, 7, 8, 9);
        writer.oid(&[1, 3, 6, 1, 4]);
        writer.oid(&[]);
        let bytes = writer.finish();
        let (header, mut reader) = parsed(&bytes);
        assert_eq!(
            (header.session, header.transaction, header.packet),
            (7, 8, 9)
        );
        assert_eq!(header.kind, Some(PduKind::GetNext));
        let range = SearchRange {
            start: vec![1, 3, 6, 1, 4],
            include: false,
            end: vec![],
        };
        assert_eq!(reader.ranges(), Ok(vec![range]));
    }

    /// The example of RFC 2741 §5.1: sysDescr.0 with prefix 2.
    #[test]
    fn a_prefix_is_written_out_in_either_byte_order() {
        let big = [4, 2, 1, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0];
        let little = [4, 2, 1, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];
        for (bytes, network_order) in [(big, true), (little, false)] {
            let mut reader = Reader {
                rest: &bytes,
                network_order,
            };
            assert_eq!(reader.oid(), Ok((vec![1, 3, 6, 1, 2, 1, 1, 1, 0], true)));
        }
    }

    #[test]
    fn octets_are_filled_up() {
        let mut writer = Writer::new(PduKind::Open, 0, 0, 0);
        writer.octets(b"abcde");
        writer.octets(b"");
        let bytes = writer.finish();
        assert_eq!(bytes.len(), HEADER_BYTES + 4 + 8 + 4);
        let (_, mut reader) = parsed(&bytes);
        assert_eq!(reader.octets("it"), Ok(&b"abcde"[..]));
        assert_eq!(reader.octets("it"), Ok(&b""[..]));
    }

    #[test]
    fn what_makes_no_sense_is_an_error() {
        let mut header = [
            1,
            5,
            NETWORK_BYTE_ORDER,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            8,
        ];
        assert_eq!(Header::parse(&header).unwrap().length, 8);
        header[19] = 7;
        assert_eq!(Header::parse(&header), Err(PduError::Length(7)));
        header[16] = 1;
        assert!(matches!(Header::parse(&header), Err(PduError::Length(_))));
        header[0] = 2;
        assert_eq!(Header::parse(&header), Err(PduError::Version(2)));
        let mut reader = Reader {
            rest: &[0xff; 40],
            network_order: true,
        };
        assert_eq!(reader.octets("it"), Err(PduError::Short("it")));
        let mut reader = Reader {
            rest: &[0xff; 4],
            network_order: true,
        };
        assert_eq!(reader.oid(), Err(PduError::Oid(260)));
    }
}
