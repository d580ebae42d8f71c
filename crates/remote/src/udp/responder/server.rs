//! The thread: takes datagrams, turns requests into answers, and carries atomics out.

use std::io;
use std::net::{IpAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidegate_core::record::RECORD_BYTES_MAX;
use tidegate_core::time::Timestamp;

use super::guard::Guard;
use super::{BeforeRead, CarryOut, Connect, ResponderCounters, ResponderOptions, count};
use crate::clock;
use crate::memory::RegionMemory;
use crate::memory::lines::CopyError;
use crate::memory::presence::SIGN_EVERY;
use crate::memory::words::WordChange;
use crate::region::RegionError;
use crate::udp::Key;
use crate::udp::address::Network;
use crate::udp::batch::Batch;
use crate::udp::initiators::{
    AtomicVerdict, Initiators, Readers, VerbOutcome, is_fresh, refused_by_age,
};
use crate::udp::key_file::KEYS_MAX;
use crate::udp::wire::{
    CONNECT_BYTES, DropReason, HEADER_BYTES, MESSAGE_BYTES_MAX, Reply, Request, Status, Verb,
    claim, message_bytes,
};

/// Datagrams per system call.
pub(super) const BATCH: usize = 64;
/// Rest after the system refused to give datagrams for a reason that we do not know.
const REFUSED_REST: Duration = Duration::from_millis(10);

/// Of a batch whose words a card changes. All of it waits for the card as long as one atomic may take, and no longer.
#[derive(Clone, Copy, Debug, Default)]
struct CardTurn {
    /// Until then it is waited for; nothing before the first wait.
    until: Option<Timestamp>,
    /// What word 0 held since the batch was taken, if nothing of it has changed words afterwards.
    first_word: Option<u64>,
}

/// What the thread owns.
pub(super) struct Server {
    socket: Arc<UdpSocket>,
    counters: Arc<ResponderCounters>,
    memory: Arc<RegionMemory>,
    keys: Vec<Key>,
    allow: Vec<Network>,
    before_read: Option<BeforeRead>,
    hook_ran_at: Timestamp,
    pub(super) guard: Guard,
    gather: Duration,
    atomics: Option<Box<dyn CarryOut>>,
    connect: Option<Box<dyn Connect>>,
    card: CardTurn,
    initiators: Initiators,
    readers: Readers,
    /// Those that read it through mappings, and when that was looked up.
    present: u32,
    present_at: Timestamp,
    /// The last lines that were copied whole, and how many bytes of them; 0: none yet.
    whole: [u8; RECORD_BYTES_MAX],
    whole_bytes: usize,
}

impl Server {
    pub(super) fn new(
        socket: Arc<UdpSocket>,
        counters: Arc<ResponderCounters>,
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
        let guard = Guard::new(&options, Arc::clone(&socket), Arc::clone(&counters));
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
            guard,
            gather: options.gather,
            atomics: options.atomics,
            connect: options.connect,
            card: CardTurn::default(),
            initiators: Initiators::default(),
            readers: Readers::default(),
            present: 0,
            present_at: Timestamp::ZERO,
            whole: [0; RECORD_BYTES_MAX],
            whole_bytes: 0,
        })
    }

    /// Answers until it is to stop.
    pub(super) fn run(mut self, at_realtime: bool) {
        // Without real-time priority the kernel would add 50 us to every rest.
        rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1)).ok();
        self.guard.at_realtime = at_realtime;
        let mut batch = Batch::new(BATCH, MESSAGE_BYTES_MAX).with_control(true);
        let mut answered = Vec::with_capacity(BATCH);
        while !self.counters.stop.load(Ordering::Acquire) {
            let received = match batch.receive(&*self.socket, true) {
                Ok(received) => received,
                Err(error) => {
                    self.rest_after(&error);
                    self.guard.after_batch(0, clock::now());
                    continue;
                }
            };
            let now = clock::now();
            self.card = CardTurn::default();
            answered.clear();
            for slot in 0..received {
                match self.answer(&mut batch, slot, now) {
                    Ok(()) => answered.push(slot as u16),
                    Err(Unanswered::Dropped(reason)) => {
                        count(&self.counters.dropped[reason as usize]);
                    }
                    Err(Unanswered::Fault) => count(&self.counters.faults),
                    Err(Unanswered::Unexamined) => count(&self.counters.unexamined),
                    Err(Unanswered::NotYet) => {}
                }
            }
            let unsent = &self.counters.unsent;
            batch.send(&*self.socket, &answered, |_, _| count(unsent));
            if let Some(until) = self.guard.after_batch(received as u32, now) {
                clock::sleep_until(until);
            }
            if !self.gather.is_zero() && received < BATCH {
                clock::sleep_until(clock::now() + self.gather);
            }
        }
    }

    /// Nothing came for a while, or an answer of before was refused by its receiver: no reason
    /// to stop listening. Any other error may come back at once, and must not take the CPU.
    pub(super) fn rest_after(&self, error: &io::Error) {
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

    /// Turns the request in a slot into its answer. What costs least is looked at first.
    pub(super) fn answer(
        &mut self,
        batch: &mut Batch,
        slot: usize,
        now: Timestamp,
    ) -> Result<(), Unanswered> {
        let message = batch.datagram(slot).ok_or(DropReason::Length)?;
        let claim = claim(message, &self.keys);
        if claim == Err(DropReason::Key) && Request::is_trial(message) {
            count(&self.counters.trials);
        }
        let claim = claim?;
        let source = batch.source(slot).ok_or(DropReason::Source)?.ip();
        let allowed = |network: &Network| network.contains(source);
        if !self.allow.is_empty() && !self.allow.iter().any(allowed) {
            return Err(DropReason::Source.into());
        }
        if !self.guard.admits(claim, now) {
            return Err(Unanswered::Unexamined);
        }
        let (request, key) = Request::decode(message, &self.keys)
            .inspect_err(|_| self.guard.note_forged(claim, now))?;
        let fresh = is_fresh(request.sequence, now);
        self.guard.note_true(claim, now);
        let offer = offer(&request, message);
        let message = batch.answer(slot, message_bytes(request.lines));
        let lines = &mut message[HEADER_BYTES..];
        let mut epoch = self.memory.epoch();
        let (outcome, readers) = match request.verb {
            Verb::Read => {
                let readers = match fresh {
                    true => self.readers.note(request.initiator, now),
                    false => self.readers.current(now),
                };
                let readers = self.with_present(readers, now);
                self.counters.readers.store(readers, Ordering::Relaxed);
                count(&self.counters.reads);
                let (status, first_word) = self.read(lines, now);
                if first_word.is_none() {
                    epoch = 0;
                }
                let value = first_word.unwrap_or_default();
                (VerbOutcome { status, value }, readers)
            }
            Verb::CompareAndSwap | Verb::FetchAndAdd => {
                let readers = self.readers.current(now);
                let outcome = self.atomic(&request, now)?;
                (outcome, self.with_present(readers, now))
            }
            Verb::Connect => {
                let readers = match fresh {
                    true => self.readers.note(request.initiator, now),
                    false => self.readers.current(now),
                };
                let status = self.connect(&request, source, &offer, lines, now)?;
                let outcome = VerbOutcome { status, value: 0 };
                (outcome, self.with_present(readers, now))
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
            epoch,
        };
        reply.encode(&self.keys[key], message);
        Ok(())
    }

    /// All readers, where so many are by datagrams; those that map the memory learn of these.
    fn with_present(&mut self, by_datagrams: u32, now: Timestamp) -> u32 {
        if now.since(self.present_at) >= SIGN_EVERY {
            self.present_at = now;
            self.present = self.memory.present(now);
            self.memory.set_by_datagrams(by_datagrams, now);
        }
        by_datagrams.saturating_add(self.present)
    }

    /// Copies the record behind the header; gives what word 0 holds as well, if that is known.
    pub(super) fn read(&mut self, lines: &mut [u8], now: Timestamp) -> (Status, Option<u64>) {
        if let Some(before) = &mut self.before_read
            && (now.since(self.hook_ran_at) >= before.every || self.hook_ran_at == Timestamp::ZERO)
        {
            self.hook_ran_at = now;
            (before.hook)(now);
        }
        self.memory.note_read();
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
        (status, self.first_word())
    }

    /// What word 0 holds; not asked for again in one batch where that takes a card.
    fn first_word(&mut self) -> Option<u64> {
        if self.memory.words_patience().is_none() {
            return self.memory.word(0).ok();
        }
        if self.card.first_word.is_none() {
            let held = self.change(0, WordChange::NOTHING);
            self.card.first_word = held.ok();
        }
        self.card.first_word
    }

    /// Does this to a word, by the end of this batch's time where a card does it.
    fn change(&mut self, word: u32, change: WordChange) -> Result<u64, RegionError> {
        let Some(patience) = self.memory.words_patience() else {
            return self.memory.change(word, change, None);
        };
        let until = *(self.card.until).get_or_insert_with(|| clock::now() + patience);
        self.card.first_word = None;
        self.memory.change(word, change, Some(until))
    }

    /// Connects a front-end over RDMA; leaves what it is granted behind the header.
    fn connect(
        &mut self,
        request: &Request,
        source: IpAddr,
        offer: &[u8; CONNECT_BYTES],
        lines: &mut [u8],
        now: Timestamp,
    ) -> Result<Status, Unanswered> {
        lines.fill(0);
        let status = match (&mut self.connect, lines.first_chunk_mut()) {
            (Some(connect), Some(grant)) => match refused_by_age(request.sequence, now) {
                Some(status) => status,
                None => {
                    let status = connect.connect(request, source, offer, grant, now);
                    status.ok_or(Unanswered::NotYet)?
                }
            },
            (None, _) | (_, None) => Status::NoDevice,
        };
        count(match status == Status::Done {
            true => &self.counters.connected,
            false => &self.counters.refused,
        });
        Ok(status)
    }

    /// Carries an atomic out, once, or has it done.
    fn atomic(&mut self, request: &Request, now: Timestamp) -> Result<VerbOutcome, Unanswered> {
        match &mut self.atomics {
            // What does it counts it.
            Some(atomics) => match atomics.carry_out(request) {
                Ok((status, value)) => Ok(VerbOutcome { status, value }),
                Err(_) => Err(Unanswered::Fault),
            },
            None => self.carry_out(request, now),
        }
    }

    /// Carries an atomic out, once.
    fn carry_out(&mut self, request: &Request, now: Timestamp) -> Result<VerbOutcome, Unanswered> {
        let refused = |status| VerbOutcome { status, value: 0 };
        if request.epoch != self.memory.epoch() {
            count(&self.counters.refused);
            return Ok(refused(Status::Epoch));
        }
        match self.initiators.judge(request, now) {
            AtomicVerdict::New => {}
            AtomicVerdict::Repeated(outcome) => {
                count(&self.counters.repeated);
                return Ok(outcome);
            }
            AtomicVerdict::Unknown => return Err(Unanswered::Fault),
            AtomicVerdict::Refused(status) => {
                count(&self.counters.refused);
                return Ok(refused(status));
            }
        }
        let (word, operand) = (u32::from(request.word), request.operand);
        let change = match request.verb {
            Verb::CompareAndSwap => WordChange::CompareAndSwap {
                expected: request.expected,
                new: operand,
            },
            Verb::FetchAndAdd => WordChange::FetchAndAdd { delta: operand },
            Verb::Read | Verb::Connect => return Ok(refused(Status::NoWord)),
        };
        let outcome = match self.change(word, change) {
            Ok(value) => VerbOutcome {
                status: Status::Done,
                value,
            },
            // The card did not take it: a copy may find it ready.
            Err(RegionError::Timeout { tries: 0 }) => return Err(Unanswered::Fault),
            Err(RegionError::Timeout { .. }) => {
                self.initiators.keep(request, None);
                return Err(Unanswered::Fault);
            }
            Err(_) => refused(Status::NoWord),
        };
        count(&self.counters.atomics);
        self.initiators.keep(request, Some(outcome));
        Ok(outcome)
    }
}

/// What is offered behind a request's header, before its answer takes its place.
fn offer(request: &Request, message: &[u8]) -> [u8; CONNECT_BYTES] {
    let mut offer = [0; CONNECT_BYTES];
    if request.verb == Verb::Connect {
        offer.copy_from_slice(&message[HEADER_BYTES..]);
    }
    offer
}

/// Why a datagram is not answered.
pub(super) enum Unanswered {
    Dropped(DropReason),
    /// In a name that is not proven; there were too many.
    Unexamined,
    /// The system, or the card that changes the words, did not do what it was asked for.
    Fault,
    /// What it asks for is under way.
    NotYet,
}

impl From<DropReason> for Unanswered {
    fn from(reason: DropReason) -> Self {
        Self::Dropped(reason)
    }
}
