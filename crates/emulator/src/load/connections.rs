//! Kept connections to some addresses, for requests from one thread.
//!
//! Reused last in, first out, as most clients do: as few as the load needs stay warm. A request
//! that a kept connection did not take, because the server had just closed it, goes over a new
//! one; a request that was sent is never sent again. Answers of any length are read and thrown
//! away.
//!
//! Limits: none of its own; at most one connection per request in flight and address.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;

use bytes::Bytes;
use http::{Request, Response, response};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// Requests have none.
pub type NoBody = Empty<Bytes>;

type Sender = SendRequest<NoBody>;

/// No whole answer.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// There is no connection.
    #[error("connect: {0}")]
    Connect(#[source] io::Error),
    /// It broke, or what came is not HTTP.
    #[error(transparent)]
    Http(hyper::Error),
}

/// See the module. Must be used within a `tokio::task::LocalSet`, which drives the connections.
#[derive(Debug)]
pub struct Connections {
    targets: Vec<SocketAddr>,
    idle: Vec<RefCell<Vec<Sender>>>,
    keep: bool,
}

impl Connections {
    /// To these addresses; kept after use or not.
    pub fn new(targets: &[SocketAddr], keep: bool) -> Self {
        Self {
            targets: targets.to_vec(),
            idle: targets.iter().map(|_| RefCell::default()).collect(),
            keep,
        }
    }

    /// Sends a request to the address of this number, reads the whole answer and gives its head.
    ///
    /// # Errors
    /// See [`SendError`].
    pub async fn send(
        &self,
        target: usize,
        request: Request<NoBody>,
    ) -> Result<response::Parts, SendError> {
        let (mut sender, response) = self.begin(target, request).await?;
        let (head, mut body) = response.into_parts();
        while let Some(frame) = body.frame().await {
            frame.map_err(SendError::Http)?;
        }
        if self.keep && sender.ready().await.is_ok() {
            self.idle[target].borrow_mut().push(sender);
        }
        Ok(head)
    }

    async fn begin(
        &self,
        target: usize,
        mut request: Request<NoBody>,
    ) -> Result<(Sender, Response<Incoming>), SendError> {
        while let Some(mut sender) = self.idle(target) {
            match sender.try_send_request(request).await {
                Ok(response) => return Ok((sender, response)),
                Err(mut refused) => match refused.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(SendError::Http(refused.into_error())),
                },
            }
        }
        let mut sender = connect(self.targets[target]).await?;
        let response = sender.send_request(request).await;
        Ok((sender, response.map_err(SendError::Http)?))
    }

    fn idle(&self, target: usize) -> Option<Sender> {
        let mut idle = self.idle[target].borrow_mut();
        std::iter::from_fn(|| idle.pop()).find(|sender| !sender.is_closed())
    }
}

async fn connect(target: SocketAddr) -> Result<Sender, SendError> {
    let stream = TcpStream::connect(target)
        .await
        .map_err(SendError::Connect)?;
    stream.set_nodelay(true).map_err(SendError::Connect)?;
    let (sender, connection) = handshake(TokioIo::new(stream))
        .await
        .map_err(SendError::Http)?;
    // An error of the connection shows at the request that uses it.
    tokio::task::spawn_local(async move { connection.await.ok() });
    Ok(sender)
}

impl SendError {
    /// A name that all failures of one kind share.
    pub fn kind(&self) -> String {
        match self {
            Self::Connect(error) => format!("connect: {}", error.kind()),
            Self::Http(error) if error.is_incomplete_message() => {
                "closed before the answer was complete".to_owned()
            }
            Self::Http(error) if error.is_parse() => "answer is not HTTP".to_owned(),
            Self::Http(error) => source_kind(error)
                .map_or_else(|| error.to_string(), |kind| format!("connection: {kind}")),
        }
    }
}

fn source_kind(error: &hyper::Error) -> Option<io::ErrorKind> {
    let source = std::error::Error::source(error)?;
    source.downcast_ref::<io::Error>().map(io::Error::kind)
}
