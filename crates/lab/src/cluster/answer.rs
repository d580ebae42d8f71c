//! Waiting until a server or an agent answers, as a front-end would ask it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use tidegate_core::load::Rung;
use tidegate_core::record::AGGREGATE_LINES;
use tidegate_remote::udp::{UdpOptions, UdpRegion};
use tidegate_remote::{Region, clock};

use super::{ClusterError, KeyAt, Place, Process};

/// How long a server or an agent may take: many share a CPU of which each has a tenth.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long one attempt may take.
const ATTEMPT: Duration = Duration::from_secs(2);
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(5);
/// How long to wait for one answer of an agent, and how often to ask at once.
const READ: UdpOptions = UdpOptions {
    wait: Duration::from_millis(100),
    tries: 1,
};

/// Waits until the server answers this path with 200, asked from this place.
pub(super) fn of_server(
    from: &Place,
    address: SocketAddr,
    path: &str,
    process: &mut Process,
) -> Result<(), ClusterError> {
    until(from, address, process, || get(address, path))
}

/// Waits until the agent gives a load record, asked from this place. A record of another rung
/// than these is an answer that is never good enough.
pub(super) fn of_agent(
    from: &Place,
    address: SocketAddr,
    key: &KeyAt,
    rungs: &[&str],
    process: &mut Process,
) -> Result<(), ClusterError> {
    let read = || -> Result<(), String> {
        let mut region =
            UdpRegion::connect(address, key.read()?, READ).map_err(|error| error.to_string())?;
        let read = region
            .read(AGGREGATE_LINES)
            .map_err(|error| error.to_string())?;
        let record = read.record().map_err(|error| error.to_string())?;
        let rung = Rung::from_number(record.rung).label();
        match rungs.contains(&rung) {
            true => Ok(()),
            false => Err(format!(
                "it is on rung {rung}, not on {}",
                rungs.join(" or ")
            )),
        }
    };
    until(from, address, process, read)
}

/// Waits until an attempt from this place succeeds, or the process has ended.
pub(super) fn until(
    from: &Place,
    address: SocketAddr,
    process: &mut Process,
    attempt: impl Fn() -> Result<(), String> + Send + Sync,
) -> Result<(), ClusterError> {
    from.inside(|| {
        let start = clock::now();
        loop {
            let Err(why) = attempt() else {
                return Ok(());
            };
            let waited = clock::now().since(start);
            let ended = process.ended();
            if ended.is_some() || waited > PATIENCE {
                return Err(ClusterError::Silent {
                    what: process.name().to_owned(),
                    address,
                    waited,
                    why: ended.map_or(why, |status| format!("it ended with {status}")),
                    told: process.told(),
                });
            }
            clock::sleep_until(clock::now() + PAUSE);
        }
    })?
}

/// Asks a server for a path once, from this place, and wants 200.
pub(super) fn to(from: &Place, address: SocketAddr, path: &str) -> Result<(), ClusterError> {
    let asked = from.inside(|| get(address, path))?;
    asked.map_err(|why| ClusterError::Missing(format!("{path} at {address}: {why}")))
}

/// One request.
fn get(address: SocketAddr, path: &str) -> Result<(), String> {
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&address, ATTEMPT)?;
        stream.set_read_timeout(Some(ATTEMPT))?;
        let head = format!("GET {path} HTTP/1.1\r\nhost: node\r\nconnection: close\r\n\r\n");
        stream.write_all(head.as_bytes())?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    };
    let answer = ask().map_err(|error| error.to_string())?;
    let line = answer.lines().next().unwrap_or_default();
    if line.split(' ').nth(1) == Some("200") {
        Ok(())
    } else {
        Err(format!("it answers `{line}`"))
    }
}
