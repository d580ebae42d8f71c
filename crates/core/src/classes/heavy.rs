//! The heavy ones among any number of names, in bounded memory.
//!
//! ```text
//! known name:   estimate += w
//! unknown name: takes the place of the lightest one, estimate = lightest + w, error = lightest
//! ```
//!
//! Any name with more than 1/64 of all weight is among the 64, and its weight is at least
//! `estimate - error`. Input: names and weights. Failure case: with ever new names all errors
//! are 1/64 of the weight, and a name needs 3.6 % to be sure of 2 %. Names are known by a hash;
//! two with the same one count together.
//! Source: Space-Saving (SpaceSaving-2005).

use super::Weight;

/// Names that are watched.
const NAMES: usize = 64;

/// The heaviest names by requests, and those by time in progress.
#[derive(Clone, Debug, Default)]
pub(super) struct Heavy {
    by_requests: Sketch,
    by_seconds: Sketch,
}

impl Heavy {
    /// Counts a name; what is sure of its weight by either measure.
    pub(super) fn add(&mut self, name: &str, weight: Weight) -> Weight {
        let hash = hash(name);
        let by_requests = self.by_requests.add(hash, weight.requests, weight);
        let by_seconds = self.by_seconds.add(hash, weight.seconds, weight);
        Weight {
            requests: by_requests.requests.max(by_seconds.requests),
            seconds: by_requests.seconds.max(by_seconds.seconds),
        }
    }

    /// A name that is no longer hidden.
    pub(super) fn forget(&mut self, name: &str) {
        let hash = hash(name);
        for sketch in [&mut self.by_requests, &mut self.by_seconds] {
            sketch.entries.retain(|entry| entry.hash != hash);
        }
    }

    /// Old weight counts less.
    pub(super) fn decay(&mut self, factor: f64) {
        for sketch in [&mut self.by_requests, &mut self.by_seconds] {
            for entry in &mut sketch.entries {
                entry.estimate *= factor;
                entry.sure.scale(factor);
            }
        }
    }
}

#[derive(Clone, Debug, Default)]
struct Sketch {
    entries: Vec<Entry>,
}

#[derive(Clone, Debug)]
struct Entry {
    hash: u64,
    estimate: f64,
    /// What was counted since it is here: estimate less error, of both measures.
    sure: Weight,
}

impl Sketch {
    fn add(&mut self, hash: u64, by: f64, weight: Weight) -> Weight {
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.hash == hash) {
            entry.estimate += by;
            entry.sure.add(weight);
            return entry.sure;
        }
        let entry = |lightest: f64| Entry {
            hash,
            estimate: lightest + by,
            sure: weight,
        };
        if self.entries.len() < NAMES {
            self.entries.push(entry(0.0));
            return weight;
        }
        let lightest = self
            .entries
            .iter_mut()
            .min_by(|one, other| one.estimate.total_cmp(&other.estimate));
        if let Some(lightest) = lightest {
            *lightest = entry(lightest.estimate);
        }
        weight
    }
}

/// FNV-1a, 64 bits.
fn hash(name: &str) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(PRIME);
    name.bytes().fold(OFFSET, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rare_name_with_much_time_is_found_among_ever_new_ones() {
        let mut heavy = Heavy::default();
        let mut sure = Weight::default();
        let (mut all, mut own) = (0.0, 0.0);
        for index in 0..10_000 {
            heavy.add(&format!("ant{index}"), Weight::finished(0.001));
            all += 0.001;
            if index % 500 == 250 {
                sure = heavy.add("dear", Weight::finished(0.5));
                all += 0.5;
                own += 0.5;
            }
        }
        assert!(sure.seconds > 0.9 * own, "{sure:?}");
        assert!(sure.seconds / all > 0.3);
        assert_eq!(heavy.by_seconds.entries.len(), NAMES);
        assert_eq!(heavy.by_requests.entries.len(), NAMES);
    }

    #[test]
    fn what_is_sure_is_never_more_than_what_there_was() {
        let mut heavy = Heavy::default();
        let mut counts = [0.0; 200];
        for index in 0..20_000_usize {
            let name = index * index % 199;
            counts[name] += 1.0;
            let sure = heavy.add(&name.to_string(), Weight::ARRIVAL);
            assert!(sure.requests <= counts[name]);
        }
    }

    #[test]
    fn what_is_forgotten_begins_anew() {
        let mut heavy = Heavy::default();
        heavy.add("a", Weight::finished(1.0));
        heavy.forget("a");
        assert_eq!(heavy.add("a", Weight::ARRIVAL), Weight::ARRIVAL);
        heavy.decay(0.5);
        let sure = heavy.add("a", Weight::ARRIVAL);
        assert_eq!(sure.requests, 1.5);
    }

    #[test]
    fn old_weight_holds_a_place_against_less_than_it_counts_now() {
        let weight = |many: f64| Weight {
            requests: many,
            seconds: many,
        };
        let mut heavy = Heavy::default();
        heavy.add("old", weight(8.0));
        heavy.decay(0.25);
        for name in 1..NAMES {
            heavy.add(&name.to_string(), weight(3.0));
        }
        heavy.add("new", weight(3.0));
        assert_eq!(heavy.add("old", weight(1.0)), weight(1.0), "it begins anew");
    }
}
