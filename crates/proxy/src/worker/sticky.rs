//! Which node a request's session wants, and the cookie that says so.
//!
//! ```text
//! value = the first 16 bytes of HMAC-SHA-256(secret, "tidegate sticky 1" 0 site 0 node), as 32 hexadecimal digits
//! Set-Cookie: NAME=value; Path=/; HttpOnly; SameSite=Lax [; Secure] [; Max-Age=seconds]
//! ```
//!
//! So a value is the same at all front-ends of the same secret, and after a restart; it names no address, and without
//! the secret none can be made. Without a secret it is made of names alone, and so is one by any client that knows them.
//! Which node a value means is looked up in a table of the site's nodes, made anew when the topology has changed; the
//! values themselves are kept.
//!
//! Inputs: head, client, topology. Failure case: a client that has been sent to several nodes knows their values, and
//! can choose among these; the bound on loads holds for it as for all. A value that means no node of the site is as
//! none. Source: RFC 2104 (HMAC), RFC 6265 (cookies).

use std::collections::HashMap;
use std::net::IpAddr;

use http::{HeaderMap, HeaderValue};
use ring::hmac::{Context, HMAC_SHA256, Key};
use tidegate_core::picker::{Affinity, stable_hash};
use tidegate_core::topology::{Membership, NodeId, SiteId, Topology};

use crate::config::sticky::{StickyBy, StickyConfig, StickyCookie};
use crate::head::cookie;

/// What values are made for. Another label makes other values.
const LABEL: &[u8] = b"tidegate sticky 1";
/// The key where there is no secret.
const NO_SECRET: [u8; 32] = [0; 32];
/// Bytes of a value, each two digits.
const VALUE_BYTES: usize = 16;

/// What a cookie says, by which a node is known.
type Value = u128;

/// A site whose sessions stick, as one worker has it.
#[derive(Debug)]
pub(crate) struct StickySite {
    config: StickyConfig,
    keys: Vec<Key>,
    /// By the cookie's value; of this version of the topology.
    nodes: HashMap<Value, NodeId>,
    version: Option<u64>,
    /// By node's name, a value for each key.
    values: HashMap<String, Vec<Value>>,
}

impl StickySite {
    pub(crate) fn new(config: &StickyConfig) -> Self {
        let keys = match &config.by {
            StickyBy::Cookie(cookie) => keys(cookie),
            StickyBy::Source | StickyBy::Header(_) => Vec::new(),
        };
        Self {
            config: config.clone(),
            keys,
            nodes: HashMap::new(),
            version: None,
            values: HashMap::new(),
        }
    }

    pub(crate) fn config(&self) -> &StickyConfig {
        &self.config
    }

    /// Where the session of a request wants it.
    pub(crate) fn affinity(
        &mut self,
        site: SiteId,
        headers: &HeaderMap,
        client: IpAddr,
        topology: &Topology,
    ) -> Affinity {
        let bound = self.config.load_bound;
        let by_key = |bytes: &[u8]| Affinity::Key {
            key: stable_hash(bytes),
            bound,
        };
        match &self.config.by {
            StickyBy::Source => match client {
                IpAddr::V4(client) => by_key(&client.octets()),
                IpAddr::V6(client) => by_key(&client.octets()[..8]),
            },
            StickyBy::Header(name) => match headers.get(name) {
                Some(value) => by_key(value.as_bytes()),
                None => Affinity::None,
            },
            StickyBy::Cookie(cookie) => {
                let value = cookie::find(headers, &cookie.name).and_then(parsed);
                self.follow(site, topology);
                match value.and_then(|value| self.nodes.get(&value)) {
                    Some(node) => Affinity::Node { node: *node, bound },
                    None => Affinity::New,
                }
            }
        }
    }

    /// The cookie that names a node, where the site has one.
    pub(crate) fn cookie(
        &self,
        site: SiteId,
        node: NodeId,
        is_tls: bool,
        topology: &Topology,
    ) -> Option<HeaderValue> {
        let StickyBy::Cookie(cookie) = &self.config.by else {
            return None;
        };
        let (site, node) = (
            topology.sites.get(site.index())?,
            topology.nodes.get(node.index())?,
        );
        let value = value(self.keys.first()?, &site.name, &node.name);
        let mut text = format!(
            "{}={value:032x}; Path=/; HttpOnly; SameSite=Lax",
            cookie.name
        );
        if is_tls {
            text.push_str("; Secure");
        }
        if let Some(max_age) = cookie.max_age {
            text.push_str(&format!("; Max-Age={}", max_age.as_secs()));
        }
        HeaderValue::try_from(text).ok()
    }

    /// Takes over the nodes of a newer topology.
    fn follow(&mut self, site: SiteId, topology: &Topology) {
        if self.version == Some(topology.version) {
            return;
        }
        self.version = Some(topology.version);
        self.nodes.clear();
        let mut before = std::mem::take(&mut self.values);
        let Some(name) = topology.sites.get(site.index()).map(|it| &it.name) else {
            return;
        };
        // Those that leave first: a member has the name before one that leaves.
        for membership in [Membership::Leaving, Membership::Member] {
            for (id, node) in topology.present() {
                if node.site != site || node.membership != membership {
                    continue;
                }
                let values = before.remove(&node.name).unwrap_or_else(|| {
                    let of = |key| value(key, name, &node.name);
                    self.keys.iter().map(of).collect()
                });
                self.nodes.extend(values.iter().map(|value| (*value, id)));
                self.values.insert(node.name.clone(), values);
            }
        }
    }
}

fn keys(cookie: &StickyCookie) -> Vec<Key> {
    match cookie.secrets.is_empty() {
        true => vec![Key::new(HMAC_SHA256, &NO_SECRET)],
        false => (cookie.secrets.iter())
            .map(|secret| Key::new(HMAC_SHA256, secret.bytes()))
            .collect(),
    }
}

fn value(key: &Key, site: &str, node: &str) -> Value {
    let mut context = Context::with_key(key);
    // No name has a zero in it.
    for part in [LABEL, &[0], site.as_bytes(), &[0], node.as_bytes()] {
        context.update(part);
    }
    let tag = context.sign();
    let bytes = tag.as_ref().first_chunk::<VALUE_BYTES>();
    bytes.map_or(0, |bytes| Value::from_be_bytes(*bytes))
}

/// What a cookie says; nothing if that cannot be a value.
fn parsed(text: &[u8]) -> Option<Value> {
    let fits = text.len() == 2 * VALUE_BYTES && text.iter().all(u8::is_ascii_hexdigit);
    let text = std::str::from_utf8(text).ok().filter(|_| fits)?;
    Value::from_str_radix(text, 16).ok()
}

#[cfg(test)]
mod tests {
    use http::header::COOKIE;
    use tidegate_core::admission::AdmissionConfig;
    use tidegate_core::director::Director;
    use tidegate_core::policy::PolicyConfig;
    use tidegate_core::topology::{Capacity, ClusterSpec, NodeSpec, SiteSpec};

    use super::*;
    use crate::config::sticky::StickySecret;

    const SITE: SiteId = SiteId(0);

    fn topology(nodes: &[&str]) -> Topology {
        let spec = ClusterSpec {
            sites: vec![SiteSpec {
                name: "shop".into(),
                hosts: vec!["*".into()],
                paths: Vec::new(),
                policy: PolicyConfig::default(),
                admission: AdmissionConfig::default(),
                health: Default::default(),
            }],
            nodes: (nodes.iter())
                .map(|name| NodeSpec {
                    name: (*name).into(),
                    address: ([127, 0, 0, 1], 1).into(),
                    site: SITE,
                    weight: 1.0,
                    capacity: Capacity::default(),
                })
                .collect(),
            groups: Vec::new(),
            front_ends: 1,
        };
        Topology::clone(&Director::new(spec, 1).topology())
    }

    fn by_cookie(secrets: &[&str]) -> StickySite {
        let secrets = secrets.iter().map(|it| StickySecret::new(it.as_bytes()));
        StickySite::new(&StickyConfig {
            by: StickyBy::Cookie(StickyCookie {
                name: "node".into(),
                secrets: secrets.collect(),
                max_age: None,
            }),
            load_bound: 1.25,
        })
    }

    fn asked(site: &mut StickySite, cookie: &str, topology: &Topology) -> Option<u32> {
        let mut headers = HeaderMap::new();
        headers.insert(COOKIE, HeaderValue::from_str(cookie).unwrap());
        match site.affinity(SITE, &headers, [127, 0, 0, 1].into(), topology) {
            Affinity::Node { node, .. } => Some(node.0),
            Affinity::New => None,
            other @ (Affinity::None | Affinity::Key { .. }) => panic!("{other:?}"),
        }
    }

    fn set(site: &StickySite, node: u32, topology: &Topology) -> String {
        let cookie = site.cookie(SITE, NodeId(node), false, topology).unwrap();
        cookie.to_str().unwrap().to_owned()
    }

    #[test]
    fn a_cookie_leads_to_the_node_of_its_name_wherever_that_stands() {
        let (before, mut after) = (topology(&["a", "b", "c"]), topology(&["c", "a"]));
        after.version = before.version + 1;
        let mut site = by_cookie(&["one"]);
        for (node, expected) in [(0, Some(1)), (1, None), (2, Some(0))] {
            let cookie = set(&site, node, &before);
            assert_eq!(asked(&mut site, &cookie, &before), Some(node));
            assert_eq!(asked(&mut site, &cookie, &after), expected);
        }
    }

    #[test]
    fn values_of_all_secrets_are_known_and_the_first_makes_them() {
        let topology = topology(&["a", "b"]);
        let (old, mut both) = (by_cookie(&["one"]), by_cookie(&["two", "one"]));
        let mut new = by_cookie(&["two"]);
        let (before, after) = (set(&old, 1, &topology), set(&both, 1, &topology));
        assert_ne!(before, after);
        assert_eq!(after, set(&new, 1, &topology));
        assert_eq!(asked(&mut both, &before, &topology), Some(1));
        assert_eq!(asked(&mut new, &before, &topology), None);
    }

    #[test]
    fn a_cookie_is_secure_over_tls_and_lasts_as_long_as_is_said() {
        let topology = topology(&["a"]);
        let mut config = by_cookie(&[]).config().clone();
        if let StickyBy::Cookie(cookie) = &mut config.by {
            cookie.max_age = Some(std::time::Duration::from_secs(90));
        }
        let site = StickySite::new(&config);
        let cookie = site.cookie(SITE, NodeId(0), true, &topology).unwrap();
        let cookie = cookie.to_str().unwrap();
        assert!(cookie.ends_with("; Path=/; HttpOnly; SameSite=Lax; Secure; Max-Age=90"));
        assert_eq!(site.cookie(SITE, NodeId(7), true, &topology), None);
        assert_eq!(site.cookie(SiteId(7), NodeId(0), true, &topology), None);
    }

    #[test]
    fn what_is_no_value_is_none() {
        assert_eq!(parsed(b"000000000000000000000000000000ff"), Some(255));
        for text in ["", "ff", "+0000000000000000000000000000000f", "zz"] {
            assert_eq!(parsed(text.as_bytes()), None, "{text}");
        }
        assert_eq!(parsed(&[b'f'; 33]), None);
        assert_eq!(parsed(&[0xff; 32]), None);
    }

    #[test]
    fn addresses_of_a_network_of_64_bits_are_one_client() {
        let topology = topology(&["a"]);
        let mut site = StickySite::new(&StickyConfig {
            by: StickyBy::Source,
            load_bound: 1.25,
        });
        let mut key = |client: &str| {
            let client = client.parse().unwrap();
            site.affinity(SITE, &HeaderMap::new(), client, &topology)
        };
        assert_eq!(key("2001:db8::1"), key("2001:db8::2"));
        assert_ne!(key("2001:db8::1"), key("2001:db8:0:1::1"));
        assert_ne!(key("192.0.2.1"), key("192.0.2.2"));
    }
}
