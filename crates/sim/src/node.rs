//! A node's side: its CPU, its IO channels, and what is wrong with it.

use std::collections::VecDeque;
use std::time::Duration;

use tidegate_core::prng::Prng;
use tidegate_core::time::Timestamp;

use crate::counters::CounterLog;
use crate::file_table::FileTable;
use crate::model::Stream;
use crate::node_model::{Cold, NodeModel};
use crate::processor::Processor;
use crate::words::Words;

/// Weight of the newest request in the latency that a node reports.
const LATENCY_STEP: f64 = 0.1;

/// Whether a node works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    Well,
    Dead,
    Paused,
    Failing,
    Breaking,
    Slow { times: u32 },
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) processor: Processor,
    /// The antagonist's.
    pub(crate) prng: Prng,
    pub(crate) condition: Condition,
    /// Requests that came while it stood still.
    pub(crate) held: Vec<u32>,
    pub(crate) io: IoChannels,
    /// Workers, each with one request; it has no more than it can do at once.
    pub(crate) workers: IoChannels,
    pub(crate) files: Option<FileTable>,
    /// What record readers need; none if records are not read.
    pub(crate) log: Option<CounterLog>,
    /// How far back they ask.
    look_back: Duration,
    /// Since when the operator's word bars it from new requests.
    pub(crate) barred: Option<Timestamp>,
    /// Requests on their way to it.
    pub(crate) expected: u32,
    /// Mean time that a request spends here, seconds, decaying by [`LATENCY_STEP`].
    pub(crate) latency: f64,
    /// Requests begun since its caches were empty.
    begun: f64,
    /// When it had a request last.
    worked_at: Timestamp,
    /// When it answered nothing; the last one may last.
    silences: Vec<(Timestamp, Option<Timestamp>)>,
    generation: u64,
    /// Words that front-ends share.
    pub(crate) words: Words,
}

impl Node {
    pub(crate) fn new(
        model: &NodeModel,
        number: u32,
        seed: u64,
        look_back: Option<Duration>,
        now: Timestamp,
    ) -> Self {
        let mut node = Self {
            processor: Processor::new(model.cores, model.speed, 1, now)
                .with_overload(model.overload)
                .with_kernel(model.kernel),
            prng: Stream::Antagonist(number).prng(seed),
            condition: Condition::Well,
            held: Vec::new(),
            io: IoChannels::new(model.io_channels),
            workers: IoChannels::new(model.workers),
            files: model.files.clone(),
            log: look_back.map(|_| CounterLog::default()),
            look_back: look_back.unwrap_or_default(),
            barred: None,
            expected: 0,
            latency: 0.0,
            begun: f64::INFINITY,
            worked_at: now,
            silences: Vec::new(),
            generation: 1,
            words: Words::default(),
        };
        node.note();
        node
    }

    /// Something has changed: record readers will want to know.
    pub(crate) fn note(&mut self) {
        let Some(log) = &mut self.log else { return };
        let counters = self.processor.counters();
        // While it is silent, and just after, readers know what it counted before.
        let known = match self.silences.last() {
            Some((from, None)) => *from,
            Some((from, Some(until))) if *until + self.look_back > counters.at => *from,
            _ => counters.at,
        };
        log.push(counters, known - self.look_back);
    }

    /// Starts it anew, with nothing but its antagonists.
    pub(crate) fn restart(&mut self, model: &NodeModel, now: Timestamp) {
        let antagonists = self.processor.antagonists();
        // Another generation: its counters start anew when it revives.
        self.generation += 1;
        self.processor = Processor::new(model.cores, model.speed, self.generation, now)
            .with_overload(model.overload)
            .with_kernel(model.kernel);
        self.processor.set_antagonists(now, antagonists);
        self.io = IoChannels::new(model.io_channels);
        self.workers = IoChannels::new(model.workers);
        self.words = Words::default();
        self.chill();
        self.note();
    }

    /// It answers nothing from now on, or answers again.
    pub(crate) fn set_silent(&mut self, silent: bool, now: Timestamp) {
        match (silent, self.silences.last_mut()) {
            (true, _) => self.silences.push((now, None)),
            (false, Some((_, until))) => *until = Some(now),
            (false, None) => {}
        }
    }

    /// Whether it has answered everything so far.
    pub(crate) fn never_silent(&self) -> bool {
        self.silences.is_empty()
    }

    /// Since when it answered nothing at this moment, if it did not.
    pub(crate) fn silent_since(&self, at: Timestamp) -> Option<Timestamp> {
        let during = |(from, until): &&(Timestamp, Option<Timestamp>)| {
            *from <= at && until.is_none_or(|until| at < until)
        };
        self.silences
            .iter()
            .rev()
            .find(during)
            .map(|(from, _)| *from)
    }

    /// Its caches are empty.
    pub(crate) fn chill(&mut self) {
        self.begun = 0.0;
    }

    /// What a request of this demand takes that begins now.
    pub(crate) fn demand(
        &mut self,
        model: &NodeModel,
        demand: Duration,
        now: Timestamp,
    ) -> Duration {
        let warm = demand + self.warming(model, now);
        let cost = model.warming.map_or(1.0, |it| it.cost(self.begun));
        self.begun += 1.0;
        match cost > 1.0 {
            true => warm.mul_f64(cost),
            false => warm,
        }
    }

    /// What a request that begins now costs beside its demand.
    fn warming(&self, model: &NodeModel, now: Timestamp) -> Duration {
        let is_cold =
            |cold: &Cold| self.processor.in_flight() == 0 && now.since(self.worked_at) > cold.after;
        let cold = model.cold.filter(is_cold);
        cold.map_or(Duration::ZERO, |cold| cold.extra)
    }

    /// A request was served that had spent this time here.
    pub(crate) fn served(&mut self, stay: Duration, now: Timestamp) {
        self.worked_at = now;
        let stay = stay.as_secs_f64();
        self.latency = match self.latency {
            0.0 => stay,
            latency => latency + LATENCY_STEP * (stay - latency),
        };
    }
}

/// How many requests can be in a place at once (in IO, with a worker), and what waits for its
/// turn.
#[derive(Debug)]
pub(crate) struct IoChannels {
    free: Option<u32>,
    queue: VecDeque<u32>,
}

impl IoChannels {
    fn new(channels: Option<u32>) -> Self {
        Self {
            free: channels,
            queue: VecDeque::new(),
        }
    }

    /// A request wants IO: whether it has it at once. If not, it queues.
    pub(crate) fn begin(&mut self, request: u32) -> bool {
        match &mut self.free {
            None => true,
            Some(0) => {
                self.queue.push_back(request);
                false
            }
            Some(free) => {
                *free -= 1;
                true
            }
        }
    }

    /// An IO has ended: whose turn it is.
    pub(crate) fn end(&mut self) -> Option<u32> {
        let free = self.free.as_mut()?;
        let next = self.queue.pop_front();
        if next.is_none() {
            *free += 1;
        }
        next
    }

    /// How many queue.
    pub(crate) fn queued(&self) -> u32 {
        u32::try_from(self.queue.len()).unwrap_or(u32::MAX)
    }

    /// A request that has no IO yet goes away: whether it was queued.
    pub(crate) fn leave(&mut self, request: u32) -> bool {
        let before = self.queue.len();
        self.queue.retain(|queued| *queued != request);
        self.queue.len() < before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    #[test]
    fn io_has_so_many_channels_and_the_rest_queue_in_order() {
        let mut io = IoChannels::new(Some(2));
        let begun: Vec<_> = (0..5).map(|request| io.begin(request)).collect();
        assert_eq!(begun, [true, true, false, false, false]);
        assert!(io.leave(3));
        assert!(!io.leave(3));
        assert_eq!(io.end(), Some(2));
        assert_eq!(io.end(), Some(4));
        assert_eq!(io.end(), None);
        assert!(io.begin(9), "a channel is free again");
        let mut free = IoChannels::new(None);
        assert!((0..100).all(|request| free.begin(request)));
        assert_eq!(free.end(), None);
    }

    #[test]
    fn silences_are_remembered() {
        let mut node = Node::new(&NodeModel::new(1.0), 0, 1, None, at(0));
        node.set_silent(true, at(10));
        node.set_silent(false, at(20));
        node.set_silent(true, at(30));
        let since: Vec<_> = [9, 10, 19, 20, 29, 30, 99]
            .map(|ms| node.silent_since(at(ms)))
            .into();
        let (ten, thirty) = (Some(at(10)), Some(at(30)));
        assert_eq!(since, [None, ten, ten, None, None, thirty, thirty]);
    }

    #[test]
    fn a_restart_begins_another_generation_beside_the_same_antagonists() {
        let model = NodeModel::new(2.0);
        let mut node = Node::new(&model, 0, 1, Some(Duration::from_secs(1)), at(0));
        node.processor.arrive(at(0), 1, Duration::from_millis(5));
        node.processor.set_antagonists(at(1), 3);
        node.note();
        node.restart(&model, at(2));
        let log = node.log.as_ref().unwrap();
        let generation = |ms| log.before(at(ms)).unwrap().generation;
        assert_eq!((generation(1), generation(2)), (1, 2));
        assert_eq!(
            (node.processor.in_flight(), node.processor.antagonists()),
            (0, 3)
        );
    }
}
