//! The resources that are watched: whose counters make them up, what was found of each, and when it is
//! looked at next.

use std::collections::BTreeMap;

use tidegate_core::classes::ClassId;
use tidegate_core::culprits::{Basis, Discovery, EVERY, ResourceId, Verdicts};
use tidegate_core::load::Counters;
use tidegate_core::time::Timestamp;

use super::cluster::{Cluster, Members, Owned, Owner, Source};
use super::front_end::UnreadNode;
use super::past::PastUse;
use super::policy::Pressed;
use super::series::{Kind, Series};
use crate::picture::ResourceMaterial;
use crate::picture::report::Past;
use crate::resource::{Span, Unit};

/// Most resources that are watched.
pub(super) const RESOURCES_MAX: usize = 16;

/// One of them.
#[derive(Debug)]
pub(super) struct Watched {
    /// Its name.
    pub(super) name: String,
    /// The node that it belongs to; none if it is all of a site.
    node: Option<String>,
    owner: Owner,
    series: Series,
    /// Its number.
    pub(super) id: ResourceId,
    /// When it is evaluated next.
    due: Timestamp,
    /// What was found of it last.
    pub(super) verdicts: Option<Verdicts>,
    /// What they rest on.
    basis: Basis,
    /// Since when classes are named.
    pub(super) named_at: BTreeMap<ClassId, Timestamp>,
    past: PastUse,
}

/// A source and where it counts: which resource, which member of it.
#[derive(Debug)]
struct Tap {
    source: Source,
    to: Vec<(usize, usize)>,
    /// Its name, until it is known to count in ticks of the timer.
    coarse: Option<String>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct WatchedAll {
    /// By kind, and then by owner.
    all: Vec<Watched>,
    taps: Vec<Tap>,
    /// Whose they are.
    owned: Vec<Owned>,
    /// Of which members.
    version: (u64, u64),
    left_out: usize,
    /// Names of nodes whose CPU time is known to a tick only.
    coarse: BTreeMap<Source, String>,
}

impl WatchedAll {
    /// Watches what there is now: all sites' nodes, and all nodes that are resources alone. What is watched no more is
    /// handed over before its number is another one's.
    pub(super) fn follow(&mut self, members: &Members, mut gone: impl FnMut(Watched)) {
        self.version = members.version();
        let owned = members.owned();
        if owned == self.owned {
            return;
        }
        // All CPUs before all disks: where there is no room for all, CPUs tell more.
        let kinds = Kind::ALL.into_iter();
        let wanted = kinds.flat_map(|kind| owned.iter().map(move |owned| (kind, owned)));
        self.left_out = (Kind::ALL.len() * owned.len()).saturating_sub(RESOURCES_MAX);
        let wanted: Vec<_> = wanted.take(RESOURCES_MAX).collect();
        let is_wanted = |it: &Watched| {
            let mut wanted = wanted.iter();
            wanted.any(|(kind, owned)| it.is_of(*kind, owned))
        };
        let leave = self.all.extract_if(.., |it| !is_wanted(it));
        leave.for_each(&mut gone);
        let mut all = Vec::new();
        for (kind, owned) in &wanted {
            let known = self.all.iter().position(|it| it.is_of(*kind, owned));
            let mut watched = match known {
                Some(place) => self.all.swap_remove(place),
                None => self.begin(*kind, owned, &all),
            };
            let sources = owned.sources.iter().map(|(source, _)| *source);
            watched.series.follow(&sources.collect());
            all.push(watched);
        }
        self.all = all;
        self.taps = taps(&self.all, &owned);
        self.owned = owned;
        let tapped = |source: &Source| self.taps.iter().any(|tap| tap.source == *source);
        self.coarse.retain(|source, _| tapped(source));
    }

    /// One that is new, beside those that are kept and those that are done already.
    fn begin(&self, kind: Kind, owned: &Owned, done: &[Watched]) -> Watched {
        let others = || self.all.iter().chain(done);
        let mut name = format!("{} {}", owned.name, kind.label());
        while others().any(|it| it.name == name) {
            // A site and a database's host may have one name.
            name = format!("host {name}");
        }
        let mut numbers = (0..).map(ResourceId);
        let free = numbers.find(|id| others().all(|it| it.id != *id));
        Watched {
            name,
            node: match owned.owner {
                Owner::Site(_) => None,
                Owner::Resource(..) => Some(owned.name.clone()),
            },
            owner: owned.owner,
            series: Series::new(kind),
            id: free.unwrap_or(ResourceId(0)),
            due: Timestamp::ZERO,
            verdicts: None,
            basis: Basis::NotYet,
            named_at: BTreeMap::new(),
            past: PastUse::default(),
        }
    }

    /// Takes in what the counters say now.
    pub(super) fn read(&mut self, cluster: &Cluster, discovery: &mut Discovery, now: Timestamp) {
        let readings: Vec<_> = self
            .taps
            .iter()
            .map(|it| cluster.counters(it.source))
            .collect();
        // A place that is another node's since would count for the one that had it.
        if cluster.version() == self.version {
            self.take(&readings);
        }
        for watched in &mut self.all {
            let explains = watched.explains();
            let id = watched.id;
            watched.series.advance(now, |point| {
                if explains {
                    discovery.on_usage(id, point);
                }
            });
        }
    }

    fn take(&mut self, readings: &[Option<Counters>]) {
        for (tap, counters) in self.taps.iter_mut().zip(readings) {
            let Some(counters) = counters else { continue };
            for (place, member) in &tap.to {
                self.all[*place].series.add(*member, counters);
            }
            if counters.busy_ns.is_some()
                && !counters.fine
                && let Some(name) = tap.coarse.take()
            {
                self.coarse.insert(tap.source, name);
            }
        }
    }

    /// One of them.
    pub(super) fn get(&self, place: usize) -> &Watched {
        &self.all[place]
    }

    /// One that is to be evaluated now.
    pub(super) fn due(&self, now: Timestamp) -> Option<usize> {
        let due = |it: &Watched| it.explains() && it.series.capacity() > 0.0 && it.due <= now;
        self.all.iter().position(due)
    }

    /// Up to when use is known: the grid is the same for all.
    pub(super) fn known_until(&self) -> Timestamp {
        let known = self.all.iter().map(|it| it.series.known_until());
        known.min().unwrap_or(Timestamp::ZERO)
    }

    /// Asks which classes were to blame for it then.
    pub(super) fn evaluate(
        &mut self,
        place: usize,
        discovery: &mut Discovery,
        at: Timestamp,
        now: Timestamp,
    ) {
        let watched = &mut self.all[place];
        watched.due = now + EVERY;
        let verdicts = discovery.evaluate(at, watched.id);
        let named = std::mem::take(&mut watched.named_at);
        let since = |class| named.get(&class).copied().unwrap_or(now);
        watched.named_at = verdicts
            .flagged()
            .map(|verdict| (verdict.class, since(verdict.class)))
            .collect();
        watched.basis = discovery.basis(at, watched.id);
        watched.verdicts = Some(verdicts);
    }

    /// Takes down what was found of it last, for later; `names` are those of classes by number.
    pub(super) fn record(&mut self, place: usize, names: &[String]) {
        let watched = &mut self.all[place];
        if let Some(verdicts) = &watched.verdicts {
            let capacity = watched.series.capacity();
            watched.past.record(verdicts, capacity, names);
        }
    }

    /// What was used over the last 15 minutes; `base` is the Unix time at the clock's zero.
    pub(super) fn past(&self, base: i64) -> Vec<Past> {
        let of = |it: &Watched| it.past.show(&it.name, base);
        self.all.iter().filter_map(of).collect()
    }

    /// How those do that have a capacity.
    pub(super) fn pressed(&self) -> Vec<Pressed> {
        let known = self.all.iter().filter(|it| it.explains());
        let pressed = known.filter_map(|it| {
            Some(Pressed {
                resource: it.name.clone(),
                usage: it.series.usage()?,
                capacity: it.series.capacity(),
            })
        });
        pressed.collect()
    }

    /// All of them.
    pub(super) fn iter(&self) -> std::slice::Iter<'_, Watched> {
        self.all.iter()
    }

    /// Use by step of each, by the Unix clock.
    pub(super) fn spans(&self, base: i64) -> Vec<Vec<Span>> {
        let on_unix = |span: &Span| Span {
            from: span.from + base,
            to: span.to + base,
            ..*span
        };
        let of = |watched: &Watched| watched.series.spans().map(on_unix).collect();
        self.all.iter().map(of).collect()
    }

    /// Those that anything is known of, for the picture.
    pub(super) fn materials<'a>(
        &'a self,
        spans: &'a [Vec<Span>],
        base: i64,
    ) -> Vec<ResourceMaterial<'a>> {
        let known = self.all.iter().zip(spans);
        let known = known.filter(|(watched, _)| watched.series.capacity() > 0.0);
        known
            .map(|(watched, spans)| watched.material(spans, base))
            .collect()
    }

    /// What is doubtful.
    pub(super) fn notes(&self, unread: &[UnreadNode]) -> Vec<String> {
        let mut notes = Vec::new();
        let early = self.all.iter().filter(|it| it.is_early());
        let early: Vec<&str> = early.map(|it| it.name.as_str()).collect();
        if !early.is_empty() {
            notes.push(format!(
                "Not known yet: too little was seen of {}. A class that is not accused may still be, and one that is may \
                 be innocent.",
                early.join(", ")
            ));
        }
        notes.extend(unread.iter().map(silent));
        if self.left_out > 0 {
            notes.push(format!(
                "{RESOURCES_MAX} resources are watched, and {} are not.",
                self.left_out
            ));
        }
        let coarse: Vec<&str> = self.coarse.values().map(String::as_str).collect();
        if !coarse.is_empty() {
            notes.push(format!(
                "CPU time of {} is known to 10 ms only, so verdicts take longer and are less sure.",
                coarse.join(", ")
            ));
        }
        notes
    }
}

/// Of a resource of which nothing is read: no class is accused of loading it, and that is no good news.
fn silent(node: &UnreadNode) -> String {
    let UnreadNode { name, address, why } = node;
    format!("{name} ({address}) is not read, so whoever loads it is not known: {why}.")
}

/// What is to be read of them.
fn taps(all: &[Watched], owned: &[Owned]) -> Vec<Tap> {
    let mut to: BTreeMap<Source, Vec<(usize, usize)>> = BTreeMap::new();
    for (place, watched) in all.iter().enumerate() {
        for (member, source) in watched.series.members() {
            to.entry(source).or_default().push((place, member));
        }
    }
    let named = owned.iter().flat_map(|it| &it.sources);
    let tap = |(source, name): &(Source, String)| {
        Some(Tap {
            source: *source,
            to: to.remove(source)?,
            coarse: Some(name.clone()),
        })
    };
    named.filter_map(tap).collect()
}

impl Watched {
    /// Whether it is that use of that owner.
    fn is_of(&self, kind: Kind, owned: &Owned) -> bool {
        self.series.kind() == kind && self.owner == owned.owner
    }

    /// Whether its verdicts rest on too little.
    fn is_early(&self) -> bool {
        self.explains() && self.capacity() > 0.0 && self.basis == Basis::NotYet
    }

    /// How much of it there is; zero before that is known.
    pub(super) fn capacity(&self) -> f64 {
        self.series.capacity()
    }

    /// Whether it has a capacity that can be shared out.
    pub(super) fn explains(&self) -> bool {
        match self.series.kind() {
            Kind::Cpu | Kind::Disk => true,
            Kind::Network | Kind::Switches => false,
        }
    }

    fn material<'a>(&'a self, spans: &'a [Span], base: i64) -> ResourceMaterial<'a> {
        let unit = match self.series.kind() {
            Kind::Cpu | Kind::Disk => Unit::Busy {
                capacity: self.series.capacity(),
            },
            Kind::Network | Kind::Switches => Unit::Rate,
        };
        let on_unix = |at: Timestamp| at.nanos() as i64 + base;
        let named = self.named_at.iter();
        ResourceMaterial {
            name: self.name.clone(),
            node: self.node.clone(),
            unit,
            spans,
            verdicts: self.verdicts.as_ref(),
            basis: self.explains().then_some(self.basis),
            evaluated_at: self.verdicts.as_ref().map(|it| on_unix(it.at)),
            time_scale: 1.0,
            named_at: named.map(|(class, at)| (*class, on_unix(*at))).collect(),
        }
    }
}

#[cfg(test)]
mod tests;
