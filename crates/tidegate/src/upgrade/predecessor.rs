//! This process's side: starts the successor, gives it the sockets and waits until it serves.

use std::fs::File;
use std::io::{self, ErrorKind, Seek as _, Write as _};
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::{Child, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use rustix::fs::{MemfdFlags, memfd_create};
use tidegate_proxy::ListenerSockets;
use tokio::sync::oneshot;

use super::channel::{Channel, FILES_MAX, Offered, Role, Word};
use super::program::Program;
use super::sockets::VARIABLES;
use super::successor::{VARIABLE, VERSION};
use crate::learned::{Given, Pending};
use crate::output::Output;

/// How long a successor may take until it serves.
const READY_WITHIN: Duration = Duration::from_secs(30);
/// How long one that is not wanted may take to end by itself.
const END_WITHIN: Duration = Duration::from_secs(2);
/// Between two looks whether it has.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// What a successor is given.
#[derive(Debug)]
pub(crate) struct Offer {
    /// Sockets for clients.
    pub(crate) listeners: Vec<ListenerSockets>,
    /// The socket for operators.
    pub(crate) admin: ListenerSockets,
    /// What was learned.
    pub(crate) learned: Pending,
    /// Hand-overs before this one.
    pub(crate) upgrades: u64,
    /// Where it is said what cannot be handed over.
    pub(crate) output: Output,
}

/// A successor that serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Successor {
    /// Its process.
    pub(crate) process: u32,
    /// Where it accepts with sockets of ours.
    pub(crate) taken_over: Vec<SocketAddr>,
}

/// Whether this process goes on.
#[derive(Debug, Default)]
struct Decision(AtomicU8);

impl Decision {
    const OPEN: u8 = 0;
    const GIVEN: u8 = 1;
    const KEPT: u8 = 2;

    /// Decides, if that was not done before.
    fn take(&self, decision: u8) -> bool {
        let (done, read) = (Ordering::AcqRel, Ordering::Acquire);
        let taken = (self.0).compare_exchange(Self::OPEN, decision, done, read);
        taken.is_ok()
    }

    fn is_kept(&self) -> bool {
        self.0.load(Ordering::Acquire) == Self::KEPT
    }
}

/// A hand-over that is under way on a thread of its own.
#[derive(Debug)]
pub(super) struct HandOver {
    decision: Arc<Decision>,
    /// The channel of the thread.
    channel: Channel,
    ended: oneshot::Receiver<Result<Successor, String>>,
}

impl HandOver {
    /// Begins.
    pub(super) fn begin(program: Program, offer: Offer) -> io::Result<Self> {
        let decision = Arc::<Decision>::default();
        let (end, ended) = oneshot::channel();
        let shared = Arc::clone(&decision);
        let (channel, theirs) = Channel::pair()?;
        let own = channel.try_clone()?;
        std::thread::Builder::new()
            .name("upgrade".into())
            .spawn(move || {
                // The process may end meanwhile.
                end.send(hand_over(&program, own, theirs, offer, &shared))
                    .ok();
            })?;
        Ok(Self {
            decision,
            channel,
            ended,
        })
    }

    /// The successor, or why there is none.
    pub(super) async fn ended(&mut self) -> Result<Successor, String> {
        let ended = (&mut self.ended).await;
        ended.unwrap_or_else(|_| Err("the hand-over failed: see the log".into()))
    }

    /// This process ends without a successor, unless one has everything already. The thread soon ends.
    pub(super) fn withdraw(&self) {
        if self.decision.take(Decision::KEPT) {
            self.channel.stop_listening();
        }
    }
}

fn hand_over(
    program: &Program,
    channel: Channel,
    end: OwnedFd,
    offer: Offer,
    decision: &Decision,
) -> Result<Successor, String> {
    let cannot = |error: io::Error| format!("cannot start {}: {error}", program.path().display());
    let mut command = program.command();
    for variable in VARIABLES {
        command.env_remove(variable);
    }
    command.env(VARIABLE, "1").stdin(Stdio::from(end));
    let mut child = command.spawn().map_err(cannot)?;
    // It holds a copy of the other end, whose closing is to be noticed.
    drop(command);
    match converse(&channel, offer, READY_WITHIN, decision) {
        Ok(taken_over) => Ok(Successor {
            process: child.id(),
            taken_over,
        }),
        Err(why) => {
            let why = match decision.is_kept() {
                true => Unready::Withdrawn,
                false => why,
            };
            // One that has ended does not hear it.
            channel.send(&Word::Withdrawn, &[]).unwrap_or_default();
            drop(channel);
            let status = end_of(&mut child);
            Err(why.said(status))
        }
    }
}

/// Why a successor did not come up.
#[derive(Debug)]
enum Unready {
    /// It said so.
    Said(String),
    /// It has closed its end without a word.
    Silent,
    /// It took too long.
    Late,
    /// This process is asked to end meanwhile.
    Withdrawn,
    /// It cannot be spoken with.
    Broken(io::Error),
}

impl Unready {
    fn said(self, status: io::Result<ExitStatus>) -> String {
        match (self, status) {
            (Self::Said(why), _) => format!("the new process did not start: {why}"),
            (Self::Silent, Ok(status)) => {
                format!("the new process ended before it was ready: {status}")
            }
            (Self::Silent, Err(error)) => {
                format!("the new process ended before it was ready: {error}")
            }
            (Self::Late, _) => format!(
                "the new process was not ready within {} s, and was ended",
                READY_WITHIN.as_secs()
            ),
            (Self::Withdrawn, _) => "this process was asked to stop meanwhile".into(),
            (Self::Broken(error), _) => format!("no word with the new process: {error}"),
        }
    }
}

impl From<io::Error> for Unready {
    fn from(error: io::Error) -> Self {
        let is_one_of = |kinds: [ErrorKind; 2]| kinds.contains(&error.kind());
        if is_one_of([ErrorKind::WouldBlock, ErrorKind::TimedOut]) {
            return Self::Late;
        }
        if is_one_of([ErrorKind::BrokenPipe, ErrorKind::ConnectionReset]) {
            return Self::Silent;
        }
        Self::Broken(error)
    }
}

/// Until the successor has everything; the addresses of ours that it accepts at.
fn converse(
    channel: &Channel,
    offer: Offer,
    patience: Duration,
    decision: &Decision,
) -> Result<Vec<SocketAddr>, Unready> {
    channel.wait_at_most(patience)?;
    give(channel, offer)?;
    let taken_over = match channel.receive()?.map(|it| it.word) {
        Some(Word::Ready(taken_over)) => taken_over,
        Some(Word::Failed(why)) => return Err(Unready::Said(why)),
        Some(other) => {
            let text = format!("not understood: {other:?}");
            return Err(Unready::Broken(io::Error::other(text)));
        }
        None => return Err(Unready::Silent),
    };
    if !decision.take(Decision::GIVEN) {
        return Err(Unready::Withdrawn);
    }
    channel.send(&Word::Yours, &[])?;
    Ok(taken_over)
}

/// Sends all that is offered.
fn give(channel: &Channel, offer: Offer) -> Result<(), Unready> {
    let Offer {
        listeners,
        admin,
        learned,
        upgrades,
        output,
    } = offer;
    let listeners = listeners.into_iter().map(|it| (Role::Listener, it));
    for (role, listener) in listeners.chain([(Role::Admin, admin)]) {
        let offered = Offered {
            role: Some(role),
            configured: listener.configured,
            address: listener.address,
        };
        for sockets in listener.sockets.chunks(FILES_MAX) {
            let files: Vec<_> = sockets.iter().map(|it| it.as_fd()).collect();
            send(channel, &Word::Sockets(vec![offered; files.len()]), &files)?;
        }
    }
    // The sockets are what matters; without the rest it is learned anew.
    let learned = learned.wait(output).and_then(|given| {
        let Given { learned, costs } = given;
        let files = file_of(learned).and_then(|it| Ok((it, costs.map(file_of).transpose()?)));
        files.map_err(|error| error.to_string())
    });
    let learned = learned.inspect_err(|why| {
        let text = format!("nothing that was learned or set by operators is handed over: {why}");
        output.event("learned", &text);
    });
    let (learned, costs) = learned.ok().unzip();
    let costs = costs.flatten();
    let whole = Word::Whole {
        version: VERSION,
        upgrades,
        learned: learned.is_some(),
        costs: costs.is_some(),
    };
    let files: Vec<_> = learned.iter().chain(&costs).map(|it| it.as_fd()).collect();
    send(channel, &whole, &files)
}

/// Sends; a successor that does not listen any more may have said why.
fn send(
    channel: &Channel,
    word: &Word,
    files: &[std::os::fd::BorrowedFd<'_>],
) -> Result<(), Unready> {
    match channel.send(word, files) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => match channel.receive()? {
            Some(received) => {
                if let Word::Failed(why) = received.word {
                    return Err(Unready::Said(why));
                }
                let text = format!("{:?}", received.word);
                Err(Unready::Broken(io::Error::other(text)))
            }
            None => Err(Unready::Silent),
        },
        sent => Ok(sent?),
    }
}

/// A file in memory with these bytes.
fn file_of(bytes: Vec<u8>) -> io::Result<OwnedFd> {
    let file = memfd_create("tidegate-learned", MemfdFlags::CLOEXEC)?;
    let mut file = File::from(file);
    file.write_all(&bytes)?;
    file.rewind()?;
    Ok(file.into())
}

/// Waits for a process to end by itself, but not for long.
fn end_of(child: &mut Child) -> io::Result<ExitStatus> {
    let mut waited = Duration::ZERO;
    while waited < END_WITHIN {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        std::thread::sleep(LOOK_AGAIN);
        waited += LOOK_AGAIN;
    }
    child.kill()?;
    child.wait()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    fn offer() -> Offer {
        let listens = || {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            ListenerSockets {
                configured: address,
                address,
                sockets: vec![listener.into()],
            }
        };
        Offer {
            listeners: vec![listens()],
            admin: listens(),
            learned: Pending::default(),
            upgrades: 0,
            output: Output::QUIET,
        }
    }

    /// What comes of a successor that answers so to all that it is given.
    fn with(
        patience: Duration,
        decision: &Decision,
        answer: Option<&Word>,
    ) -> Result<Vec<SocketAddr>, Unready> {
        let (ours, theirs) = Channel::pair().unwrap();
        let theirs = Channel::of(theirs);
        if let Some(answer) = answer {
            theirs.send(answer, &[]).unwrap();
        }
        converse(&ours, offer(), patience, decision)
    }

    #[test]
    fn only_a_successor_that_is_ready_has_everything() {
        let open = Decision::default();
        let address = "127.0.0.1:80".parse().unwrap();
        let ready = Word::Ready(vec![address]);
        assert_eq!(with(PATIENCE, &open, Some(&ready)).unwrap(), [address]);
        assert!(!open.take(Decision::KEPT), "it is given");
        let failed = Word::Failed("why".into());
        let said = with(PATIENCE, &Decision::default(), Some(&failed));
        assert!(matches!(said, Err(Unready::Said(why)) if why == "why"));
        let late = with(Duration::from_millis(1), &Decision::default(), None);
        assert!(matches!(late, Err(Unready::Late)), "{late:?}");
        let strange = with(PATIENCE, &Decision::default(), Some(&Word::Yours));
        assert!(matches!(strange, Err(Unready::Broken(_))), "{strange:?}");
    }

    #[test]
    fn a_process_that_is_to_end_gives_nothing_away() {
        let kept = Decision::default();
        assert!(kept.take(Decision::KEPT));
        let ready = Word::Ready(Vec::new());
        let withdrawn = with(PATIENCE, &kept, Some(&ready));
        assert!(
            matches!(withdrawn, Err(Unready::Withdrawn)),
            "{withdrawn:?}"
        );
    }

    #[test]
    fn a_successor_that_has_gone_is_told_from_one_that_is_late() {
        let (ours, theirs) = Channel::pair().unwrap();
        drop(theirs);
        let gone = converse(&ours, offer(), PATIENCE, &Decision::default());
        assert!(matches!(gone, Err(Unready::Silent)), "{gone:?}");
    }
}
