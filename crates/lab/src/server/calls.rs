//! A server of unary gRPC calls over HTTP/2 in the clear: each is answered with one message of its own length and status 0.
//!
//! Any other request is answered with 200, so that health checks are. It works on nothing: what calls cost is what the front-end makes of
//! them.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Body, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tidegate_emulator::server::http::bind;

use super::ServeError;

/// The type of calls.
pub const CALL: &str = "application/grpc";
/// Longest message that is answered.
const MESSAGE_MAX: usize = 1 << 20;
/// Wait after a failed accept: mostly too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// Options of the hidden `tidegate-lab serve-calls`.
#[derive(Clone, Debug, Args)]
pub struct CallsArgs {
    /// Where it listens.
    #[arg(long, value_name = "ADDRESS")]
    pub listen: SocketAddr,
}

/// Serves until the process is killed.
///
/// # Errors
/// If it cannot listen, or has no runtime.
pub fn run_calls(args: &CallsArgs) -> Result<(), ServeError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let listener = bind(args.listen).map_err(|source| ServeError::Listen {
        address: args.listen,
        source,
    })?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            };
            // Without it answers are only slower.
            stream.set_nodelay(true).ok();
            let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(stream), service_fn(answer));
            tokio::spawn(async move {
                // A client that breaks off is no concern of the server's.
                connection.await.ok();
            });
        }
    })
}

type Answer = Response<http_body_util::Either<Full<Bytes>, Called>>;
type Called = http_body_util::combinators::UnsyncBoxBody<Bytes, Infallible>;

/// The call's own message, then its status as a trailer; plain 200 for what is no call.
async fn answer(request: Request<Incoming>) -> Result<Answer, Infallible> {
    let kind = request.headers().get(CONTENT_TYPE);
    if kind.is_none_or(|kind| kind != CALL) {
        let fine = Full::new(Bytes::from_static(b"fine\n"));
        return Ok(Response::new(http_body_util::Either::Left(fine)));
    }
    let message = whole(request.into_body()).await.unwrap_or_default();
    let status = async {
        let mut trailers = HeaderMap::with_capacity(1);
        trailers.insert("grpc-status", HeaderValue::from_static("0"));
        Some(Ok(trailers))
    };
    let body = Full::new(message).with_trailers(status).boxed_unsync();
    let mut response = Response::new(http_body_util::Either::Right(body));
    let kind = HeaderValue::from_static(CALL);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    Ok(response)
}

/// The whole of it; none of one that is too long or breaks off.
async fn whole<B>(body: B) -> Option<Bytes>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let whole = Limited::new(body, MESSAGE_MAX).collect().await.ok()?;
    Some(whole.to_bytes())
}
