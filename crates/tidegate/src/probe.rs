//! Health probes: does an ejected or silent node answer HTTP at all?
//!
//! Any response head is an answer, whatever its status: a probe asks whether somebody is there,
//! not whether `/` exists.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, HOST, USER_AGENT};
use http::{Method, Request};
use http_body_util::Empty;
use hyper_util::rt::TokioIo;
use tidegate_core::topology::{NodeId, SiteSpec};
use tidegate_proxy::Shared;
use tokio::net::TcpStream;
use tokio::sync::mpsc::Receiver;
use tokio::time::timeout;

use crate::driver::Orders;

/// A node that takes longer is not well yet.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Probes that wait to be sent; the director asks again for those beyond.
pub(crate) const WAITING_MAX: usize = 256;

/// Sends probes as they are asked for, until nobody asks any more.
pub(crate) async fn run(
    mut asked: Receiver<NodeId>,
    shared: Arc<Shared>,
    sites: Vec<SiteSpec>,
    orders: Orders,
) {
    while let Some(node) = asked.recv().await {
        let topology = shared.topology.load();
        let known = topology.node(node);
        let host = host(sites.get(known.site.index()), known.address);
        let (address, orders) = (known.address, orders.clone());
        tokio::spawn(async move {
            orders.probed(node, answers(address, &host).await);
        });
    }
}

/// A name that the server knows: the site's first whole host, else the address.
fn host(site: Option<&SiteSpec>, address: SocketAddr) -> String {
    let mut hosts = site.iter().flat_map(|site| &site.hosts);
    let whole = hosts.find(|host| !host.contains('*'));
    whole.map_or_else(|| address.to_string(), Clone::clone)
}

/// Whether somebody answers there in time.
async fn answers(address: SocketAddr, host: &str) -> bool {
    timeout(TIMEOUT, ask(address, host))
        .await
        .is_ok_and(|answer| answer.is_ok())
}

async fn ask(
    address: SocketAddr,
    host: &str,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let request = Request::builder()
        .method(Method::HEAD)
        .uri("/")
        .header(HOST, host)
        .header(USER_AGENT, "tidegate-probe")
        .header(CONNECTION, "close")
        .body(Empty::<Bytes>::new())?;
    let stream = TcpStream::connect(address).await?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    // The response may come with the connection's end, so its head decides.
    let (answer, _) = tokio::join!(
        async {
            let answer = sender.send_request(request).await.map(drop);
            drop(sender);
            answer
        },
        connection
    );
    Ok(answer?)
}

#[cfg(test)]
mod tests {
    use tidegate_core::admission::AdmissionConfig;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::testing;

    /// What the probe makes of a server that answers so.
    fn probe(answer: &'static [u8]) -> bool {
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
            answers(address, "shop.example").await
        })
    }

    #[test]
    fn any_status_is_an_answer_and_nothing_else_is() {
        assert!(probe(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n"));
        assert!(probe(b"HTTP/1.1 503 Service Unavailable\r\n\r\n"));
        assert!(probe(
            b"HTTP/1.1 404 Not Found\r\nconnection: close\r\n\r\n"
        ));
        assert!(!probe(b""));
        assert!(!probe(b"SSH-2.0-OpenSSH_9.2\r\n"));
    }

    #[test]
    fn a_closed_port_is_no_answer() {
        let closed = testing::runtime().block_on(answers(([127, 0, 0, 1], 1).into(), "x"));
        assert!(!closed);
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
        };
        assert_eq!(
            host(Some(&site(&["*.a.example", "b.example"])), address),
            "b.example"
        );
        assert_eq!(host(Some(&site(&["*"])), address), "127.0.0.1:80");
        assert_eq!(host(None, address), "127.0.0.1:80");
    }
}
