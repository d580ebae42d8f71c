//! A node that speaks HTTP/2 from the first byte, and does by path what is asked for.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use h2::server::{self, SendResponse};
use h2::{Reason, RecvStream};
use http::{HeaderMap, Request, Response};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;

/// See the module.
pub(crate) struct Http2Node {
    pub(crate) address: SocketAddr,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    connections: AtomicUsize,
    requests: AtomicUsize,
    resets: AtomicUsize,
    refusals: AtomicUsize,
}

impl Http2Node {
    /// One that answers with this name.
    pub(crate) fn start(name: &'static str) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let counts = Arc::<Counts>::default();
        let counted = Arc::clone(&counts);
        std::thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = TcpListener::from_std(listener).unwrap();
                loop {
                    let (stream, _) = listener.accept().await.unwrap();
                    counted.connections.fetch_add(1, Ordering::Relaxed);
                    tokio::spawn(connection(stream, name, Arc::clone(&counted)));
                }
            });
        });
        Self { address, counts }
    }

    pub(crate) fn connections(&self) -> usize {
        self.counts.connections.load(Ordering::Relaxed)
    }

    pub(crate) fn requests(&self) -> usize {
        self.counts.requests.load(Ordering::Relaxed)
    }

    /// Streams that were reset by the other side while they waited.
    pub(crate) fn resets(&self) -> usize {
        self.counts.resets.load(Ordering::Relaxed)
    }
}

/// Serves one; what goes wrong with it is the other side's.
async fn connection(stream: TcpStream, name: &'static str, counts: Arc<Counts>) {
    let Ok(mut connection) = server::handshake(stream).await else {
        return;
    };
    while let Some(Ok((request, answer))) = connection.accept().await {
        counts.requests.fetch_add(1, Ordering::Relaxed);
        match request.uri().path() {
            "/goodbye" => {
                // Nothing was begun, and nothing else is.
                connection.abrupt_shutdown(Reason::NO_ERROR);
            }
            "/gone" => return,
            _ => drop(tokio::spawn(serve(
                request,
                answer,
                name,
                Arc::clone(&counts),
            ))),
        }
    }
}

/// The serving status of a node of this name.
fn serving(name: &str) -> char {
    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-stops"));
    if file.exists() { '\x02' } else { '\x01' }
}

async fn serve(
    request: Request<RecvStream>,
    mut answer: SendResponse<Bytes>,
    name: &'static str,
    counts: Arc<Counts>,
) -> Option<()> {
    let path = request.uri().path().to_owned();
    let head = format!(
        "{} {}\n{:?}",
        request.method(),
        request.uri(),
        request.headers()
    );
    let path = match path.strip_prefix("/never-") {
        Some(other) if other != name => "/".to_owned(),
        Some(_) => "/never".to_owned(),
        None => path,
    };
    match &*path {
        "/refused" => {
            answer.send_reset(Reason::REFUSED_STREAM);
            return None;
        }
        "/reset" => {
            answer.send_reset(Reason::INTERNAL_ERROR);
            return None;
        }
        "/never" => {
            std::future::poll_fn(|context| answer.poll_reset(context))
                .await
                .ok()?;
            counts.resets.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        _ => {}
    }
    let mut body = request.into_body();
    let mut bytes = 0;
    while let Some(data) = body.data().await {
        let data = data.ok()?;
        bytes += data.len();
        body.flow_control().release_capacity(data.len()).ok()?;
    }
    let trailers = body.trailers().await.ok()?;
    // The first of them is read, and refused all the same.
    let refuses = match &*path {
        "/refused-first" => counts.refusals.fetch_add(1, Ordering::Relaxed) == 0,
        "/refused-late" => true,
        _ => false,
    };
    if refuses {
        answer.send_reset(Reason::REFUSED_STREAM);
        return None;
    }
    let text = match &*path {
        "/head" => head,
        "/length" => bytes.to_string(),
        "/refused-first" => format!("{bytes} {:?}", trailers.unwrap_or_default()),
        "/trailers" => format!("{trailers:?}"),
        "/large" => "z".repeat(3 << 20),
        // It serves, until a file says otherwise: a message of gRPC with one field.
        "/grpc.health.v1.Health/Check" => format!("\0\0\0\0\x02\x08{}", serving(name)),
        _ => name.to_owned(),
    };
    let mut out = answer.send_response(Response::new(()), false).ok()?;
    out.send_data(text.into(), false).ok()?;
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", "0".parse().ok()?);
    out.send_trailers(trailers).ok()
}
