//! Socket addresses as the kernel's batched calls take them, and lists of networks.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::str::FromStr;

/// Bytes of the longest address used here, `sockaddr_in6`.
pub(crate) const NAME_BYTES: usize = size_of::<libc::sockaddr_in6>();
const V4_BYTES: usize = size_of::<libc::sockaddr_in>();

/// A `sockaddr_in` or `sockaddr_in6` as bytes.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
pub(crate) struct Name {
    /// The bytes.
    pub(crate) bytes: [u8; NAME_BYTES],
    /// How many of them count.
    pub(crate) length: u32,
}

impl Name {
    /// Room for an address that the kernel fills in.
    pub(crate) const ROOM: Self = Self {
        bytes: [0; NAME_BYTES],
        length: NAME_BYTES as u32,
    };

    /// The address that the kernel gave, if it is of a family used here.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        let bytes = self.bytes.get(..self.length as usize)?;
        let family = i32::from(u16::from_ne_bytes(*bytes.first_chunk()?));
        let port = u16::from_be_bytes([*bytes.get(2)?, *bytes.get(3)?]);
        match family {
            libc::AF_INET => {
                let ip: &[u8; 4] = bytes.get(4..)?.first_chunk()?;
                Some(SocketAddrV4::new(Ipv4Addr::from(*ip), port).into())
            }
            libc::AF_INET6 => {
                let ip: &[u8; 16] = bytes.get(8..)?.first_chunk()?;
                let scope = u32::from_ne_bytes(*bytes.get(24..)?.first_chunk()?);
                Some(SocketAddrV6::new(Ipv6Addr::from(*ip), port, 0, scope).into())
            }
            _ => None,
        }
    }
}

impl From<SocketAddr> for Name {
    fn from(address: SocketAddr) -> Self {
        let mut name = Self::ROOM;
        name.bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
        let family = match address {
            SocketAddr::V4(v4) => {
                name.bytes[4..8].copy_from_slice(&v4.ip().octets());
                name.length = V4_BYTES as u32;
                libc::AF_INET
            }
            SocketAddr::V6(v6) => {
                name.bytes[8..24].copy_from_slice(&v6.ip().octets());
                name.bytes[24..28].copy_from_slice(&v6.scope_id().to_ne_bytes());
                libc::AF_INET6
            }
        };
        // Families are small numbers.
        name.bytes[..2].copy_from_slice(&(family as u16).to_ne_bytes());
        name
    }
}

/// A network, as `10.0.0.0/8` or a single address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

/// Why a text is no network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a network such as 10.0.0.0/8 or fd00::/8")]
pub struct NetworkError(String);

impl Network {
    /// Whether the address lies in it. An IPv4 address in an IPv6 coat counts as what it is.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let shift = 32 - u32::from(self.prefix);
                let differ = own.to_bits() ^ other.to_bits();
                differ.checked_shr(shift).unwrap_or(0) == 0
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let shift = 128 - u32::from(self.prefix);
                let differ = own.to_bits() ^ other.to_bits();
                differ.checked_shr(shift).unwrap_or(0) == 0
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

impl Network {
    /// As the kernel's programs look it up: bits of prefix, then an IPv6 address. An IPv4
    /// address wears its coat.
    pub(crate) fn to_kernel(self) -> [u8; 20] {
        let (address, prefix) = match self.address {
            IpAddr::V4(v4) => (v4.to_ipv6_mapped(), self.prefix + 96),
            IpAddr::V6(v6) => (v6, self.prefix),
        };
        let mut bytes = [0; 20];
        bytes[..4].copy_from_slice(&u32::from(prefix).to_ne_bytes());
        bytes[4..].copy_from_slice(&address.octets());
        bytes
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let wrong = || NetworkError(text.to_owned());
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            Some(prefix) => prefix.parse().map_err(|_| wrong())?,
            None => bits,
        };
        if prefix > bits {
            return Err(wrong());
        }
        Ok(Self { address, prefix })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_back() {
        for text in [
            "127.0.0.1:9901",
            "[::1]:9901",
            "[fe80::1%3]:1",
            "255.255.255.255:65535",
        ] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(Name::from(address).address(), Some(address));
        }
        assert_eq!(Name::ROOM.address(), None, "no family");
        let cut = Name {
            length: 3,
            ..Name::from("127.0.0.1:9901".parse::<SocketAddr>().unwrap())
        };
        assert_eq!(cut.address(), None);
    }

    #[test]
    fn networks_contain_what_they_say() {
        for (network, address, contained) in [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("10.0.0.0/8", "::ffff:10.0.0.1", true),
            ("10.0.0.0/8", "fd00::1", false),
            ("0.0.0.0/0", "8.8.8.8", true),
            ("::/0", "fd00::1", true),
            ("fd00::/8", "fd12::1", true),
            ("fd00::/8", "fe12::1", false),
            ("192.0.2.7", "192.0.2.7", true),
            ("192.0.2.7", "192.0.2.6", false),
        ] {
            let parsed: Network = network.parse().unwrap();
            assert_eq!(
                parsed.contains(address.parse().unwrap()),
                contained,
                "{network} {address}"
            );
        }
        for text in [
            "",
            "10.0.0.0/33",
            "10.0.0.0/",
            "10.0.0/8",
            "::/129",
            "host/8",
        ] {
            assert!(text.parse::<Network>().is_err(), "{text:?}");
        }
    }
}
