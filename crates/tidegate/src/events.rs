//! What happened, for operators: the last of what the log says, each with what it concerns.
//!
//! ```text
//! output::event ──> EventLog: the last EVENTS_MAX ──> GET /api/events, the page
//!                                    └─ wakes ──> webhook: POST in batches
//! ```
//!
//! An event is known by its number, which grows by one with each; numbers begin anew with a process. Its level comes
//! from its name alone, as its priority in the journal does.
//!
//! What happens again is one event: the same kind, site and node, the same text (of a node, but for digits), within
//! [`JOINED_WITHIN`] of the last time. The later one takes the place of the earlier, counts it in `times` and keeps the
//! time of the first, so a node that goes in and out has two events however often it does. Orders stay apart. The log on
//! standard error has each time.

use std::collections::{HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tidegate_remote::clock;
use tokio::sync::{Notify, watch};

use crate::journal;
use crate::models::{EventLevel, EventModel, Events};

/// Events that are kept.
pub(crate) const EVENTS_MAX: usize = 1000;
/// What happens again within this time is joined with the last time, seconds.
const JOINED_WITHIN: f64 = 600.0;
/// A node that was ejected so often is unsteady,
const UNSTEADY: u32 = 3;
/// until so long after the last time, seconds.
const UNSTEADY_FOR: f64 = 300.0;
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
    /// What the webhook has taken or has on its way: up to this number.
    taken: u64,
    /// Events that gave way before the webhook took them, since it last did.
    missed: u64,
    /// Whether the webhook takes notes.
    notes_wanted: bool,
}

impl Kept {
    /// The oldest of those that matter least gives way: notes before trouble and its end, and before what operators ordered.
    fn make_room(&mut self) {
        let matters = |it: &EventModel| it.level != EventLevel::Note || it.by.is_some();
        let trifle = self.events.iter().position(|it| !matters(it));
        let gone = self.events.remove(trifle.unwrap_or(0));
        let is_missed = |it: EventModel| {
            it.number > self.taken && (self.notes_wanted || it.level != EventLevel::Note)
        };
        self.missed += u64::from(gone.is_some_and(is_missed));
    }

    /// Counts the last time that the same happened, if that is not long ago, and takes that event away.
    fn join(&mut self, event: &mut EventModel) {
        let is_recent = |it: &EventModel| event.at_seconds - it.at_seconds <= JOINED_WITHIN;
        let recent = self.events.iter().rev().take_while(|it| is_recent(it));
        let ago = recent.enumerate().find(|(_, it)| is_same(it, event));
        let last = ago.map(|(ago, _)| self.events.len() - 1 - ago);
        if let Some(last) = last.and_then(|place| self.events.remove(place)) {
            event.times = last.times.saturating_add(1);
            event.first_at_seconds = last.first_at_seconds;
        }
    }
}

/// What a node does that goes in and out, or whose load comes and goes.
const UNSTEADY_KINDS: [&str; 2] = ["ejected", "load_unknown"];
/// Kinds of events whose texts count what happened to a site.
const SPELLS: [&str; 4] = ["refusals", "refusals_over", "errors", "errors_over"];

/// Whether two events say the same of the same, and no operator wanted either.
fn is_same(one: &EventModel, other: &EventModel) -> bool {
    let differ = one.kind != other.kind || one.site != other.site || one.node != other.node;
    if differ || one.by.is_some() || other.by.is_some() {
        return false;
    }
    // Numbers of others' texts may be a node's name.
    let only_counts = one.node.is_some() || SPELLS.contains(&one.kind.as_str());
    match only_counts {
        true => shape(&one.text).eq(shape(&other.text)),
        false => one.text == other.text,
    }
}

/// A text without its numbers.
fn shape(text: &str) -> impl Iterator<Item = char> {
    let is_number = |it: &char| it.is_ascii_digit() || *it == '.';
    text.chars().filter(move |it| !is_number(it))
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
        let mut event = EventModel {
            number: kept.newest,
            at_seconds,
            times: 1,
            first_at_seconds: at_seconds,
            kind: kind.to_owned(),
            level: level(kind),
            site: owned(about.site),
            node: owned(about.node),
            by: owned(about.by),
            text: text.chars().take(TEXT_MAX).collect(),
        };
        kept.join(&mut event);
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
            since: self.since,
            newest: kept.newest,
            oldest: kept.events.front().map_or(0, |it| it.number),
            events,
        }
    }

    /// The wanted ones among the oldest so many that the webhook has not taken yet, and how many gave way before it could;
    /// nothing if none is wanted. It has taken them from now on.
    pub(crate) fn take(
        &self,
        most: usize,
        is_wanted: impl Fn(&EventModel) -> bool,
    ) -> Option<(Vec<EventModel>, u64)> {
        let mut kept = self.kept();
        let taken = kept.taken;
        let behind = kept.events.iter().filter(|it| it.number > taken);
        let mut events: Vec<_> = behind.take(most).cloned().collect();
        kept.taken = events.last().map_or(kept.newest, |it| it.number);
        events.retain(is_wanted);
        (!events.is_empty()).then(|| (events, std::mem::take(&mut kept.missed)))
    }

    /// Nodes that were ejected several times for the same cause, the last time a moment ago: of each the cause that it was last.
    pub(crate) fn unsteady(&self) -> Vec<EventModel> {
        let now = clock::unix().as_secs_f64();
        let kept = self.kept();
        let is_unsteady = |it: &&EventModel| {
            UNSTEADY_KINDS.contains(&it.kind.as_str())
                && it.times >= UNSTEADY
                && now - it.at_seconds <= UNSTEADY_FOR
        };
        let mut seen = HashSet::new();
        let newest_first = kept.events.iter().rev().filter(is_unsteady);
        let of_nodes = newest_first.filter(|it| seen.insert((&it.kind, &it.site, &it.node)));
        of_nodes.cloned().collect()
    }

    /// Up to which number the webhook has taken them.
    pub(crate) fn taken(&self) -> u64 {
        self.kept().taken
    }

    /// The webhook takes notes, or does not.
    pub(crate) fn want_notes(&self, wanted: bool) {
        self.kept().notes_wanted = wanted;
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
        for number in 0..EVENTS_MAX + 3 {
            log.add("note", About::default(), &format!("x{number}"));
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
        for number in 0..EVENTS_MAX {
            log.add("rung", About::default(), &format!("x{number}"));
        }
        assert_eq!(numbers(&log.after(0, EVENTS_MAX))[..3], [1, 2, 5]);
        for number in 0..EVENTS_MAX {
            log.add("ejected", About::default(), &format!("x{number}"));
        }
        assert_eq!(log.after(0, 1).oldest, 3 + EVENTS_MAX as u64);
    }

    #[test]
    fn a_node_that_goes_in_and_out_has_two_events() {
        let log = EventLog::default();
        for round in 1..=5 {
            let n1 = About::node("n1", "shop");
            log.add("ejected", n1, &format!("n1: {round}.5 requests failed"));
            log.add("returned", n1, "n1 answers");
            log.add(
                "ejected",
                About::node("n2", "shop"),
                "n1: 1 requests failed",
            );
        }
        let all = log.after(0, 9).events;
        let said: Vec<_> = (all.iter())
            .map(|it| (it.number, it.node.as_deref(), &*it.kind, it.times))
            .collect();
        let (n1, n2) = (Some("n1"), Some("n2"));
        let wanted = [
            (13, n1, "ejected", 5),
            (14, n1, "returned", 5),
            (15, n2, "ejected", 5),
        ];
        assert_eq!(said, wanted);
        assert_eq!(all[0].text, "n1: 5.5 requests failed", "the last");
        assert!(all[0].first_at_seconds <= all[0].at_seconds);
    }

    #[test]
    fn a_site_that_fails_again_and_again_has_two_events_whatever_the_counts() {
        let log = EventLog::default();
        let shop = About {
            site: Some("shop"),
            ..About::default()
        };
        for round in [32, 37, 40] {
            let (begun, over) = (
                format!("requests to shop fail, {round} of {round} so far: {round} 5xx"),
                format!(
                    "requests to shop fail no more: it was {round} of {round} in 3 s ({round} 5xx)"
                ),
            );
            log.add("errors", shop, &begun);
            log.add("errors_over", shop, &over);
        }
        let all = log.after(0, 9).events;
        let said: Vec<_> = all.iter().map(|it| (&*it.kind, it.times)).collect();
        assert_eq!(said, [("errors", 3), ("errors_over", 3)]);
    }

    #[test]
    fn notes_that_nothing_waits_for_are_not_missed() {
        for (wanted, missed) in [(false, 0), (true, 3)] {
            let log = EventLog::default();
            log.want_notes(wanted);
            for number in 0..EVENTS_MAX + 3 {
                log.add("note", About::default(), &format!("x{number}"));
            }
            assert_eq!(log.kept().missed, missed);
        }
    }

    #[test]
    fn what_is_not_the_same_or_was_ordered_or_long_ago_stays_apart() {
        let log = EventLog::default();
        let n1 = About::node("n1", "shop");
        let by = About {
            by: Some("anna"),
            ..n1
        };
        for (about, text) in [
            (n1, "requests failed"),
            (n1, "its check fails"),
            (by, "drain"),
            (by, "drain"),
            (About::default(), "source 1 fails"),
            (About::default(), "source 2 fails"),
        ] {
            log.add("x", about, text);
        }
        assert_eq!(numbers(&log.after(0, 9)), [1, 2, 3, 4, 5, 6]);
        log.kept().events[0].at_seconds -= JOINED_WITHIN + 60.0;
        log.add("x", n1, "requests failed");
        assert_eq!(log.after(6, 1).events[0].times, 1);
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
