//! Requests as they come and go: folded into classes, handed to discovery, and the last minute of them
//! kept for the picture.
//!
//! Classes carry their site's name as soon as there has been more than one site. Those that there were before get that of
//! the site that was alone, with their numbers and all that is known of them.

mod fare;
mod known;
mod shipped;

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use tidegate_core::classes::{
    self, Change, ClassId, ClassTable, Pattern, Place, SLOTS, TreeConfig, Weight, Words,
};
use tidegate_core::culprits::{Discovery, Request, RequestEvent};
use tidegate_core::time::Timestamp;

use super::exchange::{Outbox, Peer, SILENT};
use super::front_end::RequestEvents;
use crate::evidence::Lived;
use fare::{Fared, LATENCY_WINDOW};
use known::{ById, KnownWords};

/// How long ended requests are kept.
const KEPT: Duration = Duration::from_secs(60);
/// Most of them; where there are more the picture shows the last ones.
const KEPT_MAX: usize = 200_000;
/// Most requests in progress that are followed.
const IN_PROGRESS_MAX: usize = 65_536;
/// What a look, each 20 ms, adds to the smoothed number in progress: 5 s.
const SMOOTHING: f64 = 0.004;
/// Time between two looks at which classes weigh enough for a name.
const RANK_EVERY: Duration = Duration::from_secs(10);

/// See the module. Times are the process's.
#[derive(Debug)]
pub(super) struct Requests {
    table: ClassTable,
    known: KnownWords,
    /// By number; a place is a name's for good.
    sites: Vec<SiteName>,
    /// What was said of sites that are not known yet, and all that was said since.
    early: Vec<RequestEvent>,
    in_progress: HashMap<u64, Begun, ById>,
    ended: VecDeque<Lived>,
    /// How the last ones fared that ended or were refused.
    late: VecDeque<Fared>,
    /// By class: requests in progress, and the same smoothed.
    counts: Vec<u32>,
    levels: Vec<f64>,
    outbox: Outbox,
    peers: Vec<Peer>,
    /// Times at which a ring had run full.
    pub(super) overflows: u64,
    ranked: Timestamp,
}

/// A site.
#[derive(Clone, Debug)]
struct SiteName {
    name: String,
    is_served: bool,
}

#[derive(Clone, Copy, Debug)]
struct Begun {
    class: ClassId,
    place: Place,
    asked: Timestamp,
    sent: Timestamp,
    site: u32,
    words: Words,
}

impl Requests {
    /// Of sites that are to follow, with what operators want named, and of these other front-ends.
    pub(super) fn new(patterns: Vec<Pattern>, peers: &[SocketAddr]) -> Self {
        Self {
            table: ClassTable::new(patterns, TreeConfig::default()),
            known: KnownWords::default(),
            sites: Vec::new(),
            early: Vec::new(),
            in_progress: HashMap::default(),
            ended: VecDeque::new(),
            late: VecDeque::new(),
            counts: vec![0; SLOTS],
            levels: vec![0.0; SLOTS],
            outbox: Outbox::default(),
            peers: peers.iter().copied().map(Peer::new).collect(),
            overflows: 0,
            ranked: Timestamp::ZERO,
        }
    }

    /// These are the sites from now on, by their numbers. The name of the site that was alone until now, if classes are
    /// called by it from now on.
    pub(super) fn follow<'a>(
        &mut self,
        sites: impl Iterator<Item = (&'a str, bool)>,
    ) -> Option<String> {
        let was_one = self.sites.len() == 1;
        for (place, (name, is_served)) in sites.enumerate() {
            match self.sites.get_mut(place) {
                Some(site) => site.is_served = is_served,
                None => self.sites.push(SiteName {
                    name: name.to_owned(),
                    is_served,
                }),
            }
        }
        let alone = self.sites.first().filter(|_| was_one && self.are_several());
        let name = alone?.name.clone();
        self.table.rename_site("", &name);
        self.known = KnownWords::default();
        Some(name)
    }

    /// The site that classes belong to, if they carry no site's name.
    pub(super) fn alone(&self) -> Option<&str> {
        let first = self.sites.first().filter(|_| !self.are_several());
        first.map(|site| site.name.as_str())
    }

    /// Whether classes carry their site's name.
    fn are_several(&self) -> bool {
        self.sites.len() > 1
    }

    /// Whether requests of a class may still come: its site is served.
    pub(super) fn is_served(&self, class: ClassId) -> bool {
        let name = self.table.site(class).unwrap_or_default();
        let mut sites = self.sites.iter();
        let site = sites.find(|it| it.name == name);
        site.is_none_or(|it| it.is_served)
    }

    /// Takes in what waited for its site to be known; to be called after each [`drain`](Self::drain).
    pub(super) fn take_early(&mut self, discovery: &mut Discovery) {
        for event in std::mem::take(&mut self.early) {
            self.take(event, discovery);
        }
    }

    /// Nothing is in progress, and nothing has been for long.
    pub(super) fn is_quiet(&self) -> bool {
        self.in_progress.is_empty() && self.ended.is_empty() && self.late.is_empty()
    }

    /// Takes in what workers have said since.
    pub(super) fn drain(
        &mut self,
        events: &mut dyn RequestEvents,
        discovery: &mut Discovery,
        now: Timestamp,
    ) {
        let full = events.drain(&mut |event| self.hear(event, discovery));
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
        let recent = now - LATENCY_WINDOW;
        while self.late.front().is_some_and(|fared| fared.at < recent) {
            self.late.pop_front();
        }
        for peer in &mut self.peers {
            if peer.heard.is_none_or(|heard| now.since(heard) > SILENT) {
                peer.unfinished.clear();
            }
        }
        if now.since(self.ranked) >= RANK_EVERY {
            self.ranked = now;
            self.rank(discovery, now);
        }
    }

    /// Gives numbers to the classes that weigh enough. What is kept by number goes with the class, not with the number.
    fn rank(&mut self, discovery: &mut Discovery, now: Timestamp) {
        // Numbers that were given away since, to the first class to come, had no class before.
        while self.table.poll_change().is_some() {}
        self.table.rank(now);
        while let Some(change) = self.table.poll_change() {
            match change {
                Change::Named(class, _) => discovery.forget(class),
                // One that is still in progress when the number is another class's would count for that.
                Change::Retired(class) => self.fold_unfinished(class),
            }
        }
    }

    /// Requests of a class that are in progress have no class of their own any more.
    fn fold_unfinished(&mut self, class: ClassId) {
        let own = self.in_progress.values_mut().map(|it| &mut it.class);
        let peers = self.peers.iter_mut().flat_map(|it| &mut it.unfinished);
        let all = own.chain(peers.map(|it| &mut it.0));
        all.filter(|it| **it == class)
            .for_each(|it| *it = ClassId::OTHER);
        let count = std::mem::take(&mut self.counts[class.index()]);
        self.counts[ClassId::OTHER.index()] += count;
    }

    /// Takes an event of a site that is known; an end comes behind its begin, whatever site that is of.
    fn hear(&mut self, event: RequestEvent, discovery: &mut Discovery) {
        let is_known = match event {
            RequestEvent::Sent { site, .. } | RequestEvent::Refused { site, .. } => {
                site.index() < self.sites.len()
            }
            RequestEvent::Ended { .. } => true,
        };
        match is_known && self.early.is_empty() {
            true => self.take(event, discovery),
            false => self.early.push(event),
        }
    }

    fn take(&mut self, event: RequestEvent, discovery: &mut Discovery) {
        match event {
            RequestEvent::Sent {
                id,
                asked,
                at,
                site,
                words,
            } => {
                if self.in_progress.len() < IN_PROGRESS_MAX {
                    let (place, class) = self.fold(site.0, &words, Weight::ARRIVAL);
                    let begun = Begun {
                        class,
                        place,
                        asked,
                        sent: at,
                        site: site.0,
                        words,
                    };
                    self.in_progress.insert(id, begun);
                    self.counts[class.index()] += 1;
                }
            }
            RequestEvent::Ended { id, at } => {
                if let Some(begun) = self.in_progress.remove(&id) {
                    let count = &mut self.counts[begun.class.index()];
                    *count = count.saturating_sub(1);
                    let seconds = at.seconds_since(begun.sent);
                    let time = Weight::time(seconds);
                    if self.table.add_to(begun.place, time).is_none() {
                        self.fold_anew(begun.site, &begun.words, time);
                    }
                    self.outbox.add(begun.words, begun.site, begun.sent, at);
                    self.end(begun.class, begun.sent, at, discovery);
                    let waited = begun.sent.seconds_since(begun.asked);
                    self.note(begun.class, at, Some((waited, waited + seconds)));
                }
            }
            RequestEvent::Refused { at, site, words } => {
                let (_, class) = self.fold(site.0, &words, Weight::default());
                self.note(class, at, None);
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

    /// Counts a request: where others with the same words were counted, if that is known.
    fn fold(&mut self, site: u32, words: &Words, weight: Weight) -> (Place, ClassId) {
        if let Some(place) = self.known.place(site, words)
            && let Some(class) = self.table.add_to(place, weight)
        {
            return (place, class);
        }
        let folded = self.fold_anew(site, words, weight);
        self.known.note(site, words, folded.0);
        folded
    }

    fn fold_anew(&mut self, site: u32, words: &Words, weight: Weight) -> (Place, ClassId) {
        let own = self.sites.get(site as usize).filter(|_| self.are_several());
        let site = own.map_or("", |it| it.name.as_str());
        let (method, target) = (words.method(), words.target());
        self.table.fold(
            &classes::Request {
                site,
                method,
                target,
            },
            weight,
        )
    }

    /// Gives discovery what was in progress then.
    pub(super) fn tell_unfinished(&self, discovery: &mut Discovery, then: Timestamp) {
        discovery.forget_unfinished();
        for (class, sent) in self.unfinished().filter(|(_, sent)| *sent <= then) {
            discovery.on_request(&Request {
                class,
                sent,
                ended: None,
            });
        }
    }

    /// Class and begin of each request in progress.
    pub(super) fn unfinished(&self) -> impl Iterator<Item = (ClassId, Timestamp)> {
        let own = self.in_progress.values();
        let own = own.map(|begun| (begun.class, begun.sent));
        own.chain(
            self.peers
                .iter()
                .flat_map(|it| it.unfinished.iter().copied()),
        )
    }

    /// Requests that ended in the last minute.
    pub(super) fn ended(&self) -> impl Iterator<Item = &Lived> {
        self.ended.iter()
    }

    /// Requests of a class that are in progress, smoothed over some seconds.
    pub(super) fn in_progress(&self, class: ClassId) -> f64 {
        self.levels.get(class.index()).copied().unwrap_or_default()
    }

    /// What throttles of the requests of classes call them, by number.
    pub(super) fn class_patterns(&self) -> Vec<Option<String>> {
        (0..SLOTS)
            .map(|number| self.table.class_pattern(ClassId(number as u16)))
            .collect()
    }

    /// All names, by number; empty where there is none.
    pub(super) fn names(&self) -> Vec<String> {
        (0..SLOTS)
            .map(|number| self.table.name(ClassId(number as u16)).unwrap_or_default())
            .collect()
    }
}

#[cfg(test)]
mod tests;
