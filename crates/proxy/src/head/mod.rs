//! What a request head must look like, and what becomes of it on the way to a node; the same
//! for response heads on the way back. Pure functions over header maps.
//!
//! hyper's parser has already refused what is no HTTP: bad names, obs-fold, spaces before
//! colons, NUL, a `Content-Length` that is no number or comes twice with different values,
//! `Transfer-Encoding` that does not end in chunked or stands in HTTP/1.0. Here is the rest:
//!
//! | rule | source |
//! |---|---|
//! | exactly one valid `Host` in 1.1, at most one in 1.0 | RFC 9112 §3.2 |
//! | absolute form: its authority wins over `Host`; the node gets origin form | RFC 9112 §3.2.2 |
//! | absolute form without a path: `/`, before a query too; `*` for OPTIONS without a query | RFC 9112 §3.2.1, §3.2.4 |
//! | CONNECT and TRACE are refused; `Max-Forwards` counts down for OPTIONS | RFC 9110 §7.6.2, §9.3.6, §9.3.8 |
//! | `Transfer-Encoding` is exactly `chunked` | RFC 9112 §6.1, stricter |
//! | a length is below 2^63 and goes on without zeros in front | servers that count in 63 bits, or take `010` for 8 |
//! | `Connection`, what it names, and other hop-by-hop fields end here | RFC 9110 §7.6.1 |
//! | `TE` keeps only `trailers` | RFC 9110 §10.1.4 |
//! | `Trailer` ends here where trailers do: before a body that is not chunked, and before a client without `TE: trailers` | RFC 9110 §6.5.1 |
//! | what claims an address, a scheme, a host or more of the client (`Forwarded`, `X-Forwarded-*`, `X-Real-IP` and the like) ends here, unless the client is trusted | RFC 7239 §8.1 |
//! | trailers of requests that claim such a thing, or concern one hop, end here for all clients | RFC 9110 §6.5.1 |
//! | names with `_`, `.` or the like that are one of these with `-` end here, unless they are wanted | gateways that fold them (RFC 3875 §4.1.18) |
//! | `Proxy` ends here | gateways that make `HTTP_PROXY` of it |
//! | `Upgrade` goes on only if `Connection` names it, and never for h2c or TLS | RFC 9110 §7.8 |
//!
//! `Content-Length` beside `Transfer-Encoding` is found on the raw bytes, as they come in: hyper
//! takes the length away before it hands the head over.

pub(crate) mod classify;
pub(crate) mod cookie;
mod forwarded;
pub(crate) mod http2;
pub(crate) mod interim;
mod length;

use http::header::{
    CONNECTION, CONTENT_LENGTH, EXPECT, HOST, HeaderName, HeaderValue, MAX_FORWARDS, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE, VIA,
};
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Request, StatusCode, Uri, Version};

use crate::config::ForwardedConfig;
use crate::record::reason::Reason;
pub(crate) use forwarded::Hop;
use forwarded::tell_client;
use length::{is_plain_length, one_length};

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
pub(crate) const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
/// No field of HTTP: gateways make `HTTP_PROXY` of it, by which programs choose a proxy (CVE-2016-5385 and others).
const PROXY: HeaderName = HeaderName::from_static("proxy");
pub(crate) const LOAD_METRICS: HeaderName = HeaderName::from_static("endpoint-load-metrics");
pub(crate) const LOAD_METRICS_BIN: HeaderName =
    HeaderName::from_static("endpoint-load-metrics-bin");

/// Fields that `Connection` may not take away: the message would mean something else.
const NEVER_NOMINATED: &[HeaderName] = &[HOST, CONTENT_LENGTH, TRANSFER_ENCODING, EXPECT];
/// `Connection` may name so many other fields; more is no honest request.
const NOMINATED_MAX: usize = 32;

/// What stands in a head that matters on the way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HeadInfo {
    connection: bool,
    nominates: bool,
    keep_alive: bool,
    proxy: bool,
    proxy_connection: bool,
    te: bool,
    te_trailers: bool,
    trailer: bool,
    upgrade: bool,
    connection_upgrade: bool,
    claims: bool,
    max_forwards: bool,
    lengths: u8,
    /// A name is one of those that matter but for its underscores and the like.
    underscores: bool,
    /// A `Content-Length` is more than a number as we write it, or a long one.
    length_is_odd: bool,
    has_host: bool,
    /// `Expect: 100-continue` is there, whether it counts or not.
    expect: bool,
    /// The target is a whole URL.
    pub(crate) absolute: bool,
    /// `Transfer-Encoding` is there.
    pub(crate) chunked: bool,
    /// `Expect: 100-continue` is there and counts.
    pub(crate) expects_continue: bool,
    /// The request asks for a protocol that may be tunnelled.
    pub(crate) tunnel: bool,
    /// The node's load report is there.
    pub(crate) load_metrics: bool,
}

/// A request head that is in order.
#[derive(Debug)]
pub(crate) struct CheckedHead<'a> {
    pub(crate) facts: HeadInfo,
    /// The host that it is for; empty in HTTP/1.0 without `Host`.
    pub(crate) host: &'a str,
}

/// Names that claim something about the client, or what it asked for, begin with this, or are among [`CLAIMS`].
const CLAIM_PREFIX: &[u8] = b"x-forwarded-";
/// Those that frameworks, content delivery networks and clouds have for the client's address.
const CLAIMS: &[&str] = &[
    "ali-cdn-real-ip",
    "cdn-src-ip",
    "cf-connecting-ip",
    "cf-connecting-ipv6",
    "cf-pseudo-ipv4",
    "client-ip",
    "cloudfront-viewer-address",
    "do-connecting-ip",
    "fastly-client-ip",
    "fly-client-ip",
    "forwarded",
    "forwarded-for",
    "front-end-https",
    "incap-client-ip",
    "proxy-client-ip",
    "remote-addr",
    "true-client-ip",
    "wl-proxy-client-ip",
    "wl-proxy-ssl",
    "x-appengine-user-ip",
    "x-azure-clientip",
    "x-azure-socketip",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-envoy-external-address",
    "x-forwarded",
    "x-forwardedfor",
    "x-host",
    "x-nf-client-connection-ip",
    "x-original-forwarded-for",
    "x-originating-ip",
    "x-proxyuser-ip",
    "x-real-ip",
    "x-remote-addr",
    "x-remote-ip",
    "x-source-ip",
    "x-sucuri-clientip",
    "x-url-scheme",
    "x-vercel-forwarded-for",
    "x-vercel-proxied-for",
];

/// Names that something must be done about, beside claims. Every name of every head is looked up here, so first come
/// two bytes' worth of questions: which lengths are there with this first letter?
const NOTED: &[&str] = &[
    "connection",
    "content-length",
    "endpoint-load-metrics",
    "endpoint-load-metrics-bin",
    "expect",
    "host",
    "keep-alive",
    "max-forwards",
    "proxy",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// By first letter, the lengths of the names in [`NOTED`] and [`CLAIMS`] as bits.
const NOTED_LENGTHS: [u32; 256] = note_lengths(note_lengths([0; 256], NOTED), CLAIMS);

const fn note_lengths(mut lengths: [u32; 256], names: &[&str]) -> [u32; 256] {
    let mut index = 0;
    while index < names.len() {
        let name = names[index].as_bytes();
        lengths[name[0] as usize] |= 1 << name.len();
        index += 1;
    }
    lengths
}

/// Whether something may have to be done about a name.
fn may_be_noted(name: &str) -> bool {
    let first = name.as_bytes().first().copied().unwrap_or_default();
    let length = name.len() as u32;
    (length < u32::BITS && (NOTED_LENGTHS[usize::from(first)] >> length) & 1 == 1)
        || (first == b'x' && begins_as_claim(name, true))
}

/// A byte of a name as gateways have it that keep letters and digits alone.
pub(crate) fn fold(byte: u8) -> u8 {
    if byte.is_ascii_alphanumeric() {
        byte
    } else {
        b'-'
    }
}

/// Whether a name begins with [`CLAIM_PREFIX`], or also with what gateways take for it that [`fold`] names.
fn begins_as_claim(name: &str, folds: bool) -> bool {
    let is = |(byte, ours): (&u8, &u8)| byte == ours || (folds && fold(*byte) == *ours);
    name.len() > CLAIM_PREFIX.len() && name.as_bytes().iter().zip(CLAIM_PREFIX).all(is)
}

/// Whether a name claims something about the client.
pub(crate) fn is_claim(name: &str) -> bool {
    begins_as_claim(name, false) || CLAIMS.contains(&name)
}

/// Whether a field of this name ends here unless its client is trusted, or unless it is kept.
pub fn ends_unless_kept(name: &HeaderName) -> bool {
    is_claim(name.as_str()) || *name == PROXY
}

/// Gives a URL without a path the one that it stands for, before anything is decided by it.
#[cold]
pub(crate) fn complete_path<B>(request: &mut Request<B>, options_without_path: bool) {
    let uri = request.uri();
    let completed = match uri.path_and_query().map(PathAndQuery::as_str) {
        Some("/") if options_without_path => Ok(PathAndQuery::from_static("*")),
        Some(query) if query.starts_with('?') => PathAndQuery::try_from(format!("/{query}")),
        _ => return,
    };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = completed.ok();
    // What makes no URL stays as it is, and is refused.
    if let Ok(completed) = Uri::from_parts(parts) {
        *request.uri_mut() = completed;
    }
}

/// Checks a request head, whose target may have so many bytes.
pub(crate) fn check<'a, B>(
    request: &'a Request<B>,
    uri_bytes: usize,
) -> Result<CheckedHead<'a>, Reason> {
    let uri = request.uri();
    let target = uri.path_and_query().map_or("", |target| target.as_str());
    if target.len() > uri_bytes {
        return Err(Reason::UriTooLong);
    }
    let method = request.method();
    if *method == Method::CONNECT || *method == Method::TRACE {
        return Err(Reason::MethodRefused);
    }
    let mut facts = HeadInfo {
        absolute: uri.scheme().is_some(),
        ..HeadInfo::default()
    };
    let mut host = None;
    for (name, value) in request.headers() {
        let name = name.as_str();
        if !may_be_noted(name) {
            continue;
        }
        match name {
            "host" if host.replace(value).is_some() => return Err(Reason::DuplicateHost),
            "transfer-encoding" => {
                let chunked = value.as_bytes().eq_ignore_ascii_case(b"chunked");
                if facts.chunked || !chunked {
                    return Err(Reason::BadEncoding);
                }
                facts.chunked = true;
            }
            "expect" => {
                let continues = value.as_bytes().eq_ignore_ascii_case(b"100-continue");
                facts.expect |= continues;
                facts.expects_continue |= continues && request.version() >= Version::HTTP_11;
            }
            "max-forwards" => facts.max_forwards = *method == Method::OPTIONS,
            name => facts.note(name, value)?,
        }
    }
    if facts.rewrites_length() && one_length(request.headers()).is_none() {
        return Err(Reason::BodyTooLarge);
    }
    facts.has_host = host.is_some();
    facts.tunnel = facts.upgrade
        && facts.connection_upgrade
        && request.version() >= Version::HTTP_11
        && tunnels(request.headers());
    let host = match host {
        Some(host) => {
            let host = host.to_str().map_err(|_| Reason::BadHost)?;
            valid_host(host).ok_or(Reason::BadHost)?
        }
        None if request.version() == Version::HTTP_10 => "",
        None => return Err(Reason::MissingHost),
    };
    let host = if facts.absolute {
        absolute_host(uri)?
    } else {
        host
    };
    let form = target.starts_with('/') || (target == "*" && *method == Method::OPTIONS);
    // An authority without a scheme is the form of CONNECT.
    if !form || (uri.authority().is_some() && !facts.absolute) {
        return Err(Reason::BadTarget);
    }
    Ok(CheckedHead { facts, host })
}

impl HeadInfo {
    /// Whether the request names its host; HTTP/1.0 need not.
    pub(crate) fn names_host(&self) -> bool {
        self.has_host || self.absolute
    }

    /// Whether what is said of the body's length is written anew.
    fn rewrites_length(&self) -> bool {
        (self.lengths > 1 || self.length_is_odd) && !self.chunked
    }

    /// Notes what requests and responses have in common.
    fn note(&mut self, name: &str, value: &HeaderValue) -> Result<(), Reason> {
        match name {
            "connection" => {
                self.connection = true;
                self.note_connection(value)?;
            }
            "content-length" => {
                self.lengths = self.lengths.saturating_add(1);
                self.length_is_odd |= !is_plain_length(value.as_bytes());
            }
            "keep-alive" => self.keep_alive = true,
            "proxy" => self.proxy = true,
            "proxy-connection" => self.proxy_connection = true,
            "te" => {
                self.te = true;
                self.te_trailers |= tokens(value).any(|it| it.eq_ignore_ascii_case(b"trailers"));
            }
            "trailer" => self.trailer = true,
            "upgrade" => self.upgrade = true,
            "host" => {}
            name => {
                self.claims |= is_claim(name);
                self.underscores |= is_folded(name);
            }
        }
        Ok(())
    }

    fn note_connection(&mut self, value: &HeaderValue) -> Result<(), Reason> {
        for token in tokens(value) {
            if token.eq_ignore_ascii_case(b"upgrade") {
                self.connection_upgrade = true;
            } else if HeaderName::from_bytes(token).is_err() {
                return Err(Reason::BadConnection);
            } else if !(token.eq_ignore_ascii_case(b"keep-alive")
                || token.eq_ignore_ascii_case(b"close")
                || token.eq_ignore_ascii_case(b"te"))
            {
                self.nominates = true;
            }
        }
        Ok(())
    }

    /// Takes away what ends at this hop.
    fn strip(&self, headers: &mut HeaderMap) -> Result<(), Reason> {
        if self.nominates {
            for name in nominated(headers)? {
                headers.remove(name);
            }
        }
        if self.connection {
            headers.remove(CONNECTION);
        }
        if self.keep_alive {
            headers.remove(KEEP_ALIVE);
        }
        if self.proxy_connection {
            headers.remove(PROXY_CONNECTION);
        }
        Ok(())
    }
}

/// Whether a name is one that something is done about only for gateways that [`fold`] names.
fn is_folded(name: &str) -> bool {
    let is_plain = |byte| fold(byte) == byte;
    let is = |ours: &&str| name.bytes().map(fold).eq(ours.bytes());
    !name.bytes().all(is_plain)
        && (begins_as_claim(name, true) || NOTED.iter().any(is) || CLAIMS.iter().any(is))
}

/// Drops all fields whose names are such.
#[cold]
fn drop_all(headers: &mut HeaderMap, is_such: impl Fn(&str) -> bool) {
    let such = headers.keys().filter(|name| is_such(name.as_str()));
    for name in such.cloned().collect::<Vec<_>>() {
        headers.remove(name);
    }
}

fn tokens(value: &HeaderValue) -> impl Iterator<Item = &[u8]> {
    value
        .as_bytes()
        .split(|byte| *byte == b',')
        .map(<[u8]>::trim_ascii)
        .filter(|token| !token.is_empty())
}

fn nominated(headers: &HeaderMap) -> Result<Vec<HeaderName>, Reason> {
    let mut names = Vec::new();
    for token in headers.get_all(CONNECTION).iter().flat_map(tokens) {
        let name = HeaderName::from_bytes(token).map_err(|_| Reason::BadConnection)?;
        if names.len() == NOMINATED_MAX {
            return Err(Reason::BadConnection);
        }
        // Upgrade and TE have rules of their own.
        if !NEVER_NOMINATED.contains(&name) && name != UPGRADE && name != TE {
            names.push(name);
        }
    }
    Ok(names)
}

/// Whether the protocol that is asked for may pass. h2c would let requests pass unseen, TLS
/// would end behind us.
fn tunnels(headers: &HeaderMap) -> bool {
    let refused = |token: &[u8]| {
        let name = token.split(|byte| *byte == b'/').next().unwrap_or_default();
        name.eq_ignore_ascii_case(b"h2c")
            || name.eq_ignore_ascii_case(b"h2")
            || name.eq_ignore_ascii_case(b"tls")
            || name.eq_ignore_ascii_case(b"http")
    };
    let mut tokens = headers.get_all(UPGRADE).iter().flat_map(tokens).peekable();
    tokens.peek().is_some() && !tokens.any(refused)
}

/// Whether all protocols that a response switches to are among those that were asked for, and there is one.
/// A version counts where both name one (RFC 9110 §7.8).
pub(crate) fn switches_to(response: &HeaderMap, asked: &[HeaderValue]) -> bool {
    let parts = |token: &[u8]| {
        let mut parts = token.splitn(2, |byte| *byte == b'/');
        let name = parts.next().unwrap_or_default().to_ascii_lowercase();
        (name, parts.next().map(<[u8]>::to_ascii_lowercase))
    };
    let is_asked = |token: &[u8]| {
        let (name, version) = parts(token);
        asked.iter().flat_map(tokens).map(parts).any(|asked| {
            asked.0 == name && (asked.1.is_none() || version.is_none() || asked.1 == version)
        })
    };
    let mut tokens = response.get_all(UPGRADE).iter().flat_map(tokens).peekable();
    tokens.peek().is_some() && tokens.all(is_asked)
}

/// Bytes that a host's name may have (RFC 3986 §3.2.2, less the comma, which would make a list).
const NAME_BYTES: [bool; 256] = {
    let mut allowed = [false; 256];
    let others = b".-_~%!$&'()*+;=";
    let mut index = 0;
    while index < others.len() {
        allowed[others[index] as usize] = true;
        index += 1;
    }
    let mut byte = 0;
    while byte < 128 {
        allowed[byte] |= (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    allowed
};

/// A host as text, if it is one: a name, an address, or an address in brackets, with or without
/// a port.
fn valid_host(host: &str) -> Option<&str> {
    let bytes = host.as_bytes();
    // Most hosts end here: a name, and perhaps a port.
    let end = bytes
        .iter()
        .position(|byte| !NAME_BYTES[usize::from(*byte)])
        .unwrap_or(bytes.len());
    match bytes.get(end..) {
        Some([]) if end > 0 => Some(host),
        Some([b':', port @ ..]) if end > 0 => port.iter().all(u8::is_ascii_digit).then_some(host),
        _ => bracketed(host),
    }
}

#[cold]
fn bracketed(host: &str) -> Option<&str> {
    let (address, port) = host.strip_prefix('[')?.split_once(']')?;
    address.parse::<std::net::Ipv6Addr>().ok()?;
    let port = match port {
        "" => port,
        port => port.strip_prefix(':')?,
    };
    port.bytes()
        .all(|byte| byte.is_ascii_digit())
        .then_some(host)
}

fn absolute_host(uri: &Uri) -> Result<&str, Reason> {
    let scheme = uri.scheme_str().unwrap_or_default();
    let of_web = scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https");
    let authority = uri.authority().ok_or(Reason::BadTarget)?.as_str();
    // A user's name in the authority is refused too: it is no part of a host.
    match valid_host(authority) {
        Some(host) if of_web => Ok(host),
        Some(_) | None => Err(Reason::BadTarget),
    }
}

/// Makes a checked request's head ready for a node.
pub(crate) fn prepare<B>(
    request: &mut Request<B>,
    facts: &HeadInfo,
    has_body: bool,
    hop: &Hop<'_>,
) -> Result<(), Reason> {
    if facts.absolute {
        to_origin_form(request)?;
    }
    let version = std::mem::replace(request.version_mut(), Version::HTTP_11);
    let headers = request.headers_mut();
    facts.strip(headers)?;
    if facts.underscores && !hop.config.underscores {
        drop_all(headers, is_folded);
    }
    if facts.te {
        headers.remove(TE);
        if facts.te_trailers {
            headers.insert(TE, HeaderValue::from_static("trailers"));
            headers.insert(CONNECTION, HeaderValue::from_static("te"));
        }
    }
    // What `Connection` names ends here behind the body, too; without this no trailer goes on.
    if facts.trailer && (!facts.chunked || facts.nominates) {
        headers.remove(TRAILER);
    }
    if facts.tunnel {
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    } else if facts.upgrade {
        headers.remove(UPGRADE);
    }
    if facts.expect && !(facts.expects_continue && has_body) {
        headers.remove(EXPECT);
    }
    if facts.rewrites_length() {
        let length = one_length(headers).ok_or(Reason::BodyTooLarge)?;
        headers.insert(CONTENT_LENGTH, length);
    }
    if facts.max_forwards {
        count_down(headers);
    }
    tell_client(headers, facts, hop);
    if let Some(name) = &hop.config.via {
        append_via(headers, name, version);
    }
    Ok(())
}

/// Takes out of a request's trailers what would mean something else in a head, since some servers take them for fields
/// of it: what concerns one hop, and claims, of trusted clients as well, for what is said here of the client stands
/// in the head.
#[cold]
pub(crate) fn strip_trailers(trailers: &mut HeaderMap, config: &ForwardedConfig) {
    let ends = |name: &str| is_claim(name) || NOTED.contains(&name);
    drop_all(trailers, |name| {
        (ends(name) && !config.keeps(name)) || (!config.underscores && is_folded(name))
    });
}

/// A `Host` for a node, where an HTTP/1.0 client gave none.
pub(crate) fn ensure_host<B>(
    request: &mut Request<B>,
    facts: &HeadInfo,
    node: impl FnOnce() -> HeaderValue,
) {
    if !facts.names_host() {
        request.headers_mut().insert(HOST, node());
    }
}

fn to_origin_form<B>(request: &mut Request<B>) -> Result<(), Reason> {
    let parts = std::mem::take(request.uri_mut()).into_parts();
    let authority = parts.authority.ok_or(Reason::BadTarget)?;
    let host = HeaderValue::from_str(authority.as_str()).map_err(|_| Reason::BadTarget)?;
    request.headers_mut().insert(HOST, host);
    let target = parts.path_and_query.ok_or(Reason::BadTarget)?;
    // With a fragment right behind the authority it is empty, but reads as `/` and would be written as nothing.
    let target = match target.as_str() {
        "/" => PathAndQuery::from_static("/"),
        _ => target,
    };
    *request.uri_mut() = Uri::from(target);
    Ok(())
}

/// Whether an OPTIONS request has come as far as it may (RFC 9110 §7.6.2).
pub(crate) fn ends_here<B>(request: &Request<B>, facts: &HeadInfo) -> bool {
    facts.max_forwards
        && request
            .headers()
            .get(MAX_FORWARDS)
            .is_some_and(|hops| hops.as_bytes() == b"0")
}

fn count_down(headers: &mut HeaderMap) {
    let hops = headers
        .get(MAX_FORWARDS)
        .and_then(|hops| hops.to_str().ok()?.parse::<u32>().ok());
    match hops {
        Some(hops) => headers.insert(MAX_FORWARDS, hops.saturating_sub(1).into()),
        // What is no number may be ignored, but not passed on as if it had been read.
        None => headers.remove(MAX_FORWARDS),
    };
}

/// Sets a list field, or adds to what stands there, as one line.
fn append(headers: &mut HeaderMap, name: HeaderName, more: Option<HeaderValue>, appends: bool) {
    let Some(more) = more else { return };
    let mut list = Vec::new();
    if appends {
        for value in headers.get_all(&name) {
            list.extend_from_slice(value.as_bytes());
            list.extend_from_slice(b", ");
        }
    }
    if list.is_empty() {
        headers.insert(name, more);
        return;
    }
    list.extend_from_slice(more.as_bytes());
    if let Ok(value) = HeaderValue::from_maybe_shared(bytes::Bytes::from(list)) {
        headers.insert(name, value);
    }
}

fn append_via(headers: &mut HeaderMap, name: &str, version: Version) {
    let protocol = match version {
        Version::HTTP_10 => "1.0",
        Version::HTTP_2 => "2.0",
        _ => "1.1",
    };
    let ours = HeaderValue::try_from(format!("{protocol} {name}")).ok();
    append(headers, VIA, ours, true);
}

/// Takes the names of trailers out of a response whose trailers end here.
pub(crate) fn drop_trailer_names(headers: &mut HeaderMap, request: HeadInfo, response: HeadInfo) {
    if response.trailer && !(request.te_trailers && response.chunked) {
        headers.remove(TRAILER);
    }
}

/// Makes a response's head ready for the client.
pub(crate) fn prepare_response(
    headers: &mut HeaderMap,
    status: StatusCode,
    version: Version,
    via: Option<&str>,
) -> Result<HeadInfo, Reason> {
    let mut facts = HeadInfo::default();
    for (name, value) in &*headers {
        let name = name.as_str();
        if !may_be_noted(name) {
            continue;
        }
        match name {
            "transfer-encoding" => {
                let chunked = value.as_bytes().eq_ignore_ascii_case(b"chunked");
                if facts.chunked || !chunked {
                    return Err(Reason::BadResponse);
                }
                facts.chunked = true;
            }
            "endpoint-load-metrics" | "endpoint-load-metrics-bin" => facts.load_metrics = true,
            name => facts.note(name, value).map_err(|_| Reason::BadResponse)?,
        }
    }
    facts.strip(headers).map_err(|_| Reason::BadResponse)?;
    if facts.chunked {
        headers.remove(TRANSFER_ENCODING);
        if facts.lengths > 0 {
            headers.remove(CONTENT_LENGTH);
        }
    }
    // What has no length there ends by itself, and trailers may follow.
    facts.chunked |= version == Version::HTTP_2 && facts.lengths == 0;
    if facts.upgrade {
        match status {
            StatusCode::SWITCHING_PROTOCOLS | StatusCode::UPGRADE_REQUIRED => {
                headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
            }
            _ => {
                headers.remove(UPGRADE);
            }
        }
    }
    if facts.rewrites_length() {
        let length = one_length(headers).ok_or(Reason::BadResponse)?;
        headers.insert(CONTENT_LENGTH, length);
    }
    if let Some(name) = via {
        append_via(headers, name, version);
    }
    Ok(facts)
}

#[cfg(any(test, feature = "fuzzing"))]
#[path = "../../../../fuzz/invariants/head.rs"]
pub(crate) mod invariants;

/// Whether a request of this method may be sent again without harm (RFC 9110 §9.2.2).
pub(crate) fn is_idempotent(method: &Method) -> bool {
    // TRACE does not come this far.
    [
        Method::GET,
        Method::HEAD,
        Method::OPTIONS,
        Method::PUT,
        Method::DELETE,
    ]
    .contains(method)
}

#[cfg(test)]
mod tests;
