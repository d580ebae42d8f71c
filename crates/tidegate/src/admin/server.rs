//! The admin interface's sockets: accepts, limits, hands each request to `api`.
//!
//! It runs on the control thread, never on a worker: a slow reader of the page costs the data
//! plane nothing. A request is judged by its head; the body is read only of overrides, and only of those that
//! have the right to give them.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::CONNECTION;
use http::request::Parts;
use http::{HeaderValue, Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::{Body, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tidegate_proxy::{Ports, listen_first};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::Sender;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::access::{Access, RefusalLog, Right};
use super::api::{self, Answer};
use super::events;
use super::history;
use super::plane::{Plane, WINDOW};
use crate::output::Output;
use crate::seats::{SeatId, Seats};

/// Bytes of a request's head.
pub(super) const HEAD_BYTES_MAX: usize = 16 << 10;
/// Bytes of a request's body: an override.
pub(super) const BODY_BYTES_MAX: usize = 16 << 10;
/// Headers of a request.
pub(super) const HEADERS_MAX: usize = 64;
/// For a request's head, and between two requests.
pub(super) const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// For the body of an override, from its head on.
pub(super) const BODY_TIMEOUT: Duration = Duration::from_secs(5);
/// For a whole connection: the page opens another one.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(600);
/// Before a silent connection is probed.
const KEEPALIVE: Duration = Duration::from_secs(60);
/// Wait after a failed accept: mostly too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Binds the address. May block for as long as the ports' patience says; needs a runtime around it.
pub(crate) fn bind(address: SocketAddr, ports: Ports) -> std::io::Result<TcpListener> {
    let socket = listen_first(address, ports, KEEPALIVE)?;
    TcpListener::from_std(socket.into())
}

/// A socket that listens there already.
pub(crate) fn adopt(socket: OwnedFd) -> std::io::Result<TcpListener> {
    let socket = std::net::TcpListener::from(socket);
    socket.set_nonblocking(true)?;
    TcpListener::from_std(socket)
}

/// Serves, and keeps the window of the last seconds and the history, until the task is dropped. Each request is
/// answered from the plane that is shown at that moment. `open` is dropped with the last connection.
pub(crate) async fn serve(
    listener: TcpListener,
    plane: impl Fn() -> Arc<Plane> + Clone + Send + Sync + 'static,
    access: Access,
    output: Output,
    open: Sender<Infallible>,
) {
    let shown = plane.clone();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(WINDOW).await;
            shown().turn_window();
        }
    });
    let recorded = plane.clone();
    tokio::spawn(async move {
        loop {
            // A timer, not a wait for anything: the history has a step for each second of the wall clock.
            tokio::time::sleep(history::until_next_second()).await;
            recorded().record_second();
        }
    });
    let mut desk = Desk::new(plane, access, output);
    desk.open = Some(open);
    let desk = Arc::new(desk);
    loop {
        let Ok((stream, peer)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        Desk::seat(&desk, stream, peer.ip().to_canonical());
        // The new connection's task runs once before the next connection may close it.
        tokio::task::yield_now().await;
    }
}

/// What all connections share.
pub(super) struct Desk<P> {
    plane: P,
    access: Access,
    output: Output,
    seats: Mutex<Seats<AbortHandle>>,
    refusals: Mutex<RefusalLog>,
    /// For what waits until all connections are closed.
    open: Option<Sender<Infallible>>,
}

/// A connection's seat, given back however it ends.
struct Seated<'d, P>(&'d Desk<P>, SeatId);

impl<P> Drop for Seated<'_, P> {
    fn drop(&mut self) {
        let Self(desk, seat) = self;
        lock(&desk.seats).leave(*seat);
    }
}

impl<P> Desk<P> {
    pub(super) fn new(plane: P, access: Access, output: Output) -> Self {
        Self {
            plane,
            access,
            output,
            seats: Mutex::new(Seats::new()),
            refusals: Mutex::default(),
            open: None,
        }
    }

    fn seats(&self) -> MutexGuard<'_, Seats<AbortHandle>> {
        lock(&self.seats)
    }
}

impl<P: Fn() -> Arc<Plane> + Send + Sync + 'static> Desk<P> {
    /// Serves a connection on a task of its own; another one may have to end for it.
    fn seat(desk: &Arc<Self>, stream: TcpStream, from: IpAddr) {
        let mut seats = desk.seats();
        // Full of those that have shown a right to ask and are being answered: the stream is dropped.
        let Ok(closed) = seats.make_room(from) else {
            return;
        };
        if let Some(closed) = closed {
            closed.abort();
        }
        let own = Arc::clone(desk);
        seats.take(from, |seat| {
            let served = async move { own.serve(stream, from, seat).await };
            tokio::spawn(served).abort_handle()
        });
    }

    /// Serves a connection to its end.
    pub(super) async fn serve<S>(&self, stream: S, from: IpAddr, seat: SeatId)
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let seated = Seated(self, seat);
        let service = service_fn(async |request: Request<Incoming>| {
            let (head, body) = request.into_parts();
            Ok::<_, Infallible>(self.answer(head, body, from, Some(seat)).await)
        });
        let mut builder = hyper::server::conn::http1::Builder::new();
        builder
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .max_buf_size(HEAD_BYTES_MAX)
            .max_headers(HEADERS_MAX);
        let served = builder.serve_connection(TokioIo::new(stream), service);
        // What breaks off or stands still costs its own connection only.
        timeout(CONNECTION_TIMEOUT, served).await.ok();
        drop(seated);
    }

    /// Answers a request, from a connection or a test.
    pub(super) async fn answer<B>(
        &self,
        head: Parts,
        body: B,
        from: IpAddr,
        seat: Option<SeatId>,
    ) -> Answer
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let plane = (self.plane)();
        let now = (plane.clock)();
        let right = match self.access.judge(&head, now) {
            Ok(right) => right,
            Err(refusal) => {
                let line = |why| lock(&self.refusals).line(from, why, now);
                if let Some(line) = refusal.why.and_then(line) {
                    self.output.event("admin_refused", &line);
                }
                return *refusal.answer;
            }
        };
        let known = seat.filter(|_| !matches!(right, Right::Open));
        if head.uri.path() == "/api/access" {
            return self.access.shown(&right, events::operator(&head, from));
        }
        let answer = match read(&head, body).await {
            Ok(body) => {
                // Not before: where no token is asked for, half an override would keep a seat.
                if let Some(seat) = known {
                    self.seats().begin(seat);
                }
                let order = (head.clone(), body.clone());
                let answer = api::answer(&Request::from_parts(head, body), &plane).await;
                if answer.status().is_success() {
                    events::note_order(&plane, &order.0, &order.1, from);
                }
                answer
            }
            Err(refusal) => refusal,
        };
        let mut answer = match right {
            Right::Exchange(proven) => self.access.seal(answer, proven.as_ref(), now).await,
            Right::Open | Right::Read | Right::All => answer,
        };
        if plane.is_succeeded.load(Ordering::Relaxed) {
            // The next question goes to the process that has taken over.
            let close = HeaderValue::from_static("close");
            answer.headers_mut().insert(CONNECTION, close);
        }
        if let Some(seat) = known {
            self.seats().end(seat);
        }
        answer
    }
}

/// The body of an override; that of anything else is not read.
async fn read<B>(head: &Parts, body: B) -> Result<Bytes, Answer>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    if !api::takes_body(&head.method, head.uri.path()) {
        return Ok(Bytes::new());
    }
    let whole = Limited::new(body, BODY_BYTES_MAX).collect();
    match timeout(BODY_TIMEOUT, whole).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(_)) => Err(api::error(
            StatusCode::PAYLOAD_TOO_LARGE,
            "the override is too long, or broke off",
        )),
        Err(_) => Err(api::error(
            StatusCode::REQUEST_TIMEOUT,
            "the override did not come in time",
        )),
    }
}

/// What a thread that panicked left behind is still a list of seats.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::seats::SEATS_MAX;
    use crate::testing;

    #[test]
    fn a_connection_that_is_over_leaves_its_seat() {
        let (_driver, plane) = testing::plane();
        let desk = Desk::new(move || Arc::clone(&plane), Access::default(), Output::QUIET);
        let from = IpAddr::V4(Ipv4Addr::LOCALHOST);
        testing::runtime().block_on(async {
            for _ in 0..=SEATS_MAX {
                let closed = desk.seats().make_room(from);
                assert!(closed.is_ok_and(|closed| closed.is_none()));
                let task = tokio::spawn(async {}).abort_handle();
                let seat = desk.seats().take(from, |_| task);
                let (stream, client) = tokio::io::duplex(64);
                drop(client);
                desk.serve(stream, from, seat).await;
            }
        });
    }
}
