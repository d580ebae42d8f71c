//! A node that has come to a site and cannot serve it goes back to where it came from.
//!
//! ```text
//! begins   this front-end moved the node, and it serves x; or a front-end begins, and finds it lent to x
//!          anew while operators or this front-end do not let it serve
//! fit      it takes requests of x at some look: it stays
//! unfit    its check or its answers have kept it out for 10 s in a row: back to y, and barred
//! ```
//!
//! A site's own check decides whether a node takes its requests, also after a hook that ended well. A node that does not pass
//! serves neither site, while y could use it.
//!
//! Inputs: what is seen of the node at each look, `now`. Failure case: a lent node that has just failed when a front-end begins, or
//! takes a reload over, goes home. A check that passes once and fails afterwards is like any node that fails.
//! Source: not in Reconfiguration-2004, whose nodes serve any site at once.

use std::time::Duration;

use super::words::{Assignment, MoveCause, SiteNumber};
use crate::time::Timestamp;

/// How long a node may be unfit.
pub const PROBATION: Duration = Duration::from_secs(10);

/// A node that was moved and has not shown that it can serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probation {
    from: SiteNumber,
    since: Timestamp,
}

impl Probation {
    /// Of a node that serves its new site now, by a move of this front-end.
    pub fn begin(before: Assignment, after: Assignment, now: Timestamp) -> Option<Self> {
        let from = before.from().unwrap_or(before.site);
        let came = match after.cause {
            MoveCause::Load | MoveCause::Chain | MoveCause::HomeComing | MoveCause::Operator => {
                after.is_serving() && after.site != from
            }
            MoveCause::Start | MoveCause::Revert => false,
        };
        came.then_some(Self { from, since: now })
    }

    /// Of a node that a front-end finds as it begins: what was seen of it before is not known.
    pub fn found(it: Assignment, home: Option<SiteNumber>, now: Timestamp) -> Option<Self> {
        let from = home.filter(|home| it.is_serving() && *home != it.site)?;
        Some(Self { from, since: now })
    }

    /// What a look comes to: the node may serve and takes requests or not, or it may not serve. `None`: it has shown that it can.
    pub fn look(self, takes_requests: Option<bool>, now: Timestamp) -> Option<Self> {
        match takes_requests {
            Some(true) => None,
            Some(false) => Some(self),
            None => Some(Self { since: now, ..self }),
        }
    }

    /// The site that it goes back to, once it has been unfit for long enough.
    pub fn back(self, now: Timestamp) -> Option<SiteNumber> {
        (now.since(self.since) >= PROBATION).then_some(self.from)
    }
}

#[cfg(test)]
mod tests {
    use super::super::words::Count24;
    use super::*;

    const X: SiteNumber = SiteNumber(0);
    const Y: SiteNumber = SiteNumber(1);

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(1000 * seconds)
    }

    #[test]
    fn what_was_moved_may_be_unfit_for_ten_seconds() {
        let before = Assignment::first(Count24::new(4), Y, false);
        let after = Assignment {
            cause: MoveCause::Load,
            site: X,
            ..before
        };
        let probation = Probation::begin(before, after, at(5)).unwrap();
        assert_eq!(probation.back(at(14)), None);
        assert_eq!(probation.back(at(15)), Some(Y));
        assert_eq!(probation.look(Some(true), at(6)), None);
        assert_eq!(probation.look(Some(false), at(6)), Some(probation));
        let anew = probation.look(None, at(6)).unwrap();
        assert_eq!((anew.back(at(15)), anew.back(at(16))), (None, Some(Y)));
        let drained = Assignment {
            state: super::super::words::AssignmentState::Draining { from: Y },
            ..after
        };
        assert_eq!(Probation::begin(before, drained, at(5)), None, "on its way");
        assert_eq!(
            Probation::begin(drained, after, at(5)),
            Some(probation),
            "it has come"
        );
    }

    #[test]
    fn what_began_or_was_taken_back_has_nowhere_to_go() {
        let before = Assignment::first(Count24::new(4), Y, false);
        for cause in [MoveCause::Start, MoveCause::Revert] {
            let after = Assignment {
                cause,
                site: X,
                ..before
            };
            assert_eq!(Probation::begin(before, after, at(5)), None);
        }
        let found = Probation::found(before, Some(X), at(5)).unwrap();
        assert_eq!(found.back(at(15)), Some(X));
        assert_eq!(Probation::found(before, Some(Y), at(5)), None, "at home");
        let pinned = Assignment {
            cause: MoveCause::Load,
            pinned: true,
            ..before
        };
        assert_eq!(
            Probation::begin(before, pinned, at(5)),
            None,
            "it has not moved"
        );
    }
}
