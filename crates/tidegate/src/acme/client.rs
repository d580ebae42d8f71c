//! HTTP with an authority: each question over a connection of its own, by TLS alone, bounded in time and size. No redirect is followed, and
//! no proxy is used.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{HOST, HeaderValue, USER_AGENT};
use http::{Request, Uri};
use http_body_util::{BodyExt as _, Limited};
use hyper::client::conn::http1::Builder;
use hyper_util::rt::TokioIo;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use tidegate_proxy::Authorities;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::ServerName;

/// Time for a question and its answer.
const TIME_MAX: Duration = Duration::from_secs(30);
/// Bytes of an answer's head and of its body: chains of certificates have some thousands.
const HEAD_MAX: usize = 64 << 10;
const BODY_MAX: usize = 1 << 20;
/// The usual port.
const HTTPS: u16 = 443;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
#[error("{url}: {why}")]
struct NoAnswer {
    url: Uri,
    why: String,
}

/// See the module.
pub(super) struct Client {
    authorities: Authorities,
}

impl Client {
    /// One that believes servers with certificates of these.
    pub(super) fn new(authorities: &Authorities) -> Self {
        let authorities = authorities.clone();
        Self { authorities }
    }
}

/// What a server must show.
fn trust(authorities: &Authorities) -> Result<TlsConnector, String> {
    let roots = authorities.roots().map_err(|error| error.to_string())?;
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| error.to_string())?;
    let config = builder.with_root_certificates(roots).with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

impl HttpClient for Client {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let tls = trust(&self.authorities);
        Box::pin(async move {
            let url = request.uri().clone();
            let asking = async { ask(&tls?, request).await };
            let answer = match tokio::time::timeout(TIME_MAX, asking).await {
                Ok(answer) => answer,
                Err(_) => Err(format!("no answer within {} s", TIME_MAX.as_secs())),
            };
            answer.map_err(|why| Error::Other(Box::new(NoAnswer { url, why })))
        })
    }
}

async fn ask(
    tls: &TlsConnector,
    request: Request<BodyWrapper<Bytes>>,
) -> Result<BytesResponse, String> {
    let mut request = request;
    let uri = request.uri().clone();
    if uri.scheme_str() != Some("https") {
        return Err("an authority is asked by https alone".into());
    }
    let authority = uri.authority().ok_or("no host")?;
    let host = authority.host().trim_matches(['[', ']']);
    let port = authority.port_u16().unwrap_or(HTTPS);
    let said = |error: std::io::Error| error.to_string();
    let stream = TcpStream::connect((host, port)).await.map_err(said)?;
    let name = ServerName::try_from(host.to_owned()).map_err(|error| error.to_string())?;
    let stream = tls.connect(name, stream).await.map_err(said)?;
    let named = HeaderValue::try_from(authority.as_str()).map_err(|error| error.to_string())?;
    let target = uri.path_and_query().map_or("/", |it| it.as_str());
    *request.uri_mut() = target.parse().map_err(|_| "no path")?;
    request.headers_mut().insert(HOST, named);
    let agent = HeaderValue::from_static(concat!("tidegate/", env!("CARGO_PKG_VERSION")));
    request.headers_mut().insert(USER_AGENT, agent);
    let mut builder = Builder::new();
    builder.max_buf_size(HEAD_MAX);
    let opened = builder.handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = opened.map_err(|error| error.to_string())?;
    let asking = async {
        let response = sender.send_request(request).await;
        let (parts, body) = response.map_err(|error| error.to_string())?.into_parts();
        let body = Limited::new(body, BODY_MAX).collect().await;
        let body = body.map_err(|error| error.to_string())?.to_bytes();
        Ok(BytesResponse {
            parts,
            body: Box::new(body),
        })
    };
    let driving = async {
        // What ends the connection ends the answer as well, with the reason.
        connection.await.unwrap_or_default();
        std::future::pending().await
    };
    tokio::select! {
        answer = asking => answer,
        never = driving => never,
    }
}
