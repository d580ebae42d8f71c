//! Connections that a balancer before us passes on: it says whose they are, by the PROXY protocol, before anything else.
//!
//! | the connection | then |
//! |---|---|
//! | comes from one of the listener's balancers, with a header | is its client's, from there on |
//! | the same, and the header names no client (a balancer's own check) | is the balancer's |
//! | comes from elsewhere, or begins with anything else | refused as `proxy_protocol`; with a 400 where there is no TLS |
//!
//! The time for a head counts from the accept, and the header takes of it.

use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use super::linger::linger;
use crate::record::reason::Reason;
use crate::refusal::ready_made;
use crate::request::{Client, enter_headless};
use crate::stream::Socket;
use crate::wire::proxy_header::{Ends, ProxyHeader, read};

/// The client of the connection, if it is served.
pub(super) async fn introduced(client: &Client, socket: Socket) -> Option<(Rc<Client>, TcpStream)> {
    // Without memory for one more there is nothing to be said to this client.
    let mut stream = socket.into_watched().ok()?;
    let connection = &client.connection;
    let balancers = &connection.plan.balancers;
    let from = connection.client;
    let header = match balancers.iter().any(|it| it.contains(from)) {
        true => header(client, &mut stream).await,
        false => Err(Reason::ProxyProtocol),
    };
    match header {
        Ok(named) => {
            let client = Client::new(
                Rc::clone(&client.worker),
                named.map_or(from, |ends| ends.source.ip()),
                Rc::clone(&connection.listener),
                Arc::clone(&connection.plan),
            );
            if let Some(known) = connection.known_introduction() {
                client.connection.introduce(named.unwrap_or(known.ends));
            }
            client.connection.take_deadline_of(connection);
            Some((client, stream))
        }
        Err(reason) => {
            if reason == Reason::ProxyProtocol {
                enter_headless(client, reason);
                let answer = match connection.plan.tls {
                    None => Some(ready_made(reason)),
                    Some(_) => None,
                };
                linger(stream, answer, connection.settings.timeouts().linger).await;
            }
            None
        }
    }
}

/// Reads the header, and nothing that follows it.
async fn header(client: &Client, stream: &mut TcpStream) -> Result<Option<Ends>, Reason> {
    let mut so_far = Vec::new();
    loop {
        match read(&so_far) {
            ProxyHeader::Whole(ends) => return Ok(ends),
            ProxyHeader::Bad => return Err(Reason::ProxyProtocol),
            ProxyHeader::Needs(more) => {
                let read = so_far.len();
                so_far.resize(read + more, 0);
                exact(client, stream, &mut so_far[read..]).await?;
            }
        }
    }
}

/// Fills the bytes, unless the client leaves, its time is over, or the worker ends.
async fn exact(client: &Client, stream: &mut TcpStream, bytes: &mut [u8]) -> Result<(), Reason> {
    let connection = &client.connection;
    let mut filled = pin!(stream.read_exact(bytes));
    poll_fn(|context| {
        connection.register(context.waker());
        if connection.cut.get() || connection.take_late() {
            return Poll::Ready(Err(Reason::ClientGone));
        }
        filled
            .as_mut()
            .poll(context)
            .map(|filled| filled.map(drop).map_err(|_| Reason::ClientGone))
    })
    .await
}
