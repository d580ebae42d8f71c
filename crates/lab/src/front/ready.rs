//! Waiting until a front-end proxies: a request through it is answered by a server with 200.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use tidegate_remote::clock;

/// Longest time from start to the first proxied answer.
pub(super) const START_MAX: Duration = Duration::from_secs(10);
/// The same in a simulated CPU.
pub(super) const SIMULATED_START_MAX: Duration = Duration::from_secs(60);
/// Between two attempts.
const LOOK: Duration = Duration::from_millis(10);
/// One attempt.
const ANSWER_MAX: Duration = Duration::from_secs(2);
/// What is read of an answer.
const HEAD_MAX: u64 = 512;

/// Asks `address` for `/health` of each host until all are answered; the last refusal if they
/// are not, or if `over` says that there is nobody to wait for.
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
