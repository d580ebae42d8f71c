//! The subagent's socket: finds its `snmpd`, answers it, and comes back after one that has ended.

use std::io;
use std::time::Duration;

use tidegate_node::report::agentx::{HEADER_BYTES, Header, Session, Step};
use tidegate_node::report::mib::{Snapshot, trap};
use tidegate_remote::clock;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{sleep, timeout};

use super::SharedLoad;
use crate::config::AgentxMaster;
use crate::output::Output;

/// For a connection, an answer to what begins the session, or to a ping.
const PATIENCE: Duration = Duration::from_secs(10);
/// A silent master is asked whether it is there.
const PING_AFTER: Duration = Duration::from_secs(15);
/// Between two tries; after each it is twice as long.
const PAUSE_FIRST: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(15);

/// See the module.
#[derive(Debug)]
pub(super) struct Subagent {
    master: AgentxMaster,
    node: String,
    load: SharedLoad,
}

impl Subagent {
    pub(super) fn new(master: AgentxMaster, node: String, load: SharedLoad) -> Self {
        Self { master, node, load }
    }

    /// Runs until the task is dropped. What changes is said once.
    pub(super) async fn run(self, output: Output) {
        let mut pause = PAUSE_FIRST;
        let mut said = String::new();
        loop {
            let begun = clock::now();
            let mut registered = false;
            let why = match self.connected(&mut registered, output).await {
                Ok(why) => why,
                Err(error) => error.to_string(),
            };
            // One that ends at once each time is not tried the more often.
            if registered && clock::now().since(begun) > PAUSE_MAX {
                pause = PAUSE_FIRST;
                said.clear();
            }
            if why != said {
                let master = &self.master;
                output.event(
                    "agentx",
                    &format!("no values for the snmpd at {master}: {why}; it is tried again"),
                );
                said = why;
            }
            sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    async fn connected(&self, registered: &mut bool, output: Output) -> io::Result<String> {
        match &self.master {
            AgentxMaster::Path(path) => {
                let stream = in_time(UnixStream::connect(path)).await?;
                self.converse(stream, registered, output).await
            }
            AgentxMaster::Address(address) => {
                let stream = in_time(TcpStream::connect(address)).await?;
                self.converse(stream, registered, output).await
            }
        }
    }

    /// A session from its beginning to its end, and why it ended.
    async fn converse<S>(
        &self,
        mut stream: S,
        registered: &mut bool,
        output: Output,
    ) -> io::Result<String>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let description = format!("Tidegate agent of {}", self.node);
        let (mut session, open) = Session::open(&description);
        in_time(stream.write_all(&open)).await?;
        let mut crossing = self.load.crossing.subscribe();
        loop {
            let wait = if *registered { PING_AFTER } else { PATIENCE };
            let mut head = [0; HEADER_BYTES];
            // One byte first: a header that came in part would be lost to what else happens.
            tokio::select! {
                read = stream.read_exact(&mut head[..1]) => { read?; }
                Ok(()) = crossing.changed(), if *registered => {
                    let crossed = crossing.borrow_and_update().is_some();
                    let bytes = session.notify(&trap(crossed), &self.values().of_trap());
                    in_time(stream.write_all(&bytes)).await?;
                    continue;
                }
                () = sleep(wait) => {
                    if !*registered {
                        return Ok("it does not answer".into());
                    }
                    in_time(stream.write_all(&session.ping())).await?;
                    in_time(stream.read_exact(&mut head[..1])).await?;
                }
            }
            in_time(stream.read_exact(&mut head[1..])).await?;
            let header = Header::parse(&head).map_err(garbled)?;
            let mut payload = vec![0; header.length];
            in_time(stream.read_exact(&mut payload)).await?;
            let step = session.on_pdu(&header, &payload, || self.values());
            match step.map_err(garbled)? {
                Step::Say(bytes) => in_time(stream.write_all(&bytes)).await?,
                Step::Registered => {
                    *registered = true;
                    // What was crossed before has no trap yet that this snmpd could have passed on.
                    if crossing.borrow().is_some() {
                        crossing.mark_changed();
                    }
                    let text = format!("registered with the snmpd at {}", self.master);
                    output.event("agentx", &text);
                }
                Step::Nothing => {}
                Step::Ended(why) => return Ok(why),
            }
        }
    }

    fn values(&self) -> Snapshot {
        let load = self.load.lock();
        let crossing = self.load.crossing.borrow().map(|it| it.to_string());
        Snapshot::of(&self.node, &load.own, &load.cpus, crossing.as_deref())
    }
}

async fn in_time<T>(done: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let slow = |_| io::Error::new(io::ErrorKind::TimedOut, "it does not answer");
    timeout(PATIENCE, done).await.map_err(slow)?
}

fn garbled(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
