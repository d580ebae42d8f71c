//! Which requests of a class are held: first come, first served, and for how long at most.
//!
//! ```text
//! next       the one that came first, of all workers
//! deadline   its arrival + `queue`; then it is answered 429; without `queue` none
//! ```
//!
//! In order, not newest first as in the queue for room: those are refused in the end, and these are
//! to complete. A deadline is for a class whose clients would rather be refused.
//!
//! Inputs: arrivals, a clock. Failure case: more come than the throttle lets through for good; then
//! clients leave, the deadline strikes, or the table's bound on all that are held.
//!
//! Source: Elephants-2005 wants heavy requests to take longer, not to be refused.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::time::Timestamp;

/// The place of a request that is held; a later one is greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HeldId(pub(super) u64);

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Held {
    since: BTreeMap<HeldId, Timestamp>,
}

impl Held {
    pub(super) fn len(&self) -> usize {
        self.since.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.since.is_empty()
    }

    pub(super) fn push(&mut self, id: HeldId, now: Timestamp) {
        self.since.insert(id, now);
    }

    /// Takes out the first that came, and since when it waits.
    pub(super) fn pop(&mut self) -> Option<(HeldId, Timestamp)> {
        self.since.pop_first()
    }

    /// Takes out the first that came if it has waited for so long.
    pub(super) fn expire(
        &mut self,
        queue: Option<Duration>,
        now: Timestamp,
    ) -> Option<(HeldId, Timestamp)> {
        match self.due(queue)? <= now {
            true => self.pop(),
            false => None,
        }
    }

    /// When the first that came has waited for so long.
    pub(super) fn due(&self, queue: Option<Duration>) -> Option<Timestamp> {
        let (_, since) = self.since.first_key_value()?;
        Some(*since + queue?)
    }

    /// Takes out one that has left; since when it waited.
    pub(super) fn remove(&mut self, id: HeldId) -> Option<Timestamp> {
        self.since.remove(&id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_came_first_goes_first_and_is_late_first() {
        let mut held = Held::default();
        let queue = Some(Duration::from_millis(10));
        for place in [1, 2, 3] {
            held.push(HeldId(place), Timestamp::from_millis(place));
        }
        assert_eq!(held.remove(HeldId(1)), Some(Timestamp::from_millis(1)));
        assert_eq!(held.remove(HeldId(1)), None);
        assert_eq!(held.due(None), None);
        assert_eq!(held.due(queue), Some(Timestamp::from_millis(12)));
        assert_eq!(held.expire(queue, Timestamp::from_millis(11)), None);
        let late = held.expire(queue, Timestamp::from_millis(12));
        assert_eq!(late, Some((HeldId(2), Timestamp::from_millis(2))));
        assert_eq!(held.expire(None, Timestamp::from_millis(1000)), None);
        assert_eq!(held.pop(), Some((HeldId(3), Timestamp::from_millis(3))));
        assert!(held.is_empty());
    }
}
