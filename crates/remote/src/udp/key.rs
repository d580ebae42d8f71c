//! One node's key, and the MAC made with it.
//!
//! SipHash-2-4 (SipHash-2012): a keyed function made for short inputs, with a
//! tag of 64 bits. Forging one takes 2^63 tries on average, each of them a datagram on the wire.
//!
//! The MAC covers the node's number before the message, which is not sent: what was made for one node
//! is made for no other, even if two nodes have one key. The kernel's programs do the same
//! (`bpf/answer.h`).

use std::fmt;

use sha2::{Digest as _, Sha256};

use crate::memory::random;
use crate::region::RegionError;

/// Bytes of a key.
pub(super) const KEY_BYTES: usize = 16;
/// What the key's public number is made from.
const ID_TEXT: &[u8; 8] = b"TGkeyid1";
/// What a node's number is made from, with its name behind.
const NODE_TEXT: &[u8] = b"tidegate node 1:";

/// The 128-bit key of one node. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Key {
    low: u64,
    high: u64,
    node: u64,
    id: u16,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The number goes over the wire in the clear anyway.
        write!(f, "Key(id {:04x})", self.id)
    }
}

impl Key {
    /// The key of this node with these bytes.
    pub fn new(node: &str, bytes: [u8; KEY_BYTES]) -> Self {
        let (words, _) = bytes.as_chunks();
        let mut key = Self {
            low: u64::from_le_bytes(words[0]),
            high: u64::from_le_bytes(words[1]),
            node: number(node),
            id: 0,
        };
        key.id = key.mac(&[ID_TEXT]) as u16;
        key
    }

    /// A key for this node from the system's randomness, that no master gives.
    pub fn random(node: &str) -> Result<Self, RegionError> {
        let (low, high) = (random()?, random()?);
        let mut bytes = [0; KEY_BYTES];
        bytes[..8].copy_from_slice(&low.to_le_bytes());
        bytes[8..].copy_from_slice(&high.to_le_bytes());
        Ok(Self::new(node, bytes))
    }

    /// The digits, for writing a key file.
    pub(super) fn digits(&self) -> String {
        let [low, high] = [self.low, self.high].map(u64::swap_bytes);
        format!("{low:016x}{high:016x}")
    }

    /// The key's public number: tells a node with several keys which one was used.
    pub fn id(&self) -> u16 {
        self.id
    }

    /// As the kernel's programs hold it: the key's two words, the node's number, the key's, and that it
    /// is used.
    pub(crate) fn to_kernel(&self) -> [u8; 32] {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&self.low.to_ne_bytes());
        bytes[8..16].copy_from_slice(&self.high.to_ne_bytes());
        bytes[16..24].copy_from_slice(&self.node.to_ne_bytes());
        bytes[24..28].copy_from_slice(&u32::from(self.id).to_ne_bytes());
        bytes[28..].copy_from_slice(&1_u32.to_ne_bytes());
        bytes
    }

    /// SipHash-2-4 of the node's number and the parts one after the other. Each is a whole number of
    /// 64-bit words.
    pub(crate) fn mac(&self, parts: &[&[u8]]) -> u64 {
        let mut state = SipState::new(self.low, self.high);
        state.absorb(self.node);
        let mut length = size_of::<u64>() as u64;
        for part in parts {
            let (words, rest) = part.as_chunks();
            debug_assert!(rest.is_empty(), "messages are whole words");
            for word in words {
                state.absorb(u64::from_le_bytes(*word));
            }
            length += part.len() as u64;
        }
        state.finish(length)
    }
}

/// What stands for a node's name in MACs: 64 bits of its SHA-256.
fn number(node: &str) -> u64 {
    let digest = Sha256::new_with_prefix(NODE_TEXT)
        .chain_update(node)
        .finalize();
    let (words, _) = digest.as_chunks();
    u64::from_le_bytes(words[0])
}

/// The four words that SipHash turns round.
struct SipState([u64; 4]);

impl SipState {
    fn new(low: u64, high: u64) -> Self {
        Self([
            low ^ 0x736f_6d65_7073_6575,
            high ^ 0x646f_7261_6e64_6f6d,
            low ^ 0x6c79_6765_6e65_7261,
            high ^ 0x7465_6462_7974_6573,
        ])
    }

    #[inline(always)]
    fn round(&mut self) {
        let [a, b, c, d] = &mut self.0;
        *a = a.wrapping_add(*b);
        *c = c.wrapping_add(*d);
        *b = b.rotate_left(13) ^ *a;
        *d = d.rotate_left(16) ^ *c;
        *a = a.rotate_left(32);
        *c = c.wrapping_add(*b);
        *a = a.wrapping_add(*d);
        *b = b.rotate_left(17) ^ *c;
        *d = d.rotate_left(21) ^ *a;
        *c = c.rotate_left(32);
    }

    #[inline(always)]
    fn absorb(&mut self, word: u64) {
        self.0[3] ^= word;
        self.round();
        self.round();
        self.0[0] ^= word;
    }

    fn finish(mut self, length: u64) -> u64 {
        self.absorb(length << 56);
        self.0[2] ^= 0xff;
        for _ in 0..4 {
            self.round();
        }
        self.0[0] ^ self.0[1] ^ self.0[2] ^ self.0[3]
    }
}

#[cfg(test)]
mod tests {
    use std::hash::Hasher;

    use super::*;

    fn bytes() -> [u8; KEY_BYTES] {
        std::array::from_fn(|at| at as u8)
    }

    #[test]
    fn the_mac_is_siphash_2_4_of_the_nodes_number_and_the_message() {
        let key = Key::new("n1", bytes());
        // The vectors of the SipHash reference for inputs 00 01 02 …
        let message = u64::from_le_bytes(*b"\x00\x01\x02\x03\x04\x05\x06\x07");
        let reference = Key {
            node: message,
            ..key.clone()
        };
        assert_eq!(reference.mac(&[]), 0x93f5_f579_9a93_2462);
        // And another implementation, over every length that messages have.
        let long: Vec<u8> = (0..1408).map(|byte| (byte * 7) as u8).collect();
        for length in (0..=long.len()).step_by(8) {
            let mut other = siphasher::sip::SipHasher24::new_with_keys(key.low, key.high);
            other.write(&key.node.to_le_bytes());
            other.write(&long[..length]);
            assert_eq!(
                key.mac(&[&long[..length]]),
                other.finish(),
                "{length} bytes"
            );
            let (head, tail) = long[..length].split_at(length / 16 * 8);
            assert_eq!(
                key.mac(&[head, tail]),
                other.finish(),
                "{length} bytes in two parts"
            );
        }
    }

    #[test]
    fn what_is_made_for_one_node_is_made_for_no_other_though_the_bytes_are_the_same() {
        let (one, other) = (Key::new("n1", bytes()), Key::new("n2", bytes()));
        assert_ne!(one.mac(&[]), other.mac(&[]));
        assert_ne!(one, other);
        assert_eq!(one, Key::new("n1", bytes()));
    }

    #[test]
    fn a_nodes_number_is_its_names_sha_256() {
        // printf 'tidegate node 1:n1' | sha256sum | head -c 16
        assert_eq!(
            number("n1").to_le_bytes(),
            [0x8e, 0x77, 0x36, 0x2d, 0xfe, 0xf6, 0x57, 0xa5]
        );
    }

    #[test]
    fn a_key_is_never_printed() {
        let printed = format!("{:?}", Key::new("n1", bytes()));
        assert_eq!(printed.len(), "Key(id 0000)".len());
    }
}
