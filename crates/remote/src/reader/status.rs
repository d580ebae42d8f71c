//! What the reader tells about each node and about itself, while it runs.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate_core::load::{Implausible, Rung};
use tidegate_core::time::Timestamp;
use tidegate_core::topology::NodeId;

use super::FAULTS_MAX;

/// Why a read gave nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadFault {
    /// No answer in time.
    Timeout,
    /// The system could not send to the node, or open its file.
    Unreachable,
    /// What has the region's name, or its owner, is of a user that is not believed.
    Untrusted,
    /// The region's mode keeps this process out.
    Denied,
    /// Nothing is published there.
    Absent,
    /// The record changed each time while it was read.
    Torn,
    /// What came is no load record that we understand.
    Record,
    /// An answer that was not made with the node's key, or made with another node's.
    WrongKey,
    /// The node understood and does not do it.
    Refused,
    /// The record says what cannot be.
    Implausible(Implausible),
}

impl ReadFault {
    /// Every fault with its label.
    pub const ALL: &'static [(Self, &'static str)] = &[
        (Self::Timeout, "timeout"),
        (Self::Unreachable, "unreachable"),
        (Self::Untrusted, "untrusted"),
        (Self::Denied, "denied"),
        (Self::Absent, "absent"),
        (Self::Torn, "torn"),
        (Self::Record, "not_a_record"),
        (Self::WrongKey, "wrong_key"),
        (Self::Refused, "refused"),
        (Self::Implausible(Implausible::Clock), "implausible_clock"),
        (Self::Implausible(Implausible::Cpus), "implausible_cpus"),
        (Self::Implausible(Implausible::Tasks), "implausible_tasks"),
        (
            Self::Implausible(Implausible::Requests),
            "implausible_requests",
        ),
        (Self::Implausible(Implausible::Memory), "implausible_memory"),
        (Self::Implausible(Implausible::Rates), "implausible_rates"),
    ];

    /// Its label.
    pub fn label(self) -> &'static str {
        let found = Self::ALL.iter().find(|(fault, _)| *fault == self);
        found.map_or("", |(_, label)| label)
    }

    /// Its index among all, from 1.
    fn number(self) -> u64 {
        let index = Self::ALL.iter().position(|(fault, _)| *fault == self);
        index.map_or(0, |index| index as u64 + 1)
    }

    fn from_number(number: u64) -> Option<Self> {
        let index = usize::try_from(number).ok()?.checked_sub(1)?;
        Self::ALL.get(index).map(|(fault, _)| *fault)
    }
}

impl fmt::Display for ReadFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

/// How the reads of one node go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeReadStatus {
    /// How the node makes its record, as it said last.
    pub rung: Rung,
    /// Reads that gave a record.
    pub reads: u64,
    /// Those of them that gave a record known already.
    pub unchanged: u64,
    /// Reads without an answer in time.
    pub timeouts: u64,
    /// Reads that gave nothing since the last one that gave a record. A signal of its own: a
    /// node that does not answer any more is overloaded or gone.
    pub consecutive_faults: u32,
    /// Reads that met a writer each time.
    pub torn: u64,
    /// Reads that gave a record which cannot be true.
    pub implausible: u64,
    /// Times that the writer or the node restarted.
    pub restarts: u32,
    /// Why the last read gave nothing; nothing once a read gives a record.
    pub last_error: Option<ReadFault>,
    /// Which of the node's keys it answered to last, from 1: the one to ask with; none before an answer, or
    /// where there are no keys.
    pub key: Option<u32>,
    /// Whose key the agent there has, if it is another one's.
    pub key_of: Option<NodeId>,
    /// Round trip, smoothed over some reads.
    pub rtt: Duration,
    /// When a new record last came; zero: never.
    pub progress_at: Timestamp,
}

/// How a node's reads by RDMA stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OneSided {
    /// They go.
    Stands,
    /// They do not, for this reason if one is known: datagrams are sent instead.
    Lacks(Option<Arc<str>>),
    /// They cannot from this host, for this reason; it is not tried again before the targets are set anew.
    Impossible(Option<Arc<str>>),
}

/// The same, shared: written by the reader's thread alone, but for what is said of RDMA.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Shared {
    reads: AtomicU64,
    unchanged: AtomicU64,
    timeouts: AtomicU64,
    torn: AtomicU64,
    implausible: AtomicU64,
    rtt_ns: AtomicU64,
    progress_at: AtomicU64,
    restarts: AtomicU32,
    consecutive: AtomicU32,
    /// Rung in the low byte, fault in the next.
    rung_fault: AtomicU64,
    /// Which of its keys the node answered to last, from 1.
    key: AtomicU32,
    /// What is known of the key of an agent that has another one than its node's.
    other_key: AtomicU64,
    /// Whether it is to be read by RDMA, and is.
    rdma: AtomicU8,
    /// Why it is not. The thread that connects writes it.
    rdma_lacks: Mutex<Option<Arc<str>>>,
    /// Whether the node is read.
    is_read: AtomicBool,
}

const RDMA_UNWANTED: u8 = 0;
const RDMA_LACKS: u8 = 1;
const RDMA_STANDS: u8 = 2;
const RDMA_IMPOSSIBLE: u8 = 3;

/// The node's own, as far as known.
const NO_OTHER_KEY: u64 = 0;
/// One that was replaced; beyond it, that of a node.
const REPLACED_KEY: u64 = 1;

/// The smoothed round trip takes in this part of each new one.
const RTT_SHARE: u64 = 8;

impl Shared {
    /// The node is read from now on: nothing is known of its reads.
    pub(super) fn begin(&self, rdma: bool) {
        let Self {
            reads,
            unchanged,
            timeouts,
            torn,
            implausible,
            rtt_ns,
            progress_at,
            restarts,
            consecutive,
            rung_fault,
            key,
            other_key,
            rdma: of_rdma,
            rdma_lacks,
            is_read,
        } = self;
        let is_wanted = if rdma { RDMA_LACKS } else { RDMA_UNWANTED };
        of_rdma.store(is_wanted, Ordering::Relaxed);
        *rdma_lacks.lock().unwrap_or_else(PoisonError::into_inner) = None;
        for word in [
            reads,
            unchanged,
            timeouts,
            torn,
            implausible,
            rtt_ns,
            progress_at,
            rung_fault,
            other_key,
        ] {
            word.store(0, Ordering::Relaxed);
        }
        for word in [restarts, consecutive, key] {
            word.store(0, Ordering::Relaxed);
        }
        is_read.store(true, Ordering::Release);
    }

    /// The node is not read any more.
    pub(super) fn end(&self) {
        self.is_read.store(false, Ordering::Release);
    }

    /// Whether the node is read.
    pub(super) fn is_read(&self) -> bool {
        self.is_read.load(Ordering::Acquire)
    }

    /// Whether it is read by RDMA now.
    pub(super) fn rdma_stands(&self, stands: bool) {
        let state = if stands { RDMA_STANDS } else { RDMA_LACKS };
        self.rdma.store(state, Ordering::Relaxed);
    }

    /// It cannot be, from this host.
    pub(super) fn rdma_is_impossible(&self) {
        self.rdma.store(RDMA_IMPOSSIBLE, Ordering::Relaxed);
    }

    /// Why it is not, or will not be once it is lost; nothing as long as that is not known.
    pub(super) fn rdma_lacks(&self, why: Option<&str>) {
        let lacks = self.rdma_lacks.lock();
        *lacks.unwrap_or_else(PoisonError::into_inner) = why.map(Arc::from);
    }

    /// How its reads by RDMA stand, if it is to be read so.
    pub(super) fn one_sided(&self) -> Option<OneSided> {
        let why = || {
            let lacks = self.rdma_lacks.lock();
            lacks.unwrap_or_else(PoisonError::into_inner).clone()
        };
        match self.rdma.load(Ordering::Relaxed) {
            RDMA_UNWANTED => None,
            RDMA_STANDS => Some(OneSided::Stands),
            RDMA_IMPOSSIBLE => Some(OneSided::Impossible(why())),
            _ => Some(OneSided::Lacks(why())),
        }
    }

    /// A read gave a new record, made on this rung.
    pub(super) fn read(&self, rung: u8, rtt: Duration) {
        self.rung_fault.store(rung.into(), Ordering::Relaxed);
        self.count_read(rtt);
    }

    /// A read gave the record that was known already.
    pub(super) fn unchanged(&self, rtt: Duration) {
        add(&self.unchanged, 1);
        let rung = self.rung_fault.load(Ordering::Relaxed) & 0xff;
        self.rung_fault.store(rung, Ordering::Relaxed);
        self.count_read(rtt);
    }

    fn count_read(&self, rtt: Duration) {
        add(&self.reads, 1);
        self.other_key.store(NO_OTHER_KEY, Ordering::Relaxed);
        self.consecutive.store(0, Ordering::Relaxed);
        let rtt = rtt.as_nanos() as u64;
        let smoothed = match self.rtt_ns.load(Ordering::Relaxed) {
            0 => rtt,
            before => before - before / RTT_SHARE + rtt / RTT_SHARE,
        };
        self.rtt_ns.store(smoothed, Ordering::Relaxed);
    }

    pub(super) fn progress(&self, now: Timestamp) {
        self.progress_at.store(now.nanos(), Ordering::Relaxed);
    }

    pub(super) fn restarted(&self) {
        let restarts = self.restarts.load(Ordering::Relaxed);
        self.restarts.store(restarts + 1, Ordering::Relaxed);
    }

    /// So many reads gave nothing.
    pub(super) fn faults(&self, fault: ReadFault, count: u32) {
        match fault {
            ReadFault::Timeout => add(&self.timeouts, count.into()),
            ReadFault::Torn => add(&self.torn, count.into()),
            ReadFault::Implausible(_) => add(&self.implausible, count.into()),
            ReadFault::Unreachable
            | ReadFault::Untrusted
            | ReadFault::Denied
            | ReadFault::Absent
            | ReadFault::Record
            | ReadFault::WrongKey
            | ReadFault::Refused => {}
        }
        let consecutive = self.consecutive.load(Ordering::Relaxed);
        self.consecutive
            .store(consecutive.saturating_add(count), Ordering::Relaxed);
        let rung = self.rung_fault.load(Ordering::Relaxed) & 0xff;
        self.rung_fault
            .store(rung | (fault.number() << 8), Ordering::Relaxed);
    }

    /// The node answers to the key at this index among its keys.
    pub(super) fn answers_to(&self, index: usize) {
        let number = u32::try_from(index).unwrap_or(u32::MAX).saturating_add(1);
        self.key.store(number, Ordering::Relaxed);
    }

    /// The agent answers to the key of this node instead of its own; of none if that key was replaced.
    pub(super) fn has_key_of(&self, node: Option<NodeId>) {
        let known = node.map_or(REPLACED_KEY, |node| REPLACED_KEY + 1 + u64::from(node.0));
        self.other_key.store(known, Ordering::Relaxed);
    }

    /// Whether the node at this index is read in this round: always, unless it has not answered for long.
    /// Such nodes take turns, each in so many rounds.
    pub(super) fn is_due(&self, index: usize, round: u64, turns: u64) -> bool {
        self.consecutive() < FAULTS_MAX || (index as u64 + round).is_multiple_of(turns)
    }

    pub(super) fn consecutive(&self) -> u32 {
        self.consecutive.load(Ordering::Relaxed)
    }

    pub(super) fn status(&self) -> NodeReadStatus {
        let read = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let rung_fault = read(&self.rung_fault);
        let other_key = read(&self.other_key);
        let last_error = ReadFault::from_number(rung_fault >> 8);
        NodeReadStatus {
            rung: Rung::from_number(rung_fault as u8),
            reads: read(&self.reads),
            unchanged: read(&self.unchanged),
            timeouts: read(&self.timeouts),
            consecutive_faults: self.consecutive(),
            torn: read(&self.torn),
            implausible: read(&self.implausible),
            restarts: self.restarts.load(Ordering::Relaxed),
            last_error: match last_error {
                // It says nothing to its own key because it has another.
                Some(ReadFault::Timeout) if other_key != NO_OTHER_KEY => Some(ReadFault::WrongKey),
                other => other,
            },
            key: match self.key.load(Ordering::Relaxed) {
                0 => None,
                number => Some(number),
            },
            key_of: other_key
                .checked_sub(REPLACED_KEY + 1)
                .and_then(|node| u32::try_from(node).ok())
                .map(NodeId),
            rtt: Duration::from_nanos(read(&self.rtt_ns)),
            progress_at: Timestamp::from_nanos(read(&self.progress_at)),
        }
    }
}

/// What the reader has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReaderStats {
    /// Rounds of all nodes begun.
    pub rounds: u64,
    /// Slots of a round that ended more than a slot late: the reader does not keep up.
    pub overruns: u64,
    /// Reads sent or made.
    pub sent: u64,
    /// Answers taken in.
    pub received: u64,
    /// Datagrams that answer nothing that is under way: late, double, malformed, from another address than
    /// was asked, or not ours.
    pub unexpected: u64,
    /// Answers to reads of ours that were not made with the node's key.
    pub forged: u64,
    /// CPU time of the reader's thread outside the kernel.
    pub cpu_user: Duration,
    /// CPU time of the reader's thread in the kernel.
    pub cpu_system: Duration,
}

/// The same, shared: written by the reader's thread, once in a while.
#[derive(Debug, Default)]
pub(super) struct SharedStats {
    words: [AtomicU64; 8],
    /// Front-ends that read the same nodes, ourselves included: the most that a node saw.
    pub(super) readers: AtomicU32,
}

impl SharedStats {
    pub(super) fn store(&self, stats: &ReaderStats) {
        let words = [
            stats.rounds,
            stats.overruns,
            stats.sent,
            stats.received,
            stats.unexpected,
            stats.forged,
            stats.cpu_user.as_nanos() as u64,
            stats.cpu_system.as_nanos() as u64,
        ];
        for (word, value) in self.words.iter().zip(words) {
            word.store(value, Ordering::Relaxed);
        }
    }

    pub(super) fn load(&self) -> ReaderStats {
        let read = |at: usize| self.words[at].load(Ordering::Relaxed);
        ReaderStats {
            rounds: read(0),
            overruns: read(1),
            sent: read(2),
            received: read(3),
            unexpected: read(4),
            forged: read(5),
            cpu_user: Duration::from_nanos(read(6)),
            cpu_system: Duration::from_nanos(read(7)),
        }
    }
}

/// One writer: no locked instruction is needed.
fn add(counter: &AtomicU64, count: u64) {
    counter.store(counter.load(Ordering::Relaxed) + count, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_ends_a_row_of_faults() {
        let shared = Shared::default();
        assert_eq!(shared.status().rung, Rung::None);
        shared.read(Rung::Tc as u8, Duration::from_micros(80));
        shared.faults(ReadFault::Timeout, 3);
        shared.faults(ReadFault::Torn, 1);
        let status = shared.status();
        assert_eq!((status.timeouts, status.torn), (3, 1));
        assert_eq!(status.consecutive_faults, 4);
        assert_eq!(status.last_error, Some(ReadFault::Torn));
        assert_eq!(status.rung, Rung::Tc, "as it was");
        shared.read(Rung::Agent as u8, Duration::from_micros(160));
        let status = shared.status();
        assert_eq!((status.consecutive_faults, status.last_error), (0, None));
        assert_eq!(status.rtt, Duration::from_micros(90));
    }

    #[test]
    fn faults_have_labels_and_come_back() {
        for (fault, label) in ReadFault::ALL {
            assert_eq!(ReadFault::from_number(fault.number()), Some(*fault));
            assert_eq!(fault.label(), *label);
        }
        assert_eq!(ReadFault::from_number(0), None);
        assert_eq!(ReadFault::from_number(16), None);
    }
}
