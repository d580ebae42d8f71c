//! A listener: where it is, and how the connections are served that come there.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;

use super::Network;
use crate::tls::{Challenges, ServerTls};

/// A socket that clients connect to.
#[derive(Clone, Debug)]
pub struct ListenerConfig {
    /// Where to listen. Port 0 takes a free port, the same for all workers.
    pub address: SocketAddr,
    /// How its connections are served.
    pub plan: ListenerPlan,
}

impl ListenerConfig {
    /// Plain HTTP.
    pub fn plain(address: SocketAddr) -> Self {
        let plan = ListenerPlan::default();
        Self { address, plan }
    }
}

/// How the connections of a listener are served. It may change while the listener stays: connections keep the one that
/// they came with.
#[derive(Clone, Debug, Default)]
pub struct ListenerPlan {
    /// TLS; none: plain HTTP.
    pub tls: Option<Arc<ServerTls>>,
    /// `Strict-Transport-Security` in each answer (RFC 6797), where there is TLS.
    pub hsts: Option<HeaderValue>,
    /// A request for a host that the certificate is not for, which the connection began with, is refused.
    pub refuses_other_hosts: bool,
    /// Balancers that pass connections on, and say by the PROXY protocol whose they are; none: clients connect by themselves.
    pub balancers: Arc<[Network]>,
    /// What the listener answers itself, before any site; none: nothing.
    pub answers: Option<Arc<ListenerAnswers>>,
    /// What is spoken.
    pub protocols: Protocols,
    /// The name of the site whose nodes connections go to as they are; none: they are HTTP.
    pub tcp_site: Option<Arc<str>>,
}

/// What a listener answers itself, in this order.
#[derive(Clone, Debug, Default)]
pub struct ListenerAnswers {
    /// Pending challenges of an ACME authority by `http-01`; other paths, and tokens that are not pending, go on.
    pub challenges: Option<Arc<Challenges>>,
    /// Every request is sent to this port by `https`.
    pub redirects_to: Option<u16>,
}

/// Versions of HTTP that a listener speaks: TLS offers them, and where there is none, a client's first bytes say which it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protocols {
    /// HTTP/1.1 and 1.0 (RFC 9112).
    pub http1: bool,
    /// HTTP/2 (RFC 9113).
    pub http2: bool,
}

impl Default for Protocols {
    fn default() -> Self {
        Self {
            http1: true,
            http2: true,
        }
    }
}

impl ListenerPlan {
    /// The value of `Strict-Transport-Security` for so long, in whole seconds.
    pub fn hsts_for(max_age: Duration) -> Option<HeaderValue> {
        HeaderValue::try_from(format!("max-age={}", max_age.as_secs())).ok()
    }

    /// The port that every request is sent to by `https`.
    pub fn redirects_to(&self) -> Option<u16> {
        self.answers.as_ref().and_then(|it| it.redirects_to)
    }

    /// What takes the place of another plan: sessions of TLS go on.
    pub(crate) fn succeeding(mut self, before: &Self) -> Self {
        if let (Some(tls), Some(before)) = (&self.tls, &before.tls) {
            self.tls = Some(Arc::new(tls.succeeding(before)));
        }
        self
    }

    /// Whether a client sees another certificate than by this one, or plain HTTP instead of TLS or the other way round.
    pub(crate) fn shows_another(&self, before: &Self) -> bool {
        match (&self.tls, &before.tls) {
            (Some(tls), Some(before)) => !tls.shows_the_same(before),
            (None, None) => false,
            (Some(_), None) | (None, Some(_)) => true,
        }
    }
}
