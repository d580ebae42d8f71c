//! Tunnels through a front-end: clients that switch protocols as for WebSocket, and an echo behind them.
//!
//! ```text
//! client ── GET, Upgrade: websocket ──> front-end ──> echo
//!        <───────── 101 ─────────────
//!        ── 64 bytes, back, ECHOES times, one each PACE ──
//!        ── end of file, back ──
//! ```
//!
//! A tunnel is broken if it is not begun, or if an echo or the end does not come back. What it does not know: what the
//! front-end goes through meanwhile.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use tidegate_core::time::Timestamp;
use tidegate_remote::clock;

use crate::cluster::Place;

use super::super::ExperimentError;
use super::service::{Service, head};

/// Echoes of one tunnel.
const ECHOES: usize = 20;
/// Between two of them.
const PACE: Duration = Duration::from_millis(50);
/// What is sent each time.
const MESSAGE: [u8; 64] = [b'x'; 64];
/// Longest wait for anything.
const WAIT: Duration = Duration::from_secs(5);
/// How the answer that begins a tunnel begins.
const SWITCHED: &str = "HTTP/1.1 101 ";
/// The key of all clients, and its answer: the example of RFC 6455 §1.3.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";
/// A client that was refused rests so long.
const REST: Duration = Duration::from_millis(50);

/// What came of the tunnels of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Tunnels {
    /// Those that went as wanted.
    pub(super) whole: u64,
    /// The others, by what went wrong.
    pub(super) broken: BTreeMap<String, u64>,
}

impl Tunnels {
    /// All that went wrong.
    pub(super) fn broken(&self) -> u64 {
        self.broken.values().sum()
    }
}

/// A server at this place that begins a tunnel at each request and sends back what comes.
pub(super) fn start_echo(place: &Place) -> Result<Service, ExperimentError> {
    Service::start(place, place.address(), echo)
}

fn echo(mut stream: TcpStream) -> io::Result<()> {
    let head = head(&mut stream)?;
    if !head.to_ascii_lowercase().contains("upgrade: websocket") {
        // The lab asks whether the front-end proxies.
        return stream
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    }
    let answer = format!(
        "{SWITCHED}Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Accept: {ACCEPT}\r\n\r\n"
    );
    stream.write_all(answer.as_bytes())?;
    let mut bytes = [0; MESSAGE.len()];
    loop {
        match stream.read(&mut bytes)? {
            0 => return stream.shutdown(Shutdown::Write),
            length => stream.write_all(&bytes[..length])?,
        }
    }
}

/// So many clients, each with one tunnel after the other until the end.
pub(super) fn run(clients: usize, to: SocketAddr, host: &str, end: Timestamp) -> Tunnels {
    let client = || {
        let mut seen = Tunnels::default();
        while clock::now() < end {
            match tunnel(to, host) {
                Ok(()) => seen.whole += 1,
                Err(why) => {
                    *seen.broken.entry(why).or_default() += 1;
                    clock::sleep_until(clock::now() + REST);
                }
            }
        }
        seen
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..clients).map(|_| scope.spawn(client)).collect();
        let mut all = Tunnels::default();
        for thread in threads {
            match thread.join() {
                Ok(seen) => all.add(seen),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        all
    })
}

impl Tunnels {
    fn add(&mut self, other: Self) {
        self.whole += other.whole;
        for (why, count) in other.broken {
            *self.broken.entry(why).or_default() += count;
        }
    }
}

/// One tunnel; what went wrong.
fn tunnel(to: SocketAddr, host: &str) -> Result<(), String> {
    let at = |step: &'static str| move |error: io::Error| format!("{step}: {}", error.kind());
    let mut stream = TcpStream::connect_timeout(&to, WAIT).map_err(at("connect"))?;
    stream.set_read_timeout(Some(WAIT)).map_err(at("connect"))?;
    stream.set_nodelay(true).map_err(at("connect"))?;
    let request = format!(
        "GET /tunnel HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).map_err(at("begin"))?;
    let head = head(&mut stream).map_err(at("begin"))?;
    if !head.starts_with(SWITCHED) {
        return Err(format!(
            "begin: {}",
            head.lines().next().unwrap_or_default()
        ));
    }
    let begun = clock::now();
    for number in 0..ECHOES {
        clock::sleep_until(begun + PACE * number as u32);
        let mut back = [0; MESSAGE.len()];
        stream.write_all(&MESSAGE).map_err(at("echo"))?;
        stream.read_exact(&mut back).map_err(at("echo"))?;
        if back != MESSAGE {
            return Err("echo: other bytes".into());
        }
    }
    stream.shutdown(Shutdown::Write).map_err(at("end"))?;
    let mut rest = [0];
    match stream.read(&mut rest).map_err(at("end"))? {
        0 => Ok(()),
        _ => Err("end: more bytes".into()),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_tunnel_is_whole_through_an_echo_and_broken_by_anything_else() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            echo(stream).unwrap();
            let (mut stream, _) = listener.accept().unwrap();
            head(&mut stream).unwrap();
            stream.write_all(b"HTTP/1.1 503 Busy\r\n\r\n").unwrap();
            let (mut stream, _) = listener.accept().unwrap();
            head(&mut stream).unwrap();
            stream.write_all(b"HTTP/1.1 101 Yes\r\n\r\n").unwrap();
        });
        assert_eq!(tunnel(address, "x"), Ok(()));
        assert_eq!(tunnel(address, "x"), Err("begin: HTTP/1.1 503 Busy".into()));
        let broken = tunnel(address, "x").unwrap_err();
        assert!(broken.starts_with("echo: "), "{broken}");
        server.join().unwrap();
        let refused = tunnel(address, "x").unwrap_err();
        assert_eq!(refused, "connect: connection refused");
    }
}
