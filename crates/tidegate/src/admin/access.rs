//! Which requests the admin interface answers. A request's head decides, before a byte of its body is read.
//!
//! * The two pages themselves and the two health checks: all of them, they say nothing of the cluster.
//! * With a token configured, otherwise only those that carry it. A second one may be for those that only look:
//!   with it every override is refused.
//! * Other front-ends prove their right to fetch requests for culprit discovery, and nothing else, with a key
//!   that is made from the token or has a file of its own (`peer_auth`). The answer says which process gave it.
//! * Without a token (loopback only), those whose `Host` is an address or `localhost`: a page
//!   elsewhere cannot reach us under a name of its own (DNS rebinding).
//! * Runtime overrides need the header [`OVERRIDE_HEADER`] or the token: a page of another origin cannot send
//!   either unasked, since no answer here allows other origins anything.

use std::net::IpAddr;
use std::time::Duration;

use http::header::{AUTHORIZATION, CONNECTION, HOST, WWW_AUTHENTICATE};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, StatusCode};
use http_body_util::{BodyExt as _, Full};
use tidegate_core::time::Timestamp;

use super::api::{self, Answer};
use crate::models::{AccessModel, EXCHANGE, OVERRIDE_HEADER};
use crate::peer_auth::{self, Identity, PeerGate, Proven, Unproven};
use crate::token::Token;

/// Least time between two lines about refused requests.
const LINES_EVERY: Duration = Duration::from_secs(60);

/// What requests must show for what they ask for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Access {
    /// What requests must carry.
    pub(crate) token: Option<Token>,
    /// What those may carry that only look.
    pub(crate) read_token: Option<Token>,
    /// By what other front-ends are known.
    pub(crate) peers: Option<PeerGate>,
    /// By what they know this process; none where nothing is exchanged.
    pub(crate) identity: Option<Identity>,
}

/// What a request may ask for.
#[derive(Debug)]
pub(super) enum Right {
    /// What all may see.
    Open,
    /// All that there is to see.
    Read,
    /// Everything.
    All,
    /// [`EXCHANGE`]; the answer must say which process gave it, and be sealed for one that has proven its right.
    Exchange(Option<Proven>),
}

/// A request that has no right to what it asks for.
#[derive(Debug)]
pub(super) struct AccessRefusal {
    pub(super) answer: Box<Answer>,
    /// What it lacks; none if there is nothing to say of it.
    pub(super) why: Option<&'static str>,
}

impl Access {
    /// What a request with this head may ask for.
    pub(super) fn judge(&self, head: &Parts, now: Timestamp) -> Result<Right, AccessRefusal> {
        let path = head.uri.path();
        if matches!(path, "/" | "/culprits" | "/livez" | "/readyz") {
            return Ok(Right::Open);
        }
        let exchange = path == EXCHANGE && head.method == Method::GET;
        let gate = self.peers.as_ref().filter(|_| exchange);
        let offered = header(head, AUTHORIZATION);
        if let (Some(gate), Some(offered)) = (gate, offered)
            && offered.starts_with(peer_auth::SCHEME)
        {
            let target = head.uri.path_and_query();
            let target = target.map_or("", |target| target.as_str());
            let why = match gate.check(offered, target, now) {
                Ok(proven) => return Ok(Right::Exchange(Some(proven))),
                // All is well: a peer's first question asks for a challenge.
                Err(Unproven::NeedsChallenge) => None,
                Err(Unproven::Wrong) => Some("no proof of a peer"),
            };
            return Err(unauthorized(why, Some(gate), now));
        }
        let Some(token) = &self.token else {
            let right = match exchange {
                true => Right::Exchange(None),
                false => Right::All,
            };
            return local(head).map_or(Ok(right), Err);
        };
        let bearer = offered.and_then(|offered| offered.strip_prefix("Bearer "));
        if bearer.is_some_and(|bearer| token.matches(bearer)) {
            return Ok(Right::All);
        }
        let may_read = (self.read_token.as_ref()).zip(bearer);
        if may_read.is_some_and(|(token, bearer)| token.matches(bearer)) {
            // What front-ends fetch from each other names requests that are none of a reader's business.
            return match matches!(head.method, Method::GET | Method::HEAD) && path != EXCHANGE {
                true => Ok(Right::Read),
                false => Err(refuse(
                    StatusCode::FORBIDDEN,
                    Some("a token that only reads"),
                    "this token may look, and not give orders",
                )),
            };
        }
        let why = match offered {
            Some(_) => Some("a wrong token"),
            // Our own page asks before it knows that a token is wanted.
            None => Some("no token").filter(|_| !is_own_page(head)),
        };
        Err(unauthorized(why, gate, now))
    }

    /// What one with this right may do.
    pub(super) fn shown(&self, right: &Right, by: String) -> Answer {
        let token = match (right, &self.token) {
            (_, None) => "none",
            (Right::Read, _) => "read",
            (_, Some(_)) => "full",
        };
        let access = AccessModel {
            may_act: matches!(right, Right::All),
            token: token.into(),
            by,
        };
        api::json(StatusCode::OK, &access)
    }

    /// Says that an answer to a peer is this process's, proves it to one that has proven its right, and gives that the
    /// challenge for its next question.
    pub(super) async fn seal(
        &self,
        answer: Answer,
        proven: Option<&Proven>,
        now: Timestamp,
    ) -> Answer {
        let (mut head, body) = answer.into_parts();
        // The whole body is here already: collecting it can neither wait nor fail.
        let body = body.collect().await.unwrap_or_default().to_bytes();
        let mut fields = Vec::new();
        if let Some(identity) = &self.identity {
            fields.push((peer_auth::IDENTITY_HEADER, identity.to_string()));
        }
        if let (Some(gate), Some(proven)) = (&self.peers, proven) {
            fields.push((peer_auth::MAC_HEADER, gate.answer(proven, &body)));
            fields.push((peer_auth::CHALLENGE_HEADER, gate.challenge(now)));
        }
        for (name, value) in fields {
            // Hexadecimal digits, which every field value may hold.
            if let Ok(value) = HeaderValue::from_str(&value) {
                head.headers.insert(HeaderName::from_static(name), value);
            }
        }
        Answer::from_parts(head, Full::new(body))
    }
}

fn header(head: &Parts, name: HeaderName) -> Option<&str> {
    head.headers.get(name)?.to_str().ok()
}

/// The connection ends with the refusal: its seat is free for another.
fn refuse(status: StatusCode, why: Option<&'static str>, text: &str) -> AccessRefusal {
    let mut answer = api::error(status, text);
    let close = HeaderValue::from_static("close");
    answer.headers_mut().insert(CONNECTION, close);
    AccessRefusal {
        answer: Box::new(answer),
        why,
    }
}

fn unauthorized(
    why: Option<&'static str>,
    gate: Option<&PeerGate>,
    now: Timestamp,
) -> AccessRefusal {
    let text = "a token is needed: Authorization: Bearer …";
    let mut refusal = refuse(StatusCode::UNAUTHORIZED, why, text);
    let headers = refusal.answer.headers_mut();
    let how = HeaderValue::from_static("Bearer");
    headers.insert(WWW_AUTHENTICATE, how);
    if let Some(gate) = gate {
        let challenge = gate.challenge(now);
        let offer = format!("{} challenge=\"{challenge}\"", peer_auth::SCHEME);
        if let Ok(offer) = HeaderValue::from_str(&offer) {
            headers.append(WWW_AUTHENTICATE, offer);
        }
    }
    refusal
}

/// Whether a browser says that a page of this very address asks. Nothing is allowed by it.
fn is_own_page(head: &Parts) -> bool {
    let site = HeaderName::from_static("sec-fetch-site");
    head.method == Method::GET && header(head, site) == Some("same-origin")
}

/// Why a request to an interface without a token is refused, if it is.
fn local(head: &Parts) -> Option<AccessRefusal> {
    if !header(head, HOST).is_some_and(is_own_host) {
        let text = "ask by address or as localhost, not by another name";
        let why = Some("another host's name");
        return Some(refuse(StatusCode::FORBIDDEN, why, text));
    }
    let reads = matches!(head.method, Method::GET | Method::HEAD);
    if !reads && !head.headers.contains_key(OVERRIDE_HEADER) {
        let text = format!("a runtime override needs the header `{OVERRIDE_HEADER}: 1`");
        let why = Some("no override header");
        return Some(refuse(StatusCode::FORBIDDEN, why, &text));
    }
    None
}

/// Whether a `Host` names nothing but this machine: an address, or localhost.
fn is_own_host(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        // A bracketed address holds colons of its own.
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        Some(_) | None => host,
    };
    let plain = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || plain.parse::<IpAddr>().is_ok()
}

/// Lines about refused requests: the first at once, then at most one a minute, which counts the others.
#[derive(Debug, Default)]
pub(super) struct RefusalLog {
    next: Option<Timestamp>,
    unsaid: u64,
}

impl RefusalLog {
    /// A request from there was refused; what to say of it, if anything is to be said now.
    pub(super) fn line(&mut self, from: IpAddr, why: &str, now: Timestamp) -> Option<String> {
        if self.next.is_some_and(|next| now < next) {
            self.unsaid += 1;
            return None;
        }
        self.next = Some(now + LINES_EVERY);
        let more = match std::mem::take(&mut self.unsaid) {
            0 => String::new(),
            more => format!("; {more} more since the last such line"),
        };
        Some(format!("admin: refused a request from {from}: {why}{more}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_one_line_a_minute_that_counts_the_others() {
        let mut log = RefusalLog::default();
        let from: IpAddr = [10, 0, 0, 9].into();
        let start = Timestamp::from_millis(5_000);
        let first = log.line(from, "no token", start).unwrap();
        assert_eq!(first, "admin: refused a request from 10.0.0.9: no token");
        let last = start + LINES_EVERY - Duration::from_nanos(1);
        for at in [start, start + LINES_EVERY / 2, last] {
            assert_eq!(log.line(from, "no token", at), None);
        }
        let next = log.line(from, "a wrong token", start + LINES_EVERY);
        let next = next.unwrap();
        assert!(next.ends_with("a wrong token; 3 more since the last such line"));
        assert_eq!(log.line(from, "no token", start + LINES_EVERY), None);
        let later = log.line(from, "no token", start + LINES_EVERY * 2).unwrap();
        assert!(later.ends_with("; 1 more since the last such line"));
    }

    #[test]
    fn only_addresses_and_localhost_are_this_machine() {
        for host in [
            "127.0.0.1:9900",
            "localhost",
            "LOCALHOST:1",
            "[::1]:9900",
            "10.0.0.1",
        ] {
            assert!(is_own_host(host), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil",
            ":80",
        ] {
            assert!(!is_own_host(host), "{host}");
        }
    }
}
