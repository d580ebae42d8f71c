//! TLS towards nodes: which of their certificates are believed, and which one they are shown, as one rule of a site that
//! all workers share.
//!
//! | set | a node's certificate is believed if |
//! |---|---|
//! | authorities | it leads to one of them, is valid now, is for servers, and has the name (RFC 5280, RFC 6125) |
//! | pins | its public key is one of these (SHA-256 of its SubjectPublicKeyInfo, RFC 7469 §2.4) |
//! | both | both is so |
//! | neither | always, which must be asked for by name |
//!
//! In each case the node proves that it has the certificate's key. A session is resumed with the node that it was begun with, and by
//! the same rule alone: what was believed is not looked at again. Failure case: a certificate that expires or is revoked meanwhile is
//! believed for as long as its session lasts, a week at most (RFC 8446 §4.6.1).

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ring::digest::{SHA256, digest};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::client::{Resumption, WebPkiServerVerifier};
use tokio_rustls::rustls::crypto::{
    self, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::sign::SingleCertAndKey;
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, SignatureScheme,
};
use webpki::EndEntityCert;

use super::TlsError;
use super::authorities::Authorities;
use super::certificate::Certificate;
use super::node_failure::NodeTlsFailure;
use super::suites;

/// What is spoken with nodes (ALPN, RFC 7301).
const HTTP1: &[u8] = b"http/1.1";
const HTTP2: &[u8] = b"h2";
/// Nodes whose sessions are remembered; beyond them all are forgotten.
const NODES_MAX: usize = 4096;
/// Sessions of a node that are remembered.
const SESSIONS_PER_NODE: usize = 8;

/// A public key that a node may have: the SHA-256 of its SubjectPublicKeyInfo in DER.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyPin(pub [u8; 32]);

/// Whether a certificate can have this name: a host's, or an address.
pub fn is_server_name(name: &str) -> bool {
    ServerName::try_from(name).is_ok()
}

/// What is wanted of nodes, and shown to them.
#[derive(Clone, Debug, Default)]
pub struct NodeTlsConfig {
    /// Their certificates are signed by one of these; none: that is not looked at.
    pub authorities: Option<Authorities>,
    /// Their keys; empty: any.
    pub pins: Vec<KeyPin>,
    /// Any certificate is believed. Then neither of the others is set.
    pub any_certificate: bool,
    /// The name that their certificates have, and that they are asked for (SNI); needed where authorities are set.
    pub name: Option<String>,
    /// What they are shown that ask for a certificate.
    pub certificate: Option<Certificate>,
    /// Whether HTTP/2 is spoken with them; else HTTP/1.1.
    pub http2: bool,
}

impl NodeTlsConfig {
    fn is_same(&self, other: &Self) -> bool {
        let chain = |it: &Self| {
            let shown = it.certificate.as_ref();
            shown.map(|it| it.certified().cert.clone())
        };
        self.authorities == other.authorities
            && self.pins == other.pins
            && self.any_certificate == other.any_certificate
            && self.name == other.name
            && self.http2 == other.http2
            && chain(self) == chain(other)
    }

    fn verifier(&self, provider: &Arc<crypto::CryptoProvider>) -> Result<Verifier, String> {
        if self.any_certificate != (self.authorities.is_none() && self.pins.is_empty()) {
            return Err("nothing says which certificates are believed".into());
        }
        let chain = match &self.authorities {
            None => None,
            Some(_) if self.name.is_none() => {
                return Err("nothing says which name certificates have".into());
            }
            Some(authorities) => {
                let roots = authorities.roots().map_err(|error| error.to_string())?;
                let provider = Arc::clone(provider);
                let builder =
                    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
                Some(builder.build().map_err(|error| error.to_string())?)
            }
        };
        Ok(Verifier {
            chain,
            pins: self.pins.clone(),
            algorithms: provider.signature_verification_algorithms,
        })
    }
}

/// Which rule a connection was made by: two rules have never the same one in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeTlsId(NonZeroU32);

impl NodeTlsId {
    fn next() -> Self {
        static LAST: AtomicU32 = AtomicU32::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        Self(NonZeroU32::new(number).unwrap_or(NonZeroU32::MAX))
    }
}

/// See the module.
pub struct NodeTls {
    id: NodeTlsId,
    rule: NodeTlsConfig,
    name: Option<ServerName<'static>>,
    config: ClientConfig,
    /// The same for each node, with its sessions.
    of_nodes: Mutex<HashMap<SocketAddr, Arc<ClientConfig>>>,
}

impl fmt::Debug for NodeTls {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("NodeTls");
        shown.field("id", &self.id);
        shown.field("rule", &self.rule).finish_non_exhaustive()
    }
}

impl NodeTls {
    /// Makes it ready.
    ///
    /// # Errors
    /// Nothing, or too much, says which certificates are believed, or the name is none.
    pub fn new(rule: NodeTlsConfig) -> Result<Self, TlsError> {
        let provider = Arc::new(suites::provider());
        let verifier = rule.verifier(&provider).map_err(TlsError)?;
        let name = match &rule.name {
            None => None,
            Some(name) => {
                let parsed = ServerName::try_from(name.clone());
                Some(parsed.map_err(|_| TlsError(format!("`{name}` is no name of a server")))?)
            }
        };
        let builder = ClientConfig::builder_with_provider(provider);
        let builder = builder.with_protocol_versions(&[&TLS13, &TLS12]);
        let builder = builder.map_err(|error| TlsError(error.to_string()))?;
        let builder = builder.dangerous();
        let builder = builder.with_custom_certificate_verifier(Arc::new(verifier));
        let mut config = match &rule.certificate {
            None => builder.with_no_client_auth(),
            Some(certificate) => {
                let shown = SingleCertAndKey::from(Arc::clone(certificate.certified()));
                builder.with_client_cert_resolver(Arc::new(shown))
            }
        };
        let protocol = if rule.http2 { HTTP2 } else { HTTP1 };
        config.alpn_protocols = vec![protocol.to_vec()];
        Ok(Self {
            id: NodeTlsId::next(),
            rule,
            name,
            config,
            of_nodes: Mutex::default(),
        })
    }

    /// Whether connections of the other are as good as its own.
    pub fn is_same(&self, other: &Self) -> bool {
        self.id == other.id || self.rule.is_same(&other.rule)
    }

    pub(crate) fn id(&self) -> NodeTlsId {
        self.id
    }

    /// Shakes hands with the node at this address, on a new connection. It has no limit on time.
    ///
    /// # Errors
    /// There is no TLS with it, and why; the connection is of no use any more.
    pub async fn shake_hands(
        &self,
        stream: TcpStream,
        address: SocketAddr,
    ) -> Result<TlsStream<TcpStream>, NodeTlsFailure> {
        // An address is not sent as a name (RFC 6066 §3), and without authorities no name is looked at.
        let name = self.name.clone();
        let name = name.unwrap_or_else(|| address.ip().into());
        let connector = TlsConnector::from(self.of_node(address));
        let connected = connector.connect(name, stream).await;
        connected.map_err(|error| NodeTlsFailure::of(&error))
    }

    fn of_node(&self, address: SocketAddr) -> Arc<ClientConfig> {
        let mut nodes = self.of_nodes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(config) = nodes.get(&address) {
            return Arc::clone(config);
        }
        if nodes.len() >= NODES_MAX {
            nodes.clear();
        }
        let mut config = self.config.clone();
        config.resumption = Resumption::in_memory_sessions(SESSIONS_PER_NODE);
        let config = Arc::new(config);
        nodes.insert(address, Arc::clone(&config));
        config
    }
}

/// Says which certificates are believed.
#[derive(Debug)]
struct Verifier {
    chain: Option<Arc<WebPkiServerVerifier>>,
    pins: Vec<KeyPin>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if let Some(chain) = &self.chain {
            chain.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)?;
        }
        if !self.pins.is_empty() {
            let parsed = EndEntityCert::try_from(end_entity);
            let parsed = parsed.map_err(|_| CertificateError::BadEncoding)?;
            let key = digest(&SHA256, &parsed.subject_public_key_info());
            if !self.pins.iter().any(|pin| pin.0 == key.as_ref()) {
                return Err(CertificateError::ApplicationVerificationFailure.into());
            }
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pinned(pin: u8) -> NodeTlsConfig {
        NodeTlsConfig {
            pins: vec![KeyPin([pin; 32])],
            ..NodeTlsConfig::default()
        }
    }

    #[test]
    fn what_is_believed_is_said_once() {
        let any = NodeTlsConfig {
            any_certificate: true,
            ..NodeTlsConfig::default()
        };
        assert!(NodeTls::new(any).is_ok());
        assert!(NodeTls::new(pinned(1)).is_ok());
        let neither = NodeTls::new(NodeTlsConfig::default()).unwrap_err();
        assert!(neither.to_string().contains("nothing says"), "{neither}");
        let both = NodeTlsConfig {
            any_certificate: true,
            ..pinned(1)
        };
        assert!(NodeTls::new(both).is_err());
        let named = NodeTlsConfig {
            name: Some("a b".into()),
            ..pinned(1)
        };
        assert!(NodeTls::new(named).is_err());
    }

    #[test]
    fn a_rule_is_the_same_by_what_it_says_and_has_a_number_of_its_own() {
        let [one, twin, other] = [1, 1, 2].map(|pin| NodeTls::new(pinned(pin)).unwrap());
        assert!(one.is_same(&one) && one.is_same(&twin) && !one.is_same(&other));
        assert!(one.id() != twin.id() && twin.id() != other.id());
    }

    #[test]
    fn sessions_are_a_nodes_own_and_of_so_many_nodes() {
        let tls = NodeTls::new(pinned(1)).unwrap();
        let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let first = tls.of_node(at(1));
        assert!(Arc::ptr_eq(&first, &tls.of_node(at(1))));
        assert!(!Arc::ptr_eq(&first, &tls.of_node(at(2))));
        for port in 3..=NODES_MAX as u16 {
            tls.of_node(at(port));
        }
        assert!(Arc::ptr_eq(&first, &tls.of_node(at(1))));
        tls.of_node(at(u16::MAX));
        assert!(!Arc::ptr_eq(&first, &tls.of_node(at(1))));
    }

    #[test]
    fn names_are_of_hosts_or_addresses() {
        for name in ["web.internal", "web.internal.", "10.0.0.1", "::1"] {
            assert!(is_server_name(name), "{name}");
        }
        for name in ["", "a b", "https://web", "web:443", "*.internal"] {
            assert!(!is_server_name(name), "{name}");
        }
    }
}
