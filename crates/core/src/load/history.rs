//! From records to a [`NodeLoad`]: freshness, age and windows.
//!
//! Freshness is judged by progress: a reply that repeats an old record makes nothing younger.
//! The age of a record counts from [`LoadRecord::t_ns`], carried over to the front-end's clock
//! with the reply: `observed = received - rtt/2 - (node_now - t_ns)`. One-way delays are
//! taken as equal; the error is at most half a round trip.
//!
//! Own traffic that the record cannot have seen is found by counters, not by time stamps per
//! request: the history remembers own dispatches and completions at every poll, and looks up
//! how many requests had been dispatched one one-way delay *before* the record was made, and
//! how many completions had come back one one-way delay *after*. Between two moments at which
//! they are known, the counters are taken to have grown evenly: to take either end would count
//! a whole poll's traffic as seen, or as unseen. See `policy::auto`.
//!
//! A rate needs a window that its source can bear. Until records span half of it, the rate is
//! unknown: a tick counter that has not ticked yet looks idle.
//!
//! A record that cannot be true is refused (see `plausible`), and so is one from long before the newest.
//! Which of the two is the lie shows by what comes next: once [`AGREED`] records that were set aside follow one
//! another as records do, they are the truth, and the history begins anew with the last of them.

use std::collections::VecDeque;
use std::time::Duration;

use super::node_load::{WINDOW_EXACT, WINDOW_TICK, WINDOW_ULM};
use super::plausible::{self, Implausible, LastRecord};
use super::rates::Point;
use super::{NodeLoad, OwnTraffic, Rates};
use crate::record::LoadRecord;
use crate::time::Timestamp;

/// Records kept, and the least time between two of them: more than the longest window,
/// however often the node is read.
const RECORDS_MAX: usize = 128;
const SPACING_NS: u64 = 1_000_000;
/// Polls kept. A record is rarely older than this many.
const POLLS_MAX: usize = 128;
/// So many records that follow one another outweigh the newest that was believed.
const AGREED: u32 = 4;
/// Answers overtake one another by less than this.
const OVERTAKEN_MAX: Duration = Duration::from_secs(1);
/// Every window that a load is made of; their starts are followed, not searched for.
const WINDOWS: [Duration; 3] = [WINDOW_EXACT, WINDOW_ULM, WINDOW_TICK];

/// One successful read.
#[derive(Clone, Copy, Debug)]
pub struct Reading<'a> {
    /// What was read.
    pub record: &'a LoadRecord,
    /// When the read was sent, on the front-end's clock.
    pub sent_at: Timestamp,
    /// When the reply came.
    pub received_at: Timestamp,
    /// The node's clock at the reply, where the transport tells.
    pub node_now_ns: Option<u64>,
}

/// What a reading changed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Progress {
    /// A newer record.
    Advanced(NodeLoad),
    /// The record that was known already, or one from before it.
    Unchanged,
    /// It is not believed. The load stays as it was, and gets older.
    Refused(Implausible),
}

/// What is remembered about one node by its reader.
#[derive(Debug, Default)]
pub struct History {
    generation: u64,
    /// The newest record that was believed.
    newest: Option<LastRecord>,
    /// The last one that was set aside, and how many before it and with it follow one another.
    aside: Option<(LastRecord, u32)>,
    points: VecDeque<Point>,
    /// Where each of [`WINDOWS`] starts among the points.
    starts: [usize; WINDOWS.len()],
    polls: VecDeque<(Timestamp, OwnTraffic)>,
}

impl History {
    /// Notes own traffic at the moment at which a read is sent.
    pub fn note_poll(&mut self, now: Timestamp, own: OwnTraffic) {
        if self.polls.len() == POLLS_MAX {
            self.polls.pop_front();
        }
        self.polls.push_back((now, own));
    }

    /// Takes a reading in; `own` is own traffic as of now.
    pub fn accept(&mut self, reading: &Reading<'_>, own: OwnTraffic) -> Progress {
        let record = reading.record;
        if let Err(implausible) = plausible::check(record) {
            return Progress::Refused(implausible);
        }
        let seen = LastRecord::of(reading);
        if record.generation != self.generation {
            self.generation = record.generation;
            self.begin_anew();
        } else if let Some(newest) = &self.newest {
            if record.t_ns == newest.point.t_ns {
                return Progress::Unchanged;
            }
            if let Err(implausible) = seen.follows(newest) {
                let behind = newest.point.t_ns.saturating_sub(record.t_ns);
                let overtaken = behind > 0 && behind <= crate::time::nanos(OVERTAKEN_MAX);
                if !self.set_aside(seen) {
                    return match overtaken {
                        true => Progress::Unchanged,
                        false => Progress::Refused(implausible),
                    };
                }
                self.begin_anew();
            }
        }
        self.aside = None;
        self.newest = Some(seen);
        self.thin_out();
        if self.points.len() == RECORDS_MAX {
            self.points.pop_front();
            for start in &mut self.starts {
                *start = start.saturating_sub(1);
            }
        }
        self.points.push_back(seen.point);
        self.follow_windows(record.t_ns);
        Progress::Advanced(self.load(reading, own))
    }

    /// Sets a record aside; whether those that were set aside outweigh the newest that was believed.
    fn set_aside(&mut self, seen: LastRecord) -> bool {
        let agreed = match &self.aside {
            // Known already.
            Some((last, agreed)) if last.point.t_ns == seen.point.t_ns => *agreed,
            Some((last, agreed)) if seen.follows(last).is_ok() => agreed + 1,
            _ => 1,
        };
        self.aside = Some((seen, agreed));
        agreed >= AGREED
    }

    /// Forgets all records.
    fn begin_anew(&mut self) {
        self.points.clear();
        self.starts = Default::default();
    }

    /// Drops the newest point if it is too near to its predecessor to be worth a place. No
    /// window starts there: the shortest is longer than the spacing.
    fn thin_out(&mut self) {
        let mut newest = self.points.iter().rev();
        if let (Some(last), Some(before)) = (newest.next(), newest.next())
            && last.t_ns - before.t_ns < SPACING_NS
        {
            self.points.pop_back();
        }
    }

    /// The rates over the shortest kept window of at least `window`, or the longest there is.
    pub fn rates(&self, window: Duration) -> Option<Rates> {
        let newest = self.points.back()?;
        let since = newest.t_ns.saturating_sub(crate::time::nanos(window));
        let start = match WINDOWS.iter().position(|known| *known == window) {
            Some(known) => self.starts[known],
            // Points are in order of their clock: the youngest that is old enough.
            None => {
                let enough = self.points.partition_point(|point| point.t_ns <= since);
                enough.saturating_sub(1)
            }
        };
        self.points.get(start)?.until(newest)
    }

    /// Moves the start of each window up to the youngest point that is old enough.
    fn follow_windows(&mut self, newest_ns: u64) {
        for (start, window) in self.starts.iter_mut().zip(WINDOWS) {
            let since = newest_ns.saturating_sub(crate::time::nanos(window));
            while self
                .points
                .get(*start + 1)
                .is_some_and(|next| next.t_ns <= since)
            {
                *start += 1;
            }
        }
    }

    fn load(&self, reading: &Reading<'_>, own: OwnTraffic) -> NodeLoad {
        let record = reading.record;
        let one_way = reading.received_at.since(reading.sent_at) / 2;
        let standing = reading
            .node_now_ns
            .map_or(0, |node_now| node_now.saturating_sub(record.t_ns));
        let observed_at = reading.received_at - one_way - Duration::from_nanos(standing);
        let own_at = |when| self.own_at(when, (reading.received_at, own));
        NodeLoad {
            observed_at,
            one_way: one_way.as_secs_f32(),
            unseen_from: OwnTraffic {
                dispatched: own_at(observed_at - one_way).dispatched,
                completed: own_at(observed_at + one_way).completed,
            },
            ..NodeLoad::of_record(record, |window| self.rates(window))
        }
    }

    /// Own traffic as it stood at `when`, between the polls around it; `now` is the newest that
    /// is known. Before the first poll it is what the first poll found. Searched from the
    /// youngest, which is the one except with old records.
    fn own_at(&self, when: Timestamp, now: (Timestamp, OwnTraffic)) -> OwnTraffic {
        let Some(last) = self.polls.iter().rposition(|(at, _)| *at <= when) else {
            return self.polls.front().map_or(now.1, |(_, first)| *first);
        };
        let until = *self.polls.get(last + 1).unwrap_or(&now);
        OwnTraffic::between(self.polls[last], until, when)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Sources;

    fn record(t_ms: u64, busy_ms: u64) -> LoadRecord {
        LoadRecord {
            generation: 1,
            t_ns: t_ms * 1_000_000,
            busy_ns: busy_ms * 1_000_000,
            cores_milli: 1000,
            runnable: 2,
            sources: Sources::BUSY_SWITCH.with(Sources::RUNNABLE),
            ..LoadRecord::default()
        }
    }

    fn read(history: &mut History, record: &LoadRecord, at_ms: u64, own: OwnTraffic) -> Progress {
        let reading = Reading {
            record,
            sent_at: Timestamp::from_millis(at_ms),
            received_at: Timestamp::from_millis(at_ms + 2),
            node_now_ns: Some(record.t_ns.saturating_add(5_000_000)),
        };
        history.accept(&reading, own)
    }

    #[test]
    fn a_record_is_as_old_as_its_own_clock_says() {
        let mut history = History::default();
        let Progress::Advanced(load) =
            read(&mut history, &record(100, 50), 1000, OwnTraffic::default())
        else {
            panic!("a first record is progress");
        };
        // Read at 1001 on our clock, and 5 ms old when it was read.
        assert_eq!(load.observed_at, Timestamp::from_millis(996));
        assert!(load.utilization.is_nan(), "one record has no rate");
    }

    #[test]
    fn a_repeated_record_is_no_progress() {
        let mut history = History::default();
        read(&mut history, &record(100, 50), 1000, OwnTraffic::default());
        for at in [1010, 1020] {
            let again = read(&mut history, &record(100, 50), at, OwnTraffic::default());
            assert_eq!(again, Progress::Unchanged);
        }
    }

    #[test]
    fn windows_are_formed_from_the_records_own_clock() {
        let mut history = History::default();
        let mut last = Progress::Unchanged;
        // Idle until 140 ms, busy after: only a short window sees the change.
        for t in (100..=150).step_by(1) {
            let busy = 50 + u64::saturating_sub(t, 140);
            last = read(&mut history, &record(t, busy), t, OwnTraffic::default());
        }
        let Progress::Advanced(load) = last else {
            panic!("newer records are progress")
        };
        assert_eq!(load.utilization, 1.0);
        assert_eq!(load.utilization_ulm, 0.2);
    }

    #[test]
    fn any_window_is_the_shortest_kept_one_that_is_long_enough() {
        let mut history = History::default();
        // Records 3 ms apart, more of them than are kept.
        for t in 0..400 {
            read(
                &mut history,
                &record(3 * t + 1, t),
                t,
                OwnTraffic::default(),
            );
            for window_ms in [0, 1, 10, 20, 50, 100, 1000] {
                let window = Duration::from_millis(window_ms);
                let long_enough = window_ms.div_ceil(3);
                let kept = t.min(RECORDS_MAX as u64 - 1);
                let wanted = Duration::from_millis(3 * long_enough.min(kept));
                let got = history.rates(window).map(|rates| rates.window);
                assert_eq!(got, (wanted > Duration::ZERO).then_some(wanted), "{t}");
            }
        }
    }

    #[test]
    fn a_restart_begins_a_new_history() {
        let mut history = History::default();
        read(&mut history, &record(100, 50), 1000, OwnTraffic::default());
        let restarted = LoadRecord {
            generation: 2,
            ..record(1, 0)
        };
        let progress = read(&mut history, &restarted, 1010, OwnTraffic::default());
        assert!(matches!(progress, Progress::Advanced(load) if load.utilization.is_nan()));
    }

    #[test]
    fn own_traffic_that_the_record_cannot_have_seen_is_told_apart() {
        let mut history = History::default();
        let own = |dispatched, completed| OwnTraffic {
            dispatched,
            completed,
        };
        for (ms, dispatched) in [(980, 10), (990, 20), (1000, 30)] {
            history.note_poll(Timestamp::from_millis(ms), own(dispatched, dispatched / 2));
        }
        // One-way 1 ms, observed at 996: dispatched up to 995, completed up to 997.
        let Progress::Advanced(load) = read(&mut history, &record(100, 50), 1000, own(33, 18))
        else {
            panic!("a first record is progress");
        };
        assert_eq!(load.unseen_from, own(25, 13));
    }

    #[test]
    fn own_traffic_is_remembered_of_so_many_polls_and_of_none_before() {
        for (polls, oldest) in [(128, 0), (129, 1)] {
            let mut history = History::default();
            let own = |dispatched| OwnTraffic {
                dispatched,
                completed: 0,
            };
            for poll in 0..polls {
                history.note_poll(Timestamp::from_millis(poll), own(poll));
            }
            let now = (Timestamp::from_millis(1000), own(1000));
            assert_eq!(history.own_at(Timestamp::ZERO, now), own(oldest));
        }
    }

    #[test]
    fn what_was_sent_while_the_read_was_under_way_is_unseen() {
        for (received_ns, node_now_ns) in [(2000, None), (2001, None), (2001, Some(100_000_000))] {
            let mut history = History::default();
            let own = |dispatched, completed| OwnTraffic {
                dispatched,
                completed,
            };
            // The batch of reads was noted a little before this one was sent.
            let noted = Timestamp::from_millis(1000);
            history.note_poll(noted, own(10, 5));
            let sent_at = noted + Duration::from_nanos(10);
            let reading = Reading {
                record: &record(100, 50),
                sent_at,
                received_at: sent_at + Duration::from_nanos(received_ns),
                node_now_ns,
            };
            let Progress::Advanced(load) = history.accept(&reading, own(20, 9)) else {
                panic!("a first record is progress");
            };
            // Made half-way: whatever was dispatched after the read is on its way, and
            // whatever was completed before the reply had been answered by then.
            assert_eq!(
                load.unseen_from,
                own(10, 9),
                "{received_ns} {node_now_ns:?}"
            );
        }
    }

    #[test]
    fn a_window_of_a_few_ticks_is_unknown_and_not_idle() {
        let mut history = History::default();
        let ticked = |t| LoadRecord {
            sources: Sources::BUSY_TICK,
            ..record(t, 50)
        };
        for (t, known) in [(100, false), (101, false), (149, false), (150, true)] {
            let progress = read(&mut history, &ticked(t), t, OwnTraffic::default());
            let Progress::Advanced(load) = progress else {
                panic!("newer records are progress");
            };
            assert_eq!(!load.utilization.is_nan(), known, "at {t} ms");
        }
    }

    /// A node with one CPU, half busy, as it is after so many milliseconds.
    fn honest(ms: u64) -> LoadRecord {
        let mut honest = record(ms, 0);
        honest.busy_ns = honest.t_ns / 2;
        honest.runnable_ns = honest.t_ns;
        honest
    }

    fn advanced(progress: Progress) -> Option<NodeLoad> {
        match progress {
            Progress::Advanced(load) => Some(load),
            Progress::Unchanged | Progress::Refused(_) => None,
        }
    }

    #[test]
    fn a_clock_of_the_far_future_is_refused_once_a_node_is_known() {
        let mut history = History::default();
        for t in 0..200 {
            read(&mut history, &honest(t), t, OwnTraffic::default());
        }
        let nonsense = LoadRecord {
            t_ns: 1 << 62,
            ..honest(200)
        };
        let refused = read(&mut history, &nonsense, 200, OwnTraffic::default());
        assert_eq!(refused, Progress::Refused(Implausible::Clock));
        let next = read(&mut history, &honest(201), 201, OwnTraffic::default());
        assert_eq!(advanced(next).unwrap().utilization, 0.5, "windows and all");
    }

    /// It was believed, since nothing was known before it.
    #[test]
    fn a_first_clock_of_the_far_future_is_outweighed_by_what_follows() {
        for first in [2_000, 5_000_000, u64::MAX / 1_000_000] {
            let mut history = History::default();
            read(&mut history, &honest(first), 0, OwnTraffic::default());
            let heard = (1..=4).map(|t| {
                let next = read(&mut history, &honest(t), t, OwnTraffic::default());
                advanced(next).is_some()
            });
            assert_eq!(heard.collect::<Vec<_>>(), [false, false, false, true]);
        }
    }

    /// Answers of another generation, of another clock and with other counters, in any order; then the truth.
    #[test]
    fn after_any_nonsense_the_truth_is_known_again() {
        for seed in 0..300 {
            let mut prng = crate::prng::Prng::new(seed);
            let mut history = History::default();
            let mut now = 10_000;
            for _ in 0..prng.below(100) {
                now += 1;
                let mut hostile = honest(now);
                let mut wild = |value: u64| match prng.below(4) {
                    0 => prng.bits(),
                    1 => value.saturating_add(prng.bits() % 3_000_000_000),
                    2 => value.saturating_sub(prng.bits() % 3_000_000_000),
                    _ => value,
                };
                hostile.t_ns = wild(hostile.t_ns);
                hostile.busy_ns = wild(hostile.busy_ns);
                hostile.runnable_ns = wild(hostile.runnable_ns);
                hostile.completions = wild(0);
                hostile.received_bytes = wild(0);
                hostile.cores_milli = wild(1000) as u32;
                let reading = Reading {
                    record: &hostile,
                    sent_at: Timestamp::from_millis(now),
                    received_at: Timestamp::from_millis(now),
                    node_now_ns: Some(wild(hostile.t_ns)),
                };
                history.accept(&reading, OwnTraffic::default());
            }
            let mut truth = |t: u64| {
                let next = read(
                    &mut history,
                    &honest(now + t),
                    now + t,
                    OwnTraffic::default(),
                );
                advanced(next)
            };
            let known = (1..=4).find(|t| truth(*t).is_some());
            assert!(known.is_some(), "seed {seed}");
            for t in 5..=110 {
                assert!(truth(t).is_some(), "seed {seed}, read {t}");
            }
            let load = truth(111).unwrap();
            assert_eq!(
                (load.capacity, load.utilization, load.utilization_ulm),
                (1.0, 0.5, 0.5),
                "seed {seed}"
            );
        }
    }

    #[test]
    fn what_no_machine_can_say_is_refused_by_name_and_forgotten() {
        type Change = fn(&mut LoadRecord);
        let cases: &[(Change, Implausible)] = &[
            (|it| it.t_ns += 60_000_000, Implausible::Clock),
            (|it| it.t_ns -= 1_100_000_000, Implausible::Clock),
            (|it| it.cores_milli = 8_192_001, Implausible::Cpus),
            (|it| it.softirqs_pending = 8193, Implausible::Cpus),
            (|it| it.runnable = (1 << 22) + 1, Implausible::Tasks),
            (|it| it.uninterruptible = u32::MAX, Implausible::Tasks),
            (|it| it.tasks = u32::MAX, Implausible::Tasks),
            (|it| it.in_flight = (1 << 24) + 1, Implausible::Requests),
            (|it| it.accept_queue = u32::MAX, Implausible::Requests),
            (|it| it.memory_total = (1 << 52) + 1, Implausible::Memory),
            (|it| it.memory_available = u64::MAX, Implausible::Memory),
            (|it| it.busy_ns += 2_100_000_000, Implausible::Rates),
            (|it| it.runnable_ns += 1 << 53, Implausible::Rates),
            (|it| it.in_flight_ns = 1 << 55, Implausible::Rates),
            (|it| it.accept_queue_ns = 1 << 55, Implausible::Rates),
            (|it| it.completions = 101_000_000, Implausible::Rates),
            (|it| it.sent_bytes = 1_010_000_000_000, Implausible::Rates),
        ];
        for (number, (change, reason)) in cases.iter().enumerate() {
            let mut history = History::default();
            for t in 2000..2010 {
                read(&mut history, &honest(t), t, OwnTraffic::default());
            }
            let mut nonsense = honest(2010);
            change(&mut nonsense);
            let refused = read(&mut history, &nonsense, 2010, OwnTraffic::default());
            assert_eq!(refused, Progress::Refused(*reason), "case {number}");
            let next = read(&mut history, &honest(2011), 2011, OwnTraffic::default());
            assert_eq!(advanced(next).unwrap().utilization, 0.5, "case {number}");
        }
    }

    #[test]
    fn an_agent_that_stood_still_and_a_machine_that_grew_are_believed() {
        // The first record that is read is ten seconds old, the next one of now.
        let mut history = History::default();
        let reading = Reading {
            record: &honest(1_000),
            sent_at: Timestamp::from_millis(11_000),
            received_at: Timestamp::from_millis(11_000),
            node_now_ns: Some(11_000_000_000),
        };
        let first = history.accept(&reading, OwnTraffic::default());
        assert!(advanced(first).is_some());
        let next = read(&mut history, &honest(11_001), 11_001, OwnTraffic::default());
        assert!(advanced(next).is_some());
        // Then none for a minute, and the most that a machine may have.
        let mut grown = honest(71_001);
        grown.cores_milli = 8_192_000;
        grown.memory_total = 1 << 52;
        grown.in_flight = 1 << 24;
        grown.busy_ns += 60_000_000_000 * 8192;
        let next = read(&mut history, &grown, 71_001, OwnTraffic::default());
        assert!(advanced(next).is_some());
    }

    #[test]
    fn windows_are_spanned_however_often_a_node_is_read() {
        let mut history = History::default();
        for step in 0..3000 {
            let often = LoadRecord {
                t_ns: 100_000_000 + step * 50_000,
                ..record(0, 50)
            };
            read(&mut history, &often, 1000 + step, OwnTraffic::default());
        }
        let rates = history.rates(WINDOW_TICK).unwrap();
        assert!(rates.window >= WINDOW_TICK);
        assert!(history.points.len() <= RECORDS_MAX);
    }
}
