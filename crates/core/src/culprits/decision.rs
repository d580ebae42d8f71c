//! The decision: what a class must show before it is named.
//!
//! ```text
//! share, less its error (1 / t)   >= 4.2 % of the capacity
//! cost, less its error            >= 1.75 x the mean cost
//! use <= 1.25 x what was measured,  slope <= 1.3 unless 5 % of the window and more are full
//! and    t >= 3, z >= 3.7, rm >= 1.4    or    t >= 4.5, z >= 3, rm >= 1.3 with 10 requests or more
//! below 20 s of data            t >= 5, z >= 6, rm >= 2
//! cost > 4 x its mean life      t >= 4.5, z >= 4.5, rm >= 1.5, too: work behind the reply has more
//!                               places to be
//! suspected     share >= 10.5 %, cost >= 1.3 x the mean, and t >= 5, z >= 3, rm >= 1.3 in 7.5 to 20 s of data; or by
//!               lives, in so much data or of a resource that has never had room, where it was full for a quarter
//! full resource                 share >= 3.5 %, cost >= 1.9 x the mean;  no t, z or rm
//!
//! where 90 s and more are known, or live 45 s without an alarm for a minute: named by the long window, too, with
//!     t >= 6;  t >= 10 if cost > 1.5 x its mean life
//!     likely share >= 4.2 %, likely cost >= 2 x the mean
//! or else by the usual window alone, with
//!     share >= 10.5 %                     a new class: it had less than a quarter of its rate before
//!     likely share >= 10.5 %, likely cost >= 2 x the mean, and no more than 1.25 x its cost in the
//!     long window unless its life has grown by half of that        any other class
//! 5 % of the window and more are full: not who was known with room, is slowed no more than everybody, and was
//!     named in less than a fifth of the windows with room, taking what it costs
//! likely = what is likely by arrivals alone; what it is if t and z >= 10, its share is >= 10.5 %, and it
//!     takes what it costs
//! ```
//!
//! The long window is for a site that runs for days: of many small classes and many windows of 30 s some
//! pair meets by chance, and in 120 s it does not; costs are known better there, too. It makes a small
//! culprit wait for a minute or two. A class that costs five times of what it did takes longer than it did,
//! unless the work goes on behind the reply; such a culprit waits, too.
//!
//! t alone is fooled by chance meetings with a cron job; z alone turns away heavy classes that are rare
//! or take seconds, since few long requests have few ways to be shifted: hence two ways in. A class
//! whose part of the window says 1.3 times as much of it as the fit did stands in for another that
//! comes with it. A part of the window in which the resource is full teaches too small a cost, so there the
//! other parts may say more.
//!
//! Source: gates chosen on seeds below 100 of the simulator's suite, from those of the discovery study, and on hours
//! without heavy classes of seeds below 150 and from 1000 and 2000 on.

/// What a class showed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Evidence {
    /// Part of the capacity.
    pub(super) share: f64,
    /// Cost over the mean cost of a request.
    pub(super) lift: f64,
    /// Its use over all use that was measured.
    pub(super) of_use: f64,
    pub(super) t: f64,
    pub(super) z: f64,
    pub(super) rm: f64,
    pub(super) requests: f64,
    /// Seconds.
    pub(super) cost: f64,
    pub(super) mean_life: f64,
    pub(super) window: f64,
    /// Of the use on what other parts of the window taught of the class.
    pub(super) slope: f64,
    /// What part of its share and cost is likely by its arrivals alone.
    pub(super) arrivals: f64,
    /// Part of the window in which the resource was full.
    pub(super) full: f64,
    /// The most that a request may cost where the fit cannot tell, seconds; zero where it can.
    pub(super) most: f64,
    /// The least cost that would be named, seconds; zero where none is looked for.
    pub(super) least: f64,
}

/// Least share and lift.
pub(super) const SHARE_MIN: f64 = 0.042;
pub(super) const LIFT_MIN: f64 = 1.75;
/// Least lift where much is known.
const LONG_LIFT_MIN: f64 = 2.0;
/// Least t where much is known: a class that is worth telling has more by then.
const LONG_T: f64 = 6.0;
/// Cost over life up to which the work may be done while the request waits for it.
const INSIDE: f64 = 1.5;
/// t and z from which on a great class that takes no less than it costs is named whatever its arrivals say.
const NO_DOUBT: f64 = 10.0;
/// A share that needs no long window.
pub(super) const GREAT: f64 = 2.5 * SHARE_MIN;
/// Part of its rate that a new class had before at the most.
const NEW: f64 = 0.25;
/// From how many times its cost in the long window on a class costs more than it did, and which part of that its
/// life must have grown by.
const DEARER: f64 = 1.25;
const GROWN: f64 = 0.5;
/// The same where occupancy decides.
const OCCUPIED_SHARE_MIN: f64 = 0.035;
const OCCUPIED_LIFT_MIN: f64 = 1.9;
/// A class that uses more than was measured is no explanation.
const OF_USE_MAX: f64 = 1.25;
/// Greatest slope of the use on what other parts of the window taught.
const SLOPE_MAX: f64 = 1.3;
/// Part of the window that may be full where that counts.
pub(super) const FULL_MAX: f64 = 0.05;
/// Seconds of data below which more is asked for.
pub(super) const WINDOW_MIN: f64 = 20.0;
/// Cost over life from which work goes on behind the reply.
const BEHIND: f64 = 4.0;

/// Least t, z and rm.
type Gates = (f64, f64, f64);
const USUAL: Gates = (3.0, 3.7, 1.4);
const RARE: Gates = (4.5, 3.0, 1.3);
const SHORT: Gates = (5.0, 6.0, 2.0);
const RARE_REQUESTS: f64 = 10.0;
const BEHIND_GATES: Gates = (4.5, 4.5, 1.5);

/// Gates of a suspicion, and its least lift: where admission refuses most requests, dear ones are a great part of those
/// that are left, and the mean cost is theirs.
const SUSPECTED: Gates = (5.0, 3.0, 1.3);
const SUSPECTED_LIFT: f64 = 1.3;

/// The part of each gate at which a class that is named stays so. How dear it is beside others is not eased: where
/// others have become dearer it is no culprit any more.
const KEPT: f64 = 0.75;

/// Whether share and cost are this part of what the gates ask for: candidates pass with less.
pub(super) fn matters(share: f64, lift: f64, part: f64) -> bool {
    share >= part * SHARE_MIN && lift >= part * LIFT_MIN
}

/// Whether a class is named.
pub(super) fn is_culprit(seen: &Evidence) -> bool {
    let passes = |(t, z, rm): Gates| seen.t >= t && seen.z >= z && seen.rm >= rm;
    let sure = 1.0 - seen.t.max(1.0).recip();
    let great = matters(seen.share * sure, seen.lift * sure, 1.0);
    let stands_in = seen.slope > SLOPE_MAX && seen.full < FULL_MAX;
    if !great || seen.of_use > OF_USE_MAX || stands_in {
        return false;
    }
    let behind = seen.cost > BEHIND * seen.mean_life;
    if behind && !passes(BEHIND_GATES) {
        return false;
    }
    match seen.window < WINDOW_MIN {
        true => passes(SHORT),
        false => passes(USUAL) || (passes(RARE) && seen.requests >= RARE_REQUESTS),
    }
}

/// Whether a class is suspected by the fit, while too little is known to name it.
pub(super) fn is_suspected(seen: &Evidence) -> bool {
    let sure = 1.0 - seen.t.max(1.0).recip();
    let (t, z, rm) = SUSPECTED;
    let fits = seen.t >= t && seen.z >= z && seen.rm >= rm;
    fits && seen.window < WINDOW_MIN
        && seen.share * sure >= GREAT
        && seen.lift * sure >= SUSPECTED_LIFT
}

/// What a class showed that is named already, as it is judged from then on: it goes only when it is clearly below the
/// gates, since what comes and goes at one of them is no news each time.
pub(super) fn eased(seen: &Evidence) -> Evidence {
    Evidence {
        share: seen.share / KEPT,
        t: seen.t / KEPT,
        z: seen.z / KEPT,
        rm: seen.rm / KEPT,
        ..*seen
    }
}

/// Whether a class takes as long as it costs, or costs it without doubt.
pub(super) fn takes_its_cost(seen: &Evidence) -> bool {
    seen.cost <= seen.mean_life || seen.t >= NO_DOUBT
}

/// Whether what is likely by arrivals alone is so great, too, unless it is great and there is no doubt.
fn likely_matters(seen: &Evidence, share: f64) -> bool {
    let sure = 1.0 - seen.t.max(1.0).recip();
    let no_doubt = seen.t.min(seen.z) >= NO_DOUBT && seen.cost <= seen.mean_life;
    let likely = match no_doubt && seen.share >= GREAT {
        true => sure,
        false => seen.arrivals * sure,
    };
    seen.share * likely >= share && seen.lift * likely >= LONG_LIFT_MIN
}

/// Whether a class is named by a long window.
pub(super) fn is_culprit_of_long(seen: &Evidence) -> bool {
    let inside = seen.cost <= INSIDE * seen.mean_life;
    let least = if inside { LONG_T } else { NO_DOUBT };
    is_culprit(seen) && seen.t >= least && likely_matters(seen, SHARE_MIN)
}

/// What a class was in the long window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Long {
    /// Seconds of the resource per request.
    pub(super) cost: f64,
    /// Mean life, seconds.
    pub(super) life: f64,
    /// Whether it is named there.
    pub(super) named: bool,
}

impl Long {
    /// Whether a class that costs more than here takes longer, too.
    fn explains(&self, seen: &Evidence) -> bool {
        let (cost, life) = (seen.cost - self.cost, seen.mean_life - self.life);
        seen.cost <= DEARER * self.cost || life >= GROWN * cost
    }
}

/// Whether what the usual window names stands where a long one is known. A class is new if hardly any of its
/// requests were there before the usual window.
pub(super) fn stands(seen: &Evidence, long: &Long, new: bool) -> bool {
    let great = match new {
        true => seen.share >= GREAT,
        false => likely_matters(seen, GREAT) && long.explains(seen),
    };
    long.named || great
}

/// Whether so many requests a second, after so many before, make a class a new one.
pub(super) fn is_new(rate: f64, before: f64) -> bool {
    before < NEW * rate
}

/// Whether a class is suspected that may fill a full resource.
pub(super) fn may_occupy(share: f64, lift: f64) -> bool {
    share >= GREAT && lift >= SUSPECTED_LIFT
}

/// Whether a class is named that fills a full resource.
pub(super) fn occupies(share: f64, lift: f64) -> bool {
    share >= OCCUPIED_SHARE_MIN && lift >= OCCUPIED_LIFT_MIN
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen() -> Evidence {
        Evidence {
            share: 0.1,
            lift: 10.0,
            of_use: 0.5,
            t: 4.0,
            z: 5.0,
            rm: 1.6,
            requests: 30.0,
            cost: 0.05,
            mean_life: 0.1,
            window: 30.0,
            slope: 0.9,
            arrivals: 1.0,
            full: 0.0,
            most: 0.0,
            least: 0.0,
        }
    }

    #[test]
    fn small_shares_must_be_seen_in_the_long_window_where_there_is_one() {
        let of = |share| Evidence { share, ..seen() };
        let no = Long {
            cost: 0.05,
            life: 0.1,
            named: false,
        };
        let yes = Long { named: true, ..no };
        assert!(stands(&of(0.05), &yes, false));
        assert!(!stands(&of(0.05), &no, true) && stands(&of(0.15), &no, false));
        let by_lives = Evidence {
            arrivals: 0.4,
            ..of(0.15)
        };
        assert!(!stands(&by_lives, &no, false) && stands(&by_lives, &no, true));
        assert!(is_new(10.0, 2.0) && !is_new(10.0, 3.0));
        let cheap = Evidence {
            lift: 1.9,
            t: 1e6,
            ..seen()
        };
        assert!(is_culprit(&cheap) && !is_culprit_of_long(&cheap));
        let no_doubt = Evidence {
            t: 1e6,
            z: 10.0,
            arrivals: 0.1,
            share: 0.11,
            ..seen()
        };
        let small = Evidence {
            share: 0.1,
            ..no_doubt
        };
        let behind = Evidence {
            mean_life: 0.04,
            ..no_doubt
        };
        assert!(is_culprit_of_long(&no_doubt));
        assert!(!is_culprit_of_long(&small) && !is_culprit_of_long(&behind));
        let sure = Evidence { t: 6.0, ..seen() };
        assert!(is_culprit_of_long(&sure) && is_culprit(&seen()) && !is_culprit_of_long(&seen()));
        let outside = |t| Evidence {
            t,
            mean_life: 0.03,
            ..seen()
        };
        assert!(!is_culprit_of_long(&outside(9.0)) && is_culprit_of_long(&outside(10.0)));
    }

    #[test]
    fn whoever_costs_more_than_it_did_takes_longer() {
        let great = Evidence {
            share: 0.15,
            ..seen()
        };
        let before = |cost, life| Long {
            cost,
            life,
            named: false,
        };
        // 0.05 s now, with a life of 0.1 s.
        assert!(!stands(&great, &before(0.01, 0.1), false));
        assert!(!stands(&great, &before(0.01, 0.085), false));
        assert!(stands(&great, &before(0.01, 0.075), false));
        assert!(stands(&great, &before(0.045, 0.1), false));
        assert!(stands(&great, &before(0.01, 0.1), true));
        let named = Long {
            named: true,
            ..before(0.01, 0.1)
        };
        assert!(stands(&great, &named, false));
    }

    #[test]
    fn each_gate_can_say_no() {
        assert!(is_culprit(&seen()));
        let no = [
            Evidence {
                share: 0.04,
                ..seen()
            },
            Evidence {
                lift: 1.7,
                ..seen()
            },
            Evidence {
                of_use: 1.3,
                ..seen()
            },
            Evidence { t: 2.9, ..seen() },
            Evidence { z: 3.6, ..seen() },
            Evidence { rm: 1.35, ..seen() },
            Evidence {
                slope: 1.4,
                ..seen()
            },
            Evidence {
                window: 15.0,
                ..seen()
            },
            Evidence {
                cost: 0.5,
                ..seen()
            },
        ];
        no.iter()
            .for_each(|seen| assert!(!is_culprit(seen), "{seen:?}"));
        let in_a_full_part = Evidence {
            slope: 2.0,
            full: 0.1,
            ..seen()
        };
        assert!(is_culprit(&in_a_full_part));
    }

    #[test]
    fn a_flagged_class_goes_when_it_is_clearly_below_the_gates() {
        let of = |share| Evidence {
            share,
            t: 8.0,
            ..seen()
        };
        let stays = |seen: &Evidence| is_culprit(&eased(seen));
        assert!(is_culprit(&of(0.05)) && !is_culprit(&of(0.041)));
        assert!(stays(&of(0.041)) && stays(&of(0.036)) && !stays(&of(0.033)));
        // Where others have become as dear it is no culprit any more.
        let usual = Evidence {
            lift: 1.5,
            ..of(0.2)
        };
        assert!(!stays(&usual));
    }

    #[test]
    fn a_class_is_suspected_while_too_little_is_known_only() {
        let of = |window| Evidence {
            share: 0.15,
            lift: 1.7,
            t: 6.0,
            window,
            ..seen()
        };
        assert!(is_suspected(&of(7.5)) && is_suspected(&of(19.0)) && !is_suspected(&of(20.0)));
        assert!(!is_culprit(&of(7.5)));
        let no = [
            Evidence {
                share: 0.12,
                ..of(7.5)
            },
            Evidence {
                lift: 1.5,
                ..of(7.5)
            },
            Evidence { t: 4.9, ..of(7.5) },
            Evidence { z: 2.9, ..of(7.5) },
            Evidence { rm: 1.2, ..of(7.5) },
        ];
        no.iter()
            .for_each(|seen| assert!(!is_suspected(seen), "{seen:?}"));
        assert!(may_occupy(0.11, 1.4) && !may_occupy(0.1, 1.4) && !may_occupy(0.11, 1.2));
    }

    #[test]
    fn a_cost_beyond_its_life_takes_a_great_t() {
        let beyond = |t| Evidence {
            mean_life: 0.04,
            t,
            ..seen()
        };
        assert!(takes_its_cost(&seen()));
        assert!(!takes_its_cost(&beyond(9.9)) && takes_its_cost(&beyond(10.0)));
    }

    #[test]
    fn rare_ones_have_a_way_in() {
        let rare = Evidence {
            t: 5.0,
            z: 3.2,
            rm: 1.35,
            ..seen()
        };
        assert!(is_culprit(&rare));
        assert!(!is_culprit(&Evidence {
            requests: 9.0,
            ..rare
        }));
    }
}
