//! What discovery has learned of classes and is worth keeping over a restart, and the bytes that it is kept in.
//!
//! ```text
//! magic 8 | version u16 | saved, Unix seconds u64 | resources u16
//!   each resource    name str | cores f64 | classes u16
//!     each class     name str | seen, Unix seconds u64 | flags u8 | room: 4 f64, u32 | long: 2 f64      as the flags say
//! FNV-1a of all before u64                                            little-endian; str: u16 length, UTF-8
//! ```
//!
//! Names are those of resources and classes, which outlive numbers. What was learned of a resource holds for its
//! capacity: with quite another number of cores it is another resource, and nothing of it is used.
//!
//! Inputs: names and what is known of them; bytes of a file. Failure case: bytes that are damaged, too many, of
//! another version, too old or from the future are refused by name, and nothing of them is used.
//! Source: Fowler, Noll, Vo for the sum, which finds accidents, not attacks: the file belongs to its writer.

use std::collections::BTreeMap;

use thiserror::Error;

use super::decision::Long;
use super::slowdown::Room;

/// Longest file, bytes.
pub const BYTES_MAX: usize = 4 << 20;
/// Oldest file and class that is used, seconds: a week, after which sites have changed.
pub const AGE_MAX_SECONDS: u64 = 7 * 24 * 3600;
/// How far a file may be ahead of the clock, seconds.
const AHEAD_MAX_SECONDS: u64 = 300;
/// Most resources and classes of one of them.
const RESOURCES_MAX: usize = 1024;
const CLASSES_MAX: usize = 4096;
/// Longest name, bytes.
const NAME_MAX: usize = 1024;
/// Greatest cost, life, share and number of cores: beyond them numbers are nonsense.
const AMOUNT_MAX: f64 = 1e6;
/// Part by which the number of cores may differ: a site of which one node in five does not answer is the same, a server
/// of twice the size is another.
const SAME_CORES: f64 = 0.25;
const MAGIC: &[u8; 8] = b"tidelrnd";
const VERSION: u16 = 1;
const HAS_ROOM: u8 = 1;
const HAS_LONG: u8 = 2;
const LONG_NAMED: u8 = 4;

/// What is known of a class on a resource.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LearnedClass {
    /// As it was while the resource had room.
    pub(super) room: Option<Room>,
    /// As the last look at the long window saw it.
    pub(super) long: Option<Long>,
}

impl LearnedClass {
    /// Whether anything is known.
    pub fn is_empty(&self) -> bool {
        self.room.is_none() && self.long.is_none()
    }

    /// What can be kept of it: numbers that are none are nothing.
    fn sound(self) -> Self {
        let are = |amounts: &[f64]| amounts.iter().all(|it| is_amount(*it));
        let is_room = |it: &Room| are(&[it.cost, it.life, it.share]) && is_part(it.named);
        Self {
            room: self.room.filter(is_room),
            long: self.long.filter(|it| are(&[it.cost, it.life])),
        }
    }
}

/// What is known of a resource.
#[derive(Clone, Debug, Default, PartialEq)]
struct LearnedResource {
    /// With so many cores.
    cores: f64,
    /// By name: when it was last learned, Unix seconds, and what.
    classes: BTreeMap<String, (u64, LearnedClass)>,
}

/// What is known of classes by name, by the names of resources.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Learned(BTreeMap<String, LearnedResource>);

/// Why bytes are not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LearnedError {
    /// More than [`BYTES_MAX`].
    #[error("it is longer than {BYTES_MAX} bytes")]
    TooLong,
    /// Something else lies there.
    #[error("it does not begin as such a file does")]
    Foreign,
    /// Cut off, or changed.
    #[error("it is damaged")]
    Damaged,
    /// Of another version.
    #[error("it is of version {0}, and this is version {VERSION}")]
    Version(u16),
    /// Older than [`AGE_MAX_SECONDS`].
    #[error("it is {0} s old, more than {AGE_MAX_SECONDS} s")]
    Old(u64),
    /// Ahead of the clock.
    #[error("it was saved {0} s in the future")]
    Future(u64),
}

impl Learned {
    /// How many classes are known, on how many resources.
    pub fn counts(&self) -> (usize, usize) {
        let classes = self.0.values().map(|it| it.classes.len()).sum();
        (classes, self.0.len())
    }

    /// What is known of the classes of a resource with so many cores; none if there is no such resource, or it had
    /// another number of cores.
    pub fn of(
        &self,
        resource: &str,
        cores: f64,
    ) -> Option<impl Fn(&str) -> Option<LearnedClass> + '_> {
        let known = self.0.get(resource)?;
        let class = |name: &str| known.classes.get(name).map(|(_, class)| *class);
        is_same(known.cores, cores).then_some(class)
    }

    /// Takes in what is known of a resource's classes now; whether anything is new. What is not known anew stays as it
    /// was; what was learned with another number of cores, too long ago, or beyond the limits, is forgotten.
    pub fn note(
        &mut self,
        resource: &str,
        cores: f64,
        classes: impl IntoIterator<Item = (String, LearnedClass)>,
        now_unix_seconds: u64,
    ) -> bool {
        let full = self.0.len() >= RESOURCES_MAX && !self.0.contains_key(resource);
        if full || !fits(resource) || !is_amount(cores) {
            return false;
        }
        let known = self.0.entry(resource.to_owned()).or_default();
        if !is_same(known.cores, cores) {
            known.classes.clear();
        }
        known.cores = cores;
        let mut is_new = false;
        for (name, class) in classes {
            let class = class.sound();
            if class.is_empty() || !fits(&name) {
                continue;
            }
            let (seen, before) = known.classes.entry(name).or_default();
            let now = LearnedClass {
                room: class.room.or(before.room),
                long: class.long.or(before.long),
            };
            if now != *before {
                (*seen, *before, is_new) = (now_unix_seconds, now, true);
            }
        }
        known.forget(now_unix_seconds);
        is_new
    }

    /// The bytes to keep. Resources that find no room within the longest file are left out.
    pub fn encode(&self, now_unix_seconds: u64) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(now_unix_seconds.to_le_bytes());
        let count_at = bytes.len();
        bytes.extend([0; 2]);
        let mut resources = 0u16;
        for (name, known) in &self.0 {
            let mut part = Vec::new();
            put_name(&mut part, name);
            part.extend(known.cores.to_le_bytes());
            part.extend((known.classes.len() as u16).to_le_bytes());
            for (name, class) in &known.classes {
                put_class(&mut part, name, class);
            }
            if bytes.len() + part.len() + size_of::<u64>() <= BYTES_MAX {
                bytes.extend(part);
                resources += 1;
            }
        }
        bytes[count_at..count_at + 2].copy_from_slice(&resources.to_le_bytes());
        let sum = fnv(&bytes);
        bytes.extend(sum.to_le_bytes());
        bytes
    }

    /// What bytes say, and how many seconds ago they were made.
    ///
    /// # Errors
    /// See [`LearnedError`]; nothing of such bytes is used.
    pub fn decode(bytes: &[u8], now_unix_seconds: u64) -> Result<(Self, u64), LearnedError> {
        if bytes.len() > BYTES_MAX {
            return Err(LearnedError::TooLong);
        }
        let rest = bytes.strip_prefix(MAGIC).ok_or(LearnedError::Foreign)?;
        match Reader(rest).u16() {
            Some(VERSION) => {}
            Some(other) => return Err(LearnedError::Version(other)),
            None => return Err(LearnedError::Damaged),
        }
        let (body, sum) = bytes.split_last_chunk().ok_or(LearnedError::Damaged)?;
        if fnv(body) != u64::from_le_bytes(*sum) {
            return Err(LearnedError::Damaged);
        }
        let start = MAGIC.len() + size_of_val(&VERSION);
        let mut from = Reader(body.get(start..).ok_or(LearnedError::Damaged)?);
        let saved = from.u64().ok_or(LearnedError::Damaged)?;
        let age = now_unix_seconds.saturating_sub(saved);
        let ahead = saved.saturating_sub(now_unix_seconds);
        if age > AGE_MAX_SECONDS {
            return Err(LearnedError::Old(age));
        }
        if ahead > AHEAD_MAX_SECONDS {
            return Err(LearnedError::Future(ahead));
        }
        let learned = from.learned().filter(|_| from.0.is_empty());
        let mut learned = learned.ok_or(LearnedError::Damaged)?;
        let resources = learned.0.values_mut();
        resources.for_each(|it| it.forget(now_unix_seconds));
        Ok((learned, age))
    }
}

impl LearnedResource {
    /// Forgets what was learned too long ago, and of what is too much the oldest.
    fn forget(&mut self, now_unix_seconds: u64) {
        let age = |seen: u64| now_unix_seconds.saturating_sub(seen);
        self.classes
            .retain(|_, (seen, _)| age(*seen) <= AGE_MAX_SECONDS);
        while self.classes.len() > CLASSES_MAX {
            let oldest = self.classes.iter().min_by_key(|(_, (seen, _))| *seen);
            let Some(name) = oldest.map(|(name, _)| name.clone()) else {
                return;
            };
            self.classes.remove(&name);
        }
    }
}

fn fits(name: &str) -> bool {
    name.len() <= NAME_MAX
}

/// Costs, lives, shares and cores are never below zero.
fn is_amount(amount: f64) -> bool {
    (0.0..=AMOUNT_MAX).contains(&amount)
}

fn is_part(part: f64) -> bool {
    (0.0..=1.0).contains(&part)
}

fn is_same(one: f64, other: f64) -> bool {
    (one - other).abs() <= SAME_CORES * one.max(other)
}

fn put_name(to: &mut Vec<u8>, name: &str) {
    to.extend((name.len() as u16).to_le_bytes());
    to.extend(name.as_bytes());
}

fn put_class(to: &mut Vec<u8>, name: &str, (seen, class): &(u64, LearnedClass)) {
    put_name(to, name);
    to.extend(seen.to_le_bytes());
    let flag = |set: bool, flag| if set { flag } else { 0 };
    let named = class.long.is_some_and(|long| long.named);
    let flags = flag(class.room.is_some(), HAS_ROOM) | flag(class.long.is_some(), HAS_LONG);
    to.push(flags | flag(named, LONG_NAMED));
    let mut put = |amounts: &[f64]| amounts.iter().for_each(|it| to.extend(it.to_le_bytes()));
    if let Some(room) = class.room {
        put(&[room.cost, room.life, room.share, room.named]);
        to.extend(room.windows.to_le_bytes());
    }
    if let Some(long) = class.long {
        [long.cost, long.life]
            .iter()
            .for_each(|it| to.extend(it.to_le_bytes()));
    }
}

/// What is left to read; none where there is too little or nonsense.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn amount(&mut self) -> Option<f64> {
        let amount = self.take().map(f64::from_le_bytes)?;
        is_amount(amount).then_some(amount)
    }

    fn name(&mut self) -> Option<String> {
        let length = usize::from(self.u16()?);
        let (name, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        let name = std::str::from_utf8(name).ok()?;
        fits(name).then(|| name.to_owned())
    }

    /// So many things at most.
    fn count(&mut self, most: usize) -> Option<usize> {
        let many = usize::from(self.u16()?);
        (many <= most).then_some(many)
    }

    fn learned(&mut self) -> Option<Learned> {
        let mut learned = Learned::default();
        for _ in 0..self.count(RESOURCES_MAX)? {
            let (name, cores) = (self.name()?, self.amount()?);
            let mut classes = BTreeMap::new();
            for _ in 0..self.count(CLASSES_MAX)? {
                classes.insert(self.name()?, (self.u64()?, self.class()?));
            }
            let known = LearnedResource { cores, classes };
            learned.0.insert(name, known);
        }
        Some(learned)
    }

    fn class(&mut self) -> Option<LearnedClass> {
        let [flags] = self.take()?;
        if flags & !(HAS_ROOM | HAS_LONG | LONG_NAMED) != 0 {
            return None;
        }
        let mut class = LearnedClass::default();
        if flags & HAS_ROOM != 0 {
            class.room = Some(Room {
                cost: self.amount()?,
                life: self.amount()?,
                share: self.amount()?,
                named: self.amount().filter(|part| is_part(*part))?,
                windows: self.take().map(u32::from_le_bytes)?,
            });
        }
        if flags & HAS_LONG != 0 {
            class.long = Some(Long {
                cost: self.amount()?,
                life: self.amount()?,
                named: flags & LONG_NAMED != 0,
            });
        }
        Some(class)
    }
}

fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000;
    const ROOM: Room = Room {
        cost: 0.01,
        life: 0.05,
        share: 0.2,
        named: 0.25,
        windows: 14,
    };
    const LONG: Long = Long {
        cost: 0.02,
        life: 0.06,
        named: true,
    };

    fn class(room: Option<Room>, long: Option<Long>) -> LearnedClass {
        LearnedClass { room, long }
    }

    fn learned() -> Learned {
        let classes = [
            ("/", class(Some(ROOM), None)),
            ("/suche\n?ü", class(Some(ROOM), Some(LONG))),
            ("/b", class(None, Some(LONG))),
        ];
        let mut learned = Learned::default();
        let classes = classes.map(|(name, class)| (name.to_owned(), class));
        learned.note("db cpu", 2.0, classes, NOW);
        learned
    }

    fn known(learned: &Learned, resource: &str, cores: f64, class: &str) -> Option<LearnedClass> {
        learned.of(resource, cores)?(class)
    }

    #[test]
    fn what_was_learned_comes_back_as_it_was() {
        let bytes = learned().encode(NOW);
        assert_eq!(Learned::decode(&bytes, NOW + 60), Ok((learned(), 60)));
        let nothing = Learned::default();
        let bytes = nothing.encode(NOW);
        assert_eq!(Learned::decode(&bytes, NOW), Ok((nothing, 0)));
    }

    #[test]
    fn each_damaged_byte_and_each_cut_is_found() {
        let bytes = learned().encode(NOW);
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x40;
            assert!(Learned::decode(&damaged, NOW).is_err(), "byte {at}");
            assert!(Learned::decode(&bytes[..at], NOW).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn other_files_versions_ages_and_lengths_are_refused_by_name() {
        let bytes = learned().encode(NOW);
        let mut other = bytes.clone();
        other[8] = 9;
        let decode = Learned::decode;
        assert_eq!(decode(&other, NOW), Err(LearnedError::Version(9)));
        assert_eq!(decode(b"{}", NOW), Err(LearnedError::Foreign));
        let late = AGE_MAX_SECONDS + 1;
        assert_eq!(decode(&bytes, NOW + late), Err(LearnedError::Old(late)));
        assert_eq!(decode(&bytes, NOW - 301), Err(LearnedError::Future(301)));
        let long = vec![0; BYTES_MAX + 1];
        assert_eq!(decode(&long, NOW), Err(LearnedError::TooLong));
    }

    #[test]
    fn numbers_that_are_none_are_not_kept_and_refused_under_a_right_sum() {
        let nonsense = [f64::NAN, f64::INFINITY, -1.0, 2.0 * AMOUNT_MAX];
        for cost in nonsense {
            let mut learned = learned();
            let bad = class(Some(ROOM), Some(Long { cost, ..LONG }));
            learned.note("db cpu", 2.0, [("/bad".into(), bad)], NOW);
            let kept = known(&learned, "db cpu", 2.0, "/bad");
            assert_eq!(kept, Some(class(Some(ROOM), None)), "{cost}");
            learned.note("db cpu", cost, [], NOW);
            assert_eq!(learned.counts(), (4, 1));
            let classes = &mut learned.0.get_mut("db cpu").unwrap().classes;
            classes.insert("/bad".into(), (NOW, bad));
            let bytes = learned.encode(NOW);
            assert_eq!(Learned::decode(&bytes, NOW), Err(LearnedError::Damaged));
        }
    }

    #[test]
    fn what_is_not_known_anew_stays_for_a_week() {
        let mut learned = learned();
        let new = Room { cost: 0.5, ..ROOM };
        let mut note = || {
            let classes = [("/".into(), class(Some(new), None))];
            learned.note("db cpu", 2.0, classes, NOW + 9)
        };
        assert!(note() && !note(), "the second time it is nothing new");
        assert_eq!(
            known(&learned, "db cpu", 2.0, "/"),
            Some(class(Some(new), None))
        );
        assert_eq!(
            known(&learned, "db cpu", 2.0, "/b"),
            Some(class(None, Some(LONG)))
        );
        let late = NOW + AGE_MAX_SECONDS + 1;
        let bytes = learned.encode(late);
        let (read, _) = Learned::decode(&bytes, late).unwrap();
        assert_eq!((read.counts(), learned.counts()), ((1, 1), (3, 1)));
        learned.note("db cpu", 2.0, [], late);
        assert_eq!(learned.counts(), (1, 1));
    }

    #[test]
    fn what_was_learned_holds_for_as_many_cores() {
        let mut learned = learned();
        let there = |learned: &Learned, cores| known(learned, "db cpu", cores, "/b").is_some();
        assert!(there(&learned, 2.0) && there(&learned, 1.6));
        assert!(!there(&learned, 4.0) && !there(&learned, 0.0) && !there(&learned, f64::NAN));
        assert!(known(&learned, "disk", 2.0, "/b").is_none());
        learned.note("db cpu", 4.0, [], NOW);
        assert!(!there(&learned, 4.0) && !there(&learned, 2.0));
    }

    #[test]
    fn what_is_beyond_the_limits_is_left_out_the_oldest_first() {
        let mut learned = learned();
        let long = "x".repeat(NAME_MAX + 1);
        let one = class(Some(ROOM), None);
        learned.note(&long, 1.0, [], NOW);
        learned.note("db cpu", 2.0, [(long, one)], NOW);
        assert_eq!(learned.counts(), (3, 1));
        let many = (0..CLASSES_MAX).map(|it| (format!("/{it:0900}"), one));
        learned.note("db cpu", 2.0, many, NOW + 1);
        assert_eq!(learned.counts(), (CLASSES_MAX, 1));
        assert!(known(&learned, "db cpu", 2.0, "/b").is_none());
        let many = (0..CLASSES_MAX).map(|it| (format!("/{it:0900}"), one));
        learned.note("disk", 1.0, many, NOW);
        for it in 0..RESOURCES_MAX {
            learned.note(&format!("r{it}"), 1.0, [], NOW);
        }
        assert_eq!(learned.counts(), (2 * CLASSES_MAX, RESOURCES_MAX));
        let bytes = learned.encode(NOW + 1);
        assert!(bytes.len() <= BYTES_MAX);
        let (read, _) = Learned::decode(&bytes, NOW + 1).unwrap();
        assert_eq!(read.counts(), (CLASSES_MAX, RESOURCES_MAX - 1));
    }
}
