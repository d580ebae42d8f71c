//! Which certificate a client is shown: one for the name that it asks for (SNI, RFC 6066 §3), else the first.
//!
//! An exact name goes before a wildcard; `*.shop.example` is for one more label alone (RFC 6125 §6.4.3). Of several for one
//! name the first is taken that the client can check. Failure case: a name of no certificate is shown the first one,
//! as if none had been asked for; the client refuses it if it does not believe that. A certificate that is still to be issued is
//! passed over; where there is no other, the handshake is refused.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use tidegate_core::topology::routes::bare_host;
use tokio_rustls::rustls::SignatureScheme;
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;

use super::certificate::Certificate;
use super::challenges::Challenges;
use super::issued::IssuedCertificate;

/// A certificate of the configuration, or one that is issued while the front-end runs.
enum Shown {
    Given(Certificate),
    Issued(Arc<IssuedCertificate>),
}

impl Shown {
    fn names(&self) -> &[Box<str>] {
        match self {
            Self::Given(certificate) => certificate.names(),
            Self::Issued(issued) => issued.names(),
        }
    }

    /// With its key, if there is one by now.
    fn certified(&self) -> Option<Arc<CertifiedKey>> {
        match self {
            Self::Given(certificate) => Some(Arc::clone(certificate.certified())),
            Self::Issued(issued) => issued.current().map(|it| Arc::clone(it.certified())),
        }
    }
}

/// See the module.
pub(super) struct Choice {
    /// At least one.
    all: Vec<Shown>,
    /// What authorities are shown that ask for proof.
    challenges: Option<Arc<Challenges>>,
    /// Names, those with a wildcard as they are written, and whose they are.
    by_name: HashMap<Box<str>, Vec<usize>>,
}

impl fmt::Debug for Choice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut list = formatter.debug_list();
        for shown in &self.all {
            match shown {
                Shown::Given(certificate) => list.entry(certificate),
                Shown::Issued(issued) => list.entry(issued),
            };
        }
        list.finish()
    }
}

impl Choice {
    /// Names of the certificates of the configuration, and when each ends, in seconds since 1970.
    pub(super) fn ends(&self) -> impl Iterator<Item = (&[Box<str>], u64)> {
        self.all.iter().filter_map(|shown| match shown {
            Shown::Given(certificate) => Some((certificate.names(), certificate.valid().end)),
            Shown::Issued(_) => None,
        })
    }

    pub(super) fn new(
        given: Vec<Certificate>,
        issued: Vec<Arc<IssuedCertificate>>,
        challenges: Option<Arc<Challenges>>,
    ) -> Self {
        let given = given.into_iter().map(Shown::Given);
        let all: Vec<_> = given.chain(issued.into_iter().map(Shown::Issued)).collect();
        let mut by_name: HashMap<Box<str>, Vec<usize>> = HashMap::new();
        for (index, certificate) in all.iter().enumerate() {
            for name in certificate.names() {
                by_name.entry(name.clone()).or_default().push(index);
            }
        }
        Self {
            all,
            challenges,
            by_name,
        }
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        let chains = |it: &Self| -> Vec<_> {
            let each = it.all.iter();
            each.map(|one| one.certified().map(|it| it.cert.clone()))
                .collect()
        };
        chains(self) == chains(other)
    }

    /// Those for a name in lower case.
    fn named(&self, name: &str) -> Option<&[usize]> {
        let own = self.by_name.get(name);
        let own = own.or_else(|| {
            let (_, rest) = name.split_once('.')?;
            self.by_name.get(format!("*.{rest}").as_str())
        });
        own.map(Vec::as_slice)
    }

    fn chosen(&self, name: Option<&str>, schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        let name = name.map(str::to_ascii_lowercase);
        let named = name.and_then(|name| self.named(&name)).unwrap_or_default();
        let fits = |it: &Arc<CertifiedKey>| it.key.choose_scheme(schemes).is_some();
        let mut named = named
            .iter()
            .filter_map(|index| self.all.get(*index)?.certified());
        let all = || self.all.iter().filter_map(Shown::certified);
        named
            .find(fits)
            .or_else(|| all().find(fits))
            .or_else(|| all().next())
    }

    pub(super) fn covers(&self, shown_for: Option<&str>, host: &str) -> bool {
        let host = bare_host(host).to_ascii_lowercase();
        let of_host = self.named(&host).unwrap_or_default();
        let shown = shown_for.map(str::to_ascii_lowercase);
        let shown = shown.and_then(|name| self.named(&name)).unwrap_or(&[0]);
        shown.iter().any(|index| of_host.contains(index))
    }
}

impl ResolvesServerCert for Choice {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        if let Some(challenges) = &self.challenges
            && Challenges::is_asked_by(&hello)
        {
            return challenges.tls_answer(hello.server_name());
        }
        self.chosen(hello.server_name(), hello.signature_schemes())
    }
}
