//! One stream of HTTP/2, from its request to the last frame of its answer.
//!
//! | the stream | then |
//! |---|---|
//! | is reset by its client, or its connection ends | the request ends as cancelled, wherever it is |
//! | has a client that does not take its answer, by its window or its socket, for as long as a client may | reset with `CANCEL` |
//! | has an answer that breaks off | reset with `INTERNAL_ERROR` |
//! | asks for a WebSocket (RFC 8441), and its node agrees | carries its bytes both ways |
//! | has its whole answer before its whole request | the rest of the request is not wanted: reset with `NO_ERROR` (RFC 9113 §8.1) |

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::ext::Protocol;
use h2::server::SendResponse;
use h2::{Reason as Code, RecvStream, SendStream};
use http::header::DATE;
use http::{HeaderValue, Request, Response, Version, response};
use http_body::Body;
use ring::rand::{SecureRandom as _, SystemRandom};

use super::super::clients::Registered;
use super::super::respond::{Service, respond};
use super::Streams;
use super::tunnel::TunnelIo;
use crate::connection::{ClientConnection, Phase};
use crate::head::http2::{self, BodyLength};
use crate::record::reason::Reason;
use crate::request::{Client, RequestGuard};
use crate::response::{ResponseBody, Tunnel, refused};
use crate::wire::client_body::{ClientBody, StreamBody};
use crate::wire::frames::FrameAccount;

/// Why a stream ends before its answer is out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Break {
    /// The client has reset it, or the connection is gone.
    Gone,
    /// A drain has run out of time, or the node is given up.
    Cut,
    /// The client does not take its answer.
    Stalled,
    /// The answer breaks off.
    Broken,
}

/// Serves it.
pub(super) async fn serve(
    streams: Rc<Streams>,
    client: Rc<Client>,
    request: Request<RecvStream>,
    answer: SendResponse<Bytes>,
) {
    let registered = Registered::of_stream(&streams.clients, &client);
    serve_registered(&streams, &client, request, answer).await;
    drop(registered);
    streams.end(client);
}

async fn serve_registered(
    streams: &Streams,
    client: &Rc<Client>,
    request: Request<RecvStream>,
    mut answer: SendResponse<Bytes>,
) {
    let (connection, account) = (&*client.connection, &streams.account);
    let (response, tunnel) = match response(client, account, request, &mut answer).await {
        Ok(answered) => answered,
        Err(end) => {
            if end == Break::Gone {
                account.on_given_up(connection.base.tick());
            }
            return answer.send_reset(code(end));
        }
    };
    account.on_answer();
    let (mut head, body) = to_http2(connection, response);
    if let Some((tunnel, incoming)) = tunnel {
        http2::agree_to_tunnel(&mut head);
        if let Ok(out) = answer.send_response(Response::from_parts(head, ()), false) {
            let io = TunnelIo::new(incoming, out, Rc::clone(account));
            tunnel.run(client, io, Bytes::new()).await;
        }
        return;
    }
    let head = Response::from_parts(head, ());
    let is_whole = body.is_end_stream();
    // It fails where the client has reset the stream.
    let Ok(mut out) = answer.send_response(head, is_whole) else {
        return;
    };
    if is_whole {
        return;
    }
    let mut sending = Sending {
        client,
        account,
        body,
        chunk: Bytes::new(),
    };
    let sent = poll_fn(|context| sending.poll(&mut out, context)).await;
    let Err(end) = sent else { return };
    match end {
        Break::Gone | Break::Broken => {}
        Break::Cut => {
            let reason = connection.base.drain.cut_for.get();
            connection.abandon.set(reason);
        }
        Break::Stalled => connection.abandon.set(match connection.is_slow() {
            _ if connection.is_overdue() => Reason::TotalTimeout,
            true => Reason::AnswerSlow,
            false => Reason::ClientStalled,
        }),
    }
    out.send_reset(code(end));
}

/// What its client reads of it.
fn code(end: Break) -> Code {
    match end {
        Break::Gone | Break::Cut | Break::Stalled => Code::CANCEL,
        Break::Broken => Code::INTERNAL_ERROR,
    }
}

/// The answer, and the tunnel that it agrees to, with what comes from the client.
type Answered = (Response<ResponseBody>, Option<(Box<Tunnel>, RecvStream)>);

/// The answer, while the client waits for it.
async fn response(
    client: &Rc<Client>,
    account: &Rc<FrameAccount>,
    request: Request<RecvStream>,
    answer: &mut SendResponse<Bytes>,
) -> Result<Answered, Break> {
    let connection = &client.connection;
    // What takes the request on wakes this task.
    poll_fn(|context| {
        connection.register(context.waker());
        Poll::Ready(())
    })
    .await;
    let (request, incoming) = match received(client, account, request) {
        Ok(request) => request,
        Err(refusal) => return Ok((*refusal, None)),
    };
    let asks_tunnel = incoming.is_some();
    let service = Rc::new(Service {
        client: Rc::clone(client),
        tunnel: Cell::new(None),
    });
    let mut answering = pin!(respond(&service, request));
    let answered = poll_fn(|context| {
        connection.register(context.waker());
        if connection.cut.get() {
            let reason = connection.base.drain.cut_for.get();
            connection.abandon.set(reason);
            return Poll::Ready(Err(Break::Cut));
        }
        if answer.poll_reset(context).is_ready() {
            return Poll::Ready(Err(Break::Gone));
        }
        let polled = answering.as_mut().poll(context);
        if polled.is_pending() && connection.is_uploading() {
            // The response may wait for a client that itself waits until its body is taken.
            client.drive();
        }
        send_interims(connection, answer);
        let Ok(response) = ready!(polled);
        Poll::Ready(Ok(response))
    });
    let response = answered.await?;
    let tunnel = service.tunnel.take().zip(incoming);
    if tunnel.is_none() && asks_tunnel && response.status().is_success() {
        // To the client this would be an agreement.
        connection.abandon.set(Reason::BadResponse);
        return Err(Break::Broken);
    }
    Ok((response, tunnel))
}

/// A request, and what comes from its client if it asks for a tunnel.
type Received = (Request<ClientBody>, Option<RecvStream>);

/// The request in the form that all behind knows, or its refusal.
fn received(
    client: &Rc<Client>,
    account: &Rc<FrameAccount>,
    request: Request<RecvStream>,
) -> Result<Received, Box<Response<ResponseBody>>> {
    let (mut head, stream) = request.into_parts();
    let fields_max = client.connection.settings.limits().fields;
    let protocol = head.extensions.remove::<Protocol>();
    let is_tunnel =
        protocol.is_some_and(|protocol| http2::receive_tunnel(&mut head, protocol.as_str(), nonce));
    let has_body = !is_tunnel && !stream.is_end_stream();
    let length = match http2::receive(&mut head, has_body) {
        Ok(_) if head.headers.len() > fields_max => Err(Reason::HeadTooLarge),
        received => received,
    };
    match length {
        Ok(_) if is_tunnel => {
            http2::ask_tunnel(&mut head.headers);
            let request = Request::from_parts(head, ClientBody::Empty);
            Ok((request, Some(stream)))
        }
        Ok(length) => {
            let length = match length {
                BodyLength::None => Some(0),
                BodyLength::Known(length) => Some(length),
                BodyLength::Unknown => None,
            };
            let body = StreamBody::new(stream, Rc::clone(account), length);
            let request = Request::from_parts(head, ClientBody::Http2(body));
            Ok((request, None))
        }
        Err(reason) => {
            let guard = RequestGuard::begin(client, &Request::from_parts(head, ()));
            Err(Box::new(refused(guard, reason)))
        }
    }
}

/// Interim responses of the node, and our own, before the answer.
fn send_interims(connection: &ClientConnection, answer: &mut SendResponse<Bytes>) {
    let mut interims = connection.interims.borrow_mut();
    if interims.is_empty() {
        return;
    }
    for interim in http2::interims(&interims) {
        // It fails where the client has reset the stream, which is seen with the next look.
        answer.send_informational(interim).unwrap_or_default();
    }
    interims.clear();
}

/// The head as it goes out, and what follows it.
fn to_http2(
    connection: &ClientConnection,
    response: Response<ResponseBody>,
) -> (response::Parts, ResponseBody) {
    let (mut head, body) = response.into_parts();
    http2::strip(&mut head.headers);
    head.version = Version::HTTP_2;
    if !head.headers.contains_key(DATE) {
        // RFC 9110 §6.6.1: where the node gave none, and in answers of our own.
        let now = connection.base.clock.unix(connection.base.now());
        if let Ok(date) = HeaderValue::try_from(httpdate::fmt_http_date(now)) {
            head.headers.insert(DATE, date);
        }
    }
    (head, body)
}

/// An answer's body on its way out.
struct Sending<'a> {
    client: &'a Client,
    account: &'a FrameAccount,
    body: ResponseBody,
    /// What waits for the client's window, or for its socket.
    chunk: Bytes,
}

impl Sending<'_> {
    /// Ready when all is handed over.
    fn poll(
        &mut self,
        out: &mut SendStream<Bytes>,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Break>> {
        let connection = &self.client.connection;
        connection.register(context.waker());
        if connection.cut.get() {
            return Poll::Ready(Err(Break::Cut));
        }
        if out.poll_reset(context).is_ready() {
            return Poll::Ready(Err(Break::Gone));
        }
        loop {
            if self.chunk.is_empty() && ready!(self.poll_body(out, context))? {
                return Poll::Ready(Ok(()));
            }
            if !self.chunk.is_empty() && ready!(self.poll_send(out, context))? {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Takes the next chunk. True if there is none, and the client knows.
    fn poll_body(
        &mut self,
        out: &mut SendStream<Bytes>,
        context: &mut Context<'_>,
    ) -> Poll<Result<bool, Break>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if polled.is_pending() && self.client.connection.is_uploading() {
            self.client.drive();
        }
        let sent = match ready!(polled) {
            None => out.send_data(Bytes::new(), true),
            Some(Err(_)) => return Poll::Ready(Err(Break::Broken)),
            Some(Ok(frame)) => match frame.into_data() {
                Ok(chunk) => {
                    self.chunk = chunk;
                    return Poll::Ready(Ok(false));
                }
                Err(frame) => {
                    // What is neither data nor trailers does not exist yet.
                    let mut trailers = frame.into_trailers().unwrap_or_default();
                    http2::strip(&mut trailers);
                    out.send_trailers(trailers)
                }
            },
        };
        Poll::Ready(sent.map(|()| true).map_err(|_| Break::Gone))
    }

    /// Hands on as much of the chunk as the client takes. True if that was the end.
    fn poll_send(
        &mut self,
        out: &mut SendStream<Bytes>,
        context: &mut Context<'_>,
    ) -> Poll<Result<bool, Break>> {
        let connection = &self.client.connection;
        let Poll::Ready(room) = self.poll_room(out, context)? else {
            connection.stand_still();
            // A body that the client does not ask on for cannot look by itself.
            return match connection.take_late() {
                true => Poll::Ready(Err(Break::Stalled)),
                false => Poll::Pending,
            };
        };
        let piece = self.chunk.split_to(room.min(self.chunk.len()));
        let bytes = piece.len() as u64;
        let is_last = self.chunk.is_empty() && self.body.is_end_stream();
        self.account.on_data(bytes);
        out.send_data(piece, is_last).map_err(|_| Break::Gone)?;
        match connection.phase() {
            Phase::Body => connection.on_body_bytes(bytes),
            // The request is over, and the rest of its answer goes out.
            Phase::Idle | Phase::Head | Phase::Busy | Phase::Tunnel => {
                connection.extend(connection.ticks().client_idle);
            }
        }
        Poll::Ready(Ok(is_last))
    }

    /// How much the client takes, once it takes something.
    fn poll_room(
        &self,
        out: &mut SendStream<Bytes>,
        context: &mut Context<'_>,
    ) -> Poll<Result<usize, Break>> {
        let room = ready!(poll_window(out, self.account, self.chunk.len(), context));
        Poll::Ready(room.ok_or(Break::Gone))
    }
}

/// How many bytes of so many the client takes, once it takes some; none if it is gone.
pub(super) fn poll_window(
    out: &mut SendStream<Bytes>,
    account: &FrameAccount,
    bytes: usize,
    context: &mut Context<'_>,
) -> Poll<Option<usize>> {
    ready!(account.poll_room(context));
    out.reserve_capacity(bytes);
    while out.capacity() == 0 {
        match ready!(out.poll_capacity(context)) {
            Some(Ok(_)) => {}
            Some(Err(_)) | None => return Poll::Ready(None),
        }
    }
    Poll::Ready(Some(out.capacity()))
}

/// What sets a WebSocket's request apart from others.
fn nonce() -> [u8; 16] {
    let mut bytes = [0; 16];
    // Without randomness it is one that is not; nothing is kept safe by it (RFC 6455 §10.3).
    SystemRandom::new().fill(&mut bytes).unwrap_or_default();
    bytes
}
