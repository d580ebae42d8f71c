//! A client connection from accept to close: hyper's connection, our deadlines, and what hyper
//! leaves to be done when it ends.

use std::cell::Cell;
use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1::Connection;
use hyper::service::{HttpService, service_fn};

use super::clients::{Clients, Registered};
use super::handshake::handshake;
use super::http2;
use super::introduction::introduced;
use super::io::ClientIo;
use super::linger::linger;
use super::respond::{Responder, Service, respond};
use super::tcp;
use crate::connection::{ClientConnection, Phase};
use crate::gate::source::SourceSeat;
use crate::record::reason::Reason;
use crate::refusal::ready_made;
use crate::request::{Client, enter_headless};
use crate::response::ResponseBody;
use crate::stream::{Socket, Stream};
use crate::wire::client_body::ClientBody;
use crate::worker::seats::Seat;

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
    /// The client asks for nothing: hyper's buffers are not needed.
    Idle,
}

/// Serves one connection.
pub(crate) async fn serve(clients: Rc<Clients>, socket: Socket, client: Rc<Client>, seat: Seat) {
    let mut registered = Registered::new(&clients, &client, seat);
    let (client, socket) = match client.connection.plan.balancers.is_empty() {
        true => (client, socket),
        // In memory of its own, as below.
        false => match Box::pin(introduced(&client, socket)).await {
            Some((client, stream)) => {
                registered.become_of(&client);
                (client, stream.into())
            }
            None => return,
        },
    };
    // Before a handshake, which costs more than all that comes before it.
    let Some((_source, socket)) = within_limits(&client, socket).await else {
        return;
    };
    let stream = match &client.connection.plan.tls {
        None => Stream::Plain(socket),
        // In memory of its own, which is free again when it is over.
        Some(tls) => match Box::pin(handshake(&client, tls, socket)).await {
            Some(stream) => stream,
            None => return,
        },
    };
    let plan = &client.connection.plan;
    // Each in memory of its own: most connections are of the last kind.
    if let Some(site) = &plan.tcp_site {
        return Box::pin(tcp::serve(&client, stream, site)).await;
    }
    if stream.is_http2() || !plan.protocols.http1 {
        return Box::pin(http2::serve(&clients, &client, stream, Bytes::new())).await;
    }
    let service = Rc::new(Service {
        client: Rc::clone(&client),
        tunnel: Cell::new(None),
    });
    let mut io = ClientIo::new(stream, Rc::clone(&client.connection));
    loop {
        client.connection.begin_buffers();
        let mut served = (clients.builder.borrow()).serve_connection(io, answering(&service));
        let end = poll_fn(|context| poll(&client, &mut served, context)).await;
        if !matches!(end, End::Idle) {
            return Box::pin(ended(&clients, &service, served, end)).await;
        }
        io = served.into_parts().io;
        clients.on_emptied();
        poll_fn(|context| poll_idle(&client.connection, &mut io, context)).await;
    }
}

/// Waits until the client of an idle connection asks, or the connection is to end.
fn poll_idle(
    connection: &ClientConnection,
    io: &mut ClientIo,
    context: &mut Context<'_>,
) -> Poll<()> {
    connection.register(context.waker());
    match connection.cut.get() || connection.is_late() {
        true => Poll::Ready(()),
        false => io.poll_read_ready(context),
    }
}

/// What answers the requests of a connection of HTTP/1.
fn answering(
    service: &Rc<Service>,
) -> impl HttpService<Incoming, ResBody = ResponseBody, Error = Infallible, Future = Responder> + use<>
{
    let service = Rc::clone(service);
    service_fn(move |request: Request<Incoming>| {
        let inflow = &service.client.connection.inflow;
        inflow.borrow_mut().expect(request.body(), false);
        respond(&service, request.map(ClientBody::of_http1))
    })
}

/// hyper has come to an end with a connection: what is left to be done, which may be HTTP/2 or a tunnel.
async fn ended<S>(
    clients: &Rc<Clients>,
    service: &Service,
    served: Connection<ClientIo, S>,
    end: End,
) where
    S: HttpService<Incoming, ResBody = ResponseBody, Error = Infallible>,
{
    let client = &service.client;
    let limit = client.connection.settings.timeouts().linger;
    let connection = &client.connection;
    match end {
        End::Done(result) => {
            let parts = served.into_parts();
            if let Some(tunnel) = service.tunnel.take() {
                let early = read_so_far(connection, &parts.read_buf);
                return tunnel.run(client, parts.io.into_stream(), early).await;
            }
            if result.is_err() && connection.begins_http2() {
                let early = read_so_far(connection, &parts.read_buf);
                let stream = parts.io.into_stream();
                return http2::serve(clients, client, stream, early).await;
            }
            let malformed = connection.malformed.take();
            let parse_error = result.is_err_and(|error| error.is_parse());
            if let Some(reason) = malformed.or(parse_error.then_some(Reason::BadRequest)) {
                enter_headless(client, reason);
            }
            // An answer that came before the whole request must be read as well.
            let unread = connection.inflow.borrow().is_in_body();
            if malformed.is_some() || parse_error || connection.refused.get() || unread {
                linger(parts.io.into_stream(), None, limit).await;
            }
        }
        End::HeadTimeout => {
            enter_headless(client, Reason::HeadTimeout);
            let stream = served.into_parts().io.into_stream();
            let answer = ready_made(Reason::HeadTimeout);
            linger(stream, Some(answer), limit).await;
        }
        End::ClientStalled => connection.abandon.set(match connection.is_slow() {
            _ if connection.is_overdue() => Reason::TotalTimeout,
            true => Reason::AnswerSlow,
            false => Reason::ClientStalled,
        }),
        End::Cut => connection.abandon.set(connection.base.drain.cut_for.get()),
        End::Idle => {}
    }
}

/// What came and is for another to read: what hyper has of it, and what it has not.
fn read_so_far(connection: &ClientConnection, read: &[u8]) -> Bytes {
    let kept = connection.inflow.borrow_mut().take_kept();
    [read, &kept].concat().into()
}

/// The connection, and its place among those of its source; nothing if that has too many, and it was refused.
async fn within_limits(client: &Client, socket: Socket) -> Option<(Option<SourceSeat>, Socket)> {
    let (worker, connection) = (&client.worker, &client.connection);
    let clock = worker.base.clock.source();
    let begun = (worker.sources).begin(connection.client, &connection.settings, clock);
    match begun {
        Ok(seat) => Some((seat, socket)),
        Err(reason) => {
            enter_headless(client, reason);
            let answer = match connection.plan.tls {
                None => Some(ready_made(reason)),
                Some(_) => None,
            };
            let limit = connection.settings.timeouts().linger;
            // In memory of its own: most connections need none.
            Box::pin(linger(socket, answer, limit)).await;
            None
        }
    }
}

fn poll<S>(
    client: &Client,
    served: &mut Connection<ClientIo, S>,
    context: &mut Context<'_>,
) -> Poll<End>
where
    S: HttpService<Incoming, ResBody = ResponseBody, Error = Infallible>,
{
    let connection: &ClientConnection = &client.connection;
    connection.register(context.waker());
    if connection.cut.get() {
        return Poll::Ready(End::Cut);
    }
    let mut served = Pin::new(served);
    if connection.is_late() {
        match connection.phase() {
            Phase::Head => return Poll::Ready(End::HeadTimeout),
            Phase::Idle if connection.is_closing() => {
                connection.take_late();
                served.as_mut().graceful_shutdown();
            }
            // These look for themselves, in the service and in the body.
            Phase::Idle | Phase::Busy | Phase::Body | Phase::Tunnel => {}
        }
    }
    if let Poll::Ready(result) = served.poll(context) {
        return Poll::Ready(End::Done(result));
    }
    if connection.is_uploading() {
        // The response may wait for a client that itself waits until its body is taken.
        client.drive();
    }
    if connection.is_late() {
        match connection.phase() {
            Phase::Body => return Poll::Ready(End::ClientStalled),
            Phase::Idle if connection.end_buffers() => return Poll::Ready(End::Idle),
            Phase::Idle | Phase::Head | Phase::Busy | Phase::Tunnel => {}
        }
    }
    Poll::Pending
}
