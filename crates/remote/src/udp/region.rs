//! A front-end's handle to one node over UDP.
//!
//! Each verb is one exchange: send, wait for [`UdpOptions::wait`], send again with another random nonce,
//! [`UdpOptions::tries`] times in all. An answer to any of the tries counts, if it comes from the node's address. A repeated atomic
//! keeps its sequence, so that the node carries it out once (see `initiators`).

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use tidegate_core::time::Timestamp;

use super::Key;
use super::nonces::Nonces;
use super::socket;
use super::wire::{MESSAGE_BYTES_MAX, Reply, Request, Status, Verb, message_bytes};
use crate::clock;
use crate::memory::{WORDS, random};
use crate::region::{Read, Refusal, Region, RegionError, check_lines};

/// Most tries of one exchange.
const TRIES_MAX: usize = 16;
/// Times that an atomic is made anew because the node said that it was not carried out: once
/// to learn the epoch, once more to learn the node's clock.
const RENEWALS_MAX: usize = 2;

/// How long to wait for a node.
#[derive(Clone, Copy, Debug)]
pub struct UdpOptions {
    /// Time after which a request counts as lost.
    pub wait: Duration,
    /// Requests of one exchange, 1 to 16.
    pub tries: u32,
}

impl Default for UdpOptions {
    /// 5 ms, three times: 99.9 % of answers come within one millisecond, from a node that is
    /// overloaded too.
    fn default() -> Self {
        Self {
            wait: Duration::from_millis(5),
            tries: 3,
        }
    }
}

/// A handle to the region that a [`super::Responder`] serves.
#[derive(Debug)]
pub struct UdpRegion {
    socket: UdpSocket,
    key: Key,
    options: UdpOptions,
    initiator: u64,
    nonces: Nonces,
    /// Sequence of the last atomic.
    sequence: u64,
    /// The node's life as far as known; 0: not yet.
    epoch: u32,
    /// The node's clock minus ours, as of the last answer.
    clock_offset: Option<i128>,
    message: [u8; MESSAGE_BYTES_MAX],
}

/// An answer, when its request was sent and it came, and how many times it was sent by then.
struct Answer {
    reply: Reply,
    sent: usize,
    sent_at: Timestamp,
    received_at: Timestamp,
}

impl UdpRegion {
    /// A handle to the node at this address. Sends nothing yet.
    pub fn connect(
        address: SocketAddr,
        key: Key,
        options: UdpOptions,
    ) -> Result<Self, RegionError> {
        let socket = socket::for_requests(address.is_ipv4())?;
        socket
            .set_nonblocking(true)
            .map_err(RegionError::io("make a socket that does not wait"))?;
        // Connected: only this node's datagrams come in, and a port that nobody listens on is
        // told by the system.
        socket
            .connect(address)
            .map_err(RegionError::io("connect a socket to the node"))?;
        Ok(Self {
            socket,
            key,
            options,
            initiator: random()?,
            nonces: Nonces::default(),
            sequence: 0,
            epoch: 0,
            clock_offset: None,
            message: [0; MESSAGE_BYTES_MAX],
        })
    }

    /// Sends the request until an answer comes, which is left in `self.message`.
    fn exchange(&mut self, mut request: Request) -> Result<Answer, RegionError> {
        let tries = (self.options.tries as usize).clamp(1, TRIES_MAX);
        let mut sent = Vec::with_capacity(tries);
        let mut forged = 0;
        let mut refused = None;
        for _ in 0..tries {
            request.nonce = self.nonces.draw()?;
            let now = clock::now();
            sent.push((request.nonce, now));
            match self.send(&request) {
                Ok(()) => {}
                Err(error) => refused = Some(error),
            }
            let deadline = now + self.options.wait;
            while let Some(length) = self.receive(deadline, &mut refused)? {
                let Ok(unverified) = Reply::parse(&self.message[..length]) else {
                    continue;
                };
                let mut tries = sent.iter();
                let asked = tries.find(|(nonce, _)| *nonce == unverified.nonce());
                let Some((_, sent_at)) = asked else { continue };
                if unverified.initiator() != self.initiator {
                    continue;
                }
                let Ok((reply, _)) = unverified.verify(&self.key) else {
                    forged += 1;
                    continue;
                };
                let same = (reply.verb, reply.lines, reply.sequence);
                if same != (request.verb, request.lines, request.sequence) {
                    continue;
                }
                let (times, sent_at) = (sent.len(), *sent_at);
                return Ok(self.learn(reply, times, sent_at));
            }
        }
        Err(match refused {
            _ if forged > 0 => RegionError::WrongKey { forged },
            Some(error) => RegionError::io("send to the node")(error),
            None => RegionError::Timeout {
                tries: tries as u32,
            },
        })
    }

    fn send(&mut self, request: &Request) -> io::Result<()> {
        let message = &mut self.message[..message_bytes(request.lines)];
        message.fill(0);
        if let Some(header) = message.first_chunk_mut() {
            request.encode(&self.key, header);
        }
        self.socket.send(message).map(drop)
    }

    /// The length of the next datagram, or nothing by the deadline. What the system says of
    /// earlier ones (nobody listens there) is noted: an answer may come all the same.
    fn receive(
        &mut self,
        deadline: Timestamp,
        refused: &mut Option<io::Error>,
    ) -> Result<Option<usize>, RegionError> {
        loop {
            match self.socket.recv(&mut self.message) {
                Ok(length) => return Ok(Some(length)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => *refused = Some(error),
            }
            let rest = deadline.since(clock::now());
            if rest.is_zero() {
                return Ok(None);
            }
            let mut wanted = [PollFd::new(&self.socket, PollFlags::IN)];
            match poll(&mut wanted, Some(&clock::timespec(rest))) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(RegionError::io("wait for an answer")(error)),
            }
        }
    }

    /// Takes in what every answer tells about the node.
    fn learn(&mut self, reply: Reply, sent: usize, sent_at: Timestamp) -> Answer {
        let received_at = clock::now();
        self.clock_offset = Some(i128::from(reply.node_now_ns) - i128::from(received_at.nanos()));
        Answer {
            reply,
            sent,
            sent_at,
            received_at,
        }
    }

    /// The node's clock as far as known, ns; 0: not yet.
    fn node_clock(&self) -> u64 {
        let now = i128::from(clock::now().nanos());
        let node_now = self.clock_offset.map(|it| now + it);
        node_now.map_or(0, |it| u64::try_from(it).unwrap_or(0))
    }

    /// The next sequence: the node's clock as far as known, and more than the last one.
    fn next_sequence(&mut self) -> u64 {
        self.sequence = self.node_clock().max(self.sequence.saturating_add(1));
        self.sequence
    }

    fn atomic(
        &mut self,
        verb: Verb,
        word: u32,
        operand: u64,
        expected: u64,
    ) -> Result<u64, RegionError> {
        let Ok(narrow) = u16::try_from(word) else {
            return Err(RegionError::Refused(Refusal::Word(word)));
        };
        debug_assert!(WORDS <= usize::from(u16::MAX));
        let mut refusal = Refusal::Stale;
        for _ in 0..=RENEWALS_MAX {
            let request = Request {
                verb,
                sequence: self.next_sequence(),
                word: narrow,
                epoch: self.epoch,
                operand,
                expected,
                ..Request::read(0, self.initiator, 0)
            };
            let Answer { reply, sent, .. } = self.exchange(request)?;
            match reply.status {
                Status::Done => return Ok(reply.value),
                Status::Epoch => {
                    // Sequences count on the node's clock, which may have begun anew.
                    self.sequence = 0;
                    let known = std::mem::replace(&mut self.epoch, reply.epoch);
                    if known != 0 {
                        return Err(RegionError::Restarted);
                    }
                }
                // Our numbers lie behind those that the node knows of us; the answer has brought
                // the node's clock.
                Status::Stale => refusal = Refusal::Stale,
                Status::TooOld => {
                    refusal = Refusal::TooOld;
                    // A copy may have come sooner, and be forgotten by now.
                    if sent > 1 {
                        break;
                    }
                }
                Status::TooNew => {
                    // A copy may yet be carried out. Later ones count on the clock that we know now.
                    self.sequence = 0;
                    return Err(RegionError::Refused(Refusal::TooNew));
                }
                Status::NoWord => return Err(RegionError::Refused(Refusal::Word(word))),
                Status::Full => return Err(RegionError::Refused(Refusal::Full)),
                Status::Absent | Status::Torn | Status::Other(_) => {
                    let number = reply.status.number();
                    return Err(RegionError::Refused(Refusal::Other(number)));
                }
            }
        }
        Err(RegionError::Refused(refusal))
    }
}

impl Region for UdpRegion {
    fn read(&mut self, lines: usize) -> Result<Read, RegionError> {
        let lines = check_lines(lines)?;
        let request = Request {
            sequence: self.node_clock(),
            ..Request::read(lines as u8, self.initiator, 0)
        };
        let answer = self.exchange(request)?;
        let mut read = Read::empty(lines, answer.sent_at)?;
        read.received_at = answer.received_at;
        read.node_now_ns = Some(answer.reply.node_now_ns);
        read.readers = Some(answer.reply.readers);
        read.epoch = Some(answer.reply.epoch);
        match answer.reply.status {
            Status::Done => {}
            Status::Absent => return Err(RegionError::Absent),
            Status::Torn => return Err(RegionError::Torn),
            Status::NoWord
            | Status::Stale
            | Status::Epoch
            | Status::Full
            | Status::TooOld
            | Status::TooNew
            | Status::Other(_) => {
                let number = answer.reply.status.number();
                return Err(RegionError::Refused(Refusal::Other(number)));
            }
        }
        let start = message_bytes(0);
        let bytes = read.bytes_mut();
        bytes.copy_from_slice(&self.message[start..start + bytes.len()]);
        read.record()?;
        Ok(read)
    }

    fn compare_and_swap(&mut self, word: u32, expected: u64, new: u64) -> Result<u64, RegionError> {
        self.atomic(Verb::CompareAndSwap, word, new, expected)
    }

    fn fetch_and_add(&mut self, word: u32, delta: u64) -> Result<u64, RegionError> {
        self.atomic(Verb::FetchAndAdd, word, delta, 0)
    }
}
