//! The settings of all sites: as they are published for all workers, and what one worker has made ready of them.
//!
//! Sites come, go and change while requests run: a worker takes newer settings over with its next tick. What did not
//! change keeps what it has: a budget of retries or of second nodes its level, a table of sessions those that are known, a rule of TLS its connections. A site that is newer
//! than a worker's settings has the defaults until then.

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response};
use tidegate_core::admission::Priority;
use tidegate_core::hedge_budget::HedgeBudget;
use tidegate_core::picker::Affinity;
use tidegate_core::retry_budget::RetryBudget;
use tidegate_core::time::Timestamp;
use tidegate_core::topology::{NodeId, SiteId};
use tokio::sync::Notify;

use super::sticky::StickySite;
use crate::base::WorkerBase;
use crate::config::route::RouteConfig;
use crate::config::site::SiteConfig;
use crate::head::classify::{PriorityRules, SessionHash, SessionTables};
use crate::record::reason::Reason;
use crate::refusal::{Answers, Form};
use crate::tls::{NodeTls, NodeTlsId};
use crate::wire::proxy_header::ProxyVersion;

/// The settings of all sites, by [`SiteId`], with what workers share of them.
#[derive(Debug)]
pub(crate) struct SiteSettings {
    configs: Vec<SiteConfig>,
    sessions: SessionTables,
}

impl SiteSettings {
    /// As at the start.
    pub(crate) fn new(configs: Vec<SiteConfig>) -> Self {
        Self {
            sessions: SessionTables::new(&configs),
            configs,
        }
    }

    /// Those that come after these. A rule of TLS that says the same is the same one: its connections and sessions go on.
    fn next(&self, mut configs: Vec<SiteConfig>) -> Self {
        for (index, config) in configs.iter_mut().enumerate() {
            let own = self.configs.get(index).into_iter();
            let mut known = own
                .chain(&self.configs)
                .filter_map(|it| it.node_tls.as_ref());
            if let Some(rule) = &mut config.node_tls
                && let Some(same) = known.find(|it| it.is_same(rule))
            {
                *rule = Arc::clone(same);
            }
        }
        Self {
            sessions: self.sessions.next(&configs),
            configs,
        }
    }
}

/// What changes the settings of a running data plane's sites.
#[derive(Clone, Debug)]
pub struct SiteSetter {
    published: Arc<ArcSwap<SiteSettings>>,
    news: Arc<Notify>,
}

impl SiteSetter {
    pub(crate) fn new(published: Arc<ArcSwap<SiteSettings>>, news: Arc<Notify>) -> Self {
        Self { published, news }
    }

    /// These are the settings from each worker's next tick on, by [`SiteId`]; a site behind the last has the defaults.
    pub fn set(&self, configs: Vec<SiteConfig>) {
        let next = self.published.load().next(configs);
        self.published.store(Arc::new(next));
        self.news.notify_waiters();
    }

    /// Whether connections are passed on to a site's nodes as they are.
    pub fn is_tcp(&self, site: SiteId) -> bool {
        let settings = self.published.load();
        let config = settings.configs.get(site.index());
        config.is_some_and(|it| it.is_tcp)
    }

    /// Whether HTTP/2 is spoken with a site's nodes.
    pub fn node_http2(&self, site: SiteId) -> bool {
        let settings = self.published.load();
        let config = settings.configs.get(site.index());
        config.is_some_and(|it| it.node_http2)
    }

    /// The header of the PROXY protocol that connections to a site's nodes begin with, if they do with one.
    pub fn node_proxy_protocol(&self, site: SiteId) -> Option<ProxyVersion> {
        let settings = self.published.load();
        settings.configs.get(site.index())?.node_proxy_protocol
    }

    /// How TLS is spoken with a site's nodes, if it is.
    pub fn node_tls(&self, site: SiteId) -> Option<Arc<NodeTls>> {
        let settings = self.published.load();
        settings.configs.get(site.index())?.node_tls.clone()
    }
}

/// See the module. Of one worker.
pub(crate) struct Sites {
    base: Rc<WorkerBase>,
    published: Arc<ArcSwap<SiteSettings>>,
    /// How many share what a site has.
    workers: usize,
    seed: Cell<u64>,
    ready: RefCell<Ready>,
}

/// What is made of the settings.
struct Ready {
    settings: Arc<SiteSettings>,
    answers: Answers,
    priorities: Vec<PriorityRules>,
    budgets: Vec<RetryBudget>,
    /// By site, and by place of a route.
    hedges: Vec<Vec<HedgeBudget>>,
    sticky: Vec<Option<StickySite>>,
    /// Whether connections to nodes of any site begin with a header that names the client.
    introduces: bool,
}

impl Sites {
    pub(crate) fn new(
        base: Rc<WorkerBase>,
        published: Arc<ArcSwap<SiteSettings>>,
        workers: usize,
        seed: u64,
    ) -> Self {
        let settings = published.load_full();
        let configs = &settings.configs;
        let ready = Ready {
            answers: Answers::new(configs, seed),
            priorities: priorities(configs),
            budgets: configs
                .iter()
                .map(|it| budget(it, workers, &base))
                .collect(),
            hedges: configs.iter().map(hedges).collect(),
            sticky: configs.iter().map(|it| sticky(it, None)).collect(),
            introduces: introduces(configs),
            settings,
        };
        Self {
            base,
            published,
            workers,
            seed: Cell::new(seed),
            ready: RefCell::new(ready),
        }
    }

    /// Takes newer settings over, if there are any.
    pub(crate) fn follow(&self) {
        let settings = self.published.load();
        let mut ready = self.ready.borrow_mut();
        if Arc::ptr_eq(&settings, &ready.settings) {
            return;
        }
        let configs = &settings.configs;
        let before = std::mem::take(&mut ready.budgets);
        let mut kept = before.into_iter().zip(&ready.settings.configs);
        let budgets = configs.iter().map(|config| match kept.next() {
            Some((budget, was)) if was.retry == config.retry => budget,
            Some(_) | None => budget(config, self.workers, &self.base),
        });
        let budgets = budgets.collect();
        let before = std::mem::take(&mut ready.hedges);
        let mut kept = before.into_iter().zip(&ready.settings.configs);
        let hedges = configs.iter().map(|config| match kept.next() {
            Some((budgets, was)) if has_hedges_of(config, was) => budgets,
            Some(_) | None => hedges(config),
        });
        let hedges = hedges.collect();
        let mut before = std::mem::take(&mut ready.sticky).into_iter();
        let kept = configs.iter().map(|it| sticky(it, before.next().flatten()));
        let kept_sticky = kept.collect();
        self.seed.set(self.seed.get().wrapping_add(1));
        *ready = Ready {
            answers: Answers::new(configs, self.seed.get()),
            priorities: priorities(configs),
            budgets,
            hedges,
            sticky: kept_sticky,
            introduces: introduces(configs),
            settings: Arc::clone(&settings),
        };
    }

    /// The priority of a request.
    #[inline]
    pub(crate) fn priority(&self, site: SiteId, path: &str, headers: &HeaderMap) -> Priority {
        let picker = self.base.cluster.picker.borrow();
        let priorities = match picker.topology().sites.get(site.index()) {
            Some(site) => site.admission.priorities,
            None => 1,
        };
        drop(picker);
        if priorities <= 1 {
            return Priority::HIGHEST;
        }
        match self.ready.borrow().priorities.get(site.index()) {
            Some(rules) => rules.priority(priorities, path, headers),
            None => PriorityRules::default().priority(priorities, path, headers),
        }
    }

    /// A request of the session was let in.
    pub(crate) fn mark(&self, site: SiteId, session: SessionHash, now: Timestamp) {
        (self.ready.borrow().settings.sessions).mark(site, session, now);
    }

    /// Whether a request of the session was let in a moment ago; then it is counted as established.
    pub(crate) fn is_established(
        &self,
        site: SiteId,
        session: SessionHash,
        now: Timestamp,
    ) -> bool {
        let ready = self.ready.borrow();
        let established = (ready.settings.sessions).is_established(site, session, now);
        if established && let Some(site) = self.base.stats().site(site) {
            site.established.add(1);
        }
        established
    }

    /// The site's routes, where it has some.
    pub(crate) fn routes(&self, site: SiteId) -> Option<Arc<[RouteConfig]>> {
        let ready = self.ready.borrow();
        let site = ready.settings.configs.get(site.index())?;
        (!site.routes.is_empty()).then(|| Arc::clone(&site.routes))
    }

    /// What comes first on a new connection to one of the site's nodes.
    pub(crate) fn node_opening(&self, site: SiteId) -> NodeOpening {
        let ready = self.ready.borrow();
        let Some(config) = ready.settings.configs.get(site.index()) else {
            return NodeOpening::default();
        };
        NodeOpening {
            proxy: config.node_proxy_protocol,
            tls: config.node_tls.clone(),
        }
    }

    /// How the site's nodes are spoken to.
    #[inline]
    pub(crate) fn node_speech(&self, site: SiteId) -> NodeSpeech {
        let ready = self.ready.borrow();
        let Some(config) = ready.settings.configs.get(site.index()) else {
            return NodeSpeech::NONE;
        };
        NodeSpeech {
            tls: config.node_tls.as_ref().map(|it| it.id()),
            http2: config.node_http2,
            introduces: config.node_proxy_protocol.is_some(),
        }
    }

    /// Whether connections to nodes of any site begin with a header that names the client.
    #[inline]
    pub(crate) fn introduces(&self) -> bool {
        self.ready.borrow().introduces
    }

    /// Where the session of a request wants it.
    #[inline]
    pub(crate) fn affinity(&self, site: SiteId, headers: &HeaderMap, client: IpAddr) -> Affinity {
        match self.ready.borrow_mut().sticky.get_mut(site.index()) {
            Some(Some(sticky)) => self.wanted(sticky, site, headers, client),
            Some(None) | None => Affinity::None,
        }
    }

    #[cold]
    fn wanted(
        &self,
        sticky: &mut StickySite,
        site: SiteId,
        headers: &HeaderMap,
        client: IpAddr,
    ) -> Affinity {
        let picker = self.base.cluster.picker.borrow();
        sticky.affinity(site, headers, client, picker.topology())
    }

    /// The cookie by which a session of the site comes back to a node, where there is one.
    #[cold]
    pub(crate) fn sticky_cookie(
        &self,
        site: SiteId,
        node: NodeId,
        is_tls: bool,
    ) -> Option<HeaderValue> {
        let ready = self.ready.borrow();
        let sticky = ready.sticky.get(site.index())?.as_ref()?;
        let picker = self.base.cluster.picker.borrow();
        sticky.cookie(site, node, is_tls, picker.topology())
    }

    /// Whether HTTP/2 is spoken with the site's nodes.
    pub(crate) fn node_http2(&self, site: SiteId) -> bool {
        let ready = self.ready.borrow();
        let config = ready.settings.configs.get(site.index());
        config.is_some_and(|it| it.node_http2)
    }

    /// Whether the site's nodes report their load in responses.
    pub(crate) fn read_load_of(&self, site: SiteId) -> bool {
        let ready = self.ready.borrow();
        let site = ready.settings.configs.get(site.index());
        site.is_some_and(|site| site.load_header)
    }

    /// The answer to a request that is refused.
    pub(crate) fn answer(
        &self,
        reason: Reason,
        site: Option<SiteId>,
        form: Form,
    ) -> Response<Bytes> {
        self.ready.borrow().answers.answer(reason, site, form)
    }

    /// The whole answer to a connection that is not read.
    pub(crate) fn unread(&self, reason: Reason) -> Bytes {
        self.ready.borrow().answers.unread(reason).clone()
    }

    /// A request of the site has come: it pays for retries. Gives its session, if it has one.
    pub(crate) fn on_request(&self, site: SiteId, headers: &HeaderMap) -> Option<SessionHash> {
        let mut ready = self.ready.borrow_mut();
        if let Some(budget) = ready.budgets.get_mut(site.index()) {
            budget.on_request();
        }
        ready.settings.sessions.session(site, headers)
    }

    /// Whether a request of the site may be tried again; if so, it is paid for. A request that `was_denied`
    /// one before is not counted again.
    pub(crate) fn may_retry(&self, site: SiteId, was_denied: bool) -> bool {
        let mut ready = self.ready.borrow_mut();
        let budget = ready.budgets.get_mut(site.index());
        let may = budget.is_some_and(|budget| budget.try_take(self.base.now()));
        if !may && !was_denied {
            let stats = self.base.stats();
            stats.retries_denied.add(1);
            if let Some(site) = stats.site(site) {
                site.retries_denied.add(1);
            }
        }
        may
    }

    /// What second nodes of a route's requests are paid from.
    pub(crate) fn with_hedge_budget<T>(
        &self,
        site: SiteId,
        place: usize,
        with: impl FnOnce(&mut HedgeBudget) -> T,
    ) -> Option<T> {
        let mut ready = self.ready.borrow_mut();
        Some(with(ready.hedges.get_mut(site.index())?.get_mut(place)?))
    }

    /// Whether another node is asked in place of an answer of this status.
    pub(crate) fn retries_on(&self, site: SiteId, status: u16) -> bool {
        let ready = self.ready.borrow();
        let config = ready.settings.configs.get(site.index());
        config.is_some_and(|it| it.retry_on.contains(&status))
    }

    /// A request of the site is tried again.
    pub(crate) fn on_retry(&self, site: SiteId) {
        let stats = self.base.stats();
        stats.retries.add(1);
        if let Some(site) = stats.site(site) {
            site.retries.add(1);
        }
    }
}

/// How a site's nodes are spoken to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeSpeech {
    /// By which rule of TLS, if by one.
    pub(crate) tls: Option<NodeTlsId>,
    /// Whether by HTTP/2.
    pub(crate) http2: bool,
    /// Whether a header of the PROXY protocol names the client.
    pub(crate) introduces: bool,
}

impl NodeSpeech {
    /// Plain HTTP/1.1.
    pub(crate) const NONE: Self = Self {
        tls: None,
        http2: false,
        introduces: false,
    };
}

/// What comes first on a new connection to a site's node.
#[derive(Default)]
pub(crate) struct NodeOpening {
    /// The header of the PROXY protocol, if there is one.
    pub(crate) proxy: Option<ProxyVersion>,
    /// How TLS is spoken behind it, if it is.
    pub(crate) tls: Option<Arc<NodeTls>>,
}

fn introduces(configs: &[SiteConfig]) -> bool {
    let mut configs = configs.iter();
    configs.any(|it| it.node_proxy_protocol.is_some())
}

fn priorities(configs: &[SiteConfig]) -> Vec<PriorityRules> {
    let rules = configs.iter();
    rules
        .map(|site| PriorityRules::new(&site.priorities))
        .collect()
}

/// A site whose sessions stick, with what it knew before where nothing has changed.
fn sticky(site: &SiteConfig, before: Option<StickySite>) -> Option<StickySite> {
    let config = site.sticky.as_ref()?;
    let kept = before.filter(|before| before.config() == config);
    Some(kept.unwrap_or_else(|| StickySite::new(config)))
}

/// What second nodes of a site's requests are paid from, by the place of the route.
fn hedges(site: &SiteConfig) -> Vec<HedgeBudget> {
    let most = site
        .routes
        .iter()
        .map(|it| it.hedge.map_or(0.0, |it| it.most));
    most.map(HedgeBudget::new).collect()
}

/// Whether the routes of a site may ask second nodes as those of this one do.
fn has_hedges_of(site: &SiteConfig, other: &SiteConfig) -> bool {
    let of = |site: &SiteConfig| -> Vec<_> { site.routes.iter().map(|it| it.hedge).collect() };
    of(site) == of(other)
}

/// A site's retry budget, of which a worker has its part.
fn budget(site: &SiteConfig, workers: usize, base: &WorkerBase) -> RetryBudget {
    let part = site.retry.share(workers);
    RetryBudget::new(part, base.now())
}
