//! Requests as they come and go: folded into classes, handed to discovery, and the last minute of them
//! kept for the picture.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use tidegate_core::classes::{ClassId, ClassTable, Pattern, SLOTS, TreeConfig, Weight};
use tidegate_core::culprits::{Discovery, Request};
use tidegate_core::time::Timestamp;
use tidegate_proxy::{Event, Observed, Words};

use super::super::evidence::Lived;

/// How long ended requests are kept.
const KEPT: Duration = Duration::from_secs(60);
/// Most of them; where there are more the picture shows the last ones.
const KEPT_MAX: usize = 200_000;
/// Most requests in progress that are followed.
const IN_PROGRESS_MAX: usize = 65_536;
/// What a look, each 20 ms, adds to the smoothed number in progress: 5 s.
const SMOOTHING: f64 = 0.004;
/// How far back it is looked how long requests take, and the least of them that tell.
const LATENCY_WINDOW: Duration = Duration::from_secs(5);
const LATENCY_REQUESTS_MIN: usize = 20;
/// Time between two looks at which classes weigh enough for a name.
const RANK_EVERY: Duration = Duration::from_secs(10);

/// See the module. Times are the process's.
#[derive(Debug)]
pub(super) struct Requests {
    observed: Observed,
    table: ClassTable,
    /// By number; empty where there is only one.
    sites: Vec<String>,
    in_progress: HashMap<u64, Begun>,
    ended: VecDeque<Lived>,
    /// By class: requests in progress, and the same smoothed.
    counts: Vec<u32>,
    levels: Vec<f64>,
    /// Times at which a ring had run full.
    pub(super) overflows: u64,
    ranked: Timestamp,
}

#[derive(Clone, Copy, Debug)]
struct Begun {
    class: ClassId,
    sent: Timestamp,
    site: u32,
    words: Words,
}

impl Requests {
    /// Of these sites, with what operators want named.
    pub(super) fn new(observed: Observed, sites: Vec<String>, patterns: Vec<Pattern>) -> Self {
        let sites = if sites.len() > 1 { sites } else { Vec::new() };
        Self {
            observed,
            table: ClassTable::new(patterns, TreeConfig::default()),
            sites,
            in_progress: HashMap::new(),
            ended: VecDeque::new(),
            counts: vec![0; SLOTS],
            levels: vec![0.0; SLOTS],
            overflows: 0,
            ranked: Timestamp::ZERO,
        }
    }

    /// Takes in what workers have told since.
    pub(super) fn drain(&mut self, discovery: &mut Discovery, now: Timestamp) {
        let mut observed = std::mem::take(&mut self.observed);
        let full = observed.drain(|event| self.take(event, discovery));
        self.observed = observed;
        if full {
            // Ends are missing: what seems to be in progress may be over.
            self.overflows += 1;
            self.in_progress.clear();
            self.counts.fill(0);
        }
        for (level, count) in self.levels.iter_mut().zip(&self.counts) {
            *level += SMOOTHING * (f64::from(*count) - *level);
        }
        let since = Timestamp::from_nanos(now.nanos().saturating_sub(KEPT.as_nanos() as u64));
        while self.ended.front().is_some_and(|lived| lived.ended < since) {
            self.ended.pop_front();
        }
        if now.since(self.ranked) >= RANK_EVERY {
            self.ranked = now;
            self.table.rank(now);
        }
    }

    fn take(&mut self, event: Event, discovery: &mut Discovery) {
        match event {
            Event::Sent {
                id,
                at,
                site,
                words,
            } => {
                if self.in_progress.len() < IN_PROGRESS_MAX {
                    let class = self.fold(site.0, &words, Weight::ARRIVAL);
                    let begun = Begun {
                        class,
                        sent: at,
                        site: site.0,
                        words,
                    };
                    self.in_progress.insert(id, begun);
                    self.counts[class.index()] += 1;
                }
            }
            Event::Ended { id, at } => {
                if let Some(begun) = self.in_progress.remove(&id) {
                    let count = &mut self.counts[begun.class.index()];
                    *count = count.saturating_sub(1);
                    let seconds = at.seconds_since(begun.sent);
                    self.fold(begun.site, &begun.words, Weight::time(seconds));
                    self.end(begun.class, begun.sent, at, discovery);
                }
            }
        }
    }

    fn end(
        &mut self,
        class: ClassId,
        sent: Timestamp,
        ended: Timestamp,
        discovery: &mut Discovery,
    ) {
        discovery.on_request(&Request {
            class,
            sent,
            ended: Some(ended),
        });
        if self.ended.len() >= KEPT_MAX {
            self.ended.pop_front();
        }
        self.ended.push_back(Lived { class, sent, ended });
    }

    fn fold(&mut self, site: u32, words: &Words, weight: Weight) -> ClassId {
        let site = self.sites.get(site as usize).map_or("", String::as_str);
        let request = tidegate_core::classes::Request {
            site,
            method: words.method(),
            target: words.target(),
        };
        self.table.add(&request, weight)
    }

    /// Tells discovery who is in progress.
    pub(super) fn tell_unfinished(&self, discovery: &mut Discovery) {
        discovery.forget_unfinished();
        for (class, sent) in self.unfinished() {
            discovery.on_request(&Request {
                class,
                sent,
                ended: None,
            });
        }
    }

    /// Class and begin of each request in progress.
    pub(super) fn unfinished(&self) -> impl Iterator<Item = (ClassId, Timestamp)> {
        self.in_progress
            .values()
            .map(|begun| (begun.class, begun.sent))
    }

    /// Requests that ended in the last minute.
    pub(super) fn ended(&self) -> impl Iterator<Item = &Lived> {
        self.ended.iter()
    }

    /// Requests of a class that are in progress, smoothed over some seconds.
    pub(super) fn in_progress(&self, class: ClassId) -> f64 {
        self.levels.get(class.index()).copied().unwrap_or_default()
    }

    /// What 95 of 100 requests of classes but these take, in seconds, those in progress by their age; of the
    /// site where that is longest. None if there are too few.
    pub(super) fn others_take(&self, but: &BTreeSet<&str>, now: Timestamp) -> Option<f64> {
        let names = self.names();
        let site = |class: ClassId| {
            let name = names.get(class.index()).map_or("", String::as_str);
            let several = !self.sites.is_empty();
            let site = if several {
                name.split(' ').next()
            } else {
                None
            };
            (!but.contains(name)).then(|| site.unwrap_or_default())
        };
        let since = now - LATENCY_WINDOW;
        let late = self.ended.iter().rev();
        let late = late.take_while(|lived| lived.ended >= since);
        let late = late.map(|it| (it.class, it.ended.seconds_since(it.sent)));
        let waiting = self
            .unfinished()
            .map(|(class, sent)| (class, now.seconds_since(sent)));
        let mut by_site: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        for (class, seconds) in late.chain(waiting) {
            if let Some(site) = site(class) {
                by_site.entry(site).or_default().push(seconds);
            }
        }
        let enough = by_site
            .into_values()
            .filter(|it| it.len() >= LATENCY_REQUESTS_MIN);
        enough
            .map(|mut all| {
                let place = (all.len() - 1) * 95 / 100;
                *all.select_nth_unstable_by(place, f64::total_cmp).1
            })
            .max_by(f64::total_cmp)
    }

    /// All names, by number; empty where there is none.
    pub(super) fn names(&self) -> Vec<String> {
        (0..SLOTS)
            .map(|number| self.table.name(ClassId(number as u16)).unwrap_or_default())
            .collect()
    }
}
