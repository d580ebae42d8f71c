//! Keeps the CPUs awake while something is measured: a thread of the scheduler's idle class spins
//! on each, and all else goes before it.
//!
//! A virtual CPU that has nothing to do is given back, and a busy host lets it wait when it wakes
//! up again. A lab of small nodes sleeps and wakes thousands of times a second: on a busy host it
//! lost 20 to 35 % of a CPU to these waits, and 2 to 4 % with its CPUs awake. Operators of machines
//! of their own do the same with the kernel's `idle=poll`.
//!
//! The idle class counts within a scheduling group only, and a group competes with the others by its
//! own weight, whatever is in it. So the threads are a process of its own ([`stay`]) in a session of its
//! own, which has the least weight that there is: where `sched_autogroup_enabled` is set a session is a group, and in
//! the lab's own session they had half of what the front-ends' group wanted. And it is done only where
//! this process is in the root control group: else they would take the share of their group
//! from the nodes. What the lab measures leaves their time out.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, setpriority_process, setsid};
use rustix::thread::{CpuSet, gettid, sched_getaffinity, sched_setaffinity};
use tidegate_remote::realtime::try_idle;

/// For a look with `top`: the kernel counts their time as `nice`.
const NICE: i32 = 19;
/// The name of [`stay`] among the commands of the lab's program.
pub const COMMAND: &str = "awake";
const NOT_ROOT: &str = "Idle CPUs sleep: the lab is not in the root control group. On a busy virtual machine they wake up late.";

/// See the module. Dropping it lets the CPUs sleep again.
#[derive(Debug)]
pub struct Awake {
    process: Option<Child>,
    threads: Vec<Thread>,
    /// What the reader of a report should know.
    pub said: String,
}

/// One that spins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Thread {
    cpu: u32,
    id: u32,
}

impl Awake {
    /// From now on, by a process of this program, if it can be done without taking anything from anybody.
    #[must_use]
    pub fn start(program: &Path) -> Self {
        let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        if !is_root_group(&groups) {
            return Self::asleep(NOT_ROOT.into());
        }
        match spawn(program) {
            Ok((process, threads)) => Self {
                process: Some(process),
                threads,
                said: "Idle CPUs are kept awake by a thread of the idle class, as by `idle=poll`."
                    .into(),
            },
            Err(error) => Self::asleep(format!(
                "Idle CPUs sleep: they cannot be kept awake ({error})."
            )),
        }
    }

    fn asleep(said: String) -> Self {
        Self {
            process: None,
            threads: Vec::new(),
            said,
        }
    }

    /// The process that does it, if it is done.
    #[must_use]
    pub fn process(&self) -> Option<u32> {
        self.process.as_ref().map(Child::id)
    }

    /// How long nothing else wanted this CPU so far; none if it is not kept awake.
    #[must_use]
    pub fn time_on(&self, cpu: u32) -> Option<Duration> {
        let process = self.process()?;
        let thread = self.threads.iter().find(|it| it.cpu == cpu)?.id;
        let path = format!("/proc/{process}/task/{thread}/schedstat");
        let text = std::fs::read_to_string(path).ok()?;
        let ran = text.split_whitespace().next()?;
        Some(Duration::from_nanos(ran.parse().ok()?))
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            // It ends with its standard input too.
            process.kill().ok();
            process.wait().ok();
        }
    }
}

fn spawn(program: &Path) -> io::Result<(Child, Vec<Thread>)> {
    let mut process = Command::new(program)
        .arg(COMMAND)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut told = String::new();
    if let Some(output) = &mut process.stdout {
        BufReader::new(output).read_line(&mut told)?;
    }
    let threads = threads(&told);
    if threads.is_empty() {
        process.kill().ok();
        process.wait()?;
        return Err(io::Error::other("no thread of theirs was let run"));
    }
    Ok((process, threads))
}

/// From `CPU:THREAD CPU:THREAD`.
fn threads(told: &str) -> Vec<Thread> {
    let pairs = told.split_whitespace().filter_map(|it| it.split_once(':'));
    let thread = |(cpu, id): (&str, &str)| {
        Some(Thread {
            cpu: cpu.parse().ok()?,
            id: id.parse().ok()?,
        })
    };
    pairs.filter_map(thread).collect()
}

/// The process: spins, tells its threads, and ends with its standard input.
pub fn stay() -> io::Result<()> {
    // One that leads a session already has it to itself.
    setsid().ok();
    // There is no such file where sessions are no groups.
    std::fs::write("/proc/self/autogroup", NICE.to_string()).ok();
    let (begun, ids) = channel();
    let cpus = cpus();
    for cpu in cpus {
        let begun = begun.clone();
        thread::spawn(move || spin(cpu, move |id| begun.send((cpu, id)).is_ok()));
    }
    drop(begun);
    // A thread that may not give way ends, and with the last answer the channel is closed.
    let told: Vec<_> = ids
        .into_iter()
        .map(|(cpu, id)| format!("{cpu}:{id}"))
        .collect();
    writeln!(io::stdout(), "{}", told.join(" "))?;
    io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

fn spin(cpu: usize, tell: impl FnOnce(Pid) -> bool) {
    // Without all three this thread would be in the way.
    let ready = pin(cpu) && setpriority_process(None, NICE).is_ok() && try_idle().is_ok();
    if !ready || !tell(gettid()) {
        return;
    }
    loop {
        // No pause instruction: many in a row give the CPU back to the hypervisor.
        std::hint::black_box(());
    }
}

/// The CPUs that this process may use.
pub(crate) fn cpus() -> Vec<usize> {
    let allowed = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
    (0..CpuSet::MAX_CPU)
        .filter(|cpu| allowed.is_set(*cpu))
        .collect()
}

/// Puts the calling thread on this CPU; false if that is refused.
pub(crate) fn pin(cpu: usize) -> bool {
    let mut only = CpuSet::new();
    only.set(cpu);
    sched_setaffinity(None, &only).is_ok()
}

/// Whether a process of these control groups (`/proc/PID/cgroup`) competes for CPUs at the root:
/// `0::PATH` in version 2, `N:cpu,...:PATH` in version 1, which decides if both are there.
fn is_root_group(groups: &str) -> bool {
    let fields = groups.lines().filter_map(|line| {
        let (_, rest) = line.split_once(':')?;
        rest.split_once(':')
    });
    let path = |wanted: fn(&str) -> bool| {
        let mut found = fields.clone().filter(|(names, _)| wanted(names));
        found.next().map(|(_, path)| path)
    };
    let first = path(|names| names.split(',').any(|name| name == "cpu"));
    first.or_else(|| path(str::is_empty)) == Some("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_that_has_the_cpus_decides() {
        assert!(is_root_group("0::/\n"));
        assert!(!is_root_group("0::/user.slice/session-1.scope\n"));
        assert!(is_root_group("4:cpuacct:/a\n3:cpu:/\n0::/a\n"));
        assert!(!is_root_group("3:cpu,cpuacct:/a\n1:cpuset:/\n0::/\n"));
        assert!(!is_root_group(""));
    }

    #[test]
    fn what_the_process_tells_is_understood() {
        let thread = |cpu, id| Thread { cpu, id };
        assert_eq!(threads("0:12 1:13\n"), [thread(0, 12), thread(1, 13)]);
        assert_eq!(threads("\n"), []);
        assert_eq!(threads("x:1 2 3:y 4:5"), [thread(4, 5)]);
    }
}
