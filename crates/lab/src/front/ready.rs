//! Waiting until a front-end proxies: a request through it is answered by a server with 200. And
//! Tidegate until it counts no others that were killed: for a second or two the nodes still know of them.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::str::FromStr;
use std::time::Duration;

use tidegate_remote::clock;

/// Longest time from start to the first proxied answer.
pub(super) const START_MAX: Duration = Duration::from_secs(10);
/// The same in a simulated CPU.
pub(super) const SIMULATED_START_MAX: Duration = Duration::from_secs(60);
/// As long as nodes may take to count a front-end.
pub(super) const TOLD: Duration = Duration::from_millis(500);
/// Between two attempts.
const LOOK: Duration = Duration::from_millis(10);
/// One attempt.
const ANSWER_MAX: Duration = Duration::from_secs(2);
/// What is read of metrics.
const METRICS_MAX: u64 = 1 << 20;
/// What is read of an answer.
const HEAD_MAX: u64 = 512;

/// Asks `address` for `/health` of each host until all are answered; the last refusal if they
/// are not, or if `over` says that there is nothing to wait for.
pub(super) fn wait(
    address: SocketAddr,
    hosts: &[String],
    limit: Duration,
    mut over: impl FnMut() -> bool,
) -> Result<(), String> {
    let deadline = clock::now() + limit;
    let mut open = hosts;
    loop {
        let Some((host, rest)) = open.split_first() else {
            return Ok(());
        };
        match ask(address, host) {
            Ok(status) if status == "200" => open = rest,
            answer => {
                let why =
                    answer.map_or_else(|error| error.to_string(), |it| format!("it answered {it}"));
                if over() || clock::now() > deadline {
                    return Err(why);
                }
                clock::sleep_until(clock::now() + LOOK);
            }
        }
    }
}

/// Waits until the Tidegate with this interface has counted no more front-ends than these for so long:
/// nodes tell of others that were killed a moment ago, and that these held slots.
pub(super) fn alone(
    admin: SocketAddr,
    front_ends: u32,
    so_long: Duration,
    limit: Duration,
) -> Result<(), String> {
    let deadline = clock::now() + limit;
    let mut since = clock::now();
    loop {
        let counted = counted(admin).map_err(|error| error.to_string())?;
        let now = clock::now();
        if counted > front_ends {
            since = now;
        } else if now.since(since) >= so_long {
            return Ok(());
        }
        if now > deadline {
            return Err(format!(
                "it counts {counted} front-ends instead of {front_ends}"
            ));
        }
        clock::sleep_until(clock::now() + LOOK);
    }
}

/// What an admin interface answers to a GET: head and body.
pub(super) fn get(admin: SocketAddr, path: &str, most: u64) -> io::Result<String> {
    exchange(admin, &format!("GET {path}"), "", most, ANSWER_MAX)
}

/// Whether an HTTP server answers 200 to a GET.
pub fn answers(address: SocketAddr, path: &str) -> bool {
    get(address, path, HEAD_MAX).is_ok_and(|it| it.split(' ').nth(1) == Some("200"))
}

/// What it answers to a request of these words, `GET /metrics`, within so long: head and body.
pub(super) fn exchange(
    admin: SocketAddr,
    words: &str,
    body: &str,
    most: u64,
    limit: Duration,
) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&admin, ANSWER_MAX)?;
    stream.set_read_timeout(Some(limit))?;
    let request = format!(
        "{words} HTTP/1.1\r\nHost: {admin}\r\nTidegate-Override: 1\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes())?;
    let mut text = String::new();
    stream.take(most).read_to_string(&mut text)?;
    Ok(text)
}

/// As its metrics say.
fn counted(admin: SocketAddr) -> io::Result<u32> {
    metric(admin, "tidegate_front_ends")
}

/// What its metrics say of this name, with its labels if it has any.
pub(super) fn metric<T: FromStr>(admin: SocketAddr, name: &str) -> io::Result<T> {
    let text = get(admin, "/metrics", METRICS_MAX)?;
    let mut lines = text.lines();
    let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value
        .and_then(|value| value.trim().parse().ok())
        .ok_or_else(|| {
            let first = text.lines().next().unwrap_or_default();
            io::Error::other(format!("its metrics say nothing of {name}: {first}"))
        })
}

/// The status of the answer.
fn ask(address: SocketAddr, host: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, ANSWER_MAX)?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    let request = format!("GET /health HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut line = String::new();
    BufReader::new(stream.take(HEAD_MAX)).read_line(&mut line)?;
    let status = line.split(' ').nth(1).unwrap_or_default();
    Ok(status.to_owned())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn nobody_there_is_told_at_once_if_there_is_nobody_to_wait_for() {
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        let why = wait(address, &["shop".into()], START_MAX, || true).unwrap_err();
        assert!(why.contains("refused"), "{why}");
    }

    #[test]
    fn it_waits_until_the_others_are_forgotten() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            for count in [2, 1] {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = [0; 256];
                let length = stream.read(&mut request).unwrap();
                assert!(request[..length].starts_with(b"GET /metrics "));
                let text = format!("tidegate_ready 1\ntidegate_front_ends {count}\n");
                write!(stream, "HTTP/1.1 200 OK\r\n\r\n{text}").unwrap();
            }
        });
        alone(address, 1, Duration::ZERO, START_MAX).unwrap();
        server.join().unwrap();
    }

    #[test]
    fn metrics_that_do_not_tell_are_no_answer() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 256];
            assert!(stream.read(&mut request).unwrap() > 0);
            write!(stream, "HTTP/1.1 403 Forbidden\r\n\r\n").unwrap();
        });
        let why = alone(address, 1, Duration::ZERO, START_MAX).unwrap_err();
        assert!(why.contains("403 Forbidden"), "{why}");
        server.join().unwrap();
    }

    #[test]
    fn it_waits_through_other_answers_for_a_good_one() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            for status in ["503 Service Unavailable", "200 OK"] {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = [0; 256];
                let length = stream.read(&mut request).unwrap();
                assert!(String::from_utf8_lossy(&request[..length]).contains("Host: shop\r\n"));
                write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").unwrap();
            }
        });
        wait(address, &["shop".into()], START_MAX, || false).unwrap();
        server.join().unwrap();
    }
}
