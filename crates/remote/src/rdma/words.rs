//! A node's own way to words that its card serves: a queue pair that is connected to another one of the same card.
//!
//! ```text
//!  responder, moves ── mailbox ──> this thread ── CAS, FAA ──> card ──> words <── card <── front-ends over RDMA
//! ```
//!
//! A card's atomics are atomic among themselves, and need not be beside a CPU's. By this all of a node's atomics are the
//! card's, whichever way they are asked for, and front-ends with and without RDMA share its words. A value is read as an
//! addition of nothing: what the card keeps need not be in this machine's order of bytes.
//!
//! | what happens | what follows |
//! |---|---|
//! | no answer by the asker's deadline | it is not waited for: what became of the atomic is unknown. The thread waits on, for [`CardOptions::wait`] |
//! | the card refuses, fails or is silent | unknown; both queue pairs are destroyed and made anew, on the device opened anew |
//! | they cannot be made anew | atomics are refused at once, untouched; it is tried again after 10 ms to 1 s |
//! | the address has another device by then | as above: two devices' atomics are not atomic to each other |
//!
//! It has a thread of its own, since making queue pairs takes milliseconds, and a call that a card holds up cannot be left:
//! the responder waits for a time and no longer. The thread opens its own device: the kernel takes requests for a device
//! in software from threads with the very credentials that have opened it.
//!
//! Failure case: a swap that is posted in time and held up by the card may be carried out by as much later as it is waited for.

use std::fmt;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tidegate_core::time::Timestamp;

use super::RdmaDevice;
use super::mailbox::{AskedChange, Asking, Fate, Mailbox};
use super::memory::Registered;
use super::queue::{Completions, Operation, PeerMay, Posted, QueueFailure, QueuePair};
use crate::clock;
use crate::memory::words::{ChangeWords, NotChanged, WordChange};
use crate::memory::{WORDS_BYTES, WORDS_PAGE, random};
use crate::privilege::NONE;
use crate::realtime;
use crate::region::RegionError;

/// First pause before queue pairs are made anew.
const PAUSE_MIN: Duration = Duration::from_millis(10);
/// Longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(1);
const WORD_BYTES: usize = size_of::<u64>();

/// How a node's own atomics are carried out.
#[derive(Clone, Copy, Debug)]
pub(super) struct CardOptions {
    /// How long one is waited for.
    pub(super) wait: Duration,
    /// Whether to ask for real-time priority, as the responder that waits may have it.
    pub(super) realtime: bool,
}

/// See the module. The thread ends when this is dropped.
pub(super) struct CardWords {
    shared: Arc<Shared>,
    device: String,
    options: CardOptions,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    inner: Mutex<Inner>,
    /// Something is asked, or it is to stop.
    asked: Condvar,
    /// Something is finished, or the place is free.
    finished: Condvar,
}

struct Inner {
    mailbox: Mailbox,
    stop: bool,
}

impl fmt::Debug for CardWords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CardWords")
            .field("device", &self.device)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl CardWords {
    /// Starts the thread; its queue pairs stand when this returns.
    pub(super) fn start(
        device: &RdmaDevice,
        memory: impl AsFd,
        options: CardOptions,
    ) -> Result<Self, RegionError> {
        let memory = memory.as_fd().try_clone_to_owned();
        let worker = Worker {
            shared: Arc::new(Shared {
                inner: Mutex::new(Inner {
                    mailbox: Mailbox::new(),
                    stop: false,
                }),
                asked: Condvar::new(),
                finished: Condvar::new(),
            }),
            address: device.address(),
            device: device.name().to_owned(),
            memory: memory.map_err(RegionError::io("share the words"))?,
            options,
        };
        let (shared, device) = (Arc::clone(&worker.shared), worker.device.clone());
        let (tell, told) = sync_channel(1);
        let thread = std::thread::Builder::new()
            .name("tidegate-words".to_owned())
            .spawn(move || worker.begin(&tell))
            .map_err(RegionError::io("start the thread that changes words"))?;
        let words = Self {
            shared,
            device,
            options,
            thread: Some(thread),
        };
        told.recv().unwrap_or(Err(RegionError::Absent))?;
        Ok(words)
    }
}

impl Drop for CardWords {
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        self.shared.asked.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic was printed by the thread itself; there is nothing to add.
            thread.join().ok();
        }
    }
}

impl ChangeWords for CardWords {
    fn change(&self, word: u32, change: WordChange, deadline: Timestamp) -> Fate {
        let asked = AskedChange {
            word,
            change,
            deadline,
        };
        let shared = &self.shared;
        let mut inner = shared.lock();
        let number = loop {
            match inner.mailbox.ask(asked) {
                Asking::Numbered(number) => break number,
                Asking::Refused => return Err(NotChanged::NotNow),
                Asking::Busy => {}
            }
            let rest = deadline.since(clock::now());
            if rest.is_zero() {
                return Err(NotChanged::NotNow);
            }
            inner = shared.wait(&shared.finished, inner, rest);
        };
        shared.asked.notify_one();
        let fate = loop {
            if let Some(fate) = inner.mailbox.fetch(number) {
                break fate;
            }
            let rest = deadline.since(clock::now());
            if rest.is_zero() {
                break inner.mailbox.leave(number);
            }
            inner = shared.wait(&shared.finished, inner, rest);
        };
        drop(inner);
        // Another one may wait for its turn.
        shared.finished.notify_all();
        fate
    }

    fn patience(&self) -> Duration {
        self.options.wait
    }

    fn device(&self) -> &str {
        &self.device
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Whatever panicked has left it whole: it holds no more than numbers.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(
        &self,
        on: &Condvar,
        inner: MutexGuard<'a, Inner>,
        rest: Duration,
    ) -> MutexGuard<'a, Inner> {
        let woken = on.wait_timeout(inner, rest);
        woken.unwrap_or_else(PoisonError::into_inner).0
    }

    /// The next atomic; nothing if it is to stop.
    fn next(&self) -> Option<AskedChange> {
        let mut inner = self.lock();
        loop {
            if inner.stop {
                return None;
            }
            if let Some(asked) = inner.mailbox.take(clock::now()) {
                return Some(asked);
            }
            let woken = self.asked.wait(inner);
            inner = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn finish(&self, fate: Fate) {
        self.lock().mailbox.finish(fate);
        self.finished.notify_all();
    }

    /// Rests; whether it goes on.
    fn rest(&self, pause: Duration) -> bool {
        let until = clock::now() + pause;
        let mut inner = self.lock();
        loop {
            let rest = until.since(clock::now());
            if inner.stop || rest.is_zero() {
                return !inner.stop;
            }
            inner = self.wait(&self.asked, inner, rest);
        }
    }
}

/// What the thread owns.
struct Worker {
    shared: Arc<Shared>,
    address: IpAddr,
    device: String,
    memory: OwnedFd,
    options: CardOptions,
}

impl Worker {
    fn begin(self, tell: &SyncSender<Result<(), RegionError>>) {
        let settled = realtime::ask_and_settle(self.options.realtime, NONE);
        let settled = settled.map_err(RegionError::io("give privileges away"));
        match settled.and_then(|_| self.connect()) {
            Ok(looped) => {
                self.shared.lock().mailbox.is_up();
                // The thread that spawned this one waits for it.
                tell.send(Ok(())).ok();
                self.run(looped);
            }
            Err(error) => {
                tell.send(Err(error)).ok();
            }
        }
    }

    fn run(&self, mut looped: Loop) {
        while let Some(asked) = self.shared.next() {
            match looped.change(&asked, clock::now() + self.options.wait) {
                Ok(held) => self.shared.finish(Ok(held)),
                Err(_) => {
                    self.shared.finish(Err(NotChanged::Unknown));
                    // Nothing more is carried out once this is gone.
                    drop(looped);
                    let Some(anew) = self.connect_anew() else {
                        return;
                    };
                    looped = anew;
                    self.shared.lock().mailbox.is_up();
                }
            }
        }
    }

    /// Queue pairs, as soon as they can be had; nothing if it is to stop.
    fn connect_anew(&self) -> Option<Loop> {
        let mut pause = PAUSE_MIN;
        loop {
            if let Ok(looped) = self.connect() {
                return Some(looped);
            }
            if !self.shared.rest(pause) {
                return None;
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    fn connect(&self) -> Result<Loop, RegionError> {
        let device = RdmaDevice::open(Some(self.address))?;
        if device.name() != self.device {
            let text = format!("{} is {} by now", self.address, device.name());
            return Err(RegionError::NoDevice(text));
        }
        Loop::new(&device, &self.memory, self.options.wait)
    }
}

/// Two queue pairs of one device that are connected to each other.
struct Loop {
    // In the order in which they must go: nothing is written to memory once the queue pairs are gone.
    asks: QueuePair,
    _answers: QueuePair,
    buffer: Registered,
    words: Registered,
}

impl Loop {
    fn new(
        device: &Arc<RdmaDevice>,
        memory: impl AsFd,
        wait: Duration,
    ) -> Result<Self, RegionError> {
        let completions = Arc::new(Completions::new(device, 2)?);
        let words = Registered::words(device, memory, WORDS_PAGE, WORDS_BYTES)?;
        let buffer = Registered::buffer(device, WORD_BYTES)?;
        let pair = |peer_may| QueuePair::new(&completions, peer_may, random()? as u32);
        let mut answers = pair(PeerMay::ReadAndChangeWords)?;
        let mut asks = pair(PeerMay::Nothing)?;
        answers.meet(&asks.endpoint())?;
        asks.meet(&answers.endpoint())?;
        asks.ask(wait)?;
        Ok(Self {
            asks,
            _answers: answers,
            buffer,
            words,
        })
    }

    fn change(&mut self, asked: &AskedChange, deadline: Timestamp) -> Result<u64, QueueFailure> {
        let words = self.words.remote();
        let posted = Posted {
            operation: asked.change.into(),
            address: words.address + u64::from(asked.word) * WORD_BYTES as u64,
            key: words.key,
            answer_at: 0,
        };
        self.asks.carry_out(&[posted], &self.buffer, deadline)?;
        let mut word = [0; WORD_BYTES];
        self.buffer.copy(0, &mut word);
        Ok(u64::from_ne_bytes(word))
    }
}

impl From<WordChange> for Operation {
    fn from(change: WordChange) -> Self {
        match change {
            WordChange::CompareAndSwap { expected, new } => Self::CompareAndSwap { expected, new },
            WordChange::FetchAndAdd { delta } => Self::FetchAndAdd { delta },
        }
    }
}
