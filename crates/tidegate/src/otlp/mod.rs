//! Exports traces by the OpenTelemetry Protocol, on a thread of its own: `[traces]`.
//!
//! ```text
//! workers ── bounded channel ──> batch (count, time) ── POST, protobuf ──> collector
//! ```
//!
//! One batch is on its way at a time. While the collector is slow or gone, batches wait in the channel, and what finds no room there
//! is dropped and counted by its worker; no request waits. The thread begins with the first configuration that wants it.
//! Failure case: what a collector refuses for good, or does not take for a minute, is dropped and counted.
//! Source: OTLP-1.

mod attempt;
mod message;
mod spans;
mod task;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate_proxy::TracedRequest;
use tidegate_remote::privilege;
use tokio::sync::{mpsc, watch};

use crate::config::OtlpConfig;
use crate::output::Output;

/// Requests that were traced, from the workers.
pub(crate) type Batches = mpsc::Receiver<Vec<TracedRequest>>;

/// Counts what becomes of traces behind the workers.
#[derive(Debug, Default)]
pub(crate) struct ExportCounts {
    exported: AtomicU64,
    rejected: AtomicU64,
    refused: AtomicU64,
    unavailable: AtomicU64,
    outcomes: [AtomicU64; ExportOutcome::ALL.len()],
}

/// What becomes of one try to export a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExportOutcome {
    /// The collector took all of it.
    Taken,
    /// It took some of it.
    Partial,
    /// It refused it for good.
    Refused,
    /// It could not be reached, gave no answer in time, or wants to be asked later.
    Failed,
}

impl ExportOutcome {
    /// All of them.
    pub(crate) const ALL: [Self; 4] = [Self::Taken, Self::Partial, Self::Refused, Self::Failed];

    /// Its name in metrics.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Taken => "taken",
            Self::Partial => "partial",
            Self::Refused => "refused",
            Self::Failed => "failed",
        }
    }
}

impl ExportCounts {
    /// Spans that collectors took.
    pub(crate) fn exported(&self) -> u64 {
        self.exported.load(Ordering::Relaxed)
    }

    /// Spans that they did not take of a batch that they took.
    pub(crate) fn rejected(&self) -> u64 {
        self.rejected.load(Ordering::Relaxed)
    }

    /// Requests that were dropped, as the collector refused them for good.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Requests that were dropped, as the collector did not take them in time.
    pub(crate) fn unavailable(&self) -> u64 {
        self.unavailable.load(Ordering::Relaxed)
    }

    /// Tries that went so.
    pub(crate) fn tries(&self, outcome: ExportOutcome) -> u64 {
        self.outcomes[outcome as usize].load(Ordering::Relaxed)
    }

    fn note(&self, outcome: ExportOutcome) {
        self.outcomes[outcome as usize].fetch_add(1, Ordering::Relaxed);
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Exporter {
    counts: Arc<ExportCounts>,
    settings: watch::Sender<Option<Arc<OtlpConfig>>>,
    stopping: watch::Sender<bool>,
    /// What the thread begins with; none once it has.
    waiting: Mutex<Option<Batches>>,
    /// Says, by being closed, that the thread has ended.
    running: Mutex<Option<Receiver<()>>>,
    output: Output,
}

impl Exporter {
    /// Exports to this collector, or nothing yet.
    pub(crate) fn begin(batches: Batches, config: Option<OtlpConfig>, output: Output) -> Arc<Self> {
        let exporter = Self {
            counts: Arc::default(),
            settings: watch::Sender::new(None),
            stopping: watch::Sender::new(false),
            waiting: Mutex::new(Some(batches)),
            running: Mutex::new(None),
            output,
        };
        exporter.set(config);
        Arc::new(exporter)
    }

    /// What became of what came here.
    pub(crate) fn counts(&self) -> &ExportCounts {
        &self.counts
    }

    /// The collector is this one from now on; with none, what has come still goes to the last one.
    pub(crate) fn set(&self, config: Option<OtlpConfig>) {
        let begins = config.is_some();
        let is_same = self.settings.borrow().as_deref() == config.as_ref();
        if !is_same {
            self.settings.send_replace(config.map(Arc::new));
        }
        if begins && let Some(batches) = lock(&self.waiting).take() {
            self.spawn(batches);
        }
    }

    fn spawn(&self, batches: Batches) {
        let (alive, running) = channel();
        let work = task::Work {
            batches,
            settings: self.settings.subscribe(),
            stopping: self.stopping.subscribe(),
            counts: Arc::clone(&self.counts),
            output: self.output,
        };
        let thread = std::thread::Builder::new().name("otlp".into());
        let output = self.output;
        let spawned = thread.spawn(move || {
            // Sending takes none; with those that it has, it sends as well.
            privilege::keep(privilege::NONE).ok();
            if let Err(why) = task::run(work) {
                let text = format!("traces: not exported, there is no runtime for it: {why}");
                output.event("traces_lost", &text);
            }
            drop(alive);
        });
        match spawned {
            Ok(_) => *lock(&self.running) = Some(running),
            Err(why) => {
                let text = format!("traces: not exported, there is no thread for it: {why}");
                self.output.event("traces_lost", &text);
            }
        }
    }

    /// The workers have ended: what is left is sent, once and in this time. Whether all of that was done.
    pub(crate) fn end(&self, patience: Duration) -> bool {
        self.stopping.send_replace(true);
        let running = lock(&self.running).take();
        running.is_none_or(|it| match it.recv_timeout(patience) {
            Ok(()) | Err(RecvTimeoutError::Disconnected) => true,
            Err(RecvTimeoutError::Timeout) => false,
        })
    }
}

fn lock<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
