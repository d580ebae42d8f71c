//! Carries checks out: asks a node as its site wants it, and says what is wrong with the answer.
//!
//! Each check has a connection of its own, which ends with it: what is asked is whether a new client would be served.
//! So many run at once and no more, and of an answer so much is read as is needed, and no more than 64 KiB.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, HOST, USER_AGENT};
use http::{Request, Response};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tidegate_core::director::CheckDue;
use tidegate_core::time::Timestamp;
use tidegate_core::topology::{
    CheckConfig, CheckFailure, CheckRequest, CheckResult, HttpCheck, NodeId,
};
use tidegate_proxy::{Shared, is_own_fault};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::driver::Overrides;

/// Checks that run at once; the others wait for their turn.
const RUNNING_MAX: usize = 128;
/// Bytes of a response's head.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// Bytes of a body that are looked at.
const BODY_BYTES_MAX: usize = 64 << 10;

/// What became of a node's checks.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct NodeChecks {
    /// Of the nodes that had its place.
    pub(crate) generation: u32,
    /// Checks that passed.
    pub(crate) passed: u64,
    /// Those that failed, by what was wrong.
    pub(crate) failed: BTreeMap<&'static str, u64>,
    /// How long all of them took, seconds.
    pub(crate) seconds: f64,
    /// The last one.
    pub(crate) last: Option<LastCheck>,
}

/// A check that has ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LastCheck {
    /// When it ended.
    pub(crate) at: Timestamp,
    /// How.
    pub(crate) result: CheckResult,
    /// How long it took.
    pub(crate) took: Duration,
    /// Checks in a row that ended so: passed or failed.
    pub(crate) in_a_row: u64,
}

/// Checks of all nodes, for those that look at them.
#[derive(Debug)]
pub(crate) struct Checks {
    nodes: Mutex<BTreeMap<NodeId, NodeChecks>>,
    running: Semaphore,
}

impl Default for Checks {
    fn default() -> Self {
        Self {
            nodes: Mutex::default(),
            running: Semaphore::new(RUNNING_MAX),
        }
    }
}

impl Checks {
    /// What became of the checks of the node that has this place, if there were any.
    pub(crate) fn of(&self, node: NodeId, generation: u32) -> Option<NodeChecks> {
        let nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        let checks = nodes.get(&node)?;
        (checks.generation == generation).then(|| checks.clone())
    }

    fn ended(&self, node: NodeId, generation: u32, ended: EndedCheck) {
        let mut nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        let checks = nodes.entry(node).or_default();
        if checks.generation != generation {
            *checks = NodeChecks {
                generation,
                ..NodeChecks::default()
            };
        }
        checks.count(ended);
    }
}

/// How a check ended just now.
#[derive(Clone, Copy, Debug)]
struct EndedCheck {
    at: Timestamp,
    result: CheckResult,
    took: Duration,
}

impl NodeChecks {
    fn count(&mut self, ended: EndedCheck) {
        let passed = ended.result == CheckResult::Passed;
        let same = |last: &LastCheck| (last.result == CheckResult::Passed) == passed;
        let before = self.last.filter(same).map_or(0, |last| last.in_a_row);
        match ended.result {
            CheckResult::Passed => self.passed += 1,
            CheckResult::Failed(failure) => {
                *self.failed.entry(failure.label()).or_default() += 1;
            }
        }
        self.seconds += ended.took.as_secs_f64();
        self.last = Some(LastCheck {
            at: ended.at,
            result: ended.result,
            took: ended.took,
            in_a_row: before + 1,
        });
    }
}

/// Makes a check, and hands its result to the driver.
pub(crate) async fn run(
    due: CheckDue,
    shared: Arc<Shared>,
    checks: Arc<Checks>,
    overrides: Overrides,
    clock: fn() -> Timestamp,
) {
    let Ok(_turn) = checks.running.acquire().await else {
        return;
    };
    let topology = shared.topology.load_full();
    let node = topology.node(due.node);
    let health = Arc::clone(&topology.site(node.site).health);
    let Some(config) = &health.check else {
        return overrides.checked(due, None);
    };
    let mut address = node.address;
    address.set_port(config.port.unwrap_or(address.port()));
    let begun = clock();
    let result = check(address, config).await;
    let at = clock();
    if let Some(result) = result {
        let took = at.since(begun);
        let ended = EndedCheck { at, result, took };
        checks.ended(due.node, node.generation, ended);
    }
    overrides.checked(due, result);
}

/// What a node makes of a check; nothing if this machine could not ask.
async fn check(address: SocketAddr, config: &CheckConfig) -> Option<CheckResult> {
    let asked = timeout(config.timeout, async {
        let stream = match TcpStream::connect(address).await {
            Err(error) if is_own_fault(&error) => return None,
            Err(_) => return Some(Err(CheckFailure::Connect)),
            Ok(stream) => stream,
        };
        Some(match &config.request {
            CheckRequest::Tcp => Ok(()),
            CheckRequest::Http(wanted) => ask(stream, address, wanted).await,
        })
    });
    let result = asked.await.unwrap_or(Some(Err(CheckFailure::Timeout)))?;
    Some(match result {
        Ok(()) => CheckResult::Passed,
        Err(failure) => CheckResult::Failed(failure),
    })
}

async fn ask(
    stream: TcpStream,
    address: SocketAddr,
    wanted: &HttpCheck,
) -> Result<(), CheckFailure> {
    let host = wanted.host.clone().unwrap_or_else(|| address.to_string());
    let request = Request::builder()
        .method(wanted.method.label())
        .uri(&wanted.path)
        .header(HOST, host)
        .header(USER_AGENT, "tidegate-check")
        .header(CONNECTION, "close")
        .body(Empty::<Bytes>::new());
    let request = request.map_err(|_| CheckFailure::Malformed)?;
    let mut http = hyper::client::conn::http1::Builder::new();
    http.max_buf_size(HEAD_BYTES_MAX);
    let (mut sender, connection) = (http.handshake(TokioIo::new(stream)).await)
        .map_err(|error: hyper::Error| failure(&error))?;
    let answer = async {
        let answer = sender.send_request(request).await;
        judge(answer.map_err(|error| failure(&error))?, wanted).await
    };
    // The connection works for the answer, and ends with it.
    tokio::select! {
        judged = answer => judged,
        () = async { connection.await.ok(); std::future::pending().await } => Err(CheckFailure::Broken),
    }
}

/// Whether an answer is as wanted.
async fn judge(answer: Response<Incoming>, wanted: &HttpCheck) -> Result<(), CheckFailure> {
    let status = answer.status().as_u16();
    if !wanted.takes(status) {
        return Err(CheckFailure::Status(status));
    }
    let Some(text) = &wanted.body else {
        return Ok(());
    };
    let mut body = answer.into_body();
    let mut read = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| failure(&error))?;
        let Some(data) = frame.data_ref() else {
            continue;
        };
        let from = read.len().saturating_sub(text.len());
        let room = BODY_BYTES_MAX - read.len();
        read.extend_from_slice(&data[..data.len().min(room)]);
        if contains(&read[from..], text.as_bytes()) {
            return Ok(());
        }
        if read.len() == BODY_BYTES_MAX {
            break;
        }
    }
    Err(CheckFailure::Body)
}

fn contains(bytes: &[u8], text: &[u8]) -> bool {
    bytes.windows(text.len()).any(|window| window == text)
}

fn failure(error: &hyper::Error) -> CheckFailure {
    match error.is_parse() {
        true => CheckFailure::Malformed,
        false => CheckFailure::Broken,
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::topology::CheckMethod;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::testing;

    fn http() -> HttpCheck {
        HttpCheck {
            method: CheckMethod::Get,
            path: "/healthz?full=1".into(),
            host: Some("shop.example".into()),
            statuses: vec![200..=399],
            body: None,
        }
    }

    fn config(request: CheckRequest) -> CheckConfig {
        CheckConfig {
            request,
            port: None,
            interval: Duration::from_secs(1),
            timeout: Duration::from_secs(60),
            rise: 2,
            fall: 3,
        }
    }

    /// What a check makes of a server that answers so, and what the server was asked.
    fn asked(wanted: HttpCheck, answer: Vec<u8>) -> (CheckResult, String) {
        testing::runtime().block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let server = tokio::spawn(async move {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut head = vec![0; 1024];
                let read = stream.read(&mut head).await.unwrap();
                stream.write_all(&answer).await.ok();
                head.truncate(read);
                String::from_utf8(head).unwrap()
            });
            let config = config(CheckRequest::Http(wanted));
            let result = check(address, &config).await.unwrap();
            (result, server.await.unwrap())
        })
    }

    fn answers(wanted: HttpCheck, answer: impl Into<Vec<u8>>) -> Result<(), CheckFailure> {
        match asked(wanted, answer.into()).0 {
            CheckResult::Passed => Ok(()),
            CheckResult::Failed(failure) => Err(failure),
        }
    }

    #[test]
    fn a_node_is_asked_as_its_site_wants_it() {
        let (result, head) = asked(http(), b"HTTP/1.1 204 No Content\r\n\r\n".to_vec());
        assert_eq!(result, CheckResult::Passed);
        assert!(
            head.starts_with("GET /healthz?full=1 HTTP/1.1\r\n"),
            "{head}"
        );
        assert!(head.contains("host: shop.example\r\n"), "{head}");
        assert!(head.contains("user-agent: tidegate-check\r\n"), "{head}");
        let wanted = HttpCheck {
            method: CheckMethod::Head,
            host: None,
            ..http()
        };
        let (result, head) = asked(
            wanted,
            b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n".into(),
        );
        assert_eq!(result, CheckResult::Passed);
        assert!(
            head.starts_with("HEAD /") && head.contains("host: 127.0.0.1:"),
            "{head}"
        );
    }

    #[test]
    fn a_status_that_is_not_wanted_fails() {
        let unwell = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n";
        assert_eq!(answers(http(), unwell), Err(CheckFailure::Status(503)));
        let wanted = HttpCheck {
            statuses: vec![200..=200, 503..=503],
            ..http()
        };
        assert_eq!(answers(wanted, unwell), Ok(()));
    }

    #[test]
    fn a_body_is_searched_across_its_pieces_and_not_without_end() {
        let wanted = HttpCheck {
            body: Some("all well".into()),
            ..http()
        };
        let plain = "HTTP/1.1 200 OK\r\ncontent-length: 12\r\n\r\nall well now";
        assert_eq!(answers(wanted.clone(), plain), Ok(()));
        let pieces = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nall w\r\n4\r\nell!\r\n0\r\n\r\n";
        assert_eq!(answers(wanted.clone(), pieces), Ok(()));
        let other = "HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nfailed";
        assert_eq!(answers(wanted.clone(), other), Err(CheckFailure::Body));
        let long = |filler: usize| {
            let mut answer = b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n".to_vec();
            answer.resize(answer.len() + filler, b'x');
            answer.extend_from_slice(b"all well");
            answer.resize(answer.len() + 100_000 - filler - 8, b'x');
            answer
        };
        assert_eq!(answers(wanted.clone(), long(60_000)), Ok(()));
        assert_eq!(answers(wanted, long(70_000)), Err(CheckFailure::Body));
    }

    #[test]
    fn what_is_no_answer_fails() {
        let odd = "SSH-2.0-OpenSSH_9.2\r\n\r\n";
        assert_eq!(answers(http(), odd), Err(CheckFailure::Malformed));
        assert_eq!(answers(http(), ""), Err(CheckFailure::Broken));
        let mut long = b"HTTP/1.1 200 OK\r\na: ".to_vec();
        long.resize(1 << 20, b'x');
        assert_eq!(answers(http(), long), Err(CheckFailure::Malformed));
    }

    #[test]
    fn a_connection_is_enough_for_a_tcp_check() {
        testing::runtime().block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let tcp = config(CheckRequest::Tcp);
            assert_eq!(check(address, &tcp).await, Some(CheckResult::Passed));
            drop(listener);
            let failed = CheckResult::Failed(CheckFailure::Connect);
            assert_eq!(check(address, &tcp).await, Some(failed));
        });
    }

    #[test]
    fn a_node_that_hangs_fails_in_time() {
        testing::runtime().block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let hangs = CheckConfig {
                timeout: Duration::from_millis(20),
                ..config(CheckRequest::Http(http()))
            };
            let failed = CheckResult::Failed(CheckFailure::Timeout);
            assert_eq!(check(address, &hangs).await, Some(failed));
        });
    }

    #[test]
    fn results_are_counted_by_what_was_wrong_and_in_a_row() {
        let checks = Checks::default();
        let node = NodeId(3);
        let failed = CheckResult::Failed(CheckFailure::Status(503));
        for result in [CheckResult::Passed, failed, failed] {
            let ended = EndedCheck {
                at: testing::now(),
                result,
                took: Duration::from_millis(500),
            };
            checks.ended(node, 7, ended);
        }
        let seen = checks.of(node, 7).unwrap();
        assert_eq!(
            (seen.passed, seen.failed["status"], seen.seconds),
            (1, 2, 1.5)
        );
        assert_eq!(seen.last.unwrap().in_a_row, 2);
        assert_eq!(checks.of(node, 8), None, "another node's");
    }
}
