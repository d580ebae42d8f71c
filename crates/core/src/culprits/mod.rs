//! Culprits: which classes of requests explain the load of a resource, at what cost per request.
//!
//! ```text
//! requests: class, sent, ended ──> Bins, Recent ─┐
//! readings: busy counter, cores ──> Usage ───────┴─> Student: steps 1 to 8 ──> Verdicts
//!                                                                  ambiguous ──> DelayExperiment
//! ```
//!
//! The idea in one sentence: regress the resource's use, in bins of 100 ms, on where each class's
//! requests were in progress, rather than on how many came or ended in each second. One step a file:
//! `clock`, `high_pass`, `atoms`, `screen`, `nnls`, `virtual_time`, `cross_fit`, `arrivals`, `shift_null`,
//! `occupancy`, `slowdown`, `decision`; [`delay_experiment`] is for what observation cannot decide, and [`WholeRecording`]
//! the judgement on a recording from all that was said while it was played.
//!
//! What it does not know: servers, URLs, files, clocks. Single-threaded on purpose: an evaluation
//! takes some milliseconds every 2.5 s, and threads made it slower.
//!
//! Failure case: what always runs together cannot be separated, a full resource says nothing of what
//! fills it, and a share of less than 4 % is not looked for. Verdicts say so.
//!
//! Source: Elephants-2005 for the question; the steps' files for the answers.

mod alignment;
mod ambiguous;
mod arrivals;
mod atoms;
mod bins;
mod clock;
mod cross_fit;
mod decision;
pub mod delay_experiment;
mod event;
mod false_discovery;
mod folds;
mod high_pass;
mod learned;
mod lives;
mod newey_west;
mod nnls;
mod occupancy;
mod onset;
mod pearson;
mod persistence;
mod plateau;
mod recent;
mod screen;
mod series;
mod shift_null;
mod slowdown;
mod study;
#[cfg(test)]
mod tests;
mod usage;
mod verdict;
mod virtual_time;
mod whole;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

pub use alignment::{Alignment, Binned, align};
pub use event::RequestEvent;
pub use learned::{AGE_MAX_SECONDS, BYTES_MAX, Learned, LearnedClass, LearnedError};
pub use pearson::Pearson;
pub use verdict::{Confidence, Verdict, Verdicts};
pub use whole::{NamedSpan, WholeRecording};

pub use crate::classes::ClassId;
use crate::time::Timestamp;
use bins::{Bins, Window, signed};
use decision::Long;
use onset::is_onset;
use persistence::Persistence;
use plateau::LastEvidence;
use recent::Recent;
use slowdown::{ROOM, Room, WINDOWS_MIN};
use study::{ClassFinding, Known, Student, Study};
use usage::Usage;

/// A resource: a place in the caller's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceId(pub u16);

/// How often an evaluation is worth its cost.
pub const EVERY: Duration = Duration::from_millis(2500);
/// Use below which no culprit is needed, as a part of the capacity.
pub const UTILIZATION_MIN: f64 = 0.1;
/// Most requests that are known as unfinished; more are left out.
pub const UNFINISHED_MAX: usize = 65_536;

/// Windows in bins: the usual one, the one after an onset, the one for slow cases, the least of all.
const USUAL: usize = 300;
const AFTER_ONSET: usize = 100;
const SLOW: usize = 1200;
const LEAST: usize = 75;
/// Least of the slow window that must be known, in bins, and least where the use has been steady; how often it is
/// looked at, in evaluations.
const SLOW_LEAST: i64 = 900;
const STEADY_LEAST: i64 = 450;
const SLOW_EVERY: u32 = 4;
/// How long after an alarm the use is steady again, nanoseconds.
const STEADY_AFTER: i64 = 60_000_000_000;
/// How long after an alarm the short window is looked at, nanoseconds.
const ALARM_LASTS: i64 = 15_000_000_000;
/// From which t and shift ratio on a verdict is strong.
const STRONG: (f64, f64) = (8.0, 2.0);

/// A request as a front-end saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its class.
    pub class: ClassId,
    /// When it was sent to a server.
    pub sent: Timestamp,
    /// When its last byte came from the server; none as long as it has not.
    pub ended: Option<Timestamp>,
}

/// A reading of a resource's busy counter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UsagePoint {
    /// When, by a clock that is within 300 ms of the front-end's.
    pub at: Timestamp,
    /// Nanoseconds of use so far, of all cores.
    pub busy_ns: u64,
    /// Cores that can be used.
    pub cores: f64,
}

/// What a verdict rests on besides the usual window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// Nothing: too little was seen so far, and nothing is known from before the start.
    NotYet,
    /// What was known before the start.
    BeforeStart,
    /// The long window.
    Seen,
}

impl Basis {
    /// As reports have it.
    pub fn label(self) -> &'static str {
        match self {
            Self::NotYet => "not yet",
            Self::BeforeStart => "before the start",
            Self::Seen => "seen",
        }
    }
}

/// How much is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Classes; 57 kB each once it is in use. Requests of others are left out.
    pub classes: u16,
    /// Resources; 26 kB each. Readings of others are left out.
    pub resources: u16,
}

impl Default for Limits {
    /// 14 MB when all is in use.
    fn default() -> Self {
        Self {
            classes: 256,
            resources: 16,
        }
    }
}

/// See the module. One for each site or tier of front-ends.
#[derive(Debug)]
pub struct Discovery {
    limits: Limits,
    bins: Bins,
    recent: Recent,
    unfinished: Vec<(usize, i64)>,
    resources: Vec<Resource>,
    persistence: Persistence,
    confirmed: BTreeSet<(ResourceId, ClassId)>,
    /// So much must be known of a steady resource before a look at the long window, bins.
    steady_least: i64,
}

#[derive(Debug, Default)]
struct Resource {
    usage: Usage,
    /// When its use last changed all at once.
    alarm: Option<i64>,
    evaluations: u32,
    /// What the last two looks at the slow window both named.
    slow: Vec<ClassFinding>,
    /// Classes as the last look at it saw them; none before the first.
    long: Option<BTreeMap<usize, Long>>,
    /// The same of before the start; none once there is an own look, or the use has changed.
    before_start: Option<BTreeMap<usize, Long>>,
    /// Classes as they were when it last had room.
    room: BTreeMap<usize, Room>,
    /// What the fit last said of each class that it named.
    last: LastEvidence,
}

impl Resource {
    /// For how long use is known, bins.
    fn known(&self, now: i64) -> i64 {
        self.usage
            .since()
            .map_or(0, |since| (now - since) / bins::BIN_NS)
    }

    /// Whether enough is known for a look at the long window.
    fn is_settled(&self, now: i64, steady_least: i64) -> bool {
        let least = match self.alarm.is_some_and(|alarm| now - alarm < STEADY_AFTER) {
            true => SLOW_LEAST,
            false => steady_least,
        };
        self.known(now) >= least
    }
}

impl Discovery {
    /// Knows nothing yet.
    pub fn new(limits: Limits) -> Self {
        let classes = usize::from(limits.classes);
        Self {
            limits,
            bins: Bins::new(classes),
            recent: Recent::new(classes),
            unfinished: Vec::new(),
            resources: Vec::new(),
            persistence: Persistence::default(),
            confirmed: BTreeSet::new(),
            steady_least: STEADY_LEAST,
        }
    }

    /// Of a recording. A class that is accused in one must be named for longer than a window anyway ([`WholeRecording`]), so a
    /// steady start is no reason to ask the long window early.
    pub fn of_recording(limits: Limits) -> Self {
        Self {
            steady_least: SLOW_LEAST,
            ..Self::new(limits)
        }
    }

    /// A request, of any front-end, in any order. Finished ones are given once; unfinished ones anew
    /// before each evaluation, after [`Discovery::forget_unfinished`]. False if it is left out: its
    /// class is beyond the limit, it ended before it was sent, or too many are unfinished.
    pub fn on_request(&mut self, request: &Request) -> bool {
        let class = usize::from(request.class.0);
        if request.class.0 >= self.limits.classes {
            return false;
        }
        match request.ended {
            Some(ended) if ended < request.sent => false,
            Some(ended) => {
                self.recent.add(class, request.sent, ended);
                self.bins.add(class, request.sent, ended)
            }
            None => {
                let room = self.unfinished.len() < UNFINISHED_MAX;
                if room {
                    self.unfinished.push((class, signed(request.sent)));
                }
                room
            }
        }
    }

    /// Forgets which requests had not ended.
    pub fn forget_unfinished(&mut self) {
        self.unfinished.clear();
    }

    /// A reading of a resource. False if the resource is beyond the limit.
    pub fn on_usage(&mut self, resource: ResourceId, point: UsagePoint) -> bool {
        if resource.0 >= self.limits.resources {
            return false;
        }
        self.resource(resource).usage.add(point);
        true
    }

    /// A class's number is another class's from now on: forgets what was found out about the one that had it. Its
    /// requests, which only time forgets, must have ended longer ago than the longest window.
    pub fn forget(&mut self, class: ClassId) {
        let place = usize::from(class.0);
        for resource in &mut self.resources {
            resource.room.remove(&place);
            resource.slow.retain(|seen| seen.class != place);
            let looks = [&mut resource.long, &mut resource.before_start];
            for look in looks.into_iter().flatten() {
                look.remove(&place);
            }
            resource.last.forget(place);
        }
        self.recent.forget(place);
        self.unfinished.retain(|(of, _)| *of != place);
        self.persistence.forget(class);
        self.confirmed.retain(|(_, of)| *of != class);
    }

    /// A resource's number is another one's from now on: forgets what was read and found out of the one that had it.
    pub fn forget_resource(&mut self, resource: ResourceId) {
        if let Some(known) = self.resources.get_mut(usize::from(resource.0)) {
            *known = Resource::default();
        }
        self.persistence.forget_resource(resource);
        self.confirmed.retain(|(of, _)| *of != resource);
    }

    /// The delay experiment has said whether a class uses a resource; it stands until it says otherwise.
    pub fn on_experiment(&mut self, resource: ResourceId, class: ClassId, guilty: bool) {
        match guilty {
            true => self.confirmed.insert((resource, class)),
            false => self.confirmed.remove(&(resource, class)),
        };
    }

    /// What has been learned of each class on a resource by own looks, and is worth keeping over a restart.
    pub fn learned(&self, resource: ResourceId) -> BTreeMap<ClassId, LearnedClass> {
        let mut learned: BTreeMap<ClassId, LearnedClass> = BTreeMap::new();
        let Some(resource) = self.resources.get(usize::from(resource.0)) else {
            return learned;
        };
        let known = |(_, room): &(_, &Room)| room.windows >= WINDOWS_MIN;
        for (class, room) in resource.room.iter().filter(known) {
            learned.entry(class_of(*class)).or_default().room = Some(*room);
        }
        for (class, long) in resource.long.iter().flatten() {
            learned.entry(class_of(*class)).or_default().long = Some(*long);
        }
        learned
    }

    /// What was known of a class before the start. It gives way to what is seen: the long window to the first own
    /// look at it, or to a sudden change of the use; what is known with room to each window with room, which takes a
    /// quarter of its weight. False if the resource or the class is beyond the limit.
    pub fn recall(&mut self, resource: ResourceId, class: ClassId, learned: LearnedClass) -> bool {
        if resource.0 >= self.limits.resources || class.0 >= self.limits.classes {
            return false;
        }
        let place = usize::from(class.0);
        let resource = self.resource(resource);
        if let Some(before) = learned.room {
            let room = match resource.room.get(&place) {
                Some(own) if own.windows >= WINDOWS_MIN => *own,
                Some(own) => before.with(*own),
                None => before,
            };
            resource.room.insert(place, room);
        }
        if let Some(long) = learned.long.filter(|_| resource.long.is_none()) {
            let before = resource.before_start.get_or_insert_default();
            before.insert(place, long);
        }
        true
    }

    /// What a verdict on a resource rests on now.
    pub fn basis(&self, now: Timestamp, resource: ResourceId) -> Basis {
        let Some(resource) = self.resources.get(usize::from(resource.0)) else {
            return Basis::NotYet;
        };
        let all = i64::try_from(SLOW).unwrap_or(i64::MAX);
        if resource.long.is_some() || resource.known(signed(now)) >= all {
            Basis::Seen
        } else if resource.before_start.is_some() {
            Basis::BeforeStart
        } else {
            Basis::NotYet
        }
    }

    /// The resource at a place within the limit.
    fn resource(&mut self, resource: ResourceId) -> &mut Resource {
        let place = usize::from(resource.0);
        if self.resources.len() <= place {
            self.resources.resize_with(place + 1, Resource::default);
        }
        &mut self.resources[place]
    }

    /// The use of a resource between two moments, seconds; none if not all of it is known (yet).
    pub fn used(&self, resource: ResourceId, from: Timestamp, to: Timestamp) -> Option<f64> {
        let resource = self.resources.get(usize::from(resource.0))?;
        resource.usage.between(signed(from), signed(to))
    }

    /// Which classes cause the use of a resource. To be asked every 2.5 s or so: what is named
    /// rests on the last three answers.
    pub fn evaluate(&mut self, now: Timestamp, resource: ResourceId) -> Verdicts {
        self.persistence.begin(resource);
        let place = usize::from(resource.0);
        let nothing = Verdicts {
            resource,
            at: now,
            utilization: 0.0,
            full: 0.0,
            clock_shift_ms: 0,
            classes: Vec::new(),
        };
        let Some(window) = self.window(now, place) else {
            return nothing;
        };
        self.listen(now, place);
        self.look_back(now, place);
        let (mut study, pearson) = self.study(now, place, window);
        let on_plateau = self.resources[place].last.keep(&mut study);
        match study.utilization > UTILIZATION_MIN {
            true if on_plateau => {}
            true => self.note_room(place, &study, 1),
            false => self.note_calm(now, place, window),
        }
        let mut classes: Vec<_> = study
            .seen
            .into_iter()
            .zip(pearson)
            .map(|(seen, pearson)| self.verdict(resource, seen, pearson, study.utilization))
            .collect();
        classes.sort_by(|one, other| {
            let order = other.share.total_cmp(&one.share);
            order.then(one.class.cmp(&other.class))
        });
        let mut verdicts = [Verdicts {
            utilization: study.utilization,
            full: study.full,
            clock_shift_ms: clock::milliseconds(study.shift),
            classes,
            ..nothing
        }];
        Verdicts::adjust_together(&mut verdicts);
        let [verdicts] = verdicts;
        verdicts
    }

    /// The usual window, or as much of it as is known.
    fn window(&self, now: Timestamp, place: usize) -> Option<Window> {
        let since = self.resources.get(place)?.usage.since()?;
        let known = (signed(now) - since) / bins::BIN_NS;
        let known = usize::try_from(known).ok()?.min(USUAL);
        (known >= LEAST).then(|| Window::before(now, known))
    }

    /// Listens for a change of the use.
    fn listen(&mut self, now: Timestamp, place: usize) {
        let usage = &self.resources[place].usage;
        let window = Window::before(now, USUAL);
        let used = usage.read(window, 0);
        let seconds = used
            .chunks_exact(10)
            .map(|bins| bins.iter().map(|x| f64::from(*x)).sum::<f64>());
        let seconds: Vec<_> = seconds.filter(|used| used.is_finite()).collect();
        if is_onset(&seconds, usage.cores()) {
            let resource = &mut self.resources[place];
            (resource.alarm, resource.before_start) = (Some(signed(now)), None);
        }
    }

    /// Looks at the slow window now and then. Its evaluations have most of their data in common, so
    /// two in a row must agree before one counts.
    fn look_back(&mut self, now: Timestamp, place: usize) {
        let resource = &mut self.resources[place];
        resource.evaluations = resource.evaluations.wrapping_add(1);
        if !resource.is_settled(signed(now), self.steady_least) {
            // What was seen before the change is no longer so.
            (resource.slow, resource.long) = (Vec::new(), None);
            return;
        }
        if !resource.evaluations.is_multiple_of(SLOW_EVERY) {
            return;
        }
        let bins = usize::try_from(resource.known(signed(now))).unwrap_or(0);
        let bins = bins.min(SLOW);
        let known = Known {
            bins: &self.bins,
            recent: &self.recent,
            unfinished: &self.unfinished,
            usage: &resource.usage,
            room: &resource.room,
        };
        let student = Student::new(&known, Window::before(now, bins), signed(now));
        let busy = student.utilization() > UTILIZATION_MIN;
        let study = if busy {
            student.study()
        } else {
            student.leave()
        };
        let id = ResourceId(u16::try_from(place).unwrap_or(u16::MAX));
        let long = study.seen.iter().map(|seen| {
            let (mut named, mut evidence) = (seen.named && !seen.by_occupancy, seen.evidence);
            if self.persistence.is_flagged(id, class_of(seen.class)) && !seen.cleared {
                evidence = decision::eased(&seen.evidence);
                named |= evidence.t > 0.0 && decision::is_culprit(&evidence);
            }
            let evidence = &evidence;
            let long = Long {
                cost: evidence.cost,
                life: evidence.mean_life,
                named: named && decision::is_culprit_of_long(evidence),
            };
            (seen.class, long)
        });
        let long: BTreeMap<_, _> = long.collect();
        let names =
            |long: &BTreeMap<usize, Long>, class| long.get(&class).is_some_and(|it| it.named);
        let mut slow = study.seen;
        slow.retain(|seen| {
            let before = resource.long.as_ref();
            names(&long, seen.class) && before.is_some_and(|it| names(it, seen.class))
        });
        (resource.slow, resource.long) = (slow, Some(long));
        resource.before_start = None;
    }

    fn study(&self, now: Timestamp, place: usize, window: Window) -> (Study, Vec<Pearson>) {
        let resource = &self.resources[place];
        let known = Known {
            bins: &self.bins,
            recent: &self.recent,
            unfinished: &self.unfinished,
            usage: &resource.usage,
            room: &resource.room,
        };
        let at = signed(now);
        let student = Student::new(&known, window, at);
        let busy = student.utilization() > UTILIZATION_MIN;
        let used = student.seconds(student.used());
        let known_seconds: Vec<_> = (0..used.len()).filter(|k| used[*k].is_finite()).collect();
        let pick =
            |series: &[f64]| -> Vec<f64> { known_seconds.iter().map(|k| series[*k]).collect() };
        let used = pick(&used);
        let completions = |class: usize| student.seconds(&self.bins.completions(class, window));
        let pearson: Vec<_> = student
            .classes()
            .map(|class| Pearson::of(&pick(&completions(class)), &used))
            .collect();
        if !busy {
            return (student.leave(), pearson);
        }
        let mut study = student.study();
        let alarmed = resource.alarm.is_some_and(|alarm| at - alarm < ALARM_LASTS);
        if alarmed && window.bins > 2 * AFTER_ONSET {
            let short = Student::new(&known, Window::before(now, AFTER_ONSET), at).study();
            if study.full <= study::FULL_TIME_SHARE && short.full <= study::FULL_TIME_SHARE {
                take_named(&mut study, short.seen);
            }
        }
        let id = ResourceId(u16::try_from(place).unwrap_or(u16::MAX));
        for seen in study.seen.iter_mut().filter(|seen| !seen.by_occupancy) {
            let flagged = self.persistence.is_flagged(id, class_of(seen.class));
            let mut evidence = seen.evidence;
            if flagged && !seen.cleared && evidence.t > 0.0 {
                evidence = decision::eased(&evidence);
                seen.named |= decision::is_culprit(&evidence);
            }
            let before_start = resource.before_start.as_ref();
            let all = resource.long.as_ref().or(before_start);
            if let Some(all) = all.filter(|_| seen.named) {
                let long = all.get(&seen.class).copied().unwrap_or_default();
                let known = before_start.is_some_and(|it| it.contains_key(&seen.class));
                let new = !known && self.is_new(seen.class, now);
                seen.named = decision::stands(&evidence, &long, new);
            }
        }
        take_named(&mut study, resource.slow.clone());
        (study, pearson)
    }

    /// A resource that hardly anything uses has no culprits, but says most clearly which classes need nothing of it. It is
    /// studied now and then, and each look counts for those in between.
    fn note_calm(&mut self, now: Timestamp, place: usize, window: Window) {
        let resource = &self.resources[place];
        if !resource.evaluations.is_multiple_of(SLOW_EVERY) {
            return;
        }
        let known = Known {
            bins: &self.bins,
            recent: &self.recent,
            unfinished: &self.unfinished,
            usage: &resource.usage,
            room: &resource.room,
        };
        let mut study = Student::new(&known, window, signed(now)).study();
        study.seen.iter_mut().for_each(|seen| seen.alone = false);
        self.note_room(place, &study, SLOW_EVERY);
    }

    /// Keeps what was found of each class while the resource had room, by so many windows.
    fn note_room(&mut self, place: usize, study: &Study, windows: u32) {
        // Where nothing at all was used, nothing was fitted, and no class used anything.
        if study.full > ROOM || (!study.fitted && study.utilization > 0.0) {
            return;
        }
        let room = study.seen.iter().map(|seen| {
            let room = Room {
                cost: seen.evidence.cost,
                life: seen.evidence.mean_life,
                share: seen.evidence.share,
                named: f64::from(u8::from(seen.alone)),
                windows,
            };
            (seen.class, room)
        });
        let known = &mut self.resources[place].room;
        for (class, room) in room {
            let mean = known.get(&class).map_or(room, |known| known.with(room));
            known.insert(class, mean);
        }
    }

    /// Whether hardly any requests of a class were there before the usual window.
    fn is_new(&self, class: usize, now: Timestamp) -> bool {
        let all = self.bins.completions(class, Window::before(now, SLOW));
        let (before, usual) = all.split_at(SLOW - USUAL);
        let rate =
            |bins: &[f32]| bins.iter().map(|x| f64::from(*x)).sum::<f64>() / bins.len() as f64;
        decision::is_new(rate(usual), rate(before))
    }

    fn verdict(
        &mut self,
        resource: ResourceId,
        seen: ClassFinding,
        pearson: Pearson,
        utilization: f64,
    ) -> Verdict {
        let class = class_of(seen.class);
        if seen.named {
            self.persistence.name(resource, class);
        }
        let evidence = seen.evidence;
        let error = match evidence.t > 0.0 {
            true => 2.0 / evidence.t,
            false => f64::INFINITY,
        };
        // No class uses more than is used.
        let fits = (utilization / evidence.share.max(f64::MIN_POSITIVE)).min(1.0);
        let (share, cost) = (evidence.share * fits, evidence.cost * fits);
        let low = match seen.by_occupancy {
            true => 0.0,
            false => cost * (1.0 - error).max(0.0),
        };
        let high = match error.is_finite() {
            true => cost * (1.0 + error),
            false => cost,
        };
        let confidence = if self.confirmed.contains(&(resource, class)) {
            Confidence::Confirmed
        } else if seen.by_occupancy {
            Confidence::FromOccupancy
        } else if !seen.with.is_empty() {
            Confidence::Ambiguous
        } else if evidence.t >= STRONG.0 && evidence.rm >= STRONG.1 {
            Confidence::Strong
        } else {
            Confidence::Likely
        };
        Verdict {
            class,
            requests: evidence.requests,
            share,
            cost_seconds: cost,
            relative_error: error,
            cost_range: [low, high.max(evidence.most)],
            bounded: evidence.most > 0.0,
            least_cost_seconds: evidence.least,
            t: evidence.t,
            z: evidence.z,
            shift_ratio: evidence.rm,
            p: seen.p,
            p_adjusted: 1.0,
            pearson,
            shift_curve: seen.curve,
            window: Duration::from_secs_f64(evidence.window),
            culprit: seen.named.then_some(confidence),
            ambiguous_with: match seen.named && confidence == Confidence::Ambiguous {
                true => seen.with.iter().map(|it| class_of(*it)).collect(),
                false => Vec::new(),
            },
            suspected: seen.suspected,
            presumed: seen.presumed,
            flagged: self.persistence.is_flagged(resource, class),
        }
    }
}

/// A class by its place.
fn class_of(place: usize) -> ClassId {
    ClassId(u16::try_from(place).unwrap_or(u16::MAX))
}

/// What another window names and this one does not.
fn take_named(study: &mut Study, other: Vec<ClassFinding>) {
    for named in other.into_iter().filter(|seen| seen.named) {
        let own = study.seen.iter_mut().find(|seen| seen.class == named.class);
        if let Some(own) = own.filter(|own| !own.named) {
            *own = named;
        }
    }
}
