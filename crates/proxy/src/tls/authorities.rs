//! Certificates of authorities, read from PEM (RFC 7468): whatever they have signed is believed.

use std::fmt;

use tokio_rustls::rustls::RootCertStore;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;

use super::certificate::CertificateError;

/// See the module. At least one.
#[derive(Clone, PartialEq, Eq)]
pub struct Authorities(Vec<CertificateDer<'static>>);

impl fmt::Debug for Authorities {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Authorities({})", self.0.len())
    }
}

impl Authorities {
    /// All that are in a file.
    ///
    /// # Errors
    /// None is in there, or one cannot be read.
    pub fn from_pem(pem: &[u8]) -> Result<Self, CertificateError> {
        let read = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
        let read = read.map_err(CertificateError::pem)?;
        if read.is_empty() {
            return Err(CertificateError::None);
        }
        let made = Self(read);
        made.roots()?;
        Ok(made)
    }

    /// As rustls takes them.
    ///
    /// # Errors
    /// One cannot be read.
    pub fn roots(&self) -> Result<RootCertStore, CertificateError> {
        let mut roots = RootCertStore::empty();
        for authority in &self.0 {
            let added = roots.add(authority.clone());
            added.map_err(|error| CertificateError::NotX509(error.to_string()))?;
        }
        Ok(roots)
    }
}
