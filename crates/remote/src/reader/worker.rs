//! The reader's thread: sends, receives answers, waits.

use std::net::{SocketAddr, UdpSocket};
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use tidegate_core::load::{LoadTable, Recent, WordReply};
use tidegate_core::time::{Timestamp, nanos};
use tidegate_core::topology::NodeId;

use super::atomics::{Due, RequestIds};
use super::budget::{Budget, Spent};
use super::front_ends;
use super::in_flight::InFlightRead;
use super::keys::Purpose;
use super::links::Links;
use super::node::{LINES, LINES_BYTES, Node, Times};
use super::peers::{Asked, Peers};
use super::schedule::{ReadPace, Schedule};
use super::status::{ReadFault, ReaderStats};
use super::{BACKOFF, FAULTS_MAX, ReaderOptions, ReaderState, Target};
use crate::clock;
use crate::memory::random;
use crate::region::RegionError;
use crate::udp::Key;
use crate::udp::batch::Batch;
use crate::udp::nonces::Nonces;
use crate::udp::wire::{HEADER_BYTES, Reply, Request, Status, TRIAL, Unverified, message_bytes};

/// Requests per system call. All of them count as sent when the call begins, so that more
/// would blur the round trip.
const SEND_BATCH: usize = 32;
/// Answers per system call.
const RECEIVE_BATCH: usize = 64;
/// Bytes of a message either way.
const MESSAGE_BYTES: usize = HEADER_BYTES + LINES_BYTES;
/// Time for more answers to come in after the first ones. Without it each answer would wake
/// the thread. It blurs the round trip by as much.
const NAP: Duration = Duration::from_micros(50);
/// Where reads are far apart all answers come in while the thread sleeps, for this part of an interval and this long at most.
const NAP_PART: u32 = 20;
const NAP_MAX: Duration = Duration::from_millis(2);
/// Where nodes are read in turn, slots are shorter: nearly all answers come in within this time.
const TURN_NAP: Duration = Duration::from_micros(200);
/// What is waited for: the bell, a socket for each family of addresses, and queues of completions.
const SOURCES_MAX: usize = 1 + 2 + 16;
/// How often the statistics are brought up to date.
const STATS_EVERY: Duration = Duration::from_millis(100);

/// One socket and what goes through it.
pub(super) struct Socket {
    pub(super) socket: UdpSocket,
    pub(super) ipv4: bool,
}

impl Socket {
    fn wanted(&self) -> PollFd<'_> {
        PollFd::from_borrowed_fd(self.socket.as_fd(), PollFlags::IN)
    }
}

/// The buffers, which stay on the thread.
struct Buffers {
    out: Batch,
    back: Batch,
    /// The batch that goes out, by slot: a node, and whether it is a read.
    sent: Vec<(usize, bool)>,
    slots: Vec<u16>,
}

impl Buffers {
    fn new() -> Self {
        Self {
            out: Batch::new(SEND_BATCH, MESSAGE_BYTES),
            back: Batch::new(RECEIVE_BATCH, MESSAGE_BYTES),
            sent: Vec::with_capacity(SEND_BATCH),
            slots: (0..SEND_BATCH as u16).collect(),
        }
    }
}

/// What the thread owns.
pub(super) struct Worker {
    /// Under which it is counted where it reads memory.
    pub(super) name: u64,
    /// None at an index that a node had which is read no more.
    pub(super) nodes: Vec<Option<Node>>,
    /// Indices in the order of reads: that of the nodes' places in the load table.
    order: Vec<usize>,
    pub(super) sockets: Vec<Socket>,
    pub(super) peers: Peers,
    pub(super) keys: Vec<Key>,
    pub(super) links: Links,
    nonces: Nonces,
    pub(super) table: Arc<LoadTable>,
    pub(super) shared: Arc<ReaderState>,
    pub(super) interval: Duration,
    budget: Option<Budget>,
    /// A node has stopped answering of late: it may have another key, or have lost its record.
    troubled: bool,
    timeout: Duration,
    slot_began: Timestamp,
    /// Reads of this slot that are not answered yet.
    awaited: usize,
    stats: ReaderStats,
    stats_at: Timestamp,
}

impl Worker {
    pub(super) fn new(
        targets: Vec<Target>,
        table: Arc<LoadTable>,
        shared: Arc<ReaderState>,
        options: &ReaderOptions,
    ) -> Result<Self, RegionError> {
        let mut worker = Self {
            name: random()?,
            nodes: Vec::with_capacity(targets.len()),
            order: Vec::with_capacity(targets.len()),
            sockets: Vec::new(),
            peers: Peers::default(),
            keys: Vec::new(),
            links: Links::new(options.one_sided_timeout),
            nonces: Nonces::default(),
            table,
            shared,
            interval: options.interval,
            budget: options.budget.map(Budget::new),
            troubled: false,
            timeout: options.timeout,
            slot_began: Timestamp::ZERO,
            awaited: 0,
            stats: ReaderStats::default(),
            stats_at: Timestamp::ZERO,
        };
        for target in targets {
            worker.add(target)?;
        }
        worker.put_in_order();
        Ok(worker)
    }

    pub(super) fn run(mut self) {
        // Without real-time priority the kernel would add 50 us to every wait. Where it cannot
        // be had, the reader is that much later.
        rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1)).ok();
        let mut buffers = Buffers::new();
        let mut schedule = Schedule::new(self.order.len(), self.interval, clock::now());
        while !self.stopped() {
            if self.take_wanted() {
                schedule = schedule.of(self.order.len(), self.interval, clock::now());
            }
            let paced = self.paced();
            if schedule.paced_by() != paced {
                schedule = schedule.paced(paced, clock::now());
            }
            self.take_links();
            self.slot_began = clock::now();
            self.awaited = 0;
            let (group, _) = schedule.begin(self.slot_began);
            let round = schedule.rounds();
            for socket in 0..self.sockets.len() {
                self.send(&mut buffers, socket, group.clone(), round);
            }
            for at in group.clone() {
                self.read_local(self.order[at], round);
            }
            if !self.gather(&mut buffers, schedule.in_turn()) {
                self.show_recent(schedule.in_turn(), group);
                self.receive_until(&mut buffers, schedule.deadline());
            }
            let now = clock::now();
            if let Some(until) = schedule.end(now) {
                clock::sleep_until(until);
            }
            if now.since(self.stats_at) >= STATS_EVERY {
                self.publish_stats(&schedule, now);
            }
        }
        self.table.set_recent(None);
    }

    /// What reading may take from now on; what it costs stays known.
    pub(super) fn set_budget(&mut self, budget: Option<f64>) {
        self.budget = match (self.budget.take(), budget) {
            (Some(known), Some(budget)) => Some(known.of(budget)),
            (_, budget) => budget.map(Budget::new),
        };
    }

    /// Time between two reads: as is wanted, enough, and can be afforded. A node in trouble is looked at as often as can be.
    fn paced(&self) -> ReadPace {
        let enough = match self.troubled {
            true => 0,
            false => self.shared.pace.load(Ordering::Relaxed),
        };
        let enough = self.interval.max(Duration::from_nanos(enough));
        let affordable = self
            .budget
            .as_ref()
            .map_or(Duration::ZERO, Budget::interval);
        let interval = enough.max(affordable);
        self.shared
            .interval
            .store(nanos(interval), Ordering::Relaxed);
        ReadPace {
            interval,
            is_short_of: affordable > enough,
        }
    }

    /// Time between two reads as it is now.
    pub(super) fn interval_now(&self) -> Duration {
        Duration::from_nanos(self.shared.interval.load(Ordering::Relaxed))
    }

    /// How long an answer may take.
    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    fn stopped(&self) -> bool {
        self.shared.stop.load(Ordering::Acquire)
    }

    /// Rounds in which each node that has not answered for long is read once: as long as 16 at the shortest interval.
    fn turns(&self) -> u64 {
        let interval = nanos(self.interval_now()).max(1);
        (nanos(self.interval).saturating_mul(BACKOFF) / interval).clamp(1, BACKOFF)
    }

    /// Sends a read to every node of a group that is reached through this socket.
    fn send(&mut self, buffers: &mut Buffers, socket: usize, group: Range<usize>, round: u64) {
        let (mut now, turns) = (clock::now(), self.turns());
        for at in group {
            let index = self.order[at];
            let path = self.nodes[index].as_ref().and_then(Node::udp);
            let Some(peer) = path.map(|path| path.peer) else {
                continue;
            };
            if self.peers.get(peer).socket != socket {
                continue;
            }
            self.expire(index, now);
            if self.is_read_for(index, now) || self.send_read(buffers, index, (round, turns), now) {
                self.ask(buffers, index, now);
            }
            // Room for both of the next node.
            if buffers.sent.len() + 2 > SEND_BATCH {
                self.flush(buffers, socket);
                now = clock::now();
            }
        }
        self.flush(buffers, socket);
    }

    /// Gives up on reads that have had no answer in time.
    fn expire(&mut self, index: usize, now: Timestamp) {
        let Some(node) = &mut self.nodes[index] else {
            return;
        };
        let shared = &self.shared.nodes[node.id.index()];
        let Some(path) = node.udp_mut() else {
            return;
        };
        let expired = path.in_flight.expire(now, self.timeout);
        if expired > 0 {
            shared.faults(ReadFault::Timeout, expired);
        }
    }

    /// Sends a read of one node, if it is its turn; whether it is.
    fn send_read(
        &mut self,
        buffers: &mut Buffers,
        index: usize,
        (round, turns): (u64, u64),
        now: Timestamp,
    ) -> bool {
        let Some(node) = &mut self.nodes[index] else {
            return false;
        };
        let shared = &self.shared.nodes[node.id.index()];
        let Some(path) = node.udp_mut() else {
            return false;
        };
        if !shared.is_due(index, round, turns) {
            return false;
        }
        let answers = path.answered_at.is_some() && shared.consecutive() == 0;
        let next = path.rdma.way.next(now, answers);
        if next.connect {
            self.ask_for_link(index);
        }
        if next.one_sided {
            self.read_one_sided(index, now);
        }
        !next.datagram || self.send_datagram(buffers, index, now)
    }

    /// Sends a read of one node; whether there was one to send.
    fn send_datagram(&mut self, buffers: &mut Buffers, index: usize, now: Timestamp) -> bool {
        let Some(node) = &mut self.nodes[index] else {
            return false;
        };
        let shared = &self.shared.nodes[node.id.index()];
        let Some(path) = node.udp_mut() else {
            return false;
        };
        let peer = self.peers.get_mut(path.peer);
        let Some((key, purpose)) = path.keys.next(shared.consecutive(), self.keys.len()) else {
            return false;
        };
        let Ok(nonce) = self.nonces.draw() else {
            // The system has no random numbers: answers could be forged without a guess.
            shared.faults(ReadFault::Unreachable, 1);
            return false;
        };
        path.in_flight.send(InFlightRead {
            nonce,
            sent_at: now,
            key,
            purpose,
        });
        let request = Request {
            sequence: peer.next_number(path.atomics.node_clock(now)),
            word: if path.keys.is_trial(key, purpose) {
                TRIAL
            } else {
                0
            },
            ..Request::read(LINES as u8, peer.initiator, nonce)
        };
        let slot = buffers.sent.len();
        let message = buffers.out.fill(slot, &peer.name, MESSAGE_BYTES);
        if let Some(header) = message.first_chunk_mut() {
            request.encode(&self.keys[key], header);
        }
        buffers.sent.push((index, true));
        self.for_those_of(index, |worker, index| worker.note_poll(index, now));
        true
    }

    /// Notes own traffic of a node whose read is sent now.
    pub(super) fn note_poll(&mut self, index: usize, now: Timestamp) {
        if let Some(node) = &mut self.nodes[index] {
            node.note_poll(now, &self.table);
        }
    }

    /// A read was sent that does not go through a batch.
    pub(super) fn note_sent(&mut self) {
        self.stats.sent += 1;
        self.note_awaited();
    }

    /// One that is under way is waited for in this slot too.
    pub(super) fn note_awaited(&mut self) {
        self.awaited += 1;
    }

    /// The answer to a read is there that was sent, or waited for again, then.
    pub(super) fn note_received(&mut self, awaited_at: Timestamp) {
        self.stats.received += 1;
        if awaited_at >= self.slot_began {
            self.awaited = self.awaited.saturating_sub(1);
        }
    }

    /// Sends what is asked of a node's words, if anything is.
    fn ask(&mut self, buffers: &mut Buffers, index: usize, now: Timestamp) {
        let Some(node) = &mut self.nodes[index] else {
            return;
        };
        let id = node.id;
        let Some(path) = node.udp_mut() else {
            return;
        };
        let (Some(asked), Some(key)) = (self.table.asked_word(id), path.keys.current()) else {
            return;
        };
        if path.rdma.has_words() && path.atomics.goes_by_link(asked, now) {
            return;
        }
        let Ok(nonce) = self.nonces.draw() else {
            self.table.answer_word(id, asked.ticket, WordReply::Lost);
            return;
        };
        let ids = RequestIds {
            initiator: path.initiator,
            nonce,
        };
        match path.atomics.due(asked, ids, now) {
            Due::Nothing => {}
            Due::GiveUp(ticket) => self.table.answer_word(id, ticket, WordReply::Lost),
            Due::Send(request) => {
                let slot = buffers.sent.len();
                let name = &self.peers.get(path.peer).name;
                let message = buffers.out.fill(slot, name, message_bytes(0));
                if let Some(header) = message.first_chunk_mut() {
                    request.encode(&self.keys[key], header);
                }
                buffers.sent.push((index, false));
            }
        }
    }

    /// Hands the batch to the kernel.
    fn flush(&mut self, buffers: &mut Buffers, socket: usize) {
        let sent = &buffers.sent;
        let slots = &buffers.slots[..sent.len()];
        let nodes = &mut self.nodes;
        let shared = &self.shared.nodes;
        let mut unsent = 0;
        buffers
            .out
            .send(&self.sockets[socket].socket, slots, |slot, _| {
                // No route, a full buffer, a filter: the others are sent all the same.
                let (index, is_read) = sent[usize::from(slot)];
                unsent += 1;
                if is_read && let Some(node) = &mut nodes[index] {
                    if let Some(path) = node.udp_mut() {
                        path.in_flight.end_last();
                    }
                    shared[node.id.index()].faults(ReadFault::Unreachable, 1);
                }
            });
        self.stats.sent += sent.len() as u64;
        self.awaited += sent.len() - unsent;
        buffers.sent.clear();
    }

    fn read_local(&mut self, index: usize, round: u64) {
        let turns = self.turns();
        let Some(node) = &mut self.nodes[index] else {
            return;
        };
        let shared = &self.shared.nodes[node.id.index()];
        if node.udp().is_none() && shared.is_due(index, round, turns) {
            node.read_local(shared, &self.table);
            self.stats.sent += 1;
            self.stats.received += 1;
        }
    }

    /// Lets the answers of a slot come in while the thread sleeps, where there is time for that; whether the bell has rung.
    fn gather(&mut self, buffers: &mut Buffers, in_turn: bool) -> bool {
        let nap = match in_turn {
            true => TURN_NAP,
            false => (self.interval_now() / NAP_PART).min(NAP_MAX),
        };
        if nap > NAP && self.awaited > 0 {
            let rung = self.wait(nap, false);
            self.receive(buffers);
            return rung;
        }
        false
    }

    /// Says which nodes were read last, if they are read in turn: these now.
    fn show_recent(&mut self, in_turn: bool, group: Range<usize>) {
        let id = |at: usize| Some(self.nodes[*self.order.get(at)?].as_ref()?.id);
        let ends = id(group.start).zip(id(group.end.saturating_sub(1)));
        match ends.filter(|_| in_turn) {
            Some((first, last)) => {
                let recent = Recent::new(first, last);
                self.table.set_recent(Some(recent));
            }
            None if self.table.recent().is_some() => self.table.set_recent(None),
            None => {}
        }
    }

    /// Nodes are read in the order of their places from now on.
    pub(super) fn put_in_order(&mut self) {
        let known = self.nodes.iter().enumerate();
        self.order.clear();
        (self.order).extend(known.filter_map(|(index, node)| node.is_some().then_some(index)));
        let id = |index: &usize| self.nodes[*index].as_ref().map(|node| node.id);
        self.order.sort_unstable_by_key(id);
    }

    /// Receives answers until the deadline or the bell. Every time that the thread is woken costs more than
    /// an answer does: so it sleeps once all answers of this slot are there, and else is woken
    /// by the first one and lets the others come in meanwhile.
    ///
    /// A slot that begins too late, or that the bell ends, takes in what is here all the same: where every slot does, nothing
    /// would ever be taken in.
    fn receive_until(&mut self, buffers: &mut Buffers, deadline: Timestamp) {
        if clock::now() >= deadline {
            return self.receive(buffers);
        }
        while !self.stopped() {
            let now = clock::now();
            if now >= deadline {
                return;
            }
            if self.wait(deadline.since(now), self.awaited > 0) {
                return self.receive(buffers);
            }
            if self.awaited == 0 {
                continue;
            }
            self.receive(buffers);
            if self.awaited > 0 {
                clock::sleep_until(deadline.min(clock::now() + NAP));
                self.receive(buffers);
            }
        }
    }

    /// Waits for the bell, and for an answer if that is wanted; whether the bell has rung.
    fn wait(&self, rest: Duration, for_answers: bool) -> bool {
        let rest = clock::timespec(rest);
        let bell = PollFd::from_borrowed_fd(self.shared.bell.as_fd(), PollFlags::IN);
        let mut wanted: [_; SOURCES_MAX] = std::array::from_fn(|_| bell.clone());
        let mut sources = 1;
        if for_answers {
            let sockets = self.sockets.iter().map(Socket::wanted);
            let all = sockets.chain(self.links.wanted());
            for (place, source) in wanted[1..].iter_mut().zip(all) {
                *place = source;
                sources += 1;
            }
        }
        let wanted = &mut wanted[..sources];
        // Whether an answer came, the time is over or a signal did: the caller looks itself.
        poll(wanted, Some(&rest)).ok();
        let rung = !wanted[0].revents().is_empty();
        // What it counts does not matter; a second look finds it silent.
        rung && rustix::io::read(&self.shared.bell, &mut [0; 8]).is_ok()
    }

    /// Receives all answers that are here.
    fn receive(&mut self, buffers: &mut Buffers) {
        self.receive_one_sided();
        for socket in 0..self.sockets.len() {
            // No longer than there are nodes: a flood must not keep us from sending.
            for _ in 0..=self.nodes.len() / RECEIVE_BATCH {
                let received = buffers.back.receive(&self.sockets[socket].socket, false);
                // Nothing there, or the system reports the fate of an earlier request, which
                // its time-out tells as well.
                let Ok(received) = received else { break };
                let now = clock::now();
                for slot in 0..received {
                    let datagram = buffers.back.datagram(slot);
                    match datagram.zip(buffers.back.source(slot)) {
                        Some((message, source)) => self.accept(message, source, now),
                        None => self.stats.unexpected += 1,
                    }
                }
                if received < RECEIVE_BATCH {
                    break;
                }
            }
        }
    }

    /// Accepts one answer.
    fn accept(&mut self, message: &[u8], source: SocketAddr, received_at: Timestamp) {
        match self.expected(message, source) {
            Some((Expected::Read(index, read), reply)) => {
                self.accept_read(index, read, &reply, received_at);
            }
            Some((Expected::Atomic(index, sent_at), reply)) => {
                self.accept_atomic(index, sent_at, &reply, received_at);
            }
            None => self.stats.unexpected += 1,
        }
    }

    fn accept_read(
        &mut self,
        index: usize,
        read: InFlightRead,
        reply: &Unverified<'_>,
        received_at: Timestamp,
    ) {
        let Some(node) = &self.nodes[index] else {
            return;
        };
        let shared = &self.shared.nodes[node.id.index()];
        let Ok((reply, lines)) = reply.verify(&self.keys[read.key]) else {
            // The true answer may still come.
            self.stats.forged += 1;
            shared.faults(ReadFault::WrongKey, 1);
            return;
        };
        let Some(node) = &mut self.nodes[index] else {
            return;
        };
        let id = node.id;
        let Some(path) = node.udp_mut() else {
            return;
        };
        path.in_flight.end(read.nonce);
        // What comes over RDMA is no older than what datagrams bring beside it.
        let taken = (!path.rdma.stands()).then_some(lines);
        self.note_received(read.sent_at);
        if read.purpose == Purpose::Whose {
            let shared = &self.shared.nodes[id.index()];
            shared.faults(ReadFault::WrongKey, 1);
            shared.has_key_of(self.whose(read.key));
            return;
        }
        self.for_those_of(index, |worker, index| {
            worker.take_in(index, &reply, taken, read, received_at);
        });
        if reply.status == Status::Done {
            self.compare_link(index, lines);
        }
    }

    /// Takes in what an agent has answered, for one of its nodes.
    fn take_in(
        &mut self,
        index: usize,
        reply: &Reply,
        lines: Option<&[u8]>,
        read: InFlightRead,
        received_at: Timestamp,
    ) {
        let Some(node) = &mut self.nodes[index] else {
            return;
        };
        let shared = &self.shared.nodes[node.id.index()];
        let Some(path) = node.udp_mut() else {
            return;
        };
        path.answered_at = Some(received_at);
        path.keys.answered(read.key);
        shared.answers_to(path.keys.index());
        path.atomics
            .note_clock(reply.node_now_ns, read.sent_at, received_at);
        node.front_ends.note(reply.readers, received_at);
        let times = Times {
            sent_at: read.sent_at,
            received_at,
            node_now_ns: Some(reply.node_now_ns),
        };
        if let Status::Done | Status::Absent | Status::Torn = reply.status
            && let Some(held) = reply.first_word()
        {
            self.table.note_first_word(node.id, held, read.sent_at);
        }
        match reply.status {
            Status::Done => {
                if let Some(lines) = lines {
                    node.accept(lines, times, None, shared, &self.table);
                }
            }
            Status::Absent => shared.faults(ReadFault::Absent, 1),
            Status::Torn => shared.faults(ReadFault::Torn, 1),
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
                shared.faults(ReadFault::Refused, 1);
            }
        }
    }

    fn accept_atomic(
        &mut self,
        index: usize,
        sent_at: Timestamp,
        reply: &Unverified<'_>,
        received_at: Timestamp,
    ) {
        let Some(node) = &mut self.nodes[index] else {
            return;
        };
        let id = node.id;
        let Some(path) = node.udp_mut() else { return };
        let Some(key) = path.keys.current() else {
            return;
        };
        let Ok((reply, _)) = reply.verify(&self.keys[key]) else {
            // The true answer may still come.
            self.stats.forged += 1;
            return;
        };
        if let Some((ticket, reply)) = path.atomics.accept(&reply, received_at) {
            self.table.answer_word(id, ticket, reply);
        }
        self.note_received(sent_at);
    }

    /// What a datagram claims to answer, if that is under way and it comes from where it was asked.
    /// Only its key shows whether the node made it.
    fn expected<'a>(
        &self,
        message: &'a [u8],
        source: SocketAddr,
    ) -> Option<(Expected, Unverified<'a>)> {
        let reply = Reply::parse(message).ok()?;
        let expected = match self.peers.asked(reply.initiator())? {
            Asked::Reads(peer) => {
                let peer = self.peers.get(peer);
                // Nothing but a read's answer is as long.
                if !peer.is(source) || message.len() != MESSAGE_BYTES {
                    return None;
                }
                peer.nodes.iter().find_map(|index| {
                    let path = self.nodes[*index].as_ref()?.udp()?;
                    let read = path.in_flight.pending(reply.nonce())?;
                    Some(Expected::Read(*index, read))
                })?
            }
            Asked::Atomics(index) => {
                let path = self.nodes[index].as_ref()?.udp()?;
                if !self.peers.get(path.peer).is(source) {
                    return None;
                }
                Expected::Atomic(index, path.atomics.expected(&reply)?)
            }
        };
        Some((expected, reply))
    }

    /// The node that is asked with this key; none for one that was replaced.
    fn whose(&self, key: usize) -> Option<NodeId> {
        let has = |node: &&Node| node.udp().is_some_and(|path| path.keys.has(key));
        let owner = self.nodes.iter().flatten().find(has);
        owner.map(|node| node.id)
    }

    /// Brings the statistics up to date.
    fn publish_stats(&mut self, schedule: &Schedule, now: Timestamp) {
        self.stats_at = now;
        self.stats.rounds = schedule.rounds();
        self.stats.overruns = schedule.overruns();
        let troubled = |node: &Node| {
            let faults = self.shared.nodes[node.id.index()].consecutive();
            (1..FAULTS_MAX).contains(&faults)
        };
        self.troubled = self.nodes.iter().flatten().any(troubled);
        (self.stats.cpu_user, self.stats.cpu_system) = clock::thread_cpu();
        if let Some(budget) = &mut self.budget {
            budget.on_look(&Spent {
                at: now,
                rounds: self.stats.rounds,
                reading: self.stats.cpu_user + self.stats.cpu_system,
                process: clock::process_cpu(),
            });
        }
        self.shared.stats.store(&self.stats);
        let counted = self.nodes.iter_mut().flatten();
        let readers = front_ends::estimate(counted.map(|node| node.front_ends.current(now)));
        self.shared.stats.readers.store(readers, Ordering::Relaxed);
    }
}

/// What an answer is taken for: which node's, and what it answers.
enum Expected {
    Read(usize, InFlightRead),
    /// With the time at which it was sent last.
    Atomic(usize, Timestamp),
}

#[cfg(test)]
mod tests;
