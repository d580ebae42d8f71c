//! Where requests were counted last that had the same words. Sites are asked for the same few things again and again: to fold a URL
//! costs more than all else that is done for a request here.
//!
//! A table of 64 places, each for the last words whose digest falls there. Failure case: where all URLs differ each is folded,
//! and it was looked for in vain.

use std::hash::{BuildHasherDefault, Hasher};

use tidegate_core::classes::{Place, Words};

/// Words that are known at a time.
const KNOWN: usize = 64;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct KnownWords(Vec<Option<KnownPlace>>);

#[derive(Clone, Copy, Debug)]
struct KnownPlace {
    site: u32,
    words: Words,
    place: Place,
}

impl KnownWords {
    /// Where a request of that site with these words was counted last.
    pub(super) fn place(&self, site: u32, words: &Words) -> Option<Place> {
        let known = self.0.get(slot(words))?.as_ref()?;
        (known.site == site && known.words == *words).then_some(known.place)
    }

    /// It was counted there.
    pub(super) fn note(&mut self, site: u32, words: &Words, place: Place) {
        self.0.resize(KNOWN, None);
        self.0[slot(words)] = Some(KnownPlace {
            site,
            words: *words,
            place,
        });
    }
}

fn slot(words: &Words) -> usize {
    // The upper bits are those that all bytes have reached.
    (words.digest() >> 32) as usize % KNOWN
}

/// Hashes the numbers of requests, which workers count up: no client chooses them.
pub(super) type ById = BuildHasherDefault<IdHasher>;

/// See [`ById`].
#[derive(Debug, Default)]
pub(super) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, id: u64) {
        // The golden ratio's bits: numbers that follow each other fall far apart.
        const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
        self.0 = (self.0 ^ id).wrapping_mul(ODD);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_known_by_their_site_until_others_take_their_place() {
        let mut known = KnownWords::default();
        let (a, b) = (Words::of("GET", "/a"), Words::of("POST", "/a"));
        assert_eq!(known.place(0, &a), None);
        known.note(0, &a, Place::Pattern(1));
        assert_eq!(known.place(0, &a), Some(Place::Pattern(1)));
        assert_eq!(known.place(1, &a), None);
        assert_eq!(known.place(0, &b), None);
        let others = (0..).map(|number| Words::of("GET", &format!("/{number}")));
        let mut others = others.filter(|it| slot(it) == slot(&a) && *it != a);
        known.note(0, &others.next().unwrap(), Place::Pattern(2));
        assert_eq!(known.place(0, &a), None);
    }

    #[test]
    fn places_of_words_that_are_like_each_other_differ() {
        let taken: std::collections::BTreeSet<_> = (0..1000)
            .map(|number| slot(&Words::of("GET", &format!("/item/{number}"))))
            .collect();
        assert_eq!(taken.len(), KNOWN);
    }
}
