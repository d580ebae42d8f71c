//! A front-end's handle to one node over UDP.
//!
//! Each verb is one exchange: send, wait for [`UdpOptions::wait`], send again with another random nonce,
//! [`UdpOptions::tries`] times in all. An answer to any of the tries counts, if it comes from the node's address. A repeated atomic
//! keeps its sequence, so that the node carries it out once (see `initiators`).

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use tidegate_core::load::WordOp;
use tidegate_core::time::Timestamp;

use super::Key;
use super::nonces::Nonces;
use super::sequences::{RENEWALS_MAX, Sequences, Settled};
use super::socket;
use super::wire::{
    CONNECT_BYTES, CONNECT_LINES, HEADER_BYTES, MESSAGE_BYTES_MAX, Reply, Request, Status, Verb,
    message_bytes,
};
use crate::clock;
use crate::memory::{WORDS, random};
use crate::region::{Read, Refusal, Region, RegionError, check_lines};

/// Most tries of one exchange.
const TRIES_MAX: u32 = 16;
/// Between two copies of an offer to connect over RDMA, and most of them.
const COPY_EVERY: Duration = Duration::from_millis(40);
const COPIES_MAX: u32 = 1024;
/// Datagrams that a try still looks at when its time is over: an answer that had come by then is found,
/// and a stream of others holds it up no longer.
const LATE_MAX: usize = 64;

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
    sequences: Sequences,
    message: [u8; MESSAGE_BYTES_MAX],
}

/// An answer, when its request was sent and it came, and how many times it was sent by then.
struct Answer {
    reply: Reply,
    sent: u32,
    sent_at: Timestamp,
    received_at: Timestamp,
}

/// An offer to connect over RDMA that was sent, and not waited for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offered {
    request: Request,
    pub(crate) sent_at: Timestamp,
}

/// What a node grants to an offer, as bytes, and what its answer tells besides.
#[derive(Debug)]
pub(crate) struct Granted {
    pub(crate) reply: Reply,
    pub(crate) grant: [u8; CONNECT_BYTES],
}

/// What went wrong while an answer was waited for.
#[derive(Default)]
struct Troubles {
    /// Answers that were not made with our key.
    forged: u32,
    /// What the system said last.
    refused: Option<io::Error>,
}

impl Troubles {
    /// Why none came to so many tries.
    fn error(self, tries: u32) -> RegionError {
        match (self.forged, self.refused) {
            (0, None) => RegionError::Timeout { tries },
            (0, Some(error)) => RegionError::io("send to the node")(error),
            (forged, _) => RegionError::WrongKey { forged },
        }
    }
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
        // Connected: only this node's datagrams come in, and a port without a listener is
        // reported by the system.
        socket
            .connect(address)
            .map_err(RegionError::io("connect a socket to the node"))?;
        Ok(Self {
            socket,
            key,
            options,
            initiator: random()?,
            nonces: Nonces::default(),
            sequences: Sequences::default(),
            message: [0; MESSAGE_BYTES_MAX],
        })
    }

    /// As another one's, which reads and makes no atomics by this handle: the node counts both as one front-end.
    #[must_use]
    pub(crate) fn with_initiator(self, initiator: u64) -> Self {
        Self { initiator, ..self }
    }

    /// Sends the request until an answer comes, which is left in `self.message`.
    fn exchange(&mut self, request: Request, body: &[u8]) -> Result<Answer, RegionError> {
        let options = UdpOptions {
            tries: self.options.tries.clamp(1, TRIES_MAX),
            ..self.options
        };
        self.exchange_with(request, body, options)
    }

    fn exchange_with(
        &mut self,
        mut request: Request,
        body: &[u8],
        options: UdpOptions,
    ) -> Result<Answer, RegionError> {
        let tries = options.tries as usize;
        let mut sent = Vec::with_capacity(tries);
        let mut troubles = Troubles::default();
        for _ in 0..tries {
            request.nonce = self.nonces.draw()?;
            let now = clock::now();
            sent.push((request.nonce, now));
            if let Err(error) = self.send(&request, body) {
                troubles.refused = Some(error);
            }
            let deadline = now + options.wait;
            let mut late = 0;
            while late < LATE_MAX
                && let Some(length) = self.receive(deadline, &mut troubles.refused)?
            {
                late += usize::from(clock::now() >= deadline);
                let answer = self.answer(length, &request, &sent, &mut troubles.forged);
                if let Some((reply, sent_at)) = answer {
                    return Ok(self.learn(reply, sent.len() as u32, sent_at));
                }
            }
        }
        Err(troubles.error(tries as u32))
    }

    /// What `self.message` says, and when it was asked, if it is an answer to one of the tries of this request.
    fn answer(
        &self,
        length: usize,
        request: &Request,
        sent: &[(u64, Timestamp)],
        forged: &mut u32,
    ) -> Option<(Reply, Timestamp)> {
        let unverified = Reply::parse(&self.message[..length]).ok()?;
        let mut tries = sent.iter();
        let (_, sent_at) = tries.find(|(nonce, _)| *nonce == unverified.nonce())?;
        if unverified.initiator() != self.initiator {
            return None;
        }
        let Ok((reply, _)) = unverified.verify(&self.key) else {
            *forged += 1;
            return None;
        };
        let same = (reply.verb, reply.lines, reply.sequence)
            == (request.verb, request.lines, request.sequence);
        same.then_some((reply, *sent_at))
    }

    fn send(&mut self, request: &Request, body: &[u8]) -> io::Result<()> {
        let message = &mut self.message[..message_bytes(request.lines)];
        message.fill(0);
        message[HEADER_BYTES..][..body.len()].copy_from_slice(body);
        request.encode_message(&self.key, message);
        self.socket.send(message).map(drop)
    }

    /// The length of the next datagram, or nothing by the deadline. What the system says of
    /// earlier ones (no listener there) is noted: an answer may come all the same.
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
    fn learn(&mut self, reply: Reply, sent: u32, sent_at: Timestamp) -> Answer {
        let received_at = clock::now();
        self.sequences
            .note_clock(reply.node_now_ns, sent_at, received_at);
        Answer {
            reply,
            sent,
            sent_at,
            received_at,
        }
    }

    /// The next request to connect.
    fn offer(&mut self) -> Request {
        Request {
            verb: Verb::Connect,
            sequence: self.sequences.next(clock::now()),
            ..Request::read(CONNECT_LINES, self.initiator, 0)
        }
    }

    /// Offers the node to connect over RDMA, and waits for what it grants.
    pub(crate) fn connect_rdma(
        &mut self,
        offer: &[u8; CONNECT_BYTES],
    ) -> Result<Granted, RegionError> {
        let mut renewals = 0;
        loop {
            let request = self.offer();
            let copies = copies(self.options);
            let Answer { reply, .. } = self.exchange_with(request, offer, copies)?;
            let refusal = match reply.status {
                Status::Done => return Ok(self.granted(reply)),
                Status::TooOld => Refusal::TooOld,
                Status::Stale => Refusal::Stale,
                Status::TooNew => {
                    self.sequences.forget_last();
                    Refusal::TooNew
                }
                Status::NoDevice => return Err(RegionError::Refused(Refusal::NoDevice)),
                Status::NoQueuePair => return Err(RegionError::Refused(Refusal::NoQueuePair)),
                Status::NoWay => return Err(RegionError::Refused(Refusal::NoWay)),
                Status::CardFault => return Err(RegionError::Refused(Refusal::CardFault)),
                Status::BadOffer => return Err(RegionError::Refused(Refusal::BadOffer)),
                Status::NoWord
                | Status::Epoch
                | Status::Full
                | Status::Absent
                | Status::Torn
                | Status::WordsElsewhere
                | Status::Other(_) => {
                    let number = reply.status.number();
                    return Err(RegionError::Refused(Refusal::Other(number)));
                }
            };
            // The node's clock is known by its answer.
            if renewals == RENEWALS_MAX {
                return Err(RegionError::Refused(refusal));
            }
            renewals += 1;
        }
    }

    /// Sends an offer again without waiting for what becomes of it.
    pub(crate) fn renew_rdma(
        &mut self,
        offer: &[u8; CONNECT_BYTES],
    ) -> Result<Offered, RegionError> {
        let mut request = self.offer();
        request.nonce = self.nonces.draw()?;
        let sent_at = clock::now();
        // If it is lost, the next one says the same.
        self.send(&request, offer).ok();
        Ok(Offered { request, sent_at })
    }

    /// What the node grants to an offer, if its answer has come by now.
    pub(crate) fn renewed(&mut self, offered: &Offered) -> Option<Granted> {
        let sent = [(offered.request.nonce, offered.sent_at)];
        for _ in 0..LATE_MAX {
            let length = self.socket.recv(&mut self.message).ok()?;
            let found = self.answer(length, &offered.request, &sent, &mut 0);
            if let Some((reply, sent_at)) = found {
                let Answer { reply, .. } = self.learn(reply, 1, sent_at);
                return (reply.status == Status::Done).then(|| self.granted(reply));
            }
        }
        None
    }

    /// The grant that stands in `self.message`, behind this header.
    fn granted(&self, reply: Reply) -> Granted {
        let mut grant = [0; CONNECT_BYTES];
        grant.copy_from_slice(&self.message[HEADER_BYTES..][..CONNECT_BYTES]);
        Granted { reply, grant }
    }

    /// The node's clock as far as known, ns.
    pub(crate) fn node_clock(&self, now: Timestamp) -> u64 {
        self.sequences.node_clock(now)
    }

    /// The node's address.
    pub(crate) fn node_address(&self) -> Result<std::net::IpAddr, RegionError> {
        let node = self.socket.peer_addr();
        Ok(node
            .map_err(RegionError::io("look at a socket's peer"))?
            .ip())
    }

    /// The address of this host from which the node is reached.
    pub(crate) fn local_address(&self) -> Result<std::net::IpAddr, RegionError> {
        let own = self.socket.local_addr();
        Ok(own
            .map_err(RegionError::io("look at a socket's address"))?
            .ip())
    }

    /// Carries an atomic out that is numbered as one of `since`, or else of now.
    fn atomic(&mut self, op: WordOp, since: Option<Timestamp>) -> Result<u64, RegionError> {
        let (verb, word, operand, expected) = match op {
            WordOp::FetchAndAdd { word, delta } => (Verb::FetchAndAdd, word, delta, 0),
            WordOp::CompareAndSwap {
                word,
                expected,
                new,
            } => (Verb::CompareAndSwap, word, new, expected),
        };
        let Ok(narrow) = u16::try_from(word) else {
            return Err(RegionError::Refused(Refusal::Word(word)));
        };
        debug_assert!(WORDS <= usize::from(u16::MAX));
        let mut renewals = 0;
        loop {
            let sequence = match since {
                Some(since) => self.sequences.next_since(since),
                None => Some(self.sequences.next(clock::now())),
            };
            let request = Request {
                verb,
                sequence: sequence.ok_or(RegionError::Refused(Refusal::TooOld))?,
                word: narrow,
                epoch: self.sequences.epoch(),
                operand,
                expected,
                ..Request::read(0, self.initiator, 0)
            };
            let Answer { reply, sent, .. } = self.exchange(request, &[])?;
            match self.sequences.settle(&reply, word, sent) {
                Settled::Done(held) => return Ok(held),
                Settled::Renew(Refusal::TooOld) if since.is_some() => {
                    return Err(RegionError::Refused(Refusal::TooOld));
                }
                Settled::Renew(_) if renewals < RENEWALS_MAX => renewals += 1,
                Settled::Renew(refusal) => return Err(RegionError::Refused(refusal)),
                Settled::Lost(error) => return Err(error),
            }
        }
    }
}

/// As long a wait for a grant, in copies that are near each other: a node takes an offer up while it waits for the next one.
fn copies(options: UdpOptions) -> UdpOptions {
    let whole = options.wait * options.tries.clamp(1, TRIES_MAX);
    let wait = COPY_EVERY.min(options.wait).max(Duration::from_millis(1));
    let copies = whole.div_duration_f64(wait).ceil() as u32;
    UdpOptions {
        wait,
        tries: copies.clamp(1, COPIES_MAX),
    }
}

impl Region for UdpRegion {
    fn read(&mut self, lines: usize) -> Result<Read, RegionError> {
        let lines = check_lines(lines)?;
        let request = Request {
            sequence: self.sequences.node_clock(clock::now()),
            ..Request::read(lines as u8, self.initiator, 0)
        };
        let answer = self.exchange(request, &[])?;
        let mut read = Read::empty(lines, answer.sent_at)?;
        read.received_at = answer.received_at;
        read.node_now_ns = Some(answer.reply.node_now_ns);
        read.first_word = answer.reply.first_word();
        read.readers = Some(answer.reply.readers);
        read.epoch = Some(answer.reply.epoch).filter(|epoch| *epoch != 0);
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
            | Status::NoDevice
            | Status::NoQueuePair
            | Status::WordsElsewhere
            | Status::BadOffer
            | Status::NoWay
            | Status::CardFault
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
        let op = WordOp::CompareAndSwap {
            word,
            expected,
            new,
        };
        self.atomic(op, None)
    }

    fn compare_and_swap_since(
        &mut self,
        word: u32,
        expected: u64,
        new: u64,
        since: Timestamp,
    ) -> Result<u64, RegionError> {
        if !self.sequences.knows_clock() {
            // A number of the node's clock, which any answer brings.
            self.atomic(WordOp::FetchAndAdd { word, delta: 0 }, None)?;
        }
        let op = WordOp::CompareAndSwap {
            word,
            expected,
            new,
        };
        self.atomic(op, Some(since))
    }

    fn fetch_and_add(&mut self, word: u32, delta: u64) -> Result<u64, RegionError> {
        self.atomic(WordOp::FetchAndAdd { word, delta }, None)
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

    #[test]
    fn copies_of_an_offer_are_near_each_other_and_take_as_long_as_the_wait() {
        for (wait_ms, tries, copies_ms, copies) in [
            (5, 3, 5, 3),
            (40, 4, 40, 4),
            (300, 1, 40, 8),
            (10_000, 1, 40, 250),
            (0, 0, 1, 1),
            (3_600_000, 99, 40, 1024),
        ] {
            let options = UdpOptions {
                wait: Duration::from_millis(wait_ms),
                tries,
            };
            let found = super::copies(options);
            let expected = (Duration::from_millis(copies_ms), copies);
            assert_eq!((found.wait, found.tries), expected);
        }
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
            for (index, request) in wrong.iter().chain([&asked]).enumerate() {
                let reply = answer(request, index as u64);
                let mut message = vec![0; message_bytes(reply.lines)];
                reply.encode(&key(), &mut message);
                node.send_to(&message, address).unwrap();
            }
        });
        assert_eq!(region.fetch_and_add(3, 5).unwrap(), 5);
        node.join().unwrap();
    }

    /// No answer comes, and the time of a try is over at once.
    fn in_vain(tries: u32) -> (UdpRegion, UdpSocket) {
        let (mut region, node) = pair();
        region.options = UdpOptions {
            wait: Duration::ZERO,
            tries,
        };
        (region, node)
    }

    /// Datagrams that lie in a socket; they are gone then.
    fn drain(socket: &UdpSocket) -> usize {
        socket.set_nonblocking(true).unwrap();
        let mut bytes = [0; MESSAGE_BYTES_MAX];
        std::iter::from_fn(|| socket.recv(&mut bytes).ok()).count()
    }

    #[test]
    fn a_request_is_sent_once_at_least_and_sixteen_times_at_most() {
        for (asked, sent) in [(0, 1), (1, 1), (15, 15), (16, 16), (17, 16), (u32::MAX, 16)] {
            let (mut region, node) = in_vain(asked);
            let refused = region.read(1).unwrap_err();
            assert!(
                matches!(refused, RegionError::Timeout { tries } if tries == sent),
                "{asked}: {refused}"
            );
            assert_eq!(drain(&node), sent as usize);
        }
    }

    #[test]
    fn that_nobody_listens_is_told_as_the_system_says_it() {
        let (mut region, node) = in_vain(3);
        drop(node);
        let refused = region.read(1).unwrap_err();
        let RegionError::Io { error, .. } = refused else {
            panic!("{refused}");
        };
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }

    /// They come from the node's address, as any host's can that forges it.
    #[test]
    fn datagrams_that_are_no_answer_hold_a_request_up_no_longer_than_its_time() {
        let (mut region, node) = in_vain(1);
        let address = region.socket.local_addr().unwrap();
        for _ in 0..74 {
            node.send_to(b"no answer", address).unwrap();
        }
        let refused = region.read(1).unwrap_err();
        assert!(
            matches!(refused, RegionError::Timeout { tries: 1 }),
            "{refused}"
        );
        assert_eq!(drain(&region.socket), 10);
    }

    /// What becomes of an addition that the node answers so.
    fn answered_with<const N: usize>(answers: [Status; N]) -> Result<u64, RegionError> {
        let (mut region, node) = pair();
        let address = region.socket.local_addr().unwrap();
        std::thread::scope(|scope| {
            let node = scope.spawn(move || {
                node.set_read_timeout(Some(Duration::from_secs(10)))
                    .unwrap();
                let mut bytes = [0; MESSAGE_BYTES_MAX];
                for status in answers {
                    let length = node.recv(&mut bytes).unwrap();
                    let (asked, _) = Request::decode(&bytes[..length], &[key()]).unwrap();
                    let reply = Reply {
                        status,
                        ..answer(&asked, 7)
                    };
                    reply.encode(&key(), &mut bytes[..length]);
                    node.send_to(&bytes[..length], address).unwrap();
                }
                node
            });
            let added = region.fetch_and_add(3, 5);
            let node = node.join().unwrap();
            assert_eq!(drain(&node), 0, "it asks no more");
            added
        })
    }

    #[test]
    fn an_atomic_is_made_anew_three_times_and_then_refused() {
        use Status::{Done, Stale, TooOld};
        assert_eq!(answered_with([Stale, Stale, Stale, Done]).unwrap(), 7);
        for (last, expected) in [(Stale, Refusal::Stale), (TooOld, Refusal::TooOld)] {
            let refused = answered_with([Stale, Stale, Stale, last]).unwrap_err();
            assert!(
                matches!(refused, RegionError::Refused(why) if why == expected),
                "{refused}"
            );
        }
    }

    /// Too old at the first try, it was not carried out; later, an earlier try may have been.
    #[test]
    fn an_atomic_that_is_too_old_is_made_anew_unless_it_was_sent_before() {
        use Status::{Done, TooOld};
        assert_eq!(answered_with([TooOld, Done]).unwrap(), 7);
        let (mut region, node) = pair();
        region.options = UdpOptions {
            wait: Duration::from_millis(200),
            tries: 16,
        };
        node.set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        let address = region.socket.local_addr().unwrap();
        let second = std::thread::spawn(move || {
            let mut bytes = [0; MESSAGE_BYTES_MAX];
            node.recv(&mut bytes).unwrap();
            let length = node.recv(&mut bytes).unwrap();
            let (asked, _) = Request::decode(&bytes[..length], &[key()]).unwrap();
            let reply = Reply {
                status: TooOld,
                ..answer(&asked, 7)
            };
            reply.encode(&key(), &mut bytes[..length]);
            node.send_to(&bytes[..length], address).unwrap();
            (asked.sequence, node)
        });
        let refused = region.fetch_and_add(3, 5).unwrap_err();
        assert!(
            matches!(refused, RegionError::Refused(Refusal::TooOld)),
            "{refused}"
        );
        let (asked, _node) = second.join().unwrap();
        assert_eq!(region.sequences.last(), asked, "it is not asked anew");
    }

    #[test]
    fn answers_made_with_another_key_are_counted_and_told_before_all_else() {
        let (mut region, _node) = pair();
        let request = Request::read(1, region.initiator, 7);
        let sent = [(7, clock::now())];
        let mut troubles = Troubles::default();
        let other = Key::new("n1", *b"another key's 16");
        for (key, believed, forged) in [(&other, false, 1), (&other, false, 2), (&key(), true, 2)] {
            let length = message_bytes(1);
            answer(&request, 0).encode(key, &mut region.message[..length]);
            let found = region.answer(length, &request, &sent, &mut troubles.forged);
            assert_eq!((found.is_some(), troubles.forged), (believed, forged));
        }
        troubles.refused = Some(io::ErrorKind::ConnectionRefused.into());
        let error = troubles.error(3);
        assert!(
            matches!(error, RegionError::WrongKey { forged: 2 }),
            "{error}"
        );
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
        assert!(region.sequences.next(clock::now()) >= 50_000_000_000);
    }
}
