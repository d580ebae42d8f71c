//! A child that is never forgotten: killed with everything that it has started, and waited for.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use super::{ClusterError, ending, run};

/// How much of what it says is kept, bytes: the last lines tell why it ended.
const KEPT: usize = 8 << 10;
/// Bytes that are read at once.
const CHUNK: usize = 1 << 10;

/// See the module. It is a process group of its own, so that a Ctrl-C on the terminal reaches
/// the lab alone, which then ends everything in order.
///
/// Commands of a `Place` die with the **thread** that started them: start what shall live on
/// from a thread that lives as long.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    group: Option<Pid>,
    told: Arc<Mutex<Vec<u8>>>,
}

impl Process {
    /// Starts it, with nothing on its standard input.
    pub fn start(name: impl Into<String>, command: &mut Command) -> Result<Self, ClusterError> {
        let _passage = ending::pass();
        let command_text = run::text(command);
        let child = command
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut child = child.map_err(|source| ClusterError::Start {
            command: command_text,
            source,
        })?;
        let told = Arc::new(Mutex::new(Vec::new()));
        if let Some(stdout) = child.stdout.take() {
            listen(stdout, Arc::clone(&told))?;
        }
        if let Some(stderr) = child.stderr.take() {
            listen(stderr, Arc::clone(&told))?;
        }
        Ok(Self {
            name: name.into(),
            group: i32::try_from(child.id()).ok().and_then(Pid::from_raw),
            child,
            told,
        })
    }

    /// Its name, for messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        // An error would mean that it is no child of ours.
        self.child.try_wait().ok().flatten()
    }

    /// The end of what it has written, both streams.
    pub fn told(&self) -> String {
        let told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&told).trim().to_owned()
    }

    /// Sends the signal to it and to all that it has started.
    pub fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            // Those that have ended need no signal.
            kill_process_group(group, signal).ok();
        }
    }

    /// Asks it to end, and kills it once its time is over.
    pub fn end(&mut self, patience: Duration) {
        let Some(group) = self.group else { return };
        self.signal(Signal::TERM);
        if let Ok(ended) = pidfd_open(group, PidfdFlags::empty()) {
            let mut ends = [PollFd::new(&ended, PollFlags::IN)];
            let patience = Timespec {
                tv_sec: i64::try_from(patience.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: patience.subsec_nanos().into(),
            };
            // Whatever comes of it, it is killed now.
            poll(&mut ends, Some(&patience)).ok();
        }
        self.kill();
    }

    /// Kills and waits. Twice is as good as once.
    pub fn kill(&mut self) {
        self.signal(Signal::KILL);
        // It was killed and it is our child: waiting ends and cannot fail.
        self.child.wait().ok();
        self.group = None;
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Keeps the end of what comes. The thread ends when the other end is closed everywhere.
fn listen(
    mut from: impl Read + Send + 'static,
    told: Arc<Mutex<Vec<u8>>>,
) -> Result<(), ClusterError> {
    let thread = std::thread::Builder::new().name("lab-listen".into());
    let spawned = thread.spawn(move || {
        let mut chunk = [0; CHUNK];
        while let Ok(length @ 1..) = from.read(&mut chunk) {
            let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
            told.extend_from_slice(&chunk[..length]);
            let excess = told.len().saturating_sub(KEPT);
            told.drain(..excess);
        }
    });
    spawned.map(drop).map_err(|source| ClusterError::Start {
        command: "a thread".into(),
        source,
    })
}
