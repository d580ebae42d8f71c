//! HTTP/1.1 on hyper, connections kept alive: what the real and the emulated server share.

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustix::net::{AddressFamily, SocketType, listen, socket};
use tokio::task::JoinSet;

/// Time from a request's arrival to its end here, microseconds: tells the node's time from
/// that of the network and the front-end.
pub const TOOK_HEADER: &str = "x-lab-took-us";
/// What a request of any path wants, as the query of `/work` says it: `cpu=1500us`. URLs can then look like
/// those of a site.
pub const WORK_HEADER: &str = "x-lab-work";
/// What `file=` found: `hit` or `miss`.
pub const CACHE_HEADER: &str = "x-lab-cache";
/// Connections that the kernel may hold for us.
const BACKLOG: i32 = 4096;
/// Wait after a failed accept: mostly too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// An answer.
pub type Answer = Response<Full<Bytes>>;

/// What a request found in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Its file.
    Hit,
    /// Not its file: it is there from now on.
    Miss,
}

/// A listener that can be bound again at once after the last one was killed.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
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

/// Answers all requests that come. Dropping this closes all connections.
pub async fn accept<F, A>(listener: tokio::net::TcpListener, answer: F)
where
    F: Fn(Request<Incoming>) -> A + Clone + Send + Sync + 'static,
    A: Future<Output = Answer> + Send + 'static,
{
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        // Without it answers are only slower.
        stream.set_nodelay(true).ok();
        let answer = answer.clone();
        let service = service_fn(move |request| {
            let answer = answer(request);
            async move { Ok::<_, Infallible>(answer.await) }
        });
        let connection = hyper::server::conn::http1::Builder::new()
            .serve_connection(TokioIo::new(stream), service);
        connections.spawn(async move {
            // A client that breaks off is no concern of the server's.
            connection.await.ok();
        });
    }
}

/// What the request says of the work that it is: in its header, or of `/work` in the query; none if it is no work.
pub fn asked<B>(request: &Request<B>) -> Option<&str> {
    match request.headers().get(WORK_HEADER) {
        // What is no text is no parameter either, and is answered so.
        Some(work) => Some(work.to_str().unwrap_or("?")),
        None if request.uri().path() == "/work" => Some(request.uri().query().unwrap_or_default()),
        None => None,
    }
}

/// The answer to a request that was worked on.
pub fn done(bytes: u64, took: Duration, found: Option<Found>) -> Answer {
    let mut response = Response::new(Full::new(body(bytes)));
    let headers = response.headers_mut();
    let took = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
    headers.insert(TOOK_HEADER, took.into());
    if let Some(found) = found {
        let found = match found {
            Found::Hit => "hit",
            Found::Miss => "miss",
        };
        headers.insert(CACHE_HEADER, HeaderValue::from_static(found));
    }
    response
}

/// An answer in a sentence.
pub fn text(status: StatusCode, text: &str) -> Answer {
    let mut response = Response::new(Full::new(Bytes::copy_from_slice(text.as_bytes())));
    *response.status_mut() = status;
    response
}

/// The answer to an unknown path.
pub fn unknown(path: &str) -> Answer {
    text(
        StatusCode::NOT_FOUND,
        &format!(
            "{path}: there are /work, /slow and /health, and any path with `{WORK_HEADER}: cpu=1500us`\n"
        ),
    )
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_asked_for_in_a_header_or_in_the_query() {
        let request = |uri: &str, work: Option<&[u8]>| {
            let mut request = Request::new(());
            *request.uri_mut() = uri.parse().unwrap();
            if let Some(work) = work {
                let work = HeaderValue::from_bytes(work).unwrap();
                request.headers_mut().insert(WORK_HEADER, work);
            }
            request
        };
        for (uri, work, expected) in [
            ("/work?cpu=1ms", None, Some("cpu=1ms")),
            ("/work", None, Some("")),
            ("/item/17?cpu=1ms", None, None),
            ("/item/17?a=b", Some(&b"cpu=2ms"[..]), Some("cpu=2ms")),
            ("/work?cpu=1ms", Some(b"cpu=2ms"), Some("cpu=2ms")),
            ("/item/17", Some(b"\xff"), Some("?")),
        ] {
            assert_eq!(asked(&request(uri, work)), expected, "{uri}");
        }
    }
}
