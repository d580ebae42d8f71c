//! The shared secret of front-ends and nodes, and the MAC made with it.
//!
//! SipHash-2-4 (Aumasson and Bernstein, 2012): a keyed function made for short inputs, with a
//! tag of 64 bits. Forging one takes 2^63 tries on average, each of them a datagram on the wire.

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use crate::memory::random;
use crate::region::RegionError;

/// Bytes of a key.
const KEY_BYTES: usize = 16;
/// Most bytes of a key file: the digits and some white space around them.
const FILE_BYTES_MAX: u64 = 256;
/// What the key's public number is made from.
const ID_TEXT: &[u8; 8] = b"TGkeyid1";

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// Not 32 hexadecimal digits. The text itself is not repeated: it may be a secret.
    #[error("a key is {} hexadecimal digits; this has {digits} characters", KEY_BYTES * 2)]
    Format {
        /// Characters given.
        digits: usize,
    },
    /// All digits the same: nobody drew this at random.
    #[error("a key of one repeated byte is no secret")]
    Weak,
    /// The file cannot be read.
    #[error("key file {path}: {error}")]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
}

/// A 128-bit key. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Key {
    low: u64,
    high: u64,
    id: u16,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The number goes over the wire in the clear anyway.
        write!(f, "Key(id {:04x})", self.id)
    }
}

impl Key {
    /// The key with these bytes.
    pub fn from_bytes(bytes: [u8; KEY_BYTES]) -> Self {
        let (words, _) = bytes.as_chunks();
        let mut key = Self {
            low: u64::from_le_bytes(words[0]),
            high: u64::from_le_bytes(words[1]),
            id: 0,
        };
        key.id = key.mac(&[ID_TEXT]) as u16;
        key
    }

    /// The key with these 32 hexadecimal digits, in either case, white space around them or not.
    pub fn from_hex(text: &str) -> Result<Self, KeyError> {
        let text = text.trim();
        let wrong = || KeyError::Format {
            digits: text.chars().count(),
        };
        let mut bytes = [0; KEY_BYTES];
        if text.len() != 2 * KEY_BYTES || !text.is_ascii() {
            return Err(wrong());
        }
        for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().as_chunks::<2>().0) {
            let digit = |at: usize| char::from(digits[at]).to_digit(16).ok_or_else(wrong);
            *byte = (digit(0)? * 16 + digit(1)?) as u8;
        }
        if bytes.iter().all(|byte| *byte == bytes[0]) {
            return Err(KeyError::Weak);
        }
        Ok(Self::from_bytes(bytes))
    }

    /// The key in a file: its 32 hexadecimal digits.
    pub fn from_file(path: &Path) -> Result<Self, KeyError> {
        let mut text = String::new();
        File::open(path)
            .and_then(|file| file.take(FILE_BYTES_MAX).read_to_string(&mut text))
            .map_err(|error| KeyError::File {
                path: path.to_path_buf(),
                error,
            })?;
        Self::from_hex(&text)
    }

    /// A new key from the system's randomness.
    pub fn random() -> Result<Self, RegionError> {
        let (low, high) = (random()?, random()?);
        let mut bytes = [0; KEY_BYTES];
        bytes[..8].copy_from_slice(&low.to_le_bytes());
        bytes[8..].copy_from_slice(&high.to_le_bytes());
        Ok(Self::from_bytes(bytes))
    }

    /// The digits, for writing a key file.
    pub fn to_hex(&self) -> String {
        let [low, high] = [self.low, self.high].map(u64::swap_bytes);
        format!("{low:016x}{high:016x}")
    }

    /// The key's public number: tells a node with several keys which one was used.
    pub fn id(&self) -> u16 {
        self.id
    }

    /// As the kernel's programs hold it: the key's two words, its number, and that it is used.
    pub(crate) fn to_kernel(&self) -> [u8; 24] {
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&self.low.to_ne_bytes());
        bytes[8..16].copy_from_slice(&self.high.to_ne_bytes());
        bytes[16..20].copy_from_slice(&u32::from(self.id).to_ne_bytes());
        bytes[20..].copy_from_slice(&1_u32.to_ne_bytes());
        bytes
    }

    /// SipHash-2-4 of the parts one after the other. Each is a whole number of 64-bit words.
    pub(crate) fn mac(&self, parts: &[&[u8]]) -> u64 {
        let mut state = State::new(self.low, self.high);
        let mut length = 0;
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

/// The four words that SipHash turns round.
struct State([u64; 4]);

impl State {
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

    const HEX: &str = "000102030405060708090a0b0c0d0e0f";

    #[test]
    fn the_mac_is_siphash_2_4() {
        let key = Key::from_hex(HEX).unwrap();
        // The vectors of the SipHash reference for inputs 00 01 02 …
        let input: Vec<u8> = (0..64).collect();
        assert_eq!(key.mac(&[]), 0x726f_db47_dd0e_0e31);
        assert_eq!(key.mac(&[&input[..8]]), 0x93f5_f579_9a93_2462);
        // And another implementation, over every length that messages have.
        let long: Vec<u8> = (0..1408).map(|byte| (byte * 7) as u8).collect();
        for length in (0..=long.len()).step_by(8) {
            let mut other = siphasher::sip::SipHasher24::new_with_keys(key.low, key.high);
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
    fn keys_are_read_and_written_as_hex() {
        let key = Key::from_hex(&format!("  {}\n", HEX.to_uppercase())).unwrap();
        assert_eq!(key.to_hex(), HEX);
        assert_eq!(Key::from_hex(HEX).unwrap(), key);
        let random = Key::random().unwrap();
        assert_eq!(Key::from_hex(&random.to_hex()).unwrap(), random);
    }

    #[test]
    fn wrong_keys_are_refused_without_repeating_them() {
        for text in [
            "",
            "0011",
            "zz0102030405060708090a0b0c0d0e0f",
            "é00102030405060708090a0b0c0d0e",
        ] {
            let refused = Key::from_hex(text).unwrap_err();
            assert!(matches!(refused, KeyError::Format { .. }), "{text:?}");
            assert!(text.is_empty() || !refused.to_string().contains(text));
        }
        assert!(matches!(
            Key::from_hex(&"00".repeat(16)),
            Err(KeyError::Weak)
        ));
        let missing = Key::from_file(Path::new("/nonexistent/key"));
        assert!(matches!(missing, Err(KeyError::File { .. })));
    }

    #[test]
    fn a_key_is_never_printed() {
        let printed = format!("{:?}", Key::from_hex(HEX).unwrap());
        assert_eq!(printed.len(), "Key(id 0000)".len());
    }
}
