//! The client: one request over a kept or a new connection, and what came of it.
//!
//! Connections are reused last in, first out, as most clients do: as few as the load needs stay
//! warm. A request that a kept connection did not take, because the server had just closed it,
//! goes over a new one; a request that was sent is never sent again.
//!
//! Limits: as many connections as file descriptors allow ([`Client::capacity`]); answers of any
//! length are read and thrown away.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;

use bytes::Bytes;
use http::header::{CONNECTION, HOST, HeaderName, HeaderValue};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::TcpStream;

/// File descriptors kept back for everything that is no connection.
const SPARE_FILES: u64 = 64;
/// Connections if the system sets no limit.
const CAPACITY_MAX: u64 = 50_000;
/// Longest value of the counted header.
const COUNTED_MAX: usize = 64;

type Body = Empty<Bytes>;
type Sender = SendRequest<Body>;

/// What came of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Answered as wanted; with the value of the counted header, if there was one.
    Completed(Option<String>),
    /// 503 or 429.
    Refused,
    /// Anything else, with its kind.
    Failed(String),
}

/// Connections to front-ends.
#[derive(Debug)]
pub(super) struct Client {
    targets: Vec<SocketAddr>,
    idle: Vec<RefCell<Vec<Sender>>>,
    /// Of the open connections.
    in_use: Cell<u64>,
    capacity: u64,
    per_request: bool,
    count_by: Option<HeaderName>,
}

impl Client {
    pub(super) fn new(
        targets: &[SocketAddr],
        per_request: bool,
        count_by: Option<HeaderName>,
    ) -> Self {
        Self {
            targets: targets.to_vec(),
            idle: targets.iter().map(|_| RefCell::default()).collect(),
            in_use: Cell::new(0),
            capacity: raise_files().saturating_sub(SPARE_FILES).min(CAPACITY_MAX),
            per_request,
            count_by,
        }
    }

    /// Sends a request and reads the whole answer.
    pub(super) async fn exchange(&self, target: usize, host: &HeaderValue, path: &str) -> Outcome {
        if self.in_use.get() >= self.capacity {
            return Outcome::Failed("no file descriptor left for a connection".to_owned());
        }
        let _counted = Counted::new(&self.in_use);
        match self.try_exchange(target, host, path).await {
            Ok(outcome) => outcome,
            Err(failure) => Outcome::Failed(failure.kind()),
        }
    }

    async fn try_exchange(
        &self,
        target: usize,
        host: &HeaderValue,
        path: &str,
    ) -> Result<Outcome, Failure> {
        let mut request = Request::builder().uri(path).header(HOST, host);
        if self.per_request {
            request = request.header(CONNECTION, "close");
        }
        let request = request.body(Body::new()).map_err(Failure::Request)?;
        let (mut sender, response) = self.send(target, request).await?;
        let outcome = self.outcome(&response);
        let mut body = response.into_body();
        while let Some(frame) = body.frame().await {
            frame.map_err(Failure::Http)?;
        }
        if !self.per_request && sender.ready().await.is_ok() {
            self.idle[target].borrow_mut().push(sender);
        }
        Ok(outcome)
    }

    /// Sends over a kept connection, or over a new one if there is none that takes it.
    async fn send(
        &self,
        target: usize,
        mut request: Request<Body>,
    ) -> Result<(Sender, Response<Incoming>), Failure> {
        loop {
            let Some(mut sender) = self.idle(target) else {
                let mut sender = connect(self.targets[target]).await?;
                let response = sender.send_request(request).await.map_err(Failure::Http)?;
                return Ok((sender, response));
            };
            match sender.try_send_request(request).await {
                Ok(response) => return Ok((sender, response)),
                Err(mut refused) => match refused.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(Failure::Http(refused.into_error())),
                },
            }
        }
    }

    fn idle(&self, target: usize) -> Option<Sender> {
        let mut idle = self.idle[target].borrow_mut();
        std::iter::from_fn(|| idle.pop()).find(|sender| !sender.is_closed())
    }

    fn outcome(&self, response: &Response<Incoming>) -> Outcome {
        let status = response.status();
        match status {
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => Outcome::Refused,
            _ if status.is_client_error() || status.is_server_error() => {
                Outcome::Failed(format!("status {}", status.as_u16()))
            }
            _ => Outcome::Completed(self.counted(response)),
        }
    }

    fn counted(&self, response: &Response<Incoming>) -> Option<String> {
        let value = response.headers().get(self.count_by.as_ref()?)?;
        let value = value.to_str().ok()?;
        Some(value.chars().take(COUNTED_MAX).collect())
    }
}

async fn connect(target: SocketAddr) -> Result<Sender, Failure> {
    let stream = TcpStream::connect(target).await.map_err(Failure::Connect)?;
    stream.set_nodelay(true).map_err(Failure::Connect)?;
    let (sender, connection) = handshake(TokioIo::new(stream))
        .await
        .map_err(Failure::Http)?;
    // An error of the connection shows at the request that uses it.
    tokio::task::spawn_local(async move { connection.await.ok() });
    Ok(sender)
}

/// Counts up while it lives, also when its request is dropped half-way.
struct Counted<'a>(&'a Cell<u64>);

impl<'a> Counted<'a> {
    fn new(count: &'a Cell<u64>) -> Self {
        count.set(count.get() + 1);
        Self(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

enum Failure {
    Request(http::Error),
    Connect(io::Error),
    Http(hyper::Error),
}

impl Failure {
    /// A name that many failures of one kind share.
    fn kind(&self) -> String {
        match self {
            Self::Request(error) => format!("not a request: {error}"),
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

/// Raises the limit of file descriptors as far as allowed, and gives it.
fn raise_files() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let wanted = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    let reached = match setrlimit(Resource::Nofile, wanted) {
        Ok(()) => limit.maximum,
        Err(_kept) => limit.current,
    };
    reached.unwrap_or(CAPACITY_MAX + SPARE_FILES)
}
