//! Clients that mean harm, in a process of its own (`tidegate-lab attack`): each scene is a known way to keep a front-end from its work.
//!
//! | scene | what it does |
//! |---|---|
//! | `slow-head` | many connections, each with a head that gets one field a second and never ends |
//! | `slow-body` | many uploads that send one byte a second |
//! | `slow-read` | many downloads, read 256 bytes a second |
//! | `large-heads` | many requests a second, each with a head of 256 KiB |
//! | `flood` | many requests a second that cost the servers as much as anybody's, a connection each, from one address |
//! | `idle` | more connections than a front-end has room for, which say nothing |
//!
//! Whatever is cut off comes back. Connections begin spread over the first second. The result is what became of them, as JSON.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use tidegate_core::time::Timestamp;
use tidegate_remote::clock;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::LocalSet;

use super::client::raise_files;

/// Longest wait for a connection, and for an answer where one is waited for.
const PATIENCE: Duration = Duration::from_secs(2);
/// Before a connection that was cut off is made anew.
const REST: Duration = Duration::from_millis(200);
/// Between two steps of what is slow.
const STEP: Duration = Duration::from_secs(1);
/// Connections begin within this time.
const SPREAD: Duration = Duration::from_secs(1);
/// Bytes that are read at a step.
const SIP: usize = 256;
/// Receive buffer of what is read slowly, and the bytes that it asks for.
const RECEIVE_BUFFER: u32 = 4096;
const DOWNLOAD: u32 = 1 << 20;
/// Fields of a large head, and the length of each.
const FIELDS: usize = 1024;
const FIELD_BYTES: usize = 256;

/// A way to do harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "kebab-case")]
pub enum Scene {
    /// Heads that never end.
    SlowHead,
    /// Uploads that never end.
    SlowBody,
    /// Downloads that are hardly read.
    SlowRead,
    /// Heads beyond all limits.
    LargeHeads,
    /// More requests than the servers can answer.
    Flood,
    /// Connections that say nothing.
    Idle,
}

/// How much of it.
enum Amount {
    /// Connections at once.
    Held(u32),
    /// Connections a second.
    Rate(u32),
}

impl Scene {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::SlowHead,
        Self::SlowBody,
        Self::SlowRead,
        Self::LargeHeads,
        Self::Flood,
        Self::Idle,
    ];

    /// Its name.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::SlowHead => "slow-head",
            Self::SlowBody => "slow-body",
            Self::SlowRead => "slow-read",
            Self::LargeHeads => "large-heads",
            Self::Flood => "flood",
            Self::Idle => "idle",
        }
    }

    const fn amount(self) -> Amount {
        match self {
            Self::SlowHead => Amount::Held(2000),
            Self::SlowBody | Self::SlowRead => Amount::Held(1000),
            Self::Idle => Amount::Held(8000),
            Self::LargeHeads => Amount::Rate(200),
            Self::Flood => Amount::Rate(600),
        }
    }
}

/// Options of the hidden `tidegate-lab attack`.
#[derive(Clone, Debug, Args)]
pub struct AttackArgs {
    /// What is done.
    #[arg(long, value_enum)]
    pub scene: Scene,
    /// To which front-end.
    #[arg(long, value_name = "ADDRESS")]
    pub target: SocketAddr,
    /// For how long.
    #[arg(long, value_name = "SECONDS")]
    pub seconds: f64,
}

/// What became of the connections.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attacked {
    /// Made.
    pub connected: u64,
    /// That could not be made.
    pub unconnected: u64,
    /// Ended by the front-end without an answer.
    pub cut: u64,
    /// Answered, by status.
    pub answered: BTreeMap<u16, u64>,
}

/// Does it, and says what became of it on standard output.
///
/// # Errors
/// If there is no runtime, or nothing can be written.
pub fn attack(args: &AttackArgs, output: impl io::Write) -> io::Result<()> {
    raise_files();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let attacker = Rc::new(Attacker {
        scene: args.scene,
        target: args.target,
        seen: RefCell::default(),
        end: clock::now() + Duration::from_secs_f64(args.seconds.clamp(0.0, 3600.0)),
    });
    let local = LocalSet::new();
    local.block_on(&runtime, Rc::clone(&attacker).run());
    drop(local); // with all connections
    let seen = attacker.seen.borrow();
    serde_json::to_writer(output, &*seen).map_err(io::Error::from)
}

struct Attacker {
    scene: Scene,
    target: SocketAddr,
    seen: RefCell<Attacked>,
    end: Timestamp,
}

/// How a connection ended.
enum AttackEnd {
    Cut,
    Answered(u16),
}

impl Attacker {
    async fn run(self: Rc<Self>) {
        match self.scene.amount() {
            Amount::Held(count) => {
                for number in 0..count {
                    let wait = SPREAD * number / count;
                    let attacker = Rc::clone(&self);
                    tokio::task::spawn_local(async move {
                        tokio::time::sleep(wait).await;
                        loop {
                            attacker.once().await;
                            tokio::time::sleep(REST).await;
                        }
                    });
                }
                tokio::time::sleep(self.left()).await;
            }
            Amount::Rate(rate) => {
                let mut turns = tokio::time::interval(Duration::from_secs(1) / rate);
                while !self.left().is_zero() {
                    turns.tick().await;
                    let attacker = Rc::clone(&self);
                    tokio::task::spawn_local(async move { attacker.once().await });
                }
            }
        }
    }

    fn left(&self) -> Duration {
        self.end.since(clock::now())
    }

    /// One connection from its beginning to its end.
    async fn once(&self) {
        let connected = tokio::time::timeout(PATIENCE, self.connect()).await;
        let Ok(Ok(stream)) = connected else {
            self.seen.borrow_mut().unconnected += 1;
            return;
        };
        self.seen.borrow_mut().connected += 1;
        let ended = match self.act(stream).await {
            Ok(ended) => ended,
            // A reset.
            Err(_) => AttackEnd::Cut,
        };
        let mut seen = self.seen.borrow_mut();
        match ended {
            AttackEnd::Cut => seen.cut += 1,
            AttackEnd::Answered(status) => *seen.answered.entry(status).or_default() += 1,
        }
    }

    async fn connect(&self) -> io::Result<TcpStream> {
        let socket = match self.target {
            SocketAddr::V4(_) => TcpSocket::new_v4()?,
            SocketAddr::V6(_) => TcpSocket::new_v6()?,
        };
        if self.scene == Scene::SlowRead {
            socket.set_recv_buffer_size(RECEIVE_BUFFER)?;
        }
        socket.connect(self.target).await
    }

    async fn act(&self, mut stream: TcpStream) -> io::Result<AttackEnd> {
        match self.scene {
            Scene::Idle => answer(&mut stream).await,
            Scene::SlowHead => {
                stream
                    .write_all(b"GET /work HTTP/1.1\r\nHost: site\r\n")
                    .await?;
                drip(&mut stream, b"X-More: 1\r\n").await
            }
            Scene::SlowBody => {
                stream
                    .write_all(
                        b"POST /work HTTP/1.1\r\nHost: site\r\nContent-Length: 1000000\r\n\r\n",
                    )
                    .await?;
                drip(&mut stream, b"x").await
            }
            Scene::SlowRead => {
                let head = format!("GET /work?bytes={DOWNLOAD} HTTP/1.1\r\nHost: site\r\n\r\n");
                stream.write_all(head.as_bytes()).await?;
                sip(&mut stream).await
            }
            Scene::LargeHeads => {
                // What is refused half-way is answered all the same.
                send_large_head(&mut stream).await.ok();
                in_time(&mut stream).await
            }
            Scene::Flood => {
                stream
                    .write_all(
                        b"GET /work?cpu=2ms&bytes=1024 HTTP/1.1\r\nHost: site\r\nConnection: close\r\n\r\n",
                    )
                    .await?;
                in_time(&mut stream).await
            }
        }
    }
}

/// Sends this at each step until the other side answers or ends.
async fn drip(stream: &mut TcpStream, drop: &[u8]) -> io::Result<AttackEnd> {
    let (mut read, mut write) = stream.split();
    let mut first = [0; 16];
    loop {
        tokio::select! {
            read = read.read(&mut first) => return Ok(ended(&first[..read?])),
            () = tokio::time::sleep(STEP) => write.write_all(drop).await?,
        }
    }
}

/// Reads a little at each step until the other side ends.
async fn sip(stream: &mut TcpStream) -> io::Result<AttackEnd> {
    let mut sip = [0; SIP];
    let mut status = None;
    loop {
        tokio::time::sleep(STEP).await;
        match stream.read(&mut sip).await? {
            0 => return Ok(status.map_or(AttackEnd::Cut, AttackEnd::Answered)),
            read => status = status.or(status_of(&sip[..read])),
        }
    }
}

async fn send_large_head(stream: &mut TcpStream) -> io::Result<()> {
    stream
        .write_all(b"GET /work HTTP/1.1\r\nHost: site\r\n")
        .await?;
    let value = "x".repeat(FIELD_BYTES);
    for number in 0..FIELDS {
        let field = format!("X-{number}: {value}\r\n");
        stream.write_all(field.as_bytes()).await?;
    }
    stream.write_all(b"\r\n").await
}

/// The answer, or [`AttackEnd::Cut`] if it is late.
async fn in_time(stream: &mut TcpStream) -> io::Result<AttackEnd> {
    let answer = tokio::time::timeout(PATIENCE, answer(stream)).await;
    answer.unwrap_or(Ok(AttackEnd::Cut))
}

/// The status of what comes first.
async fn answer(stream: &mut TcpStream) -> io::Result<AttackEnd> {
    let mut first = [0; 16];
    let read = stream.read(&mut first).await?;
    Ok(ended(&first[..read]))
}

fn ended(first: &[u8]) -> AttackEnd {
    status_of(first).map_or(AttackEnd::Cut, AttackEnd::Answered)
}

/// Of `HTTP/1.1 408 …`.
fn status_of(first: &[u8]) -> Option<u16> {
    let text = std::str::from_utf8(first).ok()?;
    let rest = text.strip_prefix("HTTP/1.")?.get(2..5)?;
    rest.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_status_is_read_of_the_first_bytes() {
        assert_eq!(status_of(b"HTTP/1.1 408 Req"), Some(408));
        assert_eq!(status_of(b"HTTP/1.1 "), None);
        assert_eq!(status_of(b"\x16\x03\x01"), None);
    }

    /// What a scene gets of a server that answers this to whatever comes first, and ends.
    fn against(scene: Scene, answer: &'static [u8]) -> Attacked {
        use std::io::{Read, Write};
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                std::thread::spawn(move || {
                    // The other side may have gone.
                    let read = stream.read(&mut [0; 1 << 16]);
                    read.and_then(|_| stream.write_all(answer)).ok();
                });
            }
        });
        let mut said = Vec::new();
        let args = AttackArgs {
            scene,
            target,
            seconds: 0.5,
        };
        attack(&args, &mut said).unwrap();
        serde_json::from_slice(&said).unwrap()
    }

    #[test]
    fn what_is_answered_and_what_is_cut_is_counted() {
        let seen = against(Scene::Flood, b"HTTP/1.1 429 Too Many\r\n\r\n");
        assert!(seen.answered[&429] > 0 && seen.connected > 0, "{seen:?}");
        let seen = against(Scene::SlowBody, b"");
        assert!(seen.cut > 0 && seen.answered.is_empty(), "{seen:?}");
    }
}
