//! Which site a request belongs to, by its host and path.
//!
//! ```text
//! host: "shop.example" beats "*.shop.example" (longest suffix first) beats "*"
//! path: the longest prefix that ends at a segment: "/api" serves "/api" and "/api/x", not "/apis"
//! ```
//!
//! The host decides first. Where the sites of a more exact host serve none of the request's
//! paths, the less exact hosts are asked: a site for `shop.example/api` leaves the rest of
//! `shop.example` to the site for `*`. `*.shop.example` matches any number of labels and not
//! `shop.example` itself. Letter case, a port and one final dot of the host mean nothing; a
//! query is no part of the path, and a prefix's final slash means nothing.
//!
//! It does not know TLS names, methods or headers. Paths are compared byte by byte, not
//! decoded and not normalised: a route chooses servers, it protects nothing.
//!
//! A look-up allocates nothing. Its cost is bound by the configuration and by
//! [`HOST_BYTES_MAX`], never by what a client sends: path prefixes are tried longest first
//! instead of looking up every prefix of the path.

use std::collections::BTreeMap;

use super::{SiteId, SiteSpec};

/// Longest host name, bytes (RFC 1035 §2.3.4: 255 on the wire, 253 as text).
pub const HOST_BYTES_MAX: usize = 253;
/// Longest configured path prefix, bytes.
pub const PATH_BYTES_MAX: usize = 1024;
/// Most pairs of a host and a path prefix in all sites together.
pub const ROUTES_MAX: usize = 65_536;

/// Why sites cannot be kept apart.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RouteError {
    /// Not a host.
    #[error("site {site:?}: {host:?} is no host: {why}")]
    Host {
        /// The site's name.
        site: String,
        /// The host as configured.
        host: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Not a path prefix.
    #[error("site {site:?}: {path:?} is no path prefix: {why}")]
    Path {
        /// The site's name.
        site: String,
        /// The path as configured.
        path: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Two sites want the same requests.
    #[error("sites {first:?} and {second:?} both serve {host:?} {path:?}")]
    Twice {
        /// The site that had it first.
        first: String,
        /// The other one; the same one if it names a host twice.
        second: String,
        /// The host.
        host: String,
        /// The path prefix.
        path: String,
    },
    /// Too many routes.
    #[error("more than {ROUTES_MAX} pairs of host and path")]
    TooMany,
}

/// The sites' hosts and paths, ready for look-ups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Routes {
    /// By whole host, lower case.
    exact: BTreeMap<Box<str>, Paths>,
    /// By what follows `*.`, lower case.
    suffixes: BTreeMap<Box<str>, Paths>,
    /// The site for all other hosts.
    rest: Paths,
}

/// Path prefixes of one host, longest first, without their final slash.
type Paths = Vec<(Box<str>, SiteId)>;

impl Routes {
    /// Routes to these sites; a [`SiteId`] is an index among them.
    pub fn new(sites: &[SiteSpec]) -> Result<Self, RouteError> {
        let mut routes = Self::default();
        let mut count = 0;
        for (index, site) in sites.iter().enumerate() {
            for host in &site.hosts {
                // A site without paths serves all of them.
                let all = [String::from("/")];
                let paths = if site.paths.is_empty() {
                    &all[..]
                } else {
                    &site.paths[..]
                };
                for path in paths {
                    count += 1;
                    if count > ROUTES_MAX {
                        return Err(RouteError::TooMany);
                    }
                    routes.insert(sites, SiteId(index as u32), host, path)?;
                }
            }
        }
        let hosts = routes.exact.values_mut();
        for paths in hosts
            .chain(routes.suffixes.values_mut())
            .chain([&mut routes.rest])
        {
            paths.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
        }
        Ok(routes)
    }

    /// The site that serves this host and path, if any does.
    pub fn site(&self, host: &str, path: &str) -> Option<SiteId> {
        let query = path.bytes().position(|byte| matches!(byte, b'?' | b'#'));
        let path = &path[..query.unwrap_or(path.len())];
        let host = bare_host(host);
        if host.len() > HOST_BYTES_MAX {
            // No site can have such a host.
            return find(&self.rest, path);
        }
        if host.bytes().any(|byte| byte.is_ascii_uppercase()) {
            let mut lower = [0; HOST_BYTES_MAX];
            let lower = &mut lower[..host.len()];
            lower.copy_from_slice(host.as_bytes());
            lower.make_ascii_lowercase();
            // ASCII lower case keeps UTF-8 valid.
            return self.of(std::str::from_utf8(lower).unwrap_or_default(), path);
        }
        self.of(host, path)
    }

    /// The site of a host in lower case; an empty one meets no site but "*".
    fn of(&self, host: &str, path: &str) -> Option<SiteId> {
        let exact = self.exact.get(host).and_then(|paths| find(paths, path));
        exact
            .or_else(|| self.by_suffix(host, path))
            .or_else(|| find(&self.rest, path))
    }

    fn by_suffix(&self, host: &str, path: &str) -> Option<SiteId> {
        if self.suffixes.is_empty() {
            return None;
        }
        // Left to right, so the longest suffix comes first. A wildcard stands for at least one
        // byte: ".shop.example" is not under "*.shop.example".
        host.match_indices('.')
            .filter(|(dot, _)| *dot > 0)
            .filter_map(|(dot, _)| self.suffixes.get(&host[dot + 1..]))
            .find_map(|paths| find(paths, path))
    }

    fn insert(
        &mut self,
        sites: &[SiteSpec],
        site: SiteId,
        host: &str,
        path: &str,
    ) -> Result<(), RouteError> {
        let name = |site: SiteId| sites[site.index()].name.clone();
        let path = prefix(path).map_err(|why| RouteError::Path {
            site: name(site),
            path: path.into(),
            why,
        })?;
        let paths = self.paths_of(host).map_err(|why| RouteError::Host {
            site: name(site),
            host: host.into(),
            why,
        })?;
        if let Some((_, first)) = paths.iter().find(|(taken, _)| **taken == *path) {
            return Err(RouteError::Twice {
                first: name(*first),
                second: name(site),
                host: host.into(),
                path: if path.is_empty() { "/" } else { path }.into(),
            });
        }
        paths.push((path.into(), site));
        Ok(())
    }

    fn paths_of(&mut self, host: &str) -> Result<&mut Paths, &'static str> {
        if host == "*" {
            return Ok(&mut self.rest);
        }
        let (hosts, name) = match host.strip_prefix("*.") {
            Some(suffix) => (&mut self.suffixes, suffix),
            None => (&mut self.exact, host),
        };
        if name.is_empty() {
            return Err("it is empty");
        }
        if name.len() > HOST_BYTES_MAX {
            return Err("it is longer than 253 bytes");
        }
        if name.contains('*') {
            return Err("a `*` stands alone or as the first label");
        }
        if name.contains(|c: char| c == '/' || c.is_whitespace() || c.is_control()) {
            return Err("it has a character that no host has");
        }
        if bare_host(name) != name {
            return Err("a host is given without port and final dot");
        }
        let name = name.to_ascii_lowercase().into_boxed_str();
        Ok(hosts.entry(name).or_default())
    }
}

/// A host without its port and without one final dot.
pub fn bare_host(host: &str) -> &str {
    let bracket = match host.starts_with('[') {
        // An IPv6 literal has colons of its own.
        true => host.rfind(']'),
        false => None,
    };
    let end = match bracket {
        Some(bracket) => bracket + 1,
        // Hosts are short: a look at each byte is less work than a search.
        None => (host.bytes().position(|byte| byte == b':')).unwrap_or(host.len()),
    };
    let host = &host[..end];
    host.strip_suffix('.').unwrap_or(host)
}

/// The prefix without its final slash; "" serves everything.
fn prefix(path: &str) -> Result<&str, &'static str> {
    if !path.starts_with('/') {
        return Err("it does not begin with `/`");
    }
    if path.len() > PATH_BYTES_MAX {
        return Err("it is longer than 1024 bytes");
    }
    if path.contains(['?', '#']) {
        return Err("a query is no part of a path");
    }
    Ok(path.strip_suffix('/').unwrap_or(path))
}

fn find(paths: &Paths, path: &str) -> Option<SiteId> {
    let serves = |prefix: &str| {
        path.strip_prefix(prefix)
            .is_some_and(|rest| prefix.is_empty() || rest.is_empty() || rest.starts_with('/'))
    };
    let (_, site) = paths.iter().find(|(prefix, _)| serves(prefix))?;
    Some(*site)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::AdmissionConfig;
    use crate::policy::PolicyConfig;
    use crate::prng::Prng;

    fn spec(name: &str, hosts: &[&str], paths: &[&str]) -> SiteSpec {
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        SiteSpec {
            name: name.into(),
            hosts: owned(hosts),
            paths: owned(paths),
            policy: PolicyConfig::default(),
            admission: AdmissionConfig::default(),
            health: Default::default(),
        }
    }

    fn sites() -> Vec<SiteSpec> {
        vec![
            spec("shop", &["shop.example", "Store.Example"], &[]),
            spec("api", &["shop.example"], &["/api", "/v2/api/"]),
            spec("images", &["*.shop.example"], &["/"]),
            spec("deep", &["*.cdn.shop.example"], &["/big"]),
            spec("six", &["[::1]"], &[]),
            spec("rest", &["*"], &[]),
            spec("status", &["*"], &["/status"]),
            spec("only", &["only.example"], &["/only"]),
        ]
    }

    #[test]
    fn hosts_and_paths_find_their_site() {
        let sites = sites();
        let routes = Routes::new(&sites).unwrap();
        for (host, path, wanted) in [
            ("shop.example", "/", "shop"),
            ("SHOP.example:8080", "/", "shop"),
            ("shop.example.", "/", "shop"),
            ("shop.example.:80", "/", "shop"),
            ("store.example", "/x", "shop"),
            ("shop.example", "/api", "api"),
            ("shop.example", "/api/", "api"),
            ("shop.example", "/api/x?y=/z", "api"),
            ("shop.example", "/api?x", "api"),
            ("shop.example", "/apis", "shop"),
            ("shop.example", "/API", "shop"),
            ("shop.example", "/v2/api", "api"),
            ("shop.example", "/v2/apix", "shop"),
            ("shop.example", "/x?/api", "shop"),
            ("img.shop.example", "/", "images"),
            ("a.b.shop.example:1", "/x", "images"),
            ("a.cdn.shop.example", "/big/x", "deep"),
            // The longest suffix serves no such path: the next one is asked.
            ("a.cdn.shop.example", "/small", "images"),
            ("cdn.shop.example", "/big", "images"),
            (".shop.example", "/", "rest"),
            ("notshop.example", "/", "rest"),
            ("example", "/", "rest"),
            ("", "/", "rest"),
            ("other.example", "/status/x", "status"),
            ("[::1]:8080", "/", "six"),
            ("[::1]", "/", "six"),
            ("[::1", "/", "rest"),
            ("only.example", "/only", "only"),
            ("only.example", "/else", "rest"),
            ("only.example", "*", "rest"),
            ("only.example", "", "rest"),
        ] {
            let found = routes
                .site(host, path)
                .map(|site| &sites[site.index()].name);
            assert_eq!(found.map(String::as_str), Some(wanted), "{host} {path}");
        }
        let long = "x".repeat(HOST_BYTES_MAX + 1);
        assert_eq!(routes.site(&long, "/"), Some(SiteId(5)));
    }

    #[test]
    fn without_a_default_a_stranger_has_no_site() {
        let routes = Routes::new(&sites()[..3]).unwrap();
        assert_eq!(routes.site("other.example", "/"), None);
        let routes = Routes::new(&[]).unwrap();
        assert_eq!(routes.site("", ""), None);
    }

    #[test]
    fn what_cannot_be_told_apart_is_refused_by_name() {
        let twice = [
            spec("a", &["x.example"], &["/p/"]),
            spec("b", &["X.example"], &["/p"]),
        ];
        assert_eq!(
            Routes::new(&twice).unwrap_err().to_string(),
            r#"sites "a" and "b" both serve "X.example" "/p""#
        );
        for host in ["", "*.", "a*b", "*.*.x", "x y", "x/y", "x:80", "x.", "**"] {
            let refused = Routes::new(&[spec("a", &[host], &[])]);
            assert!(matches!(refused, Err(RouteError::Host { .. })), "{host:?}");
        }
        for path in ["", "x", "/x?y", "/x#y"] {
            let refused = Routes::new(&[spec("a", &["*"], &[path])]);
            assert!(matches!(refused, Err(RouteError::Path { .. })), "{path:?}");
        }
        let long = format!("/{}", "x".repeat(PATH_BYTES_MAX));
        assert!(Routes::new(&[spec("a", &["*"], &[&long])]).is_err());
    }

    #[test]
    fn so_many_pairs_of_host_and_path_are_told_apart_and_no_more() {
        let many = |what: &str, end: &str| -> Vec<String> {
            (0..256).map(|it| format!("{what}{it}{end}")).collect()
        };
        let (hosts, paths) = (many("h", ".example"), many("/p", ""));
        fn borrowed(all: &[String]) -> Vec<&str> {
            all.iter().map(String::as_str).collect()
        }
        // 256 times 256.
        let full = spec("full", &borrowed(&hosts), &borrowed(&paths));
        let routes = Routes::new(std::slice::from_ref(&full)).unwrap();
        assert_eq!(routes.site("h255.example", "/p255"), Some(SiteId(0)));
        let more = [full, spec("one more", &["*"], &[])];
        assert_eq!(Routes::new(&more), Err(RouteError::TooMany));
    }

    #[test]
    fn any_host_and_path_are_answered_without_a_panic() {
        const PIECES: &[&str] = &[
            "shop", "example", ".", "..", ":", "80", "[", "]", "::1", "*", "/", "//", "api", "?",
            "#", "é", "日本", "\u{0}", "%2e", " ", "cdn", "A",
        ];
        let mut prng = Prng::new(5);
        let mut text = |longest| {
            let pieces = prng.below(longest);
            (0..pieces)
                .map(|_| PIECES[prng.below(PIECES.len())])
                .collect::<String>()
        };
        let routes = Routes::new(&sites()).unwrap();
        for _ in 0..20_000 {
            let (host, path) = (text(12), text(12));
            assert!(routes.site(&host, &path).is_some(), "there is a default");
            // What a configuration may hold neither panics, and what is taken is found.
            if let Ok(routes) = Routes::new(&[spec("a", &[&host], &[&format!("/{path}")])]) {
                let asked = host.replace('*', "x");
                let found = routes.site(&asked, &format!("/{path}"));
                assert_eq!(found, Some(SiteId(0)), "{host:?} {path:?}");
            }
        }
        let dots = ".".repeat(10_000);
        assert!(routes.site(&dots, &"/".repeat(100_000)).is_some());
    }
}
