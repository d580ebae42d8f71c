//! The header of the PROXY protocol, by which a balancer before us says whose connection it passes on.
//!
//! ```text
//! version 1   PROXY TCP4|TCP6 SOURCE DESTINATION PORT PORT CR LF, or PROXY UNKNOWN … CR LF; at most 107 bytes
//! version 2   signature (12), version and command (1), family and protocol (1), length (2), addresses, more fields
//! ```
//!
//! Inputs of reading: what has come of it so far. It says how many bytes more are certainly the header's, so no byte of what follows
//! is read. The fields of version 2 behind the addresses are passed over; `LOCAL`, `UNKNOWN` and other families than TCP's say
//! nothing of a client.
//!
//! Inputs of writing: both ends of a client's connection. Where one is of IPv4 and the other of IPv6, both are written as IPv6
//! (RFC 4291 §2.5.5.2). A connection of our own (a check) is `UNKNOWN` or `LOCAL`. Version 2 is written without more fields.
//!
//! Failure case: a header names any client that its sender likes. It is read from senders that are configured, and from no other.
//! Source: PROXY-PROTOCOL (HAProxy's document), sections 2.1 and 2.2.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The first bytes of version 2: no text, and no beginning of anything else that is served.
const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// The first bytes of version 1.
const TEXT: &[u8] = b"PROXY ";
/// Longest header of version 1.
const TEXT_MAX: usize = 107;
/// Shortest one, `PROXY UNKNOWN` and the end of the line.
const TEXT_MIN: usize = 15;
/// Bytes of version 2 before the addresses.
const FIXED: usize = 16;
/// Bytes behind them that are taken.
const REST_MAX: usize = 2048;
/// Version 2 with the commands `LOCAL` and `PROXY`.
const LOCAL: u8 = 0x20;
const PROXY: u8 = 0x21;
/// Families and protocols.
const TCP4: u8 = 0x11;
const TCP6: u8 = 0x21;

/// Both ends of a client's connection, wherever that ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ends {
    /// The client.
    pub(crate) source: SocketAddr,
    /// Where it has connected to.
    pub(crate) destination: SocketAddr,
}

/// The form in which headers are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyVersion {
    /// A line of text.
    Text,
    /// Bytes, version 2.
    Binary,
}

impl ProxyVersion {
    /// The whole header of a connection of our own, such as a check, which is no client's.
    pub const fn of_own(self) -> &'static [u8] {
        match self {
            Self::Text => b"PROXY UNKNOWN\r\n",
            Self::Binary => b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0",
        }
    }

    /// The whole header of a client's connection with these ends.
    pub(crate) fn of_client(self, ends: Ends) -> Vec<u8> {
        let Ends {
            source,
            destination,
        } = ends;
        let ports = [source.port(), destination.port()];
        match (
            self,
            source.ip().to_canonical(),
            destination.ip().to_canonical(),
        ) {
            (Self::Text, IpAddr::V4(from), IpAddr::V4(to)) => {
                format!("PROXY TCP4 {from} {to} {} {}\r\n", ports[0], ports[1]).into_bytes()
            }
            (Self::Text, from, to) => {
                let [from, to] = [from, to].map(six);
                format!("PROXY TCP6 {from} {to} {} {}\r\n", ports[0], ports[1]).into_bytes()
            }
            (Self::Binary, IpAddr::V4(from), IpAddr::V4(to)) => {
                version_2(TCP4, &[&from.octets(), &to.octets()], ports)
            }
            (Self::Binary, from, to) => {
                let [from, to] = [from, to].map(|it| six(it).octets());
                version_2(TCP6, &[&from, &to], ports)
            }
        }
    }
}

fn six(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

fn version_2(family: u8, addresses: &[&[u8]; 2], ports: [u16; 2]) -> Vec<u8> {
    let [from, to] = *addresses;
    let ports = ports.map(u16::to_be_bytes);
    let rest = [from, to, &ports[0], &ports[1]].concat();
    // 12 or 36.
    let length = [0, rest.len() as u8];
    [SIGNATURE, &[PROXY, family], &length, &rest].concat()
}

/// What becomes of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProxyHeader {
    /// So many bytes more are its own.
    Needs(usize),
    /// All of it is here: the ends of the client's connection, if it says them.
    Whole(Option<Ends>),
    /// It is none.
    Bad,
}

/// Looks at what has come so far.
pub(crate) fn read(so_far: &[u8]) -> ProxyHeader {
    let begins = |wanted: &[u8]| so_far.iter().zip(wanted).all(|(byte, own)| byte == own);
    if so_far.len() < SIGNATURE.len() {
        return match begins(SIGNATURE) || begins(TEXT) {
            true => ProxyHeader::Needs(SIGNATURE.len() - so_far.len()),
            false => ProxyHeader::Bad,
        };
    }
    if begins(SIGNATURE) {
        return binary(so_far);
    }
    match begins(TEXT) {
        true => text(so_far),
        false => ProxyHeader::Bad,
    }
}

fn text(so_far: &[u8]) -> ProxyHeader {
    let Some(line) = so_far.strip_suffix(b"\r\n") else {
        // Whatever is missing, the end of the line is.
        let missing = match so_far.last() {
            Some(b'\r') => 1,
            Some(_) | None => 2,
        };
        let needs = missing.max(TEXT_MIN.saturating_sub(so_far.len()));
        let is_line = !so_far.contains(&b'\n') && so_far.len() + needs <= TEXT_MAX;
        return match is_line {
            true => ProxyHeader::Needs(needs),
            false => ProxyHeader::Bad,
        };
    };
    match std::str::from_utf8(line).ok().and_then(ends) {
        Some(ends) => ProxyHeader::Whole(ends),
        None => ProxyHeader::Bad,
    }
}

/// The ends that a line says, if it is one of the protocol.
fn ends(line: &str) -> Option<Option<Ends>> {
    let mut words = line.split(' ').skip(1);
    let (source, destination) = match words.next()? {
        // What follows means nothing.
        "UNKNOWN" => return Some(None),
        "TCP4" => {
            let mut next = || words.next()?.parse::<Ipv4Addr>().ok().map(IpAddr::V4);
            (next()?, next()?)
        }
        "TCP6" => {
            let mut next = || words.next()?.parse::<Ipv6Addr>().ok().map(IpAddr::V6);
            (next()?, next()?)
        }
        _ => return None,
    };
    let mut port = || {
        let word = words.next()?;
        let is_number = word.bytes().all(|byte| byte.is_ascii_digit());
        word.parse::<u16>().ok().filter(|_| is_number)
    };
    let ends = Ends {
        source: (source, port()?).into(),
        destination: (destination, port()?).into(),
    };
    let is_whole = words.next().is_none();
    (is_whole && source.is_ipv4() == destination.is_ipv4()).then_some(Some(ends))
}

fn binary(so_far: &[u8]) -> ProxyHeader {
    let Some((fixed, rest)) = so_far.split_first_chunk::<FIXED>() else {
        return ProxyHeader::Needs(FIXED - so_far.len());
    };
    let [command, family, high, low] = [fixed[12], fixed[13], fixed[14], fixed[15]];
    let length = usize::from(u16::from_be_bytes([high, low]));
    if !matches!(command, LOCAL | PROXY) || length > REST_MAX {
        return ProxyHeader::Bad;
    }
    if rest.len() < length {
        return ProxyHeader::Needs(length - rest.len());
    }
    let ends = match (command, family) {
        (PROXY, TCP4) if length >= 12 => binary_ends::<4>(rest),
        (PROXY, TCP6) if length >= 36 => binary_ends::<16>(rest),
        (PROXY, TCP4 | TCP6) => return ProxyHeader::Bad,
        _ => None,
    };
    ProxyHeader::Whole(ends)
}

/// Two addresses of so many bytes, and two ports.
fn binary_ends<const N: usize>(rest: &[u8]) -> Option<Ends>
where
    IpAddr: From<[u8; N]>,
{
    let (source, rest) = rest.split_first_chunk::<N>()?;
    let (destination, rest) = rest.split_first_chunk::<N>()?;
    let (from, rest) = rest.split_first_chunk::<2>()?;
    let to = rest.first_chunk::<2>()?;
    let end = |octets: &[u8; N], port: &[u8; 2]| {
        SocketAddr::from((IpAddr::from(*octets), u16::from_be_bytes(*port)))
    };
    Some(Ends {
        source: end(source, from),
        destination: end(destination, to),
    })
}

#[cfg(any(test, feature = "fuzzing"))]
#[path = "../../../../fuzz/invariants/proxy_header.rs"]
pub(crate) mod invariants;

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(source: &str, destination: &str) -> Ends {
        Ends {
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
        }
    }

    fn whole(source: &str, destination: &str) -> ProxyHeader {
        ProxyHeader::Whole(Some(ends(source, destination)))
    }

    /// What all of the bytes are, and that each part of them asks for no more than is left.
    fn read_all(bytes: &[u8]) -> ProxyHeader {
        for cut in 0..bytes.len() {
            match read(&bytes[..cut]) {
                ProxyHeader::Needs(more) => assert!(more <= bytes.len() - cut, "at {cut}"),
                other @ (ProxyHeader::Whole(_) | ProxyHeader::Bad) => return other,
            }
        }
        read(bytes)
    }

    fn bytes_of(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let length = u16::try_from(rest.len()).unwrap().to_be_bytes();
        [SIGNATURE, &[command, family], &length, rest].concat()
    }

    #[test]
    fn the_lines_of_version_1_name_the_client() {
        for (line, expected) in [
            (
                "PROXY TCP4 192.0.2.7 198.51.100.1 56324 443",
                whole("192.0.2.7:56324", "198.51.100.1:443"),
            ),
            (
                "PROXY TCP4 1.1.1.1 2.2.2.2 0 1",
                whole("1.1.1.1:0", "2.2.2.2:1"),
            ),
            (
                "PROXY TCP6 2001:db8::7 2001:db8::1 56324 443",
                whole("[2001:db8::7]:56324", "[2001:db8::1]:443"),
            ),
            ("PROXY UNKNOWN", ProxyHeader::Whole(None)),
            (
                "PROXY UNKNOWN ffff::1 ffff::2 1 2",
                ProxyHeader::Whole(None),
            ),
        ] {
            assert_eq!(
                read_all(format!("{line}\r\n").as_bytes()),
                expected,
                "{line}"
            );
        }
        let longest = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff";
        let longest = format!("PROXY UNKNOWN {longest} {longest} 65535 65535\r\n");
        assert_eq!(
            (longest.len(), read_all(longest.as_bytes())),
            (107, ProxyHeader::Whole(None))
        );
    }

    #[test]
    fn other_lines_are_bad() {
        for line in [
            "GET / HTTP/1.1",
            "PROXY",
            "PROXY TCP4",
            "PROXY TCP4 192.0.2.7",
            "PROXY TCP4 192.0.2.7 198.51.100.1 56324",
            "PROXY TCP4 192.0.2.7 198.51.100.1 56324 443 1",
            "PROXY TCP4  192.0.2.7 198.51.100.1 56324 443",
            "PROXY TCP4 192.0.2.7 198.51.100.1 65536 443",
            "PROXY TCP4 192.0.2.7 198.51.100.1 +1 443",
            "PROXY TCP4 2001:db8::7 198.51.100.1 1 443",
            "PROXY TCP6 192.0.2.7 2001:db8::1 1 443",
            "PROXY TCP4 192.0.2.07 198.51.100.1 1 443",
            "PROXY tcp4 192.0.2.7 198.51.100.1 1 443",
            "PROXY UDP4 192.0.2.7 198.51.100.1 1 443",
            "PROXY UNKNOWN\nabc",
            "proxy TCP4 192.0.2.7 198.51.100.1 1 443",
        ] {
            let mut read = read(line.as_bytes());
            if let ProxyHeader::Needs(_) = read {
                read = super::read(format!("{line}\r\n").as_bytes());
            }
            assert_eq!(read, ProxyHeader::Bad, "{line}");
        }
        let long = format!("PROXY UNKNOWN {}", "x".repeat(93));
        assert_eq!(read(long.as_bytes()), ProxyHeader::Bad);
    }

    #[test]
    fn version_2_names_the_client_and_its_other_fields_are_passed_over() {
        let four = [192, 0, 2, 7, 198, 51, 100, 1, 220, 4, 1, 187];
        let client = whole("192.0.2.7:56324", "198.51.100.1:443");
        assert_eq!(read_all(&bytes_of(PROXY, TCP4, &four)), client);
        let fields = [&four[..], &[1, 0, 2, b'h', b'2']].concat();
        assert_eq!(read_all(&bytes_of(PROXY, TCP4, &fields)), client);
        let mut six = [0; 36];
        six[..4].copy_from_slice(&[0x20, 1, 0xd, 0xb8]);
        six[15] = 7;
        assert_eq!(
            read_all(&bytes_of(PROXY, TCP6, &six)),
            whole("[2001:db8::7]:0", "[::]:0")
        );
        for (command, family, rest) in [
            (LOCAL, 0, &[][..]),
            (LOCAL, TCP4, &four),
            (LOCAL, TCP4, &[1]),
            (PROXY, 0, &[]),
            (PROXY, 0x31, &[0; 216]),
            (PROXY, 0x12, &four),
        ] {
            let header = bytes_of(command, family, rest);
            assert_eq!(read_all(&header), ProxyHeader::Whole(None), "{header:?}");
        }
    }

    #[test]
    fn other_bytes_of_version_2_are_bad() {
        for (command, family, rest) in [
            (0x11, TCP4, 12),
            (0x22, TCP4, 12),
            (PROXY, TCP4, 11),
            (PROXY, TCP6, 35),
            (PROXY, 0, REST_MAX + 1),
        ] {
            let header = bytes_of(command, family, &vec![0; rest]);
            assert_eq!(
                read_all(&header),
                ProxyHeader::Bad,
                "{command} {family} {rest}"
            );
        }
        assert_eq!(read(b"\r\n\r\n\0\r\nQUIT\r"), ProxyHeader::Bad);
    }

    #[test]
    fn what_is_written_is_read_as_the_same() {
        for (source, destination, line) in [
            (
                "192.0.2.7:56324",
                "198.51.100.1:443",
                "PROXY TCP4 192.0.2.7 198.51.100.1 56324 443\r\n",
            ),
            (
                "[2001:db8::7]:1",
                "[2001:db8::1]:65535",
                "PROXY TCP6 2001:db8::7 2001:db8::1 1 65535\r\n",
            ),
        ] {
            let ends = ends(source, destination);
            assert_eq!(ProxyVersion::Text.of_client(ends), line.as_bytes());
            for version in [ProxyVersion::Text, ProxyVersion::Binary] {
                let header = version.of_client(ends);
                assert_eq!(read_all(&header), ProxyHeader::Whole(Some(ends)));
            }
        }
        // The example of the document, by hand.
        let four = [192, 0, 2, 7, 198, 51, 100, 1, 220, 4, 1, 187];
        let written = ProxyVersion::Binary.of_client(ends("192.0.2.7:56324", "198.51.100.1:443"));
        assert_eq!(written, bytes_of(PROXY, TCP4, &four));
        for version in [ProxyVersion::Text, ProxyVersion::Binary] {
            assert_eq!(read_all(version.of_own()), ProxyHeader::Whole(None));
        }
    }

    #[test]
    fn addresses_of_both_families_are_written_as_one() {
        for version in [ProxyVersion::Text, ProxyVersion::Binary] {
            // A socket of IPv6 that takes IPv4 as well.
            let mapped = ends("[::ffff:192.0.2.7]:5", "[::ffff:198.51.100.1]:6");
            let header = version.of_client(mapped);
            assert_eq!(read_all(&header), whole("192.0.2.7:5", "198.51.100.1:6"));
            let header = version.of_client(ends("192.0.2.7:5", "[2001:db8::1]:6"));
            assert_eq!(
                read_all(&header),
                whole("[::ffff:192.0.2.7]:5", "[2001:db8::1]:6")
            );
        }
    }
}
