//! User instructions per proxied request, by HTTP/1.1 and by HTTP/2, the figure that a busy machine does not disturb, and
//! per connection that is refused unread, which must cost less than a tenth of that.
//!
//! `bench_proxy` (an example of the proxy crate) runs under a counter with one worker, no
//! control thread, one client connection and one request at a time. Two runs of different
//! length are subtracted from each other, so that start and end cost nothing. The counter is
//! `perf stat` where the machine has hardware counters, else callgrind; each has its own
//! baseline, since callgrind executes other variants of some library routines.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::test::Outcome;

/// What is measured.
const WORKS: &[Work] = &[
    Work::Proxied { body: 1024 },
    Work::Proxied { body: 16 * 1024 },
    Work::Http2 { body: 1024 },
    Work::Refused,
];
/// Connections that come at once to be refused; both lengths of a run are multiples.
const STORM: u32 = 8;
/// Most that a refusal may cost, over a proxied request of 1 KiB.
const REFUSED_MOST: f64 = 0.1;
const SHORT_RUN: u32 = 1000;
const LONG_RUN: u32 = 5000;
/// Largest difference from the baseline that passes: 3 %, and what the counts vary by on a busy machine, whose timer ticks are in them.
const TOLERANCE: f64 = 0.032;
const BASELINE: &str = "bench/instructions.txt";
const WAIT: Duration = Duration::from_secs(60);
const RETRY: Duration = Duration::from_millis(20);

/// What a subject has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    /// A request on a kept connection, for a response of so many bytes.
    Proxied { body: usize },
    /// The same as a stream of a connection of HTTP/2, without TLS.
    Http2 { body: usize },
    /// A connection that is refused before it is read.
    Refused,
}

/// What counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counter {
    Perf,
    Callgrind,
}

impl Counter {
    const ALL: [Self; 2] = [Self::Perf, Self::Callgrind];

    fn name(self) -> &'static str {
        match self {
            Self::Perf => "perf",
            Self::Callgrind => "callgrind",
        }
    }

    /// The command that runs another one under this counter.
    fn command(self) -> Command {
        let mut command = match self {
            Self::Perf => Command::new("perf"),
            Self::Callgrind => Command::new("valgrind"),
        };
        match self {
            Self::Perf => command.args(["stat", "-x,", "-e", "instructions:u", "--"]),
            Self::Callgrind => command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]),
        };
        command
    }

    /// The count in what the command prints.
    fn count(self, output: &str) -> Option<u64> {
        match self {
            Self::Perf => {
                let line = output.lines().find(|line| line.contains("instructions"))?;
                line.split(',').next()?.parse().ok()
            }
            Self::Callgrind => {
                let line = output.lines().find(|line| line.contains("Collected :"))?;
                line.rsplit(' ').next()?.parse().ok()
            }
        }
    }

    fn works(self) -> bool {
        let output = self.command().arg("true").output();
        output.is_ok_and(|output| {
            self.count(&String::from_utf8_lossy(&output.stderr))
                .is_some()
        })
    }
}

/// Why nothing can be counted here.
const NO_COUNTER: &str = "neither perf's counters nor valgrind are here";

/// Measures and compares with the baseline.
pub(crate) fn check(root: &Path) -> Result<Outcome, String> {
    let Some(counter) = Counter::ALL.into_iter().find(|counter| counter.works()) else {
        return Ok(Outcome::Skipped(NO_COUNTER.to_owned()));
    };
    let program = build(root)?;
    let baseline = std::fs::read_to_string(root.join(BASELINE)).unwrap_or_default();
    let mut good = true;
    let mut all = Vec::new();
    for work in WORKS {
        let measured = per_request(counter, Subject::Tidegate(&program), *work)?;
        all.push((*work, measured));
        if *work == Work::Refused {
            // How many are accepted at once differs from run to run, and with it what each costs.
            continue;
        }
        let key = key(counter, *work);
        let Some(expected) = value(&baseline, &key) else {
            println!("{key}: {measured:.0}, no baseline: `cargo xtask instructions --record`");
            good = false;
            continue;
        };
        let change = measured / expected - 1.0;
        let verdict = if change.abs() <= TOLERANCE {
            "ok"
        } else {
            "FAILED"
        };
        println!(
            "{key}: {measured:.0} per request, {:+.2} % from {expected:.0}: {verdict}",
            change * 100.0
        );
        if change < -TOLERANCE {
            println!("it became better: record it with `cargo xtask instructions --record`");
        }
        good &= change.abs() <= TOLERANCE;
    }
    Ok((good & refusals_are_cheap(&all)).into())
}

/// Whether a connection that is refused unread costs less than a tenth of a proxied request.
fn refusals_are_cheap(measured: &[(Work, f64)]) -> bool {
    let of = |work| {
        let found = measured.iter().find(|(it, _)| *it == work);
        found.map_or(f64::NAN, |(_, count)| *count)
    };
    let share = of(Work::Refused) / of(Work::Proxied { body: 1024 });
    let good = share < REFUSED_MOST;
    let verdict = if good { "ok" } else { "FAILED" };
    println!(
        "a refused connection costs {share:.3} of a proxied request, less than {REFUSED_MOST} wanted: {verdict}"
    );
    good
}

/// Measures with every counter that works here and writes the baseline anew.
pub(crate) fn record(root: &Path) -> Result<bool, String> {
    let program = build(root)?;
    let old = std::fs::read_to_string(root.join(BASELINE)).unwrap_or_default();
    let mut text = String::from(
        "# User instructions per proxied request: counter, bytes of the body, count.\n\
         # Written by `cargo xtask instructions --record`; compared by `make test`.\n",
    );
    for counter in Counter::ALL {
        for work in WORKS.iter().filter(|work| **work != Work::Refused) {
            let key = key(counter, *work);
            let kept = value(&old, &key);
            let figure = if counter.works() {
                Some(per_request(counter, Subject::Tidegate(&program), *work)?)
            } else {
                kept
            };
            if let Some(figure) = figure {
                println!("{key} {figure:.0}");
                writeln!(text, "{key} {figure:.0}").map_err(|error| error.to_string())?;
            }
        }
    }
    std::fs::write(root.join(BASELINE), text).map_err(|error| format!("{BASELINE}: {error}"))?;
    Ok(true)
}

fn key(counter: Counter, work: Work) -> String {
    match work {
        Work::Proxied { body } => format!("{} {body}", counter.name()),
        Work::Http2 { body } => format!("{} http2-{body}", counter.name()),
        Work::Refused => format!("{} refused", counter.name()),
    }
}

fn value(baseline: &str, key: &str) -> Option<f64> {
    let line = baseline
        .lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(' '))?;
    line.trim().parse().ok()
}

fn build(root: &Path) -> Result<std::path::PathBuf, String> {
    let status = Command::new("cargo")
        .current_dir(root)
        .args([
            "build",
            "--release",
            "--locked",
            "--package",
            "tidegate-proxy",
        ])
        .args(["--example", "bench_proxy"])
        .status()
        .map_err(|error| format!("cargo: {error}"))?;
    if !status.success() {
        return Err("bench_proxy did not build".into());
    }
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), Into::into);
    Ok(target.join("release/examples/bench_proxy"))
}

/// What is measured.
#[derive(Clone, Copy, Debug)]
enum Subject<'a> {
    /// The proxy's example, at this path.
    Tidegate(&'a Path),
    /// The HAProxy that is installed, set up to add the same header fields.
    Haproxy,
}

/// A subject at work.
struct Running {
    child: Child,
    address: SocketAddr,
}

impl Subject<'_> {
    fn start(self, counter: Counter, work: Work, backend: SocketAddr) -> Result<Running, String> {
        let mut command = counter.command();
        let (stdout, known) = match self {
            Self::Tidegate(program) => {
                command
                    .arg(program)
                    .args(["127.0.0.1:0", &backend.to_string()]);
                match work {
                    Work::Proxied { .. } | Work::Http2 { .. } => {}
                    Work::Refused => {
                        command.env("REFUSE", "1");
                    }
                }
                (Stdio::piped(), None)
            }
            Self::Haproxy => {
                let (file, address) = haproxy_configuration(backend)?;
                command.args(["haproxy", "-q", "-db", "-f"]).arg(file);
                (Stdio::null(), Some(address))
            }
        };
        command
            .env("PATH", path_with_sbin())
            .stdin(Stdio::piped())
            .stdout(stdout);
        let mut child = command
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{}: {error}", counter.name()))?;
        let address = match known {
            Some(address) => address,
            None => printed_address(&mut child)?,
        };
        Ok(Running { child, address })
    }

    /// Ends it in the way that lets its counter print.
    fn stop(self, child: &mut Child) -> Result<(), String> {
        drop(child.stdin.take());
        match self {
            Self::Tidegate(_) => Ok(()),
            Self::Haproxy => {
                // perf and valgrind both end with the program that they run: tell that one.
                let id = child.id().to_string();
                let kill = Command::new("kill").args(["-s", "INT", &id]).status();
                kill.map(drop).map_err(|error| format!("kill: {error}"))
            }
        }
    }
}

/// Measures HAProxy in the same way, for the ratio.
pub(crate) fn compare(root: &Path) -> Result<Outcome, String> {
    let Some(counter) = Counter::ALL.into_iter().find(|counter| counter.works()) else {
        return Ok(Outcome::Skipped(NO_COUNTER.to_owned()));
    };
    let program = build(root)?;
    let proxied = |work: &&Work| **work != Work::Refused;
    for work in WORKS.iter().filter(proxied) {
        let ours = per_request(counter, Subject::Tidegate(&program), *work)?;
        let theirs = per_request(counter, Subject::Haproxy, *work)?;
        println!(
            "{}: Tidegate {ours:.0}, HAProxy {theirs:.0}: {:.2}x",
            key(counter, *work),
            ours / theirs
        );
    }
    Ok(Outcome::Good)
}

fn path_with_sbin() -> String {
    format!(
        "{}:/usr/sbin:/sbin",
        std::env::var("PATH").unwrap_or_default()
    )
}

fn haproxy_configuration(backend: SocketAddr) -> Result<(std::path::PathBuf, SocketAddr), String> {
    let address = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
    let address = address.map_err(|error| format!("no free port: {error}"))?;
    let text = format!(
        "global\n nbthread 1\ndefaults\n mode http\n http-reuse always\n option forwardfor\n\
         \ttimeout client 60s\n timeout server 60s\n timeout connect 2s\n\
         \ttimeout http-request 10s\n timeout http-keep-alive 60s\n\
         frontend in\n bind {address}\n http-request set-header X-Forwarded-Proto http\n\
         \thttp-request set-header X-Forwarded-Host %[req.hdr(host)]\n default_backend out\n\
         backend out\n server n0 {backend}\n"
    );
    let file = std::env::temp_dir().join(format!("tidegate-bench-{}.cfg", std::process::id()));
    std::fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))?;
    Ok((file, address))
}

fn printed_address(child: &mut Child) -> Result<SocketAddr, String> {
    let output = child.stdout.take().ok_or("output was not piped")?;
    let mut line = String::new();
    let read = BufReader::new(output).read_line(&mut line);
    read.map_err(|error| error.to_string())?;
    let address = line.trim().rsplit(' ').next().unwrap_or_default();
    address
        .parse()
        .map_err(|_| format!("expected the address, found {line:?}"))
}

fn per_request(counter: Counter, subject: Subject<'_>, work: Work) -> Result<f64, String> {
    let short = count(counter, subject, work, SHORT_RUN)?;
    let long = count(counter, subject, work, LONG_RUN)?;
    Ok((long as f64 - short as f64) / f64::from(LONG_RUN - SHORT_RUN))
}

/// Instructions of a whole run of `requests` requests.
fn count(counter: Counter, subject: Subject<'_>, work: Work, requests: u32) -> Result<u64, String> {
    let body = match work {
        Work::Proxied { body } | Work::Http2 { body } => body,
        Work::Refused => 0,
    };
    let backend = backend(body).map_err(|error| format!("backend: {error}"))?;
    let mut running = subject.start(counter, work, backend)?;
    let driven = match work {
        Work::Proxied { body } => drive(running.address, body, requests),
        Work::Http2 { body } => drive_http2(running.address, body, requests),
        Work::Refused => drive_refused(running.address, requests),
    };
    subject.stop(&mut running.child)?;
    let output = running
        .child
        .wait_with_output()
        .map_err(|error| error.to_string())?;
    let printed = String::from_utf8_lossy(&output.stderr);
    driven.map_err(|error| format!("{error}\n{printed}"))?;
    counter
        .count(&printed)
        .ok_or_else(|| format!("no count in: {printed}"))
}

/// Sends the requests, one at a time, over one connection.
fn drive(address: SocketAddr, body: usize, requests: u32) -> Result<(), String> {
    let io = |error: std::io::Error| format!("request: {error}");
    let mut stream = connect(address).map_err(io)?;
    stream.set_read_timeout(Some(WAIT)).map_err(io)?;
    stream.set_nodelay(true).map_err(io)?;
    let mut buffer = vec![0; 64 * 1024];
    for _ in 0..requests {
        stream
            .write_all(b"GET /file HTTP/1.1\r\nHost: bench\r\n\r\n")
            .map_err(io)?;
        read_response(&mut stream, &mut buffer, body)?;
    }
    Ok(())
}

/// The same over HTTP/2 (RFC 9113): one stream after the other.
fn drive_http2(address: SocketAddr, body: usize, requests: u32) -> Result<(), String> {
    let io = |error: std::io::Error| format!("request: {error}");
    let mut stream = connect(address).map_err(io)?;
    stream.set_read_timeout(Some(WAIT)).map_err(io)?;
    stream.set_nodelay(true).map_err(io)?;
    let window = (i32::MAX as u32 - 65_535).to_be_bytes();
    let opening = [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        frame(SETTINGS, 0, 0, &[]),
        frame(WINDOW_UPDATE, 0, 0, &window),
    ];
    stream.write_all(&opening.concat()).map_err(io)?;
    // GET, http, `/file`, `bench` (RFC 7541 §6), by the static table and as literals that are not indexed.
    let head = b"\x82\x86\x04\x05/file\x01\x05bench";
    let mut reader = BufReader::new(stream.try_clone().map_err(io)?);
    for number in 0..requests {
        let id = 2 * number + 1;
        let asked = frame(HEADERS, END_HEADERS | END_STREAM, id, head);
        stream.write_all(&asked).map_err(io)?;
        read_stream(&mut reader, &mut stream, id, body)?;
    }
    Ok(())
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const WINDOW_UPDATE: u8 = 8;
/// Of SETTINGS.
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// A frame (RFC 9113 §4.1).
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    let stream = stream.to_be_bytes();
    [&length[1..], &[kind, flags], &stream, payload].concat()
}

/// Reads the frames of one stream to its end, with a body of `body` bytes.
fn read_stream(
    reader: &mut impl Read,
    writer: &mut impl Write,
    stream: u32,
    body: usize,
) -> Result<(), String> {
    let io = |error: std::io::Error| format!("response: {error}");
    let mut left = body;
    loop {
        let mut head = [0; 9];
        reader.read_exact(&mut head).map_err(io)?;
        let [a, b, c, kind, flags, id @ ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        reader.read_exact(&mut payload).map_err(io)?;
        match (kind, u32::from_be_bytes(id)) {
            (SETTINGS, 0) if flags & ACK == 0 => {
                writer
                    .write_all(&frame(SETTINGS, ACK, 0, &[]))
                    .map_err(io)?;
                continue;
            }
            (SETTINGS | WINDOW_UPDATE, _) => continue,
            // `:status: 200` (RFC 7541, Appendix A).
            (HEADERS, id) if id == stream && payload.first() == Some(&0x88) => {}
            (DATA, id) if id == stream && payload.len() <= left => left -= payload.len(),
            (kind, id) => return Err(format!("frame {kind} of stream {id}: {payload:?}")),
        }
        if flags & END_STREAM != 0 {
            return match left {
                0 => Ok(()),
                left => Err(format!("the body lacks {left} bytes")),
            };
        }
    }
}

/// Asks on new connections, some at a time; the first refusal closes the door to all others.
fn drive_refused(address: SocketAddr, requests: u32) -> Result<(), String> {
    let io = |error: std::io::Error| format!("request: {error}");
    let ask = || -> std::io::Result<TcpStream> {
        let mut stream = connect(address)?;
        stream.set_read_timeout(Some(WAIT))?;
        stream.write_all(b"GET /file HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n")?;
        Ok(stream)
    };
    for _ in 0..requests / STORM {
        let streams: Result<Vec<_>, _> = (0..STORM).map(|_| ask()).collect();
        for mut stream in streams.map_err(io)? {
            let mut answer = Vec::new();
            // A client that is refused unread may see a reset behind the answer.
            let failed = stream.read_to_end(&mut answer).err();
            if let Some(error) = failed.filter(|it| it.kind() != ErrorKind::ConnectionReset) {
                return Err(io(error));
            }
            if !answer.starts_with(b"HTTP/1.1 503") {
                return Err(String::from_utf8_lossy(&answer).into_owned());
            }
        }
    }
    Ok(())
}

/// Connects as soon as the address is listened at.
#[expect(clippy::disallowed_methods, reason = "it gives up on the real clock")]
fn connect(address: SocketAddr) -> std::io::Result<TcpStream> {
    let start = std::time::Instant::now();
    loop {
        match TcpStream::connect(address) {
            Err(_) if start.elapsed() < WAIT => std::thread::park_timeout(RETRY),
            other => return other,
        }
    }
}

/// Reads one response with a body of `body` bytes.
fn read_response(stream: &mut TcpStream, buffer: &mut [u8], body: usize) -> Result<(), String> {
    let mut filled = 0;
    loop {
        let read = stream
            .read(&mut buffer[filled..])
            .map_err(|error| format!("response: {error}"))?;
        if read == 0 {
            return Err("the proxy closed the connection".into());
        }
        filled += read;
        let head = buffer[..filled].windows(4).position(|at| at == b"\r\n\r\n");
        if head.is_some_and(|head| filled >= head + 4 + body) {
            return match buffer.starts_with(b"HTTP/1.1 200") {
                true => Ok(()),
                false => Err(String::from_utf8_lossy(&buffer[..filled.min(200)]).into_owned()),
            };
        }
    }
}

/// A server that answers every request with the same body, a thread per connection.
fn backend(body: usize) -> std::io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let mut response = format!("HTTP/1.1 200 OK\r\nContent-Length: {body}\r\n\r\n").into_bytes();
    response.resize(response.len() + body, b'x');
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let response = response.clone();
            std::thread::spawn(move || serve(stream, &response));
        }
    });
    Ok(address)
}

/// Ends when the peer does: an error here is the end of the run, which the driver notices.
fn serve(mut stream: TcpStream, response: &[u8]) {
    let mut buffer = [0; 16 * 1024];
    let mut filled = 0;
    while let Ok(read) = stream.read(&mut buffer[filled..]) {
        filled += read;
        if read == 0 || filled == buffer.len() {
            return;
        }
        if buffer[..filled].ends_with(b"\r\n\r\n") {
            filled = 0;
            if stream.write_all(response).is_err() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_found_in_what_the_tools_print() {
        let perf = "12345,,instructions:u,5000,100.00,,\n";
        assert_eq!(Counter::Perf.count(perf), Some(12345));
        assert_eq!(
            Counter::Perf.count("<not supported>,,instructions:u,0,100.00,,\n"),
            None
        );
        let callgrind = "==7== Events    : Ir\n==7== Collected : 987\n";
        assert_eq!(Counter::Callgrind.count(callgrind), Some(987));
    }

    #[test]
    fn the_baseline_is_found_by_its_whole_key() {
        let text = "# words\nperf 1024 100\nperf 16384 200\n";
        assert_eq!(value(text, "perf 1024"), Some(100.0));
        assert_eq!(value(text, "perf 16384"), Some(200.0));
        assert_eq!(value(text, "perf 16"), None);
    }
}
