//! Which throttle a request meets: an immutable list that each worker looks into without a lock.

use std::sync::Arc;

use super::{ClassPattern, Marks, ThrottleId};
use crate::time::Timestamp;

/// One throttle, as requests meet it.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// The throttle.
    pub id: ThrottleId,
    /// Whose requests.
    pub pattern: ClassPattern,
    /// From then on there is no throttle.
    pub until: Option<Timestamp>,
    /// They give way to all others.
    pub lowest_priority: bool,
    /// Marks of their connections.
    pub marks: Marks,
}

/// All throttles, those that say more first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rules {
    rules: Vec<Arc<Rule>>,
}

impl Rules {
    pub(super) fn new(rules: impl Iterator<Item = Rule>) -> Self {
        let mut rules: Vec<_> = rules.map(Arc::new).collect();
        rules.sort_by_key(|rule| std::cmp::Reverse(rule.pattern.weight()));
        Self { rules }
    }

    /// Whether no class is throttled.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The throttle that a request meets.
    pub fn find(
        &self,
        site: &str,
        method: &str,
        target: &str,
        now: Timestamp,
    ) -> Option<&Arc<Rule>> {
        let mut rules = self.rules.iter();
        rules.find(|rule| {
            rule.until.is_none_or(|until| now < until) && rule.pattern.matches(site, method, target)
        })
    }
}
