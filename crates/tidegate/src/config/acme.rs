//! Certificates that an ACME authority issues (RFC 8555): what the file says of them, and what that means.

use std::net::IpAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidegate_proxy::{Authorities, Challenges, IssuedCertificate, is_server_name};

use super::bounded;
use super::problem::{Problem, Problems};
use super::setting::{At, names, table};
use super::validate::listeners::CERTIFICATES_MAX;

/// Names that one certificate is for, as authorities have it.
const NAMES_MAX: usize = 100;
/// The scheme of a contact, which may be written or left out.
const MAIL: &str = "mailto:";
/// Letters of a DNS name.
const NAME_MAX: usize = 253;
/// Authorities that are known by name.
const KNOWN: [(&str, &str); 2] = [
    (
        "letsencrypt",
        "https://acme-v02.api.letsencrypt.org/directory",
    ),
    (
        "letsencrypt-staging",
        "https://acme-staging-v02.api.letsencrypt.org/directory",
    ),
];

table! {
    /// The authority that issues certificates of listeners with `tls = { acme = [...] }`, by ACME (RFC 8555); see [acme.md](acme.md). Without this
    /// table no authority is asked for anything.
    pub(crate) struct AcmeFile {
        /// The authority's directory: a URL of `https`, or `letsencrypt`, or `letsencrypt-staging` to try things out.
        directory: String;
        /// Whether the authority's terms of service are agreed to. It must be true.
        agree_to_terms: bool = false;
        /// Addresses for mail about these certificates, which the authority is given.
        contact: Vec<At<String>> = Vec::new();
        /// A folder for the account's key and the certificates, and nothing else. It is there, belongs to the user that the process
        /// runs as, and is writable for that user alone. Relative to this file.
        state: PathBuf;
        /// File with the authorities that have signed the certificate of the directory's own server, in PEM.
        authorities: PathBuf = PathBuf::from("/etc/ssl/certs/ca-certificates.crt");
        /// How a name is proved. A try that fails is followed by one of the other way, if there are two.
        challenges: Vec<At<ChallengeName>> = vec![At::default_of(ChallengeName::Http), At::default_of(ChallengeName::TlsAlpn)];
    }
}

names! {
    /// A way to prove a name.
    pub(crate) enum ChallengeName as "challenge" {
        /// At a listener without `tls`, which the authority comes to at port 80 (RFC 8555 §8.3).
        Http = "http-01",
        /// At a listener with `tls`, which the authority comes to at port 443 (RFC 8737).
        TlsAlpn = "tls-alpn-01",
    }
}

/// Which certificates are to be had, from which authority, and how.
#[derive(Clone, Debug)]
pub(crate) struct AcmeConfig {
    /// The URL of the directory.
    pub(crate) directory: String,
    /// URLs of contacts: `mailto:…`.
    pub(crate) contacts: Vec<String>,
    /// Where account and certificates are kept.
    pub(crate) folder: PathBuf,
    /// The authorities that vouch for the directory's server.
    pub(crate) authorities: Authorities,
    /// What can be answered, the first choice first. At least one.
    pub(crate) challenges: Vec<ChallengeName>,
    /// Those that are to be had.
    pub(crate) certificates: Vec<Arc<IssuedCertificate>>,
    /// What listeners answer.
    pub(crate) pending: Arc<Challenges>,
}

/// What listeners want of it.
#[derive(Debug, Default)]
pub(super) struct Issuing {
    pub(super) challenges: Arc<Challenges>,
    certificates: Vec<Arc<IssuedCertificate>>,
    /// There is a listener that answers this.
    pub(super) http: bool,
    pub(super) tls_alpn: bool,
}

impl Issuing {
    /// The certificate for these names: one, however many listeners show it.
    fn certificate(&mut self, names: Vec<Box<str>>) -> Arc<IssuedCertificate> {
        let mut known = self.certificates.iter();
        if let Some(known) = known.find(|it| it.names() == names) {
            return Arc::clone(known);
        }
        let new = Arc::new(IssuedCertificate::new(names));
        self.certificates.push(Arc::clone(&new));
        new
    }

    /// The certificate of a listener, if it is to have one.
    pub(super) fn wanted(
        &mut self,
        acme: &At<Vec<At<String>>>,
        table: Option<&AcmeFile>,
        problems: &mut Problems,
    ) -> Option<Arc<IssuedCertificate>> {
        let at = acme.at.clone()?;
        if table.is_none() {
            let message = "nothing says who issues this certificate";
            let problem = Problem::new(at, message, "there is no [acme]");
            problems.push(problem.help(
                "[acme] with `directory`, `agree_to_terms` and `state`, or `certificate` and `key` here",
            ));
            return None;
        }
        if acme.is_empty() || acme.len() > NAMES_MAX {
            let message = format!("a certificate is for 1 to {NAMES_MAX} names");
            problems.push(Problem::new(at, message, "here"));
            return None;
        }
        let mut names: Vec<Box<str>> = Vec::new();
        let mut is_good = true;
        for name in acme.iter() {
            let lower: Box<str> = name.to_ascii_lowercase().into();
            let why = match names.contains(&lower) {
                true => Some("it is there already"),
                false => unfit(&lower),
            };
            if let Some(why) = why {
                let message = format!("no certificate for `{}`: {why}", name.value);
                problems.push(Problem::new(name.place(), message, "a host name"));
                is_good = false;
            }
            names.push(lower);
        }
        // In whatever order they are written: it is the same certificate.
        names.sort();
        is_good.then(|| self.certificate(names))
    }

    /// All of it, if the file has the table and a listener wants a certificate.
    pub(super) fn config(
        self,
        table: Option<(&AcmeFile, Range<usize>)>,
        folder: &Path,
        notes: &mut Vec<String>,
        problems: &mut Problems,
    ) -> Option<AcmeConfig> {
        let (table, place) = table?;
        let directory = directory(table, problems);
        let contacts = contacts(table, problems);
        if !table.agree_to_terms.value {
            let at = table.agree_to_terms.at.clone();
            let message = "an authority issues nothing to those that do not agree to its terms";
            let label = "`agree_to_terms = true` is expected";
            problems.push(Problem::new(at.unwrap_or(place), message, label));
        }
        let authorities = authorities(table, folder, problems);
        let challenges = self.answered(table, problems);
        if self.certificates.is_empty() {
            notes.push(
                "[acme] is of no use: no listener has `tls = { acme = [...] }`, so no certificate is asked for"
                    .into(),
            );
        }
        Some(AcmeConfig {
            directory: directory?,
            contacts: contacts?,
            folder: folder.join(&table.state.value),
            authorities: authorities?,
            challenges: challenges?,
            certificates: self.certificates,
            pending: self.challenges,
        })
    }

    /// The challenges that some listener answers.
    fn answered(&self, table: &AcmeFile, problems: &mut Problems) -> Option<Vec<ChallengeName>> {
        let is_answered = |name: ChallengeName| match name {
            ChallengeName::Http => self.http,
            ChallengeName::TlsAlpn => self.tls_alpn,
        };
        let wanted = table.challenges.iter().map(|it| it.value);
        let answered: Vec<_> = wanted.filter(|it| is_answered(*it)).collect();
        if answered.is_empty() && !self.certificates.is_empty() {
            let message = "no listener answers any of these challenges";
            let problem = Problem::new(table.challenges.place(), message, "here");
            problems.push(problem.help(
                "http-01 takes a listener without `tls` and `tcp_site` that speaks http/1.1; tls-alpn-01 one with `acme`, without `tcp_site`, that \
                 requires no certificate of clients",
            ));
            return None;
        }
        Some(answered)
    }
}

/// Why there is no certificate for a name.
fn unfit(name: &str) -> Option<&'static str> {
    if name.starts_with("*.") {
        return Some("a wildcard takes proof by DNS (dns-01), which is not available");
    }
    if name.parse::<IpAddr>().is_ok() {
        return Some("an address is not available");
    }
    let is_name = name.len() <= NAME_MAX && is_server_name(name) && !name.ends_with('.');
    (!is_name).then_some("it is no host name")
}

fn directory(table: &AcmeFile, problems: &mut Problems) -> Option<String> {
    let text = table.directory.value.as_str();
    if let Some((_, url)) = KNOWN.iter().find(|(name, _)| *name == text) {
        return Some((*url).to_owned());
    }
    let url: Option<http::Uri> = text.parse().ok();
    let is_good = url.is_some_and(|it| {
        let host = it.host().unwrap_or_default().trim_matches(['[', ']']);
        it.scheme_str() == Some("https") && is_server_name(host)
    });
    if !is_good {
        let known = KNOWN.map(|(name, _)| name).join(", ");
        let message = format!("`{text}` is no directory of an authority");
        let problem = Problem::new(table.directory.place(), message, "here");
        problems.push(problem.help(format!(
            "one of: {known}; or a URL like https://acme.internal/directory"
        )));
        return None;
    }
    Some(text.to_owned())
}

fn contacts(table: &AcmeFile, problems: &mut Problems) -> Option<Vec<String>> {
    let mut all_good = true;
    let contact = |it: &At<String>| {
        let is_good = it.split_once('@').is_some_and(|(name, host)| {
            !name.is_empty() && !host.is_empty() && it.bytes().all(|byte| byte.is_ascii_graphic())
        });
        if !is_good {
            let message = format!("`{}` is no address for mail", it.value);
            problems.push(Problem::new(it.place(), message, "like ops@shop.example"));
            all_good = false;
        }
        match it.starts_with(MAIL) {
            true => it.value.clone(),
            false => format!("{MAIL}{}", it.value),
        }
    };
    let all = table.contact.iter().map(contact).collect();
    all_good.then_some(all)
}

fn authorities(table: &AcmeFile, folder: &Path, problems: &mut Problems) -> Option<Authorities> {
    let at: Range<usize> = table.authorities.place();
    let path = folder.join(&table.authorities.value);
    let read = bounded::regular(&path).and_then(|file| bounded::bytes(file, CERTIFICATES_MAX));
    let made = read.and_then(|it| Authorities::from_pem(&it).map_err(|error| error.to_string()));
    let made = made.map_err(|why| {
        let message = format!("cannot use {} as `authorities`: {why}", path.display());
        problems.push(Problem::new(at, message, "here"));
    });
    made.ok()
}
