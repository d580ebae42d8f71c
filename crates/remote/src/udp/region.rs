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
use super::node_clock::NodeClock;
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
    clock: NodeClock,
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
            clock: NodeClock::default(),
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
        self.clock.note(reply.node_now_ns, sent_at, received_at);
        Answer {
            reply,
            sent,
            sent_at,
            received_at,
        }
    }

    /// The node's clock as far as known, ns; 0: not yet.
    fn node_clock(&self) -> u64 {
        self.clock.at(clock::now())
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A handle, and the node's socket, which the test holds: it says nothing but what the test sends.
    fn pair() -> (UdpRegion, UdpSocket) {
        let node = UdpSocket::bind("127.0.0.1:0").unwrap();
        let options = UdpOptions {
            wait: Duration::from_secs(10),
            tries: 1,
        };
        let address = node.local_addr().unwrap();
        (UdpRegion::connect(address, key(), options).unwrap(), node)
    }

    fn key() -> Key {
        Key::new("n1", *b"0123456789abcdef")
    }

    fn answer(request: &Request, value: u64) -> Reply {
        Reply {
            verb: request.verb,
            lines: request.lines,
            status: Status::Done,
            initiator: request.initiator,
            sequence: request.sequence,
            nonce: request.nonce,
            node_now_ns: 1_000_000_000,
            value,
            readers: 1,
            epoch: 1,
        }
    }

    /// Each is made with the node's key, and says something else than the true one, which comes last.
    #[test]
    fn an_answer_to_anything_else_than_was_asked_is_passed_over() {
        let (mut region, node) = pair();
        let address = region.socket.local_addr().unwrap();
        let node = std::thread::spawn(move || {
            let mut bytes = [0; MESSAGE_BYTES_MAX];
            let length = node.recv(&mut bytes).unwrap();
            let (asked, _) = Request::decode(&bytes[..length], &[key()]).unwrap();
            let wrong = [
                Request {
                    initiator: asked.initiator ^ 1,
                    ..asked
                },
                Request {
                    nonce: asked.nonce ^ 1,
                    ..asked
                },
                Request {
                    sequence: asked.sequence ^ 1,
                    ..asked
                },
                Request {
                    verb: Verb::CompareAndSwap,
                    ..asked
                },
                Request {
                    verb: Verb::Read,
                    lines: 1,
                    ..asked
                },
            ];
            for (place, request) in wrong.iter().chain([&asked]).enumerate() {
                let reply = answer(request, place as u64);
                let mut message = vec![0; message_bytes(reply.lines)];
                reply.encode(&key(), &mut message);
                node.send_to(&message, address).unwrap();
            }
        });
        assert_eq!(region.fetch_and_add(3, 5).unwrap(), 5);
        node.join().unwrap();
    }

    #[test]
    fn an_answer_that_is_taken_in_late_makes_the_next_number_no_older() {
        let (mut region, _node) = pair();
        let reply = |node_now_ns| Reply {
            node_now_ns,
            ..answer(&Request::read(1, 0, 0), 0)
        };
        let begun = clock::now();
        region.learn(reply(50_000_000_000), 1, begun);
        // Asked and answered a second before, and taken in only now.
        let sent_at = begun - Duration::from_secs(1);
        region.learn(reply(49_000_000_000), 1, sent_at);
        assert!(region.next_sequence() >= 50_000_000_000);
    }
}
