//! Other people's clients, for what the generator does not speak: TLS, HTTP/2, gRPC.
//!
//! * `h2load` (nghttp2): clients in a closed loop that keep their connections.
//! * `openssl s_time`: one connection after the other, each with a handshake, whole or resumed, one request and one answer.
//!
//! Failure case: what they say of themselves is all that is known; an answer that is not 2xx is an error here. `h2load` 1.52 does not end
//! now and then with large answers over TLS, whatever answers, and is ended then.

use std::ffi::OsStr;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use crate::cluster::Place;

/// What they are called, in messages and for `scripts/setup.sh`.
pub const H2LOAD: &str = "h2load";
/// See above.
pub const OPENSSL: &str = "openssl";
/// So long after its time `h2load` is ended: to connect and to get the last answers takes a second.
const PATIENCE: Duration = Duration::from_secs(20);
/// The status of `timeout` if it has ended a program.
const HUNG: i32 = 124;

/// A run of `h2load`.
#[derive(Clone, Debug)]
pub struct H2load<'a> {
    /// `https://10.77.0.1:8443/work?bytes=1024`.
    pub url: String,
    /// Whether HTTP/1.1 is spoken instead of HTTP/2.
    pub http1: bool,
    /// Connections.
    pub clients: u32,
    /// Requests under way on each.
    pub streams: u32,
    /// How long.
    pub length: Duration,
    /// Requests a second of each client; none: as fast as it goes.
    pub rate: Option<f64>,
    /// Headers of each request.
    pub headers: &'a [&'a str],
    /// The file with the body of each request.
    pub body: Option<&'a OsStr>,
}

impl H2load<'_> {
    /// Its command.
    #[must_use]
    pub fn command(&self, place: &Place) -> Command {
        let mut command = place.command(H2LOAD);
        self.add_to(&mut command);
        command
    }

    fn add_to(&self, command: &mut Command) {
        let (clients, streams) = (self.clients.to_string(), self.streams.to_string());
        command.args(["-t", "1", "-c", &clients, "-m", &streams]);
        let length = format!("{}ms", self.length.as_millis());
        command.args(["-D", &length]);
        if self.http1 {
            command.arg("--h1");
        }
        if let Some(rate) = self.rate {
            command.args(["--rps", &rate.to_string()]);
        }
        command.args(self.headers.iter().flat_map(|header| ["-H", header]));
        if let Some(body) = self.body {
            command.arg("-d").arg(body);
        }
        command.arg(&self.url);
    }

    /// Runs it to its end; the requests that were answered with 2xx. None: it did not end.
    ///
    /// # Errors
    /// If it cannot be run, or one was not answered so.
    pub fn run(&self, place: &Place) -> Result<Option<u64>, String> {
        let mut command = place.command("timeout");
        let most = self.length + PATIENCE;
        command.args(["--kill-after=5", &most.as_secs_f64().to_string(), H2LOAD]);
        self.add_to(&mut command);
        let output = command.output();
        if (output.as_ref()).is_ok_and(|it| it.status.code() == Some(HUNG)) {
            return Ok(None);
        }
        answered(&said(H2LOAD, output)?).map(Some)
    }
}

/// The number in `requests: 1492 total, 1508 started, 1492 done, 1492 succeeded, 0 failed, 0 errored, 0 timeout`.
fn answered(said: &str) -> Result<u64, String> {
    let line = said.lines().find_map(|it| it.strip_prefix("requests: "));
    let line = line.ok_or_else(|| format!("{H2LOAD} counts no requests: {}", end(said)))?;
    let count = |word: &str| {
        let part = line.split(", ").find_map(|part| part.strip_suffix(word))?;
        part.trim().parse::<u64>().ok()
    };
    match (count("succeeded"), count("failed"), count("errored")) {
        (Some(answered @ 1..), Some(0), Some(0)) => Ok(answered),
        _ => Err(format!("{H2LOAD}: {line}")),
    }
}

/// Connections with a handshake each, one after the other in each of some processes; how many there were.
///
/// # Errors
/// If they cannot be run, or there was none; if `resumed`, also if more than the first of a process were whole handshakes.
pub fn handshakes(
    place: &Place,
    (address, path): (&str, &str),
    resumed: bool,
    processes: u32,
    seconds: u32,
) -> Result<u64, String> {
    let start = |_| -> Result<Child, String> {
        let mut command = place.command(OPENSSL);
        let kind = if resumed { "-reuse" } else { "-new" };
        command.args(["s_time", "-connect", address, "-www", path, kind]);
        command.args(["-time", &seconds.to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let child = command.stderr(Stdio::piped()).spawn();
        child.map_err(|error| format!("{OPENSSL}: {error}"))
    };
    let children: Vec<_> = (0..processes).map(start).collect();
    let counts = children.into_iter().map(|child| {
        let said = said(OPENSSL, child?.wait_with_output())?;
        connections(&said, resumed)
    });
    // All are waited for, whatever one of them says.
    let counts: Vec<_> = counts.collect();
    counts.into_iter().sum()
}

/// The number in `595 connections in 2 real seconds, …`, and whether each was what was wanted: `r` stands for a resumed one.
fn connections(said: &str, resumed: bool) -> Result<u64, String> {
    let count = said.lines().find_map(|line| {
        let (count, rest) = line.split_once(" connections in ")?;
        let real = rest.contains("real seconds");
        real.then(|| count.trim().parse::<u64>().ok())?
    });
    let count = count
        .filter(|&count| count > 0)
        .ok_or_else(|| format!("{OPENSSL} s_time counts no connections: {}", end(said)))?;
    let marks = |line: &&str| line.len() > 1 && line.bytes().all(|it| matches!(it, b'r' | b'*'));
    let whole = said.lines().filter(marks);
    let whole: usize = whole
        .map(|line| line.bytes().filter(|it| *it == b'*').count())
        .sum();
    match (resumed, whole as u64) {
        (true, 2..) => Err(format!(
            "{OPENSSL} s_time: {whole} of {count} handshakes were whole, where each was to be resumed"
        )),
        (false, seen) if seen + 1 < count => Err(format!(
            "{OPENSSL} s_time: {seen} of {count} handshakes were whole, where each was to be"
        )),
        _ => Ok(count),
    }
}

fn said(program: &str, output: std::io::Result<Output>) -> Result<String, String> {
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    match output.status.success() {
        true => Ok(text),
        false => Err(format!("{program} {}: {}", output.status, end(&text))),
    }
}

/// The last line.
fn end(said: &str) -> &str {
    said.trim().lines().last().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_if_all_were_answered() {
        let line =
            |counts: &str| format!("finished in 1.50s\nrequests: {counts}\nstatus codes: 7\n");
        let fine = line("9 total, 11 started, 9 done, 9 succeeded, 0 failed, 0 errored, 0 timeout");
        assert_eq!(answered(&fine), Ok(9));
        for bad in [
            "9 total, 11 started, 9 done, 8 succeeded, 1 failed, 0 errored, 0 timeout",
            "0 total, 0 started, 0 done, 0 succeeded, 0 failed, 0 errored, 0 timeout",
        ] {
            assert!(answered(&line(bad)).unwrap_err().contains(bad));
        }
        let none = answered("cannot connect\n").unwrap_err();
        assert!(none.contains("cannot connect"), "{none}");
    }

    #[test]
    fn handshakes_are_counted_if_they_are_what_was_wanted() {
        let text = |marks: &str| {
            format!(
                "starting\n{marks}\n\n5 connections in 0.18s; 3 connections/user sec\n5 connections in 2 real seconds, 7 bytes\n"
            )
        };
        assert_eq!(connections(&text("*****"), false), Ok(5));
        assert_eq!(connections(&text("rrrrr"), true), Ok(5));
        let mixed = connections(&text("rr**r"), true).unwrap_err();
        assert!(mixed.contains("2 of 5 handshakes were whole"), "{mixed}");
        assert!(connections(&text("rrrrr"), false).is_err());
        assert!(connections("0 connections in 1 real seconds\n", false).is_err());
    }
}
