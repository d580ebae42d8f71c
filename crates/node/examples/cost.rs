//! What sampling costs and how exact CPU time is, on this machine:
//! `cargo run --release -p tidegate-node --example cost [-- SECONDS [GROUP]]`.
//!
//! 1. Cost of a sample, back to back (everything in the caches) and each millisecond.
//! 2. CPU share of an agent that publishes each 1 ms and each 50 ms, and of a thread that only
//!    wakes up as often.
//! 3. `busy_ns` of a group against the clock of the one thread in it, which works and rests in
//!    turn: mean error of the used share over windows of several lengths. The worker has a CPU
//!    to itself and looks at its CPU clock only between phases, because that makes the scheduler
//!    count. Needs a version 1 hierarchy with cpuacct and the right to make a group there.
//!
//! GROUP is a control group whose sampling is measured too.
#![expect(clippy::print_stdout, reason = "printing is what this example is for")]

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidegate_core::record::LoadRecord;
use tidegate_node::{Agent, AgentConfig, Sampler, SamplerConfig, Scope};
use tidegate_remote::clock;
use tidegate_remote::realtime::{PRIORITY, try_fifo};
use tidegate_remote::udp::Key;

const MILLI: Duration = Duration::from_millis(1);
/// Samples of the cost measurements.
const SAMPLES: u32 = 2_000;
/// The worker of the accuracy measurement works so long and then rests so long.
const WORK: Duration = Duration::from_millis(23);

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
    println!("3. used share of a CPU by busy_ns of a group, against the worker's own clock");
    match Group::make() {
        Ok(group) => accuracy(&group, time)?,
        Err(why) => println!("   SKIPPED: {why}"),
    }
    Ok(())
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
    Ok(())
}

fn agent(interval: Duration, time: Duration) -> Result<(), Failure> {
    let config = AgentConfig {
        listen: ([127, 0, 0, 1], 0).into(),
        interval,
        ..AgentConfig::new(Key::random()?)
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
        try_fifo(PRIORITY).ok();
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

fn accuracy(group: &Group, time: Duration) -> Result<(), Failure> {
    let mut sampler = sampler(Scope::Cgroup(group.0.clone()))?;
    let stop = AtomicBool::new(false);
    let mut records: Vec<LoadRecord> = Vec::new();
    let phases = std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            first_on(1, PRIORITY - 1);
            let thread = rustix::thread::gettid().as_raw_pid().to_string();
            std::fs::write(group.0.join("tasks"), &thread)?;
            let phases = work(&stop);
            group.leave(&thread);
            Ok::<_, std::io::Error>(phases)
        });
        first_on(0, PRIORITY);
        let mut next = clock::now();
        let end = next + time;
        while next < end {
            next = next + MILLI;
            clock::sleep_until(next);
            records.push(sampler.sample().0);
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
        for (older, newer) in records
            .iter()
            .zip(records.iter().skip(window))
            .step_by(window)
        {
            let length = (newer.t_ns - older.t_ns) as f64;
            let busy = (newer.busy_ns - older.busy_ns) as f64;
            if let Some(truth) = worked(&phases, older.t_ns, newer.t_ns) {
                error += (busy - truth as f64).abs() / length;
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

/// Keeps the calling thread on one CPU and before all others there, where that is permitted.
fn first_on(cpu: usize, priority: u8) {
    let mut cpus = rustix::thread::CpuSet::new();
    cpus.set(cpu);
    if let Err(error) = rustix::thread::sched_setaffinity(None, &cpus) {
        println!("   not pinned to CPU {cpu}: {error}");
    }
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
