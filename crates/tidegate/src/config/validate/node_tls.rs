//! How TLS is spoken with a site's nodes: which of their certificates are believed, and what they are shown.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use data_encoding::BASE64;
use tidegate_proxy::{Authorities, Certificate, KeyPin, NodeTls, NodeTlsConfig, is_server_name};

use super::Checker;
use super::listeners::{CERTIFICATES_MAX, Reader};
use crate::config::address::NodeAddress;
use crate::config::file::{ConfigFile, SiteFile};
use crate::config::problem::Problem;
use crate::config::setting::At;
use crate::config::tls::{NodeTlsFile, ProtocolName};

/// What a pin begins with.
const PIN: &str = "sha256/";

impl Checker<'_> {
    /// The rule of a site; none of the inner if its nodes are asked in the clear, none of the outer if it cannot be as the
    /// file says.
    pub(super) fn node_tls(
        &mut self,
        file: &ConfigFile,
        site: &SiteFile,
    ) -> Option<Option<Arc<NodeTls>>> {
        let Some(rule) = &site.node_tls.value else {
            return Some(None);
        };
        let at = site.node_tls.place();
        self.note_trust(rule, site, &at);
        let authorities = self.node_authorities(&rule.authorities);
        let pins: Vec<_> = rule.pins.iter().filter_map(|it| self.pin(it)).collect();
        let name = self.server_name(file, site, rule);
        let certificate = self.shown_to_nodes(rule);
        // What is wrong elsewhere refuses the file as well.
        if !self.problems.is_empty() {
            return None;
        }
        let made = NodeTls::new(NodeTlsConfig {
            authorities,
            pins,
            any_certificate: rule.dangerously_trust_any_certificate.value,
            name,
            certificate,
            http2: site.node_protocol.value == ProtocolName::Http2,
        });
        let made = made.map_err(|error| {
            self.problem(at, format!("cannot use this TLS: {error}"), "here");
        });
        made.ok().map(|it| Some(Arc::new(it)))
    }

    /// Something says which certificates are believed, and nothing else contradicts it.
    fn note_trust(&mut self, rule: &NodeTlsFile, site: &SiteFile, at: &Range<usize>) {
        let any = &rule.dangerously_trust_any_certificate;
        let is_limited = rule.authorities.is_some() || !rule.pins.is_empty();
        if any.value && is_limited {
            let message = "any certificate is trusted, and then not";
            let label = "leave it out: `authorities` and `pins` count";
            self.problem(any.place(), message, label);
        } else if any.value {
            let name = &site.name.value;
            self.notes.push(format!(
                "site {name} believes any certificate of its nodes (`dangerously_trust_any_certificate`): what is on the way to them can \
                 read and change all that is sent"
            ));
        } else if !is_limited {
            let message = "nothing says which certificates of nodes are believed";
            let problem = Problem::new(at.clone(), message, "this needs `authorities` or `pins`");
            self.problems.push(problem.help(
                "`authorities` is a file with those that sign the nodes' certificates, a system's own, like \
                 \"/etc/ssl/certs/ca-certificates.crt\", or your own",
            ));
        }
    }

    fn node_authorities(&mut self, path: &At<Option<PathBuf>>) -> Option<Authorities> {
        let (named, at) = (path.value.as_deref()?, path.place());
        let text = self.public(named, at.clone(), "certificate", CERTIFICATES_MAX)?;
        let made = Authorities::from_pem(&text);
        let made = made.map_err(|error| self.unusable("certificate", at, &error.to_string()));
        made.ok()
    }

    fn pin(&mut self, pin: &At<String>) -> Option<KeyPin> {
        let decoded = pin.strip_prefix(PIN);
        let decoded = decoded.and_then(|it| BASE64.decode(it.as_bytes()).ok());
        let label = match &decoded {
            Some(bytes) => match <[u8; 32]>::try_from(bytes.as_slice()) {
                Ok(hash) => return Some(KeyPin(hash)),
                Err(_) => format!(
                    "a SHA-256 has 32 bytes, 44 letters of base64, not {}",
                    bytes.len()
                ),
            },
            None => "`sha256/` and 44 letters of base64 are expected".into(),
        };
        let message = format!("bad pin `{}`", pin.value);
        let problem = Problem::new(pin.place(), message, label);
        self.problems.push(problem.help(
            "openssl x509 -in CERTIFICATE -noout -pubkey | openssl pkey -pubin -outform DER | openssl dgst -sha256 -binary | base64",
        ));
        None
    }

    fn server_name(
        &mut self,
        file: &ConfigFile,
        site: &SiteFile,
        rule: &NodeTlsFile,
    ) -> Option<String> {
        if let Some(name) = &rule.server_name.value {
            if !is_server_name(name) {
                let message = format!("bad server name `{name}`");
                let label = "a host name or an address is expected, without a port";
                self.problem(rule.server_name.place(), message, label);
            }
            return Some(name.clone());
        }
        let own = host_of_nodes(file, site).filter(|it| is_server_name(it));
        if own.is_none() && rule.authorities.is_some() {
            let message = "which name do the certificates of these nodes have?";
            let label = "`server_name` is missing";
            let problem = Problem::new(site.node_tls.place(), message, label);
            self.problems.push(problem.help(
                "write `server_name = \"web.internal\"`: a name, or an address, that is in the certificate of each node of this site",
            ));
        }
        own.map(str::to_owned)
    }

    fn shown_to_nodes(&mut self, rule: &NodeTlsFile) -> Option<Certificate> {
        let none = At::default_of(None);
        self.pair(&rule.certificate, &rule.key, &none, Reader::Nodes)
    }
}

/// The one host name that all nodes of a site are at, if there is one.
fn host_of_nodes<'a>(file: &'a ConfigFile, site: &SiteFile) -> Option<&'a str> {
    let nodes = file.node.iter().filter(|it| it.serves(&site.name));
    let nodes = nodes.map(|it| match &it.address.value {
        NodeAddress::At(_) => None,
        NodeAddress::Host { host, .. } => Some(host.as_str()),
    });
    let sources = file.discover.iter();
    let sources = sources.filter(|it| it.site.value == site.name.value);
    // Without a port it is the name of a service, whose servers have other names.
    let sources = sources.map(|it| {
        let name = it.dns.value.as_deref();
        name.filter(|_| it.port.value.is_some())
    });
    let hosts: BTreeSet<_> = nodes.chain(sources).collect();
    match (hosts.first(), hosts.len()) {
        (Some(host), 1) => *host,
        _ => None,
    }
}
