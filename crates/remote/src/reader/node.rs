//! One node as the reader sees it: from the bytes of an answer to the load table.
//!
//! A region that answers at once is asked by its verbs. Over UDP many reads are in flight at a time, so that
//! path keeps what is between a request and its answer; what both mean is the same code (`udp::sequences`).

use std::io;

use tidegate_core::load::{
    Counters, History, LoadTable, Progress, Reading, Rung, WordOp, WordReply,
};
use tidegate_core::record::{AGGREGATE_LINES, LINE_BYTES, LoadRecord, RecordError};
use tidegate_core::time::Timestamp;
use tidegate_core::topology::NodeId;

use super::Target;
use super::atomics::Atomics;
use super::front_ends::Counted;
use super::in_flight::InFlightReads;
use super::keys::KeyChoice;
use super::links::NodeLink;
use super::status::{ReadFault, Shared};
use crate::clock;
use crate::region::{Region, RegionError};

/// Lines of every read: what the load is made from. The lines of single CPUs are not.
pub(super) const LINES: usize = AGGREGATE_LINES;
/// Bytes of them.
pub(super) const LINES_BYTES: usize = LINES * LINE_BYTES;

/// How it is reached.
pub(super) enum Path {
    /// By a region that answers at once, and how its records are read.
    Local(Box<dyn Region + Send>, Rung),
    /// By a datagram.
    Udp(Box<UdpPath>),
}

/// What is kept of a node that is reached by datagrams.
#[derive(Debug)]
pub(super) struct UdpPath {
    /// Which of the reader's peers.
    pub(super) peer: usize,
    /// With what it is asked.
    pub(super) keys: KeyChoice,
    /// For its atomics.
    pub(super) initiator: u64,
    pub(super) in_flight: InFlightReads,
    /// When an answer last came, be it to a read for another node of the same agent.
    pub(super) answered_at: Option<Timestamp>,
    pub(super) atomics: Atomics,
    /// For its reads over RDMA.
    pub(super) rdma: NodeLink,
}

impl UdpPath {
    pub(super) fn new(peer: usize, keys: KeyChoice, initiator: u64, rdma: bool) -> Self {
        Self {
            peer,
            keys,
            initiator,
            in_flight: InFlightReads::default(),
            answered_at: None,
            atomics: Atomics::default(),
            rdma: NodeLink::new(rdma),
        }
    }
}

/// What is kept of one node.
pub(super) struct Node {
    pub(super) id: NodeId,
    /// What it was made from.
    pub(super) target: Target,
    path: Path,
    /// The front-ends that read it.
    pub(super) front_ends: Counted,
    history: History,
    /// Sequence and generation of the newest record that was believed; zero: none yet.
    sequence: u32,
    generation: u64,
    /// The node's clock when it was made.
    made_at_ns: u64,
}

/// When a read was sent and answered.
#[derive(Clone, Copy)]
pub(super) struct Times {
    pub(super) sent_at: Timestamp,
    pub(super) received_at: Timestamp,
    pub(super) node_now_ns: Option<u64>,
}

impl Node {
    pub(super) fn new(target: Target, path: Path) -> Self {
        Self {
            id: target.node,
            target,
            path,
            front_ends: Counted::default(),
            history: History::default(),
            sequence: 0,
            generation: 0,
            made_at_ns: 0,
        }
    }

    /// Notes own traffic at the moment at which a read is sent.
    pub(super) fn note_poll(&mut self, now: Timestamp, table: &LoadTable) {
        self.history.note_poll(now, table.own(self.id));
    }

    /// What is kept of it, if it is reached by datagrams.
    pub(super) fn udp(&self) -> Option<&UdpPath> {
        match &self.path {
            Path::Udp(path) => Some(path),
            Path::Local(..) => None,
        }
    }

    /// The same.
    pub(super) fn udp_mut(&mut self) -> Option<&mut UdpPath> {
        match &mut self.path {
            Path::Udp(path) => Some(path),
            Path::Local(..) => None,
        }
    }

    /// Reads a node that answers at once, and does what is asked of its words.
    pub(super) fn read_local(&mut self, shared: &Shared, table: &LoadTable) {
        let Path::Local(region, rung) = &mut self.path else {
            return;
        };
        let rung = *rung;
        let read = region.read(LINES);
        if let Some(asked) = table.asked_word(self.id) {
            let reply = carry_out(region.as_mut(), asked.op);
            table.answer_word(self.id, asked.ticket, reply);
        }
        match read {
            Ok(read) => {
                if let Some(readers) = read.readers {
                    self.front_ends.note(readers, read.received_at);
                }
                if let Some(held) = read.first_word {
                    table.note_first_word(self.id, held, read.sent_at);
                }
                self.note_poll(read.sent_at, table);
                let times = Times {
                    sent_at: read.sent_at,
                    received_at: read.received_at,
                    // Without a clock of its own, the owner's is ours.
                    node_now_ns: read.node_now_ns.or(Some(read.received_at.nanos())),
                };
                self.accept(read.bytes(), times, Some(rung), shared, table);
            }
            Err(error) => {
                self.note_poll(clock::now(), table);
                shared.faults(fault(&error), 1);
            }
        }
    }

    /// Takes in the lines of an answer.
    pub(super) fn accept(
        &mut self,
        lines: &[u8],
        times: Times,
        rung: Option<Rung>,
        shared: &Shared,
        table: &LoadTable,
    ) {
        let rtt = times.received_at.since(times.sent_at);
        if self.is_known(lines) {
            shared.unchanged(rtt);
            return;
        }
        let mut record = match LoadRecord::decode(lines) {
            Ok(record) => record,
            Err(error) => {
                shared.faults(record_fault(error), 1);
                return;
            }
        };
        // Memory that nothing writes any more may hold one from before those that came by another way.
        if rung == Some(Rung::Rdma) && record.t_ns < self.made_at_ns {
            shared.unchanged(rtt);
            return;
        }
        if let Some(rung) = rung {
            record.rung = rung as u8;
        }
        let reading = Reading {
            record: &record,
            sent_at: times.sent_at,
            received_at: times.received_at,
            node_now_ns: times.node_now_ns,
        };
        match self.history.accept(&reading, table.own(self.id)) {
            Progress::Advanced(load) => {
                if self.sequence != 0 && self.generation != record.generation {
                    shared.restarted();
                }
                (self.generation, self.sequence) = (record.generation, record.sequence);
                self.made_at_ns = record.t_ns;
                table.store(self.id, &load);
                let counters = Counters::of_record(&record, load.observed_at, load.capacity);
                table.store_counters(self.id, &counters);
                shared.read(record.rung, rtt);
                shared.progress(times.received_at);
            }
            // An older one: it was overtaken on the way.
            Progress::Unchanged => shared.unchanged(rtt),
            Progress::Refused(implausible) => {
                shared.faults(ReadFault::Implausible(implausible), 1);
            }
        }
    }

    /// Generation and sequence of the newest record that was believed.
    pub(super) fn newest(&self) -> (u64, u32) {
        (self.generation, self.sequence)
    }

    /// Whether these are the lines of the newest record: known by its first line, whose ends
    /// agree if it is whole.
    fn is_known(&self, lines: &[u8]) -> bool {
        let sequence = lines.first_chunk().map(|word| u32::from_le_bytes(*word));
        let generation = lines.get(16..).and_then(|rest| rest.first_chunk());
        sequence == Some(self.sequence)
            && self.sequence != 0
            && generation.map(|word| u64::from_le_bytes(*word)) == Some(self.generation)
    }
}

/// Does at once what is asked of a word.
fn carry_out(region: &mut dyn Region, op: WordOp) -> WordReply {
    let held = match op {
        WordOp::FetchAndAdd { word, delta } => region.fetch_and_add(word, delta),
        WordOp::CompareAndSwap {
            word,
            expected,
            new,
        } => region.compare_and_swap(word, expected, new),
    };
    match held {
        Ok(held) => WordReply::Done {
            held,
            // The owner's clock is ours.
            node_now: clock::now(),
        },
        // The next read says why, if it is the region that is gone.
        Err(_) => WordReply::Lost,
    }
}

/// What a region's error is called here.
fn fault(error: &RegionError) -> ReadFault {
    match error {
        RegionError::Torn => ReadFault::Torn,
        RegionError::Absent => ReadFault::Absent,
        RegionError::Timeout { .. } => ReadFault::Timeout,
        RegionError::WrongKey { .. } => ReadFault::WrongKey,
        RegionError::Refused(_) | RegionError::Restarted => ReadFault::Refused,
        RegionError::Record(_) | RegionError::NotRegion(_) | RegionError::Peer(_) => {
            ReadFault::Record
        }
        RegionError::Untrusted { .. } => ReadFault::Untrusted,
        RegionError::Io { error, .. } if error.kind() == io::ErrorKind::PermissionDenied => {
            ReadFault::Denied
        }
        RegionError::Owned(_)
        | RegionError::Foreign { .. }
        | RegionError::NoDevice(_)
        | RegionError::Io { .. } => ReadFault::Unreachable,
    }
}

fn record_fault(error: RecordError) -> ReadFault {
    match error {
        RecordError::Torn(_) => ReadFault::Torn,
        RecordError::Absent => ReadFault::Absent,
        RecordError::Short(_)
        | RecordError::Magic(_)
        | RecordError::Version
        | RecordError::Lines { .. } => ReadFault::Record,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_memory_that_is_refused_is_told_from_what_cannot_be_reached() {
        let of_system = |kind: io::ErrorKind| RegionError::io("ask")(io::Error::from(kind));
        for (error, told) in [
            (
                RegionError::Untrusted {
                    path: "region".into(),
                    uid: 7,
                },
                ReadFault::Untrusted,
            ),
            (
                of_system(io::ErrorKind::PermissionDenied),
                ReadFault::Denied,
            ),
            (
                of_system(io::ErrorKind::OutOfMemory),
                ReadFault::Unreachable,
            ),
        ] {
            assert_eq!(fault(&error), told, "{error}");
        }
    }
}
