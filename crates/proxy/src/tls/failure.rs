//! Why a handshake ends without a connection, for the counters.

use std::io;

use tokio_rustls::rustls::Error;

macro_rules! failures {
    ($( $failure:ident = $label:literal, $what:literal; )*) => {
        /// The reasons. The label stands in the metrics.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum HandshakeFailure { $( #[doc = $what] $failure, )* }

        impl HandshakeFailure {
            /// Every one of them.
            pub const ALL: &'static [Self] = &[$(Self::$failure),*];

            /// Its label.
            pub const fn label(self) -> &'static str {
                match self { $( Self::$failure => $label, )* }
            }
        }
    };
}

failures! {
    Timeout = "timeout", "it was not over in time";
    Gone = "gone", "the client left";
    Plain = "plain_http", "the client speaks plain HTTP";
    Malformed = "malformed", "what the client sends is no TLS, or against its rules";
    Incompatible = "incompatible", "no version, cipher or protocol that both know";
    ClientCertificate = "client_certificate", "the client shows no certificate, or one that is not believed";
    Refused = "refused", "the client does not go on, mostly because it does not believe the certificate";
    NoCertificate = "no_certificate", "the certificate is still to be issued, or a challenge that is asked for is not pending";
    Challenge = "challenge", "none: an authority has looked at the certificate of a challenge, and has left";
    Cut = "cut", "the front-end ends";
}

impl HandshakeFailure {
    /// How many there are.
    pub const COUNT: usize = Self::ALL.len();

    /// Its place in [`HandshakeFailure::ALL`].
    pub(crate) const fn index(self) -> usize {
        self as usize
    }

    /// What an error means.
    pub(crate) fn of(error: &io::Error) -> Self {
        let inner = error.get_ref().and_then(|it| it.downcast_ref::<Error>());
        match inner {
            None => Self::Gone,
            Some(Error::PeerIncompatible(_) | Error::NoApplicationProtocol) => Self::Incompatible,
            Some(Error::InvalidCertificate(_) | Error::NoCertificatesPresented) => {
                Self::ClientCertificate
            }
            Some(Error::AlertReceived(_)) => Self::Refused,
            // What rustls says where there is none to show, and of nothing else that a client can bring about.
            Some(Error::General(_)) => Self::NoCertificate,
            Some(_) => Self::Malformed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_its_place_and_a_label_of_its_own() {
        for (index, failure) in HandshakeFailure::ALL.iter().enumerate() {
            assert_eq!(failure.index(), index);
            let twins = HandshakeFailure::ALL.iter();
            let twins = twins.filter(|it| it.label() == failure.label());
            assert_eq!(twins.count(), 1, "{}", failure.label());
        }
    }

    #[test]
    fn an_error_of_the_socket_is_a_client_that_left() {
        let reset = io::Error::from(io::ErrorKind::ConnectionReset);
        assert_eq!(HandshakeFailure::of(&reset), HandshakeFailure::Gone);
        let refused = io::Error::other(Error::NoCertificatesPresented);
        let failure = HandshakeFailure::of(&refused);
        assert_eq!(failure, HandshakeFailure::ClientCertificate);
    }
}
