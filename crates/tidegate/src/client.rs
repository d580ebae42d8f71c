//! The command line's side of the admin API: where the front-end is, one request, one answer.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use http::header::{AUTHORIZATION, HOST};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::config::Config;
use crate::failure::Failure;
use crate::models::{ApiError, OPERATOR_HEADER, OVERRIDE_HEADER};
use crate::token::Token;

/// Where a front-end's admin interface is, if nothing else is said.
const ADMIN_ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9900);
/// Holds the admin token for commands that are given no file.
const TOKEN_VARIABLE: &str = "TIDEGATE_TOKEN";
/// Longest wait for an answer: all that it needs is in the front-end's memory.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(5);
/// Largest answer, bytes: a status of ten thousand nodes.
const ANSWER_BYTES_MAX: usize = 32 << 20;

/// How to reach a running front-end.
#[derive(Debug, Args)]
pub(crate) struct AdminArgs {
    /// Take address and token from the front-end's configuration file.
    #[arg(short, long, value_name = "FILE", conflicts_with = "admin")]
    config: Option<PathBuf>,
    /// The admin address, with or without `http://` before it [default: 127.0.0.1:9900].
    #[arg(long, value_name = "ADDRESS", value_parser = admin_address)]
    admin: Option<SocketAddr>,
    /// File with the admin token; TIDEGATE_TOKEN in the environment holds the token itself.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

impl AdminArgs {
    /// The front-end that they name.
    pub(crate) fn client(&self) -> Result<Client, Failure> {
        let (address, named_by, token) = match (&self.config, self.admin) {
            (Some(file), _) => {
                let admin = Config::load(file)?.admin;
                (admin.address, NamedBy::File(file.clone()), admin.token)
            }
            (None, Some(address)) => (address, NamedBy::Option, None),
            (None, None) => (ADMIN_ADDRESS, NamedBy::Default, None),
        };
        let token = match (&self.token_file, std::env::var(TOKEN_VARIABLE)) {
            (Some(file), _) => Some(Token::load(file).map_err(|reason| {
                Failure::Usage(format!("cannot use {}: {reason}", file.display()))
            })?),
            (None, Ok(text)) if token.is_none() => Some(
                Token::parse(&text)
                    .map_err(|reason| Failure::Usage(format!("{TOKEN_VARIABLE}: {reason}")))?,
            ),
            (None, _) => token,
        };
        Ok(Client {
            address,
            named_by,
            token,
            patience: TIMEOUT,
        })
    }
}

/// Whose command this is, by the environment: a name for the list of events.
fn user() -> Option<HeaderValue> {
    let names = ["SUDO_USER", "USER", "LOGNAME"].map(std::env::var);
    let name = names.into_iter().flatten().find(|name| !name.is_empty())?;
    HeaderValue::try_from(name).ok()
}

/// What named an admin address.
#[derive(Debug)]
pub(crate) enum NamedBy {
    /// `--admin`.
    Option,
    /// The `[admin]` of this file.
    File(PathBuf),
    /// Nothing.
    Default,
}

impl fmt::Display for NamedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Option => f.write_str("--admin gave that address"),
            Self::File(file) => write!(f, "[admin] of {} gave that address", file.display()),
            Self::Default => f.write_str(
                "that is the default address; --admin ADDRESS or --config FILE gives another one",
            ),
        }
    }
}

/// Why an answer is of no use.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoAnswer {
    /// A front-end refuses, and says why.
    #[error("{0}")]
    Refused(String),
    /// No front-end's admin interface answers like that.
    #[error("{0}")]
    Other(String),
}

/// A running front-end.
#[derive(Debug)]
pub(crate) struct Client {
    /// Its admin address.
    pub(crate) address: SocketAddr,
    /// Where that is from.
    pub(crate) named_by: NamedBy,
    /// What it wants to see.
    pub(crate) token: Option<Token>,
    /// How long an answer is waited for.
    pub(crate) patience: Duration,
}

impl Client {
    /// The same, waiting so long for an answer.
    pub(crate) fn patient(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Asks for something.
    pub(crate) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, String> {
        self.ask(Method::GET, path, Bytes::new())
    }

    /// Asks for something that may not be there.
    pub(crate) fn find<T: DeserializeOwned>(&self, path: &str) -> Result<Option<T>, String> {
        let (status, body) = self.answer(Method::GET, path, Bytes::new())?;
        match understood(self.address, status, &body) {
            Err(NoAnswer::Refused(_)) if status == StatusCode::NOT_FOUND => Ok(None),
            understood => understood.map(Some).map_err(|error| self.said(&error)),
        }
    }

    /// Asks for something, in a runtime that is there.
    pub(crate) async fn get_soon<T: DeserializeOwned>(&self, path: &str) -> Result<T, String> {
        let (status, body) = self.answer_soon(Method::GET, path, Bytes::new()).await?;
        understood(self.address, status, &body).map_err(|error| self.said(&error))
    }

    /// Asks for something.
    pub(crate) fn post<T: DeserializeOwned>(&self, path: &str) -> Result<T, String> {
        self.ask(Method::POST, path, Bytes::new())
    }

    /// Asks for something that takes more words.
    pub(crate) fn post_json<T: DeserializeOwned>(
        &self,
        path: &str,
        order: &impl Serialize,
    ) -> Result<T, String> {
        let order = serde_json::to_vec(order).map_err(|error| error.to_string())?;
        self.ask(Method::POST, path, order.into())
    }

    /// Asks for an end of something.
    pub(crate) fn delete<T: DeserializeOwned>(&self, path: &str) -> Result<T, String> {
        self.ask(Method::DELETE, path, Bytes::new())
    }

    fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<T, String> {
        let (status, body) = self.answer(method, path, body)?;
        understood(self.address, status, &body).map_err(|error| self.said(&error))
    }

    /// An error, with what to look at if no front-end has answered.
    fn said(&self, error: &NoAnswer) -> String {
        match error {
            NoAnswer::Refused(why) => why.clone(),
            NoAnswer::Other(what) => format!("{what}; {}", self.named_by),
        }
    }

    fn answer(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<(StatusCode, Bytes), String> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| format!("cannot start: {error}"))?;
        runtime.block_on(self.answer_soon(method, path, body))
    }

    async fn answer_soon(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<(StatusCode, Bytes), String> {
        let mut request = Request::builder().method(method).uri(path);
        request = request.header(OVERRIDE_HEADER, "1");
        if let Some(name) = user() {
            request = request.header(OPERATOR_HEADER, name);
        }
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, format!("Bearer {}", token.reveal()));
        }
        let request = request.body(Full::new(body));
        let request = request.map_err(|error| error.to_string())?;
        let answer = send_within(self.patience, self.address, request).await;
        let answer = answer.map_err(|error| self.said(&NoAnswer::Other(error)))?;
        Ok((answer.status(), answer.into_body()))
    }
}

/// Sends a request to a front-end's admin interface and waits for its answer, but not for long.
pub(crate) async fn send(
    address: SocketAddr,
    request: Request<Full<Bytes>>,
) -> Result<Response<Bytes>, String> {
    send_within(TIMEOUT, address, request).await
}

async fn send_within(
    patience: Duration,
    address: SocketAddr,
    request: Request<Full<Bytes>>,
) -> Result<Response<Bytes>, String> {
    match timeout(patience, exchange(address, request)).await {
        Ok(answer) => answer.map_err(|error| {
            format!(
                "no front-end answers at {address}: {error}; is one running, with `address` in [admin] as this?"
            )
        }),
        Err(_) => Err(format!(
            "{address} did not answer in time; is it `address` in [admin] of a front-end?"
        )),
    }
}

/// What an answer says.
pub(crate) fn understood<T: DeserializeOwned>(
    address: SocketAddr,
    status: StatusCode,
    body: &[u8],
) -> Result<T, NoAnswer> {
    const ADMIN: &str = "is it `address` in [admin] of a front-end?";
    if status.is_success() {
        return serde_json::from_slice(body).map_err(|error| {
            let text = format!("{address} gave an answer that is not understood: {error}; {ADMIN}");
            NoAnswer::Other(text)
        });
    }
    Err(match serde_json::from_slice::<ApiError>(body) {
        Ok(refused) => NoAnswer::Refused(refused.error),
        Err(_) => NoAnswer::Other(format!("{address} answered {status}; {ADMIN}")),
    })
}

async fn exchange(
    address: SocketAddr,
    mut request: Request<Full<Bytes>>,
) -> Result<Response<Bytes>, Box<dyn std::error::Error + Send + Sync>> {
    let host = address.to_string().try_into()?;
    request.headers_mut().insert(HOST, host);
    let stream = TcpStream::connect(address).await?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::pin!(connection);
    let answer = async {
        let (head, body) = sender.send_request(request).await?.into_parts();
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await?;
        Ok(Response::from_parts(head, body.to_bytes()))
    };
    tokio::pin!(answer);
    tokio::select! {
        answer = &mut answer => answer,
        ended = &mut connection => {
            ended?;
            // The connection may end with the answer's last byte.
            answer.await
        }
    }
}

/// An address as a browser has it, or bare; a name is looked up.
fn admin_address(text: &str) -> Result<SocketAddr, String> {
    if text.starts_with("https://") {
        return Err("the admin interface speaks plain HTTP: write http://, or nothing".into());
    }
    let bare = text.strip_prefix("http://").unwrap_or(text);
    let bare = bare.strip_suffix('/').unwrap_or(bare);
    let found = bare.to_socket_addrs().map(|mut found| found.next());
    match found {
        Ok(Some(address)) => Ok(address),
        Ok(None) | Err(_) => Err("an address and a port are needed, like 127.0.0.1:9900".into()),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;
    use crate::testing;

    /// How long the answer of a front-end is that sends so many bytes, if it is taken.
    fn taken(bytes: usize) -> Option<usize> {
        testing::runtime().block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            tokio::spawn(async move {
                let (mut stream, _) = listener.accept().await.unwrap();
                let asked = stream.read(&mut [0; 1024]).await.unwrap();
                assert!(asked > 0);
                let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {bytes}\r\n\r\n");
                stream.write_all(head.as_bytes()).await.unwrap();
                // The reader leaves as soon as it is too much.
                stream.write_all(&vec![b'1'; bytes]).await.ok();
            });
            let answer = exchange(address, Request::new(Full::default())).await;
            answer.ok().map(|answer| answer.into_body().len())
        })
    }

    #[test]
    fn an_admin_address_is_taken_as_a_browser_shows_it() {
        for text in [
            "127.0.0.1:9900",
            "http://127.0.0.1:9900",
            "http://127.0.0.1:9900/",
        ] {
            let address = admin_address(text).unwrap();
            assert_eq!(address, "127.0.0.1:9900".parse().unwrap(), "{text}");
        }
        let six = admin_address("http://[::1]:9900/").unwrap();
        assert_eq!(six, "[::1]:9900".parse().unwrap());
        for text in [
            "",
            "http://",
            "127.0.0.1",
            "https://127.0.0.1:9900",
            "a/b:1",
        ] {
            assert!(admin_address(text).is_err(), "{text}");
        }
    }

    /// Another front-end, or what listens in its place, costs no more memory than this.
    #[test]
    fn an_answer_has_so_many_bytes_and_no_more() {
        assert_eq!(taken(ANSWER_BYTES_MAX), Some(ANSWER_BYTES_MAX));
        assert_eq!(taken(ANSWER_BYTES_MAX + 1), None);
    }
}
