//! What sampling costs and how exact CPU time is, on this machine:
//! `cargo run --release -p tidegate-node --example cost [-- SECONDS [GROUP]]`.
//!
//! 1. Cost of a sample, back to back (everything in the caches) and each millisecond.
//! 2. CPU share of an agent that publishes each 1 ms and each 50 ms, and of a thread that only
//!    wakes up as often.
//! 3. `busy_ns` of a group, and of a CPU on a machine that does nothing else, against the clock of the one thread in it, which works and rests in
//!    turn: mean error of the used share over windows of several lengths. The worker has a CPU
//!    to itself and looks at its CPU clock only between phases, because that makes the scheduler
//!    count. Needs a version 1 hierarchy with cpuacct and the right to make a group there.
//! 4. The run queue's mean length by `runnable_ns` while some threads never rest. On a machine
//!    that does nothing else it should be their number.
//!
//! GROUP is a control group whose sampling is measured too.
#![expect(clippy::print_stdout, reason = "printing is what this example is for")]

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidegate_core::load::Rates;
use tidegate_core::record::LoadRecord;
use tidegate_node::{Agent, AgentConfig, Sampler, SamplerConfig, Scope};
use tidegate_remote::clock;
use tidegate_remote::realtime::{PRIORITY, try_fifo};
use tidegate_remote::udp::key_file::NodeKey;

const MILLI: Duration = Duration::from_millis(1);
/// Samples of the cost measurements.
const SAMPLES: u32 = 2_000;
/// The worker of the accuracy measurement works so long and then rests so long.
const WORK: Duration = Duration::from_millis(23);

/// Where that worker works; the sampler samples from CPU 0.
const WORKER_CPU: usize = 1;
/// Threads of the run queue measurement.
const SPINNING: u32 = 6;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let seconds = arguments.next().map_or(Ok(5), |text| text.parse())?;
    let group = arguments.next().map(PathBuf::from);
    let time = Duration::from_secs(seconds);

    println!("1. cost of a sample (CPU time of the sampling thread)");
    let scopes = std::iter::once(Scope::Host).chain(group.map(Scope::Cgroup));
    for scope in scopes {
        cost(scope)?;
    }
    println!("2. agent, host scope, {seconds} s each");
    for interval in [MILLI, 50 * MILLI] {
        wake_ups(interval, time)?;
        agent(interval, time)?;
    }
    println!("3. used share of a CPU, against the worker's own clock");
    println!("   by busy_ns of a group:");
    match Group::make() {
        Ok(group) => apart(move || accuracy(Some(&group), time))?,
        Err(why) => println!("   SKIPPED: {why}"),
    }
    println!("   by busy_ns of the worker's CPU, others on it included:");
    apart(move || accuracy(None, time))?;
    println!("4. mean run queue while {SPINNING} threads never rest");
    apart(move || queue(time))
}

/// On a thread of its own, whose priority and CPU end with it.
fn apart(measure: impl FnOnce() -> Result<(), Failure> + Send + 'static) -> Result<(), Failure> {
    let measure = move || measure().map_err(|error| error.to_string());
    let done = std::thread::spawn(measure).join();
    Ok(done.map_err(|_| "a measurement panicked")??)
}

fn sampler(scope: Scope) -> Result<Sampler, Failure> {
    let config = SamplerConfig {
        scope,
        ..SamplerConfig::default()
    };
    Ok(Sampler::new(config)?)
}

fn cost(scope: Scope) -> Result<(), Failure> {
    let name = format!("{scope:?}");
    let mut sampler = sampler(scope)?;
    sampler.sample();
    let warm = own_time();
    for _ in 0..SAMPLES {
        sampler.sample();
    }
    let warm = (own_time() - warm) / SAMPLES;
    let mut paced = Duration::ZERO;
    let mut next = clock::now();
    for _ in 0..SAMPLES {
        next = next + MILLI;
        clock::sleep_until(next);
        let began = own_time();
        sampler.sample();
        paced += own_time() - began;
    }
    let paced = paced / SAMPLES;
    println!("   {name}: {warm:?} back to back, {paced:?} each millisecond");
    for sentence in sampler.why() {
        println!("      {sentence}");
    }
    Ok(())
}

fn agent(interval: Duration, time: Duration) -> Result<(), Failure> {
    let config = AgentConfig {
        listen: ([127, 0, 0, 1], 0).into(),
        interval,
        ..AgentConfig::new(vec![NodeKey::random("cost")?])
    };
    let agent = Agent::spawn(&config)?;
    clock::sleep_until(clock::now() + time);
    let status = agent.status();
    println!(
        "   each {interval:?}, rung {}: {:.2} % of a CPU; {} samples, {} overruns, {:?} mean, {:?} longest",
        status.rung.label(),
        status.cpu_share() * 100.0,
        status.samples,
        status.overruns,
        status.cost_mean,
        status.cost_max,
    );
    Ok(())
}

/// What waking up costs by itself, as a floor of what an agent can cost on this machine.
fn wake_ups(interval: Duration, time: Duration) -> Result<(), Failure> {
    let thread = std::thread::spawn(move || {
        at_once(PRIORITY);
        let mut next = clock::now();
        let end = next + time;
        while next < end {
            next = next + interval;
            clock::sleep_until(next);
        }
        own_time()
    });
    let used = thread.join().map_err(|_| "the waking thread panicked")?;
    let share = used.as_secs_f64() / time.as_secs_f64() * 100.0;
    println!("   each {interval:?}, waking up alone: {share:.2} % of a CPU");
    Ok(())
}

/// A version 1 group for one thread.
struct Group(PathBuf);

impl Group {
    fn make() -> Result<Self, String> {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").map_err(|e| e.to_string())?;
        let mount = mounts
            .lines()
            .find(|line| line.ends_with("cpuacct") && line.contains(" - cgroup "))
            .and_then(|line| line.split(' ').nth(4))
            .ok_or("no version 1 hierarchy with cpuacct")?;
        let path = PathBuf::from(mount).join(format!("tidegate-cost-{}", std::process::id()));
        std::fs::create_dir(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Self(path))
    }

    /// Moves the thread out: a group can be removed only when it is empty, and a thread that
    /// ended may still be in it for a moment.
    fn leave(&self, thread: &str) {
        let root = self.0.with_file_name("tasks");
        if let Err(error) = std::fs::write(root, thread) {
            println!("   the worker stays in the group: {error}");
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir(&self.0) {
            println!("   {} remains: {error}", self.0.display());
        }
    }
}

/// A phase of work, on the one clock.
struct Phase {
    from: u64,
    to: u64,
    /// CPU time used, ns.
    used: u64,
}

fn accuracy(group: Option<&Group>, time: Duration) -> Result<(), Failure> {
    let scope = group.map_or(Scope::Host, |group| Scope::Cgroup(group.0.clone()));
    let mut sampler = sampler(scope)?;
    let stop = AtomicBool::new(false);
    let mut busy: Vec<(u64, u64)> = Vec::new();
    let phases = std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            first_on(WORKER_CPU, PRIORITY - 1);
            let thread = rustix::thread::gettid().as_raw_pid().to_string();
            if let Some(group) = group {
                std::fs::write(group.0.join("tasks"), &thread)?;
            }
            let phases = work(&stop);
            if let Some(group) = group {
                group.leave(&thread);
            }
            Ok::<_, std::io::Error>(phases)
        });
        first_on(0, PRIORITY);
        let mut next = clock::now();
        let end = next + time;
        while next < end {
            next = next + MILLI;
            clock::sleep_until(next);
            let (record, cpus) = sampler.sample();
            let line = cpus.iter().find(|cpu| cpu.cpu as usize == WORKER_CPU);
            let of_cpu = line.map_or(0, |cpu| cpu.busy_ns);
            let used = if group.is_some() {
                record.busy_ns
            } else {
                of_cpu
            };
            busy.push((record.t_ns, used));
        }
        stop.store(true, Ordering::Release);
        worker.join()
    });
    let phases = phases.map_err(|_| "the worker panicked")??;
    let (used, length) = phases.iter().fold((0, 0), |(used, length), phase| {
        (used + phase.used, length + phase.to - phase.from)
    });
    let share = used as f64 / length as f64 * 100.0;
    println!("   the worker had its CPU for {share:.0} % of the time in which it worked");
    for window in [1, 4, 10, 50, 100] {
        let (mut error, mut windows) = (0.0, 0u32);
        let pairs = busy.iter().zip(busy.iter().skip(window));
        for (older, newer) in pairs.step_by(window) {
            let length = (newer.0 - older.0) as f64;
            let used = (newer.1 - older.1) as f64;
            if let Some(truth) = worked(&phases, older.0, newer.0) {
                error += (used - truth as f64).abs() / length;
                windows += 1;
            }
        }
        let mean = error / f64::from(windows.max(1)) * 100.0;
        println!("   {window:3} ms: mean error {mean:.1} % of a CPU over {windows} windows");
    }
    Ok(())
}

/// CPU time between two points; nothing if it is not known. What a phase lost to a hypervisor
/// is taken to be lost evenly, so the errors of short windows are those of this too.
fn worked(phases: &[Phase], from: u64, to: u64) -> Option<u64> {
    let last = phases.last()?.to;
    let mut worked = 0;
    for phase in phases {
        let overlap = phase.to.min(to).saturating_sub(phase.from.max(from));
        let share = phase.used as f64 / (phase.to - phase.from) as f64;
        worked += (overlap as f64 * share) as u64;
    }
    (to <= last).then_some(worked)
}

fn queue(time: Duration) -> Result<(), Failure> {
    let mut sampler = sampler(Scope::Host)?;
    let stop = AtomicBool::new(false);
    let mut records = Vec::new();
    std::thread::scope(|scope| {
        for _ in 0..SPINNING {
            scope.spawn(|| {
                while !stop.load(Ordering::Acquire) {
                    std::hint::spin_loop();
                }
            });
        }
        at_once(PRIORITY);
        let mut next = clock::now();
        let end = next + time;
        while next < end {
            next = next + MILLI;
            clock::sleep_until(next);
            records.push(sampler.sample().0);
        }
        stop.store(true, Ordering::Release);
    });
    let lengths = |record: &LoadRecord| f64::from(record.runnable);
    let sampled = records.iter().map(lengths).sum::<f64>() / records.len() as f64;
    println!("   mean of runnable: {sampled:.2}");
    for window in [10, 50, 100, 1000] {
        // The first second has waits that began before it and have not ended.
        let settled = records.get(1000..).unwrap_or_default();
        let rates: Vec<f64> = settled
            .iter()
            .zip(settled.iter().skip(window))
            .step_by(window)
            .filter_map(|(older, newer)| Some(Rates::between(older, newer)?.runnable))
            .collect();
        let mean = rates.iter().sum::<f64>() / rates.len() as f64;
        let off = rates.iter().map(|rate| (rate - mean).powi(2)).sum::<f64>() / rates.len() as f64;
        let off = off.sqrt();
        println!(
            "   by runnable_ns over {window:4} ms: mean {mean:.2}, standard deviation {off:.2}"
        );
    }
    Ok(())
}

/// Keeps the calling thread on one CPU and before all others there, where that is permitted.
fn first_on(cpu: usize, priority: u8) {
    let mut cpus = rustix::thread::CpuSet::new();
    cpus.set(cpu);
    if let Err(error) = rustix::thread::sched_setaffinity(None, &cpus) {
        println!("   not pinned to CPU {cpu}: {error}");
    }
    at_once(priority);
}

/// Before all other threads, where that is permitted.
fn at_once(priority: u8) {
    if let Err(error) = try_fifo(priority) {
        println!("   not at real-time priority: {error}");
    }
}

/// Works and rests in turn.
fn work(stop: &AtomicBool) -> Vec<Phase> {
    let mut phases = Vec::new();
    while !stop.load(Ordering::Acquire) {
        let (from, used) = (clock::now(), own_time());
        let rest_at = from + WORK;
        while clock::now() < rest_at {
            std::hint::spin_loop();
        }
        let used = own_time() - used;
        let to = clock::now();
        phases.push(Phase {
            from: from.nanos(),
            to: to.nanos(),
            used: used.as_nanos() as u64,
        });
        clock::sleep_until(rest_at + WORK);
    }
    phases
}

fn own_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}
