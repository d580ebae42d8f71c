//! Clients of HTTP/2: one that keeps the protocol, and raw frames for what none would send.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use bytes::Bytes;
use h2::client::{self, ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use http::{HeaderMap, Request, Response};
use tokio::runtime::Builder;

use super::PATIENCE;

/// What a client says before all else (RFC 9113 §3.4).
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// An empty `SETTINGS`.
pub(crate) const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const GOAWAY: u8 = 7;
/// A code that a connection may end with (RFC 9113 §7).
pub(crate) const ENHANCE_YOUR_CALM: u32 = 11;
pub(crate) const CANCEL: u32 = 8;

/// Runs a client to its end, which must come in time.
pub(crate) fn run<T>(work: impl Future<Output = T>) -> T {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let done = tokio::time::timeout(PATIENCE, work).await;
        done.expect("the client is done in time")
    })
}

/// Waits until something holds, while the connections go on.
pub(crate) async fn until(holds: impl Fn() -> bool) {
    while !holds() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A connection without TLS.
pub(crate) struct Connection {
    sender: SendRequest<Bytes>,
    /// How the connection has ended, once it has.
    ended: tokio::task::JoinHandle<Result<(), h2::Error>>,
}

impl Connection {
    pub(crate) async fn open(to: SocketAddr) -> Self {
        Self::open_by(to, &client::Builder::new()).await
    }

    /// One with windows of its own, say.
    pub(crate) async fn open_by(to: SocketAddr, builder: &client::Builder) -> Self {
        let stream = tokio::net::TcpStream::connect(to).await.unwrap();
        let (sender, connection) = builder.handshake(stream).await.unwrap();
        let ended = tokio::spawn(connection);
        Self { sender, ended }
    }

    /// Waits for its end.
    pub(crate) async fn ended(self) -> Result<(), h2::Error> {
        // A client that has nothing more to ask would close it.
        let kept = self.sender;
        let ended = self.ended.await.unwrap();
        drop(kept);
        ended
    }

    /// Whether the server takes WebSockets, once its settings are here.
    pub(crate) fn takes_tunnels(&self) -> bool {
        self.sender.is_extended_connect_protocol_enabled()
    }

    /// Begins a request whose body follows.
    pub(crate) async fn begin(
        &mut self,
        request: Request<()>,
        ends: bool,
    ) -> (ResponseFuture, SendStream<Bytes>) {
        let mut ready = self.sender.clone().ready().await.unwrap();
        ready.send_request(request, ends).unwrap()
    }

    /// A request without a body, and its answer.
    pub(crate) async fn ask(&mut self, request: Request<()>) -> Answer {
        let (answer, _) = self.begin(request, true).await;
        Answer::read(answer).await.unwrap()
    }

    /// GET of a path of `shop.example`.
    pub(crate) async fn get(&mut self, path: &str) -> Answer {
        self.ask(get(path)).await
    }
}

/// GET of a path of `shop.example`.
pub(crate) fn get(path: &str) -> Request<()> {
    let uri = format!("http://shop.example{path}");
    Request::get(uri).body(()).unwrap()
}

/// POST to a path of `shop.example`.
pub(crate) fn post(path: &str) -> Request<()> {
    let uri = format!("http://shop.example{path}");
    Request::post(uri).body(()).unwrap()
}

/// An answer that has come whole.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Option<HeaderMap>,
}

impl Answer {
    pub(crate) async fn read(answer: ResponseFuture) -> Result<Self, h2::Error> {
        let (head, mut stream) = answer.await?.into_parts();
        let mut body = Vec::new();
        while let Some(data) = stream.data().await {
            let data = data?;
            body.extend_from_slice(&data);
            stream.flow_control().release_capacity(data.len())?;
        }
        Ok(Self {
            status: head.status.as_u16(),
            headers: head.headers,
            body,
            trailers: stream.trailers().await?,
        })
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name);
        value.map_or("", |value| value.to_str().unwrap())
    }
}

/// Sends so many bytes, as far as there is room.
pub(crate) async fn send(out: &mut SendStream<Bytes>, mut bytes: usize) {
    while bytes > 0 {
        out.reserve_capacity(bytes.min(16 << 10));
        let capacity = std::future::poll_fn(|context| out.poll_capacity(context)).await;
        let piece = capacity.unwrap().unwrap().min(bytes);
        out.send_data(vec![b'x'; piece].into(), false).unwrap();
        bytes -= piece;
    }
    out.send_data(Bytes::new(), true).unwrap();
}

/// The head of an answer, and what follows it.
pub(crate) async fn head_of(answer: ResponseFuture) -> (Response<()>, RecvStream) {
    let (head, stream) = answer.await.unwrap().into_parts();
    (Response::from_parts(head, ()), stream)
}

/// A frame: length, type, flags, stream (RFC 9113 §4.1).
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let stream = stream.to_be_bytes();
    [&length[1..], &[kind, flags], &stream, payload].concat()
}

/// The fields of `GET http://shop.example/`, and a request that ends with them, as a frame.
pub(crate) fn headers_frame(stream: u32) -> Vec<u8> {
    // Indexed: `:method: GET`, `:scheme: http`, `:path: /`; a literal `:authority`.
    let mut fields = vec![0x82, 0x86, 0x84, 0x41, 12];
    fields.extend_from_slice(b"shop.example");
    frame(1, 0b101, stream, &fields)
}

/// A connection of raw frames.
pub(crate) struct Raw(pub(crate) TcpStream);

impl Raw {
    /// One that has said its preface and settings.
    pub(crate) fn open(to: SocketAddr) -> Self {
        let mut stream = TcpStream::connect(to).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(PREFACE).unwrap();
        stream.write_all(SETTINGS).unwrap();
        Self(stream)
    }

    /// The next frame: type, stream, payload; none at the end.
    pub(crate) fn next(&mut self) -> Option<(u8, u32, Vec<u8>)> {
        let mut head = [0; 9];
        // A reset is an end as well.
        self.0.read_exact(&mut head).ok()?;
        let [a, b, c, kind, _, stream @ ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        self.0.read_exact(&mut payload).ok()?;
        Some((kind, u32::from_be_bytes(stream), payload))
    }

    /// Reads to a frame of this type: its stream and payload.
    pub(crate) fn until(&mut self, kind: u8) -> Option<(u32, Vec<u8>)> {
        loop {
            let (found, stream, payload) = self.next()?;
            if found == kind {
                return Some((stream, payload));
            }
        }
    }

    /// The code with which the connection ends, if it says one.
    pub(crate) fn goodbye(&mut self) -> Option<u32> {
        let mut code = None;
        while let Some((kind, _, payload)) = self.next() {
            if kind == GOAWAY {
                code = Some(u32::from_be_bytes(payload[4..8].try_into().unwrap()));
            }
        }
        code
    }
}
