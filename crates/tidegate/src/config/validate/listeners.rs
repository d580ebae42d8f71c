//! Where clients connect, and by what TLS.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidegate_proxy::{
    Authorities, Certificate, CertificateOrKeyError, ClientCertificates, ListenerAnswers,
    ListenerConfig, ListenerPlan, Protocols, ServerTls, TlsConfig, TlsVersion, is_ocsp_response,
};
use tidegate_remote::clock;

use super::super::acme::{AcmeConfig, AcmeFile};
use super::super::address::overlap;
use super::super::bounded;
use super::super::file::{ConfigFile, ListenerFile, SiteFile};
use super::super::problem::Problem;
use super::super::setting::{At, unknown_name};
use super::super::tls::{
    CertificateFile, ClientCertificatesFile, OtherHostsName, ProtocolName, TlsFile, TlsVersionName,
};
use super::{Checker, overlapping};

/// Bytes of a file with certificates: the bundle of a system's authorities has a fifth of a mebibyte.
pub(in crate::config) const CERTIFICATES_MAX: usize = 4 << 20;
/// Bytes of a file with a private key, and of one with an OCSP response.
const KEY_MAX: usize = 64 << 10;
/// A certificate that ends so soon is spoken of: seven days.
const SOON_SECONDS: u64 = 7 * 24 * 3600;

/// What lines in PEM say that begin a certificate, and end the first line of a key of any kind (RFC 7468).
const CERTIFICATE: &[u8] = b"-----BEGIN CERTIFICATE-----";
const KEY: &[u8] = b" PRIVATE KEY-----";

fn has(text: &[u8], what: &[u8]) -> bool {
    text.windows(what.len()).any(|it| it == what)
}

/// Whether it has a key, and no certificate.
fn is_key(text: &[u8]) -> bool {
    has(text, KEY) && !has(text, CERTIFICATE)
}

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
    pub(super) fn listeners(&mut self, file: &ConfigFile) -> Option<Vec<ListenerConfig>> {
        let (listeners, admin) = (&*file.listener, &file.admin.address);
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
        let acme = file.acme.value.as_ref();
        let made = listeners.iter().map(|it| self.listener(it, acme));
        let made: Vec<_> = made.collect();
        made.into_iter().collect()
    }

    /// Certificates that an authority issues, once it is known what listeners want of it.
    pub(super) fn acme(&mut self, file: &ConfigFile) -> Option<AcmeConfig> {
        let issuing = std::mem::take(&mut self.issuing);
        let table = file.acme.value.as_ref();
        issuing.config(
            table.map(|it| (it, file.acme.place())),
            &self.folder,
            &mut self.notes,
            self.problems,
        )
    }

    fn listener(&mut self, file: &ListenerFile, acme: Option<&AcmeFile>) -> Option<ListenerConfig> {
        let protocols = self.protocols(file)?;
        let tcp_site = file.tcp_site.value.as_deref().map(Arc::from);
        let balancers = self.client_networks(&file.proxy_protocol)?.into();
        let plan = match &file.tls.value {
            None => ListenerPlan {
                balancers,
                protocols,
                tcp_site,
                answers: self.answers(file, acme.is_some()),
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
                    tls: Some(Arc::new(self.tls(tls, file, acme)?)),
                    answers: None,
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

    /// What a listener without TLS answers itself.
    fn answers(&mut self, file: &ListenerFile, issues: bool) -> Option<Arc<ListenerAnswers>> {
        let port = u16::try_from(file.https_port.value).ok();
        let redirects_to = port.filter(|_| file.redirect_to_https.value);
        // The authority asks by HTTP/1.1 (RFC 8555 §8.3).
        let speaks_http1 = (file.protocols.iter()).any(|it| it.value == ProtocolName::Http1);
        let proves = issues && file.tcp_site.is_none() && speaks_http1;
        self.issuing.http |= proves;
        let challenges = proves.then(|| Arc::clone(&self.issuing.challenges));
        (redirects_to.is_some() || proves).then(|| {
            Arc::new(ListenerAnswers {
                challenges,
                redirects_to,
            })
        })
    }

    fn tls(
        &mut self,
        file: &TlsFile,
        listener: &ListenerFile,
        acme: Option<&AcmeFile>,
    ) -> Option<ServerTls> {
        let clients = Reader::Clients;
        let issued = self.issuing.wanted(&file.acme, acme, self.problems);
        let is_issued = file.acme.at.is_some();
        let first = match (&file.certificate.value, &file.key.value) {
            (None, None) if is_issued => Some(None),
            (None, None) => {
                let at = listener.tls.place();
                let label = "`certificate` and `key`, or `acme`, is expected";
                self.problem(at, "a listener with `tls` has a certificate", label);
                None
            }
            _ => (self.pair(&file.certificate, &file.key, &file.ocsp, clients)).map(Some),
        };
        let more = file.certificates.iter();
        let more = more.map(|it: &At<CertificateFile>| {
            self.certificate(&it.certificate, &it.key, &it.ocsp, clients)
        });
        let more: Vec<_> = more.collect();
        let clients = file.client_certificates.value.as_ref();
        let clients = clients.map(|it| self.client_certificates(it));
        let proves = self.proves(file, listener);
        if is_issued && issued.is_none() {
            return None;
        }
        let all: Option<Vec<_>> = first?.into_iter().map(Some).chain(more).collect();
        let offered = listener.protocols.iter().map(|it| it.value.label());
        let config = TlsConfig {
            certificates: all?,
            issued: issued.into_iter().collect(),
            challenges: proves.then(|| Arc::clone(&self.issuing.challenges)),
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

    /// Whether an authority can be shown a challenge's certificate here: it offers no protocol that a site of connections knows,
    /// and shows no certificate of its own.
    fn proves(&mut self, file: &TlsFile, listener: &ListenerFile) -> bool {
        let clients = file.client_certificates.value.as_ref();
        let is_open = clients.is_none_or(|it| !it.required.value);
        let proves = file.acme.at.is_some() && is_open && listener.tcp_site.is_none();
        self.issuing.tls_alpn |= proves;
        proves
    }

    /// A certificate and its key, which go together.
    pub(super) fn pair(
        &mut self,
        chain: &At<Option<PathBuf>>,
        key: &At<Option<PathBuf>>,
        ocsp: &At<Option<PathBuf>>,
        reader: Reader,
    ) -> Option<Certificate> {
        let here = |it: &At<Option<PathBuf>>| {
            let value = it.value.clone()?;
            let at = it.at.clone();
            Some(At { value, at })
        };
        let (is, lacks) = match (here(chain), here(key)) {
            (Some(chain), Some(key)) => return self.certificate(&chain, &key, ocsp, reader),
            (Some(_), None) => (chain, "key"),
            (None, Some(_)) => (key, "certificate"),
            (None, None) => return None,
        };
        let label = "a certificate and its key go together";
        self.problem(is.place(), format!("`{lacks}` is missing"), label);
        None
    }

    fn certificate(
        &mut self,
        chain: &At<PathBuf>,
        key: &At<PathBuf>,
        ocsp: &At<Option<PathBuf>>,
        reader: Reader,
    ) -> Option<Certificate> {
        let chain_text = self.public(&chain.value, chain.place(), "certificate", CERTIFICATES_MAX);
        if chain_text.as_deref().is_some_and(is_key) && self.has_certificate(&key.value) {
            let message = "the certificate and its key are swapped";
            let problem = Problem::new(chain.place(), message, "a key is in this file");
            self.problems
                .push(problem.context(key.place(), "and a certificate in this one"));
            return None;
        }
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

    /// Whether a file is one with a certificate, and without a key.
    fn has_certificate(&self, path: &Path) -> bool {
        let file = bounded::regular(&self.path(path));
        let text = file.and_then(|file| bounded::bytes(file, KEY_MAX));
        text.is_ok_and(|text| has(&text, CERTIFICATE) && !has(&text, KEY))
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
