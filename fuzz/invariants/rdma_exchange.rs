//! What must hold for any bytes that are taken for an offer or an answer of the exchange over RDMA. Shared by the fuzz
//! target and by the test that replays its corpus.
//!
//! 1. Reading never panics. Bytes behind the first 128 are not looked at; fewer are none.
//! 2. What is accepted comes from a device: numbers of queue pairs and packets of 24 bits, no queue pair that manages a
//!    fabric, a size of frames that verbs number.
//! 3. What is granted is memory that a node registers: a record of whole lines, all words or none, and the last byte of
//!    each has an address.
//! 4. What is accepted is the same bytes when it is written anew.
//! 5. An answer with a bit set that means nothing in this version is refused, as is an offer.

use tidegate_core::record::{LINE_BYTES, RECORD_BYTES_MAX};
use tidegate_remote::WORDS;
use tidegate_remote::rdma::exchange::Grant;
use tidegate_remote::rdma::{Endpoint, RemoteMemory};
use tidegate_remote::udp::wire::CONNECT_BYTES;

/// Numbers of 24 bits.
const NUMBERS: u32 = 1 << 24;
/// Behind what an answer holds.
const UNUSED: usize = 72;
/// Behind what an offer holds.
const UNUSED_OF_OFFER: usize = 25;

/// Checks all of them.
pub(crate) fn check(bytes: &[u8]) {
    let Some(bytes) = bytes.first_chunk::<CONNECT_BYTES>() else {
        return;
    };
    if let Ok(offer) = Endpoint::decode(bytes) {
        of_a_device(&offer);
        let mut anew = [0xff; CONNECT_BYTES];
        offer.encode(&mut anew);
        assert_eq!(*bytes, anew);
        assert!(Endpoint::decode(&with_a_bit(bytes, UNUSED_OF_OFFER)).is_err());
        // An offer grants nothing.
        assert!(Grant::decode(bytes).is_err());
    }
    if let Ok(grant) = Grant::decode(bytes) {
        of_a_device(&grant.endpoint);
        let length = grant.records.bytes as usize;
        assert!(length.is_multiple_of(LINE_BYTES) && (1..=RECORD_BYTES_MAX).contains(&length));
        has_an_end(grant.records);
        if let Some(words) = grant.words {
            assert_eq!(words.bytes as usize, WORDS * size_of::<u64>());
            assert!(words.address.is_multiple_of(8));
            has_an_end(words);
        }
        let mut anew = [0xff; CONNECT_BYTES];
        grant.encode(&mut anew);
        assert_eq!(*bytes, anew);
        assert!(Grant::decode(&with_a_bit(bytes, UNUSED)).is_err());
    }
}

fn of_a_device(endpoint: &Endpoint) {
    assert!((2..NUMBERS).contains(&endpoint.queue_pair));
    assert!(endpoint.first_packet < NUMBERS);
    assert!((1..=5).contains(&endpoint.mtu));
}

fn has_an_end(memory: RemoteMemory) {
    assert!(memory.address.checked_add(memory.bytes.into()).is_some());
}

/// Sets a bit from there on; which one follows from the bytes.
fn with_a_bit(bytes: &[u8; CONNECT_BYTES], from: usize) -> [u8; CONNECT_BYTES] {
    let which = bytes
        .iter()
        .fold(0_usize, |sum, byte| sum * 31 % 65_521 + usize::from(*byte));
    let mut changed = *bytes;
    changed[from + which % (CONNECT_BYTES - from)] |= 1 << (which % 8);
    changed
}
