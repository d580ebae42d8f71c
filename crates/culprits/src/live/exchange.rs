//! What front-ends tell each other of requests, so that each sees all of a class.
//!
//! ```text
//! GET /api/culprits/requests?after=N ──> Shipment: what ended since, what is in progress, as ages
//! ```
//!
//! Each of them asks all others twice a second and looks at the union by itself, so none leads and none is
//! missed for longer than it is silent. Times go as ages, so clocks need not agree; the way there and back
//! is halved. Nothing is kept for others until one asks.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use indexmap::IndexSet;
use serde::{Deserialize, Serialize};
use tidegate_core::classes::{ClassId, Words};
use tidegate_core::time::Timestamp;

/// Time between two questions.
pub const EVERY: Duration = Duration::from_millis(500);
/// Ended requests that are kept for others, and that go at a time.
pub(super) const KEPT_MAX: usize = 32_768;
/// For so long after a question requests are kept for the next.
const ASKED_LASTS: Duration = Duration::from_secs(10);
/// A peer that was silent for longer has nothing in progress.
pub(super) const SILENT: Duration = Duration::from_secs(3);
/// How far behind the union is known: two questions and their ways.
pub(super) const BEHIND: Duration = Duration::from_secs(1);

/// A request: which words, which site, and how long ago it was sent and had ended, in microseconds.
type Gone = (u32, u32, u64, u64);

/// `GET /api/culprits/requests`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Shipment {
    /// What to ask for next.
    pub next: u64,
    /// Requests that are not in any shipment: there were too many.
    pub lost: u64,
    /// Names of sites.
    pub sites: Vec<String>,
    /// Method and target of requests.
    pub words: Vec<(String, String)>,
    /// Requests that have ended: words, site, microseconds since they were sent and since they ended.
    pub ended: Vec<Gone>,
    /// Those in progress: words, site, microseconds since they were sent.
    pub unfinished: Vec<(u32, u32, u64)>,
}

/// A request that has ended, as it is kept.
#[derive(Clone, Copy, Debug)]
struct EndedRequest {
    words: Words,
    site: u32,
    sent: Timestamp,
    ended: Timestamp,
}

/// What is kept for others.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    kept: VecDeque<EndedRequest>,
    /// The number of the first.
    first: u64,
    asked: Option<Timestamp>,
}

impl Outbox {
    /// A request has ended.
    pub(super) fn add(&mut self, words: Words, site: u32, sent: Timestamp, ended: Timestamp) {
        let wanted = |asked: Timestamp| ended.since(asked) < ASKED_LASTS;
        if !self.asked.is_some_and(wanted) {
            self.first += self.kept.len() as u64;
            self.kept.clear();
            return;
        }
        if self.kept.len() >= KEPT_MAX {
            self.kept.pop_front();
            self.first += 1;
        }
        self.kept.push_back(EndedRequest {
            words,
            site,
            sent,
            ended,
        });
    }

    /// What has ended since `after`, with what is in progress.
    pub(super) fn ship(
        &mut self,
        after: u64,
        sites: Vec<String>,
        unfinished: impl Iterator<Item = (Words, u32, Timestamp)>,
        now: Timestamp,
    ) -> Shipment {
        let known = self.asked.replace(now).is_some();
        // A number from another life of this process tells nothing.
        let end = self.first + self.kept.len() as u64;
        let from = if after > end { end } else { after };
        let skipped = self.first.saturating_sub(from);
        let skip = from.saturating_sub(self.first) as usize;
        let mut all: IndexSet<(String, String)> = IndexSet::new();
        let mut number = |words: &Words| {
            let (place, _) =
                all.insert_full((words.method().to_owned(), words.target().to_owned()));
            place as u32
        };
        let ago = |at: Timestamp| now.since(at).as_micros() as u64;
        let ended = self.kept.iter().skip(skip);
        let ended = ended
            .map(|it| (number(&it.words), it.site, ago(it.sent), ago(it.ended)))
            .collect();
        let unfinished = unfinished
            .map(|(words, site, sent)| (number(&words), site, ago(sent)))
            .collect();
        Shipment {
            next: end,
            lost: if known && after > 0 { skipped } else { 0 },
            sites,
            words: all.into_iter().collect(),
            ended,
            unfinished,
        }
    }
}

/// One of the others, as it was heard of last.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) address: SocketAddr,
    /// When it last said something.
    pub(super) heard: Option<Timestamp>,
    /// Why it did not tell anything since.
    pub(super) trouble: Option<String>,
    /// Class and begin of its requests in progress.
    pub(super) unfinished: Vec<(ClassId, Timestamp)>,
}

impl Peer {
    pub(super) fn new(address: SocketAddr) -> Self {
        Self {
            address,
            heard: None,
            trouble: None,
            unfinished: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::testing::at;

    /// As many as may be kept are shipped; of one more the oldest is lost, and that is said.
    #[test]
    fn so_many_are_kept_for_others_and_no_more() {
        let mut outbox = Outbox::default();
        let shipped = |outbox: &mut Outbox, after, now| {
            outbox.ship(after, Vec::new(), std::iter::empty(), now)
        };
        let words = Words::of("GET", "/a");
        outbox.add(words, 0, at(0), at(0));
        assert_eq!(
            shipped(&mut outbox, 0, at(1)).ended.len(),
            0,
            "nothing was asked for"
        );
        for _ in 0..KEPT_MAX {
            outbox.add(words, 0, at(1), at(2));
        }
        let all = shipped(&mut outbox, 0, at(3));
        assert_eq!((all.ended.len(), all.lost), (KEPT_MAX, 0));
        outbox.add(words, 0, at(3), at(4));
        outbox.add(words, 0, at(3), at(4));
        let most = shipped(&mut outbox, 1, at(5));
        assert_eq!((most.ended.len(), most.lost), (KEPT_MAX, 1));
        assert_eq!(most.next, all.next + 2);
        // Nothing is kept for those that have not asked for long.
        let late = at(5) + ASKED_LASTS;
        outbox.add(words, 0, late, late);
        assert_eq!(outbox.kept.len(), 0);
        let last = at(5) + ASKED_LASTS - Duration::from_nanos(1);
        outbox.add(words, 0, last, last);
        assert_eq!(outbox.kept.len(), 1);
    }
}
