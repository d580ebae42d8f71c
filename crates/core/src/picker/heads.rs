//! The heads of the queues of all pickers of a front-end: room goes to the request that has waited longest in any of them.
//!
//! ```text
//! head(p, site)   (rank, arrival) of the request whose turn is next in picker p; none while its queue is empty, or
//!                 stands and serves the newest first
//! first(site)     the least of (rank, arrival, p) over all pickers
//! room            p takes it for a site where first(site) is p's own; else it leaves the room to the first's picker,
//!                 which is woken
//! newcomers       one of rank r waits, whatever room there is, while another picker has a head of rank <= r
//! passed over     for 100 ms, a head that was left room for 20 ms, at looks not farther apart than 10 ms, and has not
//!                 moved
//! ```
//!
//! So within a rank no request that began to wait later is served earlier, but for those that begin to wait while
//! another picker is about to publish its own, and for heads that are passed over. Whenever a head moves on or leaves,
//! its picker looks whether there is room for the first of the others, and that one's picker is woken: it may have left
//! room to the head that is gone.
//!
//! Inputs: what each picker publishes, a word per site; a clock. While nothing waits anywhere a request costs one
//! relaxed load.
//!
//! Failure case: a request that ends in one thread and one that begins to wait in another may miss each other where an
//! atomic addition is no full fence (it is one on x86); then the director's tick finds the room. A picker that stands
//! still keeps its head, and others leave room to it for 20 of 120 ms. Across sites that share a group each picker is fair by
//! itself alone.
//!
//! Source: the order of time stamps, and of processes where these are equal: Lamport-1978.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crate::admission::{Priority, Rank};
use crate::places::Places;
use crate::time::Timestamp;
use crate::topology::SiteId;

/// A head that does not move is left room for so long.
pub(super) const PATIENCE: Duration = Duration::from_millis(20);
/// Looks that find room for it meanwhile are no farther apart.
const LOOKS: Duration = Duration::from_millis(10);
/// One that is passed over is left no room for so long.
const PASSED_OVER: Duration = Duration::from_millis(100);
/// When one is to look again that has left room to another.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// No head.
const NONE: u64 = u64::MAX;
/// Bits of the arrival in a word; above are those of the rank. In nanoseconds: 73 years.
const ARRIVAL_BITS: u32 = u64::BITS - Rank::COUNT.ilog2();
const ARRIVAL_MAX: u64 = (1 << ARRIVAL_BITS) - 2;

/// The next one of a queue. In order, the least goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct QueueHead {
    pub(crate) rank: Rank,
    pub(crate) arrived: Timestamp,
}

impl QueueHead {
    fn word(self) -> u64 {
        let arrived = self.arrived.nanos().min(ARRIVAL_MAX);
        (self.rank.index() as u64) << ARRIVAL_BITS | arrived
    }

    fn of_word(word: u64) -> Option<Self> {
        let rank = Rank::ALL.get((word >> ARRIVAL_BITS) as usize)?;
        (word != NONE).then(|| Self {
            rank: *rank,
            arrived: Timestamp::from_nanos(word & ((1 << ARRIVAL_BITS) - 1)),
        })
    }
}

/// Whose turn it is among these heads, each with its picker's number.
fn first(heads: impl IntoIterator<Item = (usize, QueueHead)>) -> Option<(usize, QueueHead)> {
    heads
        .into_iter()
        .min_by_key(|(picker, head)| (*head, *picker))
}

/// See the module.
#[derive(Debug)]
pub struct Heads {
    /// How many there are.
    count: AtomicUsize,
    /// By picker and site.
    pickers: Box<[Places<AtomicU64>]>,
}

impl Heads {
    /// For so many pickers; none waits yet.
    pub fn new(pickers: usize) -> Self {
        let none = || Places::new(0, || AtomicU64::new(NONE));
        Self {
            count: AtomicUsize::new(0),
            pickers: (0..pickers).map(|_| none()).collect(),
        }
    }

    /// Whether a request waits in any of the pickers for its turn in order.
    #[inline]
    pub fn any(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// The picker of this number has this head at the site, if any. Counted before it can be seen, and until it
    /// cannot.
    fn publish(&self, picker: usize, site: SiteId, word: u64) {
        let Some(place) = self.pickers[picker].get(site.index()) else {
            return;
        };
        if word != NONE {
            self.count.fetch_add(1, Ordering::SeqCst);
        }
        if place.swap(word, Ordering::SeqCst) != NONE {
            self.count.fetch_sub(1, Ordering::SeqCst);
        }
    }

    fn heads(&self, site: SiteId) -> impl Iterator<Item = (usize, QueueHead)> {
        let pickers = self.pickers.iter().enumerate();
        pickers.filter_map(move |(picker, sites)| {
            let word = sites.get(site.index())?.load(Ordering::SeqCst);
            Some((picker, QueueHead::of_word(word)?))
        })
    }
}

/// One picker among those that share their heads.
#[derive(Debug)]
pub(super) struct Member {
    heads: Arc<Heads>,
    picker: usize,
    /// Its own words as they are published, by site.
    published: Vec<u64>,
}

impl Member {
    /// What a picker of this number before it has left is gone.
    pub(super) fn new(heads: Arc<Heads>, picker: usize) -> Self {
        let member = Self {
            heads,
            picker,
            published: Vec::new(),
        };
        member.clear();
        member
    }

    fn clear(&self) {
        for site in 0..self.heads.pickers[self.picker].count() as u32 {
            self.heads.publish(self.picker, SiteId(site), NONE);
        }
    }

    /// There are so many sites.
    pub(super) fn on_sites(&mut self, sites: usize) {
        for gone in sites..self.published.len() {
            self.publish(SiteId(gone as u32), None);
        }
        self.heads.pickers[self.picker].reserve(sites);
        self.published.resize(sites, NONE);
    }

    /// This is its head at the site from now on. Whether another one may have its turn for that: its own has moved
    /// on, or left.
    pub(super) fn publish(&mut self, site: SiteId, head: Option<QueueHead>) -> bool {
        let word = head.map_or(NONE, QueueHead::word);
        let Some(published) = self.published.get_mut(site.index()) else {
            return false;
        };
        let before = std::mem::replace(published, word);
        if before != word {
            self.heads.publish(self.picker, site, word);
        }
        before < word
    }

    /// Whether a request waits in another picker that a newcomer of this priority may not overtake.
    #[inline]
    pub(super) fn is_ahead_of(&self, site: SiteId, priority: Priority) -> bool {
        self.heads.any() && self.waits_before(site, Rank::of(priority))
    }

    #[cold]
    fn waits_before(&self, site: SiteId, rank: Rank) -> bool {
        let mut others = self.heads.heads(site).filter(|it| it.0 != self.picker);
        others.any(|(_, head)| head.rank <= rank)
    }

    /// The other picker whose turn it is at the site, and its head; none where it is this one's, or nothing waits.
    #[inline]
    pub(super) fn elder(&self, site: SiteId) -> Option<(usize, QueueHead)> {
        if !self.heads.any() {
            return None;
        }
        first(self.heads.heads(site)).filter(|it| it.0 != self.picker)
    }

    /// Whether anything waits anywhere.
    #[inline]
    pub(super) fn any(&self) -> bool {
        self.heads.any()
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.clear();
    }
}

/// To which head a picker has left room at a site.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Deference {
    left_to: Option<LeftTo>,
    /// One that has not taken it, and until when it is passed over.
    passed_over: Option<(QueueHead, Timestamp)>,
}

#[derive(Clone, Copy, Debug)]
struct LeftTo {
    head: QueueHead,
    since: Timestamp,
    looked_at: Timestamp,
}

impl Deference {
    /// There is room, and this head goes first. Whether the room is left to it.
    pub(super) fn leaves_to(&mut self, head: QueueHead, now: Timestamp) -> bool {
        if (self.passed_over).is_some_and(|(passed, until)| passed == head && now < until) {
            return false;
        }
        let is_same = |it: &LeftTo| it.head == head && now.since(it.looked_at) <= LOOKS;
        let since = self.left_to.filter(is_same).map_or(now, |it| it.since);
        let leaves = now.since(since) < PATIENCE;
        self.left_to = leaves.then_some(LeftTo {
            head,
            since,
            looked_at: now,
        });
        if !leaves {
            self.passed_over = Some((head, now + PASSED_OVER));
        }
        leaves
    }

    /// There is no room to be left, or no other that goes first.
    pub(super) fn end(&mut self) {
        self.left_to = None;
    }

    /// When to look again whether the room was taken.
    pub(super) fn due(&self) -> Option<Timestamp> {
        self.left_to.map(|it| it.looked_at + LOOK_AGAIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(rank: usize, ms: u64) -> QueueHead {
        QueueHead {
            rank: Rank::ALL[rank],
            arrived: Timestamp::from_millis(ms),
        }
    }

    #[test]
    fn the_highest_rank_goes_first_then_the_oldest_then_the_first_picker() {
        for (heads, expected) in [
            (vec![], None),
            (vec![(0, head(1, 5))], Some(0)),
            (vec![(0, head(1, 5)), (1, head(1, 4))], Some(1)),
            (vec![(0, head(1, 5)), (1, head(0, 9))], Some(1)),
            (vec![(1, head(1, 5)), (0, head(1, 5))], Some(0)),
            (
                vec![(0, head(7, 0)), (1, head(3, 8)), (2, head(3, 7))],
                Some(2),
            ),
        ] {
            let found = first(heads.clone()).map(|it| it.0);
            assert_eq!(found, expected, "{heads:?}");
        }
    }

    #[test]
    fn words_are_in_the_order_of_their_heads_and_come_back_whole() {
        let latest = QueueHead {
            rank: Rank::LOWEST,
            arrived: Timestamp::from_nanos(u64::MAX),
        };
        let all = [head(0, 0), head(0, 1), head(1, 0), head(7, 9), latest];
        assert!(all.is_sorted_by_key(|it| it.word()));
        for head in &all[..4] {
            assert_eq!(QueueHead::of_word(head.word()), Some(*head));
        }
        assert!(latest.word() < NONE && QueueHead::of_word(NONE).is_none());
    }

    #[test]
    fn heads_are_counted_while_they_are_there() {
        let heads = Arc::new(Heads::new(2));
        let mut members = [0, 1].map(|picker| Member::new(Arc::clone(&heads), picker));
        let (one, two) = (SiteId(0), SiteId(1));
        members.iter_mut().for_each(|it| it.on_sites(2));
        assert!(!heads.any());
        assert!(!members[0].publish(one, Some(head(1, 5))));
        assert!(!members[1].publish(one, Some(head(1, 7))));
        assert_eq!(members[1].elder(one), Some((0, head(1, 5))));
        assert_eq!((members[0].elder(one), members[1].elder(two)), (None, None));
        let [high, low] = [Priority::ALL[0], Priority::ALL[1]];
        assert!(members[1].is_ahead_of(one, low) && members[0].is_ahead_of(one, high));
        assert!(!members[1].is_ahead_of(one, high.with_established(true)));
        assert!(!members[1].is_ahead_of(two, low));
        assert!(members[0].publish(one, Some(head(1, 8))), "it has moved on");
        assert_eq!(members[0].elder(one), Some((1, head(1, 7))));
        assert!(members[1].publish(one, None), "it has left");
        assert_eq!(members[0].elder(one), None);
        assert!(heads.any());
        members[0].on_sites(0);
        assert!(!heads.any(), "its site is gone");
    }

    #[test]
    fn a_picker_that_is_gone_leaves_no_head() {
        let heads = Arc::new(Heads::new(1));
        let mut member = Member::new(Arc::clone(&heads), 0);
        member.on_sites(1);
        member.publish(SiteId(0), Some(head(1, 5)));
        // As a worker that fails, whose memory is never given back.
        std::mem::forget(member);
        assert!(heads.any());
        let mut next = Member::new(Arc::clone(&heads), 0);
        assert!(!heads.any());
        next.on_sites(1);
        next.publish(SiteId(0), Some(head(1, 6)));
        drop(next);
        assert!(!heads.any());
    }

    #[test]
    fn a_head_that_never_takes_its_room_is_passed_over() {
        let at = Timestamp::from_millis;
        let (elder, other) = (head(1, 1), head(1, 2));
        let mut deference = Deference::default();
        assert_eq!(deference.due(), None);
        for ms in [100, 105, 110, 119] {
            assert!(deference.leaves_to(elder, at(ms)), "{ms}");
            assert_eq!(deference.due(), Some(at(ms + 5)));
        }
        assert!(!deference.leaves_to(elder, at(120)), "for 20 ms");
        assert_eq!(deference.due(), None);
        assert!(!deference.leaves_to(elder, at(125)), "and from then on");
        assert!(deference.leaves_to(other, at(125)), "the next one moves");
        assert!(!deference.leaves_to(elder, at(219)));
        for ms in [220, 235, 236, 245, 254] {
            assert!(deference.leaves_to(elder, at(ms)), "{ms}: looks were apart");
        }
        deference.end();
        assert!(
            deference.leaves_to(elder, at(256)),
            "there was no room between"
        );
    }
}
