//! The thread that writes the access log. It alone waits for the disk.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use crate::config::{LogTarget, ProxyThread};

/// Batches that wait for the writer, of all workers together.
pub(super) const BATCHES_MAX: usize = 64;

/// Lines of one worker, ready to be written.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) bytes: Vec<u8>,
    pub(crate) lines: u64,
}

/// The writer thread's handle. Dropping it waits until all is written; all senders must be gone
/// by then.
#[derive(Debug)]
pub(crate) struct Writer {
    thread: Option<JoinHandle<()>>,
    sender: Option<SyncSender<Batch>>,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    reopen: AtomicBool,
    errors: AtomicU64,
}

enum Output {
    Stdout(io::Stdout),
    File { file: File, path: PathBuf },
}

impl Output {
    fn open(target: &LogTarget) -> io::Result<Self> {
        match target {
            LogTarget::Stdout => Ok(Self::Stdout(io::stdout())),
            LogTarget::File(path) => Ok(Self::File {
                file: append(path)?,
                path: path.clone(),
            }),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Stdout(stdout) => {
                stdout.write_all(bytes)?;
                stdout.flush()
            }
            Self::File { file, .. } => file.write_all(bytes),
        }
    }

    fn reopen(&mut self) -> io::Result<()> {
        match self {
            Self::Stdout(_) => {}
            Self::File { file, path } => *file = append(path)?,
        }
        Ok(())
    }
}

fn append(path: &PathBuf) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
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
        let thread = std::thread::Builder::new()
            .name("tidegate-log".into())
            .spawn(move || {
                let begun = thread_start(ProxyThread::Log);
                let failed = begun.is_err();
                // The thread that spawned this one waits for it.
                said.send(begun).unwrap_or_default();
                if !failed {
                    run(output, &receiver, &theirs);
                }
            })?;
        begun.recv().unwrap_or(Ok(()))?;
        Ok(Self {
            thread: Some(thread),
            sender: Some(sender),
            shared,
        })
    }

    /// A worker's way in.
    pub(crate) fn sender(&self) -> Option<SyncSender<Batch>> {
        self.sender.clone()
    }

    /// Opens the file anew before the next batch: it was renamed by a log rotation.
    pub(crate) fn reopen(&self) {
        self.shared.reopen.store(true, Ordering::Release);
    }

    /// Batches that could not be written.
    pub(crate) fn errors(&self) -> u64 {
        self.shared.errors.load(Ordering::Relaxed)
    }
}

fn run(mut output: Output, receiver: &Receiver<Batch>, shared: &Shared) {
    for batch in receiver {
        let reopened = if shared.reopen.swap(false, Ordering::AcqRel) {
            output.reopen()
        } else {
            Ok(())
        };
        // A full disk must not stop traffic: the error is counted, the next batch tries again.
        if reopened.and_then(|()| output.write(&batch.bytes)).is_err() {
            shared.errors.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.sender = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            self.shared.errors.fetch_add(1, Ordering::Relaxed);
        }
    }
}
