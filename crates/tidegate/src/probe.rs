//! Health probes: does an ejected or silent node answer HTTP at all?
//!
//! Any response head is an answer, whatever its status: a probe asks whether a server is there,
//! not whether `/` exists. One that begins and does not end is none: so answers a server that hangs.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::director::probe_patience;
use tidegate_core::topology::SiteSpec;
use tidegate_proxy::{NodeTls, ProxyVersion, is_own_fault};
use tidegate_remote::clock;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::mpsc::Receiver;
use tokio::time::timeout;

use crate::check::{self, Checks, Making};
use crate::driver::{Ask, Probed};
use crate::reload::Reach;

/// Probes and checks that wait to be sent; the director asks again for those beyond.
pub(crate) const WAITING_MAX: usize = 256;
/// Bytes of an answer's head that are read, behind its status.
const HEAD_MAX: u64 = 64 * 1024;

/// Begins to send probes and checks. Gives what becomes of the checks. Needs a runtime around it.
pub(crate) fn start(asked: Receiver<Ask>, reach: Reach) -> Arc<Checks> {
    let checks = Arc::new(Checks::default());
    tokio::spawn(run(asked, Arc::clone(&checks), reach));
    checks
}

/// Sends probes and checks as they are asked for, until none is asked for any more.
async fn run(
    mut asked: Receiver<Ask>,
    checks: Arc<Checks>,
    Reach {
        driver,
        shared,
        specs,
        sites,
        ..
    }: Reach,
) {
    let making = Making {
        shared,
        sites,
        checks,
        driver,
        clock: clock::now,
    };
    let Making {
        shared,
        sites,
        driver,
        ..
    } = &making;
    while let Some(ask) = asked.recv().await {
        let node = match ask {
            Ask::Probe(node) => node,
            Ask::Check(due) => {
                check::begin(due, &making);
                continue;
            }
        };
        let topology = shared.topology.load();
        let known = topology.node(node);
        let host = host(specs.load().get(known.site.index()), known.address);
        let (address, driver) = (known.address, driver.clone());
        let patience = probe_patience(&shared.table.outcomes(node));
        let (tls, http2) = (sites.node_tls(known.site), sites.node_http2(known.site));
        let is_tcp = sites.is_tcp(known.site);
        let proxy = sites.node_proxy_protocol(known.site);
        tokio::spawn(async move {
            let asked = match (is_tcp, http2) {
                (true, _) => Question::CONNECTION,
                (false, true) => Question::http2(),
                (false, false) => Question::http1(&host),
            };
            let probed = probe(address, (proxy, tls.as_deref()), &asked, patience).await;
            driver.probed(node, probed);
        });
    }
}

/// A name that the server knows: the site's first whole host, else the address.
fn host(site: Option<&SiteSpec>, address: SocketAddr) -> String {
    let mut hosts = site.iter().flat_map(|site| &site.hosts);
    let whole = hosts.find(|host| !host.contains('*'));
    whole.map_or_else(|| address.to_string(), Clone::clone)
}

/// Whether a server answers there in time, behind what comes first on a connection to it.
async fn probe(
    address: SocketAddr,
    (proxy, tls): (Option<ProxyVersion>, Option<&NodeTls>),
    question: &Question,
    patience: Duration,
) -> Probed {
    let asked = timeout(patience, async {
        let stream = match TcpStream::connect(address).await {
            Err(error) if is_own_fault(&error) => return Probed::Unsent,
            Err(_) => return Probed::Unanswered,
            Ok(stream) => stream,
        };
        let Ok(stream) = check::opened(stream, proxy).await else {
            return Probed::Unanswered;
        };
        let answered = match tls {
            None => ask(stream, question).await,
            // A node that requests cannot reach is not back.
            Some(tls) => match tls.shake_hands(stream, address).await {
                Ok(stream) => ask(stream, question).await,
                Err(_) => Ok(false),
            },
        };
        match answered {
            Ok(true) => Probed::Answered,
            Ok(false) | Err(_) => Probed::Unanswered,
        }
    });
    asked.await.unwrap_or(Probed::Unanswered)
}

/// What a server is asked, and how what comes back begins: `?` is a digit, `*` any byte.
struct Question {
    asks: Vec<u8>,
    begins: &'static [u8],
    /// That is the begin of a head, which ends with an empty line.
    has_head: bool,
}

impl Question {
    /// Nothing: a connection is answer enough.
    const CONNECTION: Self = Self {
        asks: Vec::new(),
        begins: &[],
        has_head: false,
    };

    /// A response of HTTP/1, up to its status.
    fn http1(host: &str) -> Self {
        let request = format!(
            "HEAD / HTTP/1.1\r\nhost: {host}\r\nuser-agent: tidegate-probe\r\nconnection: close\r\n\r\n"
        );
        Self {
            asks: request.into(),
            begins: b"HTTP/1.? ???",
            has_head: true,
        }
    }

    /// The settings with which a server of HTTP/2 begins (RFC 9113 §3.4): a frame of type 4 of stream 0.
    fn http2() -> Self {
        const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
        Self {
            asks: [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", SETTINGS].concat(),
            begins: b"\0**\x04\0\0\0\0\0",
            has_head: false,
        }
    }
}

/// Whether what comes back begins as an answer does, and its head ends: by an empty line, with the connection, or above
/// [`HEAD_MAX`]. The rest may be malformed: that may be this one page's doing.
async fn ask(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    question: &Question,
) -> std::io::Result<bool> {
    stream.write_all(&question.asks).await?;
    stream.flush().await?;
    let mut begin = vec![0; question.begins.len()];
    stream.read_exact(&mut begin).await?;
    let like = |(byte, wanted): (&u8, &u8)| match wanted {
        b'?' => byte.is_ascii_digit(),
        b'*' => true,
        wanted => byte == wanted,
    };
    if !begin.iter().zip(question.begins).all(like) {
        return Ok(false);
    }
    if question.has_head {
        end_of_head(stream).await;
    }
    Ok(true)
}

/// Reads on to the end of a head, or of the connection.
async fn end_of_head(stream: impl AsyncRead + Unpin) {
    let mut lines = BufReader::new(stream.take(HEAD_MAX)).split(b'\n');
    while let Ok(Some(line)) = lines.next_segment().await {
        if line.is_empty() || line == b"\r" {
            break;
        }
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::admission::AdmissionConfig;
    use tokio::net::TcpListener;

    use super::*;
    use crate::testing;

    /// What the probe makes of a server that answers so.
    fn answers(answer: &'static [u8]) -> bool {
        answers_to(Question::http1("shop.example"), answer)
    }

    fn answers_to(question: Question, answer: &'static [u8]) -> bool {
        let asks = question.asks.clone();
        testing::runtime().block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            tokio::spawn(async move {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut head = [0; 1024];
                let read = stream.read(&mut head).await.unwrap();
                assert_eq!(head[..read], asks);
                stream.write_all(answer).await.unwrap();
            });
            let probed = probe(address, (None, None), &question, Duration::from_secs(60)).await;
            probed == Probed::Answered
        })
    }

    #[test]
    fn a_header_comes_first_where_nodes_await_one() {
        testing::runtime().block_on(async {
            for version in [ProxyVersion::Text, ProxyVersion::Binary] {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                let address = listener.local_addr().unwrap();
                let question = Question::http1("shop.example");
                let expected = [version.of_own(), &question.asks].concat();
                let server = async {
                    let (mut stream, _) = listener.accept().await.unwrap();
                    let mut asked = vec![0; expected.len()];
                    stream.read_exact(&mut asked).await.unwrap();
                    assert_eq!(asked, expected);
                    stream.write_all(b"HTTP/1.1 200 OK\r\n").await.unwrap();
                };
                let patience = Duration::from_secs(60);
                let asked = probe(address, (Some(version), None), &question, patience);
                assert_eq!(tokio::join!(asked, server).0, Probed::Answered);
            }
        });
    }

    #[test]
    fn any_status_is_an_answer_and_nothing_else_is() {
        assert!(answers(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n"));
        assert!(answers(b"HTTP/1.1 503 Service Unavailable\r\n\r\n"));
        assert!(answers(
            b"HTTP/1.1 404 Not Found\r\nconnection: close\r\n\r\n"
        ));
        assert!(
            answers(b"HTTP/1.1 200 OK\r\na: b\r\n c\r\n\r\n"),
            "malformed"
        );
        assert!(!answers(b"HTTP/1.1 "));
        assert!(!answers(b""));
        assert!(!answers(b"SSH-2.0-OpenSSH_9.2\r\n"));
    }

    #[test]
    fn a_head_that_does_not_end_is_no_answer() {
        testing::runtime().block_on(async {
            for (head, expected) in [
                ("HTTP/1.1 200 OK\r\nContent-Le", Probed::Unanswered),
                ("HTTP/1.1 200\r\n\r\n", Probed::Answered),
                ("HTTP/1.1 200 OK\ncontent-length: 5\n\n", Probed::Answered),
            ] {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                let address = listener.local_addr().unwrap();
                // The connection stays open.
                let server = async {
                    let (mut stream, _) = listener.accept().await.unwrap();
                    stream.write_all(head.as_bytes()).await.unwrap();
                    stream
                };
                // It is over for the server that hangs alone.
                let patience = match expected {
                    Probed::Answered => Duration::from_secs(60),
                    Probed::Unanswered | Probed::Unsent => Duration::from_millis(300),
                };
                let question = Question::http1("shop.example");
                let asked = probe(address, (None, None), &question, patience);
                assert_eq!(tokio::join!(asked, server).0, expected, "{head:?}");
            }
        });
    }

    #[test]
    fn a_connection_may_be_answer_enough() {
        assert!(answers_to(Question::CONNECTION, b""));
        assert!(answers_to(Question::CONNECTION, b"SSH-2.0-OpenSSH_9.2\r\n"));
    }

    #[test]
    fn a_server_of_http_2_says_its_settings() {
        let says = |answer| answers_to(Question::http2(), answer);
        assert!(says(&[0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 100]));
        assert!(says(&[0, 0, 0, 4, 0, 0, 0, 0, 0]));
        assert!(!says(b"HTTP/1.1 400 Bad Request\r\n\r\n"));
        assert!(!says(&[0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]));
        assert!(!says(&[0, 0, 0, 4, 0]));
        let question = Question::http1("shop.example");
        let text = String::from_utf8(question.asks).unwrap();
        assert!(text.starts_with("HEAD / HTTP/1.1\r\nhost: shop.example\r\n"));
    }

    #[test]
    fn a_closed_port_is_no_answer() {
        let patience = Duration::from_secs(60);
        let question = Question::http1("x");
        let closed = probe(
            ([127, 0, 0, 1], 1).into(),
            (None, None),
            &question,
            patience,
        );
        assert_eq!(testing::runtime().block_on(closed), Probed::Unanswered);
    }

    #[test]
    fn a_server_is_asked_under_a_name_that_it_knows() {
        let address = ([127, 0, 0, 1], 80).into();
        let site = |hosts: &[&str]| SiteSpec {
            name: "s".into(),
            hosts: hosts.iter().map(ToString::to_string).collect(),
            paths: Vec::new(),
            policy: Default::default(),
            admission: AdmissionConfig::default(),
            health: Default::default(),
        };
        assert_eq!(
            host(Some(&site(&["*.a.example", "b.example"])), address),
            "b.example"
        );
        assert_eq!(host(Some(&site(&["*"])), address), "127.0.0.1:80");
        assert_eq!(host(None, address), "127.0.0.1:80");
    }
}
