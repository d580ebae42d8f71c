//! The admin interface's sockets: accepts, limits, hands each request to `api`.
//!
//! It runs on the control thread, never on a worker: a slow reader of the page costs the data
//! plane nothing.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tidegate_proxy::{Ports, listen_first};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::api;
use super::plane::{Plane, WINDOW};
use crate::config::Token;

/// Connections at a time; more wait in the kernel's queue.
const CONNECTIONS_MAX: usize = 64;
/// Bytes of a request's head.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// Bytes of a request's body: an order.
const BODY_BYTES_MAX: usize = 16 << 10;
/// Headers of a request.
const HEADERS_MAX: usize = 64;
/// For a request's head, and between two requests.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// For a whole connection: the page opens another one.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(600);
/// Before a silent connection is probed.
const KEEPALIVE: Duration = Duration::from_secs(60);
/// Wait after a failed accept: mostly too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Who may ask for what.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    /// What requests must carry.
    pub(crate) token: Option<Token>,
}

/// Binds the address. May block for as long as the ports' patience says; needs a runtime around it.
pub(crate) fn bind(address: SocketAddr, ports: Ports) -> std::io::Result<TcpListener> {
    let socket = listen_first(address, ports, KEEPALIVE)?;
    TcpListener::from_std(socket.into())
}

/// Serves, and keeps the window of the last seconds, until the task is dropped. Each request is
/// answered from the plane that is shown at that moment.
pub(crate) async fn serve(
    listener: TcpListener,
    plane: impl Fn() -> Arc<Plane> + Clone + Send + 'static,
    access: Access,
) {
    let shown = plane.clone();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(WINDOW).await;
            shown().turn_window();
        }
    });
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let access = Arc::new(access);
    loop {
        // The semaphore is never closed.
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else {
            return;
        };
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let (plane, access) = (plane.clone(), Arc::clone(&access));
        tokio::spawn(async move {
            connection(stream, plane, access).await;
            drop(slot);
        });
    }
}

async fn connection(stream: TcpStream, plane: impl Fn() -> Arc<Plane> + Send, access: Arc<Access>) {
    let service = service_fn(move |request: Request<Incoming>| {
        let (plane, access) = (plane(), Arc::clone(&access));
        async move {
            let (head, body) = request.into_parts();
            let answer = match Limited::new(body, BODY_BYTES_MAX).collect().await {
                Ok(body) => {
                    let request = Request::from_parts(head, body.to_bytes());
                    api::answer(&request, &plane, &access).await
                }
                Err(_) => api::unreadable(),
            };
            Ok::<Response<Full<Bytes>>, Infallible>(answer)
        }
    });
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX);
    let served = builder.serve_connection(TokioIo::new(stream), service);
    // A client that breaks off or stands still is its own business.
    timeout(CONNECTION_TIMEOUT, served).await.ok();
}
