//! Where clients connect, and by what TLS.

use std::net::SocketAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidegate_proxy::{
    Authorities, Certificate, CertificateOrKeyError, ClientCertificates, ListenerConfig,
    ListenerPlan, Protocols, ServerTls, TlsConfig, TlsVersion, is_ocsp_response,
};
use tidegate_remote::clock;

use super::super::address::overlap;
use super::super::bounded;
use super::super::file::{ListenerFile, SiteFile};
use super::super::problem::Problem;
use super::super::setting::{At, unknown_name};
use super::super::tls::{
    CertificateFile, ClientCertificatesFile, OtherHostsName, ProtocolName, TlsFile, TlsVersionName,
};
use super::{Checker, overlapping};

/// Bytes of a file with certificates: the bundle of a system's authorities has a fifth of a mebibyte.
pub(super) const CERTIFICATES_MAX: usize = 4 << 20;
/// Bytes of a file with a private key, and of one with an OCSP response.
const KEY_MAX: usize = 64 << 10;
/// A certificate that ends so soon is spoken of: seven days.
const SOON_SECONDS: u64 = 7 * 24 * 3600;

/// What a certificate is shown to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reader {
    Clients,
    Nodes,
}

impl Reader {
    fn label(self) -> &'static str {
        match self {
            Self::Clients => "clients",
            Self::Nodes => "nodes",
        }
    }
}

impl Checker<'_> {
    /// All of them; none if one cannot be as the file says.
    pub(super) fn listeners(
        &mut self,
        listeners: &[At<ListenerFile>],
        admin: &At<SocketAddr>,
    ) -> Option<Vec<ListenerConfig>> {
        for (index, listener) in listeners.iter().enumerate() {
            let address = &listener.address;
            let mut before = listeners[..index].iter().map(|it| &it.address);
            if let Some(before) = before.find(|it| overlap(it.value, address.value)) {
                self.problems.push(overlapping(before, address));
            } else if overlap(admin.value, address.value) {
                let message = format!("a listener on the admin address {}", admin.value);
                let problem = Problem::new(address.place(), message, "[admin] listens here");
                self.problems.push(match &admin.at {
                    Some(at) => problem.context(at.clone(), "this address"),
                    None => problem,
                });
            }
        }
        let made: Vec<_> = listeners.iter().map(|it| self.listener(it)).collect();
        made.into_iter().collect()
    }

    fn listener(&mut self, file: &ListenerFile) -> Option<ListenerConfig> {
        let protocols = self.protocols(file)?;
        let tcp_site = file.tcp_site.value.as_deref().map(Arc::from);
        let balancers = self.client_networks(&file.proxy_protocol)?.into();
        let plan = match &file.tls.value {
            None => ListenerPlan {
                balancers,
                protocols,
                tcp_site,
                redirects_to: self.redirects_to(file),
                ..ListenerPlan::default()
            },
            Some(tls) => {
                if file.redirect_to_https.value {
                    let message = "a listener with `tls` has nowhere to redirect to";
                    let label = "only where there is no `tls`";
                    self.problem(file.redirect_to_https.place(), message, label);
                }
                ListenerPlan {
                    balancers,
                    hsts: tls.hsts.value.and_then(ListenerPlan::hsts_for),
                    refuses_other_hosts: tls.other_hosts.value == OtherHostsName::Refuse,
                    tls: Some(Arc::new(self.tls(tls, file)?)),
                    redirects_to: None,
                    protocols,
                    tcp_site,
                }
            }
        };
        let address = file.address.value;
        Some(ListenerConfig { address, plan })
    }

    /// Connections are passed on to a site that there is, and none of them is HTTP.
    pub(super) fn tcp_sites(&mut self, listeners: &[At<ListenerFile>], sites: &[At<SiteFile>]) {
        let named = listeners.iter().filter(|it| it.tcp_site.value.is_some());
        for listener in named {
            let name = listener.tcp_site.value.as_deref().unwrap_or_default();
            let names = sites.iter().map(|site| site.name.value.as_str());
            if !names.clone().any(|it| it == name) {
                let at = listener.tcp_site.place();
                let problem = unknown_name(at, "site", name, names);
                self.problems.push(problem);
            }
            if listener.redirect_to_https.value {
                let message = "a listener with `tcp_site` has no requests to redirect";
                let label = "only where connections are HTTP";
                self.problem(listener.redirect_to_https.place(), message, label);
            }
        }
    }

    fn protocols(&mut self, file: &ListenerFile) -> Option<Protocols> {
        let speaks = |name| file.protocols.iter().any(|it| it.value == name);
        let made = Protocols {
            http1: speaks(ProtocolName::Http1),
            http2: speaks(ProtocolName::Http2),
        };
        if !made.http1 && !made.http2 {
            let message = "a listener without protocols";
            self.problem(file.protocols.place(), message, "at least one of them");
            return None;
        }
        Some(made)
    }

    fn redirects_to(&self, file: &ListenerFile) -> Option<u16> {
        let port = u16::try_from(file.https_port.value).ok()?;
        file.redirect_to_https.value.then_some(port)
    }

    fn tls(&mut self, file: &TlsFile, listener: &ListenerFile) -> Option<ServerTls> {
        let clients = Reader::Clients;
        let first = self.certificate(&file.certificate, &file.key, &file.ocsp, clients);
        let more = file.certificates.iter();
        let more = more.map(|it: &At<CertificateFile>| {
            self.certificate(&it.certificate, &it.key, &it.ocsp, clients)
        });
        let more: Vec<_> = more.collect();
        let clients = file.client_certificates.value.as_ref();
        let clients = clients.map(|it| self.client_certificates(it));
        let all: Option<Vec<_>> = [first].into_iter().chain(more).collect();
        let offered = listener.protocols.iter().map(|it| it.value.label());
        let config = TlsConfig {
            certificates: all?,
            minimum: match file.minimum_version.value {
                TlsVersionName::Tls12 => TlsVersion::Tls12,
                TlsVersionName::Tls13 => TlsVersion::Tls13,
            },
            clients: clients.map_or(Some(None), |it| it.map(Some))?,
            // What is in there, the client and its node know.
            protocols: match listener.tcp_site.is_some() {
                true => Vec::new(),
                false => offered.collect(),
            },
        };
        let made = ServerTls::new(config).map_err(|error| {
            let at = listener.tls.place();
            self.problem(at, format!("cannot use this TLS: {error}"), "here");
        });
        made.ok()
    }

    pub(super) fn certificate(
        &mut self,
        chain: &At<PathBuf>,
        key: &At<PathBuf>,
        ocsp: &At<Option<PathBuf>>,
        reader: Reader,
    ) -> Option<Certificate> {
        let chain_text = self.public(&chain.value, chain.place(), "certificate", CERTIFICATES_MAX);
        let key_text = self.secret_text(self.path(&key.value), KEY_MAX);
        let key_text = key_text.map_err(|reason| self.unusable("key", key.place(), &reason));
        let response = match &ocsp.value {
            None => Some(None),
            Some(path) => {
                let read = self.public(path, ocsp.place(), "OCSP", KEY_MAX);
                let is_good = read.as_deref().is_none_or(is_ocsp_response);
                if !is_good {
                    let reason = "it has no OCSP response, in DER, that says something";
                    self.unusable("OCSP", ocsp.place(), reason);
                }
                read.filter(|_| is_good).map(Some)
            }
        };
        let (chain_text, key_text, response) = (chain_text?, key_text.ok()?, response?);
        let made = Certificate::from_pem(&chain_text, key_text.reveal().as_bytes(), response);
        match made {
            Ok(certificate) => {
                self.note_validity(&chain.value, &certificate, reader);
                Some(certificate)
            }
            Err(CertificateOrKeyError::Certificate(error)) => {
                self.unusable("certificate", chain.place(), &error.to_string());
                None
            }
            Err(CertificateOrKeyError::Key(error)) => {
                self.unusable("key", key.place(), &error.to_string());
                None
            }
        }
    }

    /// A certificate out of its time is shown all the same: the clock may be wrong, and it is for others to judge.
    fn note_validity(&mut self, path: &Path, certificate: &Certificate, reader: Reader) {
        let others = reader.label();
        let (now, valid) = (clock::unix().as_secs(), certificate.valid());
        let path = path.display();
        let note = if now < valid.start {
            format!("the certificate in {path} is not valid yet: {others} refuse it")
        } else if valid.end <= now {
            format!("the certificate in {path} has expired: {others} refuse it")
        } else if valid.end - now < SOON_SECONDS {
            format!("the certificate in {path} expires within seven days")
        } else {
            return;
        };
        self.notes.push(note);
    }

    fn client_certificates(&mut self, file: &ClientCertificatesFile) -> Option<ClientCertificates> {
        let (path, at) = (&file.authorities.value, file.authorities.place());
        let text = self.public(path, at.clone(), "certificate", CERTIFICATES_MAX)?;
        let made = Authorities::from_pem(&text);
        let made = made.map_err(|error| self.unusable("certificate", at, &error.to_string()));
        Some(ClientCertificates {
            authorities: made.ok()?,
            required: file.required.value,
        })
    }

    /// What is in a file that holds no secret.
    pub(super) fn public(
        &mut self,
        path: &Path,
        at: Range<usize>,
        what: &str,
        most: usize,
    ) -> Option<Vec<u8>> {
        let read = bounded::regular(&self.path(path)).and_then(|file| bounded::bytes(file, most));
        read.map_err(|reason| self.unusable(what, at, &reason)).ok()
    }

    pub(super) fn unusable(&mut self, what: &str, at: Range<usize>, reason: &str) {
        let message = format!("cannot use this {what} file: {reason}");
        self.problem(at, message, "here");
    }
}
