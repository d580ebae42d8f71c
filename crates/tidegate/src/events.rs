//! What happened, for operators: the last of what the log says, each with what it concerns.
//!
//! ```text
//! output::event ──> EventLog: the last EVENTS_MAX ──> GET /api/events, the page
//!                                    └─ wakes ──> webhook: POST in batches
//! ```
//!
//! An event is known by its number, which grows by one with each; numbers begin anew with a process. Its level comes
//! from its name alone, as its priority in the journal does.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tidegate_remote::clock;
use tokio::sync::{Notify, watch};

use crate::journal;
use crate::models::{EventLevel, EventModel, Events};

/// Events that are kept.
pub(crate) const EVENTS_MAX: usize = 1000;
/// Most characters of a text.
const TEXT_MAX: usize = 500;
/// Names of events by which something is well again.
const GOOD: &[&str] = &[
    "agent_up",
    "answers",
    "check_passed",
    "errors_over",
    "fail_closed",
    "load_known",
    "moves_go_on",
    "refusals_over",
    "returned",
    "services_passed",
    "soft_limit_cleared",
];

/// What an event concerns, as far as that is known.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct About<'a> {
    /// The site.
    pub(crate) site: Option<&'a str>,
    /// The node.
    pub(crate) node: Option<&'a str>,
    /// The operator that wanted it.
    pub(crate) by: Option<&'a str>,
}

impl<'a> About<'a> {
    /// A node of a site.
    pub(crate) fn node(node: &'a str, site: &'a str) -> Self {
        Self {
            site: Some(site),
            node: Some(node),
            by: None,
        }
    }

    /// What is known, by name.
    pub(crate) fn fields(self) -> impl Iterator<Item = (&'static str, &'a str)> {
        let all = [("site", self.site), ("node", self.node), ("by", self.by)];
        all.into_iter()
            .filter_map(|(name, value)| Some((name, value?)))
    }

    /// A site.
    pub(crate) fn site(site: &'a str) -> Self {
        Self {
            site: Some(site),
            ..Self::default()
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct EventLog {
    since: u64,
    kept: Mutex<Kept>,
    more: Notify,
    /// The newest event that the webhook needs no more; none: there is no webhook.
    sent: watch::Sender<Option<u64>>,
    /// Why the webhook takes none now.
    trouble: Mutex<Option<String>>,
}

#[derive(Debug, Default)]
struct Kept {
    events: VecDeque<EventModel>,
    newest: u64,
}

impl Kept {
    /// The oldest of those that matter least gives way: notes before trouble and its end, and before what operators ordered.
    fn make_room(&mut self) {
        let matters = |it: &EventModel| it.level != EventLevel::Note || it.by.is_some();
        let trifle = self.events.iter().position(|it| !matters(it));
        self.events.remove(trifle.unwrap_or(0));
    }
}

impl EventLog {
    /// One that lasts as long as the process.
    pub(crate) fn of_process() -> &'static Self {
        Box::leak(Box::new(Self {
            since: clock::unix().as_secs(),
            ..Self::default()
        }))
    }

    /// Takes what happened now.
    pub(crate) fn add(&self, kind: &str, about: About<'_>, text: &str) {
        let at_seconds = (clock::unix().as_secs_f64() * 1e3).round() / 1e3;
        let mut kept = self.kept();
        kept.newest += 1;
        let owned = |part: Option<&str>| part.map(str::to_owned);
        let event = EventModel {
            number: kept.newest,
            at_seconds,
            kind: kind.to_owned(),
            level: level(kind),
            site: owned(about.site),
            node: owned(about.node),
            by: owned(about.by),
            text: text.chars().take(TEXT_MAX).collect(),
        };
        if kept.events.len() == EVENTS_MAX {
            kept.make_room();
        }
        kept.events.push_back(event);
        drop(kept);
        self.more.notify_waiters();
    }

    /// When it began, seconds since 1970.
    pub(crate) fn since(&self) -> u64 {
        self.since
    }

    /// The number of the newest event; 0 before the first.
    pub(crate) fn newest(&self) -> u64 {
        self.kept().newest
    }

    /// The newest so many of those behind this number, oldest first.
    pub(crate) fn after(&self, number: u64, most: usize) -> Events {
        let kept = self.kept();
        let behind = kept.events.iter().filter(|it| it.number > number);
        let mut events: Vec<_> = behind.rev().take(most).cloned().collect();
        events.reverse();
        Events {
            newest: kept.newest,
            oldest: kept.events.front().map_or(0, |it| it.number),
            events,
        }
    }

    /// The webhook needs none up to this one any more.
    pub(crate) fn set_sent(&self, number: u64) {
        self.sent.send_replace(Some(number));
    }

    /// Waits until the webhook, if there is one, has had all that there are now.
    pub(crate) async fn wait_sent(&self) {
        let newest = self.newest();
        let mut sent = self.sent.subscribe();
        let has_all = |sent: &Option<u64>| sent.is_none_or(|it| it >= newest);
        // The sender is this very log.
        sent.wait_for(has_all).await.map(drop).unwrap_or_default();
    }

    /// Why the webhook takes no events now; none: it does, or there is none.
    pub(crate) fn set_trouble(&self, why: Option<String>) {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = why;
    }

    /// The same, as it was said last.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.trouble
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Waits until there is an event behind this number.
    pub(crate) async fn wait_behind(&self, number: u64) {
        loop {
            let more = self.more.notified();
            if self.newest() > number {
                return;
            }
            more.await;
        }
    }

    /// What a thread that panicked left behind is still a list.
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How bad an event of this name is.
fn level(kind: &str) -> EventLevel {
    match journal::priority(kind) {
        tidegate_proxy::Priority::Error => EventLevel::Bad,
        tidegate_proxy::Priority::Warning => EventLevel::Warn,
        _ if GOOD.contains(&kind) => EventLevel::Good,
        _ => EventLevel::Note,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(events: &Events) -> Vec<u64> {
        events.events.iter().map(|it| it.number).collect()
    }

    #[test]
    fn the_last_events_are_kept_in_order_by_their_numbers() {
        let log = EventLog::default();
        assert_eq!((log.newest(), log.after(0, 9).events.len()), (0, 0));
        for _ in 0..EVENTS_MAX + 3 {
            log.add("note", About::default(), "x");
        }
        let all = log.after(0, usize::MAX);
        assert_eq!(all.events.len(), EVENTS_MAX);
        let most = EVENTS_MAX as u64;
        assert_eq!((all.oldest, all.newest), (4, most + 3));
        assert_eq!(numbers(&log.after(0, 2)), [most + 2, most + 3]);
        assert_eq!(numbers(&log.after(most + 2, 9)), [most + 3]);
        assert!(log.after(u64::MAX, 9).events.is_empty());
    }

    #[test]
    fn an_event_says_what_it_concerns_and_how_bad_it_is() {
        let log = EventLog::default();
        let about = About {
            by: Some("anna"),
            ..About::node("n1", "shop")
        };
        log.add("ejected", about, &"long ".repeat(1000));
        let event = &log.after(0, 1).events[0];
        assert_eq!(event.node.as_deref(), Some("n1"));
        assert_eq!(event.site.as_deref(), Some("shop"));
        assert_eq!(event.by.as_deref(), Some("anna"));
        assert_eq!(event.text.len(), TEXT_MAX);
        for (kind, wanted) in [
            ("ejected", EventLevel::Warn),
            ("worker_failed", EventLevel::Bad),
            ("refusals", EventLevel::Bad),
            ("returned", EventLevel::Good),
            ("rung", EventLevel::Note),
        ] {
            assert_eq!(level(kind), wanted, "{kind}");
        }
    }

    #[test]
    fn an_end_waits_for_a_webhook_alone() {
        let log = std::sync::Arc::new(EventLog::default());
        let runtime = crate::testing::runtime();
        runtime.block_on(async {
            log.add("note", About::default(), "x");
            log.wait_sent().await;
            log.set_sent(0);
            let waiting = {
                let log = std::sync::Arc::clone(&log);
                tokio::spawn(async move { log.wait_sent().await })
            };
            tokio::task::yield_now().await;
            assert!(!waiting.is_finished());
            log.set_sent(1);
            assert!(waiting.await.is_ok());
        });
    }

    #[test]
    fn notes_give_way_before_trouble_and_orders() {
        let log = EventLog::default();
        log.add("ejected", About::default(), "x");
        let ordered = About {
            by: Some("anna"),
            ..About::default()
        };
        log.add("ordered", ordered, "x");
        for _ in 0..EVENTS_MAX {
            log.add("rung", About::default(), "x");
        }
        assert_eq!(numbers(&log.after(0, EVENTS_MAX))[..3], [1, 2, 5]);
        for _ in 0..EVENTS_MAX {
            log.add("ejected", About::default(), "x");
        }
        assert_eq!(log.after(0, 1).oldest, 3 + EVENTS_MAX as u64);
    }

    #[test]
    fn those_that_wait_are_woken_by_the_next_event() {
        let log = std::sync::Arc::new(EventLog::default());
        let runtime = crate::testing::runtime();
        runtime.block_on(async {
            let waiting = {
                let log = std::sync::Arc::clone(&log);
                tokio::spawn(async move { log.wait_behind(1).await })
            };
            tokio::task::yield_now().await;
            log.add("note", About::default(), "x");
            tokio::task::yield_now().await;
            assert!(!waiting.is_finished());
            log.add("note", About::default(), "y");
            assert!(waiting.await.is_ok());
        });
    }
}
