//! Which nodes of an answer can be used: answers come from other machines, and are hostile.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use super::Announced;

/// Longest name, bytes, as in key files.
const NAME_MAX: usize = 64;
/// Weights as in the configuration.
const WEIGHT_MIN: f32 = 0.001;
const WEIGHT_MAX: f32 = 1000.0;

/// Why a node cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// Its name has other letters, or too many.
    Name,
    /// No server can be at its address.
    Address,
    /// Its weight is no number or out of range.
    Weight,
    /// Another node of the answer has its name.
    SameName,
    /// Another node of the answer has its address.
    SameAddress,
}

impl fmt::Display for Unfit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Name => "a name has 1 to 64 letters, digits, `.`, `-` and `_`",
            Self::Address => "no server can be at its address",
            Self::Weight => "its weight is not from 0.001 to 1000",
            Self::SameName => "another node of the answer has its name",
            Self::SameAddress => "another node of the answer has its address",
        })
    }
}

/// The nodes that can be used by their names, and the names of the others.
pub(super) fn sort(nodes: Vec<Announced>) -> (BTreeMap<String, Announced>, Vec<(String, Unfit)>) {
    let mut fit: BTreeMap<String, Announced> = BTreeMap::new();
    let mut refused = Vec::new();
    let mut addresses = BTreeSet::new();
    for node in nodes {
        let unfit = match node.check() {
            Err(unfit) => Some(unfit),
            Ok(()) if fit.contains_key(&node.name) => Some(Unfit::SameName),
            Ok(()) if !addresses.insert(node.address) => Some(Unfit::SameAddress),
            Ok(()) => None,
        };
        match unfit {
            Some(unfit) => refused.push((printable(&node.name), unfit)),
            None => drop(fit.insert(node.name.clone(), node)),
        }
    }
    (fit, refused)
}

impl Announced {
    /// Whether it can be used by itself.
    pub fn check(&self) -> Result<(), Unfit> {
        let letter = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
        let name = &self.name;
        if !(1..=NAME_MAX).contains(&name.len()) || !name.bytes().all(letter) {
            return Err(Unfit::Name);
        }
        if !can_serve(self.address) {
            return Err(Unfit::Address);
        }
        match (WEIGHT_MIN..=WEIGHT_MAX).contains(&self.weight) {
            true => Ok(()),
            false => Err(Unfit::Weight),
        }
    }
}

/// Whether a server can be there: not at port 0, nor at an address that is no single machine's.
pub fn can_serve(address: SocketAddr) -> bool {
    let ip = address.ip().to_canonical();
    let everywhere = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
    address.port() != 0 && !ip.is_unspecified() && !ip.is_multicast() && !everywhere
}

/// A name that is safe to log.
fn printable(name: &str) -> String {
    let letters = name.chars().take(NAME_MAX);
    let safe = |letter: char| match letter.is_ascii_graphic() {
        true => letter,
        false => '?',
    };
    letters.map(safe).collect()
}
