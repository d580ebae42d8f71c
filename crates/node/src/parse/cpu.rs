//! `/proc/stat`, `/proc/schedstat`, `/proc/loadavg`, cpuacct and lists of CPUs.

use super::{lines, number, number32, saturated, words};

/// The CPU numbers that are believed: a larger one is not a CPU of any machine there is.
pub(crate) const CPU_NUMBER_MAX: u32 = 8191;
/// The first `/proc/schedstat` whose times are nanoseconds.
const SCHEDSTAT_VERSION_MIN: u64 = 15;

/// Times of one CPU, or of all, in ticks of `USER_HZ`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ticks {
    /// Neither idle nor stolen.
    pub(crate) busy: u64,
    /// In soft interrupts; a part of `busy`.
    pub(crate) softirq: u64,
    /// Taken by the hypervisor.
    pub(crate) steal: u64,
}

/// What `/proc/stat` says beside the lines per CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stat {
    /// All CPUs together.
    pub(crate) total: Ticks,
    /// Tasks that run or wait to run, the reader among them.
    pub(crate) running: Option<u32>,
    /// Tasks that wait for IO.
    pub(crate) blocked: Option<u32>,
    /// Switches from one task to another.
    pub(crate) switches: Option<u64>,
}

/// Reads `/proc/stat`, giving each CPU's times to `per_cpu`.
pub(crate) fn stat(bytes: &[u8], mut per_cpu: impl FnMut(u32, Ticks)) -> Option<Stat> {
    let mut total = None;
    let mut stat = Stat::default();
    for line in lines(bytes) {
        if let Some(rest) = line.strip_prefix(b"cpu") {
            if rest.first() == Some(&b' ') {
                total = ticks(rest);
            } else if let Some((cpu, times)) = numbered(rest)
                && let Some(ticks) = ticks(times)
            {
                per_cpu(cpu, ticks);
            }
        } else if let Some(count) = line.strip_prefix(b"procs_running ") {
            stat.running = number32(count.trim_ascii());
        } else if let Some(count) = line.strip_prefix(b"procs_blocked ") {
            stat.blocked = number32(count.trim_ascii());
        } else if let Some(count) = line.strip_prefix(b"ctxt ") {
            stat.switches = number(count.trim_ascii());
        }
    }
    stat.total = total?;
    Some(stat)
}

/// user nice system idle iowait irq softirq steal …; guest time is part of user already.
fn ticks(line: &[u8]) -> Option<Ticks> {
    let mut times = [0u64; 8];
    let mut words = words(line);
    for time in &mut times {
        // Kernels before 2.6.11 have no steal; what is there must be numbers.
        match words.next() {
            Some(word) => *time = number(word)?,
            None => break,
        }
    }
    let [user, nice, system, _idle, _iowait, irq, softirq, steal] = times;
    let busy = [user, nice, system, irq, softirq]
        .iter()
        .try_fold(0u64, |sum, time| sum.checked_add(*time))?;
    Some(Ticks {
        busy,
        softirq,
        steal,
    })
}

/// "12 …" as CPU 12 and the rest of the line.
fn numbered(rest: &[u8]) -> Option<(u32, &[u8])> {
    let end = rest.iter().position(|byte| *byte == b' ')?;
    let (cpu, rest) = rest.split_at(end);
    let cpu = number32(cpu).filter(|cpu| *cpu <= CPU_NUMBER_MAX)?;
    Some((cpu, rest))
}

/// What the scheduler counted on one CPU, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RunQueueTime {
    /// Time that tasks ran; a task's time is added when it leaves the CPU.
    pub(crate) ran: u64,
    /// Time that tasks waited; a task's wait is added when it gets the CPU.
    pub(crate) waited: u64,
}

/// Reads `/proc/schedstat` (fields 7 and 8 of the CPU lines, kernel's
/// `Documentation/scheduler/sched-stats.rst`); nothing if it is a version of other units.
pub(crate) fn schedstat(bytes: &[u8], mut per_cpu: impl FnMut(u32, RunQueueTime)) -> Option<()> {
    let mut lines = lines(bytes);
    let version = number(lines.next()?.strip_prefix(b"version ")?.trim_ascii())?;
    if version < SCHEDSTAT_VERSION_MIN {
        return None;
    }
    let mut cpus = 0;
    for line in lines {
        let Some((cpu, rest)) = line.strip_prefix(b"cpu").and_then(numbered) else {
            continue;
        };
        let mut times = words(rest).skip(6).map(number);
        let (Some(Some(ran)), Some(Some(waited))) = (times.next(), times.next()) else {
            return None;
        };
        per_cpu(cpu, RunQueueTime { ran, waited });
        cpus += 1;
    }
    (cpus > 0).then_some(())
}

/// Tasks that run or wait to run (the reader among them) and tasks in all, from
/// `/proc/loadavg`.
pub(crate) fn loadavg(bytes: &[u8]) -> Option<(u32, u32)> {
    let word = words(bytes).nth(3)?;
    let slash = word.iter().position(|byte| *byte == b'/')?;
    Some((number32(&word[..slash])?, number32(&word[slash + 1..])?))
}

/// `cpuacct.usage_percpu`: ns of each possible CPU in order.
pub(crate) fn usage_percpu(bytes: &[u8], mut per_cpu: impl FnMut(u32, u64)) -> Option<()> {
    let mut cpus = 0;
    for (cpu, word) in (0..=CPU_NUMBER_MAX).zip(words(bytes)) {
        per_cpu(cpu, number(word)?);
        cpus += 1;
    }
    (cpus > 0).then_some(())
}

/// How many CPUs a list like "0-3,8,10-11" names; nothing if it names none or is no list.
pub(crate) fn cpu_list(bytes: &[u8]) -> Option<u32> {
    let mut count = 0u64;
    for range in bytes.trim_ascii().split(|byte| *byte == b',') {
        let mut ends = range.splitn(2, |byte| *byte == b'-');
        let first = number(ends.next()?)?;
        let last = ends.next().map_or(Some(first), number)?;
        if last > u64::from(CPU_NUMBER_MAX) {
            return None;
        }
        count += (last + 1).checked_sub(first)?;
    }
    (count > 0).then_some(saturated(count))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &[u8] = b"cpu  100 5 50 1000 7 3 20 9 40 0\n\
        cpu0 60 5 30 500 4 1 15 4 40 0\n\
        cpu1 40 0 20 500 3 2 5 5 0 0\n\
        intr 301264 0 0 9\nctxt 5\nbtime 1\nprocesses 9466\n\
        procs_running 3\nprocs_blocked 2\nsoftirq 1 2 3\n";

    #[test]
    fn stat_is_busy_without_idle_waiting_guest_and_steal() {
        let mut cpus = Vec::new();
        let stat = stat(STAT, |cpu, ticks| cpus.push((cpu, ticks))).unwrap();
        let expected = Ticks {
            busy: 178,
            softirq: 20,
            steal: 9,
        };
        assert_eq!(stat.total, expected);
        assert_eq!((stat.running, stat.blocked), (Some(3), Some(2)));
        assert_eq!(stat.switches, Some(5));
        assert_eq!(cpus.iter().map(|(cpu, _)| *cpu).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(cpus.iter().map(|(_, ticks)| ticks.busy).sum::<u64>(), 178);
    }

    #[test]
    fn stat_without_its_first_line_is_nothing() {
        assert_eq!(stat(b"procs_running 3\n", |_, _| ()), None);
        assert_eq!(stat(b"cpu  1 2 x\n", |_, _| ()), None);
        assert_eq!(stat(b"cpu  1 18446744073709551615 1\n", |_, _| ()), None);
    }

    #[test]
    fn schedstat_gives_run_and_wait_time() {
        for version in ["15", "17"] {
            let text = format!(
                "version {version}\ntimestamp 4295\ncpu0 0 0 0 0 0 0 700 300 12\n\
                 domain0 MC 03 1 2 3\ncpu1 0 0 0 0 0 0 70 30 1\n"
            );
            let mut sum = (0, 0);
            schedstat(text.as_bytes(), |_, time| {
                sum = (sum.0 + time.ran, sum.1 + time.waited);
            })
            .unwrap();
            assert_eq!(sum, (770, 330));
        }
    }

    #[test]
    fn schedstat_in_other_units_is_nothing() {
        let old = b"version 14\ntimestamp 1\ncpu0 0 0 0 0 0 0 700 300 12\n";
        assert_eq!(schedstat(old, |_, _| ()), None);
        assert_eq!(schedstat(b"version 15\ntimestamp 1\n", |_, _| ()), None);
        assert_eq!(schedstat(b"version 15\ncpu0 1 2 3\n", |_, _| ()), None);
    }

    #[test]
    fn loadavg_gives_running_and_all_tasks() {
        assert_eq!(loadavg(b"0.40 0.20 0.12 1/78 1234\n"), Some((1, 78)));
        assert_eq!(loadavg(b"0.40 0.20 0.12 178 1234\n"), None);
        assert_eq!(loadavg(b"0.40"), None);
    }

    #[test]
    fn usage_percpu_is_in_order() {
        let mut usage = Vec::new();
        usage_percpu(b"81928010635 116877179339 \n", |cpu, ns| {
            usage.push((cpu, ns));
        })
        .unwrap();
        assert_eq!(usage, [(0, 81_928_010_635), (1, 116_877_179_339)]);
        assert_eq!(usage_percpu(b"\n", |_, _| ()), None);
    }

    #[test]
    fn cpu_lists_are_counted() {
        let table: &[(&[u8], Option<u32>)] = &[
            (b"0-1\n", Some(2)),
            (b"3", Some(1)),
            (b"0-3,8,10-11\n", Some(7)),
            (b"\n", None),
            (b"3-1", None),
            (b"0-4294967295", None),
            (b"0-18446744073709551615", None),
            (b"a-b", None),
        ];
        for (list, expected) in table {
            assert_eq!(cpu_list(list), *expected, "{list:?}");
        }
    }
}
