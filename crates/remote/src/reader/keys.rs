//! Which key the next read of a node is made with. Pure.
//!
//! While keys change a node has several, the newest first. It is asked with the newest until
//! [`OTHERS_AFTER`] reads in a row gave nothing; then the others take turns with it. The key that it answers
//! to is kept, and each [`RENEW`]th read tries a newer one instead. **Older ones are never asked with
//! again**: a key that was replaced because it leaked does not come back.
//!
//! A node that is silent for long may have another node's key. So half of the few reads that it still gets
//! are made with the keys of the others, in turn. An answer to these says whose key it has, and nothing else
//! of it is believed.
//!
//! A read whose key the node need not know says so ([`TRIAL`](crate::udp::wire::TRIAL)): its agent
//! takes it for no wrong key.

use super::FAULTS_MAX;

/// Reads in a row without a record after which other keys are tried.
const OTHERS_AFTER: u32 = 8;
/// A newer key is tried once in so many reads.
const RENEW: u32 = 256;

/// What a read is made for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Purpose {
    /// To learn the load.
    #[default]
    Load,
    /// The same, with a key that the node may not know yet: no answer is no fault.
    Renewal,
    /// To learn whose key the node has.
    Whose,
}

/// The keys of one node, by their indices among the reader's.
#[derive(Debug)]
pub(super) struct KeyChoice {
    /// The newest first.
    own: Vec<usize>,
    /// The one that the node answers to, as far as known.
    current: usize,
    /// None behind this one is asked with any more.
    oldest: usize,
    turn: u32,
}

impl KeyChoice {
    /// Of a node with these keys.
    pub(super) fn new(own: Vec<usize>) -> Self {
        Self {
            oldest: own.len().saturating_sub(1),
            own,
            current: 0,
            turn: 0,
        }
    }

    /// Whether a key is one of the node's, be it asked with or not.
    pub(super) fn names(&self, key: usize) -> bool {
        self.own.contains(&key)
    }

    /// Whether another node has the same keys, as nodes of one agent have.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.own == other.own
    }

    /// The key to use where only one that the node knows makes sense.
    pub(super) fn current(&self) -> Option<usize> {
        self.own.get(self.current).copied()
    }

    /// The index of that key among the node's.
    pub(super) fn index(&self) -> usize {
        self.current
    }

    /// Whether the node is asked with this key.
    pub(super) fn has(&self, key: usize) -> bool {
        self.own.iter().take(self.oldest + 1).any(|own| *own == key)
    }

    /// The key of the next read and what it is for, after so many faults in a row, if the reader has so
    /// many keys in all.
    pub(super) fn next(&mut self, faults: u32, all: usize) -> Option<(usize, Purpose)> {
        self.turn = self.turn.wrapping_add(1);
        let turn = self.turn as usize;
        if faults >= FAULTS_MAX && turn.is_multiple_of(2) {
            let other = turn / 2 % all.max(1);
            if other < all && !self.has(other) {
                return Some((other, Purpose::Whose));
            }
        }
        if faults >= OTHERS_AFTER {
            // Turns by twos: each second one may be for others' keys.
            let key = self.own.get(turn / 2 % (self.oldest + 1));
            return key.map(|key| (*key, Purpose::Load));
        }
        if self.current > 0 && self.turn.is_multiple_of(RENEW) {
            let newer = self.own.get(turn / RENEW as usize % self.current);
            return newer.map(|key| (*key, Purpose::Renewal));
        }
        self.current().map(|key| (key, Purpose::Load))
    }

    /// Whether a read only tries whether the node has this key: another node's, a newer one, or one of several
    /// that it has not answered to yet. With the oldest that it may have, it is asked in earnest.
    pub(super) fn is_trial(&self, key: usize, purpose: Purpose) -> bool {
        let oldest = self.own.get(self.oldest);
        match purpose {
            Purpose::Load => oldest.is_some_and(|oldest| *oldest != key),
            Purpose::Renewal | Purpose::Whose => true,
        }
    }

    /// The node has answered to this key, one of its own.
    pub(super) fn answered(&mut self, key: usize) {
        let index = self.own.iter().position(|own| *own == key);
        // Answers that were overtaken change nothing.
        if let Some(index) = index.filter(|index| *index <= self.oldest) {
            self.current = index;
            self.oldest = index;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keys of the next reads.
    fn next(choice: &mut KeyChoice, reads: usize, faults: u32) -> Vec<(usize, Purpose)> {
        (0..reads)
            .map(|_| choice.next(faults, 6).unwrap())
            .collect()
    }

    #[test]
    fn the_newest_key_is_asked_with_until_nothing_comes_of_it() {
        let mut choice = KeyChoice::new(vec![3, 1]);
        let reads = next(&mut choice, 1000, OTHERS_AFTER - 1);
        assert!(reads.iter().all(|read| *read == (3, Purpose::Load)));
        let reads = next(&mut choice, 100, OTHERS_AFTER);
        for key in [3, 1] {
            assert_eq!(
                reads
                    .iter()
                    .filter(|read| **read == (key, Purpose::Load))
                    .count(),
                50
            );
        }
    }

    #[test]
    fn an_older_key_serves_until_the_node_answers_to_a_newer_one() {
        let mut choice = KeyChoice::new(vec![3, 1, 4]);
        choice.answered(4);
        assert_eq!(choice.current(), Some(4));
        let reads = next(&mut choice, 4 * RENEW as usize, 0);
        let tried = |key| {
            reads
                .iter()
                .filter(|read| **read == (key, Purpose::Renewal))
                .count()
        };
        assert_eq!((tried(3), tried(1)), (2, 2));
        assert_eq!(
            reads.iter().filter(|read| read.0 == 4).count(),
            reads.len() - 4
        );
        choice.answered(3);
        // An answer to an earlier read comes late; and then the node falls silent.
        choice.answered(4);
        let reads = next(&mut choice, 100, OTHERS_AFTER);
        assert!(
            reads.iter().all(|read| *read == (3, Purpose::Load)),
            "{reads:?}"
        );
        assert!(choice.has(3) && !choice.has(1) && !choice.has(4));
    }

    #[test]
    fn a_node_that_is_silent_for_long_is_asked_with_the_others_keys() {
        let mut choice = KeyChoice::new(vec![3, 1]);
        let reads = next(&mut choice, 2 * 6 * 2, FAULTS_MAX);
        for key in [0, 2, 4, 5] {
            let asked = reads
                .iter()
                .filter(|read| **read == (key, Purpose::Whose))
                .count();
            assert_eq!(asked, 2, "{key}");
        }
        for key in [3, 1] {
            let asked = reads
                .iter()
                .filter(|read| **read == (key, Purpose::Load))
                .count();
            assert!(asked >= 6, "{key}: {reads:?}");
        }
    }

    #[test]
    fn only_the_oldest_key_that_a_node_may_have_is_asked_with_in_earnest() {
        let mut choice = KeyChoice::new(vec![3, 1]);
        let in_earnest = |choice: &mut KeyChoice, faults| {
            let reads = next(choice, 1024, faults);
            let mut keys: Vec<_> = reads
                .into_iter()
                .filter(|(key, purpose)| !choice.is_trial(*key, *purpose))
                .map(|(key, _)| key)
                .collect();
            keys.dedup();
            keys
        };
        assert_eq!(in_earnest(&mut choice, 0), []);
        assert_eq!(in_earnest(&mut choice, OTHERS_AFTER), [1]);
        choice.answered(1);
        assert_eq!(in_earnest(&mut choice, 0), [1]);
        choice.answered(3);
        for faults in [0, OTHERS_AFTER, FAULTS_MAX] {
            assert_eq!(in_earnest(&mut choice, faults), [3]);
        }
        assert_eq!(in_earnest(&mut KeyChoice::new(vec![2]), FAULTS_MAX), [2]);
    }

    #[test]
    fn a_node_without_keys_is_not_asked() {
        let mut choice = KeyChoice::new(Vec::new());
        assert_eq!(
            (choice.next(0, 0), choice.next(FAULTS_MAX, 0)),
            (None, None)
        );
        assert_eq!(choice.current(), None);
    }
}
