//! Keeps the CPUs awake while something is measured: a thread of the scheduler's idle class spins
//! on each, and everybody else goes before it.
//!
//! A virtual CPU that has nothing to do is given back, and a busy host lets it wait when it wakes
//! up again. A lab of small nodes sleeps and wakes thousands of times a second: on a busy host it
//! lost 20 to 35 % of a CPU to these waits, and 2 to 4 % with its CPUs awake. Operators of machines
//! of their own do the same with the kernel's `idle=poll`.
//!
//! The idle class counts within a control group only. So this is done only where this process is
//! in the root group: else the threads would take the share of their group from the nodes.
//! Their time is nobody's in what the lab measures.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::process::{Pid, setpriority_process};
use rustix::thread::{CpuSet, gettid, sched_getaffinity, sched_setaffinity};
use tidegate_remote::realtime::try_idle;

/// For whoever looks with `top`: the kernel counts their time as `nice`.
const NICE: i32 = 19;

/// See the module. Dropping it lets the CPUs sleep again.
#[derive(Debug)]
pub struct Awake {
    stop: Arc<AtomicBool>,
    threads: Vec<Thread>,
    /// What the reader of a report should know.
    pub said: String,
}

#[derive(Debug)]
struct Thread {
    cpu: usize,
    /// None if it may not give way, and so has ended.
    id: Option<Pid>,
    handle: JoinHandle<()>,
}

impl Awake {
    /// From now on, if it can be done without taking anything from anybody.
    #[must_use]
    pub fn start() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        if !is_root_group(&groups) {
            return Self {
                stop,
                threads: Vec::new(),
                said: "Idle CPUs sleep: the lab is not in the root control group. On a busy virtual machine \
                       they wake up late."
                    .into(),
            };
        }
        let thread = |cpu| {
            let stop = Arc::clone(&stop);
            let (begun, id) = channel();
            let handle = thread::spawn(move || spin(cpu, &stop, &begun));
            Thread {
                cpu,
                id: id.recv().ok(),
                handle,
            }
        };
        Self {
            threads: cpus().into_iter().map(thread).collect(),
            said: "Idle CPUs are kept awake by a thread of the idle class, as by `idle=poll`."
                .into(),
            stop,
        }
    }

    /// How long nobody else wanted this CPU so far; none if it is not kept awake.
    #[must_use]
    pub fn time_on(&self, cpu: u32) -> Option<Duration> {
        let mut on_it = self.threads.iter().filter(|it| it.cpu == cpu as usize);
        let id = on_it.next()?.id?.as_raw_nonzero();
        let text = std::fs::read_to_string(format!("/proc/self/task/{id}/schedstat")).ok()?;
        let ran = text.split_whitespace().next()?;
        Some(Duration::from_nanos(ran.parse().ok()?))
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // It holds nothing that a panic could break.
            thread.handle.join().ok();
        }
    }
}

fn spin(cpu: usize, stop: &AtomicBool, begun: &Sender<Pid>) {
    // Without all three this thread would be in somebody's way.
    let ready = pin(cpu) && setpriority_process(None, NICE).is_ok() && try_idle().is_ok();
    if !ready || begun.send(gettid()).is_err() {
        return;
    }
    while !stop.load(Ordering::Relaxed) {
        // No pause instruction: many in a row give the CPU back to the hypervisor.
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
    fn every_thread_ends_with_it() {
        let stop = {
            let awake = Awake::start();
            for thread in &awake.threads {
                let cpu = u32::try_from(thread.cpu).unwrap();
                assert_eq!(awake.time_on(cpu).is_some(), thread.id.is_some());
            }
            Arc::clone(&awake.stop)
        };
        assert!(stop.load(Ordering::Relaxed));
        assert_eq!(Arc::strong_count(&stop), 1);
    }
}
