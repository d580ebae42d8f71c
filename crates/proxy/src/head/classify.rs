//! Which priority a request has, and which session: pure functions over its head, without an
//! allocation. What is unknown, too long or not a priority is as if it were not there.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use http::HeaderMap;
use tidegate_core::admission::{Priority, Sessions};
use tidegate_core::time::Timestamp;
use tidegate_core::topology::SiteId;

use super::cookie;
use crate::config::site::{PriorityConfig, SessionConfig, SessionSource, SiteConfig};

/// A session's name is no longer.
const NAME_BYTES_MAX: usize = 1024;
/// Sessions that are known of all sites together, and of one at least; 8 bytes each.
const SLOTS_OF_ALL: usize = 8 * Sessions::SLOTS;
const SLOTS_MIN: usize = 1024;

/// The rules of one site, ready for use.
#[derive(Clone, Debug, Default)]
pub(crate) struct PriorityRules {
    config: PriorityConfig,
}

impl PriorityRules {
    pub(crate) fn new(config: &PriorityConfig) -> Self {
        let mut config = config.clone();
        for (path, _) in &mut config.paths {
            // A final slash means nothing, as in routes.
            if path.ends_with('/') {
                path.pop();
            }
        }
        config
            .paths
            .sort_by_key(|(path, _)| std::cmp::Reverse(path.len()));
        Self { config }
    }

    /// The priority of a request, where `priorities` are in use.
    pub(crate) fn priority(&self, priorities: u8, path: &str, headers: &HeaderMap) -> Priority {
        let lowest = priorities.saturating_sub(1);
        if lowest == 0 {
            return Priority::HIGHEST;
        }
        let number = self
            .by_path(path)
            .or_else(|| self.by_header(headers))
            .or_else(|| self.by_cookie(headers))
            .or(self.config.default)
            .unwrap_or(lowest);
        Priority::new(number.min(lowest)).unwrap_or(Priority::HIGHEST)
    }

    fn by_path(&self, path: &str) -> Option<u8> {
        let holds = |prefix: &str| {
            let rest = path.strip_prefix(prefix);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let mut paths = self.config.paths.iter();
        paths
            .find(|(prefix, _)| holds(prefix))
            .map(|(_, priority)| *priority)
    }

    fn by_header(&self, headers: &HeaderMap) -> Option<u8> {
        let value = headers.get(self.config.header.as_ref()?)?;
        self.means(value.as_bytes())
    }

    fn by_cookie(&self, headers: &HeaderMap) -> Option<u8> {
        self.means(cookie::find(headers, self.config.cookie.as_deref()?)?)
    }

    fn means(&self, value: &[u8]) -> Option<u8> {
        let value = value.trim_ascii();
        let values = &self.config.values;
        if values.is_empty() {
            return std::str::from_utf8(value).ok()?.parse().ok();
        }
        let named = values.iter().find(|(name, _)| name.as_bytes() == value);
        named.map(|(_, priority)| *priority)
    }
}

/// The sessions of all sites, shared by the workers. Their names are hashed with a key that stays
/// in the process, so no client can choose one that falls together with another's.
#[derive(Debug)]
pub(crate) struct SessionTables {
    hasher: RandomState,
    sites: Box<[Option<Arc<SiteSessions>>]>,
}

/// Those of one site.
#[derive(Debug)]
struct SiteSessions {
    config: SessionConfig,
    sessions: Sessions,
}

/// A request's session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SessionHash(u64);

impl SessionTables {
    pub(crate) fn new(sites: &[SiteConfig]) -> Self {
        let none = Self {
            hasher: RandomState::new(),
            sites: Box::default(),
        };
        none.next(sites)
    }

    /// The tables for these sites, of which those that did not change keep their sessions.
    pub(crate) fn next(&self, sites: &[SiteConfig]) -> Self {
        let count = sites.iter().filter(|site| site.sessions.is_some()).count();
        let slots = (SLOTS_OF_ALL / count.max(1)).clamp(SLOTS_MIN, Sessions::SLOTS);
        let table = |(index, site): (usize, &SiteConfig)| {
            let config = site.sessions.as_ref()?;
            let kept = self.sites.get(index).and_then(Option::as_ref);
            Some(match kept.filter(|kept| kept.config == *config) {
                Some(kept) => Arc::clone(kept),
                None => Arc::new(SiteSessions {
                    sessions: Sessions::new(slots, config.window),
                    config: config.clone(),
                }),
            })
        };
        Self {
            hasher: self.hasher.clone(),
            sites: sites.iter().enumerate().map(table).collect(),
        }
    }

    fn site(&self, site: SiteId) -> Option<&SiteSessions> {
        self.sites.get(site.index())?.as_deref()
    }

    /// The session of a request, if it has one.
    pub(crate) fn session(&self, site: SiteId, headers: &HeaderMap) -> Option<SessionHash> {
        let name = match &self.site(site)?.config.source {
            SessionSource::Header(header) => headers.get(header)?.as_bytes(),
            SessionSource::Cookie(cookie) => cookie::find(headers, cookie)?,
        };
        let fits = (1..=NAME_BYTES_MAX).contains(&name.len());
        fits.then(|| SessionHash(self.hasher.hash_one(name)))
    }

    /// Whether a request of the session was let in a moment ago.
    pub(crate) fn is_established(
        &self,
        site: SiteId,
        session: SessionHash,
        now: Timestamp,
    ) -> bool {
        let site = self.site(site);
        site.is_some_and(|site| site.sessions.is_established(session.0, now))
    }

    /// A request of the session was let in.
    pub(crate) fn mark(&self, site: SiteId, session: SessionHash, now: Timestamp) {
        if let Some(site) = self.site(site) {
            site.sessions.mark(session.0, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::{HeaderName, HeaderValue};

    use super::*;

    const PLAN: HeaderName = HeaderName::from_static("x-plan");

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let pairs = pairs.iter().map(|(name, value)| {
            let value = HeaderValue::from_str(value).unwrap();
            (HeaderName::from_static(name), value)
        });
        pairs.collect()
    }

    fn named(names: &[(&str, u8)]) -> Vec<(String, u8)> {
        let names = names.iter();
        names
            .map(|(name, priority)| ((*name).to_owned(), *priority))
            .collect()
    }

    #[test]
    fn without_rules_the_usual_header_has_the_number() {
        let rules = PriorityRules::new(&PriorityConfig::default());
        for (value, priority) in [
            ("0", 0),
            (" 1 ", 1),
            ("2", 2),
            ("3", 2),
            ("255", 2),
            ("256", 2),
            ("-1", 2),
            ("", 2),
            ("gold", 2),
            ("99999999999999999999", 2),
        ] {
            let headers = headers(&[("x-tidegate-priority", value)]);
            assert_eq!(
                rules.priority(3, "/", &headers).index(),
                priority,
                "{value:?}"
            );
            assert_eq!(rules.priority(1, "/", &headers), Priority::HIGHEST);
        }
        assert_eq!(rules.priority(3, "/", &HeaderMap::new()).index(), 2);
    }

    #[test]
    fn path_comes_before_header_before_cookie_before_the_default() {
        let rules = PriorityRules::new(&PriorityConfig {
            header: Some(PLAN),
            cookie: Some("plan".into()),
            values: named(&[("gold", 0), ("silver", 1), ("bronze", 3)]),
            paths: named(&[("/search", 3), ("/search/paid/", 1)]),
            default: Some(2),
        });
        let priority = |path, pairs: &[_]| rules.priority(4, path, &headers(pairs)).index();
        let gold = ("x-plan", "gold");
        let silver = ("cookie", "a=b; plan=silver");
        assert_eq!(priority("/search", &[gold, silver]), 3);
        assert_eq!(priority("/search/paid/x", &[gold, silver]), 1);
        assert_eq!(priority("/searches", &[gold, silver]), 0);
        assert_eq!(priority("/", &[silver]), 1);
        assert_eq!(priority("/", &[("x-plan", "platinum"), silver]), 1);
        assert_eq!(priority("/", &[("x-plan", "0")]), 2, "names, no numbers");
        assert_eq!(priority("/", &[]), 2);
    }

    #[test]
    fn a_site_of_two_priorities_has_no_third() {
        let rules = PriorityRules::new(&PriorityConfig {
            paths: named(&[("/", 3)]),
            ..PriorityConfig::default()
        });
        assert_eq!(rules.priority(2, "/x", &HeaderMap::new()).index(), 1);
    }

    #[test]
    fn sessions_are_known_by_header_or_cookie_and_by_site() {
        let of = |source| SiteConfig {
            sessions: Some(SessionConfig {
                source,
                window: Duration::from_secs(60),
            }),
            ..SiteConfig::default()
        };
        let tables = SessionTables::new(&[
            of(SessionSource::Cookie("sid".into())),
            of(SessionSource::Header(PLAN)),
            SiteConfig::default(),
        ]);
        let now = Timestamp::from_millis(1000);
        let (cookies, plans, none) = (SiteId(0), SiteId(1), SiteId(2));
        let alice = tables.session(cookies, &headers(&[("cookie", "sid=alice")]));
        let alice = alice.unwrap();
        assert!(!tables.is_established(cookies, alice, now));
        tables.mark(cookies, alice, now);
        assert!(tables.is_established(cookies, alice, now));
        let again = tables.session(cookies, &headers(&[("cookie", "a=b; sid=alice")]));
        assert_eq!(again, Some(alice));
        let same = tables
            .session(plans, &headers(&[("x-plan", "alice")]))
            .unwrap();
        assert!(!tables.is_established(plans, same, now), "another site's");
        let longest = "x".repeat(NAME_BYTES_MAX);
        let known = tables.session(plans, &headers(&[("x-plan", &longest)]));
        assert!(known.is_some());
        let long = "x".repeat(NAME_BYTES_MAX + 1);
        for (site, value) in [(none, "sid=bob"), (cookies, "sid="), (cookies, "a=b")] {
            assert_eq!(tables.session(site, &headers(&[("cookie", value)])), None);
        }
        assert_eq!(tables.session(plans, &headers(&[("x-plan", &long)])), None);
        assert_eq!(tables.session(SiteId(9), &headers(&[])), None);
    }
}
