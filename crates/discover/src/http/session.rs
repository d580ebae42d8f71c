//! Questions to one API over a connection that is kept: for what is asked many times a second.
//!
//! A question is sent once. A connection that ends, answers late or says too much is left: nothing on it is
//! taken for the answer to the next question.

use std::path::PathBuf;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::client::conn::http1::SendRequest;
use hyper::header::{CONTENT_TYPE, HOST, HeaderMap, HeaderValue, USER_AGENT};
use hyper::{Request, StatusCode};

use super::{Connection, ServerUrl, connect, handshake, refused, whole};
use crate::source::SourceError;

/// An API that is asked again and again.
#[derive(Debug)]
pub struct Session {
    server: ServerUrl,
    ca_file: Option<PathBuf>,
    open: Option<Open>,
}

type Open = (SendRequest<Full<Bytes>>, Connection);

/// What an API has answered.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// Its fields.
    pub fields: HeaderMap,
    /// All of its body.
    pub body: Bytes,
}

impl Session {
    /// Of this server; `ca_file` has certificates of which one has signed the server's. Asks nothing yet.
    pub fn new(server: ServerUrl, ca_file: Option<PathBuf>) -> Self {
        Self {
            server,
            ca_file,
            open: None,
        }
    }

    /// The server.
    pub fn server(&self) -> &ServerUrl {
        &self.server
    }

    /// Posts JSON, once; the answer has at most so many bytes, and is whole within this time.
    ///
    /// # Errors
    /// Whether it was done is not known then.
    pub async fn post(
        &mut self,
        target: &str,
        json: String,
        bytes_max: usize,
        limit: Duration,
    ) -> Result<Bytes, SourceError> {
        let kind = HeaderValue::from_static("application/json");
        let fields = HeaderMap::from_iter([(CONTENT_TYPE, kind)]);
        let limits = (bytes_max, limit);
        let answer = self.exchange(target, &fields, json.into(), limits).await?;
        match answer.status {
            StatusCode::OK => Ok(answer.body),
            status => {
                self.open = None;
                Err(refused(status, &answer.body))
            }
        }
    }

    /// Posts a body with these fields, once; the answer has at most so many bytes, and is whole within this time. Fields that are
    /// sensitive are sent over TLS only, or to this machine.
    ///
    /// # Errors
    /// There is no whole answer. Whether the body was taken is not known then.
    pub async fn exchange(
        &mut self,
        target: &str,
        fields: &HeaderMap,
        body: Bytes,
        (bytes_max, limit): (usize, Duration),
    ) -> Result<Answer, SourceError> {
        // It is put back once the answer is whole.
        let open = self.open.take();
        let asked = self.ask(open, target, fields, body, bytes_max);
        let asked = tokio::time::timeout(limit, asked).await;
        let (answer, open) = asked.map_err(|_| SourceError::TimedOut(limit))??;
        self.open = Some(open);
        Ok(answer)
    }

    async fn ask(
        &self,
        open: Option<Open>,
        target: &str,
        fields: &HeaderMap,
        body: Bytes,
        bytes_max: usize,
    ) -> Result<(Answer, Open), SourceError> {
        let is_secret = fields.values().any(HeaderValue::is_sensitive);
        let mut open = match ready(open).await {
            Some(open) => open,
            None => {
                let ca_file = self.ca_file.as_deref();
                handshake(connect(&self.server, ca_file, is_secret).await?).await?
            }
        };
        let mut request = Request::post(target)
            .header(HOST, self.server.authority())
            .header(USER_AGENT, "tidegate")
            .body(Full::new(body))
            .map_err(SourceError::unreachable)?;
        request.headers_mut().extend(fields.clone());
        let response = open.0.send_request(request).await;
        let (head, body) = response.map_err(SourceError::unreachable)?.into_parts();
        let answer = Answer {
            status: head.status,
            fields: head.headers,
            body: whole(body, bytes_max).await?,
        };
        Ok((answer, open))
    }
}

/// A connection that takes another question; of one that has ended nothing was asked yet.
async fn ready(open: Option<Open>) -> Option<Open> {
    let (mut sender, connection) = open?;
    sender.ready().await.ok()?;
    Some((sender, connection))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Act, Server, answer};
    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    fn session(server: &Server) -> Session {
        Session::new(server.url(), None)
    }

    async fn post(session: &mut Session) -> Result<Bytes, SourceError> {
        session.post("/v3/kv/range", "{}".into(), 16, LIMIT).await
    }

    #[tokio::test]
    async fn a_question_goes_out_once_and_the_next_one_on_a_new_connection_if_need_be() {
        let one = |fields| [answer("200 OK", fields, "{\"a\":1}"), vec![Act::Hang]].concat();
        // The first connection says that it ends; the second one ends without an answer.
        let scripts = vec![one("connection: close\r\n"), vec![], one("")];
        let server = Server::start(scripts).await;
        let mut session = session(&server);
        assert_eq!(post(&mut session).await.unwrap(), "{\"a\":1}");
        let head = &server.heads()[0];
        assert!(head.starts_with("POST /v3/kv/range HTTP/1.1"), "{head}");
        // Sent again it would have been answered.
        let error = post(&mut session).await.unwrap_err();
        assert!(matches!(error, SourceError::Unreachable(_)), "{error}");
        assert_eq!(server.heads().len(), 2);
        assert_eq!(post(&mut session).await.unwrap(), "{\"a\":1}");
        assert_eq!(server.heads().len(), 3);
    }

    #[tokio::test]
    async fn an_answer_is_bounded_in_size_and_time() {
        let long = "x".repeat(17);
        let scripts = vec![answer("200 OK", "", &long), vec![Act::Hang]];
        let server = Server::start(scripts).await;
        let mut session = session(&server);
        let error = post(&mut session).await.unwrap_err();
        assert!(matches!(error, SourceError::TooLong(16)), "{error}");
        let limit = Duration::from_millis(20);
        let late = session.post("/", "{}".into(), 16, limit).await;
        assert!(matches!(late, Err(SourceError::TimedOut(_))), "{late:?}");
    }
}
