//! What a reload changes that the list of changes does not show.

use tidegate_proxy::SiteConfig;

use super::Begun;
use crate::config::NodeRead;

/// What changes without a change in the file: files that it names have other contents.
pub(super) fn unseen(before: &Begun, after: &Begun) -> Vec<String> {
    let reads = after.wanted.reads.iter();
    let keys = reads.filter(|(name, read)| {
        let was = before.wanted.reads.get(*name);
        was.is_some_and(|was| other_keys(was, read))
    });
    let keys = keys.count();
    let keys = (keys > 0).then(|| format!("{keys} nodes have other keys"));
    let sites = after.wanted.cluster.sites.iter().zip(&after.wanted.sites);
    let sites = sites.flat_map(|(site, config)| {
        let mut was = before.wanted.cluster.sites.iter().zip(&before.wanted.sites);
        let was = was.find(|(it, _)| it.name == site.name).map(|it| it.1);
        let other = |is_other: fn(&SiteConfig, &SiteConfig) -> bool, what: &str| {
            let is_other = was.is_some_and(|was| is_other(was, config));
            is_other.then(|| format!("site {} has other {what}", site.name))
        };
        let bodies = |was: &SiteConfig, is: &SiteConfig| !was.bodies().eq(is.bodies());
        let secrets =
            |was: &SiteConfig, is: &SiteConfig| was.sticky_secrets() != is.sticky_secrets();
        let rules = was.and_then(|was| was.node_tls.as_ref().zip(config.node_tls.as_ref()));
        let believes_other = rules.is_some_and(|(was, is)| !was.is_same(is));
        let site = &site.name;
        let rules = believes_other.then(|| {
            format!(
                "site {site} believes other certificates of its nodes, or shows them another one"
            )
        });
        let speaks_other = was.is_some_and(|was| was.node_http2 != config.node_http2);
        let versions = speaks_other.then(|| {
            format!("new connections to the nodes of site {site} speak another version of HTTP")
        });
        let opens_other =
            was.is_some_and(|was| was.node_proxy_protocol != config.node_proxy_protocol);
        let openings = opens_other.then(|| match config.node_proxy_protocol {
            Some(_) => {
                format!("new connections to the nodes of site {site} begin with a PROXY header")
            }
            None => {
                format!("new connections to the nodes of site {site} begin with no PROXY header")
            }
        });
        [
            openings,
            other(bodies, "bodies of answers"),
            other(secrets, "keys of its cookies"),
            versions,
            rules,
        ]
    });
    keys.into_iter().chain(sites.flatten()).collect()
}

fn other_keys(before: &NodeRead, after: &NodeRead) -> bool {
    match (before, after) {
        (NodeRead::Udp { keys: before, .. }, NodeRead::Udp { keys: after, .. }) => before != after,
        _ => false,
    }
}
