//! The thread that writes the access log. It alone waits for the disk.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::file::append;
use crate::config::{LogTarget, ProxyThread};

/// Longest wait for what is still to be written, where no other time is set for it.
const END_PATIENCE: Duration = Duration::from_secs(5);
/// Batches that wait for the writer, of all workers together.
pub(super) const BATCHES_MAX: usize = 64;

/// Lines of one worker, ready to be written.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) bytes: Vec<u8>,
    pub(crate) lines: u64,
}

/// The writer thread's handle. Dropping it waits until all is written, but not for ever; all senders must be gone
/// by then.
#[derive(Debug)]
pub(crate) struct Writer {
    path: Option<PathBuf>,
    sender: Option<SyncSender<Batch>>,
    shared: Arc<Shared>,
    /// Closed once the thread has ended. The mutex makes the writer shareable.
    running: Mutex<Receiver<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    /// What the next batch goes to.
    next: Mutex<Option<File>>,
    errors: AtomicU64,
}

enum Output {
    Stdout(io::Stdout),
    File(File),
}

impl Output {
    fn open(target: &LogTarget) -> io::Result<Self> {
        match target {
            LogTarget::Stdout => Ok(Self::Stdout(io::stdout())),
            LogTarget::File(path) => Ok(Self::File(append(path)?)),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Stdout(stdout) => {
                stdout.write_all(bytes)?;
                stdout.flush()
            }
            Self::File(file) => file.write_all(bytes),
        }
    }
}

/// Opens the log's file anew, from any thread that may wait for the disk.
#[derive(Clone, Debug, Default)]
pub struct LogReopener(Option<(PathBuf, Arc<Shared>)>);

impl LogReopener {
    /// The next lines go to what has the file's name by now: it was renamed by a log rotation. Without a file nothing
    /// is to be done.
    ///
    /// # Errors
    /// It cannot be opened, or is refused. Lines go on into the file that is open.
    pub fn reopen(&self) -> io::Result<()> {
        let Some((path, shared)) = &self.0 else {
            return Ok(());
        };
        let file = append(path)?;
        let mut next = shared.next.lock().unwrap_or_else(PoisonError::into_inner);
        *next = Some(file);
        Ok(())
    }
}

impl Writer {
    /// Opens the log and starts the thread.
    pub(crate) fn start(
        target: &LogTarget,
        thread_start: fn(ProxyThread) -> io::Result<()>,
    ) -> io::Result<Self> {
        let output = Output::open(target)?;
        let (sender, receiver) = sync_channel(BATCHES_MAX);
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        let (said, begun) = sync_channel(1);
        let (alive, running) = sync_channel(0);
        std::thread::Builder::new()
            .name("tidegate-log".into())
            .spawn(move || {
                let begun = thread_start(ProxyThread::Log);
                let failed = begun.is_err();
                // The thread that spawned this one waits for it.
                said.send(begun).unwrap_or_default();
                if !failed {
                    run(output, &receiver, &theirs);
                }
                drop(alive);
            })?;
        begun.recv().unwrap_or(Ok(()))?;
        Ok(Self {
            path: match target {
                LogTarget::Stdout => None,
                LogTarget::File(path) => Some(path.clone()),
            },
            sender: Some(sender),
            shared,
            running: Mutex::new(running),
        })
    }

    /// A worker's way in.
    pub(crate) fn sender(&self) -> Option<SyncSender<Batch>> {
        self.sender.clone()
    }

    /// What opens the file anew.
    pub(crate) fn reopener(&self) -> LogReopener {
        let path = self.path.clone();
        LogReopener(path.map(|path| (path, Arc::clone(&self.shared))))
    }

    /// Waits until all is written; says whether it was within this time. All senders must be gone by then. A thread
    /// that still waits for a reader or a disk is left alone: it ends with the process.
    pub(crate) fn end(&mut self, patience: Duration) -> bool {
        self.sender = None;
        let running = self.running.get_mut();
        let ended = running
            .unwrap_or_else(PoisonError::into_inner)
            .recv_timeout(patience);
        ended != Err(RecvTimeoutError::Timeout)
    }

    /// Batches that could not be written.
    pub(crate) fn errors(&self) -> u64 {
        self.shared.errors.load(Ordering::Relaxed)
    }
}

fn run(mut output: Output, receiver: &Receiver<Batch>, shared: &Shared) {
    for batch in receiver {
        let mut next = shared.next.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = next.take() {
            output = Output::File(file);
        }
        drop(next);
        // A full disk must not stop traffic: the error is counted, the next batch tries again.
        if output.write(&batch.bytes).is_err() {
            shared.errors.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // It was waited for already.
        if self.sender.is_some() && !self.end(END_PATIENCE) {
            self.shared.errors.fetch_add(1, Ordering::Relaxed);
        }
    }
}
