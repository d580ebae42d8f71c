//! The command line's side of the admin API: one request, one answer.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, HOST};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::admin::ORDER_HEADER;
use crate::admin::models::ApiError;
use crate::config::Token;

/// Longest wait for an answer: all that it needs is in the front-end's memory.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Largest answer, bytes: a status of ten thousand nodes.
const ANSWER_BYTES_MAX: usize = 32 << 20;

/// A running front-end.
#[derive(Debug)]
pub(crate) struct Client {
    /// Its admin address.
    pub(crate) address: SocketAddr,
    /// What it wants to see.
    pub(crate) token: Option<Token>,
}

impl Client {
    /// Asks for something.
    pub(crate) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, String> {
        self.ask(Method::GET, path, Bytes::new())
    }

    /// Asks for something that may not be there.
    pub(crate) fn find<T: DeserializeOwned>(&self, path: &str) -> Result<Option<T>, String> {
        let (status, body) = self.answer(Method::GET, path, Bytes::new())?;
        match status {
            StatusCode::NOT_FOUND => Ok(None),
            status => self.read(status, &body).map(Some),
        }
    }

    /// Orders something.
    pub(crate) fn post<T: DeserializeOwned>(&self, path: &str) -> Result<T, String> {
        self.ask(Method::POST, path, Bytes::new())
    }

    /// Orders something that takes more words.
    pub(crate) fn post_json<T: DeserializeOwned>(
        &self,
        path: &str,
        order: &impl Serialize,
    ) -> Result<T, String> {
        let order = serde_json::to_vec(order).map_err(|error| error.to_string())?;
        self.ask(Method::POST, path, order.into())
    }

    fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<T, String> {
        let (status, body) = self.answer(method, path, body)?;
        self.read(status, &body)
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

    /// Asks for something, inside a runtime.
    pub(crate) async fn fetch<T: DeserializeOwned>(&self, path: &str) -> Result<T, String> {
        let answer = self.answer_soon(Method::GET, path, Bytes::new()).await;
        let (status, body) = answer?;
        self.read(status, &body)
    }

    async fn answer_soon(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<(StatusCode, Bytes), String> {
        let address = self.address;
        match timeout(TIMEOUT, self.exchange(method, path, body)).await {
            Ok(answer) => answer.map_err(|error| {
                format!("no front-end answers at {address}: {error}; is it running? is this its [admin] address?")
            }),
            Err(_) => Err(format!("{address} did not answer in time")),
        }
    }

    fn read<T: DeserializeOwned>(&self, status: StatusCode, body: &[u8]) -> Result<T, String> {
        let address = self.address;
        if status.is_success() {
            return serde_json::from_slice(body).map_err(|error| {
                format!("{address} gave an answer that is not understood: {error}")
            });
        }
        Err(match serde_json::from_slice::<ApiError>(body) {
            Ok(refused) => refused.error,
            Err(_) => format!("{address} answered {status}"),
        })
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<(StatusCode, Bytes), Box<dyn std::error::Error + Send + Sync>> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, self.address.to_string())
            .header(ORDER_HEADER, "1");
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, format!("Bearer {}", token.reveal()));
        }
        let request = request.body(Full::new(body))?;
        let stream = TcpStream::connect(self.address).await?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::pin!(connection);
        let answer = async {
            let response = sender.send_request(request).await?;
            let status = response.status();
            let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX);
            Ok((status, body.collect().await?.to_bytes()))
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
}
