//! Starts with what was learned before, as bytes that outlived a restart, beside starts without.
//!
//! A site as in [`super::quiet`] runs for five minutes; what discovery then knows is encoded and decoded, and the same site
//! runs again with other arrivals, with that knowledge and without. What is gained is fewer innocents that are named in
//! the first minutes; what could be lost is time until an elephant is named that came with the restart.

use tidegate_core::culprits::{Learned, LearnedError};
use tidegate_core::prng::Prng;

use super::quiet::{LATE_SECONDS, Late, Quiet, absent, found_late, judge, quiet_site};
use super::replay::Replay;
use super::site::Site;
use super::world;

/// How long a site runs before it is restarted, seconds.
const BEFORE_SECONDS: f64 = 300.0;
/// By the Unix clock: when it is restarted, and how long that takes.
const RESTARTED_AT: u64 = 1_800_000_000;
const RESTART_SECONDS: u64 = 5;

/// What was learned of a site before, as it comes back from a file.
fn learned_before(site: &Site, seed: u64) -> Result<Learned, LearnedError> {
    let site = Site {
        seconds: BEFORE_SECONDS,
        ..site.clone()
    };
    let before = Prng::new(seed ^ 0xbef0_4e00_0000_0000).bits();
    let trace = world::run(&site, before);
    let mut replay = Replay::new(&trace);
    replay.by_ref().for_each(drop);
    let bytes = replay.learned(RESTARTED_AT).encode(RESTARTED_AT);
    let (learned, _) = Learned::decode(&bytes, RESTARTED_AT + RESTART_SECONDS)?;
    Ok(learned)
}

/// A site without elephants after a restart, for so many seconds; without knowledge it is [`super::quiet::run`].
///
/// # Errors
/// What was learned does not come back.
pub fn run(seed: u64, seconds: f64) -> Result<Quiet, LearnedError> {
    let (site, _) = quiet_site(seed, seconds, 0);
    let learned = learned_before(&site, seed)?;
    let trace = world::run(&site, seed);
    Ok(judge(&trace, seed, Replay::after(&trace, &learned)))
}

/// How long it takes until an elephant is named that comes so many seconds after a restart, without knowledge and with;
/// none if what came is no culprit by the labels.
///
/// # Errors
/// What was learned does not come back.
pub fn late(seed: u64, after: f64) -> Result<[Option<Late>; 2], LearnedError> {
    let (mut site, elephants) = quiet_site(seed, after + LATE_SECONDS, 1);
    let Some(elephant) = elephants.first().copied() else {
        return Ok([None, None]);
    };
    let class = usize::from(elephant);
    site.classes[class].onset = Some(absent(f64::INFINITY));
    let learned = learned_before(&site, seed)?;
    site.onset = after;
    site.classes[class].onset = Some(absent(after));
    let trace = world::run(&site, seed);
    let replays = [Replay::new(&trace), Replay::after(&trace, &learned)];
    Ok(replays.map(|replay| found_late(&trace, elephant, replay)))
}

#[cfg(test)]
mod tests {
    use super::super::quiet;
    use super::*;

    #[test]
    fn with_what_was_learned_an_innocent_is_not_told_that_else_is() {
        let without = quiet::run(1010, 40.0);
        assert_eq!(without.flagged.len(), 1, "{:#?}", without.flagged);
        let with = run(1010, 40.0).unwrap();
        assert!(with.flagged.is_empty(), "{:#?}", with.flagged);
        assert_eq!(with.evaluations, without.evaluations);
    }
}
