//! A client connection from accept to close: hyper's connection, our deadlines, and what hyper
//! leaves to be done when it ends.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1::Connection;
use hyper::service::{HttpService, service_fn};
use tokio::net::TcpStream;

use crate::body::ResponseBody;
use crate::exchange;
use crate::io::ClientIo;
use crate::linger::linger;
use crate::reason::Reason;
use crate::refuse;
use crate::respond::respond;
use crate::seats::Seat;
use crate::session::{Phase, Session};
use crate::worker::{Registered, Worker};

/// How a connection ends.
enum End {
    /// hyper is done with it.
    Done(hyper::Result<()>),
    /// The head did not come in time.
    HeadTimeout,
    /// The client does not read.
    ClientStalled,
    /// A drain has run out of time.
    Cut,
}

/// Serves one connection.
pub(crate) async fn serve(worker: Rc<Worker>, stream: TcpStream, peer: SocketAddr, seat: Seat) {
    let session = Session::new(Rc::clone(&worker), peer.ip());
    let _registered = Registered::new(&session, seat);
    let io = ClientIo::new(stream, Rc::clone(&session));
    let service = {
        let session = Rc::clone(&session);
        service_fn(move |request: Request<Incoming>| respond(&session, request))
    };
    let mut connection = worker.server.serve_connection(io, service);
    let end = poll_fn(|context| poll(&session, &mut connection, context)).await;
    let limit = worker.config.timeouts.linger;
    match end {
        End::Done(result) => {
            let parts = connection.into_parts();
            if let Some(tunnel) = session.tunnel.take() {
                let stream = parts.io.into_stream();
                let kept = session.inflow.borrow_mut().take_kept();
                let early = [&parts.read_buf[..], &kept].concat();
                return tunnel.run(&session, stream, early.into()).await;
            }
            let malformed = session.malformed.take();
            let parse_error = result.is_err_and(|error| error.is_parse());
            if let Some(reason) = malformed.or(parse_error.then_some(Reason::BadRequest)) {
                exchange::enter_headless(&session, reason);
            }
            // An answer that came before the whole request must be read as well.
            let unread = session.inflow.borrow().is_in_body();
            if malformed.is_some() || parse_error || session.refused.get() || unread {
                linger(parts.io.into_stream(), None, limit).await;
            }
        }
        End::HeadTimeout => {
            exchange::enter_headless(&session, Reason::HeadTimeout);
            let stream = connection.into_parts().io.into_stream();
            let answer = refuse::ready_made(Reason::HeadTimeout);
            linger(stream, Some(answer), limit).await;
        }
        End::ClientStalled => session.abandon.set(match session.is_slow() {
            true => Reason::AnswerSlow,
            false => Reason::ClientStalled,
        }),
        End::Cut => session.abandon.set(worker.cut_for.get()),
    }
}

fn poll<S>(
    session: &Session,
    connection: &mut Connection<ClientIo, S>,
    context: &mut Context<'_>,
) -> Poll<End>
where
    S: HttpService<Incoming, ResBody = ResponseBody>,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    session.register(context.waker());
    if session.cut.get() {
        return Poll::Ready(End::Cut);
    }
    let mut connection = Pin::new(connection);
    if session.is_late() {
        match session.phase() {
            Phase::Head => return Poll::Ready(End::HeadTimeout),
            Phase::Idle => {
                session.take_late();
                connection.as_mut().graceful_shutdown();
            }
            // These look for themselves, in the service and in the body.
            Phase::Busy | Phase::Body | Phase::Tunnel => {}
        }
    }
    if let Poll::Ready(result) = connection.poll(context) {
        return Poll::Ready(End::Done(result));
    }
    if session.is_uploading() {
        // The response may wait for a client that itself waits until its body is taken.
        session.drive();
    }
    if session.is_late() && session.phase() == Phase::Body {
        return Poll::Ready(End::ClientStalled);
    }
    Poll::Pending
}
