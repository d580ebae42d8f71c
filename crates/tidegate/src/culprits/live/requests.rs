//! Requests as they come and go: folded into classes, handed to discovery, and the last minute of them
//! kept for the picture.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use tidegate_core::classes::{
    self, Change, ClassId, ClassTable, Pattern, SLOTS, TreeConfig, Weight, Words,
};
use tidegate_core::culprits::{Discovery, Request, RequestEvent};
use tidegate_core::stats::quantile;
use tidegate_core::time::Timestamp;
use tidegate_culprits::Lived;
use tidegate_proxy::Observed;

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
/// Most requests that are looked at for it: the last ones.
const LATE_MAX: usize = 100_000;
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

/// What became of a request.
#[derive(Clone, Copy, Debug)]
struct Fared {
    class: ClassId,
    at: Timestamp,
    /// Time that it waited for room, and all of its time from then on, seconds; none if it was refused.
    took: Option<(f64, f64)>,
}

/// How requests of other classes fare.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct OthersFare {
    /// What 95 of 100 of them take, in seconds, waiting for room included; none if there are too few.
    pub(super) seconds: Option<f64>,
    /// Part of them that was refused, or waited for long.
    pub(super) held_back: f64,
}

#[derive(Clone, Copy, Debug)]
struct Begun {
    class: ClassId,
    asked: Timestamp,
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
            late: VecDeque::new(),
            counts: vec![0; SLOTS],
            levels: vec![0.0; SLOTS],
            outbox: Outbox::default(),
            peers: peers.iter().copied().map(Peer::new).collect(),
            overflows: 0,
            ranked: Timestamp::ZERO,
        }
    }

    /// Takes in what workers have said since.
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
                    let class = self.fold(site.0, &words, Weight::ARRIVAL);
                    let begun = Begun {
                        class,
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
                    self.fold(begun.site, &begun.words, Weight::time(seconds));
                    self.outbox.add(begun.words, begun.site, begun.sent, at);
                    self.end(begun.class, begun.sent, at, discovery);
                    let waited = begun.sent.seconds_since(begun.asked);
                    self.note(begun.class, at, Some((waited, waited + seconds)));
                }
            }
            RequestEvent::Refused { at, site, words } => {
                let class = self.fold(site.0, &words, Weight::default());
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

    fn note(&mut self, class: ClassId, at: Timestamp, took: Option<(f64, f64)>) {
        if self.late.len() >= LATE_MAX {
            self.late.pop_front();
        }
        self.late.push_back(Fared { class, at, took });
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

    /// What others get that ask for what ended after this.
    pub(super) fn ship(&mut self, after: u64, now: Timestamp) -> Shipment {
        let begun = self.in_progress.values();
        let unfinished = begun.map(|it| (it.words, it.site, it.sent));
        self.outbox.ship(after, &self.sites, unfinished, now)
    }

    /// Takes in what another front-end said, or why it did not.
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
        for (words, site, sent, ended) in shipment.ended.iter().take(peers::KEPT_MAX) {
            let (sent, ended) = (ago(*sent), ago(*ended));
            let weight = Weight::finished(ended.seconds_since(sent));
            if let Some(class) = self.fold_told(&shipment, *words, *site, weight) {
                self.end(class, sent, ended, discovery);
                let took = ended.seconds_since(sent);
                self.note(class, ended, Some((0.0, took)));
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

    /// The class of what another front-end said; none if it makes no sense. Sites go by name.
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

    /// How requests of classes but these fare, those in progress by their age; of the site where that is worst.
    /// What waits for room longer than `long`, seconds, is held back.
    pub(super) fn others_fare(
        &self,
        but: &dyn Fn(&str) -> bool,
        long: f64,
        now: Timestamp,
    ) -> OthersFare {
        let names = self.names();
        let several = !self.sites.is_empty();
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
mod tests {
    use tidegate_core::culprits::{EVERY, LearnedClass, Limits, ResourceId, UsagePoint};
    use tidegate_core::prng::Prng;

    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(100_000 + millis)
    }

    fn sent(id: u64, millis: u64, target: &str) -> RequestEvent {
        RequestEvent::Sent {
            id,
            asked: at(millis),
            at: at(millis),
            site: tidegate_core::topology::SiteId(0),
            words: Words::of("GET", target),
        }
    }

    fn ended(id: u64, millis: u64) -> RequestEvent {
        RequestEvent::Ended { id, at: at(millis) }
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

    const CPU: ResourceId = ResourceId(0);

    /// What is known of the one class of a site after two minutes.
    fn learned() -> LearnedClass {
        let mut discovery = Discovery::new(Limits::default());
        let mut prng = Prng::new(1);
        let mut busy_ns = 0;
        for ms in (0..120_000).step_by(20) {
            if prng.unit() < 0.3 {
                busy_ns += 10_000_000;
                let request = Request {
                    class: ClassId(1),
                    sent: at(ms),
                    ended: Some(at(ms + 20)),
                };
                discovery.on_request(&request);
            }
            let point = UsagePoint {
                at: at(ms + 20),
                busy_ns,
                cores: 1.0,
            };
            discovery.on_usage(CPU, point);
            if u128::from(ms).is_multiple_of(EVERY.as_millis()) {
                discovery.evaluate(at(ms), CPU);
            }
        }
        discovery.learned(CPU)[&ClassId(1)]
    }

    /// Another class gets the number of the first one, and nothing of what was known of that.
    #[test]
    fn a_number_that_is_given_away_anew_brings_nothing_with_it() {
        let (mut requests, mut found) = requests(&["shop"], &[]);
        let number = |requests: &Requests, name: &str| {
            let names = requests.names();
            names
                .iter()
                .position(|it| it == name)
                .map(|it| ClassId(it as u16))
        };
        // One of them is still there when its number is another's.
        requests.take(sent(0, 0, "/old"), &mut found);
        requests.take(sent(1, 0, "/old"), &mut found);
        requests.take(ended(1, 10), &mut found);
        requests.drain(&mut found, at(0));
        let old = number(&requests, "GET /old").unwrap();
        assert!(found.recall(CPU, old, learned()));
        assert!(found.learned(CPU).contains_key(&old));
        // First names change nothing of what is known.
        requests.drain(&mut found, at(10_000));
        assert!(found.learned(CPU).contains_key(&old));
        // So many others that it weighs too little for a number, and others again each minute.
        let mut id = 10;
        let mut load = |requests: &mut Requests, found: &mut Discovery, millis| {
            for page in 0..360 {
                let (folder, kind) = (page % 12, ["a", "b"][page / 12 % 2]);
                let target = format!("/d{folder}-{}/{kind}/p{}", millis / 60_000, page / 24);
                requests.take(sent(id, millis, &target), found);
                requests.take(ended(id, millis + 100), found);
                id += 1;
            }
        };
        let mut millis = 10_000;
        while number(&requests, "GET /old").is_some() {
            millis += 10_000;
            assert!(millis < 10_000_000, "it keeps its name");
            load(&mut requests, &mut found, millis);
            requests.drain(&mut found, at(millis));
        }
        let unfinished: Vec<_> = requests.unfinished().map(|it| it.0).collect();
        assert_eq!(unfinished, [ClassId::OTHER]);
        assert_eq!((requests.counts[old.index()], requests.counts[0]), (0, 1));
        while requests.names()[old.index()].is_empty() {
            millis += 10_000;
            assert!(millis < 10_000_000, "the number is given away");
            load(&mut requests, &mut found, millis);
            requests.drain(&mut found, at(millis));
        }
        assert_eq!(found.learned(CPU).get(&old), None);
        requests.take(ended(0, millis), &mut found);
        assert_eq!((requests.counts[old.index()], requests.counts[0]), (0, 0));
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

    /// A peer that is captured, or broken, costs no more than this.
    #[test]
    fn what_another_front_end_ships_is_bounded() {
        let there = "10.0.0.2:8100".parse().unwrap();
        let (mut requests, mut found) = requests(&["shop"], &[there]);
        let long_ago = AGE_MICROS_MAX + 1;
        let shipment = |ended: usize, unfinished: usize| Shipment {
            words: vec![("GET".into(), "/a".into())],
            ended: vec![(0, 0, 2000, 1000); ended],
            unfinished: vec![(0, 0, long_ago); unfinished],
            ..Shipment::default()
        };
        let heard = Timestamp::from_millis(10_000_000);
        let most = shipment(peers::KEPT_MAX, IN_PROGRESS_MAX);
        requests.accept(there, Ok(most), heard, &mut found);
        assert_eq!(requests.ended().count(), peers::KEPT_MAX);
        assert_eq!(requests.unfinished().count(), IN_PROGRESS_MAX);
        let oldest = requests.unfinished().map(|(_, sent)| sent).min();
        assert_eq!(oldest, Some(heard - Duration::from_micros(AGE_MICROS_MAX)));
        let more = shipment(peers::KEPT_MAX + 1, IN_PROGRESS_MAX + 1);
        requests.accept(there, Ok(more), heard, &mut found);
        assert_eq!(requests.ended().count(), 2 * peers::KEPT_MAX);
        assert_eq!(requests.unfinished().count(), IN_PROGRESS_MAX);
    }

    #[test]
    fn so_many_requests_in_progress_are_followed_and_no_more() {
        let (mut requests, mut found) = requests(&["shop"], &[]);
        for id in 0..=IN_PROGRESS_MAX as u64 {
            requests.take(sent(id, 0, "/a"), &mut found);
        }
        assert_eq!(requests.unfinished().count(), IN_PROGRESS_MAX);
        // The end of one that is not followed is no harm, and of one that is makes room.
        requests.take(ended(IN_PROGRESS_MAX as u64, 1), &mut found);
        assert_eq!(requests.unfinished().count(), IN_PROGRESS_MAX);
        requests.take(ended(0, 1), &mut found);
        requests.take(sent(u64::MAX, 1, "/a"), &mut found);
        assert_eq!(requests.unfinished().count(), IN_PROGRESS_MAX);
    }

    #[test]
    fn so_many_requests_that_have_ended_are_kept_and_no_more() {
        let (mut requests, mut found) = requests(&["shop"], &[]);
        for millis in 0..=KEPT_MAX as u64 {
            let sent = Timestamp::from_millis(millis);
            requests.end(ClassId::OTHER, sent, sent, &mut found);
            requests.note(ClassId::OTHER, sent, None);
        }
        let last = Timestamp::from_millis(KEPT_MAX as u64);
        let kept: Vec<_> = requests.ended().collect();
        assert_eq!((kept.len(), requests.late.len()), (KEPT_MAX, LATE_MAX));
        // The oldest has made room.
        assert_eq!(kept[0].sent, Timestamp::from_millis(1));
        assert_eq!(requests.late.back().map(|it| it.at), Some(last));
    }

    #[test]
    fn what_others_take_leaves_culprits_out() {
        let (mut requests, mut found) = requests(&["shop"], &[]);
        for id in 0..100 {
            requests.take(sent(id, 0, "/fast"), &mut found);
            requests.take(ended(id, 10), &mut found);
            requests.take(sent(1000 + id, 0, "/slow"), &mut found);
        }
        let take = |but: &dyn Fn(&str) -> bool| requests.others_fare(but, 0.05, at(500)).seconds;
        assert!((take(&|name| name == "GET /slow").unwrap() - 0.01).abs() < 1e-9);
        // What waits shows by its age.
        assert!((take(&|_| false).unwrap() - 0.5).abs() < 1e-9);
        assert_eq!(take(&|_| true), None);
    }

    #[test]
    fn who_waits_for_room_or_is_refused_is_held_back() {
        let (mut requests, mut found) = requests(&["shop"], &[]);
        for id in 0..40 {
            let RequestEvent::Sent {
                id,
                at,
                site,
                words,
                ..
            } = sent(id, 100, "/fast")
            else {
                unreachable!();
            };
            // Every fourth waited for 80 ms.
            let waited = Duration::from_millis(if id % 4 == 0 { 80 } else { 0 });
            let asked = at - waited;
            requests.take(
                RequestEvent::Sent {
                    id,
                    asked,
                    at,
                    site,
                    words,
                },
                &mut found,
            );
            requests.take(ended(id, 110), &mut found);
        }
        let fare = requests.others_fare(&|_| false, 0.05, at(500));
        assert!((fare.seconds.unwrap() - 0.09).abs() < 1e-9, "{fare:?}");
        assert_eq!(fare.held_back, 0.25);
        let words = Words::of("GET", "/fast");
        for (many, target) in [(40, words), (80, Words::of("GET", "/slow"))] {
            for _ in 0..many {
                let refused = RequestEvent::Refused {
                    at: at(120),
                    site: tidegate_core::topology::SiteId(0),
                    words: target,
                };
                requests.take(refused, &mut found);
            }
        }
        let fare = requests.others_fare(&|name| name == "GET /slow", 0.05, at(500));
        assert_eq!(fare.held_back, 50.0 / 80.0);
        // What was five seconds ago counts no more.
        let later = requests.others_fare(&|_| false, 0.05, at(5200));
        assert_eq!(later, OthersFare::default());
    }
}
