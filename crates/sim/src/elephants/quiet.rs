//! Hours without elephants: how often a class is accused that did nothing.
//!
//! Four kinds of sites in turn: nothing beside the requests, jobs outside of requests that wander, a cron job
//! and random shots, crowds that come and go. An accusation is a class that begins to be named while
//! it is innocent, as labels have it, over the 30 s before.
//!
//! ```text
//! bound    the rate at which so few accusations, or fewer, have a chance of 5 %
//! ```

use std::collections::BTreeSet;

use tidegate_core::culprits::Verdict;
use tidegate_core::prng::Prng;

use super::draw::{Plan, between, log_between, plain, site, whole};
use super::label::{Label, Truth, truths, truths_between};
use super::replay::Replay;
use super::score::Named;
use super::site::{Background, Onset, Site, Traffic};
use super::trace::{Resource, Trace};
use super::world;

/// What some hours came to.
#[derive(Clone, Debug, Default)]
pub struct Quiet {
    /// Hours simulated.
    pub hours: f64,
    /// Evaluations made.
    pub evaluations: u64,
    /// Innocents that single evaluations named.
    pub named: u64,
    /// Innocents that were named, a line each.
    pub flagged: Vec<String>,
    /// How many of them within two minutes of a site's start.
    pub at_start: usize,
}

/// How long a site has just started, seconds.
const START: f64 = 120.0;

impl Quiet {
    /// Adds another's.
    pub fn merge(&mut self, other: Self) {
        self.hours += other.hours;
        self.evaluations += other.evaluations;
        self.named += other.named;
        self.flagged.extend(other.flagged);
        self.at_start += other.at_start;
    }

    /// False accusations in 24 hours.
    pub fn per_day(&self) -> f64 {
        self.flagged.len() as f64 * 24.0 / self.hours
    }

    /// The same of those that came after a site's start.
    pub fn later_per_day(&self) -> f64 {
        (self.flagged.len() - self.at_start) as f64 * 24.0 / self.hours
    }

    /// Upper end of the one-sided 95 % interval of all.
    pub fn per_day_bound(&self) -> f64 {
        most_likely(self.flagged.len()) * 24.0 / self.hours
    }
}

/// Runs one site without elephants for so many seconds.
pub fn run(seed: u64, seconds: f64) -> Quiet {
    let (site, _) = quiet_site(seed, seconds, 0);
    let trace = world::run(&site, seed);
    judge(&trace, seed, Replay::new(&trace))
}

/// What the discovery says of a site without elephants.
pub(super) fn judge(trace: &Trace, seed: u64, replay: Replay<'_>) -> Quiet {
    let mut quiet = Quiet {
        hours: trace.length / 3600.0,
        ..Quiet::default()
    };
    let mut before = BTreeSet::new();
    for turn in replay {
        for (resource, verdicts) in &turn.verdicts {
            quiet.evaluations += 1;
            let named = Named::of(verdicts.named());
            let flagged = Named::of(verdicts.flagged());
            if !named.classes.is_empty() || !flagged.classes.is_empty() {
                let truths = truths(trace, *resource, turn.at);
                let innocent = |class: &usize, with: &[usize]| {
                    let mut all = with.iter().chain([class]);
                    all.all(|class| truths[*class].label == Label::Innocent)
                };
                let wrong = named
                    .classes
                    .iter()
                    .filter(|(class, it)| innocent(class, &it.with));
                quiet.named += wrong.count() as u64;
                for (class, it) in &flagged.classes {
                    if innocent(class, &it.with) && !before.contains(class) {
                        let place = format!("seed {seed} at {} s: class {class}", turn.at);
                        let seen = verdicts.classes.iter();
                        let seen = seen.filter(|seen| usize::from(seen.class.0) == *class);
                        let seen: String = seen.map(found).collect();
                        let Truth {
                            share,
                            cost_seconds,
                            ..
                        } = truths[*class];
                        let (share, cost) = (100.0 * share, 1e3 * cost_seconds);
                        let life = 1e3 * mean_life(trace, *class);
                        let full = 100.0 * verdicts.full;
                        quiet.at_start += usize::from(turn.at <= START);
                        quiet.flagged.push(format!(
                            "{place}, {share:.1} % of the capacity, {cost:.1} ms each in {life:.1} ms{seen}, {full:.0} % full"
                        ));
                    }
                }
            }
            before = flagged.classes.into_keys().collect();
        }
    }
    quiet
}

/// An elephant that came to a site that had run for minutes.
#[derive(Clone, Copy, Debug)]
pub struct Late {
    /// Part of the capacity that it used.
    pub share: f64,
    /// After how many seconds it was named, if it was within three minutes.
    pub delay: Option<f64>,
}

/// How long it takes, on a site as in [`run`], until an elephant is named that comes after so many
/// seconds; none if what came is no culprit by the labels.
pub fn late(seed: u64, after: f64) -> Option<Late> {
    let (site, elephants) = quiet_site(seed, after + LATE_SECONDS, 1);
    comes(site, *elephants.first()?, absent(after), seed)
}

/// The same of one that was there before, with a tenth of the cost.
pub fn dearer(seed: u64, after: f64) -> Option<Late> {
    let (site, elephants) = quiet_site(seed, after + LATE_SECONDS, 1);
    let before = Onset {
        at: after,
        rate: 1.0,
        work: 0.1,
    };
    comes(site, *elephants.first()?, before, seed)
}

/// The same of one that asks for more than there is, soon after the start: most of what is seen of it is seen
/// while the resource is full.
pub fn flood(seed: u64) -> Option<Late> {
    let mut prng = Prng::new(seed ^ 0x0f10_0d00_0000_0000);
    let after = between(&mut prng, (10.0, 60.0));
    let plan = Plan {
        classes: (10, 30),
        rate: (100.0, 800.0),
        elephants: (1, 1),
        share: (0.6, 0.75),
        cost: (0.02, 0.2),
        small: Some((0.3, 0.45)),
        seconds: after + LATE_SECONDS,
        ..Plan::default()
    };
    let (site, elephants) = site(&plan, &mut prng);
    comes(site, *elephants.first()?, absent(after), seed)
}

/// Not there before.
pub(super) fn absent(at: f64) -> Onset {
    Onset {
        at,
        rate: 0.0,
        work: 1.0,
    }
}

fn comes(mut site: Site, elephant: u16, onset: Onset, seed: u64) -> Option<Late> {
    site.onset = onset.at;
    site.classes[usize::from(elephant)].onset = Some(onset);
    let trace = world::run(&site, seed);
    found_late(&trace, elephant, Replay::new(&trace))
}

/// How long after its onset an elephant is named; none if it is no culprit by the labels.
pub(super) fn found_late(trace: &Trace, elephant: u16, mut replay: Replay<'_>) -> Option<Late> {
    let (elephant, after) = (usize::from(elephant), trace.onset);
    let truths = truths_between(trace, Resource::Database, after, after + LATE_SECONDS);
    let truth = truths[elephant];
    let flagged = replay.find(|turn| {
        let mut flagged = turn.verdicts.iter().flat_map(|(_, it)| it.flagged());
        flagged.any(|verdict| usize::from(verdict.class.0) == elephant)
    });
    (truth.label == Label::Culprit).then(|| Late {
        share: truth.share,
        delay: flagged.map(|turn| turn.at - after),
    })
}

/// A site that others' jobs fill, with a class that is merely slow on it.
#[derive(Clone, Debug, Default)]
pub struct Nobodys {
    /// Innocents that were named, a line each.
    pub flagged: Vec<String>,
    /// How many of them were the slow class.
    pub slow: usize,
    /// Elephants that were not, a line each.
    pub missed: Vec<String>,
    /// Elephants that were there.
    pub elephants: usize,
    /// Those of them that were named.
    pub found: usize,
}

impl Nobodys {
    /// Adds another's.
    pub fn merge(&mut self, other: Self) {
        self.flagged.extend(other.flagged);
        self.missed.extend(other.missed);
        self.slow += other.slow;
        self.elephants += other.elephants;
        self.found += other.found;
    }
}

/// Downloads at a set pace, which need no CPU, while jobs that no request asked for fill all of it: from the start
/// (even seeds) or after a minute. On each third site an elephant comes as well, half a minute after the start.
pub fn nobodys(seed: u64) -> Nobodys {
    let mut prng = Prng::new(seed ^ 0x0b0d_1e50_0000_0000);
    let plan = Plan {
        classes: (5, 30),
        rate: (20.0, 300.0),
        elephants: if seed % 3 == 2 { (1, 1) } else { (0, 0) },
        share: (0.3, 0.6),
        cost: (0.02, 0.2),
        small: Some((0.03, 0.2)),
        seconds: NOBODYS_SECONDS,
        ..Plan::default()
    };
    let (mut site, elephants) = site(&plan, &mut prng);
    for elephant in &elephants {
        site.classes[usize::from(*elephant)].onset = Some(absent(30.0));
    }
    let slow = site.classes.len();
    let rate = between(&mut prng, (0.3, 3.0));
    let mut class = plain(&mut prng, rate, None);
    class.db = 1e-4;
    let pace = between(&mut prng, (2.0, 12.0));
    // Downloads of one size, or of all sizes.
    match prng.unit() < 0.5 {
        true => class.paced = pace,
        false => class.wait_after = pace,
    }
    site.classes.push(class);
    let from = if seed.is_multiple_of(2) { 0.0 } else { 60.0 };
    let cores = site.db_cores;
    let (every, many) = (between(&mut prng, (1.0, 4.0)), whole(&mut prng, (2, 8)));
    let work = between(&mut prng, (0.9, 1.3)) * every * cores / many as f64;
    site.background.push(Background::Builds {
        from,
        every,
        many,
        work,
    });
    let trace = world::run(&site, seed);
    judge_nobodys(&trace, seed, slow)
}

const NOBODYS_SECONDS: f64 = 150.0;

fn judge_nobodys(trace: &Trace, seed: u64, slow: usize) -> Nobodys {
    let mut found = Nobodys::default();
    let (mut there, mut named, mut before) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for turn in Replay::new(trace) {
        let truths = truths(trace, Resource::Database, turn.at);
        let culprits = (0..truths.len()).filter(|it| truths[*it].label == Label::Culprit);
        there.extend(culprits);
        for (_, verdicts) in &turn.verdicts {
            let flagged = Named::of(verdicts.flagged()).classes;
            for class in flagged.keys() {
                named.insert(*class);
                let new = !before.contains(class) && truths[*class].label == Label::Innocent;
                if new {
                    found.slow += usize::from(*class == slow);
                    let mut seen = verdicts.classes.iter();
                    let seen = seen.find(|seen| usize::from(seen.class.0) == *class);
                    let how = seen.and_then(|seen| seen.culprit);
                    let share = seen.map_or(0.0, |seen| 100.0 * seen.share);
                    found.flagged.push(format!(
                        "seed {seed} at {} s: class {class}{}, thought {share:.0} %, {:.0} % full, {}",
                        turn.at,
                        if *class == slow { " (slow)" } else { "" },
                        100.0 * verdicts.full,
                        how.map_or("-", |it| it.label()),
                    ));
                }
            }
            before = flagged.into_keys().collect();
        }
    }
    for class in there.difference(&named) {
        found.missed.push(format!("seed {seed}: class {class}"));
    }
    found.elephants = there.len();
    found.found = there.intersection(&named).count();
    found
}

/// How long an elephant is waited for.
pub(super) const LATE_SECONDS: f64 = 180.0;

/// Of all requests of a class that ended, seconds.
fn mean_life(trace: &Trace, class: usize) -> f64 {
    let of = trace
        .requests
        .iter()
        .filter(|it| usize::from(it.class.0) == class);
    let lives = of.filter_map(|it| Some(it.ended?.since(it.sent).as_secs_f64()));
    let (sum, count) = lives.fold((0.0, 0.0), |(sum, count), life| (sum + life, count + 1.0));
    sum / f64::max(count, 1.0)
}

/// What was thought of it.
fn found(seen: &Verdict) -> String {
    format!(
        "; thought {:.1} %, {:.1} ms, t {:.1}, z {:.1}, rm {:.2}, {:.0} requests in {} s",
        100.0 * seen.share,
        1e3 * seen.cost_seconds,
        seen.t,
        seen.z,
        seen.shift_ratio,
        seen.requests,
        seen.window.as_secs_f64(),
    )
}

/// Sites of four kinds in turn, each with so many elephants.
pub(super) fn quiet_site(seed: u64, seconds: f64, elephants: usize) -> (Site, Vec<u16>) {
    let mut prng = Prng::new(seed ^ 0x5bd1_e995_0000_0000);
    let plan = Plan {
        classes: (10, 60),
        rate: (40.0, 530.0),
        elephants: (elephants, elephants),
        share: (0.06, 0.4),
        small: Some((0.12, 0.35)),
        seconds,
        ..Plan::default()
    };
    let (mut site, elephants) = site(&plan, &mut prng);
    let cores = site.db_cores;
    match seed % 4 {
        0 => {}
        1 => {
            let work = log_between(&mut prng, (0.002, 0.05));
            let rate = between(&mut prng, (0.1, 0.25)) * cores / work;
            let lasts = between(&mut prng, (2.0, 20.0));
            site.background
                .push(Background::Wandering { rate, work, lasts });
        }
        2 => {
            let period = between(&mut prng, (5.0, 60.0));
            let work = between(&mut prng, (0.02, 0.15)) * period * cores;
            let phase = prng.unit() * period;
            site.background.push(Background::Cron {
                period,
                phase,
                work,
            });
            let work = log_between(&mut prng, (0.1, 1.0));
            site.background.push(Background::Wandering {
                rate: 0.2,
                work,
                lasts: 30.0,
            });
        }
        _ => {
            let times = between(&mut prng, (1.5, 2.5));
            site.traffic = Traffic::Bursts {
                times,
                length: 8.0,
                gap: 60.0,
            };
        }
    }
    (site, elephants)
}

/// The mean of a Poisson variate that is this small, or smaller, with a chance of 5 %.
fn most_likely(count: usize) -> f64 {
    let chance = |mean: f64| {
        let mut term = (-mean).exp();
        let mut sum = term;
        for k in 1..=count {
            term *= mean / k as f64;
            sum += term;
        }
        sum
    };
    let (mut low, mut high) = (0.0, 20.0 + 3.0 * count as f64);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if chance(middle) > 0.05 {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_of_few_are_the_tables() {
        for (count, bound) in [(0, 2.996), (1, 4.744), (5, 10.513)] {
            assert!((most_likely(count) - bound).abs() < 1e-3, "{count}");
        }
    }

    #[test]
    fn some_minutes_of_nothing_accuse_hardly_anybody() {
        let mut all = Quiet::default();
        (0..4).for_each(|seed| all.merge(run(seed, 120.0)));
        // Of 40 classes and more on each of four sites.
        assert!(all.flagged.len() <= 2, "{:#?}", all.flagged);
        assert_eq!(all.evaluations, 4 * 48);
    }

    #[test]
    fn who_is_merely_slow_does_not_get_the_work_of_others() {
        let mut all = Nobodys::default();
        // Jobs begin after a minute; seeds of all elephants that come.
        for seed in [1, 5, 7, 9, 15, 25] {
            all.merge(nobodys(seed));
        }
        assert_eq!(all.slow, 0, "{:#?}", all.flagged);
        assert_eq!(all.found, all.elephants, "{:?}", all.missed);
        assert!(all.elephants > 0);
    }

    #[test]
    fn a_job_that_fills_the_resource_now_and_then_is_blamed_on_nobody_who_comes_often() {
        let found = run(2086, 200.0);
        let frequent = found
            .flagged
            .iter()
            .filter(|line| line.contains("class 1,"));
        assert_eq!(frequent.count(), 0, "{:#?}", found.flagged);
    }
}
