//! How many CPUs a node is credited with: what it claims, as far as own responses bear it out.
//!
//! ```text
//! c0     = lower median of claimed / weight           of the site's nodes that claim CPUs, two or more
//! rate   = own successes / seconds                    both decay with 2 s
//! S      = mean y of the other nodes' responses       (`learn`; none: 0)
//! borne  = 4 * M * rate * S                           four times the CPUs that its work keeps busy elsewhere
//! credit = min(claimed, max(weight * c0, min(borne, 16 * weight * c0)))
//!          for the first second and a half 2 * weight * c0 instead of weight * c0
//! ```
//!
//! Any number of CPUs is easily claimed. With 64 of them, and no load, a node of 4 looked better than idle
//! ones: it got all requests, and since the others got none, no response ever showed that it was ten
//! times as slow. So it begins like the others of its weight, or nearly, and all are asked; a node that does
//! more than they do at their pace is credited with more, four times of what it was seen to do, so that
//! one with room has its share within seconds, and never less than its weight says. Twice that for a
//! moment, because many front-ends need it to see anything (64 front-ends before nodes of 2 to 8 CPUs:
//! p99 of the first 3 s +2 % without).
//!
//! A node of more than sixteen times the others' CPUs has the rest of its share by its relative cost,
//! which falls where it answers faster than its expected slowdown says, or by a weight in the configuration.
//!
//! Failure case: most of a site's nodes lie together, and are each other's measure. Requests that mostly
//! wait for IO: borne is then more than CPUs, and a claim is believed up to sixteen times the
//! others'; what such a node draws is bounded by its requests in flight (`policy::auto`) and its relative cost.
//! Where little is asked little is proven: then a node that lies draws more, if it is not much slower than
//! the others. Many front-ends: what is borne out wavers about the truth (64 CPUs among seven nodes of 4, 16
//! front-ends: 0.74 of its share by CPUs instead of 0.77).
//! Source: Little's law.

/// What a node may have room for beside what it was seen to do.
const ROOM: f64 = 4.0;
/// Most that is credited, in what the weight says.
const CREDIT_MAX: f64 = 16.0;
/// What is credited before there was time to show anything, in the same.
const CREDIT_YOUNG: f64 = 2.0;
/// Of decayed seconds: a second and a half.
const YOUNG: f64 = 1.0;
/// Least time that a rate is taken over, seconds.
const SECONDS_MIN: f64 = 0.1;

/// Own successes at a node, and the time that they took to come; both decay.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Served {
    successes: f64,
    seconds: f64,
}

impl Served {
    /// Time passes: so many seconds, after which `keep` is left of what was before.
    pub(super) fn on_tick(&mut self, successes: f64, seconds: f64, keep: f64) {
        self.successes = self.successes * keep + successes;
        self.seconds = self.seconds * keep + seconds;
    }

    /// Successes and seconds, for the next process.
    pub(super) fn learned(&self) -> [f64; 2] {
        [self.successes, self.seconds]
    }

    /// Of what was known before.
    pub(super) fn recalled([successes, seconds]: [f64; 2]) -> Self {
        Self { successes, seconds }
    }

    /// Whether there was no time yet to show anything.
    pub(super) fn is_young(&self) -> bool {
        self.seconds < YOUNG
    }

    /// Own successes per second.
    pub(super) fn rate(&self) -> f64 {
        self.successes / self.seconds.max(SECONDS_MIN)
    }
}

/// What speaks for a node's CPUs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    /// CPUs that its record claims.
    pub(super) claimed: f64,
    /// Its configured weight.
    pub(super) weight: f64,
    /// Successes of all front-ends per second, by own ones.
    pub(super) rate: f64,
    /// S of the others.
    pub(super) service: f64,
    /// Whether there was no time yet to show anything.
    pub(super) young: bool,
}

impl Claim {
    /// What counts for its weight: one without a use is one.
    fn weight(&self) -> f64 {
        if self.weight > 0.0 { self.weight } else { 1.0 }
    }

    /// The credit, where the others say so much per weight.
    pub(super) fn credit(&self, per_weight: Option<f64>) -> f64 {
        let Some(per_weight) = per_weight else {
            return self.claimed;
        };
        let usual = self.weight() * per_weight;
        let least = if self.young {
            CREDIT_YOUNG * usual
        } else {
            usual
        };
        let borne = ROOM * self.rate * self.service;
        self.claimed.min(least.max(borne.min(CREDIT_MAX * usual)))
    }
}

/// c0; none of fewer than two. A node above it is not its own measure: without that node the others' lower
/// median is the same.
pub(super) fn per_weight<'a>(claims: impl Iterator<Item = &'a Claim>) -> Option<f64> {
    let mut all: Vec<f64> = claims.map(|it| it.claimed / it.weight()).collect();
    let middle = all.len().checked_sub(2)? / 2;
    let (_, median, _) = all.select_nth_unstable_by(middle, f64::total_cmp);
    Some(*median)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(claimed: f64, rate: f64) -> Claim {
        Claim {
            claimed,
            weight: 1.0,
            rate,
            service: 0.01,
            young: false,
        }
    }

    fn median(claimed: &[f64]) -> Option<f64> {
        let claims: Vec<_> = claimed.iter().map(|it| claim(*it, 0.0)).collect();
        per_weight(claims.iter())
    }

    #[test]
    fn no_node_above_the_others_is_its_own_measure() {
        assert_eq!((median(&[]), median(&[64.0])), (None, None));
        assert_eq!(median(&[8192.0, 4.0]), Some(4.0));
        assert_eq!(median(&[4.0, 8192.0, 4.0]), Some(4.0));
        assert_eq!(median(&[8192.0, 2.0, 8192.0, 4.0, 8.0]), Some(4.0));
        let weighted = Claim {
            weight: 4.0,
            ..claim(16.0, 0.0)
        };
        assert_eq!(per_weight([weighted, weighted].iter()), Some(4.0));
    }

    #[test]
    fn what_is_claimed_counts_as_far_as_it_is_borne_out() {
        let credit = |claimed, rate| claim(claimed, rate).credit(Some(4.0));
        // No more than it claims, and nothing is needed for what its weight says.
        assert_eq!((credit(2.0, 1e6), credit(4.0, 0.0)), (2.0, 4.0));
        assert_eq!((credit(64.0, 0.0), credit(8192.0, 0.0)), (4.0, 4.0));
        // 200 requests of 10 ms a second keep two CPUs busy, and eight are believed.
        assert_eq!((credit(64.0, 200.0), credit(6.0, 200.0)), (8.0, 6.0));
        assert_eq!((credit(64.0, 1600.0), credit(8192.0, 1e6)), (64.0, 64.0));
        let young = Claim {
            young: true,
            ..claim(64.0, 0.0)
        };
        assert_eq!(young.credit(Some(4.0)), 8.0);
    }

    #[test]
    fn a_weight_speaks_for_a_node_and_others_that_say_nothing_do_not_speak_against_it() {
        let heavy = Claim {
            weight: 16.0,
            ..claim(64.0, 0.0)
        };
        assert_eq!(heavy.credit(Some(4.0)), 64.0);
        assert_eq!(claim(64.0, 0.0).credit(None), 64.0);
        let none = Claim {
            weight: 0.0,
            ..claim(4.0, 0.0)
        };
        assert_eq!(none.credit(Some(4.0)), 4.0);
    }

    #[test]
    fn a_rate_is_right_from_the_first_moment_on() {
        let mut served = Served::default();
        assert_eq!(served.rate(), 0.0);
        for _ in 0..300 {
            served.on_tick(1.0, 0.001, (-0.001f64 / 2.0).exp());
        }
        assert!((served.rate() - 1000.0).abs() < 1e-6, "{}", served.rate());
    }
}
