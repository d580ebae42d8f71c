//! Databases that are never used to more than a part, by locks or by what admission lets in, which an elephant drives
//! there: whether it stays named for as long as it does so.
//!
//! What is asked for is more than there is, so answers come ever later, and the use says nothing any more.

use std::collections::BTreeSet;

use tidegate_core::prng::Prng;

use super::draw::{Plan, between, site};
use super::label::{Label, truths};
use super::replay::Replay;
use super::score::Named;
use super::site::Onset;
use super::trace::Resource;
use super::world;

/// What some sites came to.
#[derive(Clone, Debug, Default)]
pub struct Plateau {
    /// Sites.
    pub sites: usize,
    /// How many seconds after it came each elephant was named.
    pub delays: Vec<f64>,
    /// Evaluations from then on, in which the elephant was one.
    pub evaluations: usize,
    /// Those of them that named it.
    pub flagged: usize,
    /// Innocents that were named, a line each for the first time.
    pub wrong: Vec<String>,
}

impl Plateau {
    /// Adds another's.
    pub fn merge(&mut self, other: Self) {
        self.sites += other.sites;
        self.delays.extend(other.delays);
        self.evaluations += other.evaluations;
        self.flagged += other.flagged;
        self.wrong.extend(other.wrong);
    }
}

/// How long a site runs after its elephant has come, seconds.
const SECONDS: f64 = 180.0;

/// One site: its elephant comes after a minute or two, and asks for more than the 80 to 94 % of the database that can be
/// used at the most.
pub fn run(seed: u64) -> Plateau {
    let mut prng = Prng::new(seed ^ 0x0092_f1a7_0000_0000);
    let after = between(&mut prng, (60.0, 120.0));
    let plan = Plan {
        classes: (10, 30),
        rate: (50.0, 500.0),
        elephants: (1, 1),
        share: (0.55, 0.8),
        cost: (0.02, 0.2),
        small: Some((0.3, 0.45)),
        seconds: after + SECONDS,
        onset: after,
        ..Plan::default()
    };
    let (mut site, elephants) = site(&plan, &mut prng);
    site.db_usable = between(&mut prng, (0.8, 0.94));
    let elephant = elephants.first().map_or(0, |it| usize::from(*it));
    site.classes[elephant].onset = Some(Onset {
        at: after,
        rate: 0.0,
        work: 1.0,
    });
    let trace = world::run(&site, seed);
    let mut found = Plateau {
        sites: 1,
        ..Plateau::default()
    };
    let mut wrong = BTreeSet::new();
    for turn in Replay::new(&trace) {
        let truths = truths(&trace, Resource::Database, turn.at);
        let verdicts = turn.verdicts.iter().map(|(_, it)| Named::of(it.flagged()));
        let flagged: Vec<_> = verdicts.flat_map(|it| it.classes.into_keys()).collect();
        let innocent = |class: &&usize| truths[**class].label == Label::Innocent;
        for class in flagged.iter().filter(innocent) {
            if wrong.insert(*class) {
                let line = format!("seed {seed} at {} s: class {class}", turn.at);
                found.wrong.push(line);
            }
        }
        let is_flagged = flagged.contains(&elephant);
        if is_flagged && found.delays.is_empty() {
            found.delays.push(turn.at - after);
        }
        if !found.delays.is_empty() && truths[elephant].label == Label::Culprit {
            found.evaluations += 1;
            found.flagged += usize::from(is_flagged);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_drives_a_database_to_a_plateau_stays_told() {
        let mut all = Plateau::default();
        (0..6).for_each(|seed| all.merge(run(seed)));
        assert!(all.delays.len() >= 4, "{all:?}");
        assert!(20 * all.flagged >= 19 * all.evaluations, "{all:?}");
        // Of more than a hundred classes; some were culprits until all others became as dear.
        assert!(all.wrong.len() <= 3, "{all:?}");
    }
}
