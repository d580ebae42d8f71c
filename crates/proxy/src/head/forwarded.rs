//! What a node learns of the client: its address, the host and the scheme that it asked for (`X-Forwarded-*`, or
//! `Forwarded` of RFC 7239), and the certificate that it has shown.

use std::net::IpAddr;

use http::HeaderMap;
use http::header::{FORWARDED, HOST, HeaderName, HeaderValue};

use super::{HeadInfo, PROXY, X_FORWARDED_FOR, append, drop_all, fold, is_claim};
use crate::config::ForwardedConfig;

pub(super) const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
pub(super) const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_FORWARDED_CLIENT_CERT: HeaderName = HeaderName::from_static("x-forwarded-client-cert");

/// What a request's head becomes depends on its client and its node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hop<'a> {
    pub(crate) config: &'a ForwardedConfig,
    pub(crate) client: IpAddr,
    /// The client's address as a header value, made once per connection.
    pub(crate) client_value: &'a HeaderValue,
    /// `http`, or `https` where the connection is one of TLS.
    pub(crate) scheme: &'static str,
    /// Whether the listener asks clients for certificates.
    pub(crate) asks_certificate: bool,
    /// The client's certificate, as a header value.
    pub(crate) certificate: Option<&'a HeaderValue>,
}

pub(super) fn tell_client(headers: &mut HeaderMap, facts: &HeadInfo, hop: &Hop<'_>) {
    let config = hop.config;
    let trusted = config.trusted.iter().any(|it| it.contains(hop.client));
    if facts.claims && !trusted {
        drop_all(headers, |name| is_claim(name) && !config.keeps(name));
    }
    if facts.proxy && !config.keeps(PROXY.as_str()) {
        headers.remove(PROXY);
    }
    if hop.asks_certificate {
        // What is seen here of the client's certificate counts, whatever a trusted client claims.
        drop_all(headers, is_certificate);
        if let Some(certificate) = hop.certificate {
            headers.insert(X_FORWARDED_CLIENT_CERT, certificate.clone());
        }
    }
    let appends = facts.claims && trusted;
    if config.forwarded {
        append(headers, FORWARDED, forwarded_element(headers, hop), appends);
    }
    if config.x_forwarded {
        if appends {
            let client = Some(hop.client_value.clone());
            append(headers, X_FORWARDED_FOR, client, true);
            if !headers.contains_key(X_FORWARDED_PROTO) {
                headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static(hop.scheme));
            }
            if !headers.contains_key(X_FORWARDED_HOST)
                && let Some(host) = host_of(headers).cloned()
            {
                headers.insert(X_FORWARDED_HOST, host);
            }
        } else {
            headers.insert(X_FORWARDED_FOR, hop.client_value.clone());
            headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static(hop.scheme));
            if let Some(host) = host_of(headers).cloned() {
                headers.insert(X_FORWARDED_HOST, host);
            }
        }
    }
}

/// The `Host`. Clients send it first, so that it is found sooner by looking than by its hash.
fn host_of(headers: &HeaderMap) -> Option<&HeaderValue> {
    let mut fields = headers.iter();
    fields.find_map(|(name, value)| (*name == HOST).then_some(value))
}

/// Whether a name is that of a client's certificate, or is taken for it by gateways that keep letters and digits alone.
fn is_certificate(name: &str) -> bool {
    let ours = X_FORWARDED_CLIENT_CERT;
    name.bytes().map(fold).eq(ours.as_str().bytes())
}

fn forwarded_element(headers: &HeaderMap, hop: &Hop<'_>) -> Option<HeaderValue> {
    let mut element = match hop.client.to_canonical() {
        IpAddr::V4(client) => format!("for={client}"),
        IpAddr::V6(client) => format!("for=\"[{client}]\""),
    };
    // A checked host has neither quotes nor backslashes.
    if let Some(host) = headers.get(HOST).and_then(|host| host.to_str().ok()) {
        element.push_str(";host=\"");
        element.push_str(host);
        element.push('"');
    }
    element.push_str(";proto=");
    element.push_str(hop.scheme);
    HeaderValue::try_from(element).ok()
}
