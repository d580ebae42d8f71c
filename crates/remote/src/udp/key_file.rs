//! What stands in key files, and how a master gives each node its key. Pure: the caller reads
//! and writes the files.
//!
//! ```text
//! tidegate-master-1:64 hexadecimal digits        front-ends only
//! tidegate-node-1:NAME:32 hexadecimal digits     that node; what NAME's key is under the master
//! ```
//!
//! A line each; empty lines and those that begin with `#` are left out. The first key is the one to use,
//! the others are there while keys change. A file holds keys of one kind.
//!
//! A node's key is HKDF-SHA256 (RFC 5869) of the master, without salt (the master is uniformly random),
//! with the info string `tidegate node key 1:NAME`: from one node's key follow neither the master nor
//! another node's key.

use std::fmt;

use hkdf::Hkdf;
use sha2::Sha256;

use super::Key;
use super::key::KEY_BYTES;
use crate::memory::random;
use crate::region::RegionError;

/// Most keys of a file.
pub const KEYS_MAX: usize = 8;
/// Most bytes of a key file: its keys, and room for comments.
pub const KEY_FILE_BYTES_MAX: usize = 8192;
/// Most letters of a node's name, as in configurations.
pub const NAME_MAX: usize = 64;
/// Bytes of a master.
const MASTER_BYTES: usize = 32;
const MASTER_PREFIX: &str = "tidegate-master-1:";
const NODE_PREFIX: &str = "tidegate-node-1:";
/// With a node's name behind.
const INFO: &[u8] = b"tidegate node key 1:";

/// Why a file gives no keys. Its text is not repeated: it may be a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyFileError {
    /// Nothing but comments.
    #[error("it holds no key")]
    Empty,
    /// More than there is room for.
    #[error("it holds more than {KEYS_MAX} keys")]
    TooMany,
    /// A line that is none of the two forms.
    #[error("line {line}: {why}")]
    Line {
        /// Counted from 1.
        line: usize,
        /// What is wrong with it.
        why: LineError,
    },
    /// Keys of both kinds.
    #[error("line {line}: a file holds masters or keys of nodes, not both")]
    Mixed {
        /// The first of the other kind.
        line: usize,
    },
    /// A node's key where a master belongs.
    #[error(
        "it holds the key of node `{0}`, and a master is wanted here: `tidegate key new` makes one"
    )]
    MasterWanted(String),
    /// A master where a node's key belongs.
    #[error(
        "it holds a master, which stays on front-ends: `tidegate key derive` gives the node's key"
    )]
    NodeWanted,
}

/// What is wrong with one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// Begins with neither prefix.
    #[error(
        "a key begins with `{MASTER_PREFIX}` or `{NODE_PREFIX}`; `tidegate key new` makes a master"
    )]
    Prefix,
    /// Of another length, or not of hexadecimal digits.
    #[error("the key has {0} hexadecimal digits")]
    Digits(usize),
    /// All bytes the same: this was not drawn at random.
    #[error("a key of one repeated byte is no secret")]
    Weak,
    /// No node is called so.
    #[error("a node's name has 1 to {NAME_MAX} letters, digits, `.`, `-` and `_`")]
    Name,
    /// The same key again.
    #[error("this key stands there already")]
    Twice,
}

/// What gives each node its key. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Master([u8; MASTER_BYTES]);

impl fmt::Debug for Master {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Master(…)")
    }
}

impl Master {
    /// A new one from the system's randomness.
    pub fn random() -> Result<Self, RegionError> {
        let mut bytes = [0; MASTER_BYTES];
        for word in bytes.as_chunks_mut().0 {
            *word = random()?.to_le_bytes();
        }
        Ok(Self(bytes))
    }

    /// The key of the node with this name.
    pub fn derive(&self, node: &str) -> NodeKey {
        let mut bytes = [0; KEY_BYTES];
        let hkdf = Hkdf::<Sha256>::new(None, &self.0);
        let given = hkdf.expand_multi_info(&[INFO, node.as_bytes()], &mut bytes);
        debug_assert!(given.is_ok(), "HKDF gives up to 8160 bytes");
        NodeKey {
            node: node.to_owned(),
            key: Key::new(node, bytes),
        }
    }

    /// Its line in a file.
    pub fn to_line(&self) -> String {
        let digits: String = self.0.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{MASTER_PREFIX}{digits}\n")
    }
}

/// A key, and whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeKey {
    /// The node's name.
    pub node: String,
    /// Its key.
    pub key: Key,
}

impl NodeKey {
    /// One from the system's randomness, that no master gives.
    pub fn random(node: &str) -> Result<Self, RegionError> {
        Ok(Self {
            node: node.to_owned(),
            key: Key::random(node)?,
        })
    }

    /// Its line in a file.
    pub fn to_line(&self) -> String {
        format!("{NODE_PREFIX}{}:{}\n", self.node, self.key.digits())
    }
}

/// The keys of a file, one or more, the one to use first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyFile {
    /// Of a front-end.
    Masters(Vec<Master>),
    /// Of a node.
    Nodes(Vec<NodeKey>),
}

impl KeyFile {
    /// Reads a file's text.
    ///
    /// # Errors
    /// If a line is no key, or the lines are no keys of one kind.
    pub fn parse(text: &str) -> Result<Self, KeyFileError> {
        let (mut masters, mut nodes) = (Vec::new(), Vec::new());
        for (index, text) in text.lines().enumerate() {
            let text = text.trim();
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            let line = index + 1;
            let wrong = |why| KeyFileError::Line { line, why };
            match Line::parse(text).map_err(wrong)? {
                Line::Master(master) => push(&mut masters, master).map_err(wrong)?,
                Line::Node(node) => push(&mut nodes, node).map_err(wrong)?,
            }
            if !masters.is_empty() && !nodes.is_empty() {
                return Err(KeyFileError::Mixed { line });
            }
            if masters.len().max(nodes.len()) > KEYS_MAX {
                return Err(KeyFileError::TooMany);
            }
        }
        match (masters.is_empty(), nodes.is_empty()) {
            (true, true) => Err(KeyFileError::Empty),
            (false, _) => Ok(Self::Masters(masters)),
            (true, false) => Ok(Self::Nodes(nodes)),
        }
    }

    /// The masters of a front-end's file.
    ///
    /// # Errors
    /// If it is a node's.
    pub fn masters(self) -> Result<Vec<Master>, KeyFileError> {
        match self {
            Self::Masters(masters) => Ok(masters),
            Self::Nodes(nodes) => {
                let node = nodes.into_iter().next().map(|first| first.node);
                Err(KeyFileError::MasterWanted(node.unwrap_or_default()))
            }
        }
    }

    /// The keys of a node's file.
    ///
    /// # Errors
    /// If it is a front-end's.
    pub fn nodes(self) -> Result<Vec<NodeKey>, KeyFileError> {
        match self {
            Self::Nodes(nodes) => Ok(nodes),
            Self::Masters(_) => Err(KeyFileError::NodeWanted),
        }
    }
}

fn push<T: PartialEq>(all: &mut Vec<T>, one: T) -> Result<(), LineError> {
    if all.contains(&one) {
        return Err(LineError::Twice);
    }
    all.push(one);
    Ok(())
}

enum Line {
    Master(Master),
    Node(NodeKey),
}

impl Line {
    fn parse(text: &str) -> Result<Self, LineError> {
        if let Some(digits) = text.strip_prefix(MASTER_PREFIX) {
            return Ok(Self::Master(Master(bytes(digits)?)));
        }
        let rest = text.strip_prefix(NODE_PREFIX).ok_or(LineError::Prefix)?;
        let (node, digits) = rest.split_once(':').ok_or(LineError::Name)?;
        if !is_name(node) {
            return Err(LineError::Name);
        }
        Ok(Self::Node(NodeKey {
            node: node.to_owned(),
            key: Key::new(node, bytes(digits)?),
        }))
    }
}

/// Whether a node may be called so.
pub fn is_name(node: &str) -> bool {
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    // Dots alone are other folders, in paths of URLs too.
    let is_folder = node.bytes().all(|byte| byte == b'.');
    (1..=NAME_MAX).contains(&node.len()) && node.bytes().all(letter) && !is_folder
}

/// The bytes that so many hexadecimal digits stand for, in either case.
fn bytes<const N: usize>(digits: &str) -> Result<[u8; N], LineError> {
    let wrong = LineError::Digits(2 * N);
    let mut bytes = [0; N];
    if digits.len() != 2 * N {
        return Err(wrong);
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.as_bytes().as_chunks::<2>().0) {
        let digit = |at: usize| char::from(pair[at]).to_digit(16).ok_or(wrong);
        *byte = (digit(0)? * 16 + digit(1)?) as u8;
    }
    match bytes.iter().all(|byte| *byte == bytes[0]) {
        true => Err(LineError::Weak),
        false => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MASTER: &str =
        "tidegate-master-1:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n";
    const NODE: &str = "tidegate-node-1:n1:30afb7eb8b45610a88ad81505cc8d760\n";

    fn master() -> Master {
        let masters = KeyFile::parse(MASTER).unwrap().masters().unwrap();
        masters.into_iter().next().unwrap()
    }

    /// Of the first expectation another implementation of RFC 5869 gave the digits.
    #[test]
    fn a_node_key_is_hkdf_sha256_of_the_master_and_the_name() {
        assert_eq!(master().derive("n1").to_line(), NODE);
        let others = ["n2", "N1", "n1.", "n"].map(|name| master().derive(name));
        assert!(
            others
                .iter()
                .all(|other| other.key != master().derive("n1").key)
        );
        let again = Master::random().unwrap().derive("n1");
        assert_ne!(again.key, master().derive("n1").key);
    }

    #[test]
    fn lines_come_back() {
        assert_eq!(master().to_line(), MASTER);
        let random = Master::random().unwrap();
        assert_eq!(
            KeyFile::parse(&random.to_line()),
            Ok(KeyFile::Masters(vec![random]))
        );
        let text = format!(
            "# old and new\n\n  {}\r\n{NODE}",
            NODE.to_uppercase().trim()
        );
        assert!(KeyFile::parse(&text).is_err(), "prefixes are in lower case");
        let other = master().derive("n2");
        let text = format!("# two\n\n  {}  \r\n{}", NODE.trim(), other.to_line());
        let nodes = KeyFile::parse(&text).unwrap().nodes().unwrap();
        assert_eq!(nodes, [master().derive("n1"), other]);
    }

    #[test]
    fn a_mix_up_of_the_two_kinds_is_said() {
        let why = KeyFile::parse(MASTER).unwrap().nodes().unwrap_err();
        assert!(why.to_string().contains("tidegate key derive"), "{why}");
        let why = KeyFile::parse(NODE).unwrap().masters().unwrap_err();
        assert_eq!(why, KeyFileError::MasterWanted("n1".into()));
        assert!(why.to_string().contains("tidegate key new"), "{why}");
        let mixed = KeyFile::parse(&format!("{MASTER}\n{NODE}"));
        assert_eq!(mixed, Err(KeyFileError::Mixed { line: 3 }));
    }

    #[test]
    fn what_is_no_key_is_refused_without_repeating_it() {
        let line = |why| KeyFileError::Line { line: 2, why };
        let cases = [
            ("0123456789abcdef0123456789abcdef", line(LineError::Prefix)),
            ("tidegate-master-2:00", line(LineError::Prefix)),
            ("tidegate-master-1:0011", line(LineError::Digits(64))),
            ("tidegate-node-1:n1", line(LineError::Name)),
            (
                "tidegate-node-1::00112233445566778899aabbccddeeff",
                line(LineError::Name),
            ),
            (
                "tidegate-node-1:n 1:00112233445566778899aabbccddeeff",
                line(LineError::Name),
            ),
            (
                "tidegate-node-1:n1:00112233445566778899aabbccddeef",
                line(LineError::Digits(32)),
            ),
            (
                "tidegate-node-1:n1:00112233445566778899aabbccddeeff0",
                line(LineError::Digits(32)),
            ),
            (
                "tidegate-node-1:n1:0011223344556677é99aabbccddeeff",
                line(LineError::Digits(32)),
            ),
            (
                "tidegate-node-1:n1:+011223344556677889aabbccddeeff0",
                line(LineError::Digits(32)),
            ),
            (
                "tidegate-node-1:n1:11111111111111111111111111111111",
                line(LineError::Weak),
            ),
        ];
        for (text, why) in cases {
            let refused = KeyFile::parse(&format!("# a key\n{text}\n")).unwrap_err();
            assert_eq!(refused, why, "{text}");
            assert!(!refused.to_string().contains("0011"), "{refused}");
        }
        assert_eq!(KeyFile::parse("\n# nothing\n"), Err(KeyFileError::Empty));
        let twice = KeyFile::parse(&format!("{NODE}{NODE}"));
        assert_eq!(twice, Err(line(LineError::Twice)));
    }

    #[test]
    fn a_file_holds_eight_keys_at_most() {
        let all = |count| -> String {
            (0..count)
                .map(|node| master().derive(&format!("n{node}")).to_line())
                .collect()
        };
        assert_eq!(KeyFile::parse(&all(8)).unwrap().nodes().unwrap().len(), 8);
        assert_eq!(KeyFile::parse(&all(9)), Err(KeyFileError::TooMany));
        assert!(all(8).len() < KEY_FILE_BYTES_MAX);
    }

    #[test]
    fn a_master_is_never_printed() {
        assert_eq!(format!("{:?}", master()), "Master(…)");
        assert!(!format!("{:?}", master().derive("n1")).contains("30af"));
    }
}
