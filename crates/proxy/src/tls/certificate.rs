//! A certificate with its chain and its key, read from PEM (RFC 7468).

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use tokio_rustls::rustls::crypto::ring::sign::any_supported_type;
use tokio_rustls::rustls::pki_types::pem::{Error as PemError, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::sign::CertifiedKey;
use webpki::EndEntityCert;

use super::der;

/// See the module. What is shown of it is no secret.
#[derive(Clone)]
pub struct Certificate {
    certified: Arc<CertifiedKey>,
    names: Vec<Box<str>>,
    valid: Range<u64>,
}

impl fmt::Debug for Certificate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("Certificate");
        shown.field("names", &self.names);
        shown.field("valid", &self.valid).finish_non_exhaustive()
    }
}

/// Why a file of certificates is of no use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    /// There is none.
    #[error("there is no certificate in it: `-----BEGIN CERTIFICATE-----` is expected")]
    None,
    /// It is broken PEM.
    #[error("it is no PEM: {0}")]
    Pem(String),
    /// What is in there is no certificate, or none that is understood.
    #[error("a certificate in it cannot be read: {0}")]
    NotX509(String),
    /// The server's own is not the first.
    #[error(
        "the key is that of certificate {0} in it: the server's own comes first, and then those that lead to its authority"
    )]
    Order(usize),
}

impl CertificateError {
    pub(super) fn pem(error: PemError) -> Self {
        if matches!(error, PemError::NoItemsFound) {
            return Self::None;
        }
        Self::Pem(error.to_string())
    }
}

/// Why a file is of no use as the key of a certificate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// There is none.
    #[error("there is no private key in it: `-----BEGIN PRIVATE KEY-----` is expected")]
    None,
    /// It is broken PEM.
    #[error("it is no PEM: {0}")]
    Pem(String),
    /// It is locked by a passphrase.
    #[error("the private key in it is encrypted: `openssl pkey -in FILE -out PLAIN` unlocks it")]
    Encrypted,
    /// It is of a kind that is not supported.
    #[error(
        "the private key in it is of no use: RSA of 2048 bits or more, ECDSA P-256 or P-384, or Ed25519 is expected"
    )]
    Unsupported,
    /// It is another certificate's.
    #[error("the private key in it is not that of the certificate")]
    Mismatch,
}

/// A chain of certificates, not yet with its key.
#[derive(Clone, Debug)]
struct Chain {
    chain: Vec<CertificateDer<'static>>,
    names: Vec<Box<str>>,
    valid: Range<u64>,
}

impl Chain {
    fn from_pem(pem: &[u8]) -> Result<Self, CertificateError> {
        let read = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
        let chain = read.map_err(CertificateError::pem)?;
        let first = chain.first().ok_or(CertificateError::None)?;
        let not_x509 = |what: &str| CertificateError::NotX509(what.to_owned());
        let parsed = EndEntityCert::try_from(first);
        let parsed = parsed.map_err(|error| not_x509(&error.to_string()))?;
        let names = parsed.valid_dns_names();
        let names = names.map(|name| name.to_ascii_lowercase().into()).collect();
        let valid = der::validity(first).ok_or_else(|| not_x509("its dates are malformed"))?;
        Ok(Self {
            chain,
            names,
            valid,
        })
    }
}

impl Certificate {
    /// A chain, the server's own certificate first, and what is left of it without its key: an error that says which
    /// file is to blame.
    ///
    /// # Errors
    /// Either cannot be used.
    pub fn from_pem(
        chain: &[u8],
        key: &[u8],
        ocsp: Option<Vec<u8>>,
    ) -> Result<Self, CertificateOrKeyError> {
        let Chain {
            chain,
            names,
            valid,
        } = Chain::from_pem(chain)?;
        let signing = any_supported_type(&private_key(key)?).map_err(|_| KeyError::Unsupported)?;
        let mut certified = CertifiedKey::new(chain, signing);
        if certified.keys_match().is_err() {
            return Err(mismatch(&certified));
        }
        certified.ocsp = ocsp.filter(|it| !it.is_empty());
        Ok(Self {
            certified: Arc::new(certified),
            names,
            valid,
        })
    }

    /// DNS names that it is for, in lower case, some with a wildcard. A common name is none (RFC 6125 §6.4.4).
    pub fn names(&self) -> &[Box<str>] {
        &self.names
    }

    /// From when until when it is valid, in seconds since 1970.
    pub fn valid(&self) -> Range<u64> {
        self.valid.clone()
    }

    pub(super) fn certified(&self) -> &Arc<CertifiedKey> {
        &self.certified
    }
}

/// Which of the two files is to blame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertificateOrKeyError {
    /// That of the certificate.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// That of the key.
    #[error(transparent)]
    Key(#[from] KeyError),
}

/// Why the key is not that of the first certificate: it may be another's in the chain.
fn mismatch(certified: &CertifiedKey) -> CertificateOrKeyError {
    let is_its = |certificate: &CertificateDer<'static>| {
        let (alone, key) = (vec![certificate.clone()], Arc::clone(&certified.key));
        CertifiedKey::new(alone, key).keys_match().is_ok()
    };
    match certified.cert.iter().position(is_its) {
        Some(place) => CertificateError::Order(place + 1).into(),
        None => KeyError::Mismatch.into(),
    }
}

fn private_key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, KeyError> {
    match PrivateKeyDer::from_pem_slice(pem) {
        Ok(key) if !is_encrypted(pem) => Ok(key),
        Ok(_) => Err(KeyError::Encrypted),
        Err(_) if is_encrypted(pem) => Err(KeyError::Encrypted),
        Err(PemError::NoItemsFound) => Err(KeyError::None),
        Err(error) => Err(KeyError::Pem(error.to_string())),
    }
}

/// Whether a key is locked, by PKCS #8 (RFC 5958) or in the older form of OpenSSL.
fn is_encrypted(pem: &[u8]) -> bool {
    let has = |text: &[u8]| pem.windows(text.len()).any(|it| it == text);
    has(b"BEGIN ENCRYPTED PRIVATE KEY") || has(b"Proc-Type: 4,ENCRYPTED")
}
