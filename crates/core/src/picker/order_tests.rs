//! Several pickers whose requests wait have their turns in one order, and none is forgotten.

use std::collections::VecDeque;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use super::*;
use crate::admission::{AdmissionConfig, AdmissionKind, StaticLimits};
use crate::director::Director;
use crate::policy::{PolicyConfig, PolicyKind};
use crate::testing::cluster;

const SITE: SiteId = SiteId(0);
/// Longer than any test.
const LONG: Duration = Duration::from_secs(3600);

fn config(connections: u32) -> AdmissionConfig {
    AdmissionConfig {
        priorities: 2,
        queue: 10_000,
        queue_timeout: Some(LONG),
        limits: StaticLimits {
            connections: Some(connections),
            ..StaticLimits::default()
        },
        ..AdmissionConfig::new(AdmissionKind::MaxConn)
    }
}

fn pickers(count: usize, admission: AdmissionConfig) -> Vec<Picker> {
    let mut spec = cluster(1, PolicyConfig::new(PolicyKind::Random));
    spec.sites[0].admission = admission;
    let table = Arc::new(LoadTable::new(1, 1));
    let topology = Director::new(spec, 1).topology();
    let heads = Arc::new(Heads::new(count));
    let picker = |number| {
        let seed = number as u64;
        Picker::new(Arc::clone(&table), Arc::clone(&topology), seed).among(&heads, number)
    };
    (0..count).map(picker).collect()
}

fn arrival(id: u64, priority: usize) -> Arrival {
    Arrival {
        priority: Priority::ALL[priority],
        id: WaitId(id),
        ..Arrival::at(SITE)
    }
}

/// The pickers of a front-end, as their workers ask them: woken ones are asked in turn.
struct FrontEnd {
    pickers: Vec<Picker>,
    woken: VecDeque<usize>,
    /// Does not heed what it is woken for.
    stands_still: Option<usize>,
    in_flight: Vec<Ticket>,
    /// Requests in the order in which they were sent.
    sent: Vec<u64>,
    now: Timestamp,
    last: u64,
}

impl FrontEnd {
    fn new(count: usize, connections: u32) -> Self {
        Self {
            pickers: pickers(count, config(connections)),
            woken: VecDeque::new(),
            stands_still: None,
            in_flight: Vec::new(),
            sent: Vec::new(),
            now: Timestamp::from_millis(1000),
            last: 0,
        }
    }

    /// A request comes to a picker, each a microsecond after the one before it. Its number.
    fn arrive(&mut self, picker: usize, priority: usize) -> u64 {
        self.now = self.now + Duration::from_micros(1);
        self.last += 1;
        let decision = self.pickers[picker].handle_request(&arrival(self.last, priority), self.now);
        match decision {
            Decision::Forward(ticket) => {
                self.sent.push(self.last);
                self.in_flight.push(ticket);
            }
            Decision::Wait => self.woken.push_back(picker),
            Decision::Reject(reason) => panic!("{reason:?}"),
        }
        self.settle();
        self.last
    }

    /// The oldest in flight ends, in this picker's worker.
    fn end(&mut self, picker: usize) {
        drop(self.in_flight.remove(0));
        self.pickers[picker].handle_room(SITE);
        self.woken.push_back(picker);
        self.settle();
    }

    fn leave(&mut self, picker: usize, id: u64) {
        self.pickers[picker].handle_left(SITE, WaitId(id));
        self.wake_elders(picker);
        self.settle();
    }

    fn settle(&mut self) {
        let mut turns = 0;
        while let Some(picker) = self.woken.pop_front() {
            turns += 1;
            assert!(turns < 10_000, "pickers wake each other for ever");
            if self.stands_still == Some(picker) {
                continue;
            }
            while let Some((id, decision)) = self.pickers[picker].poll_waiting(self.now) {
                let Decision::Forward(ticket) = decision else {
                    panic!("{id:?}: {decision:?}");
                };
                self.sent.push(id.0);
                self.in_flight.push(ticket);
            }
            self.wake_elders(picker);
        }
    }

    fn wake_elders(&mut self, picker: usize) {
        while let Some(elder) = self.pickers[picker].poll_elder(self.now) {
            assert_ne!(elder, picker);
            self.woken.push_back(elder);
        }
    }

    fn waiting(&self) -> usize {
        self.pickers.iter().map(Picker::waiting).sum()
    }
}

#[test]
fn requests_go_in_the_order_in_which_they_came_whatever_their_picker() {
    let mut all = FrontEnd::new(2, 2);
    // All but one of those that wait are the second one's, and each of those in flight ends in the first.
    for picker in [0, 0, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1] {
        all.arrive(picker, 0);
    }
    assert_eq!((all.in_flight.len(), all.waiting()), (2, 10));
    for _ in 0..10 {
        all.end(0);
    }
    assert!(all.sent.is_sorted(), "{:?}", all.sent);
    assert_eq!((all.sent.len(), all.waiting()), (12, 0));
}

#[test]
fn a_newcomer_overtakes_none_that_waits_in_another_picker() {
    let mut all = FrontEnd::new(2, 1);
    for picker in [0, 0] {
        all.arrive(picker, 0);
    }
    // The other picker sees the room before the one whose request waits.
    drop(all.in_flight.remove(0));
    all.arrive(1, 0);
    assert_eq!(all.sent, [1, 2]);
    all.end(0);
    assert_eq!(all.sent, [1, 2, 3]);
}

#[test]
fn higher_priorities_go_first_whatever_their_picker() {
    let mut all = FrontEnd::new(3, 1);
    for (picker, priority) in [(0, 0), (0, 1), (1, 1), (2, 0), (1, 0)] {
        all.arrive(picker, priority);
    }
    for picker in [0, 2, 1, 0] {
        all.end(picker);
    }
    assert_eq!(all.sent, [1, 4, 5, 2, 3]);
}

#[test]
fn room_that_was_left_to_a_request_which_then_leaves_is_for_the_next_one() {
    let mut all = FrontEnd::new(2, 1);
    all.arrive(0, 0);
    let elder = all.arrive(1, 0);
    let other = all.arrive(0, 0);
    // Its worker has not looked yet when its client leaves.
    all.stands_still = Some(1);
    all.end(0);
    assert_eq!(all.sent, [1], "left to the elder");
    all.leave(1, elder);
    assert_eq!(all.sent, [1, other]);
}

#[test]
fn a_picker_that_stands_still_is_passed_over() {
    let mut all = FrontEnd::new(2, 1);
    all.arrive(0, 0);
    all.arrive(1, 0);
    let other = all.arrive(0, 0);
    all.stands_still = Some(1);
    all.end(0);
    let began = all.now;
    while all.sent.len() < 2 {
        let due = all.pickers[0].due().unwrap();
        assert!(due > all.now && due < all.now + Duration::from_secs(1));
        all.now = due;
        all.woken.push_back(0);
        all.settle();
    }
    assert_eq!(all.sent, [1, other]);
    assert_eq!(all.now.since(began), heads::PATIENCE);
}

#[test]
fn none_waits_where_there_is_room_and_none_is_overtaken_whatever_happens() {
    let mut prng = Prng::new(7);
    for _ in 0..50 {
        let (count, connections) = (2 + prng.below(3), 1 + prng.below(3));
        let mut all = FrontEnd::new(count, connections as u32);
        let mut waiting: Vec<(u64, usize, usize)> = Vec::new();
        for _ in 0..300 {
            let picker = prng.below(count);
            let before = all.sent.len();
            match prng.below(10) {
                0..4 => {
                    let priority = prng.below(2);
                    let id = all.arrive(picker, priority);
                    waiting.push((id, picker, priority));
                }
                4 if !waiting.is_empty() => {
                    let place = prng.below(waiting.len());
                    let (id, picker, _) = waiting.remove(place);
                    all.leave(picker, id);
                }
                _ if !all.in_flight.is_empty() => all.end(picker),
                _ => {}
            }
            for id in &all.sent[before..] {
                let place = waiting.iter().position(|it| it.0 == *id).unwrap();
                let (_, _, priority) = waiting.remove(place);
                let overtaken = |it: &&(u64, usize, usize)| (it.2, it.0) < (priority, *id);
                assert_eq!(waiting.iter().find(overtaken), None, "{id}");
            }
            assert_eq!(all.waiting(), waiting.len());
            let has_room = all.in_flight.len() < connections;
            assert!(waiting.is_empty() || !has_room, "{waiting:?}");
        }
    }
}

/// One worker's thread: it sends its requests, and ends some of them, until none is left.
struct Worker<'a> {
    picker: Picker,
    wakes: &'a [SyncSender<()>],
    woken: Receiver<()>,
    clock: &'a AtomicU64,
    prng: Prng,
    tickets: Vec<Ticket>,
    waiting: Vec<WaitId>,
}

impl Worker<'_> {
    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.clock.fetch_add(1, Ordering::Relaxed))
    }

    fn run(mut self, requests: u64) {
        let mut last = 0;
        while last < requests || !self.waiting.is_empty() || !self.tickets.is_empty() {
            if last < requests && self.prng.below(3) > 0 {
                last += 1;
                self.ask(WaitId(last));
            } else if self.prng.below(8) == 0
                && let Some(id) = self.waiting.pop()
            {
                self.picker.handle_left(SITE, id);
            } else if self.tickets.pop().is_some() {
                self.picker.handle_room(SITE);
            } else if last == requests {
                // Nothing but another thread can go on here.
                let woken = self.woken.recv_timeout(Duration::from_secs(60));
                woken.expect("a worker with room wakes this one");
            }
            self.serve();
        }
    }

    fn ask(&mut self, id: WaitId) {
        let now = self.now();
        match self.picker.handle_request(&arrival(id.0, 0), now) {
            Decision::Forward(ticket) => self.tickets.push(ticket),
            Decision::Wait => self.waiting.push(id),
            Decision::Reject(reason) => panic!("{reason:?}"),
        }
    }

    fn serve(&mut self) {
        let mut now = self.now();
        while let Some((id, decision)) = self.picker.poll_waiting(now) {
            let Decision::Forward(ticket) = decision else {
                panic!("{decision:?}");
            };
            self.waiting.retain(|it| *it != id);
            self.tickets.push(ticket);
            now = self.now();
        }
        while let Some(elder) = self.picker.poll_elder(now) {
            // One that is full has a wake-up ahead of it.
            self.wakes[elder].try_send(()).ok();
        }
    }
}

#[test]
fn no_wakeup_is_lost_between_threads() {
    const THREADS: usize = 3;
    let clock = AtomicU64::new(1_000_000_000);
    let barrier = Barrier::new(THREADS);
    let (wakes, woken): (Vec<_>, Vec<_>) = (0..THREADS).map(|_| sync_channel(1)).unzip();
    std::thread::scope(|scope| {
        for (picker, woken) in pickers(THREADS, config(2)).into_iter().zip(woken) {
            let worker = Worker {
                picker,
                wakes: &wakes,
                woken,
                clock: &clock,
                prng: Prng::new(7),
                tickets: Vec::new(),
                waiting: Vec::new(),
            };
            let barrier = &barrier;
            scope.spawn(move || {
                barrier.wait();
                worker.run(3000);
            });
        }
    });
}
