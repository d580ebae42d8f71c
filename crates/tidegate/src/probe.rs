//! Health probes: does an ejected or silent node answer HTTP at all?
//!
//! Any response head is an answer, whatever its status: a probe asks whether a server is there,
//! not whether `/` exists.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::director::probe_patience;
use tidegate_core::topology::SiteSpec;
use tidegate_proxy::{NodeTls, is_own_fault};
use tidegate_remote::clock;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc::Receiver;
use tokio::time::timeout;

use crate::check::{self, Checks, Making};
use crate::driver::{Ask, Probed};
use crate::reload::Reach;

/// Probes and checks that wait to be sent; the director asks again for those beyond.
pub(crate) const WAITING_MAX: usize = 256;

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
        let tls = sites.node_tls(known.site);
        tokio::spawn(async move {
            let probed = probe(address, tls.as_deref(), &host, patience).await;
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

/// Whether a server answers there in time.
async fn probe(
    address: SocketAddr,
    tls: Option<&NodeTls>,
    host: &str,
    patience: Duration,
) -> Probed {
    let asked = timeout(patience, async {
        let stream = match TcpStream::connect(address).await {
            Err(error) if is_own_fault(&error) => return Probed::Unsent,
            Err(_) => return Probed::Unanswered,
            Ok(stream) => stream,
        };
        let answered = match tls {
            None => ask(stream, host).await,
            // A node that requests cannot reach is not back.
            Some(tls) => match tls.shake_hands(stream, address).await {
                Ok(stream) => ask(stream, host).await,
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

/// Whether what comes back is the begin of an HTTP response. The rest may be malformed: that may be this
/// one page's doing.
async fn ask(mut stream: impl AsyncRead + AsyncWrite + Unpin, host: &str) -> std::io::Result<bool> {
    let request = format!(
        "HEAD / HTTP/1.1\r\nhost: {host}\r\nuser-agent: tidegate-probe\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    stream.flush().await?;
    let mut begin = [0; BEGIN.len() + 3];
    stream.read_exact(&mut begin).await?;
    let like =
        |(byte, wanted): (&u8, &u8)| byte == wanted || (*wanted == b'?' && byte.is_ascii_digit());
    let (version, status) = begin.split_at(BEGIN.len());
    let known = version.iter().zip(BEGIN).all(like);
    Ok(known && status.iter().all(u8::is_ascii_digit))
}

/// What a response begins with, before its status.
const BEGIN: &[u8] = b"HTTP/1.? ";

#[cfg(test)]
mod tests {
    use tidegate_core::admission::AdmissionConfig;
    use tokio::net::TcpListener;

    use super::*;
    use crate::testing;

    /// What the probe makes of a server that answers so.
    fn answers(answer: &'static [u8]) -> bool {
        testing::runtime().block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            tokio::spawn(async move {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut head = [0; 1024];
                let read = stream.read(&mut head).await.unwrap();
                assert!(head[..read].starts_with(b"HEAD / HTTP/1.1\r\nhost: shop.example\r\n"));
                stream.write_all(answer).await.unwrap();
            });
            let probed = probe(address, None, "shop.example", Duration::from_secs(60)).await;
            probed == Probed::Answered
        })
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
    fn a_closed_port_is_no_answer() {
        let patience = Duration::from_secs(60);
        let closed = probe(([127, 0, 0, 1], 1).into(), None, "x", patience);
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
