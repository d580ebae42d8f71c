//! The node's thread that answers requests for one region.
//!
//! One thread, one socket, batches of [`BATCH`]: take what has come, answer all of it, wait.
//! A read copies the record from memory at that moment; whoever publishes is not involved, so
//! that a publisher that waits for its CPU makes records older and answers no slower. Should it
//! have lost its CPU in the middle of a publication, the answer is the last whole record: its
//! own clock says how old it is.
//!
//! At real-time priority a flood could take the CPU from everything else on the node. So no
//! more than [`ResponderOptions::rate_max`] datagrams a second are looked at; the others wait
//! in the socket's buffer, and are dropped by the kernel when it is full.

use std::fmt;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use tidegate_core::record::RECORD_BYTES_MAX;
use tidegate_core::time::Timestamp;

use super::Key;
use super::address::Network;
use super::batch::Batch;
use super::initiators::{Initiators, Outcome, Readers, Verdict, is_fresh};
use super::key_file::KEYS_MAX;
use super::socket;
use super::wire::{
    DropReason, HEADER_BYTES, MESSAGE_BYTES_MAX, Reply, Request, Status, Verb, message_bytes,
};
use crate::clock;
use crate::memory::RegionMemory;
use crate::memory::lines::CopyError;
use crate::privilege::{self, CapabilitySet};
use crate::realtime::{self, RealtimeRefused};
use crate::region::RegionError;

/// Datagrams per system call.
const BATCH: usize = 64;
/// Rest after the system refused to give datagrams for a reason that we do not know.
const REFUSED_REST: Duration = Duration::from_millis(10);
/// Time after which a waiting thread looks whether it shall end, should the wake-up get lost.
const STOP_CHECK: Duration = Duration::from_millis(250);
/// Over this time the rate of datagrams is limited.
const RATE_WINDOW: Duration = Duration::from_millis(10);
/// Datagrams a second by default: 200 front-ends at 1 kHz.
const RATE_MAX: u32 = 200_000;

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
/// keep words and know who has asked, so that it does not matter by which way a request comes.
pub trait CarryOut: fmt::Debug + Send {
    /// Carries an atomic out, once; gives how it ended and the value that the word held.
    ///
    /// # Errors
    /// If it could not be asked for. It was not carried out then.
    fn carry_out(&mut self, request: &Request) -> io::Result<(Status, u64)>;
}

/// What a responder serves whom.
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
    /// Rest after each batch, so that more requests come together. Zero for a node, which
    /// answers at once; some ten microseconds where one thread stands for many nodes, which
    /// would otherwise be woken for every single request.
    pub gather: Duration,
    /// See there.
    pub before_read: Option<BeforeRead>,
    /// Who carries atomics out, if the region's words are not its own.
    pub atomics: Option<Box<dyn CarryOut>>,
}

impl ResponderOptions {
    /// Everybody with one of these keys, at real-time priority where permitted.
    pub fn new(listen: SocketAddr, keys: Vec<Key>) -> Self {
        Self {
            listen,
            keys,
            allow: Vec::new(),
            realtime: true,
            rate_max: RATE_MAX,
            gather: Duration::ZERO,
            before_read: None,
            atomics: None,
        }
    }
}

impl ResponderOptions {
    /// What the thread keeps: the kernel's programs are called to carry atomics out.
    fn capabilities(&self) -> CapabilitySet {
        match self.atomics {
            Some(_) => CapabilitySet::BPF,
            None => privilege::NONE,
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
    /// Atomics refused: of another time or epoch, stale, or of too many initiators.
    pub refused: u64,
    /// Answers that could not be sent.
    pub unsent: u64,
    /// Times that the system gave no datagrams for a reason other than that there were none, or that
    /// the kernel's programs could not be asked to carry an atomic out.
    pub faults: u64,
    /// Times that the limit of the rate was reached.
    pub limited: u64,
    /// Datagrams that the kernel's programs left alone because they are for another host.
    pub elsewhere: u64,
    /// Front-ends that read within the last second, as of the last read.
    pub readers: u32,
    /// Datagrams thrown away, by reason.
    pub dropped: Vec<(DropReason, u64)>,
    /// Those of them that only tried whether a key is known, which it is not.
    pub trials: u64,
}

/// The counters while the thread runs. It alone writes them.
#[derive(Debug, Default)]
struct Counters {
    reads: AtomicU64,
    atomics: AtomicU64,
    repeated: AtomicU64,
    refused: AtomicU64,
    unsent: AtomicU64,
    faults: AtomicU64,
    limited: AtomicU64,
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
    counters: Arc<Counters>,
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
        let counters = Arc::new(Counters::default());
        let kept = options.capabilities();
        let (wants_realtime, told) = (options.realtime, std::sync::mpsc::sync_channel(1));
        let server = Server::new(Arc::clone(&socket), Arc::clone(&counters), memory, options)?;
        let thread = std::thread::Builder::new()
            .name("tidegate-udp".to_owned())
            .spawn(move || {
                let set_up = realtime::ask_and_settle(wants_realtime, kept);
                let failed = set_up.is_err();
                // The thread that spawned this one waits for it.
                told.0.send(set_up).ok();
                if !failed {
                    server.run();
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
            unsent: read(&counters.unsent),
            faults: read(&counters.faults),
            limited: read(&counters.limited),
            elsewhere: 0,
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

/// What the thread owns.
struct Server {
    socket: Arc<UdpSocket>,
    counters: Arc<Counters>,
    memory: Arc<RegionMemory>,
    keys: Vec<Key>,
    allow: Vec<Network>,
    before_read: Option<BeforeRead>,
    hook_ran_at: Timestamp,
    limit: RateLimit,
    gather: Duration,
    atomics: Option<Box<dyn CarryOut>>,
    initiators: Initiators,
    readers: Readers,
    /// The last lines that were copied whole, and how many bytes of them; 0: none yet.
    whole: [u8; RECORD_BYTES_MAX],
    whole_bytes: usize,
}

impl Server {
    fn new(
        socket: Arc<UdpSocket>,
        counters: Arc<Counters>,
        memory: Arc<RegionMemory>,
        options: ResponderOptions,
    ) -> Result<Self, RegionError> {
        if !(1..=KEYS_MAX).contains(&options.keys.len()) {
            let text = format!(
                "{} keys; a responder takes 1 to {KEYS_MAX}",
                options.keys.len()
            );
            let error = io::Error::new(io::ErrorKind::InvalidInput, text);
            return Err(RegionError::io("take the keys")(error));
        }
        if options.atomics.is_none() {
            // The table of what was carried out begins empty.
            memory.begin_epoch()?;
        }
        Ok(Self {
            socket,
            counters,
            memory,
            keys: options.keys,
            allow: options.allow,
            before_read: options.before_read,
            hook_ran_at: Timestamp::ZERO,
            limit: RateLimit::new(options.rate_max),
            gather: options.gather,
            atomics: options.atomics,
            initiators: Initiators::default(),
            readers: Readers::default(),
            whole: [0; RECORD_BYTES_MAX],
            whole_bytes: 0,
        })
    }

    fn run(mut self) {
        // Without real-time priority the kernel would add 50 us to every rest.
        rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1)).ok();
        let mut batch = Batch::new(BATCH, MESSAGE_BYTES_MAX).with_control(true);
        let mut answered = Vec::with_capacity(BATCH);
        while !self.counters.stop.load(Ordering::Acquire) {
            let received = match batch.receive(&*self.socket, true) {
                Ok(received) => received,
                Err(error) => {
                    self.rest_after(&error);
                    continue;
                }
            };
            let now = clock::now();
            answered.clear();
            for slot in 0..received {
                match self.answer(&mut batch, slot, now) {
                    Ok(()) => answered.push(slot as u16),
                    Err(Unanswered::Dropped(reason)) => {
                        count(&self.counters.dropped[reason as usize]);
                    }
                    Err(Unanswered::Fault) => count(&self.counters.faults),
                }
            }
            let unsent = &self.counters.unsent;
            batch.send(&*self.socket, &answered, |_, _| count(unsent));
            if let Some(until) = self.limit.note(received as u32, now) {
                count(&self.counters.limited);
                clock::sleep_until(until);
            }
            if !self.gather.is_zero() && received < BATCH {
                clock::sleep_until(clock::now() + self.gather);
            }
        }
    }

    /// Nothing came for a while, or an answer of before was refused by its receiver: no reason
    /// to stop listening. Any other error may come back at once, and must not take the CPU.
    fn rest_after(&self, error: &io::Error) {
        let harmless = [
            io::ErrorKind::WouldBlock,
            io::ErrorKind::Interrupted,
            io::ErrorKind::ConnectionRefused,
        ];
        if !harmless.contains(&error.kind()) {
            count(&self.counters.faults);
            clock::sleep_until(clock::now() + REFUSED_REST);
        }
    }

    /// Turns the request in a slot into its answer.
    fn answer(&mut self, batch: &mut Batch, slot: usize, now: Timestamp) -> Result<(), Unanswered> {
        if !self.allow.is_empty() {
            let source = batch.source(slot).ok_or(DropReason::Source)?.ip();
            if !self.allow.iter().any(|network| network.contains(source)) {
                return Err(DropReason::Source.into());
            }
        }
        let message = batch.datagram(slot).ok_or(DropReason::Length)?;
        let decoded = Request::decode(message, &self.keys);
        if decoded == Err(DropReason::Key) && Request::is_trial(message) {
            count(&self.counters.trials);
        }
        let (request, key) = decoded?;
        let message = batch.answer(slot, message_bytes(request.lines));
        let lines = &mut message[HEADER_BYTES..];
        let (outcome, readers) = match request.verb {
            Verb::Read => {
                let readers = match is_fresh(&request, now) {
                    true => self.readers.note(request.initiator, now),
                    false => self.readers.current(now),
                };
                self.counters.readers.store(readers, Ordering::Relaxed);
                count(&self.counters.reads);
                (self.read(lines, now), readers)
            }
            Verb::CompareAndSwap | Verb::FetchAndAdd => {
                (self.atomic(&request, now)?, self.readers.current(now))
            }
        };
        let reply = Reply {
            verb: request.verb,
            lines: request.lines,
            status: outcome.status,
            initiator: request.initiator,
            sequence: request.sequence,
            nonce: request.nonce,
            node_now_ns: clock::now().nanos(),
            value: outcome.value,
            readers,
            epoch: self.memory.epoch(),
        };
        reply.encode(&self.keys[key], message);
        Ok(())
    }

    /// Copies the record behind the header.
    fn read(&mut self, lines: &mut [u8], now: Timestamp) -> Outcome {
        if let Some(before) = &mut self.before_read
            && (now.since(self.hook_ran_at) >= before.every || self.hook_ran_at == Timestamp::ZERO)
        {
            self.hook_ran_at = now;
            (before.hook)(now);
        }
        let status = match self.memory.copy(lines) {
            Ok(_) => {
                self.whole[..lines.len()].copy_from_slice(lines);
                self.whole_bytes = lines.len();
                Status::Done
            }
            Err(_) if self.whole_bytes >= lines.len() => {
                lines.copy_from_slice(&self.whole[..lines.len()]);
                Status::Done
            }
            Err(why) => {
                lines.fill(0);
                match why {
                    CopyError::Absent => Status::Absent,
                    CopyError::Torn => Status::Torn,
                }
            }
        };
        // There is always a word 0.
        let value = self.memory.word(0).unwrap_or_default();
        Outcome { status, value }
    }

    /// Carries an atomic out, once, or has it done.
    fn atomic(&mut self, request: &Request, now: Timestamp) -> Result<Outcome, Unanswered> {
        match &mut self.atomics {
            // Who does it counts it.
            Some(atomics) => match atomics.carry_out(request) {
                Ok((status, value)) => Ok(Outcome { status, value }),
                Err(_) => Err(Unanswered::Fault),
            },
            None => Ok(self.carry_out(request, now)),
        }
    }

    /// Carries an atomic out, once.
    fn carry_out(&mut self, request: &Request, now: Timestamp) -> Outcome {
        let refused = |status| Outcome { status, value: 0 };
        if request.epoch != self.memory.epoch() {
            count(&self.counters.refused);
            return refused(Status::Epoch);
        }
        match self.initiators.judge(request, now) {
            Verdict::New => {}
            Verdict::Repeated(outcome) => {
                count(&self.counters.repeated);
                return outcome;
            }
            Verdict::Refused(status) => {
                count(&self.counters.refused);
                return refused(status);
            }
        }
        let (word, operand) = (u32::from(request.word), request.operand);
        let done = match request.verb {
            Verb::CompareAndSwap => self
                .memory
                .compare_and_swap(word, request.expected, operand),
            Verb::FetchAndAdd => self.memory.fetch_and_add(word, operand),
            Verb::Read => return refused(Status::NoWord),
        };
        count(&self.counters.atomics);
        let outcome = match done {
            Ok(value) => Outcome {
                status: Status::Done,
                value,
            },
            Err(_) => refused(Status::NoWord),
        };
        self.initiators.keep(request, outcome);
        outcome
    }
}

/// Why a datagram is not answered.
enum Unanswered {
    Dropped(DropReason),
    /// The system did not do what it was asked for.
    Fault,
}

impl From<DropReason> for Unanswered {
    fn from(reason: DropReason) -> Self {
        Self::Dropped(reason)
    }
}

/// Counts one more. The thread is the only writer: no locked instruction is needed.
fn count(counter: &AtomicU64) {
    counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

/// So many datagrams per [`RATE_WINDOW`], then a rest until it ends.
struct RateLimit {
    per_window: u32,
    since: Timestamp,
    seen: u32,
}

impl RateLimit {
    fn new(per_second: u32) -> Self {
        let windows = 1000 / RATE_WINDOW.as_millis() as u32;
        Self {
            per_window: (per_second / windows).max(1),
            since: Timestamp::ZERO,
            seen: 0,
        }
    }

    /// Notes datagrams; says until when to rest, if they are too many.
    fn note(&mut self, datagrams: u32, now: Timestamp) -> Option<Timestamp> {
        if now.since(self.since) >= RATE_WINDOW {
            self.since = now;
            self.seen = 0;
        }
        self.seen = self.seen.saturating_add(datagrams);
        (self.seen > self.per_window).then(|| self.since + RATE_WINDOW)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_given_a_rest_until_the_window_ends() {
        let at = Timestamp::from_millis;
        let mut limit = RateLimit::new(10_000);
        assert_eq!(limit.note(100, at(1000)), None);
        assert_eq!(limit.note(1, at(1005)), Some(at(1010)));
        assert_eq!(limit.note(100, at(1010)), None);
        assert_eq!(RateLimit::new(0).per_window, 1);
    }
}
