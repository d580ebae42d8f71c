//! The thread that writes what was learned, and what it says of its trouble.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use super::super::front_end::{EventLog, KeptFile};
use super::EVENT;

/// Time between two tries to have the folder, while another front-end has it.
const FOLDER_EVERY: Duration = Duration::from_millis(250);
/// Longest wait for the last write at the end.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// The thread that writes. Dropping it waits for what is under way, though not for ever.
#[derive(Debug)]
pub(super) struct Writer {
    pub(super) path: PathBuf,
    /// None once it is to end.
    jobs: Option<SyncSender<Vec<u8>>>,
    /// Closed when the thread has ended.
    pub(super) ended: Receiver<()>,
    log: Arc<dyn EventLog>,
}

impl Writer {
    pub(super) fn start(file: Box<dyn KeptFile>, trouble: Trouble, log: Arc<dyn EventLog>) -> Self {
        // One is written, one waits.
        let (jobs, waiting) = sync_channel(1);
        let (ending, ended) = sync_channel::<()>(1);
        let writer = Self {
            path: file.path().to_owned(),
            jobs: Some(jobs),
            ended,
            log: Arc::clone(&log),
        };
        let thread = std::thread::Builder::new().name("state".into());
        let own_log = Arc::clone(&log);
        let write = move || {
            write_all(file, &waiting, trouble, &*own_log);
            drop(ending);
        };
        if let Err(error) = thread.spawn(write) {
            let path = writer.path.display();
            let text = format!("{path} is not written: no thread for it: {error}");
            log.event(EVENT, &text);
        }
        writer
    }

    /// Has this written; false if there is no room for it to wait.
    pub(super) fn write(&self, bytes: Vec<u8>) -> bool {
        let jobs = self.jobs.as_ref();
        jobs.is_some_and(|jobs| jobs.try_send(bytes).is_ok())
    }

    /// Nothing more will be written: once what waits is, the folder is free for the next front-end.
    pub(super) fn finish(&mut self) {
        self.jobs = None;
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.jobs = None;
        if self.ended.recv_timeout(END_TIMEOUT) == Err(RecvTimeoutError::Timeout) {
            let path = self.path.display();
            let text = format!("{path}: the last write has not ended and is not waited for");
            self.log.event(EVENT, &text);
        }
    }
}

/// Writes what comes until there is no more to come, and then gives the folder up. While it is another front-end's it is
/// asked for again and again: the successor of one that ends has it from then on.
fn write_all(
    mut file: Box<dyn KeptFile>,
    waiting: &Receiver<Vec<u8>>,
    mut trouble: Trouble,
    log: &dyn EventLog,
) {
    loop {
        let next = match file.has_folder() {
            true => waiting.recv().map_err(|_| RecvTimeoutError::Disconnected),
            false => waiting.recv_timeout(FOLDER_EVERY),
        };
        let had_folder = file.has_folder();
        let done = match next {
            Ok(bytes) => file.write(&bytes),
            Err(RecvTimeoutError::Timeout) => file.take_folder(),
            Err(RecvTimeoutError::Disconnected) => return,
        };
        let is_taken = file.has_folder() && !had_folder;
        if let Some(text) = trouble.news(&*file, done, is_taken) {
            log.event(EVENT, &text);
        }
    }
}

/// Why nothing can be written, as far as that was said: once when it begins, when it changes and when it ends.
#[derive(Debug, Default)]
pub(super) struct Trouble(Option<String>);

impl Trouble {
    /// What keeps this front-end from the folder at its start.
    pub(super) fn of_start(file: &mut dyn KeptFile, log: &dyn EventLog) -> Self {
        let mut trouble = Self::default();
        let taken = file.take_folder();
        if let Some(text) = trouble.news(file, taken, false) {
            log.event(EVENT, &text);
        }
        trouble
    }

    /// What is to be said.
    pub(super) fn news(
        &mut self,
        file: &dyn KeptFile,
        done: Result<(), String>,
        is_taken: bool,
    ) -> Option<String> {
        let before = std::mem::replace(&mut self.0, done.err());
        match (&before, &self.0) {
            (before, Some(why)) if before.as_ref() != Some(why) => Some(format!(
                "{why}; until that changes, what is learned of requests is not kept over a restart"
            )),
            (Some(_), None) if is_taken => Some(format!(
                "this front-end has taken over {}: what is learned of requests is kept there from now on",
                file.folder().display()
            )),
            (Some(_), None) => Some(format!("{}: written again", file.path().display())),
            _ => None,
        }
    }
}
