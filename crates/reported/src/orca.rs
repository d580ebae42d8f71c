//! ORCA's reports out of band: `StreamCoreMetrics` of gRPC, over HTTP/2 without TLS. One connection and one question per node; the node
//! sends a report each period, as long as it likes.
//!
//! ```text
//! connect ──> question ──> report ──> report ──> …       each within `SILENT_PERIODS` periods
//!    ^                        │ broken off, silent, malformed
//!    └──── after 0.25 s, doubled up to 8 s, until a report comes
//! ```
//!
//! What is read of a report stands in `tidegate_core::load::OrcaReport`. A message is at most [`ORCA_BYTES_MAX`] bytes long, and a
//! node may send no more than the stream's window each half of a period: of what it sends sooner than it was asked to, the
//! newest counts.
//!
//! Failure case: a node that takes longer for a report than it was asked for (gRPC's servers have a minimum, 30 s by default) is silent
//! for us, unless that is within the periods.
//! Sources: ORCA-2023 (messages), GrpcA51-2023 (service).

use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use h2::client::{Builder, ResponseFuture, SendRequest};
use h2::{Reason, RecvStream};
use http::{Method, Request, Response, StatusCode};
use tidegate_core::load::{ORCA_BYTES_MAX, OrcaReport, ReportedValue};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio::time::{Sleep, sleep, timeout};

use crate::agent_check::unconnected;
use crate::source::PollFault;

const PATH: &str = "/xds.service.orca.v3.OpenRcaService/StreamCoreMetrics";
/// Longest wait for a connection and for the head of the answer.
const ANSWER_MAX: Duration = Duration::from_secs(2);
/// A stream is given up after so many periods without a report, and after this at least.
const SILENT_PERIODS: u32 = 3;
const SILENT_MIN: Duration = Duration::from_secs(1);
/// Before each message: whether it is compressed, and its length.
const FRAME_HEAD: usize = 5;
/// What a node may send before it is read.
const WINDOW_BYTES: u32 = 65_535;
const HEAD_BYTES_MAX: u32 = 8 << 10;
/// Waits before another connection.
const PAUSE_FIRST: Duration = Duration::from_millis(250);
const PAUSE_MAX: Duration = Duration::from_secs(8);

const SILENT: &str =
    "does it stream ORCA's reports there (HTTP/2 without TLS), and at least each three periods?";
const NO_SERVICE: &str = "it has no StreamCoreMetrics of ORCA there";
const COMPRESSED: &str = "its reports are compressed";
const TOO_MUCH: &str = "it sends far more than it is asked for";
const BROKEN_OFF: &str = "its stream of reports breaks off";

/// Where reports are streamed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrcaConfig {
    /// The service.
    pub address: SocketAddr,
    /// Time between two reports.
    pub period: Duration,
}

/// The reports of one node.
pub(crate) struct OrcaStream {
    config: OrcaConfig,
    open: Option<Open>,
    /// The wait before the next connection.
    pause: Duration,
}

/// A stream that is open.
struct Open {
    body: RecvStream,
    /// What has come and was not read yet: less than a message and its head.
    received: Vec<u8>,
    /// What the node may not send again yet, bytes.
    unreleased: usize,
    /// Until another report is wanted.
    pace: Pin<Box<Sleep>>,
    _connection: Connection,
}

/// The task of a connection, which ends with this.
struct Connection {
    task: AbortHandle,
    /// The connection ends once nothing can be asked by it.
    _sender: SendRequest<Bytes>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl OrcaStream {
    pub(crate) fn new(config: OrcaConfig) -> Self {
        Self {
            config,
            open: None,
            pause: PAUSE_FIRST,
        }
    }

    /// Waits for the next report, and opens a stream if none is open. After a fault it is to be called again after
    /// [`OrcaStream::pause`].
    pub(crate) async fn next(&mut self) -> Result<Vec<ReportedValue>, PollFault> {
        let period = self.config.period;
        let mut open = match self.open.take() {
            Some(open) => open,
            None => in_time(ANSWER_MAX, Open::begin(&self.config)).await?,
        };
        let silent = SILENT_MIN.max(period * SILENT_PERIODS);
        let report = in_time(silent, open.report(period / 2)).await?;
        self.open = Some(open);
        self.pause = PAUSE_FIRST;
        Ok(report.values(period).collect())
    }

    /// How long to wait after a fault, this time.
    pub(crate) fn pause(&mut self) -> Duration {
        let longer = (self.pause * 2).min(PAUSE_MAX);
        std::mem::replace(&mut self.pause, longer)
    }
}

/// Asks for one report.
pub(crate) async fn ask(config: &OrcaConfig) -> Result<Vec<ReportedValue>, PollFault> {
    in_time(ANSWER_MAX, OrcaStream::new(config.clone()).next()).await
}

/// What comes in time.
async fn in_time<T>(
    within: Duration,
    awaited: impl Future<Output = Result<T, PollFault>>,
) -> Result<T, PollFault> {
    let in_time = timeout(within, awaited).await;
    in_time.unwrap_or(Err(PollFault::NoAnswer(SILENT)))
}

impl Open {
    async fn begin(config: &OrcaConfig) -> Result<Self, PollFault> {
        let connected = TcpStream::connect(config.address).await;
        let stream = connected.map_err(|error| unconnected(&error))?;
        let handshake = Builder::new()
            .initial_window_size(WINDOW_BYTES)
            .max_header_list_size(HEAD_BYTES_MAX)
            .enable_push(false)
            .handshake::<_, Bytes>(stream)
            .await;
        let (sender, connection) = handshake.map_err(broken)?;
        // What breaks it off shows in its stream.
        let task = tokio::spawn(async { connection.await.ok() }).abort_handle();
        let mut connection = Connection {
            task,
            _sender: sender,
        };
        let answer = ask_on(&mut connection._sender, config)?;
        let answer = answer.await.map_err(broken)?;
        if !is_stream(&answer) {
            return Err(PollFault::Refused(NO_SERVICE));
        }
        Ok(Self {
            body: answer.into_body(),
            received: Vec::new(),
            unreleased: 0,
            pace: Box::pin(sleep(Duration::ZERO)),
            _connection: connection,
        })
    }

    /// The next report: the newest of those that come before another one is wanted. The one after it is wanted after `pace`.
    async fn report(&mut self, pace: Duration) -> Result<OrcaReport, PollFault> {
        let mut newest = None;
        loop {
            let piece = tokio::select! {
                biased;
                () = &mut self.pace, if newest.is_some() => break,
                piece = self.body.data() => piece,
            };
            let Some(piece) = piece else {
                return Err(PollFault::NothingThere(BROKEN_OFF));
            };
            let piece = piece.map_err(broken)?;
            self.unreleased += piece.len();
            self.received.extend_from_slice(&piece);
            newest = self.newest()?.or(newest);
        }
        // The node may send as much again.
        let read = std::mem::take(&mut self.unreleased);
        let flow = self.body.flow_control();
        flow.release_capacity(read).map_err(broken)?;
        self.pace = Box::pin(sleep(pace));
        newest.ok_or(PollFault::Malformed)
    }

    /// The last whole report of what was received.
    fn newest(&mut self) -> Result<Option<OrcaReport>, PollFault> {
        let mut newest = None;
        let mut rest = &self.received[..];
        while let Some((head, sent)) = rest.split_first_chunk::<FRAME_HEAD>() {
            let [flag, length @ ..] = *head;
            let length = u32::from_be_bytes(length) as usize;
            if flag != 0 {
                return Err(PollFault::Refused(COMPRESSED));
            }
            if length > ORCA_BYTES_MAX {
                return Err(PollFault::Malformed);
            }
            let Some((message, more)) = sent.split_at_checked(length) else {
                break;
            };
            newest = Some(OrcaReport::from_binary(message).ok_or(PollFault::Malformed)?);
            rest = more;
        }
        let read = self.received.len() - rest.len();
        self.received.drain(..read);
        Ok(newest)
    }
}

/// Sends the question.
fn ask_on(
    sender: &mut SendRequest<Bytes>,
    config: &OrcaConfig,
) -> Result<ResponseFuture, PollFault> {
    let request = Request::builder()
        .method(Method::POST)
        .uri(format!("http://{}{PATH}", config.address))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(());
    let request = request.map_err(|error| PollFault::Unsent(error.to_string()))?;
    let (answer, mut body) = sender.send_request(request, false).map_err(broken)?;
    let sent = body.send_data(question(config.period), true);
    sent.map_err(broken)?;
    Ok(answer)
}

/// Whether reports follow. An answer that is an error has its status in its head.
fn is_stream(answer: &Response<RecvStream>) -> bool {
    answer.status() == StatusCode::OK && !answer.headers().contains_key("grpc-status")
}

fn broken(error: h2::Error) -> PollFault {
    if error.is_io() || error.is_remote() {
        return PollFault::NothingThere(BROKEN_OFF);
    }
    match error.reason() {
        // Our own end has it so: more small pieces than are kept.
        Some(Reason::ENHANCE_YOUR_CALM) => PollFault::NothingThere(TOO_MUCH),
        _ => PollFault::Malformed,
    }
}

/// An `OrcaLoadReportRequest` with this interval, with gRPC's head before it.
fn question(period: Duration) -> Bytes {
    let mut interval = Vec::new();
    for (number, value) in [(1, period.as_secs()), (2, u64::from(period.subsec_nanos()))] {
        if value > 0 {
            interval.push(number << 3);
            varint(&mut interval, value);
        }
    }
    // A few bytes: one says how many there are.
    let message_length = (interval.len() + 2) as u8;
    let mut framed = vec![0, 0, 0, 0, message_length, 0x0a, interval.len() as u8];
    framed.extend(interval);
    framed.into()
}

fn varint(out: &mut Vec<u8>, mut number: u64) {
    while number > 0x7f {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

#[cfg(test)]
#[path = "orca_tests.rs"]
mod tests;
