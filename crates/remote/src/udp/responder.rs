//! The node's thread that answers requests for one region.
//!
//! One thread, one socket, in batches: take what has come, answer all of it, wait.
//! A read copies the record from memory at that moment; the publisher is not involved, so
//! that a publisher that waits for its CPU makes records older and answers no slower. Should it
//! have lost its CPU in the middle of a publication, the answer is the last whole record: its
//! own clock says how old it is.
//!
//! A flood must not take the CPU from everything else on the node (`guard`):
//!
//! * What is no request by its header costs no MAC. Of requests in names that have not proven that they have a key no
//!   more are examined once some were forged; those that have are answered all the same.
//! * When what is thrown away, or answered in vain, takes more than [`ResponderOptions::realtime_share`] of a CPU, the
//!   thread is at normal priority for a while.
//! * When much is in vain, a filter at the socket keeps most of it out for a second.
//! * No more than [`ResponderOptions::rate_max`] datagrams a second are looked at; the others wait
//!   in the socket's buffer, and are dropped by the kernel when it is full.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use tidegate_core::time::Timestamp;

use super::Key;
use super::address::Network;
use super::socket;
use super::wire::{CONNECT_BYTES, DropReason, Request, Status};
use crate::memory::RegionMemory;
use crate::privilege::CapabilitySet;
use crate::realtime::{self, RealtimeRefused};
use crate::region::RegionError;

mod guard;
mod server;
#[cfg(test)]
mod tests;

use server::Server;

/// Time after which a waiting thread looks whether it shall end, should the wake-up get lost.
const STOP_CHECK: Duration = Duration::from_millis(250);
/// Datagrams a second by default: 200 front-ends at 1 kHz.
const RATE_MAX: u32 = 200_000;
/// Share of a CPU at real-time priority by default, for what is answered in vain or thrown away.
pub const REALTIME_SHARE: f64 = 0.05;

/// Something to do before a record is copied for an answer: an agent can publish at that
/// moment, so that the record is as young as can be (`interval_ns` 0).
///
/// It runs on the responder's thread and all answers of the batch wait for it: worth it if it
/// takes some microseconds. Reading /proc takes some ten to a hundred; such an agent publishes
/// on a thread of its own instead.
pub struct BeforeRead {
    /// Shortest time between two runs.
    pub every: Duration,
    /// What to do; gets the time.
    pub hook: Box<dyn FnMut(Timestamp) + Send>,
}

impl fmt::Debug for BeforeRead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BeforeRead")
            .field("every", &self.every)
            .finish_non_exhaustive()
    }
}

/// Where atomics are carried out that do not happen in the region's own words: the kernel's programs
/// keep words and know which front-end has asked, so that it does not matter by which way a request comes.
pub trait CarryOut: fmt::Debug + Send {
    /// Carries an atomic out, once; gives how it ended and the value that the word held.
    ///
    /// # Errors
    /// If it could not be asked for. It was not carried out then.
    fn carry_out(&mut self, request: &Request) -> io::Result<(Status, u64)>;
}

/// What connects front-ends over RDMA.
pub trait Connect: fmt::Debug + Send {
    /// Takes an offer up, or has taken it up before; leaves the grant in `grant` if it says that it is done. The offer was
    /// made with one of the node's keys, and lately by the node's clock. Anything else that it says may be hostile.
    ///
    /// It runs on the responder's thread, and all answers of the batch wait for it: a millisecond at most, once for each
    /// front-end. Nothing: that is not done yet, and a copy of the offer will be answered.
    fn connect(
        &mut self,
        request: &Request,
        source: IpAddr,
        offer: &[u8; CONNECT_BYTES],
        grant: &mut [u8; CONNECT_BYTES],
        now: Timestamp,
    ) -> Option<Status>;
}

/// What a responder serves, and to which front-ends.
#[derive(Debug)]
pub struct ResponderOptions {
    /// Where it listens. Port 0: any that is free.
    pub listen: SocketAddr,
    /// Keys of which a request must have one; it is answered with the same.
    pub keys: Vec<Key>,
    /// Networks that are listened to; empty: all.
    pub allow: Vec<Network>,
    /// Whether to ask for real-time priority.
    pub realtime: bool,
    /// Datagrams looked at per second.
    pub rate_max: u32,
    /// Share of a CPU that the thread may use at real-time priority for what is no request by the node's clock of now,
    /// 0 to 1.
    pub realtime_share: f64,
    /// Rest after each batch, so that more requests come together. Zero for a node, which
    /// answers at once; some ten microseconds where one thread stands for many nodes, which
    /// would otherwise be woken for every single request.
    pub gather: Duration,
    /// See there.
    pub before_read: Option<BeforeRead>,
    /// What carries atomics out, if the region's words are not its own.
    pub atomics: Option<Box<dyn CarryOut>>,
    /// What connects front-ends over RDMA, if the node serves that.
    pub connect: Option<Box<dyn Connect>>,
}

impl ResponderOptions {
    /// All with one of these keys, at real-time priority where permitted.
    pub fn new(listen: SocketAddr, keys: Vec<Key>) -> Self {
        Self {
            listen,
            keys,
            allow: Vec::new(),
            realtime: true,
            rate_max: RATE_MAX,
            realtime_share: REALTIME_SHARE,
            gather: Duration::ZERO,
            before_read: None,
            atomics: None,
            connect: None,
        }
    }
}

impl ResponderOptions {
    /// What the thread keeps: it comes back to real-time priority, and the kernel's programs are called to carry
    /// atomics out.
    fn capabilities(&self) -> CapabilitySet {
        match self.atomics {
            Some(_) => CapabilitySet::SYS_NICE.union(CapabilitySet::BPF),
            None => CapabilitySet::SYS_NICE,
        }
    }
}

/// What a responder has done so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResponderStats {
    /// Reads answered.
    pub reads: u64,
    /// Atomics carried out.
    pub atomics: u64,
    /// Atomics that came again and got the answer that was kept.
    pub repeated: u64,
    /// Atomics and offers refused: of another time or epoch, stale, or of too many initiators.
    pub refused: u64,
    /// Offers to connect over RDMA that were taken up, or said again that their front-ends still read.
    pub connected: u64,
    /// Answers that could not be sent.
    pub unsent: u64,
    /// Times that the system gave no datagrams for a reason other than that there were none, or that
    /// the kernel's programs or the card could not be asked to carry an atomic out, or said nothing of it.
    pub faults: u64,
    /// Times that the limit of the rate was reached.
    pub limited: u64,
    /// Datagrams that the kernel's programs left alone because they are for another host.
    pub elsewhere: u64,
    /// Requests that the kernel's programs dropped in the names of initiators that are proven: too many came in them.
    pub imitated: u64,
    /// Requests that were thrown away unexamined: too many in names that have not proven that they have a key were forged.
    pub unexamined: u64,
    /// Times that the thread went to normal priority for a while because what was in vain had used its share.
    pub lowered: u64,
    /// Times that the socket was closed for a second to most that is not from proven front-ends, or closed further.
    pub closed: u64,
    /// Front-ends that read within the last second, as of the last read.
    pub readers: u32,
    /// Datagrams thrown away, by reason.
    pub dropped: Vec<(DropReason, u64)>,
    /// Those of them that only tried whether a key is known, which it is not.
    pub trials: u64,
}

/// The counters while the thread runs. It alone writes them.
#[derive(Debug, Default)]
struct ResponderCounters {
    reads: AtomicU64,
    atomics: AtomicU64,
    repeated: AtomicU64,
    refused: AtomicU64,
    connected: AtomicU64,
    unsent: AtomicU64,
    faults: AtomicU64,
    limited: AtomicU64,
    unexamined: AtomicU64,
    lowered: AtomicU64,
    closed: AtomicU64,
    readers: AtomicU32,
    dropped: [AtomicU64; DropReason::ALL.len()],
    trials: AtomicU64,
    stop: AtomicBool,
}

/// A running responder; ends when dropped.
#[derive(Debug)]
pub struct Responder {
    socket: Arc<UdpSocket>,
    address: SocketAddr,
    counters: Arc<ResponderCounters>,
    realtime: Result<(), RealtimeRefused>,
    thread: Option<JoinHandle<()>>,
}

impl Responder {
    /// Binds the socket and starts the thread.
    pub fn spawn(
        memory: Arc<RegionMemory>,
        options: ResponderOptions,
    ) -> Result<Self, RegionError> {
        let socket = Arc::new(socket::listen(options.listen, STOP_CHECK)?);
        let address = socket
            .local_addr()
            .map_err(RegionError::io("look at the responder's address"))?;
        let counters = Arc::new(ResponderCounters::default());
        let kept = options.capabilities();
        let (wants_realtime, told) = (options.realtime, std::sync::mpsc::sync_channel(1));
        let server = Server::new(Arc::clone(&socket), Arc::clone(&counters), memory, options)?;
        let thread = std::thread::Builder::new()
            .name("tidegate-udp".to_owned())
            .spawn(move || {
                let set_up = realtime::ask_and_settle(wants_realtime, kept);
                let failed = set_up.is_err();
                let at_realtime = matches!(set_up, Ok(Ok(())));
                // The thread that spawned this one waits for it.
                told.0.send(set_up).ok();
                if !failed {
                    server.run(at_realtime);
                }
            })
            .map_err(RegionError::io("start the responder's thread"))?;
        let realtime = told.1.recv().unwrap_or(Ok(Err(RealtimeRefused::Unwanted)));
        let realtime = realtime.map_err(RegionError::io("give the responder's privileges away"))?;
        Ok(Self {
            socket,
            address,
            counters,
            realtime,
            thread: Some(thread),
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether its thread is at real-time priority, or why not.
    pub fn realtime(&self) -> Result<(), &RealtimeRefused> {
        self.realtime.as_ref().copied()
    }

    /// What it has done so far.
    pub fn stats(&self) -> ResponderStats {
        let counters = &self.counters;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ResponderStats {
            reads: read(&counters.reads),
            atomics: read(&counters.atomics),
            repeated: read(&counters.repeated),
            refused: read(&counters.refused),
            connected: read(&counters.connected),
            unsent: read(&counters.unsent),
            faults: read(&counters.faults),
            limited: read(&counters.limited),
            elsewhere: 0,
            imitated: 0,
            unexamined: read(&counters.unexamined),
            lowered: read(&counters.lowered),
            closed: read(&counters.closed),
            readers: counters.readers.load(Ordering::Relaxed),
            dropped: DropReason::ALL
                .iter()
                .zip(&counters.dropped)
                .map(|((reason, _), counter)| (*reason, read(counter)))
                .collect(),
            trials: read(&counters.trials),
        }
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        self.counters.stop.store(true, Ordering::Release);
        // Wakes a thread that waits on the socket, though the call itself says that an
        // unconnected socket cannot be shut down. STOP_CHECK is there should it not.
        rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Read).ok();
        if let Some(thread) = self.thread.take() {
            // A panic was printed by the thread itself; there is nothing to add.
            thread.join().ok();
        }
    }
}

/// Counts one more. The thread is the only writer: no locked instruction is needed.
fn count(counter: &AtomicU64) {
    counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}
