//! The whole of it on plain values: requests whose work is spread evenly over their lives.

use super::*;
use crate::prng::Prng;

const DATABASE: ResourceId = ResourceId(0);
/// Runs begin here.
const START_MS: u64 = 5_000;

/// A window of nothing but noise, for the steps' own tests.
pub(super) fn noise(seed: u64) -> Vec<f32> {
    let mut prng = Prng::new(seed);
    (0..300).map(|_| prng.unit() as f32 - 0.5).collect()
}

/// A class: requests a second, milliseconds of life, of which this part is work.
type Class = (f64, u64, f64);

/// Requests and use by the millisecond, on a resource that none waits for.
struct Site {
    requests: Vec<Request>,
    busy: Vec<f64>,
    seconds: u64,
}

impl Site {
    fn new(classes: &[Class], seconds: u64, seed: u64) -> Self {
        let mut prng = Prng::new(seed);
        let mut site = Self {
            requests: Vec::new(),
            busy: vec![0.0; seconds as usize * 1000 + 5000],
            seconds,
        };
        for (class, (rate, life, part)) in classes.iter().enumerate() {
            let mut at = prng.exponential(1.0 / rate);
            while at < seconds as f64 {
                let life = ((0.5 + prng.unit()) * *life as f64) as u64;
                site.add(class as u16, (at * 1e3) as u64, life.max(1), *part);
                at += prng.exponential(1.0 / rate);
            }
        }
        site
    }

    fn add(&mut self, class: u16, from_ms: u64, life_ms: u64, part: f64) {
        let at = |ms: u64| Timestamp::from_millis(START_MS + ms);
        self.requests.push(Request {
            class: ClassId(class),
            sent: at(from_ms),
            ended: Some(at(from_ms + life_ms)),
        });
        let lived = from_ms as usize..(from_ms + life_ms) as usize;
        self.busy[lived].iter_mut().for_each(|busy| *busy += part);
    }

    /// Tells it all to a discovery and evaluates at the end, after this many evaluations before.
    fn evaluate(&self, cores: f64, turns: u64) -> (Discovery, Verdicts) {
        let mut discovery = Discovery::new(Limits::default());
        let mut sum = 0.0;
        for (ms, busy) in self.busy.iter().enumerate() {
            let ms = ms as u64;
            if ms.is_multiple_of(20) && ms <= self.seconds * 1000 {
                let point = UsagePoint {
                    at: Timestamp::from_millis(START_MS + ms),
                    busy_ns: (sum * 1e6) as u64,
                    cores,
                };
                assert!(discovery.on_usage(DATABASE, point));
            }
            sum += busy.min(cores);
        }
        let end = Timestamp::from_millis(START_MS + self.seconds * 1000);
        for request in &self.requests {
            let ended = request.ended.filter(|ended| *ended <= end);
            assert!(discovery.on_request(&Request { ended, ..*request }));
        }
        (0..turns).for_each(|_| drop(discovery.evaluate(end, DATABASE)));
        let verdicts = discovery.evaluate(end, DATABASE);
        (discovery, verdicts)
    }
}

fn verdict(verdicts: &Verdicts, class: u16) -> &Verdict {
    let found = verdicts
        .classes
        .iter()
        .find(|it| it.class == ClassId(class));
    found.unwrap_or_else(|| panic!("class {class} is missing"))
}

#[test]
fn a_heavy_class_among_light_ones_is_named_and_priced() {
    let classes = [
        (40.0, 20, 0.02),
        (25.0, 60, 0.0),
        (3.0, 150, 0.5),
        (10.0, 90, 0.01),
    ];
    let (_, verdicts) = Site::new(&classes, 30, 1).evaluate(1.0, 1);
    let heavy = &verdicts.classes[0];
    assert_eq!(heavy.class, ClassId(2));
    assert!(heavy.flagged && heavy.p_adjusted < 1e-4, "{heavy:?}");
    assert_eq!(heavy.culprit, Some(Confidence::Strong));
    assert!((heavy.cost_seconds - 0.075).abs() < 0.01, "{heavy:?}");
    assert!((heavy.share - 0.22).abs() < 0.05, "{heavy:?}");
    assert!(heavy.pearson.r > 0.3 && heavy.relative_error < 0.25);
    let spike = heavy.shift_curve.iter().copied().fold(f32::MIN, f32::max);
    assert_eq!(heavy.shift_curve[heavy.shift_curve.len() / 2], spike);
    assert_eq!(verdicts.named().count(), 1);
}

#[test]
fn one_evaluation_flags_nothing_yet() {
    let (_, verdicts) = Site::new(&[(3.0, 150, 0.5), (40.0, 20, 0.0)], 30, 2).evaluate(1.0, 0);
    let heavy = verdict(&verdicts, 0);
    assert!(heavy.culprit.is_some() && !heavy.flagged);
}

#[test]
fn who_always_runs_together_is_one_group() {
    let mut site = Site::new(&[(3.0, 150, 0.5), (40.0, 20, 0.01)], 30, 3);
    let twins = site.requests.iter().filter(|it| it.class == ClassId(0));
    let twins: Vec<_> = twins
        .map(|it| Request {
            class: ClassId(2),
            ..*it
        })
        .collect();
    site.requests.extend(twins);
    let (mut discovery, verdicts) = site.evaluate(1.0, 1);
    for (class, other) in [(0, 2), (2, 0)] {
        let verdict = verdict(&verdicts, class);
        assert_eq!(verdict.culprit, Some(Confidence::Ambiguous));
        assert_eq!(verdict.ambiguous_with, [ClassId(other)]);
    }
    // The delay experiment parts them.
    discovery.on_experiment(DATABASE, ClassId(0), true);
    let verdicts = discovery.evaluate(verdicts.at, DATABASE);
    assert_eq!(verdict(&verdicts, 0).culprit, Some(Confidence::Confirmed));
}

#[test]
fn work_behind_the_reply_is_found() {
    let mut site = Site::new(&[(40.0, 20, 0.01)], 30, 4);
    let mut prng = Prng::new(5);
    for _ in 0..90 {
        let at = prng.below(28_000) as u64;
        site.add(1, at, 10, 0.0);
        site.busy[at as usize + 250..at as usize + 330]
            .iter_mut()
            .for_each(|busy| *busy += 1.0);
    }
    let (_, verdicts) = site.evaluate(2.0, 1);
    assert!(verdict(&verdicts, 1).flagged, "{:?}", verdict(&verdicts, 1));
}

#[test]
fn an_idle_resource_and_an_unknown_one_accuse_nobody() {
    let (mut discovery, verdicts) = Site::new(&[(3.0, 150, 0.5)], 30, 6).evaluate(16.0, 1);
    assert_eq!(verdicts.named().count(), 0);
    assert!(verdicts.utilization < UTILIZATION_MIN && verdicts.classes.len() == 1);
    let unknown = discovery.evaluate(verdicts.at, ResourceId(9));
    assert!(unknown.classes.is_empty());
}

#[test]
fn a_full_resource_is_judged_by_lives() {
    // More work than there is: the counter is at its end all the time.
    let (_, verdicts) =
        Site::new(&[(10.0, 900, 1.0), (60.0, 8, 1.0), (50.0, 5, 0.0)], 30, 7).evaluate(1.0, 1);
    assert!(verdicts.full > 0.9, "{}", verdicts.full);
    assert_eq!(
        verdict(&verdicts, 0).culprit,
        Some(Confidence::FromOccupancy)
    );
    assert_eq!(verdicts.named().count(), 1);
}

#[test]
fn who_was_there_while_there_was_room_is_not_blamed_for_a_backup() {
    let classes = [
        (60.0, 12, 0.3),
        (30.0, 10, 0.3),
        (30.0, 8, 0.3),
        (8.0, 400, 0.0),
    ];
    let mut site = Site::new(&classes, 115, 9);
    let backup = 75_000..115_000;
    site.busy[backup].iter_mut().for_each(|busy| *busy += 1.0);
    let blamed = |from: u64| {
        let (mut discovery, _) = site.evaluate(1.0, 0);
        let at = |ms: u64| Timestamp::from_millis(START_MS + ms);
        for turn in 0..16 {
            discovery.evaluate(at(from + 2500 * turn), DATABASE);
        }
        let verdicts = discovery.evaluate(at(115_000), DATABASE);
        assert!(verdicts.full > 0.9);
        verdicts.named().map(|it| it.class).collect::<Vec<_>>()
    };
    assert_eq!(blamed(35_000), []);
    assert_eq!(blamed(77_500), [ClassId(3)], "nobody has seen it with room");
}

#[test]
fn what_goes_beyond_a_limit_is_refused() {
    let mut discovery = Discovery::new(Limits {
        classes: 2,
        resources: 1,
    });
    let sent = Timestamp::from_millis(5);
    let request = |class: u16, ended: Option<u64>| Request {
        class: ClassId(class),
        sent,
        ended: ended.map(Timestamp::from_millis),
    };
    assert!(discovery.on_request(&request(1, Some(9))));
    assert!(!discovery.on_request(&request(2, Some(9))));
    assert!(
        !discovery.on_request(&request(1, Some(4))),
        "it ended before it was sent"
    );
    for _ in 0..UNFINISHED_MAX {
        assert!(discovery.on_request(&request(0, None)));
    }
    assert!(!discovery.on_request(&request(0, None)));
    discovery.forget_unfinished();
    assert!(discovery.on_request(&request(0, None)));
    let point = UsagePoint {
        at: sent,
        busy_ns: 0,
        cores: 1.0,
    };
    assert!(discovery.on_usage(ResourceId(0), point));
    assert!(!discovery.on_usage(ResourceId(1), point));
}

#[test]
fn p_values_of_several_resources_are_adjusted_together() {
    let (_, one) = Site::new(&[(3.0, 150, 0.5), (40.0, 20, 0.0)], 30, 8).evaluate(1.0, 0);
    let mut both = [one.clone(), one];
    both[1].classes.iter_mut().for_each(|it| it.p = 1.0);
    both[0].classes[0].p = 0.01;
    both[0].classes[1].p = 1.0;
    Verdicts::adjust_together(&mut both);
    assert!((both[0].classes[0].p_adjusted - 0.04).abs() < 1e-12);
    assert_eq!(both[1].classes[0].p_adjusted, 1.0);
}

#[test]
fn a_steady_resource_is_settled_sooner_and_a_recording_is_not() {
    let mut resource = Resource::default();
    for millis in [0, 100] {
        let at = Timestamp::from_millis(millis);
        resource.usage.add(UsagePoint {
            at,
            busy_ns: 0,
            cores: 1.0,
        });
    }
    let settled = |resource: &Resource, seconds: i64| {
        let at = seconds * 1_000_000_000;
        [STEADY_LEAST, SLOW_LEAST].map(|least| resource.is_settled(at, least))
    };
    assert_eq!(settled(&resource, 44), [false, false]);
    assert_eq!(settled(&resource, 45), [true, false]);
    resource.alarm = Some(60_000_000_000);
    assert_eq!(settled(&resource, 89), [false, false]);
    assert_eq!(settled(&resource, 90), [true, true]);
}

/// Requests that share a database of one core which never gives more than `most` of it: two small classes and one
/// that comes after 40 s and asks for more than there is.
fn shared(most: f64, seconds: u64, seed: u64) -> Site {
    let mut site = Site::new(&[], seconds, seed);
    let mut prng = Prng::new(seed);
    // Class, milliseconds of work left, sent.
    let mut open: Vec<(u16, f64, u64)> = Vec::new();
    for ms in 0..seconds * 1000 {
        let from_40_s = if ms < 40_000 { 0.0 } else { 7.0 };
        for (class, rate, work) in [(0, 40.0, 5.0), (1, 20.0, 5.0), (2, from_40_s, 100.0)] {
            if prng.unit() < rate * 1e-3 {
                open.push((class, work * (0.5 + prng.unit()), ms));
            }
        }
        let share = (most / open.len().max(1) as f64).min(1.0);
        for (_, left, _) in &mut open {
            site.busy[ms as usize] += left.min(share);
            *left -= share;
        }
        for (class, _, from) in open.extract_if(.., |it| it.1 <= 0.0) {
            let at = |ms: u64| Timestamp::from_millis(START_MS + ms);
            site.requests.push(Request {
                class: ClassId(class),
                sent: at(from),
                ended: Some(at(ms + 1)),
            });
        }
    }
    site
}

#[test]
fn who_drove_a_resource_to_a_plateau_below_full_stays_accused_while_it_lasts() {
    for seed in 1..=4 {
        let site = shared(0.92, 115, seed);
        let (mut discovery, _) = site.evaluate(1.0, 0);
        let mut flagged = Vec::new();
        for turn in 0..34 {
            let at = Timestamp::from_millis(START_MS + 30_000 + 2500 * turn);
            let verdicts = discovery.evaluate(at, DATABASE);
            assert!(verdicts.full < 0.1, "{}", verdicts.full);
            flagged.push(verdicts.flagged().map(|it| it.class.0).collect::<Vec<_>>());
        }
        // Ten seconds after it came, until the end, which is 65 s later.
        let late = &flagged[8..];
        assert!(late.iter().all(|it| *it == [2]), "seed {seed}: {flagged:?}");
    }
}

fn before(named: bool, cost: f64, room: Option<Room>) -> LearnedClass {
    let long = Long {
        cost,
        life: 0.15,
        named,
    };
    LearnedClass {
        room,
        long: Some(long),
    }
}

#[test]
fn what_is_known_from_before_a_start_keeps_an_innocent_from_being_named() {
    let site = Site::new(&[(40.0, 20, 0.02), (3.0, 150, 0.5)], 30, 1);
    let end = Timestamp::from_millis(START_MS + 30_000);
    let culprit = |learned: LearnedClass| {
        let (mut discovery, verdicts) = site.evaluate(1.0, 0);
        assert!(verdict(&verdicts, 1).culprit.is_some());
        assert_eq!(discovery.basis(end, DATABASE), Basis::NotYet);
        assert!(discovery.recall(DATABASE, ClassId(1), learned));
        assert_eq!(discovery.basis(end, DATABASE), Basis::BeforeStart);
        let verdicts = discovery.evaluate(end, DATABASE);
        verdict(&verdicts, 1).culprit.is_some()
    };
    assert!(culprit(before(true, 0.075, None)));
    assert!(!culprit(before(false, 0.01, None)));
    let mut discovery = Discovery::new(Limits::default());
    let beyond = ClassId(Limits::default().classes);
    let known = before(true, 0.1, None);
    assert!(!discovery.recall(DATABASE, beyond, known));
    assert!(!discovery.recall(ResourceId(u16::MAX), ClassId(0), known));
}

#[test]
fn what_is_known_from_before_a_start_gives_way_to_what_is_seen() {
    // It cost a second of a slower server, which is no longer so.
    let room = Room {
        cost: 1.0,
        life: 2.0,
        share: 0.5,
        named: 1.0,
        windows: u32::MAX,
    };
    let site = Site::new(&[(40.0, 20, 0.02), (3.0, 150, 0.5)], 60, 1);
    let end = Timestamp::from_millis(START_MS + 60_000);
    let (mut discovery, _) = site.evaluate(1.0, 0);
    assert!(discovery.recall(DATABASE, ClassId(1), before(true, 1.0, Some(room))));
    assert_eq!(discovery.basis(end, DATABASE), Basis::BeforeStart);
    let learned = |discovery: &Discovery| discovery.learned(DATABASE)[&ClassId(1)];
    assert_eq!(
        learned(&discovery).long,
        None,
        "what was recalled is not learned"
    );
    for _ in 0..WINDOWS_MIN {
        discovery.evaluate(end, DATABASE);
    }
    assert_eq!(discovery.basis(end, DATABASE), Basis::Seen);
    let LearnedClass { room, long } = learned(&discovery);
    let (room, long) = (room.unwrap(), long.unwrap());
    assert!((room.cost - 0.075).abs() < 0.05, "{room:?}");
    assert!((long.cost - 0.075).abs() < 0.02, "{long:?}");
    // Later calls change nothing.
    assert!(discovery.recall(DATABASE, ClassId(1), before(true, 1.0, Some(room))));
    assert_eq!(learned(&discovery).room, Some(room));
}

#[test]
fn what_was_learned_is_as_good_in_the_next_life() {
    let site = Site::new(&[(40.0, 20, 0.02), (3.0, 150, 0.5)], 60, 1);
    let (discovery, _) = site.evaluate(1.0, u64::from(WINDOWS_MIN));
    let name = |class: ClassId| class.0.to_string();
    let known = discovery.learned(DATABASE).into_iter();
    let mut learned = Learned::default();
    learned.note("db", 1.0, known.map(|(class, it)| (name(class), it)), 1000);
    let (learned, _) = Learned::decode(&learned.encode(1000), 1060).unwrap();
    let (mut next, _) = Site::new(&[(40.0, 20, 0.02)], 10, 2).evaluate(1.0, 0);
    let of = learned.of("db", 1.0).unwrap();
    for class in [ClassId(0), ClassId(1)] {
        assert!(next.recall(DATABASE, class, of(&name(class)).unwrap()));
    }
    let rooms = |discovery: &Discovery| discovery.learned(DATABASE).into_values();
    let rooms = |discovery: &Discovery| rooms(discovery).map(|it| it.room.unwrap().cost);
    for (one, other) in rooms(&discovery).zip(rooms(&next)) {
        assert!((one - other).abs() <= 0.5 * one, "{one} {other}");
    }
}

#[test]
fn a_number_that_is_given_away_anew_has_nothing_of_the_class_that_had_it() {
    let site = Site::new(&[(40.0, 20, 0.02), (3.0, 150, 0.5)], 60, 1);
    let later = Timestamp::from_millis(START_MS + 60_000);
    // Learned, named, shown and confirmed; the same with what was known before the start.
    let (mut discovery, verdicts) = site.evaluate(1.0, u64::from(WINDOWS_MIN));
    assert!(verdict(&verdicts, 1).culprit.is_some() && verdict(&verdicts, 1).flagged);
    discovery.on_experiment(DATABASE, ClassId(1), true);
    let (mut begun, _) = site.evaluate(1.0, 0);
    assert!(begun.recall(DATABASE, ClassId(1), before(true, 1.0, None)));
    for discovery in [&mut discovery, &mut begun] {
        let unfinished = Request {
            class: ClassId(1),
            sent: later,
            ended: None,
        };
        assert!(discovery.on_request(&unfinished));
        let others = discovery.learned(DATABASE).remove(&ClassId(0));
        discovery.forget(ClassId(1));
        let learned = discovery.learned(DATABASE);
        assert_eq!(learned.get(&ClassId(1)), None);
        assert_eq!(learned.get(&ClassId(0)).copied(), others);
        assert_eq!(discovery.unfinished, []);
        assert_eq!(discovery.recent.lives(1).count(), 0);
        assert_ne!(discovery.recent.lives(0).count(), 0);
        let resource = &discovery.resources[0];
        let before_start = resource.before_start.iter().flatten();
        assert!(
            !before_start
                .chain(resource.long.iter().flatten())
                .any(|it| *it.0 == 1)
        );
        assert!(resource.slow.iter().all(|it| it.class != 1));
        assert!(!discovery.persistence.is_flagged(DATABASE, ClassId(1)));
        assert_eq!(discovery.confirmed.len(), 0);
    }
}

#[test]
fn a_resources_number_that_is_given_away_anew_has_nothing_of_the_one_that_had_it() {
    let site = Site::new(&[(40.0, 20, 0.02), (3.0, 150, 0.5)], 60, 1);
    let (mut discovery, verdicts) = site.evaluate(1.0, u64::from(WINDOWS_MIN));
    assert!(verdict(&verdicts, 1).flagged);
    discovery.on_experiment(DATABASE, ClassId(1), true);
    discovery.forget_resource(DATABASE);
    assert_eq!(discovery.learned(DATABASE), BTreeMap::new());
    assert!(!discovery.persistence.is_flagged(DATABASE, ClassId(1)));
    assert_eq!(discovery.confirmed.len(), 0);
    let later = Timestamp::from_millis(START_MS + 60_000);
    assert_eq!(discovery.basis(later, DATABASE), Basis::NotYet);
    assert_eq!(discovery.evaluate(later, DATABASE).classes, []);
    // One that never was is forgotten as well.
    discovery.forget_resource(ResourceId(9));
}
