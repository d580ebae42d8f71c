//! Requests as they come and go: folded into classes, handed to discovery, and the last minute of them
//! kept for the picture.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use tidegate_core::classes::{self, ClassId, ClassTable, Pattern, SLOTS, TreeConfig, Weight};
use tidegate_core::culprits::{Discovery, Request};
use tidegate_core::time::Timestamp;
use tidegate_proxy::{Event, Observed, Words};

use super::super::evidence::Lived;
use super::peers::{self, Outbox, Peer, SILENT, Shipment};

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
/// Longest age of a request that another front-end tells: an hour.
const AGE_MICROS_MAX: u64 = 3_600_000_000;
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
    outbox: Outbox,
    peers: Vec<Peer>,
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
    /// Of these sites, with what operators want named, and of these other front-ends.
    pub(super) fn new(
        observed: Observed,
        sites: Vec<String>,
        patterns: Vec<Pattern>,
        peers: &[SocketAddr],
    ) -> Self {
        let sites = if sites.len() > 1 { sites } else { Vec::new() };
        Self {
            observed,
            table: ClassTable::new(patterns, TreeConfig::default()),
            sites,
            in_progress: HashMap::new(),
            ended: VecDeque::new(),
            counts: vec![0; SLOTS],
            levels: vec![0.0; SLOTS],
            outbox: Outbox::default(),
            peers: peers.iter().copied().map(Peer::new).collect(),
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
        for peer in &mut self.peers {
            if peer.heard.is_none_or(|heard| now.since(heard) > SILENT) {
                peer.unfinished.clear();
            }
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
                    self.outbox.add(begun.words, begun.site, begun.sent, at);
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
        let (method, target) = (words.method(), words.target());
        self.table.add(
            &classes::Request {
                site,
                method,
                target,
            },
            weight,
        )
    }

    /// What others are told that ask for what ended after this.
    pub(super) fn ship(&mut self, after: u64, now: Timestamp) -> Shipment {
        let begun = self.in_progress.values();
        let unfinished = begun.map(|it| (it.words, it.site, it.sent));
        self.outbox.ship(after, &self.sites, unfinished, now)
    }

    /// Takes in what another front-end told, or why it did not.
    pub(super) fn accept(
        &mut self,
        from: SocketAddr,
        shipment: Result<Shipment, String>,
        at: Timestamp,
        discovery: &mut Discovery,
    ) {
        let Some(place) = self.peers.iter().position(|it| it.address == from) else {
            return;
        };
        let shipment = match shipment {
            Ok(shipment) => shipment,
            Err(why) => {
                self.peers[place].trouble = Some(why);
                return;
            }
        };
        self.overflows += u64::from(shipment.lost > 0);
        let ago = |micros: u64| at - Duration::from_micros(micros.min(AGE_MICROS_MAX));
        for (words, site, sent, ended) in &shipment.ended {
            let (sent, ended) = (ago(*sent), ago(*ended));
            let weight = Weight::finished(ended.seconds_since(sent));
            if let Some(class) = self.fold_told(&shipment, *words, *site, weight) {
                self.end(class, sent, ended, discovery);
            }
        }
        let mut unfinished = Vec::new();
        for (words, site, sent) in shipment.unfinished.iter().take(IN_PROGRESS_MAX) {
            let class = self.fold_told(&shipment, *words, *site, Weight::default());
            unfinished.extend(class.map(|class| (class, ago(*sent))));
        }
        let peer = &mut self.peers[place];
        peer.heard = Some(at);
        peer.trouble = None;
        peer.unfinished = unfinished;
    }

    /// The class of what another front-end told; none if it makes no sense. Sites go by name.
    fn fold_told(
        &mut self,
        shipment: &Shipment,
        words: u32,
        site: u32,
        weight: Weight,
    ) -> Option<ClassId> {
        let (method, target) = shipment.words.get(words as usize)?;
        let told = shipment.sites.get(site as usize);
        let site = told.map_or("", String::as_str);
        let site = if self.sites.is_empty() { "" } else { site };
        let request = classes::Request {
            site,
            method,
            target,
        };
        Some(self.table.add(&request, weight))
    }

    /// How far behind what is known here is complete.
    pub(super) fn behind(&self) -> Duration {
        match self.peers.is_empty() {
            true => Duration::ZERO,
            false => peers::BEHIND,
        }
    }

    /// Other front-ends that do not answer, and why.
    pub(super) fn silent(&self) -> impl Iterator<Item = (SocketAddr, &str)> {
        let silent = |peer: &'_ Peer| peer.trouble.is_some();
        self.peers.iter().filter(move |it| silent(it)).map(|it| {
            let why = it.trouble.as_deref().unwrap_or_default();
            (it.address, why)
        })
    }

    /// Tells discovery who was in progress then.
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
        let late = self.ended.iter().filter(|lived| lived.ended >= since);
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

#[cfg(test)]
mod tests {
    use tidegate_core::culprits::Limits;

    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(100_000 + millis)
    }

    fn sent(id: u64, millis: u64, target: &str) -> Event {
        Event::Sent {
            id,
            at: at(millis),
            site: tidegate_core::topology::SiteId(0),
            words: Words::of("GET", target),
        }
    }

    fn ended(id: u64, millis: u64) -> Event {
        Event::Ended { id, at: at(millis) }
    }

    fn requests(sites: &[&str], peers: &[SocketAddr]) -> (Requests, Discovery) {
        let sites = sites.iter().map(|site| (*site).to_owned()).collect();
        let requests = Requests::new(Observed::default(), sites, Vec::new(), peers);
        (requests, Discovery::new(Limits::default()))
    }

    /// Names of classes with requests that have ended, and how long those took, in ms.
    fn lived(requests: &Requests) -> Vec<(String, u64)> {
        let names = requests.names();
        let of = |it: &Lived| {
            let millis = it.ended.since(it.sent).as_millis() as u64;
            (names[it.class.index()].clone(), millis)
        };
        requests.ended().map(of).collect()
    }

    #[test]
    fn what_one_front_end_has_the_other_knows() {
        let there = "10.0.0.2:8100".parse().unwrap();
        // Sites stand in another order there.
        let (mut one, mut found) = requests(&["shop", "blog"], &[]);
        let (mut other, mut found_there) = requests(&["blog", "shop"], &[there]);
        assert_eq!(one.ship(0, at(0)).ended, []);
        for event in [
            sent(1, 10, "/item/7?page=2"),
            sent(2, 20, "/slow"),
            ended(1, 60),
        ] {
            one.take(event, &mut found);
        }
        let shipment = one.ship(0, at(100));
        assert_eq!((shipment.ended.len(), shipment.unfinished.len()), (1, 1));
        let next = shipment.next;
        // The clock there is another one.
        let heard = at(5_000_100);
        other.accept(there, Ok(shipment), heard, &mut found_there);
        assert_eq!(lived(&other), [("shop GET /item/{n}?page".into(), 50)]);
        let unfinished: Vec<_> = other.unfinished().collect();
        assert_eq!(unfinished[0].1, at(5_000_020));
        // Nothing comes twice.
        assert_eq!(one.ship(next, at(200)).ended, []);
        // Silence: what was in progress there is not, any more.
        other.drain(&mut found_there, heard + SILENT + SILENT);
        assert_eq!(other.unfinished().count(), 0);
        other.accept(there, Err("gone".into()), heard, &mut found_there);
        assert_eq!(other.silent().collect::<Vec<_>>(), [(there, "gone")]);
    }

    #[test]
    fn nonsense_from_elsewhere_is_left_out() {
        let there = "10.0.0.2:8100".parse().unwrap();
        let (mut requests, mut found) = requests(&["shop"], &[there]);
        let nonsense = Shipment {
            words: vec![("GET".into(), "/a".into())],
            ended: vec![(0, 9, u64::MAX, 5), (7, 0, 2, 1), (0, 0, 1, 5)],
            unfinished: vec![(3, 0, 1)],
            ..Shipment::default()
        };
        requests.accept(there, Ok(nonsense), at(0), &mut found);
        assert!(requests.ended().count() <= 2);
        assert_eq!(requests.unfinished().count(), 0);
        let stranger = "10.0.0.3:8100".parse().unwrap();
        requests.accept(stranger, Ok(Shipment::default()), at(0), &mut found);
        assert_eq!(requests.silent().count(), 0);
    }

    #[test]
    fn what_others_take_leaves_culprits_out() {
        let (mut requests, mut found) = requests(&["shop"], &[]);
        for id in 0..100 {
            requests.take(sent(id, 0, "/fast"), &mut found);
            requests.take(ended(id, 10), &mut found);
            requests.take(sent(1000 + id, 0, "/slow"), &mut found);
        }
        let but = BTreeSet::from(["GET /slow"]);
        let take = |but: &BTreeSet<&str>| requests.others_take(but, at(500)).unwrap();
        assert!((take(&but) - 0.01).abs() < 1e-9);
        // Who waits is told by his age.
        assert!((take(&BTreeSet::new()) - 0.5).abs() < 1e-9);
        assert_eq!(
            requests.others_take(&BTreeSet::from(["GET /slow", "GET /fast"]), at(500)),
            None
        );
    }
}
