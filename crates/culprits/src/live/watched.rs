//! The resources that are watched: whose counters make them up, what was found of each, and when it is
//! looked at next.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_core::classes::ClassId;
use tidegate_core::culprits::{Basis, Discovery, EVERY, ResourceId, Verdicts};
use tidegate_core::load::{Counters, LoadTable};
use tidegate_core::time::Timestamp;
use tidegate_core::topology::{NodeId, Topology};

use super::front_end::{ResourceNodes, UnreadNode};
use super::policy::Pressed;
use super::series::{Kind, Series};
use crate::picture::ResourceMaterial;
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
}

/// Whose counters they are.
#[derive(Clone, Copy, Debug)]
enum Source {
    Node(NodeId),
    Resource(usize),
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
#[derive(Debug)]
pub(super) struct WatchedAll {
    all: Vec<Watched>,
    taps: Vec<Tap>,
    resources: Arc<dyn ResourceNodes>,
    left_out: usize,
    /// Names of nodes whose CPU time is known to a tick only.
    coarse: Vec<String>,
}

impl WatchedAll {
    /// All sites' nodes, and all nodes that are resources alone.
    pub(super) fn new(
        topology: &Topology,
        resources: Arc<dyn ResourceNodes>,
        sites: &[String],
    ) -> Self {
        let mut owners: Vec<(String, Option<String>, Vec<usize>)> = Vec::new();
        let mut taps = Vec::new();
        let mut tap = |source, name: &str| {
            taps.push(Tap {
                source,
                to: Vec::new(),
                coarse: Some(name.to_owned()),
            });
            taps.len() - 1
        };
        for (index, site) in sites.iter().enumerate() {
            let nodes = (0..).map(NodeId).zip(&topology.nodes);
            let own = nodes.filter(|(_, node)| node.site.index() == index);
            let members: Vec<_> = own
                .map(|(id, node)| tap(Source::Node(id), &node.name))
                .collect();
            owners.push((site.clone(), None, members));
        }
        for (index, name) in resources.names().into_iter().enumerate() {
            let member = tap(Source::Resource(index), &name);
            owners.push((name.clone(), Some(name), vec![member]));
        }
        let mut watched = Self {
            all: Vec::new(),
            taps,
            resources,
            left_out: 0,
            coarse: Vec::new(),
        };
        // All CPUs before all disks: where there is no room for all, CPUs tell more.
        for kind in Kind::ALL {
            for (name, node, members) in &owners {
                watched.add(kind, name, node.clone(), members);
            }
        }
        watched
    }

    fn add(&mut self, kind: Kind, owner: &str, node: Option<String>, members: &[usize]) {
        if self.all.len() >= RESOURCES_MAX {
            self.left_out += 1;
            return;
        }
        let mut name = format!("{owner} {}", kind.label());
        while self.all.iter().any(|it| it.name == name) {
            // A site and a database's host may have one name.
            name = format!("host {name}");
        }
        let place = self.all.len();
        for (member, tap) in members.iter().enumerate() {
            self.taps[*tap].to.push((place, member));
        }
        self.all.push(Watched {
            name,
            node,
            series: Series::new(kind, members.len()),
            id: ResourceId(place as u16),
            due: Timestamp::ZERO,
            verdicts: None,
            basis: Basis::NotYet,
            named_at: BTreeMap::new(),
        });
    }

    /// Takes in what the counters say now.
    pub(super) fn read(&mut self, table: &LoadTable, discovery: &mut Discovery, now: Timestamp) {
        for tap in &mut self.taps {
            let counters: Option<Counters> = match tap.source {
                Source::Node(node) => table.counters(node),
                Source::Resource(index) => self.resources.counters(index),
            };
            let Some(counters) = counters else { continue };
            for (place, member) in &tap.to {
                self.all[*place].series.add(*member, &counters);
            }
            if counters.busy_ns.is_some()
                && !counters.fine
                && let Some(name) = tap.coarse.take()
            {
                self.coarse.push(name);
            }
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
    pub(super) fn notes(&self) -> Vec<String> {
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
        notes.extend(self.resources.unread().iter().map(silent));
        if self.left_out > 0 {
            notes.push(format!(
                "{RESOURCES_MAX} resources are watched, and {} are not.",
                self.left_out
            ));
        }
        if !self.coarse.is_empty() {
            notes.push(format!(
                "CPU time of {} is known to 10 ms only, so verdicts take longer and are less sure.",
                self.coarse.join(", ")
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

impl Watched {
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
