//! The header of the PROXY protocol, by which a balancer before us says whose connection it passes on.
//!
//! ```text
//! version 1   PROXY TCP4|TCP6 SOURCE DESTINATION PORT PORT CR LF, or PROXY UNKNOWN … CR LF; at most 107 bytes
//! version 2   signature (12), version and command (1), family and protocol (1), length (2), addresses, more fields
//! ```
//!
//! Inputs: what has come of it so far. It says how many bytes more are certainly the header's, so no byte of what follows is
//! read. Ports, destinations and the fields of version 2 behind the addresses are passed over; `LOCAL`, `UNKNOWN` and other
//! families than TCP's say nothing of a client.
//!
//! Failure case: a header names any client that its sender likes. It is read from senders that are configured, and from no other.
//! Source: PROXY-PROTOCOL (HAProxy's document), sections 2.1 and 2.2.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

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

/// What becomes of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProxyHeader {
    /// So many bytes more are its own.
    Needs(usize),
    /// All of it is here: the client's address, if it says one.
    Whole(Option<IpAddr>),
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
    match std::str::from_utf8(line).ok().and_then(source) {
        Some(source) => ProxyHeader::Whole(source),
        None => ProxyHeader::Bad,
    }
}

/// The source of a line, if it is one of the protocol.
fn source(line: &str) -> Option<Option<IpAddr>> {
    let mut words = line.split(' ').skip(1);
    let is_port = |word: &str| {
        let is_number = word.bytes().all(|byte| byte.is_ascii_digit());
        is_number && word.parse::<u16>().is_ok()
    };
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
    let ports = [words.next()?, words.next()?];
    let is_whole = words.next().is_none() && ports.into_iter().all(is_port);
    (is_whole && source.is_ipv4() == destination.is_ipv4()).then_some(Some(source))
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
    let source = match (command, family) {
        (PROXY, TCP4) if length >= 12 => {
            rest.first_chunk::<4>().map(|octets| IpAddr::from(*octets))
        }
        (PROXY, TCP6) if length >= 36 => {
            rest.first_chunk::<16>().map(|octets| IpAddr::from(*octets))
        }
        (PROXY, TCP4 | TCP6) => return ProxyHeader::Bad,
        _ => None,
    };
    ProxyHeader::Whole(source)
}

#[cfg(any(test, feature = "fuzzing"))]
#[path = "../../../../fuzz/invariants/proxy_header.rs"]
pub(crate) mod invariants;

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(address: &str) -> ProxyHeader {
        ProxyHeader::Whole(Some(address.parse().unwrap()))
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

    fn version_2(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let length = u16::try_from(rest.len()).unwrap().to_be_bytes();
        [SIGNATURE, &[command, family], &length, rest].concat()
    }

    #[test]
    fn the_lines_of_version_1_name_the_client() {
        for (line, expected) in [
            (
                "PROXY TCP4 192.0.2.7 198.51.100.1 56324 443",
                whole("192.0.2.7"),
            ),
            ("PROXY TCP4 1.1.1.1 2.2.2.2 0 1", whole("1.1.1.1")),
            (
                "PROXY TCP6 2001:db8::7 2001:db8::1 56324 443",
                whole("2001:db8::7"),
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
        assert_eq!(read_all(&version_2(PROXY, TCP4, &four)), whole("192.0.2.7"));
        let fields = [&four[..], &[1, 0, 2, b'h', b'2']].concat();
        assert_eq!(
            read_all(&version_2(PROXY, TCP4, &fields)),
            whole("192.0.2.7")
        );
        let mut six = [0; 36];
        six[..4].copy_from_slice(&[0x20, 1, 0xd, 0xb8]);
        six[15] = 7;
        assert_eq!(
            read_all(&version_2(PROXY, TCP6, &six)),
            whole("2001:db8::7")
        );
        for (command, family, rest) in [
            (LOCAL, 0, &[][..]),
            (LOCAL, TCP4, &four),
            (LOCAL, TCP4, &[1]),
            (PROXY, 0, &[]),
            (PROXY, 0x31, &[0; 216]),
            (PROXY, 0x12, &four),
        ] {
            let header = version_2(command, family, rest);
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
            let header = version_2(command, family, &vec![0; rest]);
            assert_eq!(
                read_all(&header),
                ProxyHeader::Bad,
                "{command} {family} {rest}"
            );
        }
        assert_eq!(read(b"\r\n\r\n\0\r\nQUIT\r"), ProxyHeader::Bad);
    }
}
