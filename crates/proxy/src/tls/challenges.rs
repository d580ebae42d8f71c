//! What an ACME authority is shown as proof that this front-end has a name: pending challenges, and no others.
//!
//! | challenge | asked at | answered by |
//! |---|---|---|
//! | `http-01` (RFC 8555 §8.3) | a listener of plain HTTP, `/.well-known/acme-challenge/TOKEN` | the key authorization |
//! | `tls-alpn-01` (RFC 8737) | a listener with TLS, ALPN `acme-tls/1` alone | a certificate that is for this alone |

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;
use tokio_rustls::rustls::crypto::ring::sign::any_supported_type;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::server::ClientHello;
use tokio_rustls::rustls::sign::CertifiedKey;

use super::certificate::KeyError;

/// The protocol of `tls-alpn-01` (RFC 8737 §6.2).
pub(super) const ALPN: &str = "acme-tls/1";
/// Where tokens of `http-01` are asked for (RFC 8555 §8.3).
const FOLDER: &str = "/.well-known/acme-challenge/";

/// See the module. One for all listeners.
#[derive(Default)]
pub struct Challenges {
    /// Key authorizations by token.
    http: ArcSwap<HashMap<Box<str>, Bytes>>,
    /// Certificates by name, in lower case.
    tls: ArcSwap<HashMap<Box<str>, Arc<CertifiedKey>>>,
}

impl fmt::Debug for Challenges {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What proves anything is not shown.
        let (http, tls) = (self.http.load().len(), self.tls.load().len());
        let mut shown = formatter.debug_struct("Challenges");
        shown.field("http", &http).field("tls", &tls).finish()
    }
}

impl Challenges {
    /// From now on this token of `http-01` is answered so.
    pub fn expect_http(&self, token: &str, authorization: &str) {
        let answer = Bytes::copy_from_slice(authorization.as_bytes());
        self.http.rcu(|pending| {
            let mut pending = HashMap::clone(pending);
            pending.insert(token.into(), answer.clone());
            pending
        });
    }

    /// From now on `tls-alpn-01` for this name is answered with this certificate, in DER, and its key (PKCS #8).
    ///
    /// # Errors
    /// The key is of no use.
    pub fn expect_tls(&self, name: &str, certificate: &[u8], key: &[u8]) -> Result<(), KeyError> {
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.to_vec()));
        let signing = any_supported_type(&key).map_err(|_| KeyError::Unsupported)?;
        let chain = vec![CertificateDer::from(certificate.to_vec())];
        let certified = Arc::new(CertifiedKey::new(chain, signing));
        self.tls.rcu(|pending| {
            let mut pending = HashMap::clone(pending);
            pending.insert(name.to_ascii_lowercase().into(), Arc::clone(&certified));
            pending
        });
        Ok(())
    }

    /// Nothing is pending any more.
    pub fn forget(&self) {
        self.http.store(Arc::default());
        self.tls.store(Arc::default());
    }

    /// The key authorization that is asked for by this path, if it is pending.
    pub(crate) fn http_answer(&self, path: &str) -> Option<Bytes> {
        let token = path.strip_prefix(FOLDER)?;
        self.http.load().get(token).cloned()
    }

    /// Whether a client asks for a challenge's certificate.
    pub(super) fn is_asked_by(hello: &ClientHello<'_>) -> bool {
        let offered = hello.alpn();
        offered.is_some_and(|mut it| it.next() == Some(ALPN.as_bytes()) && it.next().is_none())
    }

    /// The certificate of the pending challenge for a name.
    pub(super) fn tls_answer(&self, name: Option<&str>) -> Option<Arc<CertifiedKey>> {
        let name = name?.to_ascii_lowercase();
        self.tls.load().get(name.as_str()).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pending_tokens_alone_are_answered() {
        let challenges = Challenges::default();
        challenges.expect_http("one", "one.thumb");
        challenges.expect_http("two", "two.thumb");
        let answer = |path: &str| challenges.http_answer(path);
        let text = Some(Bytes::from_static(b"one.thumb"));
        assert_eq!(answer("/.well-known/acme-challenge/one"), text);
        for other in ["", "one/", "/one", "three", "../acme-challenge/one"] {
            assert_eq!(answer(&format!("{FOLDER}{other}")), None, "{other}");
        }
        assert_eq!(answer("/one"), None);
        challenges.forget();
        assert_eq!(answer("/.well-known/acme-challenge/one"), None);
    }

    #[test]
    fn a_key_that_is_none_is_an_error() {
        let challenges = Challenges::default();
        let refused = challenges.expect_tls("a.example", b"certificate", b"key");
        assert_eq!(refused, Err(KeyError::Unsupported));
        assert!(challenges.tls_answer(Some("a.example")).is_none());
        assert!(challenges.tls_answer(None).is_none());
    }

    #[test]
    fn what_is_shown_of_them_proves_nothing() {
        let challenges = Challenges::default();
        challenges.expect_http("token", "token.thumb");
        let shown = format!("{challenges:?}");
        assert_eq!(shown, "Challenges { http: 1, tls: 0 }");
    }
}
