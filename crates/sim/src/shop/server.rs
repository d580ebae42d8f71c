//! The web server, and the database behind it.

use std::collections::HashMap;
use std::time::Duration;

use tidegate_core::record::LoadRecord;
use tidegate_core::time::Timestamp;

use crate::processor::Processor;

/// See the module.
#[derive(Debug)]
pub(super) struct Server {
    web: Processor,
    database: Processor,
    /// Of requests that go to the database: what they want there, and at the web server then.
    after: HashMap<u64, (Duration, Duration)>,
    ended: Vec<u64>,
}

impl Server {
    pub(super) fn new([web, database]: [f64; 2], now: Timestamp) -> Self {
        Self {
            web: Processor::new(web, 1.0, 1, now),
            database: Processor::new(database, 1.0, 1, now),
            after: HashMap::new(),
            ended: Vec::new(),
        }
    }

    /// A request comes.
    pub(super) fn begin(&mut self, number: u64, web: Duration, database: Duration, now: Timestamp) {
        self.advance(now);
        if database.is_zero() {
            self.web.arrive(now, number, web);
        } else {
            self.after.insert(number, (database, web / 2));
            self.web.arrive_for_io(now, number, web / 2);
        }
    }

    /// When something happens by itself.
    pub(super) fn next(&self) -> Option<Timestamp> {
        let both = [&self.web, &self.database];
        both.iter().filter_map(|it| it.next_completion()).min()
    }

    pub(super) fn advance(&mut self, now: Timestamp) {
        self.web.advance(now);
        self.database.advance(now);
        // All happen at the time of the next one, so what follows from them does as well.
        while let Some(done) = self.web.poll_completed() {
            match self.after.get(&done.task) {
                Some((demand, _)) if !demand.is_zero() => {
                    self.database.arrive(now, done.task, *demand);
                    self.after
                        .entry(done.task)
                        .and_modify(|it| it.0 = Duration::ZERO);
                }
                _ => {
                    self.after.remove(&done.task);
                    self.ended.push(done.task);
                }
            }
        }
        while let Some(done) = self.database.poll_completed() {
            let web = self.after.get(&done.task).map_or(Duration::ZERO, |it| it.1);
            self.web.go_on(now, done.task, web);
        }
    }

    pub(super) fn poll_ended(&mut self) -> Option<u64> {
        self.ended.pop()
    }

    /// The records of both.
    pub(super) fn records(&mut self, now: Timestamp) -> [LoadRecord; 2] {
        [self.web.record(now), self.database.record(now)]
    }
}
