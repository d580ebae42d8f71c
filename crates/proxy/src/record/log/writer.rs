//! The thread that writes the access log. It alone waits for the disk.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::file::append;
use crate::config::{LogTarget, ProxyThread};

/// Longest wait for what is still to be written, where no other time is set for it.
const END_PATIENCE: Duration = Duration::from_secs(5);
/// A log that rests closes after so long without a line.
const CLOSES_AFTER: Duration = Duration::from_secs(1);
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
    sender: Option<SyncSender<Batch>>,
    shared: Arc<Shared>,
    /// Closed once the thread has ended. The mutex makes the writer shareable.
    running: Mutex<Receiver<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    target: Mutex<Target>,
    errors: AtomicU64,
}

/// Where lines are to go.
#[derive(Debug, Default)]
struct Target {
    /// The file, if it is one.
    path: Option<PathBuf>,
    /// What the next batch goes to, if that is another than the last one went to.
    next: Option<Output>,
    /// No request has a line any more that begins now.
    rests: bool,
}

impl Shared {
    fn target(&self) -> MutexGuard<'_, Target> {
        self.target.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes what is open, if the log rests.
    fn close(&self, open: &mut Option<Output>) {
        let mut target = self.target();
        if target.rests {
            target.next = None;
            *open = None;
        }
    }

    /// What the next batch goes to. A file that was closed is opened again.
    fn follow<'a>(&self, open: &'a mut Option<Output>) -> io::Result<&'a mut Output> {
        let mut target = self.target();
        let next = target.next.take();
        let path = target.path.clone();
        // The lock is not held while the disk is waited for.
        drop(target);
        *open = match next.or(open.take()) {
            Some(output) => Some(output),
            None => Some(Output::open(
                &path.map_or(LogTarget::Stdout, LogTarget::File),
            )?),
        };
        open.as_mut().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

#[derive(Debug)]
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

/// A log that is open, and not written to yet.
#[derive(Debug)]
pub struct OpenedLog(Target);

impl OpenedLog {
    /// Opens it, from any thread that may wait for the disk.
    ///
    /// # Errors
    /// It cannot be opened, or is refused.
    pub fn open(target: &LogTarget) -> io::Result<Self> {
        Ok(Self(Target {
            path: match target {
                LogTarget::Stdout => None,
                LogTarget::File(path) => Some(path.clone()),
            },
            next: Some(Output::open(target)?),
            rests: false,
        }))
    }
}

/// Changes where the log's lines go, from any thread that may wait for the disk.
#[derive(Clone, Debug, Default)]
pub struct LogReopener(Option<Arc<Shared>>);

impl LogReopener {
    /// The next lines go there.
    pub fn switch(&self, log: OpenedLog) {
        if let Some(shared) = &self.0 {
            *shared.target() = log.0;
        }
    }

    /// Nothing more is logged, but of requests that have begun with a line. The file closes behind their last one for now,
    /// and is opened for each that comes later.
    pub fn rest(&self) {
        if let Some(shared) = &self.0 {
            shared.target().rests = true;
        }
    }

    /// The next lines go to what has the file's name by now: it was renamed by a log rotation. Without a file nothing
    /// is to be done.
    ///
    /// # Errors
    /// It cannot be opened, or is refused. Lines go on into the file that is open.
    pub fn reopen(&self) -> io::Result<()> {
        let Some(shared) = &self.0 else {
            return Ok(());
        };
        let path = Some(shared.target()).filter(|it| !it.rests);
        let Some(path) = path.and_then(|it| it.path.clone()) else {
            return Ok(());
        };
        let file = append(&path)?;
        let mut target = shared.target();
        // Lines may go elsewhere by now.
        if target.path.as_deref() == Some(&path) {
            target.next = Some(Output::File(file));
        }
        Ok(())
    }
}

impl Writer {
    /// Opens the log and starts the thread.
    pub(crate) fn start(
        target: &LogTarget,
        thread_start: fn(ProxyThread) -> io::Result<()>,
    ) -> io::Result<Self> {
        let OpenedLog(target) = OpenedLog::open(target)?;
        let (sender, receiver) = sync_channel(BATCHES_MAX);
        let shared = Arc::new(Shared {
            target: Mutex::new(target),
            errors: AtomicU64::new(0),
        });
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
                    run(&receiver, &theirs);
                }
                drop(alive);
            })?;
        begun.recv().unwrap_or(Ok(()))?;
        Ok(Self {
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
        LogReopener(Some(Arc::clone(&self.shared)))
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

fn run(receiver: &Receiver<Batch>, shared: &Shared) {
    let mut open = None;
    loop {
        let batch = match receiver.recv_timeout(CLOSES_AFTER) {
            Ok(batch) => batch,
            Err(RecvTimeoutError::Timeout) => {
                shared.close(&mut open);
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => return,
        };
        // A full disk must not stop traffic: the error is counted, the next batch tries again.
        let output = shared.follow(&mut open);
        if output.and_then(|it| it.write(&batch.bytes)).is_err() {
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
