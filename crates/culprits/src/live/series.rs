//! What is used of a resource, from the counters of one node or of all nodes of a site.
//!
//! ```text
//! use in [g, g + 50 ms) = sum over members of  counter(g + 50 ms) - counter(g)      by interpolation
//! capacity              = sum over the members that are known there
//! ```
//!
//! The nodes of a site are one resource: a request may go to any of them, so what one of them does is
//! explained by a part of each class's requests, and what all of them do by all.
//!
//! Members come and go with the cluster. One that has left counts up to its last reading, and what its place reports
//! after that is not its use. The total goes on, so what was learned of the resource stays.
//!
//! Nodes are read at moments of their own, so a grid is laid over them, some time ago: by then each has
//! been read on both sides. Failure case: a node that is silent for longer is left out until it answers.

use std::collections::{BTreeSet, VecDeque};

use super::cluster::Source;
use crate::resource::Span;
use tidegate_core::culprits::UsagePoint;
use tidegate_core::load::Counters;
use tidegate_core::time::Timestamp;

/// Step of the grid, nanoseconds.
const STEP: u64 = 50_000_000;
/// How far the grid is behind.
const BEHIND: u64 = 300_000_000;
/// Longest time between two readings that tells what was between them.
const GAP_MAX: u64 = 1_000_000_000;
/// Readings kept of a member: at one each millisecond more than the grid is behind.
const READINGS_MAX: usize = 512;
/// Steps kept for the picture: a minute.
const SPANS_MAX: usize = 1200;
/// Steps of "the last seconds": five of them.
const USAGE_SPANS: usize = 100;
/// Steps that are made up for after a pause.
const CATCH_UP: u64 = 40;

/// What of a node's counters counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Nanoseconds of CPUs.
    Cpu,
    /// Nanoseconds of the busiest disk.
    Disk,
    /// Bytes, both ways; there is no capacity.
    Network,
    /// Switches from one task to another; there is no capacity.
    Switches,
}

impl Kind {
    /// All of them, those with a capacity first.
    pub(super) const ALL: [Self; 4] = [Self::Cpu, Self::Disk, Self::Network, Self::Switches];

    /// What it is called behind its owner's name.
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Disk => "disk",
            Self::Network => "network",
            Self::Switches => "context switches",
        }
    }

    /// The counter, if it is measured.
    pub(super) fn of(self, counters: &Counters) -> Option<u64> {
        match self {
            Self::Cpu => counters.busy_ns,
            Self::Disk => counters.disk_ns,
            Self::Network => counters.network,
            Self::Switches => counters.context_switches,
        }
    }

    fn capacity(self, counters: &Counters) -> f64 {
        match self {
            Self::Cpu => counters.cores.into(),
            Self::Disk | Self::Network | Self::Switches => 1.0,
        }
    }
}

/// One node's part.
#[derive(Debug)]
struct Member {
    source: Source,
    /// Nothing is read of it any more.
    has_left: bool,
    readings: VecDeque<Reading>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Reading {
    at: u64,
    generation: u64,
    value: u64,
    capacity: f64,
}

impl Member {
    fn new(source: Source) -> Self {
        Self {
            source,
            has_left: false,
            readings: VecDeque::new(),
        }
    }

    /// Whether nothing of it will count any more.
    fn is_over(&self, done: u64) -> bool {
        self.has_left && self.readings.back().is_none_or(|last| last.at <= done)
    }

    fn add(&mut self, reading: Reading) {
        match self.readings.back() {
            Some(last) if last.at >= reading.at => return,
            Some(last) if last.generation != reading.generation || last.value > reading.value => {
                self.readings.clear();
            }
            Some(_) | None => {}
        }
        if self.readings.len() >= READINGS_MAX {
            self.readings.pop_front();
        }
        self.readings.push_back(reading);
    }

    /// The counter at a moment between two readings, and the capacity then.
    fn at(&self, at: u64) -> Option<(f64, f64)> {
        let after = self.readings.partition_point(|reading| reading.at < at);
        let last = self.readings.get(after)?;
        if last.at == at {
            return Some((last.value as f64, last.capacity));
        }
        let first = self.readings.get(after.checked_sub(1)?)?;
        let length = last.at - first.at;
        let part = (at - first.at) as f64 / length as f64;
        let value = first.value as f64 + part * (last.value - first.value) as f64;
        (length <= GAP_MAX).then_some((value, last.capacity))
    }

    /// What is used between two moments, and the capacity.
    fn between(&self, from: u64, to: u64) -> Option<(f64, f64)> {
        let (before, _) = self.at(from)?;
        let (after, capacity) = self.at(to)?;
        Some((after - before, capacity))
    }

    fn forget(&mut self, before: u64) {
        // One before it is needed to interpolate.
        while self
            .readings
            .get(1)
            .is_some_and(|second| second.at <= before)
        {
            self.readings.pop_front();
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Series {
    kind: Kind,
    members: Vec<Member>,
    /// The last moment of the grid that is done.
    done: u64,
    total: f64,
    /// Use by step, in units of the capacity or per second; of the process's clock.
    spans: VecDeque<Span>,
    capacity: f64,
}

impl Series {
    /// Without members.
    pub(super) fn new(kind: Kind) -> Self {
        Self {
            kind,
            members: Vec::new(),
            done: 0,
            total: 0.0,
            spans: VecDeque::new(),
            capacity: 0.0,
        }
    }

    /// What of its members' counters it sums up.
    pub(super) fn kind(&self) -> Kind {
        self.kind
    }

    /// These are its members from now on. Places of members stay only until this is called again.
    pub(super) fn follow(&mut self, sources: &BTreeSet<Source>) {
        let done = self.done;
        for member in &mut self.members {
            member.has_left |= !sources.contains(&member.source);
        }
        self.members.retain(|it| !it.is_over(done));
        let known: BTreeSet<_> = self.members().map(|(_, source)| source).collect();
        let new = sources.difference(&known);
        self.members.extend(new.map(|source| Member::new(*source)));
    }

    /// Those that are read, each with its place.
    pub(super) fn members(&self) -> impl Iterator<Item = (usize, Source)> {
        let members = self.members.iter().enumerate();
        members
            .filter(|(_, it)| !it.has_left)
            .map(|(place, it)| (place, it.source))
    }

    /// What a member's counters say now; the same again changes nothing.
    pub(super) fn add(&mut self, member: usize, counters: &Counters) {
        let (Some(member), Some(value)) = (self.members.get_mut(member), self.kind.of(counters))
        else {
            return;
        };
        member.add(Reading {
            at: counters.at.nanos(),
            generation: counters.generation,
            value,
            capacity: self.kind.capacity(counters),
        });
    }

    /// Lays the grid up to what is known by now; hands over each step. A step that is not known is a hole.
    pub(super) fn advance(&mut self, now: Timestamp, mut tell: impl FnMut(UsagePoint)) {
        let until = now.nanos().saturating_sub(BEHIND) / STEP * STEP;
        let oldest = until.saturating_sub(CATCH_UP * STEP);
        self.done = self.done.max(oldest);
        while self.done < until {
            let (from, to) = (self.done, self.done + STEP);
            self.done = to;
            let known = self.members.iter().filter_map(|it| it.between(from, to));
            let (used, capacity) = known.fold((0.0, 0.0), |sum, it| (sum.0 + it.0, sum.1 + it.1));
            if capacity > 0.0 {
                if self.ends_before(from) {
                    // After a hole the counter goes on where it was.
                    tell(self.point(from, capacity));
                }
                self.total += used;
                self.capacity = capacity;
                tell(self.point(to, capacity));
                self.keep(from, to, used);
            }
        }
        let done = self.done;
        self.members.iter_mut().for_each(|it| it.forget(done));
    }

    fn ends_before(&self, from: u64) -> bool {
        self.spans.back().is_none_or(|last| last.to < from as i64)
    }

    fn point(&self, at: u64, capacity: f64) -> UsagePoint {
        UsagePoint {
            at: Timestamp::from_nanos(at),
            busy_ns: self.total as u64,
            cores: capacity,
        }
    }

    fn keep(&mut self, from: u64, to: u64, used: f64) {
        let unit = match self.kind {
            Kind::Cpu | Kind::Disk => 1.0,
            Kind::Network | Kind::Switches => 1e9,
        };
        if self.spans.len() >= SPANS_MAX {
            self.spans.pop_front();
        }
        self.spans.push_back(Span {
            from: from as i64,
            to: to as i64,
            mean: used * unit / (to - from) as f64,
        });
    }

    /// Use by step in the last minute, by the process's clock.
    pub(super) fn spans(&self) -> impl Iterator<Item = &Span> {
        self.spans.iter()
    }

    /// Used part of the capacity in the last seconds; none if nothing is known.
    pub(super) fn usage(&self) -> Option<f64> {
        let late = self.spans.iter().rev().take(USAGE_SPANS);
        let late = late.filter(|it| it.to > self.done as i64 - (USAGE_SPANS as u64 * STEP) as i64);
        let (sum, count) = late.fold((0.0, 0), |(sum, count), it| (sum + it.mean, count + 1));
        (count > 0 && self.capacity > 0.0).then(|| sum / f64::from(count) / self.capacity)
    }

    /// Up to when it is known.
    pub(super) fn known_until(&self) -> Timestamp {
        Timestamp::from_nanos(self.done)
    }

    /// How much of it there is, as was known last; zero if nothing is.
    pub(super) fn capacity(&self) -> f64 {
        self.capacity
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::cluster::Table;

    const MS: u64 = 1_000_000;

    /// Of so many members.
    fn with_members(kind: Kind, members: u32) -> Series {
        let mut series = Series::new(kind);
        series.follow(&(0..members).map(source).collect());
        series
    }

    fn source(place: u32) -> Source {
        Source {
            table: Table::Nodes,
            place,
            generation: 0,
            address: ([10, 0, 0, 1], 80).into(),
        }
    }

    fn counters(at_ms: u64, busy_ms: u64, generation: u64) -> Counters {
        Counters {
            at: Timestamp::from_nanos(at_ms * MS),
            generation,
            cores: 2.0,
            busy_ns: Some(busy_ms * MS),
            fine: true,
            disk_ns: None,
            network: Some(2 * busy_ms),
            context_switches: None,
        }
    }

    /// Steps handed over, in ms: when, and what was used since the one before.
    fn told(series: &mut Series, now_ms: u64) -> Vec<(u64, i64)> {
        let mut points = Vec::new();
        series.advance(Timestamp::from_nanos(now_ms * MS), |it| points.push(it));
        let used = points.windows(2).map(|pair| {
            let used = (pair[1].busy_ns as f64 - pair[0].busy_ns as f64) / MS as f64;
            (pair[1].at.nanos() / MS, used.round() as i64)
        });
        used.collect()
    }

    #[test]
    fn members_that_are_read_at_moments_of_their_own_add_up() {
        let mut series = with_members(Kind::Cpu, 2);
        // One uses all of a CPU, the other a half of one.
        for step in 0..20 {
            series.add(0, &counters(1000 + step * 30, step * 30, 1));
            series.add(1, &counters(1013 + step * 20, step * 10, 1));
        }
        let used = told(&mut series, 1000 + 350 + 300);
        // Where only the first is known by then nothing of the other is made up.
        let both: Vec<_> = used.iter().filter(|(at, _)| *at > 1050).collect();
        assert!(both.iter().all(|(_, used)| *used == 75), "{used:?}");
        assert_eq!(used.last().map(|(at, _)| *at), Some(1350));
        assert_eq!(series.capacity(), 4.0);
    }

    #[test]
    fn who_is_silent_is_left_out_and_a_restart_is_no_use() {
        let mut series = with_members(Kind::Cpu, 1);
        for step in 0..10 {
            series.add(0, &counters(1000 + step * 50, step * 50, 1));
        }
        assert_eq!(told(&mut series, 1500 + 300).len(), 9);
        // Silence: a hole, and no step tells of it.
        assert_eq!(told(&mut series, 3000 + 300), []);
        for step in 0..10 {
            series.add(0, &counters(4000 + step * 50, 7 + step * 50, 2));
        }
        let used = told(&mut series, 4450 + 300);
        assert_eq!(used.len(), 9);
        assert!(used.iter().all(|(_, used)| *used == 50), "{used:?}");
        assert_eq!(series.spans().count(), 18);
    }

    #[test]
    fn what_has_no_capacity_is_told_per_second() {
        let mut series = with_members(Kind::Network, 1);
        for step in 0..4 {
            series.add(0, &counters(1000 + step * 50, step * 100, 1));
        }
        told(&mut series, 1150 + 300);
        let means: Vec<_> = series.spans().map(|span| span.mean.round()).collect();
        assert_eq!(means, [4000.0; 3]);
        // What is not measured is no series.
        let mut disk = with_members(Kind::Disk, 1);
        disk.add(0, &counters(1000, 5, 1));
        assert_eq!(told(&mut disk, 2000), []);
    }
}
