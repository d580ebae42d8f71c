//! Where an upgrade is asked for: SIGUSR2, and the admin interface. One at a time; what became of it is answered,
//! logged and counted.
//!
//! What operators change meanwhile would reach one of the two processes only. So changes wait until the upgrade is over:
//! in the process that is succeeded, which refuses them then, and in its successor until it is on its own.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::signal::unix::{Signal, SignalKind};
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock, mpsc, oneshot};

use super::notify;
use super::predecessor::{HandOver, Offer, Successor};
use super::program::Program;
use crate::failure::Failure;
use crate::output::Output;
use crate::signals::listen;

/// An upgrade that was done: the process that serves from now on.
pub(crate) type Upgraded = Result<u32, String>;

/// What is known of upgrades.
#[derive(Debug, Default)]
struct Counts {
    under_way: AtomicBool,
    done: AtomicU64,
    failed: AtomicU64,
    /// Whether changes are for another process; locked by each change, and by an upgrade.
    is_elsewhere: Arc<RwLock<bool>>,
}

/// A change that an operator makes; no upgrade begins before it ends.
#[derive(Debug)]
pub(crate) struct Change(#[expect(dead_code, reason = "it is held")] OwnedRwLockReadGuard<bool>);

/// No change begins before it ends.
#[derive(Debug)]
pub(crate) struct NoChange(OwnedRwLockWriteGuard<bool>);

impl NoChange {
    /// Another process has it all: changes that have waited are refused.
    pub(super) fn forever(mut self) {
        *self.0 = true;
    }
}

/// Asks for upgrades.
#[derive(Clone, Debug)]
pub(crate) struct Desk {
    asks: mpsc::Sender<oneshot::Sender<Upgraded>>,
    counts: Arc<Counts>,
}

/// The other side: what carries them out.
#[derive(Debug)]
pub(crate) struct Requests {
    asked: mpsc::Receiver<oneshot::Sender<Upgraded>>,
    counts: Arc<Counts>,
}

/// Both sides, of a process that is the last of so many.
pub(crate) fn desk(upgrades: u64) -> (Desk, Requests) {
    let counts = Arc::new(Counts {
        done: AtomicU64::new(upgrades),
        ..Counts::default()
    });
    let (asks, asked) = mpsc::channel(1);
    let own = Arc::clone(&counts);
    let desk = Desk { asks, counts: own };
    (desk, Requests { asked, counts })
}

impl Desk {
    /// Asks for an upgrade, and waits for it.
    pub(crate) async fn upgrade(&self) -> Upgraded {
        if self.counts.under_way.swap(true, Ordering::AcqRel) {
            return Err("an upgrade is under way already".into());
        }
        let (answer, answered) = oneshot::channel();
        let none = "this front-end cannot be upgraded: it ends, or is part of another program";
        if self.asks.try_send(answer).is_err() {
            self.counts.under_way.store(false, Ordering::Release);
            return Err(none.into());
        }
        answered.await.unwrap_or_else(|_| Err(none.into()))
    }

    /// Begins a change, once no upgrade is under way.
    ///
    /// # Errors
    /// Another process has taken over meanwhile.
    pub(crate) async fn change(&self) -> Result<Change, String> {
        let change = Arc::clone(&self.counts.is_elsewhere).read_owned().await;
        match *change {
            true => Err("another process has taken over meanwhile: ask again, it answers".into()),
            false => Ok(Change(change)),
        }
    }

    /// Begins a change if no upgrade is under way.
    ///
    /// # Errors
    /// One is, or another process has taken over.
    pub(crate) fn change_now(&self) -> Result<Change, String> {
        let change = Arc::clone(&self.counts.is_elsewhere).try_read_owned();
        match change.ok().filter(|it| !**it) {
            Some(change) => Ok(Change(change)),
            None => Err("an upgrade is under way: ask again once it is over".into()),
        }
    }

    /// Has changes wait; none if one is under way.
    pub(crate) fn close(&self) -> Option<NoChange> {
        let closed = Arc::clone(&self.counts.is_elsewhere).try_write_owned();
        closed.ok().map(NoChange)
    }

    /// Upgrades in a row before this process.
    pub(crate) fn done(&self) -> u64 {
        self.counts.done.load(Ordering::Relaxed)
    }

    /// Upgrades that this process has tried in vain.
    pub(crate) fn failed(&self) -> u64 {
        self.counts.failed.load(Ordering::Relaxed)
    }
}

/// Carries upgrades out.
#[derive(Debug)]
pub(crate) struct Upgrader {
    requests: Requests,
    signal: Signal,
    program: io::Result<Program>,
    /// It begins once no change is under way.
    asked: Option<Asked>,
    current: Option<Current>,
    output: Output,
}

/// What is waited for; nothing waits for an upgrade that a signal asked for.
type Asked = Option<oneshot::Sender<Upgraded>>;

#[derive(Debug)]
struct Current {
    hand_over: HandOver,
    answer: Asked,
    no_change: NoChange,
}

impl Upgrader {
    /// Of this process, as it starts.
    pub(crate) fn new(
        requests: Option<Requests>,
        program: io::Result<Program>,
        output: Output,
    ) -> Result<Self, Failure> {
        Ok(Self {
            // Without any, nothing but the signal asks.
            requests: requests.unwrap_or_else(|| desk(0).1),
            signal: listen(SignalKind::user_defined2())?,
            program,
            asked: None,
            current: None,
            output,
        })
    }

    /// Returns once a successor has everything. Nothing is lost if it is not waited for.
    pub(crate) async fn succeeded(&mut self, offer: impl Fn() -> io::Result<Offer>) -> Successor {
        loop {
            if let Some(current) = &mut self.current {
                let ended = tokio::select! {
                    ended = current.hand_over.ended() => ended,
                    // The API refuses a second one itself.
                    _ = self.signal.recv() => {
                        self.output.event("upgrade", "an upgrade is under way already");
                        continue;
                    }
                };
                let Some(Current {
                    answer, no_change, ..
                }) = self.current.take()
                else {
                    continue;
                };
                match ended {
                    Ok(successor) => {
                        no_change.forever();
                        self.on_success(&successor, answer);
                        return successor;
                    }
                    Err(why) => self.on_failure(&why, answer),
                }
                continue;
            }
            if self.asked.is_none() {
                self.asked = Some(tokio::select! {
                    Some(answer) = self.requests.asked.recv() => Some(answer),
                    _ = self.signal.recv() => None,
                });
            }
            let counts = &self.requests.counts;
            counts.under_way.store(true, Ordering::Release);
            let no_change = Arc::clone(&counts.is_elsewhere).write_owned().await;
            let answer = self.asked.take().flatten();
            match self.begin(&offer) {
                Ok(hand_over) => {
                    self.current = Some(Current {
                        hand_over,
                        answer,
                        no_change: NoChange(no_change),
                    });
                }
                Err(why) => self.on_failure(&why, answer),
            }
        }
    }

    /// This process is to end without a successor. One that has everything already is returned; any other has ended
    /// when this returns.
    pub(crate) async fn withdraw(&mut self) -> Option<Successor> {
        if let Some(answer) = self.asked.take() {
            self.on_failure("this process was asked to stop meanwhile", answer);
        }
        let mut current = self.current.take()?;
        current.hand_over.withdraw();
        match current.hand_over.ended().await {
            Ok(successor) => {
                current.no_change.forever();
                self.on_success(&successor, current.answer);
                Some(successor)
            }
            Err(why) => {
                self.on_failure(&why, current.answer);
                None
            }
        }
    }

    fn begin(&self, offer: &impl Fn() -> io::Result<Offer>) -> Result<HandOver, String> {
        if std::process::id() == 1 {
            return Err(
                "this process is the first of its container (PID 1), which ends with it: start it under an init, as \
                 `docker run --init` does"
                    .into(),
            );
        }
        let program = self.program.as_ref();
        let program = program.map_err(|error| format!("the own program is not known: {error}"))?;
        let cannot = |error| format!("cannot begin: {error}");
        self.output
            .event("upgrade", "starting a new process that takes over");
        HandOver::begin(program.clone(), offer().map_err(cannot)?).map_err(cannot)
    }

    fn on_success(&self, successor: &Successor, answer: Option<oneshot::Sender<Upgraded>>) {
        notify::main_process(successor.process);
        let text = format!("process {} has taken over", successor.process);
        self.output.event("upgraded", &text);
        if let Some(answer) = answer {
            // The one that asked may have left.
            answer.send(Ok(successor.process)).ok();
        }
    }

    fn on_failure(&self, why: &str, answer: Option<oneshot::Sender<Upgraded>>) {
        let counts = &self.requests.counts;
        counts.failed.fetch_add(1, Ordering::Relaxed);
        counts.under_way.store(false, Ordering::Release);
        let text = format!("not upgraded, this process goes on as before: {why}");
        self.output.event("upgrade_failed", &text);
        if let Some(answer) = answer {
            answer.send(Err(why.to_owned())).ok();
        }
    }
}
