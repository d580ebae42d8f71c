//! Why there is no TLS with a node.

use std::io;

use tokio_rustls::rustls::{CertificateError, Error};

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeTlsFailure {
    /// The certificate is of no authority that is believed, or not for servers.
    Untrusted,
    /// The certificate has another name.
    Name,
    /// The certificate is not valid now.
    Expired,
    /// The certificate has another key than those that are pinned.
    Pin,
    /// The handshake failed otherwise: the node speaks no TLS, none that both know, or refuses.
    Handshake,
}

impl NodeTlsFailure {
    /// What it means, as part of a sentence.
    pub const fn what(self) -> &'static str {
        match self {
            Self::Untrusted => "its certificate is of no authority that is believed",
            Self::Name => "its certificate has another name",
            Self::Expired => "its certificate is not valid now",
            Self::Pin => "its certificate has a key that is not pinned",
            Self::Handshake => "the handshake failed",
        }
    }

    /// What an error of a handshake means.
    pub(super) fn of(error: &io::Error) -> Self {
        let Some(Error::InvalidCertificate(why)) = inner(error) else {
            return Self::Handshake;
        };
        let is_out_of_time = matches!(
            why,
            CertificateError::Expired
                | CertificateError::ExpiredContext { .. }
                | CertificateError::NotValidYet
                | CertificateError::NotValidYetContext { .. }
        );
        let has_other_name = matches!(
            why,
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. }
        );
        if is_out_of_time {
            Self::Expired
        } else if has_other_name {
            Self::Name
        } else if *why == CertificateError::ApplicationVerificationFailure {
            Self::Pin
        } else {
            Self::Untrusted
        }
    }

    /// Whether an error of a connection is one of TLS: a node says only behind the handshake that it refuses the
    /// certificate that it was shown (RFC 8446 §4.4.2.4).
    pub(crate) fn is_of_tls(error: &hyper::Error) -> bool {
        let source = std::error::Error::source(error);
        let source = source.and_then(|it| it.downcast_ref::<io::Error>());
        source.is_some_and(|it| inner(it).is_some())
    }
}

fn inner(error: &io::Error) -> Option<&Error> {
    error.get_ref().and_then(|it| it.downcast_ref::<Error>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_has_its_name() {
        let of = |error| NodeTlsFailure::of(&io::Error::other(error));
        let certificate = |error| of(Error::InvalidCertificate(error));
        for (error, failure) in [
            (CertificateError::UnknownIssuer, NodeTlsFailure::Untrusted),
            (CertificateError::BadSignature, NodeTlsFailure::Untrusted),
            (CertificateError::Expired, NodeTlsFailure::Expired),
            (CertificateError::NotValidYet, NodeTlsFailure::Expired),
            (CertificateError::NotValidForName, NodeTlsFailure::Name),
            (
                CertificateError::ApplicationVerificationFailure,
                NodeTlsFailure::Pin,
            ),
        ] {
            assert_eq!(certificate(error), failure);
        }
        assert_eq!(of(Error::DecryptError), NodeTlsFailure::Handshake);
        let reset = io::Error::from(io::ErrorKind::ConnectionReset);
        assert_eq!(NodeTlsFailure::of(&reset), NodeTlsFailure::Handshake);
    }
}
