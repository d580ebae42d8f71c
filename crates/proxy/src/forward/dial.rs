//! Connections to nodes: a socket with its marks, the header of the PROXY protocol, TLS; in this order, each where it is wanted.

use std::io;
use std::time::Duration;

use socket2::SockRef;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::connection::introduction::Introduction;
use crate::record::reason::Reason;
use crate::sockets::{is_own_fault, probes};
use crate::stream::Stream;
use crate::upstream::{UpstreamKey, marking};
use crate::wire::proxy_header::ProxyVersion;
use crate::worker::{NodeOpening, Worker};

/// How long what may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// All that is done here.
    pub(super) connect: Duration,
    /// Silence until the kernel asks whether the other side is there.
    pub(super) keepalive: Duration,
}

/// A connection, on which HTTP may begin. A header names the client that the connection is for; without one it is our own.
pub(super) async fn dial(
    worker: &Worker,
    key: UpstreamKey,
    opening: NodeOpening,
    patience: Patience,
    introduction: Option<&Introduction>,
) -> Result<Stream, Reason> {
    let connecting = async {
        let stream = marking::connect(key.address, key.marks, worker.throttles.shared()).await;
        let mut stream = stream.map_err(|error| match is_own_fault(&error) {
            true => Reason::OutOfSockets,
            false => Reason::ConnectFailed,
        })?;
        make_ready(&stream, patience.keepalive).map_err(|_| Reason::ConnectFailed)?;
        if let Some(version) = opening.proxy {
            // In memory of its own: most connections have none.
            let introduced = Box::pin(introduce(&mut stream, key, version, introduction));
            introduced.await.map_err(|_| Reason::ConnectFailed)?;
        }
        let Some(tls) = opening.tls else {
            return Ok::<_, Reason>(Stream::Plain(stream.into()));
        };
        // A handshake is large, and most requests have none.
        let shaken = Box::pin(tls.shake_hands(stream, key.address)).await;
        Ok(Stream::of_node(shaken?))
    };
    let connected = tokio::time::timeout(patience.connect, connecting).await;
    connected.unwrap_or(Err(Reason::ConnectTimeout))
}

/// Names the client to the node, before anything else is said.
async fn introduce(
    stream: &mut TcpStream,
    key: UpstreamKey,
    version: ProxyVersion,
    introduction: Option<&Introduction>,
) -> io::Result<()> {
    match introduction {
        None => stream.write_all(version.of_own()).await,
        Some(introduction) => {
            introduction.note(key.node);
            stream
                .write_all(&version.of_client(introduction.ends))
                .await
        }
    }
}

fn make_ready(stream: &TcpStream, keepalive: Duration) -> io::Result<()> {
    SockRef::from(stream).set_tcp_keepalive(&probes(keepalive))?;
    // Without it small answers wait for acknowledgements; a socket that refuses it still works.
    stream.set_nodelay(true)
}
