//! What `GET /api/status` says of certificates: those that an ACME authority issues, and those of the configuration.

use serde::{Deserialize, Serialize};

/// A certificate of the configuration that clients are shown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct GivenCertificate {
    /// The host names that it is for.
    pub(crate) names: Vec<String>,
    /// Until it ends; negative behind its end.
    pub(crate) expires_in_seconds: f64,
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct CertificateStatus {
    /// The host names that it is for.
    pub(crate) names: Vec<String>,
    /// Until the one in force ends, negative behind its end; null if there is none.
    pub(crate) expires_in_seconds: Option<f64>,
    /// Certificates that came since the start.
    pub(crate) issued: u64,
    /// Tries since then that brought none.
    pub(crate) failed: u64,
    /// Why there is no new one, or why the one in force could not be written; null if all is well.
    pub(crate) error: Option<String>,
    /// Until the next try; null while another front-end orders.
    pub(crate) next_try_in_seconds: Option<f64>,
}
