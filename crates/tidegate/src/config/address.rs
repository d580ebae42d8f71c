//! Where a node is: an address, or a host name that is looked up while the front-end runs.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use toml::de::DeValue;

use super::problem::{Problem, Problems};
use super::setting::{Encoded, Raw, Setting, quoted, wrong_type};

/// Longest host name, bytes (RFC 1035).
const HOST_MAX: usize = 253;

/// Where a node is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NodeAddress {
    /// There.
    At(SocketAddr),
    /// Where this name leads.
    Host {
        /// The name.
        host: String,
        /// The port.
        port: u16,
    },
}

/// Whether two sockets cannot listen at these addresses at the same time: the same port, and the same address or one for
/// all. One for all addresses of IPv6 takes those of IPv4 too.
pub(crate) fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    if one.port() != other.port() || one.port() == 0 {
        return false;
    }
    let (one, other) = (one.ip().to_canonical(), other.ip().to_canonical());
    let all = |ip: IpAddr, of: IpAddr| ip.is_unspecified() && (ip.is_ipv6() || of.is_ipv4());
    one == other || all(one, other) || all(other, one)
}

impl NodeAddress {
    /// The address, if it is one.
    pub(crate) fn fixed(&self) -> Option<SocketAddr> {
        match self {
            Self::At(address) => Some(*address),
            Self::Host { .. } => None,
        }
    }

    /// The port.
    pub(crate) fn port(&self) -> u16 {
        match self {
            Self::At(address) => address.port(),
            Self::Host { port, .. } => *port,
        }
    }

    /// Reads `10.0.0.11:80`, `[::1]:80` or `web.internal:80`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if let Ok(address) = text.parse() {
            return Some(Self::At(address));
        }
        let (host, port) = text.rsplit_once(':')?;
        let port = port.parse().ok()?;
        is_host(host).then(|| Self::Host {
            host: host.into(),
            port,
        })
    }
}

impl fmt::Display for NodeAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(address) => address.fmt(out),
            Self::Host { host, port } => write!(out, "{host}:{port}"),
        }
    }
}

/// Whether a text is a name that can be looked up. The last part of one has a letter: what has none is meant as an address.
pub(crate) fn is_host(text: &str) -> bool {
    let part = |part: &str| {
        let letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        (1..=63).contains(&part.len()) && part.bytes().all(letter) && !part.starts_with('-')
    };
    let name = text.strip_suffix('.').unwrap_or(text);
    let last = name.rsplit('.').next().unwrap_or_default();
    (1..=HOST_MAX).contains(&text.len())
        && name.split('.').all(part)
        && last.contains(|it: char| it.is_ascii_alphabetic())
}

impl Setting for NodeAddress {
    fn kind() -> String {
        "an address or a host name, and a port".into()
    }

    fn decode(raw: &Raw<'_>, problems: &mut Problems) -> Option<Self> {
        let DeValue::String(text) = raw.get_ref() else {
            return wrong_type(raw, &Self::kind(), problems);
        };
        let parsed = Self::parse(text);
        if parsed.is_none() {
            let is_portless = text.parse::<IpAddr>().is_ok() || is_host(text);
            let label = match is_portless {
                true => "the port is missing",
                false => "neither an address nor a host name",
            };
            problems.push(
                Problem::new(raw.span(), format!("bad address `{text}`"), label).help(
                    "an address or a host name, and a port, like \"10.0.0.11:80\", \"[::1]:80\" or \
                     \"web.internal:80\"",
                ),
            );
        }
        parsed
    }

    fn encode(&self) -> Encoded {
        quoted(&self.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_names_are_told_from_what_is_neither() {
        for good in [
            "10.0.0.1:80",
            "[::1]:80",
            "web:80",
            "web.internal.:8080",
            "a_b.c-d.e1:1",
            "1.a:80",
        ] {
            let parsed = NodeAddress::parse(good).unwrap();
            assert_eq!(parsed.to_string(), good);
        }
        let long = format!("{}:80", "a.".repeat(200));
        for bad in [
            "",
            ":80",
            "web",
            "10.0.0.256:80",
            "10.0.0:80",
            "web:",
            "web:65536",
            "we b:80",
            "-a:80",
            "a..b:80",
            "http://web:80",
            "::1:80x",
            &long,
        ] {
            assert_eq!(NodeAddress::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn an_address_stands_in_the_way_of_the_same_and_of_all() {
        for (taken, wanted, expected) in [
            ("127.0.0.1:80", "127.0.0.1:80", true),
            ("127.0.0.1:80", "127.0.0.1:81", false),
            ("127.0.0.1:80", "10.0.0.1:80", false),
            ("0.0.0.0:80", "10.0.0.1:80", true),
            ("10.0.0.1:80", "0.0.0.0:80", true),
            ("[::]:80", "10.0.0.1:80", true),
            ("10.0.0.1:80", "[::]:80", true),
            ("0.0.0.0:80", "[::1]:80", false),
            ("[::]:80", "[::1]:80", true),
            ("[::ffff:10.0.0.1]:80", "10.0.0.1:80", true),
            ("[::ffff:0.0.0.0]:80", "10.0.0.1:80", true),
            ("0.0.0.0:0", "0.0.0.0:0", false),
        ] {
            assert_eq!(
                overlap(taken.parse().unwrap(), wanted.parse().unwrap()),
                expected,
                "{taken} {wanted}"
            );
        }
    }
}
