//! The client: one request of a plan, and what came of it.
//!
//! Limits: as many requests in flight as file descriptors allow; one beyond is a failure.

use std::cell::Cell;
use std::net::SocketAddr;

use http::header::{CONNECTION, HOST, HeaderName, HeaderValue};
use http::{Request, StatusCode, response};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::plan::Stream;
use super::requests::Asked;
use tidegate_emulator::load::{Connections, NoBody};

/// File descriptors kept back for everything that is no connection.
const SPARE_FILES: u64 = 64;
/// Connections if the system sets no limit.
const CAPACITY_MAX: u64 = 50_000;
/// Longest value of the counted header.
const COUNTED_MAX: usize = 64;

/// What came of a request.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ExchangeOutcome {
    /// Answered as wanted.
    Completed(AnswerHeaders),
    /// 503 or 429.
    Refused,
    /// Anything else, with its kind.
    Failed(String),
}

/// What an answer's headers say that are looked at.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct AnswerHeaders {
    /// The value of the counted one.
    pub(super) counted: Option<String>,
    /// The number in the one that is added up.
    pub(super) amount: Option<f64>,
}

/// Headers of answers that are looked at.
#[derive(Clone, Debug, Default)]
pub(super) struct Headers {
    pub(super) count_by: Option<HeaderName>,
    pub(super) sum_by: Option<HeaderName>,
}

/// What all requests of a stream carry.
#[derive(Clone, Debug)]
pub(super) struct Head {
    host: HeaderValue,
    header: Option<(HeaderName, HeaderValue)>,
}

impl Head {
    /// Of a stream; else what cannot be sent, as a sentence.
    pub(super) fn of(stream: &Stream) -> Result<Self, String> {
        let host = HeaderValue::from_str(&stream.site);
        let host = host.map_err(|_| format!("{:?} cannot be a Host header", stream.site))?;
        let header = |(name, value): &(String, String)| {
            let pair = HeaderName::from_bytes(name.as_bytes())
                .ok()
                .zip(HeaderValue::from_str(value).ok());
            pair.ok_or_else(|| format!("{name:?}: {value:?} cannot be a header"))
        };
        let header = stream.header.as_ref().map(header).transpose()?;
        Ok(Self { host, header })
    }
}

/// Connections to front-ends.
#[derive(Debug)]
pub(super) struct Client {
    connections: Connections,
    in_flight: Cell<u64>,
    capacity: u64,
    per_request: bool,
    headers: Headers,
}

impl Client {
    pub(super) fn new(targets: &[SocketAddr], per_request: bool, headers: Headers) -> Self {
        Self {
            connections: Connections::new(targets, !per_request),
            in_flight: Cell::new(0),
            capacity: raise_files().saturating_sub(SPARE_FILES).min(CAPACITY_MAX),
            per_request,
            headers,
        }
    }

    /// Sends a request and reads the whole answer.
    pub(super) async fn exchange(
        &self,
        target: usize,
        head: &Head,
        asked: &Asked,
    ) -> ExchangeOutcome {
        if self.in_flight.get() >= self.capacity {
            return ExchangeOutcome::Failed("no file descriptor left for a connection".to_owned());
        }
        let _counted = Counted::new(&self.in_flight);
        let mut request = Request::builder()
            .method(&asked.method)
            .uri(&asked.path)
            .header(HOST, &head.host);
        if let Some((name, value)) = &head.header {
            request = request.header(name, value);
        }
        if self.per_request {
            request = request.header(CONNECTION, "close");
        }
        match request.body(NoBody::new()) {
            Ok(request) => match self.connections.send(target, request).await {
                Ok(head) => self.outcome(&head),
                Err(error) => ExchangeOutcome::Failed(error.kind()),
            },
            Err(error) => ExchangeOutcome::Failed(format!("not a request: {error}")),
        }
    }

    fn outcome(&self, head: &response::Parts) -> ExchangeOutcome {
        match head.status {
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => {
                ExchangeOutcome::Refused
            }
            status if status.is_client_error() || status.is_server_error() => {
                ExchangeOutcome::Failed(format!("status {}", status.as_u16()))
            }
            _ => ExchangeOutcome::Completed(self.headers_of(head)),
        }
    }

    fn headers_of(&self, head: &response::Parts) -> AnswerHeaders {
        let value = |name: &Option<HeaderName>| head.headers.get(name.as_ref()?)?.to_str().ok();
        AnswerHeaders {
            counted: value(&self.headers.count_by)
                .map(|value| value.chars().take(COUNTED_MAX).collect()),
            amount: value(&self.headers.sum_by).and_then(|value| value.parse().ok()),
        }
    }
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

/// Raises the limit of file descriptors as far as allowed, and gives it.
pub(super) fn raise_files() -> u64 {
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
