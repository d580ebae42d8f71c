//! What is kept of a request to fold it later: the beginning of its method and target, in bytes of its own.

use std::fmt;

use super::WORDS_BYTES_MAX;

/// The path alone is shown up to this many bytes.
const PATH_BYTES: usize = 80;

/// Method and target of a request, or their beginning.
#[derive(Clone, Copy)]
pub struct Words {
    /// Those behind the length mean nothing.
    bytes: [u8; WORDS_BYTES_MAX],
    length: u8,
    target_from: u8,
    path_to: u8,
}

const _: () = assert!(WORDS_BYTES_MAX <= u8::MAX as usize);

impl Default for Words {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl PartialEq for Words {
    fn eq(&self, other: &Self) -> bool {
        let of = |words: &Self| (words.length, words.target_from, words.path_to);
        let length = usize::from(self.length);
        of(self) == of(other) && self.bytes[..length] == other.bytes[..length]
    }
}

impl Eq for Words {}

impl fmt::Debug for Words {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}", self.method(), self.target())
    }
}

impl Words {
    /// Of no request.
    pub const EMPTY: Self = Self {
        bytes: [0; WORDS_BYTES_MAX],
        length: 0,
        target_from: 0,
        path_to: 0,
    };

    /// Of a target whose path is so many bytes long.
    pub fn new(method: &str, target: &str, path_length: usize) -> Self {
        let mut words = Self::default();
        words.set(method, target, path_length);
        words
    }

    /// These are the words from now on. In place: on a request's way a copy costs more than what it copies.
    pub fn set(&mut self, method: &str, target: &str, path_length: usize) {
        let (method, target) = (method.as_bytes(), target.as_bytes());
        // No method has this length.
        let method = &method[..method.len().min(WORDS_BYTES_MAX / 2)];
        let from = method.len();
        let to = WORDS_BYTES_MAX.min(from + target.len());
        self.bytes[..from].copy_from_slice(method);
        self.bytes[from..to].copy_from_slice(&target[..to - from]);
        self.target_from = from as u8;
        self.path_to = to.min(from + path_length.min(PATH_BYTES)) as u8;
        self.length = to as u8;
    }

    /// Of a method and a target.
    pub fn of(method: &str, target: &str) -> Self {
        let path = target.split('?').next().unwrap_or_default();
        Self::new(method, target, path.len())
    }

    /// Like `GET`.
    pub fn method(&self) -> &str {
        self.text(0, self.target_from)
    }

    /// Path and query, as the client sent them.
    pub fn target(&self) -> &str {
        self.text(self.target_from, self.length)
    }

    /// The beginning of the path.
    pub fn path(&self) -> &str {
        self.text(self.target_from, self.path_to)
    }

    /// A number that words which are alike share, and few others. For places in caches: it is no secret how to find others with it.
    pub fn digest(&self) -> u64 {
        const ODD: u64 = 0x517c_c1b7_2722_0a95;
        let words = self.bytes[..usize::from(self.length)].chunks(8);
        words.fold(u64::from(self.target_from), |digest, chunk| {
            let mut bytes = [0; 8];
            bytes[..chunk.len()].copy_from_slice(chunk);
            (digest.rotate_left(5) ^ u64::from_le_bytes(bytes)).wrapping_mul(ODD)
        })
    }

    fn text(&self, from: u8, to: u8) -> &str {
        let bytes = &self.bytes[usize::from(from)..usize::from(to)];
        match std::str::from_utf8(bytes) {
            Ok(text) => text,
            // Cut in the middle of a character.
            Err(error) => std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_cut_where_they_are_too_long() {
        let words = Words::new("GET", "/a/\u{e4}?q=1", 5);
        assert_eq!((words.method(), words.target()), ("GET", "/a/\u{e4}?q=1"));
        assert_eq!(words.path(), "/a/\u{e4}");
        // A cut in the middle of a character takes all of it away.
        assert_eq!(Words::new("GET", "/\u{e4}", 2).path(), "/");
        let long = "/".repeat(500);
        let words = Words::new("OPTIONS", &long, 500);
        assert_eq!(words.target().len(), WORDS_BYTES_MAX - "OPTIONS".len());
        assert_eq!(words.path().len(), PATH_BYTES);
        let words = Words::new(&long, &long, 1);
        assert_eq!(words.method().len() + words.target().len(), WORDS_BYTES_MAX);
        assert_eq!(Words::default().target(), "");
    }

    #[test]
    fn nothing_of_former_words_is_left() {
        let mut words = Words::new("OPTIONS", "/long/and?longer", 9);
        words.set("GET", "/a?b", 2);
        assert_eq!(words, Words::new("GET", "/a?b", 2));
        assert_eq!((words.method(), words.target()), ("GET", "/a?b"));
        assert_eq!(words.path(), "/a");
        assert_ne!(words, Words::new("GET", "/a?c", 2));
        assert_ne!(words, Words::new("GET", "/a?b", 1));
    }
}
