//! The counters of a node as they were read last, for readers with windows of their own: the discovery of
//! culprits wants a tenth of a second, policies want what a load is made from.
//!
//! Each kind of use is a counter that only grows within one generation; two of them give the use between.
//! One writer, the node's reader; anybody reads, under a sequence lock as in `slot`.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use crate::record::{LoadRecord, Sources};
use crate::time::Timestamp;

/// Tries of a read that meets the writer.
const READ_TRIES: usize = 4;
/// Bits of what was measured.
const BUSY: u32 = 1;
const FINE: u32 = 2;
const DISK: u32 = 4;
const NETWORK: u32 = 8;
const SWITCHES: u32 = 16;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Counters {
    /// When they were read, by this process's clock.
    pub at: Timestamp,
    /// Another one means that they have begun anew.
    pub generation: u64,
    /// CPUs that can be used.
    pub cores: f32,
    /// CPU time used, nanoseconds.
    pub busy_ns: Option<u64>,
    /// Whether that is known to less than the timer's tick.
    pub fine: bool,
    /// Time that the busiest disk had work, nanoseconds.
    pub disk_ns: Option<u64>,
    /// Bytes received and sent, together.
    pub network: Option<u64>,
    /// Switches from one task to another.
    pub context_switches: Option<u64>,
}

impl Counters {
    /// What a record says, read at `at`, of so many CPUs.
    pub fn of_record(record: &LoadRecord, at: Timestamp, cores: f32) -> Self {
        let sources = record.sources;
        Self {
            at,
            generation: record.generation,
            cores,
            busy_ns: sources.has_busy().then_some(record.busy_ns),
            fine: sources.has(Sources::BUSY_SWITCH) || sources.has(Sources::BUSY_ACCT),
            disk_ns: (sources.has(Sources::DISK)).then_some(record.disk_ns),
            network: (sources.has(Sources::NETWORK))
                .then_some(record.received_bytes.saturating_add(record.sent_bytes)),
            context_switches: (sources.has(Sources::CONTEXT_SWITCHES))
                .then_some(record.context_switches),
        }
    }

    /// Used share of the CPUs since an earlier read, 0 to 1; none where they have begun anew, were not measured, or no time has
    /// passed. Clock and counter are not read at the same moment, so a full node may seem more than full.
    pub fn cpu_since(&self, earlier: &Self) -> Option<f32> {
        let passed = self.at.nanos().checked_sub(earlier.at.nanos());
        let passed = passed.filter(|ns| *ns > 0 && self.generation == earlier.generation)? as f64;
        let used = self.busy_ns?.checked_sub(earlier.busy_ns?)? as f64;
        let share = used / passed / f64::from(self.cores);
        share.is_finite().then(|| share.clamp(0.0, 1.0) as f32)
    }
}

/// Where they lie.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(super) struct CounterSlot {
    /// Odd while the reader writes; zero: nothing was read yet.
    sequence: AtomicU64,
    at: AtomicU64,
    generation: AtomicU64,
    busy_ns: AtomicU64,
    disk_ns: AtomicU64,
    network: AtomicU64,
    context_switches: AtomicU64,
    cores: AtomicU32,
    measured: AtomicU32,
}

const _: () = assert!(size_of::<CounterSlot>() == 64);

impl CounterSlot {
    pub(super) fn store(&self, counters: &Counters) {
        let bit = |has: bool, bit: u32| if has { bit } else { 0 };
        let measured = bit(counters.busy_ns.is_some(), BUSY)
            | bit(counters.fine, FINE)
            | bit(counters.disk_ns.is_some(), DISK)
            | bit(counters.network.is_some(), NETWORK)
            | bit(counters.context_switches.is_some(), SWITCHES);
        let before = self.sequence.load(Ordering::Relaxed);
        self.sequence
            .store(before.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        for (word, value) in [
            (&self.at, counters.at.nanos()),
            (&self.generation, counters.generation),
            (&self.busy_ns, counters.busy_ns.unwrap_or_default()),
            (&self.disk_ns, counters.disk_ns.unwrap_or_default()),
            (&self.network, counters.network.unwrap_or_default()),
            (
                &self.context_switches,
                counters.context_switches.unwrap_or_default(),
            ),
        ] {
            word.store(value, Ordering::Relaxed);
        }
        self.cores
            .store(counters.cores.to_bits(), Ordering::Relaxed);
        self.measured.store(measured, Ordering::Relaxed);
        self.sequence
            .store(before.wrapping_add(2), Ordering::Release);
    }

    /// As before the first.
    pub(super) fn clear(&self) {
        self.sequence.store(0, Ordering::Release);
    }

    /// None before the first, and when the writer is at work each time.
    pub(super) fn load(&self) -> Option<Counters> {
        (0..READ_TRIES).find_map(|_| self.try_load())
    }

    fn try_load(&self) -> Option<Counters> {
        let before = self.sequence.load(Ordering::Acquire);
        let get = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let measured = self.measured.load(Ordering::Relaxed);
        let if_measured = |bit: u32, value: u64| (measured & bit != 0).then_some(value);
        let counters = Counters {
            at: Timestamp::from_nanos(get(&self.at)),
            generation: get(&self.generation),
            cores: f32::from_bits(self.cores.load(Ordering::Relaxed)),
            busy_ns: if_measured(BUSY, get(&self.busy_ns)),
            fine: measured & FINE != 0,
            disk_ns: if_measured(DISK, get(&self.disk_ns)),
            network: if_measured(NETWORK, get(&self.network)),
            context_switches: if_measured(SWITCHES, get(&self.context_switches)),
        };
        fence(Ordering::Acquire);
        let whole = before.is_multiple_of(2) && self.sequence.load(Ordering::Relaxed) == before;
        (whole && before > 0).then_some(counters)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_comes_back() {
        let slot = CounterSlot::default();
        assert_eq!(slot.load(), None);
        let record = LoadRecord {
            generation: 3,
            busy_ns: 7,
            disk_ns: 8,
            received_bytes: 9,
            sent_bytes: 10,
            context_switches: 11,
            sources: Sources::BUSY_ACCT
                .with(Sources::NETWORK)
                .with(Sources::CONTEXT_SWITCHES),
            ..LoadRecord::default()
        };
        let counters = Counters::of_record(&record, Timestamp::from_nanos(5), 1.5);
        assert_eq!(
            counters,
            Counters {
                at: Timestamp::from_nanos(5),
                generation: 3,
                cores: 1.5,
                busy_ns: Some(7),
                fine: true,
                disk_ns: None,
                network: Some(19),
                context_switches: Some(11),
            }
        );
        slot.store(&counters);
        assert_eq!(slot.load(), Some(counters));
        let ticks = LoadRecord {
            sources: Sources::BUSY_TICK.with(Sources::DISK),
            ..record
        };
        let counters = Counters::of_record(&ticks, Timestamp::from_nanos(6), 2.0);
        assert!(!counters.fine && counters.disk_ns == Some(8));
        slot.store(&counters);
        assert_eq!(slot.load(), Some(counters));
        let nothing = LoadRecord {
            sources: Sources::NONE,
            ..record
        };
        let counters = Counters::of_record(&nothing, Timestamp::from_nanos(7), 2.0);
        slot.store(&counters);
        assert_eq!(slot.load().unwrap().busy_ns, None);
    }

    #[test]
    fn two_reads_give_the_share_of_the_cpus_between() {
        let at = |ms: u64, busy_ms: u64| Counters {
            at: Timestamp::from_nanos(ms * 1_000_000),
            generation: 1,
            cores: 0.5,
            busy_ns: Some(busy_ms * 1_000_000),
            fine: true,
            disk_ns: None,
            network: None,
            context_switches: None,
        };
        let earlier = at(1000, 700);
        assert_eq!(at(2000, 800).cpu_since(&earlier), Some(0.2));
        assert_eq!(at(2000, 700).cpu_since(&earlier), Some(0.0));
        assert_eq!(at(2000, 1300).cpu_since(&earlier), Some(1.0));
        assert_eq!(earlier.cpu_since(&earlier), None, "no time has passed");
        assert_eq!(at(900, 800).cpu_since(&earlier), None);
        assert_eq!(at(2000, 600).cpu_since(&earlier), None, "the counter fell");
        let other = |change: fn(&mut Counters)| {
            let mut other = at(2000, 800);
            change(&mut other);
            other.cpu_since(&earlier)
        };
        assert_eq!(other(|it| it.generation = 2), None);
        assert_eq!(other(|it| it.busy_ns = None), None);
        assert_eq!(other(|it| it.cores = 0.0), None);
    }

    #[test]
    fn two_of_different_reads_are_never_mixed() {
        let slot = CounterSlot::default();
        let at = |number: u64| Counters {
            at: Timestamp::from_nanos(number),
            generation: number,
            cores: 1.0,
            busy_ns: Some(number),
            fine: true,
            disk_ns: Some(number),
            network: Some(number),
            context_switches: Some(number),
        };
        std::thread::scope(|scope| {
            scope.spawn(|| (1..100_000).for_each(|number| slot.store(&at(number))));
            let mut last = 0;
            while last < 99_999 {
                if let Some(read) = slot.load() {
                    assert_eq!(read, at(read.generation));
                    last = read.generation;
                }
            }
        });
    }
}
