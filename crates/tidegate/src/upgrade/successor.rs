//! The new process's side: what it is given, and the word that it serves.
//!
//! Its end of the channel is its standard input, which is nothing else's from then on.

use std::fs::File;
use std::io::{self, Read as _};
use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::net::{SocketType, sockopt};
use tidegate_core::load::LoadTable;
use tidegate_core::time::Timestamp;
use tidegate_core::topology::NodeId;
use tokio::sync::oneshot;

use super::channel::{Channel, Word};
use super::desk::NoChange;
use super::sockets::GivenSockets;
use crate::failure::Failure;
use crate::output::Output;

/// Says to a process that its standard input is the channel.
pub(super) const VARIABLE: &str = "TIDEGATE_UPGRADE";
/// Of the words on the channel.
pub(super) const VERSION: u32 = 1;
/// How long the former process may take to give what it has.
const GIVEN_WITHIN: Duration = Duration::from_secs(10);
/// Most of what was learned, bytes.
const LEARNED_BYTES_MAX: u64 = 64 << 20;
/// How long the first loads of all nodes are waited for.
const LOADS_WITHIN: Duration = Duration::from_millis(250);
/// Between two looks at them.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// The end of the channel, from the start on until the former process has said its last word.
static PREDECESSOR: Mutex<Option<Channel>> = Mutex::new(None);

fn predecessor() -> MutexGuard<'static, Option<Channel>> {
    PREDECESSOR.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes the channel, where there is one. To be called before anything else.
pub(crate) fn attend() {
    if std::env::var_os(VARIABLE).is_none() {
        return;
    }
    let input = io::stdin();
    let is_channel = sockopt::socket_type(&input).is_ok_and(|it| it == SocketType::SEQPACKET);
    let Some(end) = is_channel.then(|| input.as_fd().try_clone_to_owned()) else {
        return;
    };
    // Without a file to spare nothing can start; the former process sees this one end.
    let Ok(end) = end else { return };
    *predecessor() = Some(Channel::of(end));
    let nothing = File::open("/dev/null").map(rustix::stdio::dup2_stdin);
    // A copy that stays open in standard input closes with the process, later than it might.
    drop(nothing);
}

/// Says to the former process, if there is one, why this one does not serve.
pub(crate) fn fail(why: &str) {
    if let Some(channel) = predecessor().take() {
        // It may have gone; what is to be said stands in the log.
        let word = Word::Failed(why.to_owned());
        channel.send(&word, &[]).unwrap_or_default();
    }
}

/// What a process is given at its start.
#[derive(Debug, Default)]
pub(crate) struct Given {
    /// Listening sockets.
    pub(crate) sockets: GivenSockets,
    /// What the former process learned, or why that cannot be read.
    pub(crate) learned: Option<Result<Vec<u8>, String>>,
    /// What it knows of requests, likewise.
    pub(crate) costs: Option<Result<Vec<u8>, String>>,
    /// Hand-overs so far, this one included.
    pub(crate) upgrades: u64,
    /// Whether there is a former process.
    pub(crate) is_successor: bool,
}

impl Given {
    /// What this process is given, by the one that it succeeds or by the service manager.
    pub(crate) fn receive() -> Result<Self, Failure> {
        match &*predecessor() {
            Some(channel) => Self::of_predecessor(channel).map_err(Failure::Failed),
            None => Ok(Self {
                sockets: GivenSockets::of_service_manager().map_err(Failure::Failed)?,
                ..Self::default()
            }),
        }
    }

    fn of_predecessor(channel: &Channel) -> Result<Self, String> {
        let broken = |error: io::Error| format!("no word with the former process: {error}");
        channel.wait_at_most(GIVEN_WITHIN).map_err(broken)?;
        let mut given = Self {
            is_successor: true,
            ..Self::default()
        };
        loop {
            let received = channel.receive().map_err(broken)?;
            let received = received.ok_or("the former process has ended")?;
            match received.word {
                Word::Sockets(offered) => {
                    for (offered, socket) in offered.into_iter().zip(received.files) {
                        given.sockets.add(offered, socket);
                    }
                }
                Word::Whole {
                    version: VERSION,
                    upgrades,
                    learned,
                    costs,
                } => {
                    given.upgrades = upgrades + 1;
                    let mut files = received.files.into_iter();
                    let mut next = || files.next().map(|file| contents(file.into()));
                    given.learned = learned.then(&mut next).flatten();
                    given.costs = costs.then(next).flatten();
                    return Ok(given);
                }
                other @ (Word::Whole { .. }
                | Word::Ready(_)
                | Word::Failed(_)
                | Word::Yours
                | Word::Withdrawn) => {
                    return Err(format!("the former process is of another kind: {other:?}"));
                }
            }
        }
    }
}

/// What is in a file that was given. Whatever that is, it does not stop a hand-over.
fn contents(file: File) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let read = file.take(LEARNED_BYTES_MAX).read_to_end(&mut bytes);
    read.map(|_| bytes).map_err(|error| error.to_string())
}

/// Waits for a first load of each node that is read, but not for long: what decides on requests shall know something.
pub(crate) fn wait_for_loads(table: &LoadTable, read: u32, clock: fn() -> Timestamp) {
    let began = clock();
    loop {
        let now = clock();
        let known =
            (0..table.nodes()).filter(|node| table.fresh(NodeId(*node as u32), now).is_some());
        if known.count() >= read as usize || now.since(began) >= LOADS_WITHIN {
            return;
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// What stands between a process that serves and being on its own.
#[derive(Debug, Default)]
pub(crate) struct Succession {
    verdict: Option<oneshot::Receiver<bool>>,
}

impl Succession {
    /// Says to the former process, if there is one, that this one serves with its sockets at these addresses.
    /// Until that one has said its last word there is no change.
    pub(crate) fn ready(
        taken_over: Vec<SocketAddr>,
        no_change: Option<NoChange>,
        output: Output,
    ) -> Result<Self, Failure> {
        let Some(channel) = predecessor().take() else {
            return Ok(Self::default());
        };
        let (tell, verdict) = oneshot::channel();
        let thread = std::thread::Builder::new().name("succession".into());
        let thread = thread.spawn(move || {
            let is_ours = is_ours(&channel, taken_over, output);
            match (is_ours, no_change) {
                (false, Some(no_change)) => no_change.forever(),
                (_, no_change) => drop(no_change),
            }
            // The one that waits may have ended.
            tell.send(is_ours).ok();
        });
        thread.map_err(|error| Failure::Failed(format!("cannot start: {error}")))?;
        Ok(Self {
            verdict: Some(verdict),
        })
    }

    /// Whether the former process may still go on.
    pub(crate) fn is_open(&self) -> bool {
        self.verdict.is_some()
    }

    /// Returns once the former process has said that it goes on, and this one is to end.
    pub(crate) async fn withdrawn(&mut self) {
        if let Some(verdict) = &mut self.verdict {
            // A thread that ends without a word has panicked: this process goes on.
            let is_ours = verdict.await.unwrap_or(true);
            self.verdict = None;
            if !is_ours {
                return;
            }
        }
        std::future::pending().await
    }
}

fn is_ours(channel: &Channel, taken_over: Vec<SocketAddr>, output: Output) -> bool {
    // A former process that has gone or decided otherwise has left its last word.
    channel
        .send(&Word::Ready(taken_over), &[])
        .unwrap_or_default();
    channel.wait().unwrap_or_default();
    match channel.receive().map(|received| received.map(|it| it.word)) {
        Ok(Some(Word::Withdrawn)) => false,
        Ok(Some(Word::Yours)) => {
            output.event(
                "succeeded",
                "the former process drains: this one is on its own",
            );
            true
        }
        Ok(_) | Err(_) => {
            output.event(
                "succeeded",
                "the former process has ended: this one is on its own",
            );
            true
        }
    }
}
