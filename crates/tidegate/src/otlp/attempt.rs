//! One try to hand a batch to a collector, and what its answer means.
//!
//! | answer | then |
//! |---|---|
//! | 2xx | taken, but for spans that it says it has rejected |
//! | 429, 502, 503, 504, no answer, no connection | asked again, after `Retry-After` seconds where it says so |
//! | anything else | refused for good |
//!
//! Source: OTLP-1 (OTLP/HTTP Response, OTLP/HTTP Throttling).

use std::time::Duration;

use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, StatusCode};
use hyper::body::Bytes;
use prost::Message;
use tidegate_discover::{Answer, Session};

use super::message::ExportTraceServiceResponse;
use crate::config::OtlpConfig;

/// Most bytes of an answer.
const ANSWER_MAX: usize = 64 << 10;
/// Time for a connection, the batch and the answer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Longest wait that a collector may ask for.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// Most characters of a collector's own words.
const WORDS_MAX: usize = 200;

/// How a try went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Attempt {
    /// The batch is there; so many of its spans were rejected, for this reason.
    Taken(Option<(u64, String)>),
    /// It is not to be sent again.
    Refused(String),
    /// It may be sent again, not before this time has passed if that is said.
    Failed(String, Option<Duration>),
}

/// Sends a batch.
pub(super) async fn send(session: &mut Session, config: &OtlpConfig, batch: Bytes) -> Attempt {
    let mut fields = config.headers.clone();
    let kind = HeaderValue::from_static("application/x-protobuf");
    fields.insert(CONTENT_TYPE, kind);
    let limits = (ANSWER_MAX, TIMEOUT);
    match session.exchange(&config.path, &fields, batch, limits).await {
        Ok(answer) => read(&answer),
        Err(why) => Attempt::Failed(why.to_string(), None),
    }
}

fn read(answer: &Answer) -> Attempt {
    let Answer {
        status,
        fields,
        body,
    } = answer;
    if status.is_success() {
        return Attempt::Taken(rejected(body));
    }
    let why = format!("it answers {status}");
    match *status {
        StatusCode::TOO_MANY_REQUESTS
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::GATEWAY_TIMEOUT => {
            let wait = fields.get(RETRY_AFTER).and_then(|it| it.to_str().ok());
            let wait = wait.and_then(|it| it.trim().parse().ok());
            let wait = wait.map(|it| Duration::from_secs(it).min(WAIT_MAX));
            Attempt::Failed(why, wait)
        }
        _ => Attempt::Refused(why),
    }
}

/// Spans that a collector has not taken. An answer that cannot be read says nothing of that.
fn rejected(body: &Bytes) -> Option<(u64, String)> {
    let answer = ExportTraceServiceResponse::decode(body.clone()).ok()?;
    let partial = answer.partial_success?;
    let spans = u64::try_from(partial.rejected_spans).ok()?;
    let words = partial.error_message.chars();
    let words = words.filter(|it| !it.is_control()).take(WORDS_MAX);
    (spans > 0).then(|| (spans, words.collect()))
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;

    use super::super::message::ExportTracePartialSuccess;
    use super::*;

    fn answer(status: u16, retry_after: Option<&str>, body: Vec<u8>) -> Attempt {
        let mut fields = HeaderMap::new();
        if let Some(value) = retry_after {
            fields.insert(RETRY_AFTER, HeaderValue::from_str(value).unwrap());
        }
        read(&Answer {
            status: StatusCode::from_u16(status).unwrap(),
            fields,
            body: body.into(),
        })
    }

    #[test]
    fn what_may_be_sent_again_is_told_from_what_may_not() {
        let failed = |wait| Attempt::Failed("it answers 503 Service Unavailable".into(), wait);
        let seconds = |it| Some(Duration::from_secs(it));
        assert_eq!(answer(503, None, Vec::new()), failed(None));
        assert_eq!(answer(503, Some("2"), Vec::new()), failed(seconds(2)));
        assert_eq!(answer(503, Some("86400"), Vec::new()), failed(seconds(30)));
        // A date: the usual pause.
        let date = "Fri, 31 Dec 1999 23:59:59 GMT";
        assert_eq!(answer(503, Some(date), Vec::new()), failed(None));
        for status in [429, 502, 504] {
            let again = answer(status, None, Vec::new());
            assert!(matches!(again, Attempt::Failed(..)), "{status}");
        }
        for status in [301, 400, 401, 404, 413, 500] {
            let refused = answer(status, Some("1"), Vec::new());
            assert!(matches!(refused, Attempt::Refused(_)), "{status}");
        }
    }

    #[test]
    fn a_batch_may_be_taken_in_part() {
        let partial = |rejected_spans, error_message: &str| {
            let partial_success = Some(ExportTracePartialSuccess {
                rejected_spans,
                error_message: error_message.into(),
            });
            ExportTraceServiceResponse { partial_success }.encode_to_vec()
        };
        let some = Attempt::Taken(Some((3, "too old".into())));
        assert_eq!(answer(200, None, partial(3, "too\r\n old")), some);
        let all = Attempt::Taken(None);
        for body in [
            Vec::new(),
            partial(0, "a hint"),
            partial(-1, ""),
            b"{}".to_vec(),
        ] {
            assert_eq!(answer(200, None, body), all);
        }
    }
}
