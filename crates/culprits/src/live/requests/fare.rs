//! How requests fare that are none of some classes': what they take, and what part of them is held back.
//!
//! ```text
//! seconds   = p95 of (wait for room + time at the server), of the site where that is worst
//! held back = part that was refused, or waited for long,   of the site where that is worst
//! took      = median of the time at the server
//! ```
//!
//! It is looked at the last five seconds, and at what is in progress by its age. Failure case: a site with too few
//! requests tells nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate_core::classes::ClassId;
use tidegate_core::stats::quantile;
use tidegate_core::time::Timestamp;

use super::Requests;

/// How far back it is looked how long requests take, and the least of them that tell.
pub(super) const LATENCY_WINDOW: Duration = Duration::from_secs(5);
const LATENCY_REQUESTS_MIN: usize = 20;
/// The least of a class that tell what one takes at the servers.
const TOOK_REQUESTS_MIN: usize = 10;
/// Most requests that are looked at for it: the last ones.
pub(super) const LATE_MAX: usize = 100_000;

/// What became of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fared {
    class: ClassId,
    pub(super) at: Timestamp,
    /// Time that it waited for room, and all of its time from then on, seconds; none if it was refused.
    took: Option<(f64, f64)>,
}

/// How requests of other classes fare.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(in crate::live) struct OthersFare {
    /// What 95 of 100 of them take, in seconds, waiting for room included; none if there are too few.
    pub(in crate::live) seconds: Option<f64>,
    /// Part of them that was refused, or waited for long.
    pub(in crate::live) held_back: f64,
}

impl Requests {
    pub(super) fn note(&mut self, class: ClassId, at: Timestamp, took: Option<(f64, f64)>) {
        if self.late.len() >= LATE_MAX {
            self.late.pop_front();
        }
        self.late.push_back(Fared { class, at, took });
    }

    /// What requests of these classes take at the servers, seconds: the median of those that ended of late; none if there
    /// are too few.
    pub(in crate::live) fn take_at_servers(
        &self,
        of: &dyn Fn(&str) -> bool,
        now: Timestamp,
    ) -> Option<f64> {
        let of: Vec<bool> = self.names().iter().map(|name| of(name)).collect();
        let since = now - LATENCY_WINDOW;
        let counts = |it: &&Fared| it.at >= since && of.get(it.class.index()) == Some(&true);
        let late = self.late.iter().filter(counts);
        let mut took: Vec<f64> = late
            .filter_map(|it| it.took.map(|(waited, all)| all - waited))
            .collect();
        (took.len() >= TOOK_REQUESTS_MIN).then(|| quantile(&mut took, 0.5))?
    }

    /// How requests of classes but these fare, those in progress by their age; of the site where that is worst.
    /// What waits for room longer than `long`, seconds, is held back.
    pub(in crate::live) fn others_fare(
        &self,
        but: &dyn Fn(&str) -> bool,
        long: f64,
        now: Timestamp,
    ) -> OthersFare {
        let names = self.names();
        let several = self.are_several();
        let sites: Vec<Option<&str>> = (names.iter())
            .map(|name| {
                let site = name.split(' ').next().filter(|_| several);
                (!but(name)).then(|| site.unwrap_or_default())
            })
            .collect();
        let site = |class: ClassId| sites.get(class.index()).copied().flatten();
        let since = now - LATENCY_WINDOW;
        let late = self.late.iter().filter(|it| it.at >= since);
        let late = late.map(|it| (it.class, it.took));
        let own = self.in_progress.values().map(|it| {
            let waited = it.sent.seconds_since(it.asked);
            (it.class, Some((waited, now.seconds_since(it.asked))))
        });
        let peers = self.peers.iter().flat_map(|it| &it.unfinished);
        let peers = peers.map(|(class, sent)| (*class, Some((0.0, now.seconds_since(*sent)))));
        // Times of those that were let in, and how many were held back.
        let mut by_site: BTreeMap<&str, (Vec<f64>, usize, usize)> = BTreeMap::new();
        for (class, took) in late.chain(own).chain(peers) {
            let Some(site) = site(class) else { continue };
            let (seconds, all, held_back) = by_site.entry(site).or_default();
            *all += 1;
            *held_back += usize::from(took.is_none_or(|(waited, _)| waited > long));
            seconds.extend(took.map(|(_, seconds)| seconds));
        }
        let enough = |many: usize| many >= LATENCY_REQUESTS_MIN;
        let mut worst = OthersFare::default();
        for (mut seconds, all, held_back) in by_site.into_values() {
            if enough(all) {
                worst.held_back = worst.held_back.max(held_back as f64 / all as f64);
            }
            if enough(seconds.len())
                && let Some(p95) = quantile(&mut seconds, 0.95)
            {
                worst.seconds = Some(worst.seconds.map_or(p95, |it| it.max(p95)));
            }
        }
        worst
    }
}
