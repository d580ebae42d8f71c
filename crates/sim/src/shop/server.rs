//! The web server, and the database behind it.
//!
//! Each request takes a worker of the web server from its begin to its end, while it waits for the database, too. Where
//! all are busy it waits for one, in order of arrival.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use tidegate_core::record::LoadRecord;
use tidegate_core::time::{Timestamp, nanos};

use super::{Shop, Sight};
use crate::processor::Processor;

/// What a request wants: time at the web server, waiting for something else, and at the database.
type Stations = [Duration; 3];

/// See the module.
#[derive(Debug)]
pub(super) struct Server {
    /// Workers that have no request.
    idle: u32,
    /// Requests that wait for one, by their numbers.
    unaccepted: VecDeque<(u64, Stations)>,
    sight: Sight,
    web: Processor,
    database: Processor,
    /// Of requests that go to the database: what they want there, and at the web server then.
    after: HashMap<u64, (Duration, Duration)>,
    /// For how long requests wait for something else before that.
    waits: HashMap<u64, Duration>,
    /// Until when requests wait for something else before that; by their numbers.
    elsewhere: BTreeSet<(Timestamp, u64)>,
    ended: Vec<u64>,
}

impl Server {
    pub(super) fn new(shop: &Shop, now: Timestamp) -> Self {
        let [web, database] = shop.cpus;
        Self {
            idle: shop.workers,
            unaccepted: VecDeque::new(),
            sight: shop.sight,
            web: Processor::new(web, 1.0, 1, now),
            database: Processor::new(database, 1.0, 1, now),
            after: HashMap::new(),
            waits: HashMap::new(),
            elsewhere: BTreeSet::new(),
            ended: Vec::new(),
        }
    }

    /// A request comes.
    pub(super) fn begin(&mut self, number: u64, stations: Stations, now: Timestamp) {
        self.advance(now);
        self.unaccepted.push_back((number, stations));
        self.accept(now);
    }

    /// Workers that have no request take those that wait.
    fn accept(&mut self, now: Timestamp) {
        while self.idle > 0
            && let Some((number, stations)) = self.unaccepted.pop_front()
        {
            self.idle -= 1;
            self.work(number, stations, now);
        }
        if !self.sight.hidden_queue {
            self.web.set_unaccepted(now, self.unaccepted.len() as u32);
        }
    }

    fn work(&mut self, number: u64, [web, elsewhere, database]: Stations, now: Timestamp) {
        if database.is_zero() {
            self.web.arrive(now, number, web);
            return;
        }
        self.after.insert(number, (database, web / 2));
        self.web.arrive_for_io(now, number, web / 2);
        if !elsewhere.is_zero() {
            self.waits.insert(number, elsewhere);
        }
    }

    /// When something happens by itself.
    pub(super) fn next(&self) -> Option<Timestamp> {
        let both = [&self.web, &self.database];
        let waits = self.elsewhere.first().map(|it| it.0);
        let completions = both.iter().filter_map(|it| it.next_completion());
        completions.chain(waits).min()
    }

    pub(super) fn advance(&mut self, now: Timestamp) {
        self.web.advance(now);
        self.database.advance(now);
        // All happen at the time of the next one, so what follows from them does as well.
        while let Some(done) = self.web.poll_completed() {
            match self.waits.remove(&done.task) {
                Some(wait) => {
                    self.elsewhere.insert((now + wait, done.task));
                }
                None => self.go_on(done.task, now),
            }
        }
        while let Some((until, task)) = self.elsewhere.first().copied() {
            if until > now {
                break;
            }
            self.elsewhere.pop_first();
            self.go_on(task, now);
        }
        while let Some(done) = self.database.poll_completed() {
            let web = self.after.get(&done.task).map_or(Duration::ZERO, |it| it.1);
            self.web.go_on(now, done.task, web);
        }
        self.accept(now);
    }

    /// From the web server to the database, or to its end.
    fn go_on(&mut self, task: u64, now: Timestamp) {
        match self.after.get_mut(&task) {
            Some((demand, _)) if !demand.is_zero() => {
                self.database.arrive(now, task, std::mem::take(demand));
            }
            _ => {
                self.after.remove(&task);
                self.ended.push(task);
                self.idle += 1;
            }
        }
    }

    pub(super) fn poll_ended(&mut self) -> Option<u64> {
        self.ended.pop()
    }

    /// The records of both.
    pub(super) fn records(&mut self, now: Timestamp) -> [LoadRecord; 2] {
        let interval_ns = nanos(self.sight.record_every);
        let web = self.web.record(now);
        [LoadRecord { interval_ns, ..web }, self.database.record(now)]
    }
}
