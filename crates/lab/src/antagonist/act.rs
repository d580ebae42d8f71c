//! Antagonists of one process: each spell takes what it is to take and gives it back.

use std::hint::black_box;
use std::io;
use std::net::{SocketAddr, TcpStream};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tidegate_core::prng::Prng;
use tidegate_core::time::Timestamp;
use tidegate_remote::clock;

use super::{Antagonist, AntagonistError};

/// Numbers drawn between two looks at the clock: some microseconds.
const DRAWS: u32 = 2000;
/// Memory is written to once in so many bytes, the smallest page there is.
const PAGE_BYTES: usize = 4096;

/// Until the process is killed. Ping-pong is another one's business.
pub(super) fn run(
    antagonist: &Antagonist,
    server: Option<SocketAddr>,
) -> Result<(), AntagonistError> {
    let start = clock::now();
    if let Antagonist::Files { .. } = antagonist {
        let limit = getrlimit(Resource::Nofile);
        let raised = Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        };
        setrlimit(Resource::Nofile, raised)
            .map_err(|error| AntagonistError::io("raise the limit of files")(error.into()))?;
    }
    // All threads follow the same spells on the same clock: none needs to tell another.
    for _ in 1..antagonist.runnable() {
        let antagonist = antagonist.clone();
        let thread = std::thread::Builder::new().name("antagonist".into());
        let spawned = thread.spawn(move || follow(&antagonist, server, start));
        spawned.map_err(AntagonistError::io("start a thread"))?;
    }
    follow(antagonist, server, start)
}

fn follow(
    antagonist: &Antagonist,
    server: Option<SocketAddr>,
    start: Timestamp,
) -> Result<(), AntagonistError> {
    let mut until = start;
    for spell in antagonist.spells() {
        until = until + spell.length;
        if !spell.on {
            clock::sleep_until(until);
            continue;
        }
        match *antagonist {
            Antagonist::Hogs { .. }
            | Antagonist::Alternators { .. }
            | Antagonist::Bursty { .. } => burn(until),
            Antagonist::Memory { bytes, .. } => {
                let held = take(usize::try_from(bytes).unwrap_or(usize::MAX));
                clock::sleep_until(until);
                drop(held);
            }
            Antagonist::Files { files, .. } => {
                let server = server.ok_or_else(no_server)?;
                let connect = |_| TcpStream::connect(server);
                let held: Result<Vec<_>, _> = (0..files).map(connect).collect();
                let held = held.map_err(AntagonistError::io("connect to the server once more"))?;
                clock::sleep_until(until);
                drop(held);
            }
            Antagonist::PingPong { .. } => {}
        }
    }
    Ok(())
}

/// Wants CPU until then.
fn burn(until: Timestamp) {
    let mut prng = Prng::new(1);
    while clock::now() < until {
        for _ in 0..DRAWS {
            black_box(prng.bits());
        }
    }
}

fn no_server() -> AntagonistError {
    let none = io::Error::new(io::ErrorKind::InvalidInput, "it was not said where");
    AntagonistError::io("find the server")(none)
}

/// Memory that the kernel has really given.
fn take(bytes: usize) -> Vec<u8> {
    let mut memory = vec![0; bytes];
    for byte in memory.iter_mut().step_by(PAGE_BYTES) {
        *byte = 1;
    }
    black_box(memory)
}
