//! The retry budgets of all sites, as one worker has them.

use std::cell::RefCell;
use std::rc::Rc;

use tidegate_core::retry_budget::RetryBudget;
use tidegate_core::topology::SiteId;

use crate::base::WorkerBase;
use crate::config::site::SiteConfig;

/// Of each site: how many of its requests may be tried again here.
pub(crate) struct Budgets {
    base: Rc<WorkerBase>,
    sites: RefCell<Box<[RetryBudget]>>,
}

impl Budgets {
    /// Each site's budget, of which a worker has its part.
    pub(crate) fn new(base: Rc<WorkerBase>) -> Self {
        let (config, now) = (&base.config, base.now());
        let budget = |site: &SiteConfig| {
            let part = site.retry.share(config.workers);
            RetryBudget::new(part, now)
        };
        let sites = config.sites.iter().map(budget).collect();
        Self {
            sites: RefCell::new(sites),
            base,
        }
    }

    /// A request of the site has come: it pays for retries.
    pub(crate) fn on_request(&self, site: SiteId) {
        if let Some(budget) = self.sites.borrow_mut().get_mut(site.index()) {
            budget.on_request();
        }
    }

    /// Whether a request of the site may be tried again; if so, it is paid for. A request that `was_denied`
    /// one before is not counted again.
    pub(crate) fn may_retry(&self, site: SiteId, was_denied: bool) -> bool {
        let mut budgets = self.sites.borrow_mut();
        let budget = budgets.get_mut(site.index());
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

    /// A request of the site is tried again.
    pub(crate) fn on_retry(&self, site: SiteId) {
        let stats = self.base.stats();
        stats.retries.add(1);
        if let Some(site) = stats.site(site) {
            site.retries.add(1);
        }
    }
}
