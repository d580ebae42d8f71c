//! Which certificate a client is shown: one for the name that it asks for (SNI, RFC 6066 §3), else the first.
//!
//! An exact name goes before a wildcard; `*.shop.example` is for one more label alone (RFC 6125 §6.4.3). Of several for one
//! name the first is taken that the client can check. Failure case: a name of no certificate is shown the first one,
//! as if none had been asked for; the client refuses it if it does not believe that.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use tidegate_core::topology::routes::bare_host;
use tokio_rustls::rustls::SignatureScheme;
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;

use super::certificate::Certificate;

/// See the module.
pub(super) struct Choice {
    /// At least one.
    all: Vec<Certificate>,
    /// Names, those with a wildcard as they are written, and whose they are.
    by_name: HashMap<Box<str>, Vec<usize>>,
}

impl fmt::Debug for Choice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(&self.all).finish()
    }
}

impl Choice {
    pub(super) fn new(all: Vec<Certificate>) -> Self {
        let mut by_name: HashMap<Box<str>, Vec<usize>> = HashMap::new();
        for (index, certificate) in all.iter().enumerate() {
            for name in certificate.names() {
                by_name.entry(name.clone()).or_default().push(index);
            }
        }
        Self { all, by_name }
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        let chains = |it: &Self| -> Vec<_> {
            let each = it.all.iter();
            each.map(|one| one.certified().cert.clone()).collect()
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

    fn chosen(&self, name: Option<&str>, schemes: &[SignatureScheme]) -> Option<&Certificate> {
        let name = name.map(str::to_ascii_lowercase);
        let named = name.and_then(|name| self.named(&name)).unwrap_or_default();
        let fits = |it: &&Certificate| it.certified().key.choose_scheme(schemes).is_some();
        let named = || named.iter().filter_map(|index| self.all.get(*index));
        let first = self.all.first();
        named()
            .find(fits)
            .or_else(|| first.filter(fits))
            .or_else(|| self.all.iter().find(fits))
            .or(first)
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
        let chosen = self.chosen(hello.server_name(), hello.signature_schemes());
        chosen.map(|it| Arc::clone(it.certified()))
    }
}
