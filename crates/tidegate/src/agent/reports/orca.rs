//! Streams ORCA reports: `xds.service.orca.v3.OpenRcaService/StreamCoreMetrics` of gRPC, over HTTP/2 without TLS.
//!
//! A client asks once and gets a report at once, and another one after each interval until it goes. A reader that is slow
//! gets fewer: a report is made when there is room to send it.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, Incoming};
use hyper::server::conn::http2::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tidegate_node::report::orca::{Question, report};
use tokio::sync::watch;
use tokio::time::{Interval, MissedTickBehavior, interval, timeout};

use super::SharedLoad;
use super::door::Door;
use crate::config::OrcaReport;

const PATH: &str = "/xds.service.orca.v3.OpenRcaService/StreamCoreMetrics";
/// Of one connection: a balancer asks once per policy.
const STREAMS_MAX: u32 = 4;
const HEAD_BYTES_MAX: u32 = 8 << 10;
/// What is made and not sent yet, of a stream.
const SEND_BYTES_MAX: usize = 4 << 10;
/// Streams that are broken off again at once, until the connection is closed.
const RESETS_MAX: usize = 16;
/// For the question, which comes with the head or after it.
const QUESTION_TIMEOUT: Duration = Duration::from_secs(5);
/// Without a stream, until the connection is closed: what is silent keeps its seat no longer.
const SILENT_TIMEOUT: Duration = Duration::from_secs(10);
/// Between two looks at whether a client is still there, and for its answer.
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// Between two reports, at most.
const INTERVAL_MAX: Duration = Duration::from_secs(86_400);

/// Codes of gRPC.
const INVALID_ARGUMENT: &str = "3";
const DEADLINE_EXCEEDED: &str = "4";
const UNIMPLEMENTED: &str = "12";

/// Answers until the task is dropped.
pub(super) async fn serve(door: Door, orca: OrcaReport, load: SharedLoad) {
    loop {
        let (stream, seat) = door.next().await;
        let load = load.clone();
        tokio::spawn(async move {
            let open = Arc::new(watch::Sender::new(0));
            let silent = silent(open.subscribe());
            let seat = Arc::new(seat);
            let asked = Arc::clone(&seat);
            let service = service_fn(move |request| {
                asked.begin();
                let (load, open) = (load.clone(), Arc::clone(&open));
                async move { Ok::<_, Infallible>(answered(request, orca, load, open).await) }
            });
            let mut builder = Builder::new(TokioExecutor::new());
            builder
                .timer(TokioTimer::new())
                .max_concurrent_streams(STREAMS_MAX)
                .max_header_list_size(HEAD_BYTES_MAX)
                .max_send_buf_size(SEND_BYTES_MAX)
                .max_pending_accept_reset_streams(RESETS_MAX)
                .max_local_error_reset_streams(RESETS_MAX)
                .keep_alive_interval(PING_EVERY)
                .keep_alive_timeout(PING_TIMEOUT);
            tokio::select! {
                // What breaks off costs its own connection only.
                _ended = builder.serve_connection(TokioIo::new(stream), service) => {}
                () = silent => {}
                () = seat.lost() => {}
            }
        });
    }
}

/// Waits until no stream has been open for [`SILENT_TIMEOUT`].
async fn silent(mut open: watch::Receiver<usize>) {
    while open.wait_for(|open| *open == 0).await.is_ok() {
        let another = timeout(SILENT_TIMEOUT, open.wait_for(|open| *open > 0)).await;
        if !matches!(another, Ok(Ok(_))) {
            return;
        }
    }
}

async fn answered(
    request: Request<Incoming>,
    orca: OrcaReport,
    load: SharedLoad,
    open: Arc<watch::Sender<usize>>,
) -> Response<Reports> {
    let kind = request.headers().get(CONTENT_TYPE);
    let is_grpc = kind.is_some_and(|it| it.as_bytes().starts_with(b"application/grpc"));
    if request.method() != Method::POST || !is_grpc {
        let mut refusal = Response::new(Reports(None));
        *refusal.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        return refusal;
    }
    if request.uri().path() != PATH {
        return refused(UNIMPLEMENTED, "there is StreamCoreMetrics alone");
    }
    match timeout(QUESTION_TIMEOUT, question(request.into_body())).await {
        Ok(Question::Interval(wanted)) => {
            let reports = Reports::new(wanted, orca, load, open);
            let mut answer = Response::new(reports);
            answer.headers_mut().insert(CONTENT_TYPE, GRPC);
            answer
        }
        Ok(Question::Compressed) => refused(UNIMPLEMENTED, "compression is not understood"),
        Ok(Question::Malformed | Question::Unfinished) => {
            refused(INVALID_ARGUMENT, "expected an OrcaLoadReportRequest")
        }
        Err(_) => refused(DEADLINE_EXCEEDED, "the question did not come"),
    }
}

const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");

/// Reads until the question is whole; a client need not end its side then.
async fn question(mut body: Incoming) -> Question {
    let mut sent = Vec::new();
    loop {
        let asked = Question::parse(&sent);
        if asked != Question::Unfinished {
            return asked;
        }
        let Some(Ok(frame)) = body.frame().await else {
            return asked;
        };
        if let Ok(data) = frame.into_data() {
            sent.extend_from_slice(&data);
        }
    }
}

/// An answer that is over with its head: gRPC's status is there.
fn refused(code: &'static str, message: &'static str) -> Response<Reports> {
    let mut answer = Response::new(Reports(None));
    let head = answer.headers_mut();
    head.insert(CONTENT_TYPE, GRPC);
    head.insert("grpc-status", HeaderValue::from_static(code));
    head.insert("grpc-message", HeaderValue::from_static(message));
    answer
}

/// The body of an answer: none, or reports without an end.
#[derive(Debug)]
struct Reports(Option<Stream>);

#[derive(Debug)]
struct Stream {
    ticks: Interval,
    orca: OrcaReport,
    load: SharedLoad,
    open: Arc<watch::Sender<usize>>,
}

impl Reports {
    fn new(
        wanted: Duration,
        orca: OrcaReport,
        load: SharedLoad,
        open: Arc<watch::Sender<usize>>,
    ) -> Self {
        open.send_modify(|open| *open += 1);
        let mut ticks = interval(wanted.clamp(orca.min_interval, INTERVAL_MAX));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self(Some(Stream {
            ticks,
            orca,
            load,
            open,
        }))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.open.send_modify(|open| *open -= 1);
    }
}

impl Stream {
    fn report(&self) -> Bytes {
        let crossed = self.load.crossing.borrow().is_some();
        let load = self.load.lock().own.load();
        report(&load, crossed, self.orca.bytes_per_request).into()
    }
}

impl Body for Reports {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Some(stream) = &mut self.0 else {
            return Poll::Ready(None);
        };
        ready!(stream.ticks.poll_tick(context));
        Poll::Ready(Some(Ok(Frame::data(stream.report()))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_none()
    }
}
