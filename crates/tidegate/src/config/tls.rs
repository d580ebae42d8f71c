//! TLS of a listener, as the file has it.

use std::path::PathBuf;
use std::time::Duration;

use super::setting::{At, names, table};

/// The longest time for which browsers are to use `https` alone: ten years.
const HSTS_MAX: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
const HSTS_MIN: Duration = Duration::from_secs(1);

table! {
    /// A listener's TLS; see [tls.md](tls.md). Files are read at the start and by each reload.
    pub(crate) struct TlsFile {
        /// File with the certificate and those that lead to its authority, the server's own first, in PEM. It is shown to
        /// clients that name no host, or one that no certificate here is for. It may be left out where there is `acme`. Relative to
        /// this file.
        certificate: Option<PathBuf> = None;
        /// File with its private key, in PEM and not encrypted; only its owner may have access to it (mode 0600).
        key: Option<PathBuf> = None;
        /// File with an OCSP response for it, in DER, which clients are given with it.
        ocsp: Option<PathBuf> = None;
        /// More certificates, for other names.
        certificates: Vec<At<CertificateFile>> = Vec::new();
        /// Names of one more certificate, which the authority of `[acme]` issues and renews: `["shop.example", "www.shop.example"]`.
        acme: Vec<At<String>> = Vec::new();
        /// The oldest version of TLS that is spoken.
        minimum_version: TlsVersionName = TlsVersionName::Tls12;
        /// Which certificates clients show; not set: none.
        client_certificates: Option<ClientCertificatesFile> = None;
        /// For how long browsers are to use `https` alone for the host (`Strict-Transport-Security`), unless the node says it
        /// itself; not set: nothing is said.
        hsts: Option<Duration> = None, in Some(HSTS_MIN)..=Some(HSTS_MAX);
        /// What becomes of a request for a host that the certificate of its connection is not for.
        other_hosts: OtherHostsName = OtherHostsName::Serve;
    }
}

table! {
    /// One more certificate of a listener: shown to clients that name a host that it is for. Its names are those of its
    /// subject alternative names; `*.shop.example` is for one more label.
    pub(crate) struct CertificateFile {
        /// File with the certificate and those that lead to its authority, the server's own first, in PEM.
        certificate: PathBuf;
        /// File with its private key, as above.
        key: PathBuf;
        /// File with an OCSP response for it, in DER.
        ocsp: Option<PathBuf> = None;
    }
}

table! {
    /// What clients of a listener show. Nodes learn of it in `X-Forwarded-Client-Cert`: `Hash=` with the SHA-256 of the
    /// certificate in hexadecimal, `Subject=` with its subject. Such a field of a client's own goes nowhere.
    pub(crate) struct ClientCertificatesFile {
        /// File with the authorities that they are signed by, in PEM.
        authorities: PathBuf;
        /// Whether a client without one is refused.
        required: bool = true;
    }
}

names! {
    /// A version of TLS.
    pub(crate) enum TlsVersionName as "version of TLS" {
        Tls12 = "1.2",
        Tls13 = "1.3",
    }
}

names! {
    /// A version of HTTP, by its name in handshakes (RFC 7301).
    pub(crate) enum ProtocolName as "protocol" {
        /// HTTP/2.
        Http2 = "h2",
        /// HTTP/1.1 and 1.0.
        Http1 = "http/1.1",
    }
}

impl ProtocolName {
    pub(crate) fn both() -> Vec<At<Self>> {
        [Self::Http2, Self::Http1].map(At::default_of).into()
    }
}

names! {
    /// What becomes of requests for other hosts.
    pub(crate) enum OtherHostsName as "treatment of other hosts" {
        /// They are served as any.
        Serve = "serve",
        /// They are answered 421.
        Refuse = "refuse",
    }
}

table! {
    /// TLS with a site's nodes; see [tls.md](tls.md#towards-nodes). A node's certificate is believed if it fits `authorities` and `pins`,
    /// as far as they are set; one of them is. Files are read at the start and by each reload.
    pub(crate) struct NodeTlsFile {
        /// File with the authorities that the nodes' certificates are signed by, in PEM; a system's own are
        /// `/etc/ssl/certs/ca-certificates.crt` on Debian. Relative to this file.
        authorities: Option<PathBuf> = None;
        /// The name in the nodes' certificates, which they are asked for (SNI): a host name, or an address. Not set: the host name of the
        /// site's nodes, if they have one (`address = "web.internal:443"`, `[[discover]] dns`). With `authorities` there must be one.
        server_name: Option<String> = None;
        /// Public keys that a node's certificate may have: `sha256/` and the SHA-256 of the key (SubjectPublicKeyInfo) in base64, as of
        /// RFC 7469. Without `authorities` they alone count: neither name nor dates are looked at.
        pins: Vec<At<String>> = Vec::new();
        /// File with the certificate that nodes are shown that ask for one, and those that lead to its authority, in PEM. Relative to
        /// this file.
        certificate: Option<PathBuf> = None;
        /// File with its private key, in PEM and not encrypted; only its owner may have access to it (mode 0600). Relative to this
        /// file.
        key: Option<PathBuf> = None;
        /// Believe any certificate, in place of `authorities` and `pins`: what is on the way to the nodes can then read and change
        /// all requests and answers.
        dangerously_trust_any_certificate: bool = false;
    }
}
