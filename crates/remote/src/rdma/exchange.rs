//! What a front-end and a node say to be connected, as bytes. Pure: no device, no socket, no clock.
//!
//! Both ways 128 bytes, little endian, behind the header of a message of the UDP wire (`udp::wire`), whose MAC covers
//! them. The header's sequence says when the front-end asked, its epoch in the answer which life of the words.
//!
//! | bytes | offer of a front-end | answer of a node |
//! |---|---|---|
//! | 0 | number of its queue pair u32 | the same |
//! | 4 | number of its first packet u32 | the same |
//! | 8 | address of its device, 16 bytes | the same |
//! | 24 | size of its frames u8, 1 to 5; a byte 0 | size u8, flags u8 (1: lines may come split) |
//! | 26 | number of its port in the subnet u16, 0 on Ethernet; 4 bytes 0 | the same |
//! | 32 | 0 to the end | record area: address u64, key u32, bytes u32 |
//! | 48 | | words, the same; all 0 if they are served over another transport |
//! | 64 | | generation of the record u64; 0: none yet |
//! | 72 | | 0 to the end |
//!
//! Bytes that must be zero and are not belong to a newer version and are refused.

use tidegate_core::record::{LINE_BYTES, RECORD_BYTES_MAX};

use super::fabric::LOCAL_ID_MAX;
use super::memory::RemoteMemory;
use super::queue::Endpoint;
use crate::memory::WORDS_BYTES;
use crate::udp::wire::CONNECT_BYTES;

/// Largest number of a queue pair and of a packet.
const NUMBER_MAX: u32 = 0x00ff_ffff;
/// Sizes of frames, as verbs number them.
const MTU_MAX: u8 = 5;
/// A node's device copies word by word, so that a line may come split.
const FLAG_SPLIT: u8 = 1;
const FLAGS_AT: usize = 25;
const LOCAL_ID_AT: usize = 26;
const ENDPOINT_END: usize = 28;
const RECORDS_AT: usize = 32;
const WORDS_AT: usize = 48;
const GENERATION_AT: usize = 64;
const END: usize = 72;

/// What a node grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The node's end.
    pub endpoint: Endpoint,
    /// The record area.
    pub records: RemoteMemory,
    /// The words, unless they are served over another transport.
    pub words: Option<RemoteMemory>,
    /// Generation of the record that lies there; 0: none yet.
    pub generation: u64,
    /// Whether a line may come in pieces of different publications.
    pub lines_split: bool,
}

/// Why bytes are no offer and no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExchangeError {
    /// A number that no device gives.
    #[error("a number of a queue pair, a packet, a port or a size of frames that no device gives")]
    Endpoint,
    /// Memory that is not what a node registers.
    #[error("memory that is no record area or no words")]
    Memory,
    /// A newer version.
    #[error("more than this version knows")]
    Newer,
}

impl Endpoint {
    /// Writes an offer.
    pub fn encode(&self, out: &mut [u8; CONNECT_BYTES]) {
        out.fill(0);
        put32(out, 0, self.queue_pair);
        put32(out, 4, self.first_packet);
        out[8..24].copy_from_slice(&self.gid);
        out[24] = self.mtu;
        out[LOCAL_ID_AT..ENDPOINT_END].copy_from_slice(&self.local_id.to_le_bytes());
    }

    /// Reads an offer.
    ///
    /// # Errors
    /// If it is none.
    pub fn decode(bytes: &[u8; CONNECT_BYTES]) -> Result<Self, ExchangeError> {
        zeros(&bytes[FLAGS_AT..LOCAL_ID_AT])?;
        zeros(&bytes[ENDPOINT_END..])?;
        Self::start(bytes)
    }

    /// What both have in common.
    fn start(bytes: &[u8; CONNECT_BYTES]) -> Result<Self, ExchangeError> {
        let mut gid = [0; 16];
        gid.copy_from_slice(&bytes[8..24]);
        let endpoint = Self {
            queue_pair: get32(bytes, 0),
            first_packet: get32(bytes, 4),
            gid,
            mtu: bytes[24],
            local_id: u16::from_le_bytes([bytes[LOCAL_ID_AT], bytes[LOCAL_ID_AT + 1]]),
        };
        // Queue pairs 0 and 1 manage a fabric.
        let good = (2..=NUMBER_MAX).contains(&endpoint.queue_pair)
            && endpoint.first_packet <= NUMBER_MAX
            && (1..=MTU_MAX).contains(&endpoint.mtu)
            && endpoint.local_id <= LOCAL_ID_MAX;
        match good {
            true => Ok(endpoint),
            false => Err(ExchangeError::Endpoint),
        }
    }
}

impl Grant {
    /// Writes an answer.
    pub fn encode(&self, out: &mut [u8; CONNECT_BYTES]) {
        self.endpoint.encode(out);
        out[FLAGS_AT] = if self.lines_split { FLAG_SPLIT } else { 0 };
        put_memory(out, RECORDS_AT, self.records);
        put_memory(out, WORDS_AT, self.words.unwrap_or_default());
        put64(out, GENERATION_AT, self.generation);
    }

    /// Reads an answer.
    ///
    /// # Errors
    /// If it is none, or grants what no node has.
    pub fn decode(bytes: &[u8; CONNECT_BYTES]) -> Result<Self, ExchangeError> {
        zeros(&bytes[ENDPOINT_END..RECORDS_AT])?;
        zeros(&bytes[END..])?;
        if bytes[FLAGS_AT] & !FLAG_SPLIT != 0 {
            return Err(ExchangeError::Newer);
        }
        let (records, words) = (memory(bytes, RECORDS_AT), memory(bytes, WORDS_AT));
        let lines = records.bytes as usize;
        let has_records =
            lines.is_multiple_of(LINE_BYTES) && (LINE_BYTES..=RECORD_BYTES_MAX).contains(&lines);
        let has_words = words.bytes as usize == WORDS_BYTES && words.address.is_multiple_of(8);
        let has_none = words == RemoteMemory::default();
        if !has_records || !(has_words || has_none) || !records.ends() || !words.ends() {
            return Err(ExchangeError::Memory);
        }
        Ok(Self {
            endpoint: Endpoint::start(bytes)?,
            records,
            words: has_words.then_some(words),
            generation: get64(bytes, GENERATION_AT),
            lines_split: bytes[FLAGS_AT] & FLAG_SPLIT != 0,
        })
    }
}

impl RemoteMemory {
    /// Whether its last byte has an address.
    fn ends(&self) -> bool {
        self.address.checked_add(self.bytes.into()).is_some()
    }
}

fn zeros(bytes: &[u8]) -> Result<(), ExchangeError> {
    match bytes.iter().all(|byte| *byte == 0) {
        true => Ok(()),
        false => Err(ExchangeError::Newer),
    }
}

fn put_memory(out: &mut [u8; CONNECT_BYTES], at: usize, memory: RemoteMemory) {
    put64(out, at, memory.address);
    put32(out, at + 8, memory.key);
    put32(out, at + 12, memory.bytes);
}

fn memory(bytes: &[u8; CONNECT_BYTES], at: usize) -> RemoteMemory {
    RemoteMemory {
        address: get64(bytes, at),
        key: get32(bytes, at + 8),
        bytes: get32(bytes, at + 12),
    }
}

fn put32(out: &mut [u8; CONNECT_BYTES], at: usize, value: u32) {
    out[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

fn put64(out: &mut [u8; CONNECT_BYTES], at: usize, value: u64) {
    out[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

fn get32(bytes: &[u8; CONNECT_BYTES], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

fn get64(bytes: &[u8; CONNECT_BYTES], at: usize) -> u64 {
    u64::from(get32(bytes, at)) | (u64::from(get32(bytes, at + 4)) << 32)
}

#[cfg(test)]
mod tests {
    use tidegate_core::prng::Prng;

    use super::*;

    fn endpoint() -> Endpoint {
        Endpoint {
            queue_pair: 0x0012_3456,
            first_packet: NUMBER_MAX,
            gid: std::array::from_fn(|at| at as u8),
            mtu: 5,
            local_id: LOCAL_ID_MAX,
        }
    }

    fn grant() -> Grant {
        Grant {
            endpoint: endpoint(),
            records: RemoteMemory {
                address: 0x7f00_1234_5000,
                key: 0xdead_beef,
                bytes: RECORD_BYTES_MAX as u32,
            },
            words: Some(RemoteMemory {
                address: 0x7f00_1234_6000,
                key: 7,
                bytes: WORDS_BYTES as u32,
            }),
            generation: u64::MAX,
            lines_split: true,
        }
    }

    fn bytes_of(grant: &Grant) -> [u8; CONNECT_BYTES] {
        let mut bytes = [0xff; CONNECT_BYTES];
        grant.encode(&mut bytes);
        bytes
    }

    #[test]
    fn offers_and_answers_come_back_as_they_were() {
        let mut bytes = [0xff; CONNECT_BYTES];
        endpoint().encode(&mut bytes);
        assert_eq!(Endpoint::decode(&bytes), Ok(endpoint()));
        let without = Grant {
            words: None,
            generation: 0,
            lines_split: false,
            ..grant()
        };
        for grant in [grant(), without] {
            assert_eq!(Grant::decode(&bytes_of(&grant)), Ok(grant));
        }
    }

    #[test]
    fn what_no_node_grants_is_refused() {
        let changed = |change: &dyn Fn(&mut Grant)| {
            let mut grant = grant();
            change(&mut grant);
            Grant::decode(&bytes_of(&grant)).unwrap_err()
        };
        use ExchangeError::{Endpoint, Memory};
        assert_eq!(changed(&|it| it.endpoint.queue_pair = 1), Endpoint);
        assert_eq!(changed(&|it| it.endpoint.queue_pair = 1 << 24), Endpoint);
        assert_eq!(changed(&|it| it.endpoint.first_packet = 1 << 24), Endpoint);
        assert_eq!(changed(&|it| it.endpoint.mtu = 0), Endpoint);
        assert_eq!(changed(&|it| it.endpoint.mtu = 6), Endpoint);
        assert_eq!(changed(&|it| it.endpoint.local_id = 0xffff), Endpoint);
        assert_eq!(changed(&|it| it.records.bytes = 0), Memory);
        assert_eq!(changed(&|it| it.records.bytes += 64), Memory);
        assert_eq!(changed(&|it| it.records.bytes -= 1), Memory);
        assert_eq!(changed(&|it| it.records.address = u64::MAX - 100), Memory);
        let changes: [fn(&mut RemoteMemory); 2] = [|it| it.bytes -= 8, |it| it.address += 1];
        for change in changes {
            let words = |grant: &mut Grant| change(grant.words.as_mut().unwrap());
            assert_eq!(changed(&words), Memory);
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused_and_what_is_read_is_the_same_bytes() {
        let mut prng = Prng::new(1);
        let (mut offers, mut grants) = (0, 0);
        for _ in 0..20_000 {
            let mut bytes = bytes_of(&grant());
            if prng.below(2) == 0 {
                endpoint().encode(&mut bytes);
            }
            for _ in 0..prng.below(3) {
                let at = prng.below(CONNECT_BYTES);
                bytes[at] = prng.below(256) as u8;
            }
            let mut anew = [0; CONNECT_BYTES];
            if let Ok(offer) = Endpoint::decode(&bytes) {
                offer.encode(&mut anew);
                assert_eq!(bytes, anew);
                offers += 1;
            }
            if let Ok(grant) = Grant::decode(&bytes) {
                grant.encode(&mut anew);
                assert_eq!(bytes, anew);
                grants += 1;
            }
        }
        assert!(offers > 1000 && grants > 1000, "{offers} {grants}");
    }
}
