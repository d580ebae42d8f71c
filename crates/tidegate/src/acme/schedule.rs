//! When a certificate is asked for next.
//!
//! Formula: without a failure, `start + 2/3 * life - u * life / 30` of the certificate in force, but not within `life / 3` of the last one
//! that came, since an authority's clock may go otherwise, and at once where there is none. Behind the n-th failure,
//! `min(first * 2^(n-1), most) * (1/2 + u/2)` after it, with `first` 1 s and `most` 10 min where the authority did not answer or had a
//! fault of its own, 2 min and 6 h where it refused; silences count from the last refusal on, refusals from the last success on. `u` is uniform in [0, 1), drawn at each try. Inputs: validity of the certificate in
//! force, failures in a row, the time of the last try. Failure case: an authority that is down for the last third of a certificate's
//! life; then it ends. Source: two thirds as Let's Encrypt advises, whose five failed proofs of a name an hour are not reached by
//! refusals alone; exponential backoff with jitter as in `tidegate_discover`.

use std::ops::Range;

/// The first wait behind an authority's silence and the longest, seconds.
const SILENT: (u64, u64) = (1, 600);
/// The same behind its refusal.
const REFUSED: (u64, u64) = (120, 6 * 3600);
/// Doubled so often at most.
const DOUBLINGS_MAX: u32 = 20;

/// What became of tries.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Tries {
    /// Times that the authority did not answer as it should, since the last other end.
    pub(crate) silences: u32,
    /// Its refusals since the last success.
    pub(crate) refusals: u32,
    /// When the last try was, in seconds since 1970; 0 if there was none.
    pub(crate) last: u64,
    /// The last try was refused.
    pub(crate) is_refused: bool,
    /// In [0, 1).
    pub(crate) jitter: f64,
}

impl Tries {
    /// Behind one more that failed.
    pub(super) fn failed(self, is_refused: bool, now: u64, jitter: f64) -> Self {
        let (silences, refusals) = match is_refused {
            true => (0, self.refusals.saturating_add(1)),
            false => (self.silences.saturating_add(1), self.refusals),
        };
        Self {
            silences,
            refusals,
            last: now,
            is_refused,
            jitter,
        }
    }
}

/// When the next try is due, in seconds since 1970: see the module.
pub(super) fn next_try(valid: Option<Range<u64>>, tries: Tries) -> u64 {
    let (failures, (first, most)) = match tries.is_refused {
        true => (tries.refusals, REFUSED),
        false => (tries.silences, SILENT),
    };
    if failures > 0 {
        let doubled = first << (failures - 1).min(DOUBLINGS_MAX);
        let wait = doubled.min(most) as f64 * (0.5 + tries.jitter / 2.0);
        return tries.last.saturating_add(wait.ceil() as u64);
    }
    let Some(valid) = valid else { return 0 };
    let life = valid.end.saturating_sub(valid.start) as f64;
    let after = life * (2.0 / 3.0) - life / 30.0 * tries.jitter;
    let due = valid.start.saturating_add(after as u64);
    due.max(tries.last.saturating_add((life / 3.0) as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 24 * 3600;

    fn failed(failures: u32, is_refused: bool, jitter: f64) -> Tries {
        let (silences, refusals) = match is_refused {
            true => (0, failures),
            false => (failures, 0),
        };
        Tries {
            silences,
            refusals,
            last: 1000,
            is_refused,
            jitter,
        }
    }

    #[test]
    fn an_outage_makes_the_wait_behind_a_refusal_no_longer() {
        let mut tries = Tries::default();
        for _ in 0..12 {
            tries = tries.failed(false, 1000, 1.0);
        }
        assert_eq!(next_try(None, tries), 1600);
        tries = tries.failed(true, 1000, 1.0);
        assert_eq!(next_try(None, tries), 1120);
        // Another one counts, whatever was between.
        tries = tries.failed(false, 1000, 1.0);
        assert_eq!(next_try(None, tries), 1001);
        tries = tries.failed(true, 1000, 1.0);
        assert_eq!(next_try(None, tries), 1240);
    }

    #[test]
    fn the_first_is_due_at_once_and_renewals_at_two_thirds_of_the_life() {
        assert_eq!(next_try(None, Tries::default()), 0);
        let valid = 10 * DAY..100 * DAY;
        let due = |jitter| {
            let tries = Tries {
                jitter,
                ..Tries::default()
            };
            next_try(Some(valid.clone()), tries)
        };
        assert_eq!(due(0.0), 70 * DAY);
        assert_eq!(due(0.5), 68 * DAY + DAY / 2);
        assert!(due(0.999) > 67 * DAY);
        // A life of seconds, as in tests, and one that makes no sense.
        assert_eq!(next_try(Some(100..106), Tries::default()), 104);
        #[expect(clippy::reversed_empty_ranges, reason = "a certificate may say so")]
        let reversed = 100..50;
        assert_eq!(next_try(Some(reversed), Tries::default()), 100);
    }

    /// Ours goes years ahead of it: what comes is over already.
    #[test]
    fn an_authority_with_another_clock_is_not_asked_without_an_end() {
        let tries = Tries {
            last: 5000 * DAY,
            ..Tries::default()
        };
        assert_eq!(next_try(Some(10 * DAY..100 * DAY), tries), 5030 * DAY);
    }

    #[test]
    fn waits_double_up_to_the_most_whatever_is_in_force() {
        for valid in [None, Some(0..10 * DAY)] {
            let wait =
                |failures, refused| next_try(valid.clone(), failed(failures, refused, 1.0)) - 1000;
            let silent: Vec<_> = (1..=12).map(|it| wait(it, false)).collect();
            assert_eq!(silent, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600]);
            let refused: Vec<_> = [1, 2, 3, 8, 9, u32::MAX].map(|it| wait(it, true)).into();
            assert_eq!(refused, [120, 240, 480, 15_360, 21_600, 21_600]);
        }
        assert_eq!(next_try(None, failed(1, true, 0.0)), 1060);
        assert_eq!(
            next_try(
                None,
                Tries {
                    last: u64::MAX,
                    ..failed(3, true, 0.5)
                }
            ),
            u64::MAX
        );
    }

    /// Five failed proofs of a name an hour are the limit.
    #[test]
    fn refusals_stay_below_an_authoritys_limit() {
        let mut at = 0;
        let mut within_an_hour = 1;
        for failures in 1..10 {
            let tries = Tries {
                last: at,
                ..failed(failures, true, 0.0)
            };
            at = next_try(None, tries);
            within_an_hour += u32::from(at < 3600);
        }
        assert!(within_an_hour <= 6, "{within_an_hour}");
    }
}
