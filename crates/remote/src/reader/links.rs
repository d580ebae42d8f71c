//! Reads over RDMA: posted without waiting, taken in with the answers that come over UDP.
//!
//! A node has one READ under way at most: cards lose nothing, and a read that takes longer than an interval is not due
//! again before it is done. What is read with a link is one post and one completion. The channels of completions
//! stand beside the sockets in poll(2); before a READ is posted its completion is asked to be announced, so that no look
//! at the queue is needed before that.
//!
//! **Back to UDP.** A READ that fails, or takes longer than [`ReaderOptions::one_sided_timeout`](super::ReaderOptions), gives
//! the link up, and the node's next read is a datagram (`way`). So do [`BARREN_MAX`] reads in a row without a record, and a
//! record that stands still over RDMA while datagrams bring others: memory stays readable when nothing writes there any
//! more. What a datagram brings while a link stands is not taken in, and of two records the one that is older by the
//! node's clock never is.
//!
//! **Words.** Where a node grants its words, each read has an atomic behind it, in the same post: the one that the director asks
//! for, or an addition of nothing to word 0. It is settled with the read: done with its completion, lost with the link.
//! Nodes that are read with another one of their agent have no link, and ask by UDP.
//!
//! Failure case: a card that answers, and slowly. Its reads are late, and one that is too late costs the link.

use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use tidegate_core::load::{Rung, WordOp, WordReply, WordRequest};
use tidegate_core::time::Timestamp;
use tidegate_core::topology::NodeId;

use super::atomics::OnLink;
use super::connector::{Connected, Connector, Order};
use super::node::{LINES_BYTES, Node, Times};
use super::status::ReadFault;
use super::way::Way;
use super::worker::Worker;
use crate::clock;
use crate::memory::lines::clear_behind;
use crate::rdma::{Completion, Completions, Link, QueueFailure};
use crate::region::RegionError;

/// Reads in a row without a record that cost a link.
const BARREN_MAX: u32 = 8;
/// In a number of a request: the node's index, below the number itself.
const INDEX_BITS: u32 = 16;
const _: () = assert!(super::TARGETS_MAX <= 1 << INDEX_BITS);
/// Completions that are taken at once for each link there may be: more are a fault of the device.
const COMPLETIONS_PER_LINK: usize = 4;

/// What is kept of a node that is read by RDMA where that can be.
pub(super) struct NodeLink {
    pub(super) way: Way,
    /// Of the connection that is there or was asked for.
    ticket: u64,
    used: Option<UsedLink>,
}

impl std::fmt::Debug for NodeLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeLink")
            .field("way", &self.way)
            .field("ticket", &self.ticket)
            .finish_non_exhaustive()
    }
}

struct UsedLink {
    link: Box<Link>,
    lane: usize,
    posted: Option<PostedRead>,
    /// What a datagram showed last, and what was known by then.
    shown: Option<Shown>,
}

/// The READ that is under way.
#[derive(Clone, Copy)]
struct PostedRead {
    id: u64,
    at: Timestamp,
    /// When it was counted last among those that are waited for.
    awaited_at: Timestamp,
    /// The atomic behind it.
    word: Option<PostedWord>,
}

/// An atomic behind a READ.
#[derive(Clone, Copy)]
enum PostedWord {
    /// What word 0 holds.
    First,
    /// What the director asks for.
    Asked(WordRequest),
}

impl PostedWord {
    fn op(self) -> WordOp {
        match self {
            Self::First => WordOp::FetchAndAdd { word: 0, delta: 0 },
            Self::Asked(asked) => asked.op,
        }
    }
}

/// The newest records by either way: generation and sequence.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Shown {
    one_sided: (u64, u32),
    datagram: (u64, u32),
}

impl NodeLink {
    pub(super) fn new(wanted: bool) -> Self {
        Self {
            way: Way::new(wanted),
            ticket: 0,
            used: None,
        }
    }

    pub(super) fn stands(&self) -> bool {
        self.used.is_some()
    }

    /// Whether a link stands over which words are changed.
    pub(super) fn has_words(&self) -> bool {
        let link = self.used.as_ref().map(|used| &used.link);
        link.is_some_and(|link| link.words_epoch().is_some())
    }
}

/// A queue of completions of many links.
struct Lane {
    completions: Arc<Completions>,
    /// The next completion is announced.
    armed: bool,
    links: usize,
    under_way: usize,
}

/// What the reader keeps for all of them.
pub(super) struct Links {
    connector: Option<Connector>,
    /// None at an index that nothing uses.
    lanes: Vec<Option<Lane>>,
    wait: Duration,
    tickets: u64,
    number: u64,
}

impl Links {
    /// `wait`: how long a READ may take.
    pub(super) fn new(wait: Duration) -> Self {
        Self {
            connector: None,
            lanes: Vec::new(),
            wait,
            tickets: 0,
            number: 0,
        }
    }

    /// What becomes readable when READs are done.
    pub(super) fn wanted(&self) -> impl Iterator<Item = PollFd<'_>> {
        let lanes = self.lanes.iter().flatten();
        lanes.map(|lane| PollFd::from_borrowed_fd(lane.completions.descriptor(), PollFlags::IN))
    }

    /// The lane of these completions.
    fn lane(&mut self, completions: &Arc<Completions>) -> usize {
        let is_it = |lane: &Option<Lane>| {
            let lane = lane.as_ref();
            lane.is_some_and(|lane| Arc::ptr_eq(&lane.completions, completions))
        };
        if let Some(known) = self.lanes.iter().position(is_it) {
            return known;
        }
        let new = Some(Lane {
            completions: Arc::clone(completions),
            armed: false,
            links: 0,
            under_way: 0,
        });
        match self.lanes.iter().position(Option::is_none) {
            Some(free) => {
                self.lanes[free] = new;
                free
            }
            None => {
                self.lanes.push(new);
                self.lanes.len() - 1
            }
        }
    }

    /// A link of this lane is used no more.
    fn leave(&mut self, used: &UsedLink) {
        let Some(lane) = &mut self.lanes[used.lane] else {
            return;
        };
        lane.links -= 1;
        lane.under_way -= usize::from(used.posted.is_some());
        if lane.links == 0 {
            self.lanes[used.lane] = None;
        }
    }
}

impl Worker {
    /// Asks for a connection to a node.
    pub(super) fn ask_for_link(&mut self, index: usize) {
        let now = clock::now();
        self.links.tickets += 1;
        let ticket = self.links.tickets;
        if self.links.connector.is_none() {
            self.links.connector = Connector::spawn(&self.shared, self.links.wait).ok();
        }
        let Some(node) = &mut self.nodes[index] else {
            return;
        };
        let id = node.id;
        let Some(path) = node.udp_mut() else { return };
        path.rdma.ticket = ticket;
        let key = path.keys.current();
        let peer = self.peers.get(path.peer);
        let ordered = self
            .links
            .connector
            .as_ref()
            .zip(key)
            .is_some_and(|(it, key)| {
                it.order(Order::Connect {
                    ticket,
                    node: id,
                    address: peer.address,
                    initiator: peer.initiator,
                    key: self.keys[key].clone(),
                })
            });
        if !ordered {
            path.rdma.way.refused(now);
        }
    }

    /// Takes in what has become of connections.
    pub(super) fn take_links(&mut self) {
        while let Some((ticket, outcome)) =
            self.links.connector.as_ref().and_then(Connector::outcome)
        {
            let has_it = |node: &Option<Node>| {
                let path = node.as_ref().and_then(Node::udp);
                path.is_some_and(|path| path.rdma.ticket == ticket)
            };
            match (self.nodes.iter().position(has_it), outcome) {
                (Some(index), Connected::Stands(link)) => self.begin_link(index, link),
                (Some(index), Connected::No { for_good }) => {
                    self.refuse_link(index, for_good);
                }
                (Some(index), Connected::Ended) => {
                    self.give_up_link(index, Some("the node has begun anew".to_owned()));
                }
                // The node is read no more.
                (None, Connected::Stands(link)) => self.destroy(ticket, NodeId(0), link, None),
                (None, Connected::No { .. } | Connected::Ended) => {}
            }
        }
    }

    fn refuse_link(&mut self, index: usize, for_good: bool) {
        let Some(node) = &mut self.nodes[index] else {
            return;
        };
        let shared = &self.shared.nodes[node.id.index()];
        let Some(path) = node.udp_mut() else { return };
        match for_good {
            true => {
                path.rdma.way.is_out_of_the_question();
                shared.rdma_is_impossible();
            }
            false => path.rdma.way.refused(clock::now()),
        }
    }

    fn begin_link(&mut self, index: usize, link: Box<Link>) {
        let lane = self.links.lane(link.completions());
        let Some(node) = &mut self.nodes[index] else {
            return;
        };
        self.shared.nodes[node.id.index()].rdma_stands(true);
        let Some(path) = node.udp_mut() else { return };
        path.rdma.way.stands(clock::now());
        path.rdma.used = Some(UsedLink {
            link,
            lane,
            posted: None,
            shown: None,
        });
        if let Some(lane) = &mut self.links.lanes[lane] {
            lane.links += 1;
        }
    }

    /// Uses a node's link no more, if it has one: its next read goes over UDP. No reason: it is read no more at all.
    pub(super) fn give_up_link(&mut self, index: usize, why: Option<String>) {
        let Some(node) = &mut self.nodes[index] else {
            return;
        };
        let id = node.id;
        let Some(path) = node.udp_mut() else { return };
        let ticket = path.rdma.ticket;
        let Some(used) = path.rdma.used.take() else {
            return;
        };
        path.rdma.way.lost(clock::now());
        self.links.leave(&used);
        if let Some(posted) = used.posted {
            self.lose_word(id, posted.word);
        }
        self.shared.nodes[id.index()].rdma_stands(false);
        self.destroy(ticket, id, used.link, why);
    }

    /// What became of an atomic that was posted is not known.
    fn lose_word(&self, node: NodeId, word: Option<PostedWord>) {
        if let Some(PostedWord::Asked(asked)) = word {
            self.table.answer_word(node, asked.ticket, WordReply::Lost);
        }
    }

    /// What goes behind the next READ of a node, where its link has words.
    fn next_word(&mut self, index: usize, now: Timestamp) -> Option<PostedWord> {
        let node = self.nodes[index].as_mut()?;
        let id = node.id;
        let path = node.udp_mut()?;
        let epoch = path.rdma.used.as_ref()?.link.words_epoch()?;
        let Some(asked) = self.table.asked_word(id) else {
            return Some(PostedWord::First);
        };
        match path.atomics.on_link(asked, epoch, now) {
            OnLink::Post => return Some(PostedWord::Asked(asked)),
            OnLink::Leave => {}
            OnLink::Lost => self.table.answer_word(id, asked.ticket, WordReply::Lost),
        }
        Some(PostedWord::First)
    }

    /// Has a link destroyed, which takes its time, by the thread that has it.
    fn destroy(&mut self, ticket: u64, node: NodeId, link: Box<Link>, why: Option<String>) {
        if let Some(connector) = &self.links.connector {
            connector.order(Order::Drop {
                ticket,
                node,
                link,
                why,
            });
        }
    }

    /// The targets were set anew: what this host could not do may be possible now.
    pub(super) fn ask_for_links_anew(&mut self) {
        let now = clock::now();
        for node in self.nodes.iter_mut().flatten() {
            if node.target.transport.wants_rdma()
                && let Some(path) = node.udp_mut()
            {
                path.rdma.way.ask_anew(now);
            }
        }
    }

    /// Posts a READ of a node, unless one is under way; gives a link up whose READ takes too long.
    pub(super) fn read_one_sided(&mut self, index: usize, now: Timestamp) {
        let wait = self.links.wait;
        self.links.number += 1;
        let id = self.links.number << INDEX_BITS | index as u64;
        let Some(path) = self.nodes[index].as_mut().and_then(Node::udp_mut) else {
            return;
        };
        let Some(used) = &mut path.rdma.used else {
            return;
        };
        if let Some(posted) = &mut used.posted {
            if now.since(posted.at) >= wait {
                self.lose_link(index, &QueueFailure::Silent);
            } else {
                posted.awaited_at = now;
                self.note_awaited();
            }
            return;
        }
        let word = self.next_word(index, now);
        let path = self.nodes[index].as_mut().and_then(Node::udp_mut);
        let Some(used) = path.and_then(|path| path.rdma.used.as_mut()) else {
            return;
        };
        let Some(lane) = &mut self.links.lanes[used.lane] else {
            return;
        };
        let posted = match lane.armed {
            true => Ok(()),
            false => lane.completions.arm(),
        };
        let then = word.map(PostedWord::op);
        match posted.and_then(|()| used.link.post_read(LINES_BYTES, then, id)) {
            Ok(()) => {
                lane.armed = true;
                lane.under_way += 1;
                used.posted = Some(PostedRead {
                    id,
                    at: now,
                    awaited_at: now,
                    word,
                });
                self.note_sent();
                self.for_those_of(index, |worker, index| worker.note_poll(index, now));
            }
            Err(error) => {
                // Some of it may have been posted.
                if let Some(node) = &self.nodes[index] {
                    self.lose_word(node.id, word);
                }
                self.lose_link(index, &error.into());
            }
        }
    }

    /// A READ has failed.
    fn lose_link(&mut self, index: usize, why: &QueueFailure) {
        if let Some(node) = &self.nodes[index] {
            let fault = match why {
                QueueFailure::Silent => ReadFault::Timeout,
                QueueFailure::Refused => ReadFault::Refused,
                QueueFailure::Status(_) | QueueFailure::System(_) => ReadFault::Unreachable,
            };
            self.shared.nodes[node.id.index()].faults(fault, 1);
        }
        self.give_up_link(index, Some(format!("a read failed: {why}")));
    }

    /// Takes in all READs that are done.
    pub(super) fn receive_one_sided(&mut self) {
        for at in 0..self.links.lanes.len() {
            let Some(lane) = &mut self.links.lanes[at] else {
                continue;
            };
            lane.completions.drain();
            lane.armed = false;
            for _ in 0..=self.nodes.len() * COMPLETIONS_PER_LINK {
                let Some(lane) = &mut self.links.lanes[at] else {
                    break;
                };
                match lane.completions.next() {
                    Ok(Some(completion)) => self.complete(completion),
                    Ok(None) if lane.under_way > 0 && !lane.armed => {
                        // One that came before is found by the next look.
                        lane.armed = true;
                        if let Err(error) = lane.completions.arm() {
                            self.lose_lane(at, &error);
                        }
                    }
                    Ok(None) => break,
                    Err(error) => self.lose_lane(at, &error),
                }
            }
        }
    }

    /// No completions come any more.
    fn lose_lane(&mut self, lane: usize, error: &RegionError) {
        for index in 0..self.nodes.len() {
            let path = self.nodes[index].as_ref().and_then(Node::udp);
            let used = path.and_then(|path| path.rdma.used.as_ref());
            if used.is_some_and(|used| used.lane == lane) {
                self.give_up_link(index, Some(error.to_string()));
            }
        }
    }

    /// Takes in the completion of the READ with this number.
    fn complete(&mut self, Completion { id, ended }: Completion) {
        let index = (id & ((1 << INDEX_BITS) - 1)) as usize;
        let node = self.nodes.get_mut(index).and_then(Option::as_mut);
        let Some(path) = node.and_then(Node::udp_mut) else {
            return;
        };
        let Some(used) = &mut path.rdma.used else {
            return;
        };
        // One of a link that is gone may come late.
        let Some(posted) = used.posted.take_if(|posted| posted.id == id) else {
            return;
        };
        let sent_at = posted.at;
        if let Some(lane) = &mut self.links.lanes[used.lane] {
            lane.under_way -= 1;
        }
        let received_at = clock::now();
        let mut lines = [0; LINES_BYTES];
        let held = ended.is_ok().then(|| used.link.word());
        let is_of_grant = match &ended {
            Ok(()) => {
                used.link.assemble(&mut lines);
                clear_behind(&mut lines);
                let (generation, _) = name_of(&lines);
                used.link.is_of(generation)
            }
            Err(_) => true,
        };
        self.note_received(posted.awaited_at);
        if let Some(word) = posted.word {
            self.settle_word(index, word, held, (sent_at, received_at));
        }
        match ended {
            Err(why) => self.lose_link(index, &why),
            Ok(()) if !is_of_grant => {
                let why = "another record has taken the place of the one that was granted";
                self.give_up_link(index, Some(why.to_owned()));
            }
            Ok(()) => {
                self.for_those_of(index, |worker, index| {
                    if let Some(node) = &mut worker.nodes[index] {
                        node.front_ends.still(received_at);
                    }
                    worker.take_in_one_sided(index, &lines, (sent_at, received_at));
                });
                self.judge_link(index);
            }
        }
    }

    /// An atomic behind a READ has ended: what its word held, if it was carried out for sure.
    fn settle_word(
        &mut self,
        index: usize,
        word: PostedWord,
        held: Option<u64>,
        (sent_at, received_at): (Timestamp, Timestamp),
    ) {
        let Some(node) = &mut self.nodes[index] else {
            return;
        };
        let id = node.id;
        let Some(path) = node.udp_mut() else { return };
        let node_now = Timestamp::from_nanos(path.atomics.node_clock(received_at));
        match (word, held) {
            (PostedWord::Asked(asked), Some(held)) => {
                let done = WordReply::Done { held, node_now };
                self.table.answer_word(id, asked.ticket, done);
            }
            (PostedWord::First, Some(held)) => self.for_those_of(index, |worker, index| {
                if let Some(node) = &worker.nodes[index] {
                    worker.table.note_first_word(node.id, held, sent_at);
                }
            }),
            (word, None) => self.lose_word(id, Some(word)),
        }
    }

    fn take_in_one_sided(
        &mut self,
        index: usize,
        lines: &[u8],
        (sent_at, received_at): (Timestamp, Timestamp),
    ) {
        let Some(node) = &mut self.nodes[index] else {
            return;
        };
        let shared = &self.shared.nodes[node.id.index()];
        let Some(path) = node.udp_mut() else { return };
        path.answered_at = Some(received_at);
        let node_now = path.atomics.node_clock(received_at);
        let times = Times {
            sent_at,
            received_at,
            node_now_ns: (node_now != 0).then_some(node_now),
        };
        node.accept(lines, times, Some(Rung::Rdma), shared, &self.table);
    }

    /// Gives a link up that brings nothing.
    fn judge_link(&mut self, index: usize) {
        let Some(node) = &self.nodes[index] else {
            return;
        };
        let shared = &self.shared.nodes[node.id.index()];
        if shared.consecutive() >= BARREN_MAX {
            let why = shared.status().last_error;
            let why = why.map_or(String::new(), |why| format!(": {why}"));
            self.give_up_link(index, Some(format!("reads give no record{why}")));
        }
    }

    /// A datagram has brought these lines of a node whose link stands: gives the link up if only datagrams bring news.
    pub(super) fn compare_link(&mut self, index: usize, lines: &[u8]) {
        let Some(node) = &mut self.nodes[index] else {
            return;
        };
        let one_sided = node.newest();
        let used = node.udp_mut().and_then(|path| path.rdma.used.as_mut());
        let Some(used) = used else { return };
        let now = Shown {
            one_sided,
            datagram: name_of(lines),
        };
        let before = used.shown.replace(now);
        if before.is_some_and(|it| it.stands_still_until(now)) {
            let why = "the record stands still where it is read over RDMA";
            self.give_up_link(index, Some(why.to_owned()));
        }
    }
}

impl Shown {
    /// Whether datagrams have brought a new record by then and READs have not.
    fn stands_still_until(self, now: Self) -> bool {
        self.one_sided == now.one_sided && self.datagram != now.datagram
    }
}

/// Generation and sequence of the record with these lines.
fn name_of(lines: &[u8]) -> (u64, u32) {
    let sequence = lines.first_chunk().map(|word| u32::from_le_bytes(*word));
    let generation = lines.get(16..).and_then(|rest| rest.first_chunk());
    let generation = generation.map(|word| u64::from_le_bytes(*word));
    (generation.unwrap_or_default(), sequence.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_whose_record_stands_still_while_datagrams_bring_others_is_seen() {
        let shown = |one_sided, datagram| Shown {
            one_sided: (1, one_sided),
            datagram: (2, datagram),
        };
        let before = shown(10, 20);
        assert!(before.stands_still_until(shown(10, 22)));
        // An agent that rests, or has ended.
        assert!(!before.stands_still_until(shown(10, 20)));
        assert!(!before.stands_still_until(shown(12, 22)));
        assert!(!before.stands_still_until(shown(12, 20)));
    }

    #[test]
    fn a_record_is_named_by_its_first_line() {
        let mut lines = [0; LINES_BYTES];
        lines[..4].copy_from_slice(&7_u32.to_le_bytes());
        lines[16..24].copy_from_slice(&9_u64.to_le_bytes());
        assert_eq!(name_of(&lines), (9, 7));
        assert_eq!(name_of(&[]), (0, 0));
    }
}
