//! What the kernel lets into the responder's socket while it is closed.
//!
//! A datagram that is thrown away by the thread has cost a place in the socket's buffer, a copy and its share of a
//! wake-up; one that a filter at the socket refuses has cost none of them. The filter is a program of classic BPF
//! (BPF-1993), which takes no privilege. It looks at what a request shows without its MAC: magic,
//! version, length, the key's number; then at its initiator:
//!
//! ```text
//! a request by its header? ── no ──> dropped
//!        │ yes
//! initiator on the list? ──── yes ─> let in; by lot if it is imitated
//!        │ no
//!        └─ by lot: some are let in, so that new front-ends can prove themselves
//! ```
//!
//! It compares half of an initiator's bits. A request that gets in by chance is only examined by the thread.

use libc::sock_filter;
use tidegate_core::record::{LINE_BYTES, LINES_MAX};

use super::Source;
use crate::udp::Key;
use crate::udp::wire::{HEADER_BYTES, REQUEST_MAGIC, VERSION};

/// Sources that a filter lists at most: two such filters, one in place of the other, fit the 20 kB that a kernel
/// keeps by default for options of a socket.
pub(in super::super) const LISTED_MAX: usize = 240;
/// Of what is not from listed sources, this part is let in, of 2^32.
pub(in super::super) const OTHERS: u32 = u32::MAX / 64;

/// What is let in by lot, of 2^32.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Lots {
    /// In the name of sources that are imitated.
    pub(in super::super) imitated: u32,
    /// In other names.
    pub(in super::super) others: u32,
}

impl Lots {
    /// Imitated sources have their part halved so often.
    pub(in super::super) fn halved(times: u32) -> Self {
        Self {
            imitated: u32::MAX.checked_shr(times).unwrap_or(0),
            others: OTHERS,
        }
    }
}

/// The datagram begins with its UDP header.
const UDP_BYTES: u32 = 8;
const RANDOM: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_RANDOM) as u32;

const LOAD_WORD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
const LOAD_HALF: u32 = libc::BPF_LD | libc::BPF_H | libc::BPF_ABS;
const LOAD_BYTE: u32 = libc::BPF_LD | libc::BPF_B | libc::BPF_ABS;
const LOAD_LENGTH: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_LEN;
const EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
const EQUAL_INDEX: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_X;
const AT_LEAST: u32 = libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K;
const ALU: u32 = libc::BPF_ALU | libc::BPF_K;

const DROP: sock_filter = step(libc::BPF_RET | libc::BPF_K, 0);
const LET_IN: sock_filter = step(libc::BPF_RET | libc::BPF_K, u32::MAX);

const fn step(code: u32, k: u32) -> sock_filter {
    jump(code, k, 0, 0)
}

/// Goes so many steps further if it is true, and so many if it is not.
const fn jump(code: u32, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    }
}

/// The filter that lets in requests with a key's number in the name of the first [`LISTED_MAX`] of these sources, and
/// of others by lot.
pub(in super::super) fn program(
    keys: &[Key],
    listed: impl Iterator<Item = Source>,
    lots: Lots,
) -> Vec<sock_filter> {
    let by_lot = |lot| {
        [
            step(LOAD_WORD, RANDOM),
            jump(AT_LEAST, lot, 0, 1),
            DROP,
            LET_IN,
        ]
    };
    let others = by_lot(lots.others);
    let mut program = header(keys);
    program.push(step(LOAD_WORD, at(8)));
    let listed: Vec<Source> = listed.take(LISTED_MAX).collect();
    for (index, source) in listed.iter().enumerate() {
        // Little endian there; the load takes it for big endian.
        let half = (source.initiator as u32).swap_bytes();
        let then = match source.imitated {
            false => LET_IN,
            true => {
                let further = 2 * (listed.len() - 1 - index) + others.len();
                step(libc::BPF_JMP | libc::BPF_JA, further as u32)
            }
        };
        program.extend([jump(EQUAL, half, 0, 1), then]);
    }
    program.extend(others);
    program.extend(by_lot(lots.imitated));
    program
}

/// Where a byte of the message is.
const fn at(offset: u32) -> u32 {
    UDP_BYTES + offset
}

/// Drops what is no request by its header; see the table of `wire`.
fn header(keys: &[Key]) -> Vec<sock_filter> {
    let other_than = |value| [jump(EQUAL, value, 1, 0), DROP];
    let mut program = vec![step(LOAD_WORD, at(0))];
    program.extend(other_than(u32::from_be_bytes(REQUEST_MAGIC)));
    program.push(step(LOAD_BYTE, at(4)));
    program.extend(other_than(u32::from(VERSION)));
    program.push(step(LOAD_BYTE, at(7)));
    program.extend(other_than(0));
    program.extend([
        step(LOAD_BYTE, at(6)),
        jump(AT_LEAST, LINES_MAX as u32 + 1, 0, 1),
        DROP,
        step(ALU | libc::BPF_MUL, LINE_BYTES as u32),
        step(ALU | libc::BPF_ADD, UDP_BYTES + HEADER_BYTES as u32),
        step(libc::BPF_MISC | libc::BPF_TAX, 0),
        step(LOAD_LENGTH, 0),
        jump(EQUAL_INDEX, 0, 1, 0),
        DROP,
        step(LOAD_HALF, at(34)),
    ]);
    for (index, key) in keys.iter().enumerate() {
        // Little endian there; the load takes it for big endian. Over the other keys and what drops it.
        let further = (keys.len() - index) as u8;
        program.push(jump(EQUAL, u32::from(key.id().swap_bytes()), further, 0));
    }
    program.push(DROP);
    program
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, UdpSocket};
    use std::time::Duration;

    use super::*;
    use crate::udp::socket;
    use crate::udp::wire::{Request, message_bytes};

    fn key() -> Key {
        Key::new("n1", [7; 16])
    }

    fn message(initiator: u64) -> Vec<u8> {
        read(initiator, 2)
    }

    fn read(initiator: u64, lines: u8) -> Vec<u8> {
        let mut message = vec![0; message_bytes(lines)];
        let header = message.first_chunk_mut().unwrap();
        Request::read(lines, initiator, 12).encode(&key(), header);
        message
    }

    /// A socket with a filter, and one that sends to it.
    struct Pair(UdpSocket, UdpSocket);

    impl Pair {
        fn new(listed: &[Source], imitated: u32, others: u32) -> Self {
            let local = Ipv4Addr::LOCALHOST;
            let to = socket::listen((local, 0).into(), Duration::from_secs(1)).unwrap();
            to.set_nonblocking(true).unwrap();
            let from = UdpSocket::bind((local, 0)).unwrap();
            from.connect(to.local_addr().unwrap()).unwrap();
            let pair = Self(to, from);
            pair.filter(listed, imitated, others);
            pair
        }

        fn filter(&self, listed: &[Source], imitated: u32, others: u32) {
            let keys = [Key::new("n1", [1; 16]), key(), Key::new("n1", [2; 16])];
            let lots = Lots { imitated, others };
            let program = program(&keys, listed.iter().copied(), lots);
            socket::filter(&self.0, &program).unwrap();
        }

        /// Whether it gets in. Over loopback a datagram has come, or not, when it is sent.
        fn comes(&self, message: &[u8]) -> bool {
            self.1.send(message).unwrap();
            self.0.recv(&mut [0; 2048]).is_ok()
        }
    }

    fn source(initiator: u64, imitated: bool) -> Source {
        Source {
            initiator,
            imitated,
        }
    }

    #[test]
    fn listed_sources_are_let_in_and_others_by_lot() {
        // Each among others of its kind and of the other.
        let listed: Vec<_> = (2..=9).map(|it| source(it, it % 3 == 0)).collect();
        let pair = Pair::new(&listed, 0, 0);
        for initiator in 1..=10 {
            let comes = (2..=9).contains(&initiator) && initiator % 3 != 0;
            assert_eq!(pair.comes(&message(initiator)), comes, "{initiator}");
        }
        pair.filter(&listed, u32::MAX, 0);
        for initiator in 1..=10 {
            let comes = (2..=9).contains(&initiator);
            assert_eq!(pair.comes(&message(initiator)), comes, "{initiator}");
        }
        pair.filter(&listed, 0, u32::MAX);
        for initiator in 1..=10 {
            let comes = !((2..=9).contains(&initiator) && initiator % 3 == 0);
            assert_eq!(pair.comes(&message(initiator)), comes, "{initiator}");
        }
        socket::unfilter(&pair.0).unwrap();
        assert!(pair.comes(&message(3)));
    }

    #[test]
    fn what_is_no_request_by_its_header_is_not_let_in() {
        let pair = Pair::new(&[source(11, false)], 0, 0);
        let good = message(11);
        // Magic, version, lines, flags, half of the initiator, the key's number.
        for at in [0, 3, 4, 6, 7, 8, 11, 34, 35] {
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[at] ^= 1 << bit;
                assert!(!pair.comes(&bad), "byte {at}, bit {bit}");
            }
        }
        for length in 0..good.len() {
            assert!(!pair.comes(&good[..length]), "{length} bytes");
        }
        assert!(!pair.comes(&[&good[..], &[0]].concat()));
        assert!(pair.comes(&good));
        // An atomic has none.
        for lines in 0..=u8::MAX {
            let whole = usize::from(lines) <= LINES_MAX;
            assert_eq!(pair.comes(&read(11, lines)), whole, "{lines} lines");
        }
    }

    #[test]
    fn as_many_sources_as_can_be_listed_fit_what_the_kernel_takes() {
        // Ends in a byte that makes their comparison a large number, which takes the kernel one step more.
        let number = |it: usize| (it << 8 | 0xff) as u64;
        let listed: Vec<_> = (0..=LISTED_MAX)
            .map(|it| source(number(it), it % 2 == 0))
            .collect();
        let pair = Pair::new(&listed, 0, 0);
        let last = message(number(LISTED_MAX - 1));
        assert!(pair.comes(&last));
        // In place of another one.
        pair.filter(&listed, 0, 0);
        assert!(pair.comes(&last));
        // One more than there is room for.
        let beyond = message(number(LISTED_MAX));
        assert!(!pair.comes(&beyond));
        pair.filter(&listed, 0, u32::MAX);
        assert!(pair.comes(&beyond));
        let used = socket::option_bytes(&pair.0).unwrap();
        assert!(2 * used < 20 << 10, "{used} bytes");
    }

    #[test]
    fn the_part_of_imitated_sources_is_halved_and_of_others_some_are_let_in() {
        assert_eq!(Lots::halved(1).imitated, u32::MAX / 2);
        assert_eq!(Lots::halved(6).imitated, u32::MAX / 64);
        assert_eq!(Lots::halved(40).imitated, 0);
        assert_eq!(Lots::halved(0).imitated, u32::MAX);
        for times in 0..=6 {
            assert_eq!(Lots::halved(times).others, u32::MAX / 64);
        }
    }
}
