//! A connection that is passed on to a node as it is: one request of its site, from accept to close.
//!
//! | the connection | then |
//! |---|---|
//! | gets a node | bytes go both ways, until both sides have ended, one breaks, or nothing moves for `tunnel_idle` |
//! | waits for room | as a request does, in the same queue; it ends if the client leaves meanwhile |
//! | is not let in, or no node can be reached | closed without a word, and counted by the reason |
//!
//! It is in flight, and holds room at its node, until it ends: policies and limits count connections then. Nodes that cannot be reached are
//! tried elsewhere, since nothing was sent; once there is a connection, nothing is.

use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use bytes::Bytes;
use http::{Method, Request};

use crate::forward;
use crate::record::reason::Reason;
use crate::request::{self, CONNECTION, Client, RequestGuard};
use crate::response::Tunnel;
use crate::stream::Stream;

/// Serves it, for a site.
pub(super) async fn serve(client: &Rc<Client>, mut stream: Stream, site: &str) {
    let mut request = Request::new(());
    if let Ok(method) = Method::from_bytes(CONNECTION.as_bytes()) {
        *request.method_mut() = method;
    }
    let mut guard = RequestGuard::begin(client, &request);
    let node = match open(client, &mut guard, &mut stream, site).await {
        Ok(node) => node,
        Err(reason) => return guard.fail(reason),
    };
    guard.on_connected();
    let tunnel = Tunnel::of_connection(client, guard, node);
    tunnel.run(client, stream, Bytes::new()).await;
}

/// A connection to a node, for as long as the client is there.
async fn open(
    client: &Client,
    guard: &mut RequestGuard,
    stream: &mut Stream,
    site: &str,
) -> Result<Stream, Reason> {
    let connection = &client.connection;
    // As long as it takes: the queue and the connect have times of their own.
    connection.suspend();
    let mut opening = pin!(async {
        if let Some(waiting) = request::admit_connection(client, guard, site)? {
            request::until_room(client, guard, waiting).await?;
        }
        forward::open(client, guard).await
    });
    let mut has_sent = false;
    poll_fn(|context| {
        connection.register(context.waker());
        if connection.cut.get() {
            return Poll::Ready(Err(client.worker.base.drain.cut_for.get()));
        }
        if let Poll::Ready(opened) = opening.as_mut().poll(context) {
            return Poll::Ready(opened);
        }
        // Behind what a client has sent its end cannot be seen.
        if !has_sent {
            match stream.poll_peek(context) {
                Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(Err(Reason::ClientGone)),
                Poll::Ready(Ok(_)) => has_sent = true,
                Poll::Pending => {}
            }
        }
        Poll::Pending
    })
    .await
}
