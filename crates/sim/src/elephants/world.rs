//! Runs a site: requests go web -> wait -> database -> disk -> wait -> web, in steps of a millisecond.
//!
//! Queueing, saturation and overlap are consequences of tiers that share their processors, not noise
//! that is added. A seed replays a run, byte for byte.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use tidegate_core::culprits::delay_experiment::DelayExperiment;
use tidegate_core::culprits::{Request, UsagePoint};
use tidegate_core::prng::Prng;
use tidegate_core::time::Timestamp;

use super::site::{Background, Class, Comes, Noise, Site, Traffic};
use super::tier::{Job, Tier};
use super::trace::{Resource, START_MS, Second, Trace};
use crate::model::normal;

/// Steps between two readings of the counters.
const READ_EVERY: u64 = 10;
/// Steps for which rates are taken as constant.
const RATES_EVERY: u64 = 100;
/// Jobs without a request.
const NOBODY: u32 = u32::MAX;

/// Where a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Web,
    WaitBefore,
    Database,
    Disk,
    WaitAfter,
    WebAgain,
    Client,
}

#[derive(Clone, Debug)]
struct Task {
    class: u16,
    sent: f64,
    phase: Phase,
    /// Queries that have not ended.
    open: u8,
    /// Rounds that are left, this one included.
    rounds: u8,
    web: f64,
    wait_before: f64,
    wait_after: f64,
    db: f64,
    disk: f64,
    client: f64,
}

/// What happens later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Later {
    /// A task goes on.
    GoOn(u32),
    /// A request of a class comes.
    Come(u16),
    /// A delayed request is sent.
    Send(u16),
    /// Work behind a reply: class and nanoseconds.
    Behind(u16, u64),
    /// A cron job: place in the background's list.
    Cron(usize),
}

struct World<'a> {
    site: &'a Site,
    prng: Prng,
    step: u64,
    tiers: [Tier; 3],
    tasks: Vec<Task>,
    free: Vec<u32>,
    in_flight: usize,
    later: BinaryHeap<Reverse<(u64, u64, Later)>>,
    order: u64,
    /// Sums of rates up to each class that comes at random.
    sums: Vec<f64>,
    next: f64,
    burst: (bool, f64),
    wander: Vec<f64>,
    trace: Trace,
    used: [Vec<f64>; 3],
    /// Classes that come with requests of each class, and twins.
    followers: Vec<Vec<u16>>,
    experiment: Option<ClassExperiment>,
}

/// A class whose requests are delayed at random.
#[derive(Debug)]
pub(super) struct ClassExperiment {
    pub(super) class: u16,
    /// Seconds after the start.
    pub(super) from: f64,
    pub(super) to: f64,
    pub(super) experiment: DelayExperiment,
}

/// Runs a site to its end.
pub(super) fn run(site: &Site, seed: u64) -> Trace {
    let mut world = World::new(site, seed);
    world.run();
    world.finish()
}

/// Runs a site with an experiment; what was assigned comes back with the trace.
pub(super) fn run_with(site: &Site, seed: u64, on: ClassExperiment) -> (Trace, DelayExperiment) {
    let mut world = World::new(site, seed);
    let experiment = on.experiment.clone();
    world.experiment = Some(on);
    world.run();
    let experiment = world
        .experiment
        .take()
        .map_or(experiment, |it| it.experiment);
    (world.finish(), experiment)
}

/// A moment of a run by the front-end's clock, nanoseconds.
pub(super) fn nanos(seconds: f64) -> u64 {
    START_MS * 1_000_000 + (seconds * 1e9) as u64
}

impl<'a> World<'a> {
    fn new(site: &'a Site, seed: u64) -> Self {
        let cores = [site.db_cores, site.web_cores, 1.0];
        let many = site.classes.len();
        let mut followers = vec![Vec::new(); many];
        for (class, spec) in site.classes.iter().enumerate() {
            if let Comes::With { class: of, .. } | Comes::Twin { of } = spec.comes {
                followers[usize::from(of)].push(class as u16);
            }
        }
        let judged = match site.all_tiers {
            true => Resource::ALL.to_vec(),
            false => vec![Resource::Database],
        };
        let mut world = Self {
            site,
            prng: Prng::new(seed),
            step: 0,
            tiers: [
                Tier::new(site.db_usable * cores[0], site.pool),
                Tier::new(cores[1], None),
                Tier::new(cores[2], None),
            ],
            tasks: Vec::new(),
            free: Vec::new(),
            in_flight: 0,
            later: BinaryHeap::new(),
            order: 0,
            sums: Vec::new(),
            next: 0.0,
            burst: (false, 0.0),
            wander: vec![1.0; site.background.len()],
            trace: Trace {
                requests: Vec::new(),
                usage: [const { Vec::new() }; 3],
                seconds: Vec::new(),
                cores,
                classes: many,
                length: site.seconds,
                onset: site.onset,
                judged,
            },
            used: [const { Vec::new() }; 3].map(|_: Vec<f64>| vec![0.0; many]),
            followers,
            experiment: None,
        };
        world.begin();
        world
    }

    fn begin(&mut self) {
        for (class, spec) in self.site.classes.iter().enumerate() {
            if let Comes::Every { phase, .. } = spec.comes {
                self.at(phase, Later::Come(class as u16));
            }
        }
        for (place, background) in self.site.background.iter().enumerate() {
            if let Background::Cron { phase: from, .. } | Background::Builds { from, .. } =
                background
            {
                self.at(*from, Later::Cron(place));
            }
        }
    }

    fn now(&self) -> f64 {
        self.step as f64 * 0.001
    }

    fn at(&mut self, seconds: f64, what: Later) {
        let step = ((seconds * 1e3).ceil().max(0.0) as u64).max(self.step + 1);
        self.order += 1;
        self.later.push(Reverse((step, self.order, what)));
    }

    fn tick(&mut self) {
        if self.step.is_multiple_of(READ_EVERY) {
            self.read();
        }
        if self.step.is_multiple_of(1000) {
            self.close_second();
        }
        if self.step.is_multiple_of(RATES_EVERY) {
            self.set_rates();
        }
        while let Some(Reverse((step, _, what))) = self.later.peek().copied() {
            if step > self.step {
                break;
            }
            self.later.pop();
            self.happen(what);
        }
        self.come_at_random();
        self.background();
        let mut done = Vec::new();
        for (resource, used) in
            [Resource::Web, Resource::Database, Resource::Disk].map(|it| (it, it.index()))
        {
            self.tiers[used].step(&mut self.used[used], &mut done);
            for task in done.drain(..) {
                self.on_done(task, resource);
            }
        }
        self.step += 1;
    }

    /// The factor of all rates now.
    fn factor(&mut self) -> f64 {
        let now = self.now();
        match self.site.traffic {
            Traffic::Even => 1.0,
            Traffic::Crowd { at, length, times } => {
                if (at..at + length).contains(&now) {
                    times
                } else {
                    1.0
                }
            }
            Traffic::Wave {
                period,
                amplitude,
                phase,
            } => 1.0 + amplitude * (std::f64::consts::TAU * (now / period + phase)).sin(),
            Traffic::Bursts { times, length, gap } => {
                while now >= self.burst.1 {
                    self.burst.0 = !self.burst.0;
                    let mean = if self.burst.0 { length } else { gap };
                    self.burst.1 += self.prng.exponential(mean);
                }
                if self.burst.0 { times } else { 1.0 }
            }
        }
    }

    fn set_rates(&mut self) {
        let (now, factor) = (self.now(), self.factor());
        let mut sum = 0.0;
        self.sums.clear();
        for (class, spec) in self.site.classes.iter().enumerate() {
            if let Comes::Rate(rate) = spec.comes {
                let steady = self.site.steady.contains(&(class as u16));
                let before = spec.onset.filter(|onset| now < onset.at);
                sum += rate
                    * if steady { 1.0 } else { factor }
                    * before.map_or(1.0, |onset| onset.rate);
            }
            self.sums.push(sum);
        }
        // What was drawn at the old rates is drawn anew: an exponential forgets.
        self.next = now + self.gap(sum);
        for (place, background) in self.site.background.iter().enumerate() {
            if let Background::Wandering { lasts, .. } = background {
                let step = 0.1 / lasts;
                let noise = normal(&mut self.prng) * 0.6 * (2.0 * step).sqrt();
                self.wander[place] += (1.0 - self.wander[place]) * step + noise;
            }
        }
    }

    fn gap(&mut self, rate: f64) -> f64 {
        match rate > 0.0 {
            true => self.prng.exponential(1.0 / rate),
            false => f64::INFINITY,
        }
    }

    fn come_at_random(&mut self) {
        let end = self.now() + 0.001;
        let total = self.sums.last().copied().unwrap_or(0.0);
        while self.next < end {
            let place = self.prng.unit() * total;
            let class = self.sums.partition_point(|sum| *sum <= place);
            self.come(class.min(self.sums.len() - 1) as u16, self.next);
            self.next += self.gap(total);
        }
    }

    fn background(&mut self) {
        for (place, background) in self.site.background.iter().enumerate() {
            if let Background::Wandering { rate, work, .. } = background
                && self.prng.unit() < rate * self.wander[place].max(0.0) * 0.001
            {
                let left = self.prng.exponential(*work);
                self.tiers[0].arrive(Job {
                    task: NOBODY,
                    class: None,
                    left,
                });
            }
        }
    }

    fn happen(&mut self, what: Later) {
        match what {
            Later::GoOn(task) => self.go_on(task),
            Later::Come(class) => {
                let now = self.now();
                self.come(class, now);
                if let Comes::Every {
                    period,
                    jitter,
                    phase,
                } = self.site.classes[usize::from(class)].comes
                {
                    let turns = ((now - phase) / period).round() + 1.0;
                    let late = normal(&mut self.prng).clamp(-2.0, 2.0) * jitter;
                    self.at(phase + turns * period + late, Later::Come(class));
                }
            }
            Later::Send(class) => self.send(class, self.now()),
            Later::Behind(class, nanos) => {
                let left = nanos as f64 * 1e-9;
                self.tiers[0].arrive(Job {
                    task: NOBODY,
                    class: Some(class),
                    left,
                });
            }
            Later::Cron(place) => self.cron(place),
        }
    }

    /// Jobs outside of requests at a time that was set.
    fn cron(&mut self, place: usize) {
        let (every, many, work) = match self.site.background[place] {
            Background::Cron { period, work, .. } => (period, None, work),
            Background::Builds {
                every, many, work, ..
            } => (every, Some(many), work),
            Background::Wandering { .. } => return,
        };
        for _ in 0..many.unwrap_or(1) {
            let left = match many {
                Some(_) => self.prng.exponential(work),
                None => work,
            };
            self.tiers[0].arrive(Job {
                task: NOBODY,
                class: None,
                left,
            });
        }
        let next = self.now() + every;
        self.at(next, Later::Cron(place));
    }

    fn run(&mut self) {
        let steps = (self.site.seconds / 0.001).round() as u64;
        while self.step < steps {
            self.tick();
        }
    }

    /// A request comes; the experiment may delay it.
    fn come(&mut self, class: u16, at: f64) {
        if let Some(experiment) = &mut self.experiment
            && experiment.class == class
            && (experiment.from..experiment.to).contains(&at)
        {
            let now = Timestamp::from_nanos(nanos(at));
            let delay = experiment.experiment.assign(now);
            if delay > Duration::ZERO {
                self.at(at + delay.as_secs_f64(), Later::Send(class));
                return;
            }
        }
        self.send(class, at);
    }

    /// A request is sent.
    fn send(&mut self, class: u16, sent: f64) {
        if self.in_flight >= self.site.in_flight_max {
            return;
        }
        let spec = self.site.classes[usize::from(class)];
        let task = self.draw(class, &spec, sent);
        let place = usize::from(class);
        if let Some(second) = self.trace.seconds.last_mut() {
            second.came[place] += 1;
            second.asked[0][place] += task.db as f32;
            second.asked[1][place] += task.web as f32;
            second.asked[2][place] += task.disk as f32;
        }
        self.in_flight += 1;
        let id = match self.free.pop() {
            Some(id) => {
                self.tasks[id as usize] = task;
                id
            }
            None => {
                self.tasks.push(task);
                (self.tasks.len() - 1) as u32
            }
        };
        self.enter(id);
        self.follow(class, sent, false);
    }

    /// Requests of other classes that come with this one.
    fn follow(&mut self, class: u16, now: f64, ended: bool) {
        for follower in self.followers[usize::from(class)].clone() {
            if let Comes::With {
                chance,
                least,
                delay,
                after,
                ..
            } = self.site.classes[usize::from(follower)].comes
                && after == ended
                && self.prng.unit() < chance
            {
                let wait = least + self.prng.exponential(delay);
                self.at(now + wait, Later::Come(follower));
            }
        }
    }

    fn draw(&mut self, class: u16, spec: &Class, sent: f64) -> Task {
        let before = spec.onset.filter(|onset| sent < onset.at);
        let cache = self
            .site
            .warm_up
            .map_or(1.0, |(excess, tau)| 1.0 + excess * (-sent / tau).exp());
        let work = before.map_or(1.0, |onset| onset.work) * cache;
        let prng = &mut self.prng;
        let mut draw = |mean: f64| {
            if mean > 0.0 {
                scattered(prng, spec.noise, mean)
            } else {
                0.0
            }
        };
        let (web, db, disk) = (draw(spec.web), draw(spec.db * work), draw(spec.disk));
        let mut wait = |mean: f64| {
            if mean > 0.0 {
                self.prng.exponential(mean)
            } else {
                0.0
            }
        };
        Task {
            class,
            sent,
            phase: Phase::Web,
            open: 0,
            rounds: spec.rounds.max(1),
            web,
            db,
            disk,
            wait_before: wait(spec.wait_before),
            wait_after: wait(spec.wait_after) + spec.paced,
            client: wait(spec.client),
        }
    }

    /// Does what the task's phase asks for; goes on at once where there is nothing to do.
    fn enter(&mut self, id: u32) {
        loop {
            let task = &self.tasks[id as usize];
            let class = Some(task.class);
            let spec = &self.site.classes[usize::from(task.class)];
            let wait = match task.phase {
                Phase::Web | Phase::WebAgain if task.web > 0.0 => {
                    let left = task.web / 2.0;
                    self.tiers[1].arrive(Job {
                        task: id,
                        class,
                        left,
                    });
                    return;
                }
                Phase::Database if task.db > 0.0 && spec.behind.is_none() => {
                    let many = spec.parallel.max(1);
                    let left = task.db / f64::from(many) / f64::from(spec.rounds.max(1));
                    self.tasks[id as usize].open = many;
                    (0..many).for_each(|_| {
                        self.tiers[0].arrive(Job {
                            task: id,
                            class,
                            left,
                        })
                    });
                    return;
                }
                Phase::Disk if task.disk > 0.0 => {
                    let left = task.disk;
                    self.tiers[2].arrive(Job {
                        task: id,
                        class,
                        left,
                    });
                    return;
                }
                Phase::WaitBefore => task.wait_before,
                Phase::WaitAfter => task.wait_after,
                Phase::Client => task.client,
                Phase::Web | Phase::WebAgain | Phase::Database | Phase::Disk => 0.0,
            };
            if wait > 0.0 {
                let end = self.now() + wait;
                self.at(end, Later::GoOn(id));
                return;
            }
            if !self.advance(id) {
                return;
            }
        }
    }

    fn go_on(&mut self, id: u32) {
        if self.advance(id) {
            self.enter(id);
        }
    }

    fn on_done(&mut self, id: u32, resource: Resource) {
        if id == NOBODY {
            return;
        }
        if resource == Resource::Database {
            let task = &mut self.tasks[id as usize];
            task.open = task.open.saturating_sub(1);
            if task.open > 0 {
                return;
            }
        }
        self.go_on(id);
    }

    /// The next phase. False if the request has ended.
    fn advance(&mut self, id: u32) -> bool {
        let task = &mut self.tasks[id as usize];
        task.phase = match task.phase {
            Phase::Web => Phase::WaitBefore,
            Phase::WaitBefore => Phase::Database,
            Phase::Database => Phase::Disk,
            Phase::Disk if task.rounds > 1 => {
                task.rounds -= 1;
                Phase::WaitBefore
            }
            Phase::Disk => Phase::WaitAfter,
            Phase::WaitAfter => Phase::WebAgain,
            Phase::WebAgain => Phase::Client,
            Phase::Client => {
                self.end(id);
                return false;
            }
        };
        true
    }

    fn end(&mut self, id: u32) {
        let task = self.tasks[id as usize].clone();
        // Somewhere in the millisecond that has just passed.
        let ended = (self.now() + self.prng.unit() * 0.001).max(task.sent + 1e-4);
        self.log(task.class, task.sent, Some(ended));
        self.in_flight -= 1;
        self.free.push(id);
        // Marks the place as free for what looks for unfinished requests.
        self.tasks[id as usize].sent = f64::INFINITY;
        if let Some((from, to)) = self.site.classes[usize::from(task.class)].behind {
            let wait = from + (to - from) * self.prng.unit();
            self.at(
                ended + wait,
                Later::Behind(task.class, (task.db * 1e9) as u64),
            );
        }
        self.follow(task.class, ended, true);
    }

    /// A line of the log, and those of twins.
    fn log(&mut self, class: u16, sent: f64, ended: Option<f64>) {
        self.write(class, sent, ended);
        for follower in self.followers[usize::from(class)].clone() {
            if let Comes::Twin { .. } = self.site.classes[usize::from(follower)].comes {
                let late = 0.002 * self.prng.unit();
                if let Some(second) = self.trace.seconds.last_mut() {
                    second.came[usize::from(follower)] += 1;
                }
                let ended = ended.map(|ended| (ended + late).max(sent + late + 1e-4));
                self.write(follower, sent + late, ended);
            }
        }
    }

    fn write(&mut self, class: u16, sent: f64, ended: Option<f64>) {
        if self.site.lost > 0.0 && self.prng.unit() < self.site.lost {
            return;
        }
        let at = |seconds: f64| self.trace.at(seconds);
        self.trace.requests.push(Request {
            class: Trace::class(usize::from(class)),
            sent: at(sent),
            ended: ended.map(at),
        });
    }

    fn read(&mut self) {
        let at = (START_MS as f64 * 1e-3 + self.now() + self.site.skew) * 1e9;
        let readings = self.tiers.iter().zip(&mut self.trace.usage);
        for ((tier, points), cores) in readings.zip(self.trace.cores) {
            points.push(UsagePoint {
                at: Timestamp::from_nanos(at as u64),
                busy_ns: (tier.busy * 1e9) as u64,
                cores,
            });
        }
    }

    fn close_second(&mut self) {
        let many = self.site.classes.len();
        for (resource, used) in self.used.iter_mut().enumerate() {
            if let Some(second) = self.trace.seconds.last_mut() {
                second.used[resource] = used.iter().map(|used| *used as f32).collect();
            }
            used.fill(0.0);
        }
        let empty = || [vec![0.0; many], vec![0.0; many], vec![0.0; many]];
        self.trace.seconds.push(Second {
            used: empty(),
            asked: empty(),
            came: vec![0; many],
        });
    }

    fn finish(mut self) -> Trace {
        self.read();
        self.close_second();
        self.trace.seconds.pop();
        let open: Vec<_> = self
            .tasks
            .iter()
            .filter(|task| task.sent.is_finite())
            .map(|task| (task.class, task.sent))
            .collect();
        for (class, sent) in open {
            self.log(class, sent, None);
        }
        self.trace.requests.sort_by_key(|request| request.sent);
        self.trace
    }
}

fn scattered(prng: &mut Prng, noise: Noise, mean: f64) -> f64 {
    match noise {
        Noise::Exponential => prng.exponential(mean),
        Noise::LogNormal(sigma) => mean * (sigma * normal(prng) - sigma * sigma / 2.0).exp(),
        Noise::Uniform => mean * (0.5 + prng.unit()),
    }
}
