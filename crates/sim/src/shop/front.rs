//! The front-end: the core's parts, and what a shell does between them.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::admission::Priority;
use tidegate_core::classes::ClassId;
use tidegate_core::culprits::{
    Discovery, EVERY, Limits, Request, ResourceId, UsagePoint, Verdicts,
};
use tidegate_core::director::Director;
use tidegate_core::load::{History, LoadTable, Progress, Reading, RestKind};
use tidegate_core::picker::{Arrival, Decision, Outcome, Picker, Resting, Ticket, WaitId};
use tidegate_core::policy::{PolicyConfig, PolicyKind};
use tidegate_core::record::LoadRecord;
use tidegate_core::stats::quantile;
use tidegate_core::throttle::{
    Automatic, ClassPattern, Culprit, Entry, Heard, HeldId, HeldOutcome, Present, SetBy,
    ThrottleId, Throttles, UsedPart, lowered,
};
use tidegate_core::time::Timestamp;
use tidegate_core::topology::{Capacity, ClusterSpec, NodeId, NodeSpec, SiteId, SiteSpec};

use super::server::Server;
use super::{Shop, Sight, TICK};

/// The network, one way.
const DELAY: Duration = Duration::from_micros(50);
/// Between two readings of the database's counter, and what `automatic` looks back.
const READ_EVERY: Duration = Duration::from_millis(10);
const WINDOW: Duration = Duration::from_secs(5);
/// Between two looks of `automatic`.
const ACT_EVERY: Duration = Duration::from_secs(1);
/// Part of the SLO from which on a request that waits for room is held back.
const HELD_BACK: f64 = 0.1;
/// Most requests that throttles hold.
/// Requests of which the median tells what one takes.
const TOOK_MIN: usize = 10;
const HELD_MAX: usize = 100_000;

const SITE: SiteId = SiteId(0);
const NODE: NodeId = NodeId(0);
/// The web server's CPUs, and the database's.
const RESOURCES: [&str; 2] = ["shop cpu", "db cpu"];

/// A request in the front-end's hands.
#[derive(Debug)]
struct Open {
    class: usize,
    asked: Timestamp,
    sent: Option<Timestamp>,
    ticket: Option<Ticket>,
    throttle: Option<ThrottleId>,
    /// Since its answer is long overdue.
    rest: Option<Resting>,
}

/// How one fared that ended or was refused: class, when, time waited and time in all.
type Fared = (usize, Timestamp, Option<(f64, f64)>);

/// See the module.
#[derive(Debug)]
pub(super) struct Front {
    paths: Vec<&'static str>,
    names: Vec<String>,
    table: Arc<LoadTable>,
    director: Director,
    picker: Picker,
    history: History,
    throttles: Throttles,
    held: HashMap<HeldId, u64>,
    open: BTreeMap<u64, Open>,
    /// What the world gets: a number, and whether it goes on.
    told: VecDeque<(u64, bool)>,
    discovery: Discovery,
    verdicts: Vec<Verdicts>,
    automatic: Option<Automatic>,
    slo: f64,
    late: VecDeque<Fared>,
    /// Readings of both counters, seconds.
    read: VecDeque<(Timestamp, [f64; 2])>,
    cores: [f64; 2],
    sight: Sight,
    /// When a record is read next, the counters, and when it is evaluated and acted.
    due: [Timestamp; 4],
    /// When an answer is overdue, by the order in which requests were sent.
    overdue: VecDeque<(Timestamp, u64)>,
    /// By class: requests at the server, and the same smoothed.
    sent: Vec<u32>,
    levels: Vec<f64>,
    /// What `automatic` did, and when.
    pub(super) said: Vec<(Timestamp, String)>,
}

impl Front {
    pub(super) fn new(shop: &Shop) -> Self {
        let spec = ClusterSpec {
            sites: vec![SiteSpec {
                name: "shop".into(),
                hosts: Vec::new(),
                paths: Vec::new(),
                policy: PolicyConfig::new(PolicyKind::Auto),
                admission: shop.admission,
                health: Default::default(),
            }],
            nodes: vec![NodeSpec {
                name: "web".into(),
                address: ([127, 0, 0, 1], 8000).into(),
                site: SITE,
                weight: 1.0,
                capacity: Capacity::default(),
            }],
            groups: Vec::new(),
            front_ends: 1,
        };
        let director = Director::new(spec, shop.seed);
        let table = Arc::new(LoadTable::new(1, 1));
        let paths: Vec<_> = shop.classes.iter().map(|it| it.path).collect();
        Self {
            names: paths.iter().map(|path| format!("GET {path}")).collect(),
            paths,
            picker: Picker::new(Arc::clone(&table), director.topology(), shop.seed),
            director,
            table,
            history: History::default(),
            throttles: Throttles::new(HELD_MAX),
            held: HashMap::new(),
            open: BTreeMap::new(),
            told: VecDeque::new(),
            discovery: Discovery::new(Limits {
                classes: shop.classes.len() as u16,
                resources: RESOURCES.len() as u16,
            }),
            verdicts: Vec::new(),
            automatic: shop.automatic.map(Automatic::new),
            slo: shop.admission.slo.as_secs_f64(),
            late: VecDeque::new(),
            read: VecDeque::new(),
            cores: shop.cpus,
            sight: shop.sight,
            due: [Timestamp::ZERO; 4],
            overdue: VecDeque::new(),
            sent: vec![0; shop.classes.len()],
            levels: vec![0.0; shop.classes.len()],
            said: Vec::new(),
        }
    }

    /// A request comes: its throttle is asked, and then the picker.
    pub(super) fn handle_request(&mut self, number: u64, class: usize, now: Timestamp) {
        let path = self.paths[class];
        let rule = self.throttles.rules();
        let rule = rule.find("shop", "GET", path, now).map(|it| it.id);
        let entry = rule.map(|id| (id, self.throttles.handle_arrival(id, now)));
        let open = Open {
            class,
            asked: now,
            sent: None,
            ticket: None,
            throttle: entry.filter(|it| it.1 == Entry::Passed).map(|it| it.0),
            rest: None,
        };
        self.open.insert(number, open);
        match entry {
            Some((throttle, Entry::Held(id))) => {
                self.held.insert(id, number);
                if let Some(open) = self.open.get_mut(&number) {
                    open.throttle = Some(throttle);
                }
            }
            Some((_, Entry::Full)) => self.refuse(number, now),
            Some((_, Entry::Passed | Entry::Free)) | None => self.ask(number, now),
        }
    }

    fn ask(&mut self, number: u64, now: Timestamp) {
        let Some(open) = self.open.get_mut(&number) else {
            return;
        };
        open.asked = now;
        let limits = open.throttle.and_then(|id| {
            let mut all = self.throttles.all();
            all.find(|it| it.id == id).map(|it| it.limits)
        });
        let limits = limits.unwrap_or_default();
        let priority = match limits.lowest_priority {
            true => lowered(Priority::HIGHEST),
            false => Priority::HIGHEST,
        };
        let arrival = Arrival {
            priority,
            kind: self.picker.kind_of(SITE, "GET", self.paths[open.class]),
            throttled: limits.concurrency.is_some(),
            id: WaitId(number),
            ..Arrival::at(SITE)
        };
        match self.picker.handle_request(&arrival, now) {
            Decision::Forward(ticket) => self.send(number, ticket, now),
            Decision::Reject(_) => self.refuse(number, now),
            Decision::Wait => {}
        }
    }

    fn send(&mut self, number: u64, ticket: Ticket, now: Timestamp) {
        if let Some(open) = self.open.get_mut(&number) {
            open.sent = Some(now);
            open.ticket = Some(ticket);
            self.sent[open.class] += 1;
            if self.sight.overdue_rest {
                let overdue = now + self.picker.overdue_after(SITE);
                self.overdue.push_back((overdue, number));
            }
            self.told.push_back((number, true));
        }
    }

    fn refuse(&mut self, number: u64, now: Timestamp) {
        if let Some(open) = self.open.remove(&number) {
            self.late.push_back((open.class, now, None));
            if let Some(throttle) = open.throttle {
                self.throttles.handle_refused(throttle, now);
            }
            self.told.push_back((number, false));
        }
    }

    /// The server has answered.
    pub(super) fn handle_end(&mut self, number: u64, now: Timestamp) {
        let Some(open) = self.open.remove(&number) else {
            return;
        };
        drop(open.rest);
        if let Some(ticket) = open.ticket {
            self.sent[open.class] -= 1;
            self.picker.handle_outcome(&ticket, Outcome::Success, now);
        }
        if let Some(throttle) = open.throttle {
            let took = now.since(open.asked);
            self.throttles.handle_answer(throttle, took);
        }
        let sent = open.sent.unwrap_or(now);
        self.discovery.on_request(&Request {
            class: ClassId(open.class as u16),
            sent,
            ended: Some(now),
        });
        let fared = (
            sent.seconds_since(open.asked),
            now.seconds_since(open.asked),
        );
        self.late.push_back((open.class, now, Some(fared)));
    }

    /// A request and whether it goes to the server now or is refused.
    pub(super) fn poll(&mut self, now: Timestamp) -> Option<(u64, bool)> {
        while let Some((id, told)) = self.throttles.poll(now) {
            if let (Some(number), HeldOutcome::Pass) = (self.held.remove(&id), told) {
                self.ask(number, now);
            }
        }
        while let Some((WaitId(number), decision)) = self.picker.poll_waiting(now) {
            match decision {
                Decision::Forward(ticket) => self.send(number, ticket, now),
                Decision::Reject(_) => self.refuse(number, now),
                Decision::Wait => {}
            }
        }
        self.told.pop_front()
    }

    /// Reads what is due, and lets the director, the discovery and `automatic` think.
    pub(super) fn handle_tick(&mut self, server: &mut Server, now: Timestamp) {
        let [web, database] = server.records(now);
        let [record, read, evaluate, act] = self.due;
        if now >= record {
            self.due[0] = now + self.sight.record_every;
            self.take_in(&web, now);
        }
        while let Some((_, number)) = self.overdue.pop_front_if(|it| it.0 <= now) {
            if let Some(open) = self.open.get_mut(&number) {
                open.rest = Some(self.picker.rest(NODE, RestKind::Unanswered));
            }
        }
        self.director.handle_tick(&self.table, now);
        if let Some(topology) = self.director.poll_topology() {
            self.picker.handle_topology(topology);
        }
        let part = match self.sight.smoothed_over {
            Duration::ZERO => 1.0,
            over => TICK.as_secs_f64() / over.as_secs_f64(),
        };
        for (level, sent) in self.levels.iter_mut().zip(&self.sent) {
            *level += part * (f64::from(*sent) - *level);
        }
        if now >= read {
            self.due[1] = now + READ_EVERY;
            let busy = [web.busy_ns, database.busy_ns];
            self.read.push_back((now, busy.map(|ns| ns as f64 * 1e-9)));
            for ((id, busy_ns), cores) in (0..).zip(busy).zip(self.cores) {
                let point = UsagePoint {
                    at: now,
                    busy_ns,
                    cores,
                };
                self.discovery.on_usage(ResourceId(id), point);
            }
        }
        if now >= evaluate {
            self.due[2] = now + EVERY;
            self.evaluate(now);
        }
        if now >= act {
            self.due[3] = now + ACT_EVERY;
            self.act(now);
        }
    }

    /// Takes in the web server's record.
    fn take_in(&mut self, web: &LoadRecord, now: Timestamp) {
        let own = self.table.own(NODE);
        self.history.note_poll(now - DELAY, own);
        let reading = Reading {
            record: web,
            sent_at: now - DELAY * 2,
            received_at: now,
            node_now_ns: Some(web.t_ns),
        };
        if let Progress::Advanced(load) = self.history.accept(&reading, own) {
            self.table.store(NODE, &load);
        }
    }

    fn evaluate(&mut self, now: Timestamp) {
        self.discovery.forget_unfinished();
        let unfinished = self
            .open
            .values()
            .filter_map(|it| Some((it.class, it.sent?)));
        for (class, sent) in unfinished {
            self.discovery.on_request(&Request {
                class: ClassId(class as u16),
                sent,
                ended: None,
            });
        }
        let resources = 0..RESOURCES.len() as u16;
        let verdicts = resources.map(|id| self.discovery.evaluate(now, ResourceId(id)));
        self.verdicts = verdicts.collect();
    }

    /// Which classes are accused or suspected, and what each resource's use was of late.
    pub(super) fn culprits(&self, now: Timestamp) -> Vec<Culprit<'_>> {
        let found = self.verdicts.iter().zip(RESOURCES);
        let found = found.flat_map(|(verdicts, resource)| {
            let unsure = verdicts.suspected().chain(verdicts.presumed());
            let all = verdicts.flagged().chain(unsure);
            all.map(move |it| (it, resource))
        });
        found
            .filter_map(|(it, resource)| {
                let confidence = match it.flagged {
                    true => Some(it.culprit?),
                    false => None,
                };
                let class = usize::from(it.class.0);
                let (_, held_back) = self.fared(now, |it| it == class);
                Some(Culprit {
                    class: &self.names[class],
                    resource,
                    share: match confidence.is_some() {
                        true => it.share,
                        false => it.suspected.or(it.presumed).unwrap_or_default(),
                    },
                    confidence,
                    presumed: !it.flagged && it.suspected.is_none(),
                    in_flight: self.levels[class],
                    held_back,
                })
            })
            .collect()
    }

    fn usage(&self, now: Timestamp) -> Vec<UsedPart<'static>> {
        let mut window = self.read.iter().filter(|it| it.0 >= now - WINDOW);
        let (Some(first), Some(last)) = (window.next(), self.read.back()) else {
            return Vec::new();
        };
        let seconds = last.0.seconds_since(first.0).max(1e-3);
        let used = last.1.iter().zip(first.1).zip(RESOURCES).zip(self.cores);
        used.map(|(((last, first), resource), capacity)| UsedPart {
            resource,
            usage: (last - first) / seconds / capacity,
            capacity,
        })
        .collect()
    }

    /// Latency of these classes in times of the SLO, and the part that was held back.
    fn fared(&self, now: Timestamp, classes: impl Fn(usize) -> bool) -> (Option<f64>, f64) {
        let late = self.late.iter().copied();
        let open = self.open.values().filter_map(|it| {
            let waited = it.sent?.seconds_since(it.asked);
            Some((it.class, now, Some((waited, now.seconds_since(it.asked)))))
        });
        let all: Vec<Fared> = late.chain(open).collect();
        let all = all.iter().filter(|it| classes(it.0));
        let (mut seconds, mut many, mut held_back) = (Vec::new(), 0.0, 0.0);
        for (_, _, took) in all {
            many += 1.0;
            held_back += f64::from(took.is_none_or(|it| it.0 > HELD_BACK * self.slo));
            seconds.extend(took.map(|it| it.1 / self.slo));
        }
        (
            quantile(&mut seconds, 0.95),
            held_back / f64::max(many, 1.0),
        )
    }

    /// What one of these classes takes at the servers, seconds: the median of the last ones.
    fn took(&self, classes: impl Fn(usize) -> bool) -> Option<f64> {
        let late = self.late.iter().filter(|it| classes(it.0));
        let mut took: Vec<_> = late.filter_map(|it| it.2.map(|it| it.1 - it.0)).collect();
        (took.len() >= TOOK_MIN).then(|| quantile(&mut took, 0.5))?
    }

    fn act(&mut self, now: Timestamp) {
        while self.late.front().is_some_and(|it| it.1 < now - WINDOW) {
            self.late.pop_front();
        }
        while self.read.front().is_some_and(|it| it.0 < now - WINDOW * 2) {
            self.read.pop_front();
        }
        let Some(mut automatic) = self.automatic.take() else {
            return;
        };
        let culprits = self.culprits(now);
        let flagged = culprits.iter();
        let flagged = flagged.filter(|it| it.confidence.is_some());
        let mut but: Vec<&str> = flagged.map(|it| it.class).collect();
        but.extend(automatic.classes());
        let (latency, held_back) = self.fared(now, |it| !but.contains(&&*self.names[it]));
        let levels = self.names.iter().zip(&self.levels).enumerate();
        let present: Vec<_> = levels
            .map(|(number, (class, in_flight))| Present {
                class,
                in_flight: *in_flight,
                took: self.took(|it| it == number),
            })
            .collect();
        let heard = Heard {
            culprits: &culprits,
            present: &present,
            resources: &self.usage(now),
            latency,
            held_back,
            took: self.took(|it| !but.contains(&&*self.names[it])),
        };
        let throttles: Vec<_> = self.throttles.all().collect();
        let done = automatic.look(&heard, &throttles, now);
        for it in done {
            self.said.push((now, it.text));
            let given = it.class.parse::<ClassPattern>().ok().zip(it.limits);
            match given {
                Some((pattern, limits)) => {
                    let set = self
                        .throttles
                        .set(pattern, limits, SetBy::Policy, None, now);
                    if set.is_err() {
                        automatic.forget(&it.class);
                    }
                }
                None => {
                    self.throttles.release(&it.class);
                }
            }
        }
        self.automatic = Some(automatic);
    }
}
