//! One question over HTTP/1.1 to an API that announces nodes: bounded in time and size, over TLS or to this machine.
//!
//! Token and certificates are read for each question, since those who hand them out replace them. A secret leaves this
//! machine under TLS only. No redirect is followed, and no proxy is used.

mod lines;
mod server;
mod session;
#[cfg(test)]
pub(crate) mod testing;

use std::convert::Infallible;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::{Body, Bytes, Incoming};
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper::header::{ACCEPT, HOST, HeaderName, HeaderValue, USER_AGENT};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::source::SourceError;
pub(crate) use lines::Lines;
pub use server::{ServerError, ServerUrl};
pub use session::{Answer, Session};

/// Most bytes of an answer's head, and most fields.
const HEAD_BYTES_MAX: usize = 64 << 10;
const FIELDS_MAX: usize = 100;
/// Most bytes of a refusal that are read for its reason.
const REFUSAL_BYTES_MAX: usize = 16 << 10;
/// Most bytes of a file with a token or certificates.
const FILE_BYTES_MAX: usize = 1 << 20;

/// Where a token is, and how it is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TokenFile<'a> {
    /// The file; nothing but the token is in it.
    pub(crate) path: &'a Path,
    /// The field that it is sent in.
    pub(crate) field: &'static str,
    /// What stands before it there.
    pub(crate) scheme: &'static str,
}

/// A question.
#[derive(Clone, Debug)]
pub(crate) struct Question<'a> {
    /// The server.
    pub(crate) server: &'a ServerUrl,
    /// Certificates, in PEM, of which one has signed the server's.
    pub(crate) ca_file: Option<&'a Path>,
    /// What proves who asks.
    pub(crate) token: Option<TokenFile<'a>>,
    /// Path and query.
    pub(crate) target: String,
    /// Time until the answer's head is there.
    pub(crate) timeout: Duration,
}

/// An answer whose body can be read. The connection ends with it.
#[derive(Debug)]
pub(crate) struct Reply {
    response: Response<Incoming>,
    connection: Connection,
}

/// What drives a connection, until this is dropped.
#[derive(Debug)]
struct Connection(JoinHandle<()>);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Question<'_> {
    /// Asks it. A refusal is an error with the reason that the server gives.
    pub(crate) async fn ask(&self) -> Result<Reply, SourceError> {
        let limit = self.timeout;
        let reply = tokio::time::timeout(limit, async {
            let reply = self.send().await?;
            match reply.response.status() {
                StatusCode::OK => Ok(reply),
                status => Err(refusal(status, reply).await),
            }
        });
        reply.await.map_err(|_| SourceError::TimedOut(limit))?
    }

    async fn send(&self) -> Result<Reply, SourceError> {
        let request = self.request()?;
        let stream = connect(self.server, self.ca_file, self.token.is_some()).await?;
        let (mut sender, connection) = handshake(stream).await?;
        let response = sender.send_request(request).await;
        Ok(Reply {
            response: response.map_err(SourceError::unreachable)?,
            connection,
        })
    }

    fn request(&self) -> Result<Request<Empty<Bytes>>, SourceError> {
        let mut request = Request::get(&self.target)
            .header(HOST, self.server.authority())
            .header(ACCEPT, "application/json")
            .header(USER_AGENT, "tidegate");
        if let Some(token) = &self.token {
            let secret = read(token.path)?;
            let secret = String::from_utf8(secret).unwrap_or_default();
            let value = format!("{}{}", token.scheme, secret.trim());
            let value = HeaderValue::try_from(value).map_err(|_| {
                SourceError::unreachable(format!("{}: no token", token.path.display()))
            })?;
            request = request.header(HeaderName::from_static(token.field), value);
        }
        let request = request.body(Empty::new());
        request.map_err(SourceError::unreachable)
    }
}

impl Reply {
    /// A field of its head.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.response.headers().get(name)?.to_str().ok()
    }

    /// The whole body as JSON, of at most so many bytes, and within this time.
    pub(crate) async fn json<T: DeserializeOwned>(
        self,
        bytes_max: usize,
        limit: Duration,
    ) -> Result<T, SourceError> {
        let body = tokio::time::timeout(limit, self.body(bytes_max));
        let body = body.await.map_err(|_| SourceError::TimedOut(limit))??;
        serde_json::from_slice(&body).map_err(SourceError::malformed)
    }

    async fn body(self, bytes_max: usize) -> Result<Bytes, SourceError> {
        whole(self.response.into_body(), bytes_max).await
    }

    /// The body as a stream of lines, each of at most so many bytes.
    pub(crate) fn lines(self, bytes_max: usize) -> Lines {
        Lines::new(self.response.into_body(), self.connection, bytes_max)
    }
}

/// A connection to a server, over TLS or not.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Connects. What is secret is sent over TLS or to this machine.
async fn connect(
    server: &ServerUrl,
    ca_file: Option<&Path>,
    is_secret: bool,
) -> Result<Box<dyn Stream>, SourceError> {
    let unreachable =
        |error: std::io::Error| SourceError::unreachable(format!("{server}: {error}"));
    let address = (server.host(), server.port());
    let stream = TcpStream::connect(address).await.map_err(unreachable)?;
    if !server.is_tls() {
        let peer = stream.peer_addr().map_err(unreachable)?;
        if is_secret && !peer.ip().to_canonical().is_loopback() {
            let why = format!("{server}: a token is sent over https only, or to this machine");
            return Err(SourceError::unreachable(why));
        }
        stream.set_nodelay(true).map_err(unreachable)?;
        return Ok(Box::new(stream));
    }
    let connector = TlsConnector::from(Arc::new(trust(ca_file)?));
    let name = server.tls_name().map_err(SourceError::unreachable)?;
    let stream = connector.connect(name, stream).await;
    Ok(Box::new(stream.map_err(unreachable)?))
}

/// The certificates that count now.
fn trust(ca_file: Option<&Path>) -> Result<ClientConfig, SourceError> {
    let Some(file) = ca_file else {
        let why = "https needs a file with the server's CA";
        return Err(SourceError::Unreachable(why.into()));
    };
    let bad = |why: &dyn std::fmt::Display| {
        SourceError::unreachable(format!("{}: {why}", file.display()))
    };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&read(file)?) {
        let certificate = certificate.map_err(|error| bad(&error))?;
        roots.add(certificate).map_err(|error| bad(&error))?;
    }
    if roots.is_empty() {
        return Err(bad(&"no certificate in it"));
    }
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions();
    let builder = builder.map_err(SourceError::unreachable)?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

async fn handshake<B>(stream: Box<dyn Stream>) -> Result<(SendRequest<B>, Connection), SourceError>
where
    B: Body<Data = Bytes, Error = Infallible> + Send + 'static,
{
    let mut builder = Builder::new();
    builder.max_buf_size(HEAD_BYTES_MAX).max_headers(FIELDS_MAX);
    let opened = builder.handshake(TokioIo::new(stream)).await;
    let (sender, connection) = opened.map_err(SourceError::unreachable)?;
    // What ends it ends the answer as well, with the reason.
    let drive = async { connection.await.unwrap_or_default() };
    Ok((sender, Connection(tokio::spawn(drive))))
}

/// A whole body of at most so many bytes.
async fn whole(body: Incoming, bytes_max: usize) -> Result<Bytes, SourceError> {
    let body = Limited::new(body, bytes_max).collect();
    let body = body.await.map_err(|error| {
        match error.downcast_ref::<http_body_util::LengthLimitError>() {
            Some(_) => SourceError::TooLong(bytes_max),
            None => SourceError::unreachable(error),
        }
    })?;
    Ok(body.to_bytes())
}

/// Why a server refuses.
async fn refusal(status: StatusCode, reply: Reply) -> SourceError {
    let body = reply.body(REFUSAL_BYTES_MAX).await.unwrap_or_default();
    refused(status, &body)
}

/// A server's own sentence, if there is one.
fn refused(status: StatusCode, body: &[u8]) -> SourceError {
    #[derive(serde::Deserialize)]
    struct Said {
        message: String,
    }
    let said = serde_json::from_slice::<Said>(body).map(|said| said.message);
    let said = said.unwrap_or_else(|_| String::from_utf8_lossy(body).into_owned());
    match status {
        StatusCode::GONE => SourceError::Expired,
        _ => SourceError::unreachable(format!("{status}: {}", said.trim())),
    }
}

/// A small file.
fn read(path: &Path) -> Result<Vec<u8>, SourceError> {
    let unreadable =
        |error: std::io::Error| SourceError::unreachable(format!("{}: {error}", path.display()));
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    let limit = FILE_BYTES_MAX as u64 + 1;
    file.take(limit)
        .read_to_end(&mut bytes)
        .map_err(unreadable)?;
    match bytes.len() > FILE_BYTES_MAX {
        true => Err(SourceError::TooLong(FILE_BYTES_MAX)),
        false => Ok(bytes),
    }
}
