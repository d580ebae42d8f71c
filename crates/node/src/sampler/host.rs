//! CPU time and run queue of the whole machine.
//!
//! **CPU time**, best first:
//! 1. `cpuacct.usage_percpu` of the root group (hosts with version 1 hierarchies): ns, stale by
//!    at most a tick.
//! 2. `/proc/schedstat` (kernels with `CONFIG_SCHEDSTATS`): ns of run time, but a task's time is
//!    added only when it leaves its CPU, so the time since the last switch is filled up with
//!    ticks. As good as 1 where tasks are short; for tasks that ran 23 ms at a time on an
//!    emulated Linux 6.1 its mean error was 17 % of a CPU over 50 ms and 9 % over 100 ms (3: 24 %
//!    and 22 %), so the record calls it ticks.
//! 3. `/proc/stat`: ticks, shown in units of 10 ms.
//!
//! The first two count what tasks used: soft interrupts that ran while a CPU was idle are not in
//! them. Stolen time is never in CPU time; it has its own field.
//!
//! **Run queue.** Its length is the one of `/proc/loadavg` (a twentieth of the cost of
//! `/proc/stat` on large machines) less one, the reader. Its integral is that of the samples, or
//! for long intervals run time plus waiting time of `/proc/schedstat`: see
//! [`SAMPLED_INTERVAL_MAX`].
//!
//! **Uninterruptible** is the kernel's `procs_blocked`: tasks that wait for IO, which leaves out
//! the few that sleep uninterruptibly for other reasons.

use std::path::Path;
use std::time::Duration;

use tidegate_core::record::{CpuLine, Sources};
use tidegate_core::time::nanos;

use super::{Context, CpuLines, own_cpu_time};
use crate::config::SAMPLED_INTERVAL_MAX;
use crate::counter::{Counter, Integral};
use crate::file::{Buffer, KernelFile, Shape, read_once, under};
use crate::pace::Pace;
use crate::parse::cpu::{self, Ticks};
use crate::parse::mounts;

/// `/proc/stat` is read this often where only its ticks of 10 ms are needed.
const STAT_PERIOD: Duration = Duration::from_millis(10);
/// A machine so large that `/proc/schedstat` may not be read more often does better without.
const SCHEDSTAT_PERIOD_MAX: Duration = Duration::from_millis(10);
/// How often the busiest CPUs are chosen anew where there are more than lines.
const RANK_PERIOD: Duration = Duration::from_millis(100);
const NANOS_PER_SECOND: u64 = 1_000_000_000;

#[derive(Clone, Copy, Debug, Default)]
struct OneCpu {
    present: bool,
    busy: Counter,
    softirq: Counter,
    steal: Counter,
    waited: Counter,
    /// Busy ns by ticks, as last read.
    ticked: u64,
    /// Run time at the last change, and ticks then.
    ran: u64,
    ticked_then: u64,
    /// The largest estimate so far.
    estimate: u64,
    /// Busy ns at the last ranking.
    ranked: u64,
}

impl OneCpu {
    /// Run time up to the last switch, filled up with ticks since.
    fn estimate(&mut self, ran: u64) -> u64 {
        if ran != self.ran {
            self.ran = ran;
            self.ticked_then = self.ticked;
        }
        let since = self.ticked.saturating_sub(self.ticked_then);
        self.estimate = self.estimate.max(ran.saturating_add(since));
        self.estimate
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Busy {
    Unknown,
    Accounting,
    Schedstat,
    Ticks,
}

pub(super) struct Host {
    usage: Option<KernelFile>,
    schedstat: KernelFile,
    schedstat_pace: Pace,
    stat: KernelFile,
    stat_pace: Pace,
    loadavg: KernelFile,
    busy: Busy,
    cpus: Vec<OneCpu>,
    cores: u32,
    rank: Vec<u32>,
    rank_pace: Pace,
    queue: Queue,
    blocked: Integral,
    softirq: Counter,
    steal: Counter,
    switches: Counter,
    tick_ns: u64,
}

/// The run queue's integral by either way. Both are followed, so that going over from one to the other loses nothing.
#[derive(Default)]
struct Queue {
    /// Whether `/proc/schedstat` held when it was last read.
    scheduled: bool,
    sampled: Integral,
    times: Counter,
}

impl Host {
    pub(super) fn new(root: &Path, buffer: &mut Buffer) -> Self {
        let file = |path: &str, shape| KernelFile::new(under(root, path), shape);
        Self {
            usage: root_group(root, buffer),
            schedstat: file("proc/schedstat", Shape::Records),
            schedstat_pace: Pace::new(Duration::ZERO, 0),
            stat: file("proc/stat", Shape::Whole),
            stat_pace: Pace::new(Duration::ZERO, 0),
            loadavg: file("proc/loadavg", Shape::Whole),
            busy: Busy::Unknown,
            cpus: Vec::new(),
            cores: 0,
            rank: Vec::new(),
            rank_pace: Pace::new(RANK_PERIOD, 0),
            queue: Queue::default(),
            blocked: Integral::default(),
            softirq: Counter::default(),
            steal: Counter::default(),
            switches: Counter::default(),
            tick_ns: NANOS_PER_SECOND / rustix::param::clock_ticks_per_second().max(1),
        }
    }

    pub(super) fn sample(&mut self, context: &mut Context<'_>, lines: &mut CpuLines) {
        let accounted = self.accounting(context);
        // Ticks fill up what schedstat lacks, so they come before it.
        let ticked = self.stat(context);
        let scheduled = self.schedstat(context, accounted);
        self.queue.scheduled = scheduled;
        if !accounted && !scheduled {
            self.ticks(context, ticked);
        }
        let period = if self.busy == Busy::Accounting {
            STAT_PERIOD
        } else {
            Duration::ZERO
        };
        self.stat_pace.set_base(period);
        context.record.busy_ns = self.cpus.iter().map(|cpu| cpu.busy.total()).sum();
        self.queue(context, scheduled);
        self.lines(context, lines);
    }

    /// The root group's accounting, if there is one.
    fn accounting(&mut self, context: &mut Context<'_>) -> bool {
        let Some(file) = &mut self.usage else {
            return false;
        };
        let Some(bytes) = file.read(context.now, context.buffer) else {
            return false;
        };
        let changed = self.busy != Busy::Accounting;
        let cpus = &mut self.cpus;
        let read = cpu::usage_percpu(bytes, |number, ns| {
            // Possible CPUs that never ran anything are not there.
            if ns > 0 {
                let cpu = one(cpus, number);
                if changed {
                    cpu.busy.change_source();
                }
                cpu.busy.follow(ns);
            }
        });
        if read.is_none() {
            return false;
        }
        self.busy = Busy::Accounting;
        context.findings.measured(
            Sources::BUSY_ACCT,
            "from cpuacct.usage_percpu of the root control group",
        );
        true
    }

    /// Reads `/proc/stat` if it is due; whether it holds.
    fn stat(&mut self, context: &mut Context<'_>) -> bool {
        let Some(turn) = self.stat_pace.begin(context.now) else {
            return self.cores > 0;
        };
        let (cpus, tick_ns) = (&mut self.cpus, self.tick_ns);
        let ns = |ticks: u64| ticks.saturating_mul(tick_ns);
        let mut online = 0;
        for cpu in cpus.iter_mut() {
            cpu.present = false;
        }
        let per_cpu = |number, ticks: Ticks| {
            let cpu = one(cpus, number);
            cpu.present = true;
            cpu.ticked = ns(ticks.busy);
            cpu.softirq.follow(ns(ticks.softirq));
            cpu.steal.follow(ns(ticks.steal));
            online += 1;
        };
        let stat = self
            .stat
            .read(context.now, context.buffer)
            .and_then(|bytes| cpu::stat(bytes, per_cpu));
        self.cores = online;
        self.stat_pace.end(turn);
        let Some(stat) = stat else {
            for source in [
                Sources::STEAL,
                Sources::UNINTERRUPTIBLE,
                Sources::PER_CPU,
                Sources::CONTEXT_SWITCHES,
            ] {
                let file = &self.stat;
                context.findings.missing(source, || file.why_not().into());
            }
            self.cores = 0;
            return false;
        };
        let record = &mut *context.record;
        record.cores_milli = online.saturating_mul(1000);
        record.softirq_ns = self.softirq.follow(ns(stat.total.softirq));
        record.steal_ns = self.steal.follow(ns(stat.total.steal));
        let findings = &mut *context.findings;
        findings.measured(Sources::STEAL, "in ticks from /proc/stat");
        findings.measured(Sources::PER_CPU, "their softirq_ns and steal_ns in ticks");
        match stat.switches {
            Some(switches) => {
                record.context_switches = self.switches.follow(switches);
                findings.measured(Sources::CONTEXT_SWITCHES, "as ctxt of /proc/stat");
            }
            None => findings.missing(Sources::CONTEXT_SWITCHES, || {
                "/proc/stat has no ctxt".into()
            }),
        }
        match stat.blocked {
            Some(blocked) => {
                record.uninterruptible = blocked;
                record.uninterruptible_ns = self.blocked.sample(context.now, blocked.into());
                findings.measured(
                    Sources::UNINTERRUPTIBLE,
                    "as procs_blocked of /proc/stat: tasks that wait for IO",
                );
            }
            None => context.missing(Sources::UNINTERRUPTIBLE, "/proc/stat has no procs_blocked"),
        }
        true
    }

    /// Reads `/proc/schedstat` if it is due; whether it holds.
    fn schedstat(&mut self, context: &mut Context<'_>, accounted: bool) -> bool {
        let slow = self.schedstat_pace.period() > SCHEDSTAT_PERIOD_MAX;
        let Some(turn) = self.schedstat_pace.begin(context.now) else {
            return self.queue.scheduled && !slow;
        };
        if slow {
            // Only to see whether it still is.
            self.schedstat.read(context.now, context.buffer);
            self.schedstat_pace.end(turn);
            return false;
        }
        let changed = !accounted && self.busy != Busy::Schedstat;
        let cpus = &mut self.cpus;
        let read = self
            .schedstat
            .read(context.now, context.buffer)
            .and_then(|bytes| {
                cpu::schedstat(bytes, |number, time| {
                    let cpu = one(cpus, number);
                    cpu.waited.follow(time.waited);
                    if !accounted {
                        if changed {
                            cpu.busy.change_source();
                        }
                        let ran = cpu.estimate(time.ran);
                        cpu.busy.follow(ran);
                    }
                })
            });
        self.schedstat_pace.end(turn);
        if read.is_some() && !accounted {
            self.busy = Busy::Schedstat;
            context.findings.measured(
                Sources::BUSY_TICK,
                "from run times of /proc/schedstat, with ticks since the last switch",
            );
        }
        read.is_some()
    }

    fn ticks(&mut self, context: &mut Context<'_>, ticked: bool) {
        if !ticked {
            self.busy = Busy::Unknown;
            let file = &self.stat;
            for source in [Sources::BUSY_ACCT, Sources::BUSY_TICK] {
                context.findings.missing(source, || file.why_not().into());
            }
            return;
        }
        let changed = self.busy != Busy::Ticks;
        for cpu in self.cpus.iter_mut().filter(|cpu| cpu.present) {
            if changed {
                cpu.busy.change_source();
            }
            cpu.busy.follow(cpu.ticked);
        }
        self.busy = Busy::Ticks;
        context
            .findings
            .measured(Sources::BUSY_TICK, "in ticks from /proc/stat");
    }

    fn queue(&mut self, context: &mut Context<'_>, scheduled: bool) {
        let counts = self
            .loadavg
            .read(context.now, context.buffer)
            .and_then(cpu::loadavg);
        if let Some((running, tasks)) = counts {
            context.record.runnable = running.saturating_sub(1);
            context.record.tasks = tasks;
            context
                .findings
                .measured(Sources::RUNNABLE, "from /proc/loadavg, less this agent");
        } else {
            let file = &self.loadavg;
            context
                .findings
                .missing(Sources::RUNNABLE, || file.why_not().into());
        }
        let by_samples = counts.map(|_| {
            let length = context.record.runnable.into();
            self.queue.sampled.grow(context.now, length)
        });
        let by_times = scheduled.then(|| {
            let waited: u64 = self.cpus.iter().map(|cpu| cpu.waited.total()).sum();
            let all = context.record.busy_ns.saturating_add(waited);
            let others = all.saturating_sub(nanos(own_cpu_time()));
            self.queue.times.grow(others)
        });
        if by_samples.is_none() {
            self.queue.sampled.interrupt();
        }
        if by_times.is_none() {
            self.queue.times.change_source();
        }
        let seldom = context.interval > SAMPLED_INTERVAL_MAX;
        let (grown, how) = match (by_samples, by_times) {
            // The first look at the times shows no growth yet.
            (sampled, Some(times)) if seldom || sampled.is_none() => (
                times.or(sampled).unwrap_or_default(),
                "as run time plus waiting time of /proc/schedstat, less this agent",
            ),
            (Some(sampled), _) => (sampled, "by integrating the sampled run queue"),
            (None, _) => {
                return context.missing(
                    Sources::RUNNABLE_INTEGRAL,
                    "neither /proc/schedstat nor /proc/loadavg can be read",
                );
            }
        };
        context.findings.measured(Sources::RUNNABLE_INTEGRAL, how);
        context.record.runnable_ns = context.record.runnable_ns.saturating_add(grown);
    }

    fn lines(&mut self, context: &mut Context<'_>, lines: &mut CpuLines) {
        lines.clear();
        if !context.findings.sources().has(Sources::PER_CPU) {
            return;
        }
        if let Some(turn) = self.rank_pace.begin(context.now) {
            self.rank_pace.end(turn);
            let cpus = &mut self.cpus;
            self.rank.clear();
            self.rank.extend(
                (0u32..)
                    .zip(&*cpus)
                    .filter(|(_, cpu)| cpu.present)
                    .map(|(n, _)| n),
            );
            if self.rank.len() > lines.lines.len() {
                let recent = |number: &u32| {
                    let cpu = &cpus[*number as usize];
                    cpu.busy.total().saturating_sub(cpu.ranked)
                };
                self.rank
                    .sort_unstable_by_key(|number| std::cmp::Reverse(recent(number)));
                for cpu in cpus {
                    cpu.ranked = cpu.busy.total();
                }
            }
        }
        for number in &self.rank {
            let cpu = &self.cpus[*number as usize];
            let busy = cpu.busy.total();
            let queue = if self.queue.scheduled {
                busy.saturating_add(cpu.waited.total())
            } else {
                0
            };
            lines.push(CpuLine {
                cpu: *number,
                busy_ns: busy,
                softirq_ns: cpu.softirq.total(),
                steal_ns: cpu.steal.total(),
                runnable_ns: queue,
                ..CpuLine::default()
            });
        }
    }
}

/// The CPU's place, made if it is new; the parsers let no huge number through.
fn one(cpus: &mut Vec<OneCpu>, number: u32) -> &mut OneCpu {
    let index = number.min(cpu::CPU_NUMBER_MAX) as usize;
    if index >= cpus.len() {
        cpus.resize(index + 1, OneCpu::default());
    }
    &mut cpus[index]
}

/// The root group's file, if a version 1 hierarchy with cpuacct is mounted from its true root:
/// only there is a `release_agent`, whatever a namespace pretends.
fn root_group(root: &Path, buffer: &mut Buffer) -> Option<KernelFile> {
    let mountinfo = under(root, "proc/self/mountinfo");
    let mountinfo = read_once(mountinfo, Shape::Records, buffer)?;
    let hierarchy = mounts::hierarchies(mountinfo)
        .into_iter()
        .find(|hierarchy| hierarchy.controls("cpuacct"))?;
    let directory = under(root, &hierarchy.mount);
    directory
        .join("release_agent")
        .exists()
        .then(|| KernelFile::new(directory.join("cpuacct.usage_percpu"), Shape::Whole))
}
