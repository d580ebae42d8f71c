//! HTTP around the workers: one IO thread on hyper, HTTP/1.1 with connections kept alive.

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustix::net::{AddressFamily, SocketType, listen, socket};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tidegate_core::time::Timestamp;
use tidegate_remote::clock;

use super::cache::Cache;
use super::workers::Workers;
use super::{ServeArgs, ServeError, Work};

/// Time from a request's arrival to its end here, microseconds: tells the node's time from
/// that of the network and the front-end.
pub const TOOK_HEADER: &str = "x-lab-took-us";
/// What `file=` found.
const CACHE_HEADER: &str = "x-lab-cache";
/// Connections that the kernel may hold for us.
const BACKLOG: i32 = 4096;
/// Wait after a failed accept: mostly too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// What a request needs.
#[derive(Debug)]
struct Server {
    workers: Workers,
    cache: Mutex<Cache>,
    hit: Duration,
    miss: Duration,
}

/// Serves until the process is killed.
pub(super) fn run(args: &ServeArgs) -> Result<(), ServeError> {
    raise_file_limit()?;
    let server = Arc::new(Server {
        workers: Workers::new(args.workers, args.queue),
        cache: Mutex::new(Cache::new(args.cache_files as usize)),
        hit: args.cache_hit,
        miss: args.cache_miss,
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let listener = bind(args.listen).map_err(|source| ServeError::Listen {
        address: args.listen,
        source,
    })?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        accept(listener, server).await;
        Ok(())
    })
}

/// A listener that can be bound again at once after the last one was killed.
fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let family = if address.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    let socket = socket(family, SocketType::STREAM, None)?;
    rustix::net::sockopt::set_socket_reuseaddr(&socket, true)?;
    rustix::net::bind(&socket, &address)?;
    listen(&socket, BACKLOG)?;
    let listener = TcpListener::from(socket);
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// As many files as are allowed at all.
fn raise_file_limit() -> io::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    setrlimit(Resource::Nofile, raised).map_err(io::Error::from)
}

async fn accept(listener: tokio::net::TcpListener, server: Arc<Server>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        // Without it answers are only slower.
        stream.set_nodelay(true).ok();
        let server = Arc::clone(&server);
        let service = service_fn(move |request: Request<Incoming>| {
            let server = Arc::clone(&server);
            async move { Ok::<_, Infallible>(server.answer(&request).await) }
        });
        let connection = hyper::server::conn::http1::Builder::new()
            .serve_connection(TokioIo::new(stream), service);
        tokio::spawn(async move {
            // Who breaks off is no concern of the server's.
            connection.await.ok();
        });
    }
}

impl Server {
    async fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        let arrived = clock::now();
        match request.uri().path() {
            "/health" => text(StatusCode::OK, "fine\n"),
            "/work" => {
                self.work(request.uri().query().unwrap_or_default(), arrived)
                    .await
            }
            path => text(
                StatusCode::NOT_FOUND,
                &format!("{path}: there are /work and /health\n"),
            ),
        }
    }

    async fn work(&self, query: &str, arrived: Timestamp) -> Response<Full<Bytes>> {
        let mut work = match Work::parse(query) {
            Ok(work) => work,
            Err(error) => return text(StatusCode::BAD_REQUEST, &format!("{error}\n")),
        };
        let found = work.file.map(|file| self.find(file));
        if let Some((_, cost)) = found {
            work.cpu += cost;
        }
        if let Err(undone) = self.workers.run(work).await {
            return text(StatusCode::SERVICE_UNAVAILABLE, &format!("{undone}\n"));
        }
        let mut response = Response::new(Full::new(body(work.bytes)));
        let took = clock::now().since(arrived).as_micros();
        let headers = response.headers_mut();
        headers.insert(TOOK_HEADER, u64::try_from(took).unwrap_or(u64::MAX).into());
        if let Some((found, _)) = found {
            headers.insert(CACHE_HEADER, http::HeaderValue::from_static(found));
        }
        response
    }

    /// Whether the file is in the cache, and what that costs.
    fn find(&self, file: u64) -> (&'static str, Duration) {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if cache.hit(file) {
            ("hit", self.hit)
        } else {
            ("miss", self.miss)
        }
    }
}

/// So many letters.
fn body(bytes: u64) -> Bytes {
    /// Answers up to this length take no memory of their own.
    static LETTERS: [u8; 64 << 10] = [b'x'; 64 << 10];
    let length = usize::try_from(bytes).unwrap_or(0);
    match LETTERS.get(..length) {
        Some(letters) => Bytes::from_static(letters),
        None => vec![b'x'; length].into(),
    }
}

fn text(status: StatusCode, text: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::copy_from_slice(text.as_bytes())));
    *response.status_mut() = status;
    response
}
