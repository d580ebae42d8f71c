//! The thread that writes the access log. It alone waits for the disk.
//!
//! Lines that a file refuses, as a full disk does, are lost: they are counted as dropped, and the next batch tries again. A line
//! that was begun ends before the next one, so that none is joined to what is left of another.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd as _;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tidegate_core::time::Timestamp;
use tokio::sync::watch;

use super::file::append;
use super::journal::{Entry, Journal, Priority};
use crate::config::{LogTarget, ProxyThread};
use crate::record::stats::Stats;

/// Longest wait for what is still to be written, where no other time is set for it.
const END_PATIENCE: Duration = Duration::from_secs(5);
/// A log that rests closes after so long without a line.
const CLOSES_AFTER: Duration = Duration::from_secs(1);
/// Trouble is over once lines were written and none was lost for so long.
const CALM: Duration = Duration::from_secs(2);
/// Longest wait of a line for the journal. Meanwhile batches wait, and are dropped when they are too many.
const JOURNAL_PATIENCE: Duration = Duration::from_secs(1);
/// What lines in the journal are found by: `journalctl -t tidegate-access`.
const JOURNAL_IDENTIFIER: &str = "tidegate-access";
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

/// How the writing goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogHealth {
    /// Times at which lines began to be lost.
    pub troubles: u64,
    /// Why they are lost; none if they are written.
    pub failing: Option<String>,
    /// Lines that were lost in the trouble that is or was last.
    pub lost: u64,
}

#[derive(Debug, Default)]
struct Shared {
    target: Mutex<Target>,
    health: watch::Sender<LogHealth>,
}

/// Where lines are to go.
#[derive(Debug, Default)]
struct Target {
    /// It by name.
    name: LogTarget,
    /// What the next batch goes to, if that is another than the last one went to.
    next: Option<Output>,
    /// No request has a line any more that begins now.
    rests: bool,
}

impl Shared {
    fn target(&self) -> MutexGuard<'_, Target> {
        self.target.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes what is open, if the log rests; whether it does.
    fn close(&self, open: &mut Option<Output>) -> bool {
        let mut target = self.target();
        if target.rests {
            target.next = None;
            *open = None;
        }
        target.rests
    }

    /// What the next batch goes to. A file that was closed is opened again.
    fn follow<'a>(&self, open: &'a mut Option<Output>) -> io::Result<&'a mut Output> {
        let mut target = self.target();
        let next = target.next.take();
        let name = target.name.clone();
        // The lock is not held while the disk is waited for.
        drop(target);
        *open = match next.or(open.take()) {
            Some(output) => Some(output),
            None => Some(Output::open(&name)?),
        };
        open.as_mut().ok_or_else(|| ErrorKind::NotFound.into())
    }
}

/// What is open.
#[derive(Debug)]
enum Output {
    File(OpenFile),
    Journal(Journal),
}

/// A file, and whether its last line has no end.
#[derive(Debug)]
struct OpenFile {
    file: File,
    is_mid_line: bool,
}

/// Why lines were lost, and how many.
#[derive(Debug)]
struct Lost {
    why: io::Error,
    lines: u64,
}

impl Output {
    fn open(target: &LogTarget) -> io::Result<Self> {
        let file = match target {
            // As written as a file is: without a buffer that keeps what was refused.
            LogTarget::Stdout => File::from(io::stdout().as_fd().try_clone_to_owned()?),
            LogTarget::File(path) => append(path)?,
            LogTarget::Journal(path) => {
                return Ok(Self::Journal(Journal::open(path, JOURNAL_PATIENCE)?));
            }
        };
        Ok(Self::File(OpenFile::of(file)))
    }

    fn write(&mut self, batch: &Batch) -> Result<(), Lost> {
        match self {
            Self::File(file) => file.write(batch),
            Self::Journal(journal) => enter(journal, batch),
        }
    }
}

/// Makes an entry of each line. Behind one that was not taken in time the rest is not tried.
fn enter(journal: &Journal, batch: &Batch) -> Result<(), Lost> {
    let lines = batch.bytes.split_inclusive(|it| *it == b'\n');
    for (done, line) in (0..).zip(lines) {
        journal.send(&entry(line)).map_err(|why| Lost {
            why,
            lines: batch.lines.saturating_sub(done),
        })?;
    }
    Ok(())
}

/// A line as an entry. The fields of one that is an object are fields of the entry, too.
fn entry(line: &[u8]) -> Entry {
    let line = String::from_utf8_lossy(line);
    let line = line.trim_end_matches('\n');
    let mut entry = Entry::new(JOURNAL_IDENTIFIER, Priority::Info, line);
    if let Ok(Value::Object(fields)) = serde_json::from_str(line) {
        for (name, value) in &fields {
            match value {
                Value::Null => {}
                Value::String(text) => entry.field(name, text),
                Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
                    entry.field(name, &value.to_string());
                }
            }
        }
    }
    entry
}

impl OpenFile {
    fn of(file: File) -> Self {
        Self {
            file,
            is_mid_line: false,
        }
    }

    fn write(&mut self, batch: &Batch) -> Result<(), Lost> {
        if self.is_mid_line {
            let lines = batch.lines;
            self.write_all(b"\n")
                .map_err(|(why, _)| Lost { why, lines })?;
        }
        self.write_all(&batch.bytes).map_err(|(why, written)| {
            let rest = &batch.bytes[written..];
            let lines = rest.iter().filter(|it| **it == b'\n').count() as u64;
            Lost { why, lines }
        })
    }

    /// Writes all, or says how much was.
    fn write_all(&mut self, bytes: &[u8]) -> Result<(), (io::Error, usize)> {
        let mut written = 0;
        let why = loop {
            if written == bytes.len() {
                self.is_mid_line = false;
                return Ok(());
            }
            match self.file.write(&bytes[written..]) {
                Ok(0) => break ErrorKind::WriteZero.into(),
                Ok(more) => written += more,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => break error,
            }
        };
        if let Some(last) = bytes[..written].last() {
            self.is_mid_line = *last != b'\n';
        }
        Err((why, written))
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
            name: target.clone(),
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
        let target = Some(shared.target()).filter(|it| !it.rests);
        let name = target.map(|it| it.name.clone());
        let Some(LogTarget::File(path)) = &name else {
            return Ok(());
        };
        let file = append(path)?;
        let mut target = shared.target();
        // Lines may go elsewhere by now.
        if Some(&target.name) == name.as_ref() {
            target.next = Some(Output::File(OpenFile::of(file)));
        }
        Ok(())
    }
}

impl Writer {
    /// Opens the log and starts the thread.
    pub(crate) fn start(
        target: &LogTarget,
        thread_start: fn(ProxyThread) -> io::Result<()>,
        stats: Arc<Stats>,
        clock: fn() -> Timestamp,
    ) -> io::Result<Self> {
        let OpenedLog(target) = OpenedLog::open(target)?;
        let (sender, receiver) = sync_channel(BATCHES_MAX);
        let shared = Arc::new(Shared {
            target: Mutex::new(target),
            health: watch::Sender::default(),
        });
        let work = Work {
            shared: Arc::clone(&shared),
            stats,
            clock,
            lost_at: None,
        };
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
                    work.run(&receiver);
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

    /// How the writing goes, as that changes.
    pub(crate) fn health(&self) -> watch::Receiver<LogHealth> {
        self.shared.health.subscribe()
    }
}

/// The thread's.
struct Work {
    shared: Arc<Shared>,
    stats: Arc<Stats>,
    clock: fn() -> Timestamp,
    /// When lines were lost last, in a trouble that is not over.
    lost_at: Option<Timestamp>,
}

impl Work {
    fn run(mut self, receiver: &Receiver<Batch>) {
        let mut open = None;
        loop {
            let batch = match receiver.recv_timeout(CLOSES_AFTER) {
                Ok(batch) => batch,
                Err(RecvTimeoutError::Timeout) => {
                    if self.shared.close(&mut open) {
                        self.over();
                    }
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => return,
            };
            // A full disk must not stop traffic.
            let lines = batch.lines;
            let output = self.shared.follow(&mut open);
            let output = output.map_err(|why| Lost { why, lines });
            match output.and_then(|it| it.write(&batch)) {
                Ok(()) => self.written(lines),
                Err(lost) => {
                    self.lost(&lost);
                    self.count(lines.saturating_sub(lost.lines));
                }
            }
        }
    }

    /// What is said of lines is there before they are counted.
    fn lost(&mut self, lost: &Lost) {
        let begins = self.lost_at.replace((self.clock)()).is_none();
        let why = lost.why.to_string();
        self.shared.health.send_if_modified(|it| {
            if begins {
                it.troubles += 1;
                it.lost = 0;
            }
            it.lost += lost.lines;
            it.failing.replace(why).is_none()
        });
        self.stats.log_lost.fetch_add(lost.lines, Ordering::Relaxed);
    }

    fn written(&mut self, lines: u64) {
        let now = (self.clock)();
        if self.lost_at.is_some_and(|at| now.since(at) >= CALM) {
            self.over();
        }
        self.count(lines);
    }

    fn count(&self, lines: u64) {
        self.stats.log_written.fetch_add(lines, Ordering::Relaxed);
    }

    fn over(&mut self) {
        if self.lost_at.take().is_some() {
            self.shared.health.send_modify(|it| it.failing = None);
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if self.sender.is_some() {
            // What is not written by then is left alone, as by a drain.
            self.end(END_PATIENCE);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixDatagram;

    use super::*;

    fn batch(lines: &[String]) -> Batch {
        Batch {
            bytes: lines.concat().into_bytes(),
            lines: lines.len() as u64,
        }
    }

    /// A pipe takes so much and no more, as a disk does.
    #[test]
    fn lines_that_are_not_whole_are_lost_and_what_follows_is_not_joined_to_them() {
        let (mut reader, pipe) = io::pipe().unwrap();
        rustix::io::ioctl_fionbio(&pipe, true).unwrap();
        let mut output = OpenFile::of(File::from(OwnedFd::from(pipe)));
        let lines: Vec<_> = (0..30_000).map(|number| format!("{number:09}\n")).collect();
        let lost = output.write(&batch(&lines)).unwrap_err();
        assert_eq!(lost.why.kind(), ErrorKind::WouldBlock);
        let none = output.write(&batch(&["late\n".into()])).unwrap_err();
        assert_eq!(none.lines, 1);
        let mut taken = vec![0; 1 << 20];
        let length = reader.read(&mut taken).unwrap();
        let next = ["next\n".to_owned(), "last\n".into()];
        output.write(&batch(&next)).unwrap();
        drop(output);
        let mut rest = String::new();
        reader.read_to_string(&mut rest).unwrap();
        let text = String::from_utf8(taken[..length].to_vec()).unwrap() + &rest;
        let found: Vec<_> = text.split_inclusive('\n').collect();
        let whole = lines
            .iter()
            .zip(&found)
            .take_while(|(one, other)| one == other);
        let whole = whole.count();
        assert_eq!(whole as u64 + lost.lines, lines.len() as u64);
        // What is left of a line may be nothing, if the pipe's size fell on an end.
        let rest = &found[whole..];
        assert!(
            rest.len() <= 3 && rest.ends_with(&["next\n", "last\n"]),
            "{rest:?}"
        );
    }

    /// A client whose path or header has lines that look like fields: they stay inside of their value.
    #[test]
    fn values_with_ends_of_lines_forge_no_field_of_an_entry() {
        let path = std::env::temp_dir().join(format!("tidegate-forged-{}", std::process::id()));
        std::fs::remove_file(&path).ok();
        let taken = UnixDatagram::bind(&path).unwrap();
        let mut output = Output::open(&LogTarget::Journal(path.clone())).unwrap();
        let line = r#"{"path":"/a\nPRIORITY=0\n_UID=0","own\nMESSAGE=x":1}"#;
        output.write(&batch(&[format!("{line}\n")])).unwrap();
        let mut wanted = format!("MESSAGE={line}\nPRIORITY=6\nSYSLOG_IDENTIFIER=tidegate-access\n");
        wanted.push_str("TIDEGATE_OWN_MESSAGE_X=1\nTIDEGATE_PATH\n");
        wanted.push_str("\x14\0\0\0\0\0\0\0/a\nPRIORITY=0\n_UID=0\n");
        let mut bytes = [0; 4096];
        let length = taken.recv(&mut bytes).unwrap();
        let found = std::str::from_utf8(&bytes[..length]).unwrap();
        assert_eq!(found, wanted);
        std::fs::remove_file(path).unwrap();
    }
}
