//! What objects of known MIBs say of a load.
//!
//! ```text
//! cpu       tidegateCpuUsed / 100
//!           or else  (user + nice + system + steal) / (the same + idle + wait)   of UCD's ssCpuRaw…, between two answers that differ
//!           or else  mean of hrProcessorLoad / 100
//! memory    tidegateMemoryUsed / 100
//!           or else  1 - (available or else free + buffers + cached) / memTotalReal
//! files     tidegateFilesUsed / 100
//! capacity  tidegateCores / 1000, or else ssCpuNumCpus, or else the rows of hrProcessorLoad
//! runnable  tidegateRunnable          load_average  laLoadInt.1 / 100          in_flight  tidegateInFlight
//! ```
//!
//! Inputs: the numbers of one poll, and of an earlier one for counters. A stock `snmpd` counts CPU time anew each 5 s only, so the
//! counters stand still in between: then the last share goes on with its own age, and its period is the time between
//! two counts that differ. A metric whose object the configuration names is not made of these.
//!
//! Failure case: hrProcessorLoad is a mean over a minute.
//! Source: TIDEGATE-MIB (ours), UCD-SNMP-MIB, HOST-RESOURCES-MIB (RFC 2790).

use std::time::Duration;

use tidegate_core::load::{ReportedMetric, ReportedValue};

/// The column hrProcessorLoad.
pub(super) const PROCESSOR_LOADS: &[u32] = &[1, 3, 6, 1, 2, 1, 25, 3, 3, 1, 2];

macro_rules! objects {
    ($($name:ident: $metric:ident [$($arc:literal)*] $doc:literal,)*) => {
        /// An object that tells a load.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum BuiltIn { $( #[doc = $doc] $name, )* }

        impl BuiltIn {
            const ALL: &'static [Self] = &[$( Self::$name, )*];

            /// Its name.
            pub(super) fn oid(self) -> &'static [u32] {
                match self { $( Self::$name => &[1, 3, 6, 1, 4, 1, $($arc),*], )* }
            }

            /// What it helps to know.
            fn metric(self) -> ReportedMetric {
                match self { $( Self::$name => ReportedMetric::$metric, )* }
            }
        }
    };
}

objects! {
    OurCpu: Cpu [8072 9999 9999 84 1 1 2 0] "tidegateCpuUsed",
    OurMemory: Memory [8072 9999 9999 84 1 1 3 0] "tidegateMemoryUsed",
    OurFiles: Files [8072 9999 9999 84 1 1 4 0] "tidegateFilesUsed",
    OurCores: Capacity [8072 9999 9999 84 1 2 68 0] "tidegateCores",
    OurRunnable: Runnable [8072 9999 9999 84 1 2 116 0] "tidegateRunnable",
    OurInFlight: InFlight [8072 9999 9999 84 1 2 260 0] "tidegateInFlight",
    RawUser: Cpu [2021 11 50 0] "ssCpuRawUser",
    RawNice: Cpu [2021 11 51 0] "ssCpuRawNice",
    RawSystem: Cpu [2021 11 52 0] "ssCpuRawSystem",
    RawIdle: Cpu [2021 11 53 0] "ssCpuRawIdle",
    RawWait: Cpu [2021 11 54 0] "ssCpuRawWait",
    RawSteal: Cpu [2021 11 64 0] "ssCpuRawSteal",
    NumCpus: Capacity [2021 11 67 0] "ssCpuNumCpus",
    MemoryTotal: Memory [2021 4 5 0] "memTotalReal",
    MemoryFree: Memory [2021 4 6 0] "memAvailReal",
    MemoryBuffers: Memory [2021 4 14 0] "memBuffer",
    MemoryCached: Memory [2021 4 15 0] "memCached",
    MemoryAvailable: Memory [2021 4 27 0] "memSysAvail",
    LoadAverage: LoadAverage [2021 10 1 5 1] "laLoadInt",
}

impl BuiltIn {
    /// Of its own MIB, which goes before the others.
    fn ours(metric: ReportedMetric) -> Option<Self> {
        let all = Self::ALL.iter().copied();
        let mut ours = all.filter(|it| it.oid()[6] == 8072);
        ours.find(|it| it.metric() == metric)
    }
}

/// The numbers of one poll.
#[derive(Clone, Debug, Default)]
pub(super) struct Answers {
    built_in: [Option<f64>; BuiltIn::ALL.len()],
    /// Of hrProcessorLoad.
    pub(super) rows: Vec<f64>,
    /// Of the configuration's objects, in their order.
    pub(super) own: Vec<Option<f64>>,
}

impl Answers {
    pub(super) fn set(&mut self, object: BuiltIn, number: f64) {
        self.built_in[object as usize] = Some(number);
    }

    fn get(&self, object: BuiltIn) -> Option<f64> {
        self.built_in[object as usize]
    }
}

/// What is remembered of one node's objects.
#[derive(Clone, Debug)]
pub(super) struct Meaning {
    missing: [bool; BuiltIn::ALL.len()],
    /// Metrics that the configuration's objects tell.
    own: Vec<ReportedMetric>,
    counted: Option<CpuCount>,
    share: Option<CpuShare>,
}

#[derive(Clone, Copy, Debug)]
struct CpuCount {
    at: Duration,
    busy: u32,
    idle: u32,
}

#[derive(Clone, Copy, Debug)]
struct CpuShare {
    used: f64,
    at: Duration,
    /// Between the two counts.
    over: Duration,
}

impl Meaning {
    pub(super) fn new(own: Vec<ReportedMetric>) -> Self {
        Self {
            missing: [false; BuiltIn::ALL.len()],
            own,
            counted: None,
            share: None,
        }
    }

    /// Whatever was missing may be there by now.
    pub(super) fn expect_all(&mut self) {
        self.missing = [false; BuiltIn::ALL.len()];
    }

    pub(super) fn is_missing(&mut self, object: BuiltIn) {
        self.missing[object as usize] = true;
    }

    /// No built-in object is there.
    pub(super) fn is_empty(&self) -> bool {
        self.missing.iter().all(|missing| *missing)
    }

    /// Which objects to ask for, so that these metrics become known.
    pub(super) fn wanted(&self, due: &[ReportedMetric]) -> Vec<BuiltIn> {
        let all = BuiltIn::ALL.iter().copied();
        let wanted = all.filter(|object| {
            let metric = object.metric();
            let ours = BuiltIn::ours(metric);
            let is_best = ours.is_none_or(|ours| ours == *object || self.missing[ours as usize]);
            let is_there = !self.missing[*object as usize];
            due.contains(&metric) && !self.own.contains(&metric) && is_best && is_there
        });
        // The first time it is not known yet which are the best.
        wanted.collect()
    }

    /// Whether only hrProcessorLoad tells how much of the CPUs is used.
    pub(super) fn needs_rows(&self) -> bool {
        let is_missing = |object: BuiltIn| self.missing[object as usize];
        is_missing(BuiltIn::OurCpu)
            && (is_missing(BuiltIn::RawIdle) || self.share.is_none())
            && !self.own.contains(&ReportedMetric::Cpu)
    }

    /// Whether CPU time was counted once, so that a next count tells the used share.
    pub(super) fn counts_cpu(&self) -> bool {
        self.counted.is_some()
    }

    /// What the numbers say.
    pub(super) fn values(&mut self, answers: &Answers, now: Duration) -> Vec<ReportedValue> {
        let percent = |object| answers.get(object).map(|number: f64| number / 100.0);
        let rows = answers.rows.len() as f64;
        let mean = (rows > 0.0).then(|| answers.rows.iter().sum::<f64>() / rows / 100.0);
        let counted = self.used_of_counts(answers, now);
        let cores = answers.get(BuiltIn::OurCores).map(|cores| cores / 1000.0);
        let simple = [
            (ReportedMetric::Memory, memory(answers)),
            (ReportedMetric::Files, percent(BuiltIn::OurFiles)),
            (
                ReportedMetric::Capacity,
                cores
                    .or(answers.get(BuiltIn::NumCpus))
                    .or((rows > 0.0).then_some(rows)),
            ),
            (ReportedMetric::Runnable, answers.get(BuiltIn::OurRunnable)),
            (ReportedMetric::LoadAverage, percent(BuiltIn::LoadAverage)),
            (ReportedMetric::InFlight, answers.get(BuiltIn::OurInFlight)),
        ];
        let value = |metric, number: f64| reported(metric, number as f32);
        let cpu = match (percent(BuiltIn::OurCpu), counted, mean) {
            (Some(used), _, _) => Some(value(ReportedMetric::Cpu, used)),
            (None, Some(share), _) => Some(ReportedValue {
                age: now.saturating_sub(share.at),
                period: share.over,
                ..value(ReportedMetric::Cpu, share.used)
            }),
            (None, None, Some(mean)) => Some(value(ReportedMetric::Cpu, mean)),
            (None, None, None) => None,
        };
        let simple = simple.into_iter();
        let simple = simple.filter_map(|(metric, number)| Some(value(metric, number?)));
        let all = cpu.into_iter().chain(simple);
        // CPUs are counted seldom, and do not change.
        let all = all.map(|it| ReportedValue {
            period: match it.metric == ReportedMetric::Capacity {
                true => super::LOOK_EVERY,
                false => it.period,
            },
            ..it
        });
        all.filter(|it| !self.own.contains(&it.metric)).collect()
    }

    /// The used share between the last two counts that differ; nothing where CPU time is not counted.
    fn used_of_counts(&mut self, answers: &Answers, now: Duration) -> Option<CpuShare> {
        // A counter is never negative.
        let counter = |object| answers.get(object).filter(|it| *it >= 0.0);
        let ticks = |object| counter(object).map(|ticks| ticks as u64 as u32);
        let sum = |objects: &[BuiltIn]| {
            let all = objects.iter().filter_map(|object| ticks(*object));
            all.fold(0_u32, u32::wrapping_add)
        };
        ticks(BuiltIn::RawIdle)?;
        let count = CpuCount {
            at: now,
            busy: sum(&[
                BuiltIn::RawUser,
                BuiltIn::RawNice,
                BuiltIn::RawSystem,
                BuiltIn::RawSteal,
            ]),
            idle: sum(&[BuiltIn::RawIdle, BuiltIn::RawWait]),
        };
        // An agent that has just started has not counted yet.
        if count.busy == 0 && count.idle == 0 {
            return self.share;
        }
        let Some(before) = self.counted else {
            self.counted = Some(count);
            return None;
        };
        let busy = count.busy.wrapping_sub(before.busy);
        let idle = count.idle.wrapping_sub(before.idle);
        if busy == 0 && idle == 0 {
            return self.share;
        }
        self.counted = Some(count);
        // A counter that starts anew seems to have grown by nearly all that it can hold.
        let grown = f64::from(busy) + f64::from(idle);
        let is_anew = busy > u32::MAX / 2 || idle > u32::MAX / 2;
        self.share = (!is_anew).then(|| CpuShare {
            used: f64::from(busy) / grown,
            at: now,
            over: now.saturating_sub(before.at),
        });
        self.share
    }
}

/// A value that is measured at the answer.
pub(super) fn reported(metric: ReportedMetric, value: f32) -> ReportedValue {
    ReportedValue {
        metric,
        value,
        period: Duration::ZERO,
        age: Duration::ZERO,
    }
}

fn memory(answers: &Answers) -> Option<f64> {
    if let Some(percent) = answers.get(BuiltIn::OurMemory) {
        return Some(percent / 100.0);
    }
    let total = answers.get(BuiltIn::MemoryTotal).filter(|it| *it > 0.0)?;
    let available = answers.get(BuiltIn::MemoryAvailable).or_else(|| {
        let others = [BuiltIn::MemoryBuffers, BuiltIn::MemoryCached];
        let others: f64 = others.iter().filter_map(|it| answers.get(*it)).sum();
        Some(answers.get(BuiltIn::MemoryFree)? + others)
    })?;
    Some(1.0 - (available / total).min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(all: &[(BuiltIn, f64)]) -> Answers {
        let mut answers = Answers::default();
        for (object, number) in all {
            answers.set(*object, *number);
        }
        answers
    }

    fn of(values: &[ReportedValue], metric: ReportedMetric) -> Option<f32> {
        let found = values.iter().find(|it| it.metric == metric);
        found.map(|it| it.value)
    }

    #[test]
    fn our_own_objects_go_before_all_others_and_the_others_are_not_asked_for_then() {
        let mut meaning = Meaning::new(Vec::new());
        let values = meaning.values(
            &answers(&[
                (BuiltIn::OurCpu, 42.0),
                (BuiltIn::RawIdle, 100.0),
                (BuiltIn::OurMemory, 30.0),
                (BuiltIn::MemoryTotal, 1000.0),
                (BuiltIn::MemoryFree, 900.0),
                (BuiltIn::OurCores, 1500.0),
            ]),
            Duration::ZERO,
        );
        assert_eq!(of(&values, ReportedMetric::Cpu), Some(0.42));
        assert_eq!(of(&values, ReportedMetric::Memory), Some(0.3));
        assert_eq!(of(&values, ReportedMetric::Capacity), Some(1.5));
        let asked = |meaning: &Meaning| meaning.wanted(&[ReportedMetric::Cpu]);
        assert_eq!(asked(&meaning), [BuiltIn::OurCpu]);
        meaning.is_missing(BuiltIn::OurCpu);
        assert!(asked(&meaning).contains(&BuiltIn::RawIdle));
        meaning.expect_all();
        assert_eq!(asked(&meaning), [BuiltIn::OurCpu]);
    }

    #[test]
    fn counts_that_stand_still_leave_the_last_share_with_its_age() {
        let mut meaning = Meaning::new(Vec::new());
        let at = |meaning: &mut Meaning, ms, user, idle| {
            let counts = answers(&[(BuiltIn::RawUser, user), (BuiltIn::RawIdle, idle)]);
            let values = meaning.values(&counts, Duration::from_millis(ms));
            values
                .into_iter()
                .find(|it| it.metric == ReportedMetric::Cpu)
        };
        assert_eq!(at(&mut meaning, 0, 0.0, 0.0), None);
        // The counter of busy time wraps round.
        assert_eq!(at(&mut meaning, 0, 4_294_967_000.0, 500.0), None);
        assert_eq!(at(&mut meaning, 500, 4_294_967_000.0, 500.0), None);
        let share = at(&mut meaning, 5000, 4.0, 800.0).unwrap();
        assert_eq!(share.value, 0.5);
        assert_eq!(share.period, Duration::from_secs(5));
        assert_eq!(share.age, Duration::ZERO);
        let same = at(&mut meaning, 5500, 4.0, 800.0).unwrap();
        assert_eq!((same.value, same.age), (0.5, Duration::from_millis(500)));
        // An agent that starts anew counts from zero.
        assert_eq!(at(&mut meaning, 10_000, 1.0, 2.0), None);
        assert_eq!(at(&mut meaning, 10_500, 2.0, 5.0).unwrap().value, 0.25);
    }

    #[test]
    fn memory_that_can_be_had_is_not_used() {
        let mut all = vec![
            (BuiltIn::MemoryTotal, 1000.0),
            (BuiltIn::MemoryFree, 100.0),
            (BuiltIn::MemoryBuffers, 50.0),
            (BuiltIn::MemoryCached, 250.0),
        ];
        assert_eq!(memory(&answers(&all)), Some(0.6));
        all.push((BuiltIn::MemoryAvailable, 500.0));
        assert_eq!(memory(&answers(&all)), Some(0.5));
        assert_eq!(memory(&answers(&all[1..])), None, "of how much?");
        all[0].1 = 0.0;
        assert_eq!(memory(&answers(&all)), None);
    }

    #[test]
    fn rows_tell_the_cpus_and_their_mean_where_nothing_else_does() {
        let mut meaning = Meaning::new(vec![ReportedMetric::Memory]);
        let mut numbers = answers(&[(BuiltIn::OurMemory, 30.0)]);
        numbers.rows = vec![10.0, 20.0, 0.0, 90.0];
        let values = meaning.values(&numbers, Duration::ZERO);
        assert_eq!(of(&values, ReportedMetric::Cpu), Some(0.3));
        assert_eq!(of(&values, ReportedMetric::Capacity), Some(4.0));
        // The configuration names another object for it.
        assert_eq!(of(&values, ReportedMetric::Memory), None);
    }
}
