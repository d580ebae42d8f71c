//! A queue pair: made, connected to its peer, used, and destroyed.
//!
//! ```text
//! made ── INIT: what the peer may do ── RTR: its address ── RTS: how long to try
//!            node and front-end             node stops here       front-end: READ and atomics
//! ```
//!
//! A node's queue pairs answer and never ask, so they stop before they could. A front-end's post requests and wait for
//! the last one's completion in poll(2), until a deadline: no thread spins.
//!
//! **How long a silent peer takes.** A request is sent `RETRIES + 1` times, `4.096 us * 2^t` apart, and `t` is the
//! largest with which all fit the caller's wait (IBA-2020 §9.7.6.1.3). The count never is 7, which some devices take for
//! "for ever". Cards may wait up to four times as long as they were asked to; the deadline holds all the same.
//!
//! After any failure the queue pair is of no more use: the caller drops it and connects anew. Destroying it is what
//! makes sure that nothing is written to local memory, and nothing sent again, afterwards.
//!
//! Failure case: a loaded node whose kernel does the card's work may answer too late. Hence one silence proves nothing,
//! see `region`.

use std::ffi::{c_int, c_uint};
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use tidegate_core::time::{Timestamp, nanos};

use super::RdmaDevice;
use super::abi::{self, CompletionChannel, CompletionQueue, Piece, Remote, SendRequest};
use super::device::check;
use super::library::last;
use super::memory::Registered;
use crate::clock;
use crate::region::RegionError;

/// Times that a request is sent again.
const RETRIES: u8 = 3;
const _: () = assert!(RETRIES < 7, "some devices take 7 for \"for ever\"");
/// Unit of a card's timer, ns.
const TIMER_UNIT_NS: u64 = 4096;
/// Longest exponent of a card's timer.
const TIMER_MAX: u8 = 31;
/// Requests that are posted together.
pub(super) const REQUESTS_MAX: usize = 4;
/// How long a peer that is not ready asks to be left alone; there is none here, since nothing is received.
const NOT_READY_TIMER: u8 = 12;
const NOT_READY_RETRIES: u8 = 0;
/// The request was not one that the memory's rights allow (IBV_WC_REM_INV_REQ_ERR).
const STATUS_INVALID: c_uint = 9;
/// Wrong key, or past the end of the memory (IBV_WC_REM_ACCESS_ERR).
const STATUS_ACCESS: c_uint = 10;
/// No answer to any try (IBV_WC_RETRY_EXC_ERR).
const STATUS_SILENT: c_uint = 12;

/// One end of a connection, as its peer has to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Number of the queue pair, 24 bits.
    pub queue_pair: u32,
    /// Number of the first packet that it sends, 24 bits.
    pub first_packet: u32,
    /// The device's address.
    pub gid: [u8; 16],
    /// Size of frames, as verbs number it: 1 to 5 for 256 to 4096 bytes.
    pub mtu: u8,
    /// Number of the device's port in its subnet of InfiniBand; 0 on Ethernet.
    pub local_id: u16,
}

impl Endpoint {
    /// Its IP address; none on InfiniBand, where the number in the subnet is its address.
    pub(super) fn ip(&self) -> Option<IpAddr> {
        (self.local_id == 0).then(|| IpAddr::from(self.gid).to_canonical())
    }
}

/// What the peer may do with a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PeerMay {
    Nothing,
    Read,
    ReadAndChangeWords,
}

impl PeerMay {
    fn access(self) -> c_uint {
        (match self {
            Self::Nothing => 0,
            Self::Read => abi::ACCESS_REMOTE_READ,
            Self::ReadAndChangeWords => abi::ACCESS_REMOTE_READ | abi::ACCESS_REMOTE_ATOMIC,
        }) as c_uint
    }
}

/// One request, and where in the buffer its answer shall lie.
#[derive(Clone, Copy, Debug)]
pub(super) struct Posted {
    pub(super) operation: Operation,
    pub(super) address: u64,
    pub(super) key: u32,
    pub(super) answer_at: usize,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Operation {
    Read { bytes: u32 },
    CompareAndSwap { expected: u64, new: u64 },
    FetchAndAdd { delta: u64 },
}

/// Why requests gave nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum QueueFailure {
    /// The peer's card refuses what was asked.
    #[error("the node's card refuses it")]
    Refused,
    /// No answer by the deadline, or to any try.
    #[error("the node's card does not answer")]
    Silent,
    /// The card failed in another way, with this status.
    #[error("the card's status {0}")]
    Status(u32),
    /// The system refused.
    #[error(transparent)]
    System(#[from] RegionError),
}

/// A request that is done, or has failed.
#[derive(Debug)]
pub(crate) struct Completion {
    /// The number that it was posted with.
    pub(crate) id: u64,
    pub(crate) ended: Result<(), QueueFailure>,
}

/// Where completions come in, and what announces them.
pub(crate) struct Completions {
    device: Arc<RdmaDevice>,
    queue: NonNull<CompletionQueue>,
    channel: NonNull<CompletionChannel>,
}

// SAFETY: the library takes calls from any thread; what it made is freed once.
unsafe impl Send for Completions {}
// SAFETY: as above. Only `&mut QueuePair` takes completions out.
unsafe impl Sync for Completions {}

impl Completions {
    /// With room for what so many queue pairs post.
    pub(crate) fn new(device: &Arc<RdmaDevice>, pairs: usize) -> Result<Self, RegionError> {
        let library = device.library();
        // SAFETY: an open device.
        let channel = NonNull::new(unsafe { (library.create_channel)(device.context()) });
        let channel = channel.ok_or_else(|| last("make a completion channel"))?;
        let room = c_int::try_from(pairs * REQUESTS_MAX).unwrap_or(c_int::MAX);
        // SAFETY: an open device and a channel of it; no vector but the first.
        let queue = unsafe {
            (library.create_completions)(device.context(), room, null_mut(), channel.as_ptr(), 0)
        };
        let Some(queue) = NonNull::new(queue) else {
            let error = last("make a completion queue");
            // SAFETY: made above, and used by nothing.
            unsafe { (library.destroy_channel)(channel.as_ptr()) };
            return Err(error);
        };
        let completions = Self {
            device: Arc::clone(device),
            queue,
            channel,
        };
        rustix::io::ioctl_fionbio(completions.descriptor(), true).map_err(RegionError::io(
            "make a completion channel that does not wait",
        ))?;
        Ok(completions)
    }

    pub(super) fn device(&self) -> &Arc<RdmaDevice> {
        &self.device
    }

    /// What becomes readable when a completion is announced.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel's own descriptor, which is open as long as the channel is.
        unsafe { BorrowedFd::borrow_raw(self.channel.as_ref().descriptor) }
    }

    /// The next completion, if there is one: which request, and how it ended.
    pub(crate) fn next(&self) -> Result<Option<Completion>, RegionError> {
        let mut completion = abi::WorkCompletion::default();
        // SAFETY: the operations are those of the queue's driver; room for one completion.
        let count = unsafe {
            let ops = &(*self.device.context()).ops;
            (ops.poll_cq)(self.queue.as_ptr(), 1, &raw mut completion)
        };
        match count {
            0 => Ok(None),
            1 => Ok(Some(Completion {
                id: completion.id,
                ended: outcome(completion.status),
            })),
            _ => Err(last("take completions")),
        }
    }

    /// Has the next completion announced.
    pub(crate) fn arm(&self) -> Result<(), RegionError> {
        // SAFETY: as above; 0: any completion.
        let done = unsafe {
            let ops = &(*self.device.context()).ops;
            (ops.req_notify_cq)(self.queue.as_ptr(), 0)
        };
        check("have completions announced", done)
    }

    /// Takes the announcements that have come.
    pub(crate) fn drain(&self) {
        let library = self.device.library();
        let (mut queue, mut user) = (null_mut(), null_mut());
        // SAFETY: the channel is ours and does not wait; each event that is taken is acknowledged, without which the
        // queue could not be destroyed.
        unsafe {
            while (library.event)(self.channel.as_ptr(), &raw mut queue, &raw mut user) == 0 {
                (library.acknowledge)(queue, 1);
            }
        }
    }

    /// Waits for the completion of the request with this number, or of one before it that failed.
    fn wait(&self, last: u64, deadline: Timestamp) -> Result<(), QueueFailure> {
        loop {
            self.arm()?;
            while let Some(completion) = self.next()? {
                completion.ended?;
                if completion.id == last {
                    return Ok(());
                }
            }
            let rest = deadline.since(clock::now());
            if rest.is_zero() {
                return Err(QueueFailure::Silent);
            }
            let descriptor = self.descriptor();
            let mut wanted = [PollFd::new(&descriptor, PollFlags::IN)];
            match poll(&mut wanted, Some(&clock::timespec(rest))) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => {
                    let error = RegionError::io("wait for a completion")(error);
                    return Err(error.into());
                }
            }
            self.drain();
        }
    }
}

impl Drop for Completions {
    fn drop(&mut self) {
        self.drain();
        let library = self.device.library();
        // SAFETY: made by the library, freed once; queue pairs that used them are gone, since they hold an `Arc`.
        unsafe {
            (library.destroy_completions)(self.queue.as_ptr());
            (library.destroy_channel)(self.channel.as_ptr());
        }
    }
}

/// One end of a connection.
pub(super) struct QueuePair {
    completions: Arc<Completions>,
    pair: NonNull<abi::QueuePair>,
    first_packet: u32,
    last_posted: u64,
}

// SAFETY: as for `Completions`.
unsafe impl Send for QueuePair {}

impl QueuePair {
    /// Not connected yet. Packets are numbered from a random number on.
    pub(super) fn new(
        completions: &Arc<Completions>,
        peer_may: PeerMay,
        first_packet: u32,
    ) -> Result<Self, RegionError> {
        let device = &completions.device;
        let queue = completions.queue.as_ptr();
        let mut init = abi::QueuePairInit {
            user: null_mut(),
            send_queue: queue,
            receive_queue: queue,
            shared_receive_queue: null_mut(),
            room: abi::QueuePairRoom {
                send_requests: REQUESTS_MAX as u32,
                receive_requests: 1,
                send_pieces: 1,
                receive_pieces: 1,
                inline_bytes: 0,
            },
            kind: abi::KIND_RELIABLE,
            all_signaled: 0,
        };
        // SAFETY: a domain and a queue of one device.
        let pair = unsafe { (device.library().create_queue_pair)(device.domain(), &raw mut init) };
        let pair = Self {
            completions: Arc::clone(completions),
            pair: NonNull::new(pair).ok_or_else(|| last("make a queue pair"))?,
            first_packet: first_packet & 0x00ff_ffff,
            last_posted: 0,
        };
        let attributes = abi::QueuePairAttributes {
            state: abi::STATE_INIT,
            port: pair.device().place().port,
            access: peer_may.access(),
            ..abi::QueuePairAttributes::default()
        };
        let set = abi::SET_STATE | abi::SET_PARTITION | abi::SET_PORT | abi::SET_ACCESS;
        pair.modify("prepare a queue pair", attributes, set)?;
        Ok(pair)
    }

    fn device(&self) -> &Arc<RdmaDevice> {
        &self.completions.device
    }

    fn modify(
        &self,
        what: &'static str,
        mut attributes: abi::QueuePairAttributes,
        set: c_int,
    ) -> Result<(), RegionError> {
        let modify = self.device().library().modify_queue_pair;
        // SAFETY: a live queue pair, and attributes of which the library reads those that are named.
        check(what, unsafe {
            modify(self.pair.as_ptr(), &raw mut attributes, set)
        })
    }

    /// What the peer has to know.
    pub(super) fn endpoint(&self) -> Endpoint {
        Endpoint {
            // SAFETY: made by the library, and not destroyed before `self` is dropped.
            queue_pair: unsafe { self.pair.as_ref() }.number,
            first_packet: self.first_packet,
            gid: self.device().place().gid.0,
            mtu: self.device().mtu(),
            local_id: self.device().place().local_id(),
        }
    }

    /// Connects it to this peer, which it answers from now on.
    pub(super) fn meet(&mut self, peer: &Endpoint) -> Result<(), RegionError> {
        let device = self.device();
        let route = device.place().route(peer);
        let route = route.map_err(|why| RegionError::Peer(why.to_string()))?;
        let attributes = abi::QueuePairAttributes {
            state: abi::STATE_RTR,
            path_mtu: peer.mtu.min(device.mtu()).into(),
            peer: peer.queue_pair,
            receive_sequence: peer.first_packet,
            reads_in_max: device.in_flight().0,
            not_ready_timer: NOT_READY_TIMER,
            route,
            ..abi::QueuePairAttributes::default()
        };
        let set = abi::SET_STATE
            | abi::SET_ROUTE
            | abi::SET_PATH_MTU
            | abi::SET_PEER
            | abi::SET_RECEIVE_SEQUENCE
            | abi::SET_READS_IN
            | abi::SET_NOT_READY_TIMER;
        self.modify("connect a queue pair", attributes, set)
    }

    /// Lets it ask its peer too; no answer within `wait` is a failure.
    pub(super) fn ask(&mut self, wait: Duration) -> Result<(), RegionError> {
        let attributes = abi::QueuePairAttributes {
            state: abi::STATE_RTS,
            send_sequence: self.first_packet,
            timeout: timer(wait),
            retries: RETRIES,
            not_ready_retries: NOT_READY_RETRIES,
            reads_out_max: self.device().in_flight().1,
            ..abi::QueuePairAttributes::default()
        };
        let set = abi::SET_STATE
            | abi::SET_SEND_SEQUENCE
            | abi::SET_TIMEOUT
            | abi::SET_RETRIES
            | abi::SET_NOT_READY_RETRIES
            | abi::SET_READS_OUT;
        self.modify("start a queue pair", attributes, set)
    }

    /// Has these carried out in their order; their answers lie in the buffer then. At most [`REQUESTS_MAX`].
    pub(super) fn carry_out(
        &mut self,
        requests: &[Posted],
        buffer: &Registered,
        deadline: Timestamp,
    ) -> Result<(), QueueFailure> {
        self.last_posted += 1;
        self.post(requests, buffer, self.last_posted)?;
        self.completions.wait(self.last_posted, deadline)
    }

    /// Posts these, at most [`REQUESTS_MAX`], with one call and without waiting. Their one completion has this number; so
    /// has each of those that failures make.
    pub(super) fn post(
        &mut self,
        requests: &[Posted],
        buffer: &Registered,
        id: u64,
    ) -> Result<(), RegionError> {
        let count = requests.len();
        debug_assert!((1..=REQUESTS_MAX).contains(&count));
        let key = buffer.local_key();
        let mut pieces = [Piece::default(); REQUESTS_MAX];
        let mut posted: [_; REQUESTS_MAX] =
            std::array::from_fn(|_| SendRequest::new(id, 0, Remote::default()));
        for ((request, piece), posted) in requests.iter().zip(&mut pieces).zip(&mut posted) {
            *piece = request.piece(buffer.address(), key);
            *posted = request.work(id, piece);
        }
        posted[count - 1].flags = abi::SIGNALED;
        let first = posted.as_mut_ptr();
        for at in 1..count {
            // SAFETY: both lie within the list, which does not move until it is posted.
            unsafe { (*first.add(at - 1)).next = first.add(at) };
        }
        let mut bad = null_mut();
        // SAFETY: requests and pieces live until the call returns, which copies them. What the card writes to is the
        // buffer: the caller keeps it until this queue pair is destroyed.
        let done = unsafe {
            let ops = &(*self.device().context()).ops;
            (ops.post_send)(self.pair.as_ptr(), first, &raw mut bad)
        };
        check("post to a queue pair", done)
    }

    /// Where its completions come in.
    pub(super) fn completions(&self) -> &Arc<Completions> {
        &self.completions
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        // SAFETY: made by the library, and destroyed once.
        unsafe { (self.device().library().destroy_queue_pair)(self.pair.as_ptr()) };
    }
}

impl Posted {
    fn piece(&self, buffer: u64, local_key: u32) -> Piece {
        let length = match self.operation {
            Operation::Read { bytes } => bytes,
            Operation::CompareAndSwap { .. } | Operation::FetchAndAdd { .. } => {
                size_of::<u64>() as u32
            }
        };
        Piece {
            address: buffer + self.answer_at as u64,
            length,
            local_key,
        }
    }

    fn work(&self, id: u64, piece: *mut Piece) -> SendRequest {
        let atomic = |compare, swap| Remote {
            address: self.address,
            key_or_compare: compare,
            swap,
            key: self.key,
        };
        let (operation, remote) = match self.operation {
            Operation::Read { .. } => {
                // The key is the first half of what would be an operand.
                let mut key = [0; 8];
                key[..4].copy_from_slice(&self.key.to_ne_bytes());
                let remote = Remote {
                    address: self.address,
                    key_or_compare: u64::from_ne_bytes(key),
                    ..Remote::default()
                };
                (abi::OPERATION_READ, remote)
            }
            Operation::CompareAndSwap { expected, new } => {
                (abi::OPERATION_COMPARE_AND_SWAP, atomic(expected, new))
            }
            Operation::FetchAndAdd { delta } => (abi::OPERATION_FETCH_AND_ADD, atomic(delta, 0)),
        };
        let mut request = SendRequest::new(id, operation, remote);
        request.pieces = piece;
        request.pieces_count = 1;
        request
    }
}

/// What a completion's status means.
fn outcome(status: c_uint) -> Result<(), QueueFailure> {
    match status {
        0 => Ok(()),
        STATUS_INVALID | STATUS_ACCESS => Err(QueueFailure::Refused),
        STATUS_SILENT => Err(QueueFailure::Silent),
        other => Err(QueueFailure::Status(other)),
    }
}

/// The card's timer with which all tries fit the wait.
fn timer(wait: Duration) -> u8 {
    let each = nanos(wait) / u64::from(RETRIES + 1);
    let fitting = (1..=TIMER_MAX).rev().find(|it| TIMER_UNIT_NS << it <= each);
    fitting.unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_tries_of_a_card_fit_the_wait() {
        let tries = u32::from(RETRIES + 1);
        for wait_ms in [1, 5, 50, 51, 1_000, 60_000] {
            let wait = Duration::from_millis(wait_ms);
            let each = Duration::from_nanos(TIMER_UNIT_NS << timer(wait));
            assert!(each * tries <= wait, "{wait:?}: {each:?}");
            assert!(each * 2 * tries > wait, "{wait:?}: {each:?}");
        }
        assert_eq!(timer(Duration::from_millis(50)), 11);
        // 0 would be "for ever", and so would be more than there is.
        assert_eq!((timer(Duration::ZERO), timer(Duration::MAX)), (1, 31));
    }
}
