//! Which kinds of a site's requests have a place of their own, in a memory that never grows.
//!
//! ```text
//! places    64: the first is shared, each of the others is one kind's, from its first request on
//! word      of a place: mark of its kind (40 bits), how many of its requests wait for an answer (24 bits)
//! look-up   from the mark's own place on, until it is found or a place that was never used
//! new kind  takes a place that was never used; else one that is vacant, when it comes again before its entry
//!           among 256 is another kind's that came once; else it shares the first
//! vacant    for as many seconds as requests of its kind were answered (1 at least, 600 at most) none was, none
//!           waits for an answer, and its kind is neither spared nor has surged
//! ```
//!
//! A place changes hands by one exchange of its word, which fails while a request of the old kind waits for
//! an answer. What is answered later is counted only if the mark is still that of its kind. So no request
//! counts for another kind than its own, without any lock.
//!
//! A flood of paths that are all different fills what was never used and then shares the first place. Kinds
//! that were there keep theirs, and what the flood has taken is vacant a second later, for kinds that come
//! again and again.
//!
//! Inputs: methods and targets of requests, when they wait and when they are answered; from the director, which
//! places are vacant.
//!
//! Failure case: more than 63 kinds that are all busy: those that came last share a place.

use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::Duration;

use super::kind::{self, Kind, MARK_BITS, NAME_MAX};
use crate::time::nanos;

/// How many there are.
pub(crate) const PLACES: usize = 64;
/// Bits of a word that count.
const COUNT_BITS: u32 = u64::BITS - MARK_BITS;
const COUNT: u64 = (1 << COUNT_BITS) - 1;
/// Words of a name.
const NAME_WORDS: usize = NAME_MAX / 8;
/// Kinds without a place that are remembered.
const ONCE: usize = 256;
/// A place is kept so long for each request of its kind, seconds, and for no longer than the last.
const KEPT_EACH: f64 = 1.0;
const KEPT_MAX: f64 = 600.0;

/// Requests of a kind that were answered so far, and the time that they took, nanoseconds.
pub(crate) type Answered = (u64, u64);

/// The places of one site, which workers and the director share.
#[derive(Debug)]
pub struct KindPlaces {
    words: [AtomicU64; PLACES],
    answers: [Answers; PLACES],
    names: Box<[Name; PLACES]>,
    /// Marks of kinds that came of late and found no place that was never used.
    once: Box<[AtomicU64; ONCE]>,
    /// Sets of places, a bit each: those that a new kind may take, those whose kinds do not use what is full
    /// behind the servers, those whose kinds have surged.
    vacant: AtomicU64,
    spared: AtomicU64,
    surged: AtomicU64,
}

#[derive(Debug, Default)]
struct Answers {
    many: AtomicU64,
    nanos: AtomicU64,
}

/// What a place's kind is called, once `of` is its mark.
#[derive(Debug, Default)]
struct Name {
    of: AtomicU64,
    text: [AtomicU64; NAME_WORDS],
}

impl Default for KindPlaces {
    fn default() -> Self {
        Self {
            words: std::array::from_fn(|_| AtomicU64::new(0)),
            answers: std::array::from_fn(|_| Answers::default()),
            names: Box::new(std::array::from_fn(|_| Name::default())),
            once: Box::new(std::array::from_fn(|_| AtomicU64::new(0))),
            vacant: AtomicU64::new(0),
            spared: AtomicU64::new(0),
            surged: AtomicU64::new(0),
        }
    }
}

/// What a look for a mark finds.
enum Found {
    /// Its place.
    Place(usize),
    /// One that it may take, while the word is this.
    Free(usize, u64),
    /// All are taken.
    Nothing,
}

impl KindPlaces {
    /// The kind of a request. A new one gets a place, if there is one.
    pub fn kind_of(&self, method: &str, target: &str) -> Kind {
        let mark = kind::mark(method, target);
        let place = match self.find(mark) {
            Found::Place(place) => Some(place),
            Found::Free(place, word) if word == 0 || self.comes_again(mark) => {
                self.take(place, word, mark, method, target)
            }
            Found::Free(..) | Found::Nothing => None,
        };
        place.map_or(Kind::ANY, |place| Kind {
            mark,
            place: place as u8,
        })
    }

    fn find(&self, mark: u64) -> Found {
        let own = PLACES - 1;
        let vacant = self.vacant.load(Ordering::Relaxed);
        let mut free = Found::Nothing;
        let first = (mark % own as u64) as usize;
        for step in 0..own {
            let place = 1 + (first + step) % own;
            let word = self.words[place].load(Ordering::Acquire);
            if mark_of(word) == mark {
                return Found::Place(place);
            }
            if mark_of(word) == 0 {
                return Found::Free(place, word);
            }
            let takes = vacant >> place & 1 == 1 && count_of(word) == 0;
            if takes && matches!(free, Found::Nothing) {
                free = Found::Free(place, word);
            }
        }
        free
    }

    /// Whether a kind without a place was there a moment ago.
    fn comes_again(&self, mark: u64) -> bool {
        let entry = (mark >> 6) as usize % ONCE;
        self.once[entry].swap(mark, Ordering::Relaxed) == mark
    }

    /// Gives a kind a place that is free; none if another kind was quicker. While the name is being written a
    /// request seems to wait, so that no other takes the place.
    fn take(
        &self,
        place: usize,
        word: u64,
        mark: u64,
        method: &str,
        target: &str,
    ) -> Option<usize> {
        let taken = mark << COUNT_BITS | 1;
        let (done, failed) = (Ordering::AcqRel, Ordering::Acquire);
        match self.words[place].compare_exchange(word, taken, done, failed) {
            Ok(_) => {
                self.vacant.fetch_and(!(1 << place), Ordering::Relaxed);
                self.names[place].set(mark, &kind::name(method, target));
                self.words[place].fetch_sub(1, Ordering::AcqRel);
                Some(place)
            }
            Err(is) => (mark_of(is) == mark).then_some(place),
        }
    }

    /// Where a kind's requests count now: it may have lost its place.
    fn place(&self, kind: Kind) -> usize {
        let place = usize::from(kind.place);
        let word = self.words[place].load(Ordering::Relaxed);
        if mark_of(word) == kind.mark { place } else { 0 }
    }

    /// A request waits for a node's answer from now on; returns the kind that it counts for until it has one.
    pub(crate) fn begin_wait(&self, kind: Kind) -> Kind {
        let word = &self.words[usize::from(kind.place)];
        if mark_of(word.fetch_add(1, Ordering::AcqRel)) == kind.mark {
            return kind;
        }
        word.fetch_sub(1, Ordering::AcqRel);
        self.words[0].fetch_add(1, Ordering::AcqRel);
        Kind::ANY
    }

    /// It does not any more.
    pub(crate) fn end_wait(&self, kind: Kind) {
        let word = &self.words[usize::from(kind.place)];
        word.fetch_sub(1, Ordering::AcqRel);
    }

    /// Counts an answer, and the time to its head.
    pub(crate) fn answered(&self, kind: Kind, took: Duration) {
        let place = usize::from(kind.place);
        if self.place(kind) == place {
            let answers = &self.answers[place];
            answers.nanos.fetch_add(nanos(took), Ordering::Relaxed);
            answers.many.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether a kind of requests does not use what is full behind the site's servers.
    #[inline]
    pub fn is_spared(&self, kind: Kind) -> bool {
        self.is_in(kind, self.spared.load(Ordering::Relaxed))
    }

    /// Whether any kind does not.
    pub fn spares_any(&self) -> bool {
        self.spared.load(Ordering::Relaxed) != 0
    }

    /// Whether a kind has surged.
    #[inline]
    pub fn has_surged(&self, kind: Kind) -> bool {
        self.is_in(kind, self.surged.load(Ordering::Relaxed))
    }

    /// Whether any kind has surged.
    #[inline]
    pub fn any_surged(&self) -> bool {
        self.surged.load(Ordering::Relaxed) != 0
    }

    /// The kinds that have surged, and how many requests of each wait for an answer; those with the most first.
    pub fn surged(&self) -> Vec<SurgedKind> {
        let surged = self.surged.load(Ordering::Relaxed);
        let places = (0..PLACES).filter(|place| surged >> place & 1 == 1);
        let mut kinds: Vec<_> = (places)
            .map(|place| SurgedKind {
                name: self.name(place),
                waiting: self.waiting(place),
            })
            .collect();
        kinds.sort_by(|one, other| {
            let most_first = other.waiting.cmp(&one.waiting);
            most_first.then_with(|| one.name.cmp(&other.name))
        });
        kinds
    }

    fn name(&self, place: usize) -> Option<String> {
        let word = self.words[place].load(Ordering::Acquire);
        self.names[place].get(mark_of(word))
    }

    fn is_in(&self, kind: Kind, set: u64) -> bool {
        set != 0 && set >> self.place(kind) & 1 == 1
    }

    /// Publishes the places whose kinds are spared, and those whose kinds have surged.
    pub(crate) fn set_judged(&self, spared: u64, surged: u64) {
        self.spared.store(spared, Ordering::Relaxed);
        self.surged.store(surged, Ordering::Relaxed);
    }

    /// Publishes the places that new kinds may take.
    pub(crate) fn set_vacant(&self, places: u64) {
        self.vacant.store(places, Ordering::Release);
    }

    /// What was answered at a place so far, of whatever kinds. A count and a sum that are off by one request
    /// are no harm.
    pub(crate) fn answers(&self, place: usize) -> Answered {
        let answers = &self.answers[place];
        let many = answers.many.load(Ordering::Relaxed);
        (many, answers.nanos.load(Ordering::Relaxed))
    }

    /// Requests of a place's kind that wait for a node's answer.
    pub(crate) fn waiting(&self, place: usize) -> u64 {
        count_of(self.words[place].load(Ordering::Relaxed))
    }
}

#[cfg(test)]
impl Kind {
    /// Its place, as a set of places.
    pub(crate) fn bit(self) -> u64 {
        1 << self.place
    }
}

#[cfg(test)]
impl KindPlaces {
    /// Requests of a kind that wait for a node's answer.
    pub(crate) fn waiting_of(&self, kind: Kind) -> u64 {
        self.waiting(self.place(kind))
    }
}

/// The kind's mark in a word; 0: it was never taken.
const fn mark_of(word: u64) -> u64 {
    word >> COUNT_BITS
}

const fn count_of(word: u64) -> u64 {
    word & COUNT
}

/// A kind that has surged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SurgedKind {
    /// What it is called: method and path as they came first, `*` for digits, names of the query; none: all
    /// that have no place of their own.
    pub name: Option<String>,
    /// Requests that wait for a node's answer.
    pub waiting: u64,
}

impl Name {
    /// If it is that of this mark, while it is read.
    fn get(&self, mark: u64) -> Option<String> {
        if mark == 0 || self.of.load(Ordering::Acquire) != mark {
            return None;
        }
        let words = self.text.iter().map(|it| it.load(Ordering::Relaxed));
        let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        fence(Ordering::Acquire);
        if self.of.load(Ordering::Relaxed) != mark {
            return None;
        }
        let length = bytes.iter().position(|it| *it == 0);
        let text = &bytes[..length.unwrap_or(bytes.len())];
        Some(String::from_utf8_lossy(text).into_owned())
    }

    /// By the request that has just taken the place.
    fn set(&self, mark: u64, name: &[u8; NAME_MAX]) {
        self.of.store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        for (word, bytes) in self.text.iter().zip(name.as_chunks().0) {
            word.store(u64::from_le_bytes(*bytes), Ordering::Relaxed);
        }
        self.of.store(mark, Ordering::Release);
    }
}

/// The director's side: whose place is vacant, and where another kind is than at the tick before.
#[derive(Clone, Debug)]
pub(crate) struct Tenants {
    all: [Tenant; PLACES],
    idle: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Tenant {
    mark: u64,
    /// Answers of the place before this one had it, and as of the last tick.
    from: u64,
    many: u64,
    /// For how long none was seen, seconds.
    unseen: f64,
}

impl Default for Tenants {
    fn default() -> Self {
        Self {
            all: [Tenant::default(); PLACES],
            idle: 0,
        }
    }
}

impl Tenants {
    /// A tick: its length. Returns the places that have another kind since the last one, a bit each.
    pub(crate) fn on_tick(&mut self, dt: f64, places: &KindPlaces) -> u64 {
        let mut new = 0;
        self.idle = 0;
        for (place, tenant) in self.all.iter_mut().enumerate().skip(1) {
            let word = places.words[place].load(Ordering::Acquire);
            if word == 0 {
                continue;
            }
            let (many, _) = places.answers(place);
            if mark_of(word) != tenant.mark {
                new |= 1 << place;
                *tenant = Tenant {
                    mark: mark_of(word),
                    from: many,
                    many,
                    unseen: 0.0,
                };
                continue;
            }
            if count_of(word) > 0 || many != tenant.many {
                tenant.many = many;
                tenant.unseen = 0.0;
                continue;
            }
            tenant.unseen += dt;
            let kept = KEPT_EACH * many.wrapping_sub(tenant.from) as f64;
            if tenant.unseen > kept.clamp(KEPT_EACH, KEPT_MAX) {
                self.idle |= 1 << place;
            }
        }
        new
    }

    /// Places whose kinds were not seen for long, a bit each.
    pub(crate) fn idle(&self) -> u64 {
        self.idle
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: f64 = 1e-3;

    /// A site's places, as workers and the director use them.
    #[derive(Default)]
    struct Site {
        places: KindPlaces,
        tenants: Tenants,
    }

    impl Site {
        fn kind(&self, path: &str) -> Kind {
            self.places.kind_of("GET", path)
        }

        /// A request that is answered at once.
        fn ask(&self, path: &str) -> Kind {
            let kind = self.places.begin_wait(self.kind(path));
            self.places.end_wait(kind);
            self.places.answered(kind, Duration::from_millis(1));
            kind
        }

        /// The first time a kind comes that finds nothing but vacant places it shares.
        fn ask_twice(&self, path: &str) -> Kind {
            assert_eq!(self.ask(path), Kind::ANY);
            self.ask(path)
        }

        fn tick(&mut self) -> u64 {
            let new = self.tenants.on_tick(TICK, &self.places);
            self.places.set_vacant(self.tenants.idle());
            new
        }

        fn run(&mut self, seconds: f64) {
            (0..(seconds / TICK).round() as u64).for_each(|_| {
                self.tick();
            });
        }

        /// Kinds until no place is free.
        fn fill(&self) -> Vec<Kind> {
            let kinds = (0..PLACES - 1).map(|it| self.ask(&random(it as u64)));
            kinds.collect()
        }
    }

    /// A path like no other.
    fn random(number: u64) -> String {
        let letters = (0..8).map(|at| char::from(b'a' + (number >> (4 * at) & 15) as u8));
        std::iter::once('/').chain(letters).collect()
    }

    #[test]
    fn each_kind_has_a_place_of_its_own_until_all_are_taken() {
        let site = Site::default();
        let kinds = site.fill();
        let mut places: Vec<_> = kinds.iter().map(|it| it.place).collect();
        places.sort_unstable();
        assert_eq!(places, (1..PLACES as u8).collect::<Vec<_>>());
        for (number, kind) in (0..).zip(&kinds) {
            assert_eq!(site.kind(&random(number)), *kind);
        }
        assert_eq!(site.kind("/one/more"), Kind::ANY);
    }

    #[test]
    fn what_is_counted_and_judged_is_one_kinds() {
        let site = Site::default();
        let kinds = site.fill();
        let (one, other) = (kinds[3], kinds[4]);
        site.places.begin_wait(one);
        site.places.set_judged(1 << one.place, 1 << other.place);
        assert_eq!(site.places.waiting(one.place.into()), 1);
        assert_eq!(site.places.waiting(other.place.into()), 0);
        assert!(site.places.is_spared(one) && !site.places.is_spared(other));
        assert!(!site.places.has_surged(one) && site.places.has_surged(other));
        assert!(!site.places.has_surged(Kind::ANY));
        site.places.set_judged(0, 1);
        assert!(site.places.has_surged(site.kind("/one/more")));
    }

    #[test]
    fn a_place_is_kept_for_a_second_for_each_request_and_for_ten_minutes_at_most() {
        for (requests, kept) in [(0, 1.0), (1, 1.0), (3, 3.0), (600, 600.0), (5000, 600.0)] {
            let mut site = Site::default();
            let kind = site.kind("/page");
            site.tenants.on_tick(0.0, &site.places);
            (0..requests).for_each(|_| {
                site.ask("/page");
            });
            site.tenants.on_tick(0.0, &site.places);
            // Counted in steps of a second: sums of thousandths are not exact.
            let mut seconds: f64 = 0.0;
            while site.tenants.idle() == 0 {
                site.tenants.on_tick(0.5, &site.places);
                seconds += 0.5;
            }
            assert!((seconds - kept - 0.5).abs() < 1e-6, "{requests}: {seconds}");
            assert_eq!(site.tenants.idle(), 1 << kind.place);
        }
    }

    #[test]
    fn a_kind_that_was_not_seen_for_long_gives_way_and_one_that_waits_does_not() {
        let mut site = Site::default();
        let kinds = site.fill();
        site.tick();
        let waits = site.places.begin_wait(kinds[10]);
        site.run(3.0);
        let all_but_one = (u64::MAX << 1) & !(1 << waits.place);
        assert_eq!(site.tenants.idle(), all_but_one);
        let news: Vec<_> = (100..162).map(|it| site.ask_twice(&random(it))).collect();
        assert!(news.iter().all(|it| *it != Kind::ANY));
        assert_eq!(site.ask_twice(&random(162)), Kind::ANY);
        assert_eq!(site.kind(&random(10)), waits);
        assert_eq!(site.tick(), all_but_one, "all of these are new");
        assert_eq!(site.tick(), 0);
    }

    #[test]
    fn a_request_of_a_kind_that_has_lost_its_place_counts_for_no_other() {
        let mut site = Site::default();
        let kinds = site.fill();
        // Its head has come, its end has not.
        let long = site.places.begin_wait(kinds[5]);
        site.places.end_wait(long);
        let place = usize::from(long.place);
        site.run(3.0);
        (100..163).for_each(|it| {
            site.ask_twice(&random(it));
        });
        let before = site.places.answers(place);
        site.places.answered(long, Duration::from_secs(9));
        assert_eq!(site.places.answers(place), before);
        // Nor does one that was looked up before and is sent only now.
        let late = site.places.begin_wait(long);
        assert_eq!((late, site.places.waiting(place)), (Kind::ANY, 0));
        site.places.set_judged(1 << place, 0);
        assert!(!site.places.is_spared(long));
        site.places.end_wait(late);
        assert_eq!(site.places.waiting(0), 0);
    }

    #[test]
    fn a_flood_of_random_paths_takes_no_place_of_what_is_busy_and_keeps_none() {
        let mut site = Site::default();
        let busy: Vec<_> = (0..20)
            .map(|it| site.ask(&format!("/page{}", random(it))))
            .collect();
        // Each is asked for twice a second, the flood's five a millisecond.
        let mut number = 0;
        let mut flood = |site: &mut Site, millis: u32| {
            for ms in 0..millis {
                if ms % 500 == 0 {
                    for (it, kind) in busy.iter().enumerate() {
                        let is = site.ask(&format!("/page{}", random(it as u64)));
                        assert_eq!(is, *kind, "after {ms} ms");
                    }
                }
                for _ in 0..5 {
                    number += 1;
                    site.ask(&random(number));
                }
                site.tick();
            }
        };
        flood(&mut site, 10_000);
        // A page that comes again and again gets a place, and has it from then on.
        let mut own = Kind::ANY;
        for _ in 0..10 {
            flood(&mut site, 20);
            let is = site.ask("/new/page");
            assert!(own == Kind::ANY || is == own, "{own:?} {is:?}");
            own = is;
        }
        assert_ne!(own, Kind::ANY);
    }

    #[test]
    fn kinds_that_have_surged_are_known_by_name() {
        let mut site = Site::default();
        let search = site.kind("/search.php?q=1&page=2");
        let item = site.kind("/item/17");
        site.places.begin_wait(item);
        let all = search.bit() | item.bit() | 1;
        site.places.set_judged(0, all);
        let named = |name: Option<&str>, waiting| SurgedKind {
            name: name.map(str::to_owned),
            waiting,
        };
        let seen = [
            named(Some("GET /item/*"), 1),
            named(None, 0),
            named(Some("GET /search.php?q&page"), 0),
        ];
        assert_eq!(site.places.surged(), seen);
        // A place that has another kind now has its name.
        site.places.set_judged(0, 0);
        site.fill();
        site.run(3.0);
        (100..200).for_each(|it| {
            site.ask(&random(it));
            site.ask(&random(it));
        });
        site.places.set_judged(0, search.bit());
        let name = site.places.surged().remove(0).name.unwrap();
        assert!(
            name.starts_with("GET /") && !name.contains("search"),
            "{name}"
        );
    }

    #[test]
    fn workers_that_meet_kinds_at_once_agree_on_their_places() {
        let places = KindPlaces::default();
        let work = |seed: u64| {
            let mut kinds = Vec::new();
            for it in 0..100 {
                let kind = places.kind_of("GET", &random((it + seed) % 100));
                let kind = places.begin_wait(kind);
                places.answered(kind, Duration::from_millis(1));
                places.end_wait(kind);
                kinds.push(((it + seed) % 100, kind));
            }
            kinds
        };
        let seen: Vec<_> = std::thread::scope(|scope| {
            let threads = [0, 25, 50, 75].map(|seed| scope.spawn(move || work(seed)));
            let joined = threads.map(|it| it.join().unwrap());
            joined.into_iter().flatten().collect()
        });
        assert_eq!(seen.len(), 400);
        let mut owner = [None; PLACES];
        for (number, kind) in seen.into_iter().filter(|it| it.1 != Kind::ANY) {
            let owner = owner[usize::from(kind.place)].get_or_insert((number, kind.mark));
            assert_eq!(*owner, (number, kind.mark));
        }
        assert!(owner[1..].iter().all(Option::is_some));
        assert!((0..PLACES).all(|it| places.waiting(it) == 0));
        let many: u64 = (0..PLACES).map(|it| places.answers(it).0).sum();
        assert_eq!(many, 400);
    }
}
