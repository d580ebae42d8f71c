//! Refusals in the form that gRPC clients read: status 200, the gRPC status in the head, no body
//! ("Trailers-Only" in gRPC over HTTP/2; gRPC-Web has taken it over).
//!
//! | reason | code |
//! |---|---|
//! | a limit, a throttle, a full queue, a wait in vain | 8 `RESOURCE_EXHAUSTED` |
//! | no node, drained | 14 `UNAVAILABLE` |
//! | any other | none: an HTTP answer, which gRPC clients translate by rules of their own |
//!
//! Over HTTP/1.1 come gRPC-Web and bridges that keep the content type. `grpc-retry-pushback-ms` says what `retry-after` says (gRPC proposal A6).

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Response};

use crate::record::reason::Reason;

const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
pub(crate) const PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

/// Content types, the longer before those that they begin with.
const TYPES: &[&str] = &[
    "application/grpc-web-text",
    "application/grpc-web",
    "application/grpc",
];

/// What a client takes for an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Form {
    /// HTTP.
    #[default]
    Http,
    /// gRPC with this content type.
    Grpc(&'static str),
}

impl Form {
    /// Of a request with this head.
    #[cold]
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let sent = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
        let is = |name: &&&str| {
            let (name, sent) = (name.as_bytes(), sent.unwrap_or_default());
            let begins = sent.len() >= name.len() && sent[..name.len()].eq_ignore_ascii_case(name);
            // What follows is the format of the messages: `+proto`; or a parameter.
            begins && matches!(sent.get(name.len()), None | Some(b'+' | b';' | b' '))
        };
        match TYPES.iter().find(is) {
            Some(content_type) => Self::Grpc(content_type),
            None => Self::Http,
        }
    }
}

/// The answer for this reason, where gRPC has one.
pub(crate) fn answer(reason: Reason, content_type: &'static str) -> Option<Response<Bytes>> {
    let code = code(reason)?;
    let mut response = Response::new(Bytes::new());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(STATUS, HeaderValue::from_static(code));
    headers.insert(MESSAGE, HeaderValue::from_static(reason.what()));
    Some(response)
}

fn code(reason: Reason) -> Option<&'static str> {
    const DEADLINE_EXCEEDED: &str = "4";
    const RESOURCE_EXHAUSTED: &str = "8";
    const UNAVAILABLE: &str = "14";
    match reason {
        Reason::Overload
        | Reason::QueueFull
        | Reason::QueueTimeout
        | Reason::Throttled
        | Reason::ThrottleFull
        | Reason::SourceConnections
        | Reason::SourceRate => Some(RESOURCE_EXHAUSTED),
        Reason::TotalTimeout => Some(DEADLINE_EXCEEDED),
        Reason::NoNode | Reason::Drained | Reason::WorkerFailed => Some(UNAVAILABLE),
        Reason::NoSite
        | Reason::BadRequest
        | Reason::Tls
        | Reason::PlainHttp
        | Reason::ProxyProtocol
        | Reason::Misdirected
        | Reason::MissingHost
        | Reason::DuplicateHost
        | Reason::BadHost
        | Reason::BadTarget
        | Reason::BadConnection
        | Reason::LengthAndEncoding
        | Reason::BadEncoding
        | Reason::BadChunk
        | Reason::MethodRefused
        | Reason::BodyTooLarge
        | Reason::UriTooLong
        | Reason::HeadTooLarge
        | Reason::HeadTimeout
        | Reason::BodyTimeout
        | Reason::BodyCut
        | Reason::TooManyConnections
        | Reason::TooManyTunnels
        | Reason::ConnectFailed
        | Reason::ConnectTimeout
        | Reason::NodeTls
        | Reason::NodeCertificate
        | Reason::NodeCertificateName
        | Reason::NodeCertificateExpired
        | Reason::NodePin
        | Reason::OutOfSockets
        | Reason::Reset
        | Reason::BadResponse
        | Reason::ResponseTimeout
        | Reason::ResponseBroken
        | Reason::ResponseStalled
        | Reason::ClientGone
        | Reason::LeftStalled
        | Reason::ClientStalled
        | Reason::BodySlow
        | Reason::AnswerSlow
        | Reason::TunnelIdle => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_tell_by_their_content_type() {
        let cases = [
            ("application/grpc", Some("application/grpc")),
            ("application/grpc+proto", Some("application/grpc")),
            ("Application/gRPC; a=b", Some("application/grpc")),
            ("application/grpc-web", Some("application/grpc-web")),
            ("application/grpc-web+json", Some("application/grpc-web")),
            (
                "application/grpc-web-text",
                Some("application/grpc-web-text"),
            ),
            ("application/grpc-web-texts", None),
            ("application/grpcx", None),
            ("application/json", None),
            ("", None),
        ];
        for (sent, expected) in cases {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, HeaderValue::from_str(sent).unwrap());
            let expected = expected.map_or(Form::Http, Form::Grpc);
            assert_eq!(Form::of(&headers), expected, "{sent}");
        }
        assert_eq!(Form::of(&HeaderMap::new()), Form::Http);
    }

    /// A message is percent-encoded UTF-8: printable ASCII but `%` stands for itself.
    #[test]
    fn every_message_is_its_own_percent_encoding() {
        for reason in Reason::ALL {
            let plain = |byte: u8| (0x20..0x7f).contains(&byte) && byte != b'%';
            assert!(reason.what().bytes().all(plain), "{}", reason.what());
            if let Some(answer) = answer(*reason, "application/grpc") {
                assert_eq!(answer.headers()[MESSAGE], reason.what());
            }
        }
    }
}
