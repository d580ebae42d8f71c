//! TLS towards clients: what a listener shows and asks for, as one set that all workers share; and towards nodes (`nodes`).
//!
//! | module | what |
//! |---|---|
//! | `authorities` | whose signatures are believed |
//! | `certificate` | a chain with its key, the names that it is for |
//! | `issued` | a certificate that comes by itself |
//! | `challenges` | what its authority is shown as proof |
//! | `choice` | which of them a client is shown |
//! | `suites` | which cipher suite a connection gets |
//! | `der` | what is read of a certificate itself: validity, subject |
//! | `identity` | a client's certificate as a header value |
//! | `failure` | why a handshake with a client ends without a connection |
//! | `nodes` | which certificates of nodes are believed, and what nodes are shown |
//! | `node_failure` | why there is no TLS with a node |
//!
//! TLS 1.2 and 1.3 (RFC 5246, RFC 8446) with rustls and ring; ALPN (RFC 7301) offers what the listener speaks. Sessions are resumed
//! by tickets, whose keys change every six hours and are believed for twelve, and in TLS 1.2 by a cache as well. A new set
//! of certificates takes the keys of the old one over, unless clients have to show other certificates than before: a
//! resumed session shows none.

mod authorities;
mod certificate;
mod challenges;
mod choice;
mod der;
mod failure;
mod identity;
mod issued;
mod node_failure;
mod nodes;
mod suites;

use std::fmt;
use std::sync::Arc;

use tokio_rustls::rustls::server::{ClientHello, ServerSessionMemoryCache, WebPkiClientVerifier};
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{
    HandshakeKind, ProtocolVersion, ServerConfig, ServerConnection, crypto,
};

pub use authorities::Authorities;
pub use certificate::{Certificate, CertificateError, CertificateOrKeyError, KeyError};
pub use challenges::Challenges;
use choice::Choice;
pub use der::is_ocsp_response;
pub use failure::HandshakeFailure;
pub(crate) use identity::client_identity;
pub use issued::IssuedCertificate;
pub use node_failure::NodeTlsFailure;
pub(crate) use nodes::NodeTlsId;
pub use nodes::{KeyPin, NodeTls, NodeTlsConfig, is_server_name};

/// Sessions of TLS 1.2 without tickets that are remembered, over all workers.
const SESSIONS_MAX: usize = 4096;
/// Tickets that a client gets behind a handshake of TLS 1.3: each is good for the next one, and that brings one again.
const TICKETS: usize = 1;

/// The oldest version of TLS that is spoken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsVersion {
    /// 1.2, RFC 5246.
    #[default]
    Tls12,
    /// 1.3, RFC 8446.
    Tls13,
}

/// Which certificates clients show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificates {
    /// Those that they are signed by.
    pub authorities: Authorities,
    /// Whether a client without one is refused.
    pub required: bool,
}

/// What a listener with TLS shows and asks for.
#[derive(Clone, Debug)]
pub struct TlsConfig {
    /// The first is shown where no other fits.
    pub certificates: Vec<Certificate>,
    /// Those that come by themselves; they stand behind the others. There is at least one of either kind.
    pub issued: Vec<Arc<IssuedCertificate>>,
    /// What authorities are shown that ask for proof by `tls-alpn-01`; none: they do not.
    pub challenges: Option<Arc<Challenges>>,
    /// The oldest version.
    pub minimum: TlsVersion,
    /// What clients show; none: nothing.
    pub clients: Option<ClientCertificates>,
    /// The names of the protocols that are offered (RFC 7301), the best first.
    pub protocols: Vec<&'static str>,
}

/// Why there is no TLS by a configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TlsError(String);

/// See the module.
pub struct ServerTls {
    /// For clients whose order of suites counts.
    by_client: Arc<ServerConfig>,
    /// The same for all others.
    by_server: Arc<ServerConfig>,
    choice: Arc<Choice>,
    clients: Option<ClientCertificates>,
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("ServerTls");
        shown.field("choice", &self.choice);
        shown.field("clients", &self.clients).finish()
    }
}

impl ServerTls {
    /// Makes it ready.
    ///
    /// # Errors
    /// There is no certificate, or no randomness for keys of tickets.
    pub fn new(config: TlsConfig) -> Result<Self, TlsError> {
        let failed = |error: &dyn fmt::Display| TlsError(error.to_string());
        if config.certificates.is_empty() && config.issued.is_empty() {
            return Err(failed(&"no certificate"));
        }
        let provider = Arc::new(suites::provider());
        let versions: &[_] = match config.minimum {
            TlsVersion::Tls12 => &[&TLS13, &TLS12],
            TlsVersion::Tls13 => &[&TLS13],
        };
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
        let builder = builder.with_protocol_versions(versions);
        let builder = builder.map_err(|error| failed(&error))?;
        let builder = match &config.clients {
            None => builder.with_no_client_auth(),
            Some(clients) => {
                let roots = clients.authorities.roots();
                let roots = roots.map_err(|error| failed(&error))?;
                let roots = Arc::new(roots);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
                let verifier = match clients.required {
                    true => verifier,
                    false => verifier.allow_unauthenticated(),
                };
                let verifier = verifier.build().map_err(|error| failed(&error))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        // Authorities offer their protocol alone, so others are not given it.
        let proof = config.challenges.as_ref().map(|_| challenges::ALPN);
        let choice = Choice::new(config.certificates, config.issued, config.challenges);
        let choice = Arc::new(choice);
        let resolver = Arc::clone(&choice);
        let mut made = builder.with_cert_resolver(resolver);
        let offered = config.protocols.into_iter().chain(proof);
        made.alpn_protocols = offered.map(|it| it.as_bytes().to_vec()).collect();
        made.session_storage = ServerSessionMemoryCache::new(SESSIONS_MAX);
        made.send_tls13_tickets = TICKETS;
        made.ticketer = crypto::ring::Ticketer::new().map_err(|error| failed(&error))?;
        Ok(Self::of(made, choice, config.clients))
    }

    fn of(config: ServerConfig, choice: Arc<Choice>, clients: Option<ClientCertificates>) -> Self {
        let mut by_server = config.clone();
        by_server.ignore_client_order = true;
        Self {
            by_client: Arc::new(config),
            by_server: Arc::new(by_server),
            choice,
            clients,
        }
    }

    /// It takes another one's place: sessions that were begun there are resumed here, if clients would have to show the
    /// same.
    pub(crate) fn succeeding(&self, before: &Self) -> Self {
        let mut config = ServerConfig::clone(&self.by_client);
        if self.clients == before.clients {
            config.session_storage = Arc::clone(&before.by_client.session_storage);
            config.ticketer = Arc::clone(&before.by_client.ticketer);
        }
        Self::of(config, Arc::clone(&self.choice), self.clients.clone())
    }

    /// Whether it shows the same certificates in the same order.
    pub(crate) fn shows_the_same(&self, other: &Self) -> bool {
        self.choice.is_same(&other.choice)
    }

    /// Names of the certificates of the configuration, and when each ends, in seconds since 1970.
    pub(crate) fn ends(&self) -> impl Iterator<Item = (&[Box<str>], u64)> {
        self.choice.ends()
    }

    /// Whether it asks clients for certificates.
    pub(crate) fn asks_clients(&self) -> bool {
        self.clients.is_some()
    }

    /// How a client is answered that begins like this.
    pub(crate) fn config_for(&self, hello: &ClientHello<'_>) -> Arc<ServerConfig> {
        Arc::clone(match suites::clients_order_counts(hello.cipher_suites()) {
            true => &self.by_client,
            false => &self.by_server,
        })
    }

    /// Whether a connection was made to look at the certificate of a challenge; nothing is said on it (RFC 8737 §3).
    pub(crate) fn is_challenge(connection: &ServerConnection) -> bool {
        connection.alpn_protocol() == Some(challenges::ALPN.as_bytes())
    }

    /// Whether the certificate that is shown for one name is for a host as well. The host may have a port.
    pub(crate) fn covers(&self, shown_for: Option<&str>, host: &str) -> bool {
        self.choice.covers(shown_for, host)
    }
}

/// How a handshake went that made a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handshake {
    /// The version that was agreed on.
    pub version: TlsVersion,
    /// Whether it went on with an earlier session.
    pub resumed: bool,
}

impl Handshake {
    /// Each way with its labels: version, whether a session was resumed.
    pub const ALL: [(Self, &'static str, bool); 4] = [
        (Self::of(TlsVersion::Tls12, false), "1.2", false),
        (Self::of(TlsVersion::Tls12, true), "1.2", true),
        (Self::of(TlsVersion::Tls13, false), "1.3", false),
        (Self::of(TlsVersion::Tls13, true), "1.3", true),
    ];

    const fn of(version: TlsVersion, resumed: bool) -> Self {
        Self { version, resumed }
    }

    /// How this connection was made.
    pub(crate) fn seen(connection: &ServerConnection) -> Self {
        let version = match connection.protocol_version() {
            Some(ProtocolVersion::TLSv1_3) => TlsVersion::Tls13,
            _ => TlsVersion::Tls12,
        };
        let resumed = connection.handshake_kind() == Some(HandshakeKind::Resumed);
        Self { version, resumed }
    }

    /// Its place in [`Handshake::ALL`].
    pub(crate) const fn index(self) -> usize {
        let version = match self.version {
            TlsVersion::Tls12 => 0,
            TlsVersion::Tls13 => 2,
        };
        version + self.resumed as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_has_its_place() {
        for (index, (way, _, resumed)) in Handshake::ALL.into_iter().enumerate() {
            assert_eq!((way.index(), way.resumed), (index, resumed));
        }
    }
}
