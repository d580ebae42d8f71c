//! An agent for HAProxy's agent check: `up NN%` and a line feed, NN being the node's idle CPU.
//!
//! ```text
//! NN = max(1, 100 * (1 - CPU time of the last 2 s / (2 s * the node's share of a CPU)))
//! ```
//!
//! Two seconds is HAProxy's own default between two questions. The agent stands in the node's
//! control group and quota, at ordinary priority, as its users' agents do, and reads the group's
//! CPU time as often as it is asked, at most each [`SAMPLE`]. HAProxy multiplies the server's
//! weight by the answer. Never zero: that would drain the server.
//!
//! Source: HAProxy 2.6 configuration manual, `agent-check`.

use std::collections::VecDeque;
use std::fs;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use tidegate_core::time::Timestamp;
use tidegate_remote::clock;

/// What the answer looks back on.
const WINDOW: Duration = Duration::from_secs(2);
/// Between two looks at the CPU time, at least.
const SAMPLE: Duration = Duration::from_millis(100);

/// Options of the hidden `tidegate-lab agent-check`.
#[derive(Clone, Debug, Args)]
pub struct AgentCheckArgs {
    /// Where it listens.
    #[arg(long, value_name = "ADDRESS")]
    listen: SocketAddr,
    /// The node's share of one CPU.
    #[arg(long)]
    share: f64,
}

/// Answers for the control group that this process is in, until it is killed.
///
/// # Errors
/// If it cannot listen, or if the group's CPU time cannot be read.
pub fn run(args: &AgentCheckArgs) -> io::Result<()> {
    let clock = CpuClock::own()?;
    serve(args.listen, args.share, || clock.read())
}

/// Answers for ever. `cpu_time` tells the node's CPU time so far.
///
/// # Errors
/// If it cannot listen, or if the CPU time cannot be read.
fn serve(
    listen: SocketAddr,
    share: f64,
    mut cpu_time: impl FnMut() -> io::Result<Duration>,
) -> io::Result<()> {
    let listener = TcpListener::bind(listen)?;
    let mut idle = Idle::new(share);
    idle.note(clock::now(), cpu_time()?);
    for stream in listener.incoming() {
        idle.note(clock::now(), cpu_time()?);
        let answer = format!("up {}%\n", idle.percent());
        // The client may be gone: the next one asks anew.
        stream
            .and_then(|mut stream| stream.write_all(answer.as_bytes()))
            .unwrap_or_default();
    }
    Ok(())
}

/// The CPU time of a control group.
#[derive(Debug)]
enum CpuClock {
    /// `cpuacct.usage`: nanoseconds.
    V1(PathBuf),
    /// `cpu.stat`: `usage_usec`.
    V2(PathBuf),
}

impl CpuClock {
    /// That of the group of this process.
    fn own() -> io::Result<Self> {
        let groups = fs::read_to_string("/proc/self/cgroup")?;
        let mountinfo = fs::read("/proc/self/mountinfo")?;
        let mounts = tidegate_node::hierarchies(&mountinfo);
        let found = mounts.iter().find_map(|mount| {
            let v1 = String::from_utf8_lossy(&mount.controllers)
                .split(',')
                .any(|it| it == "cpuacct");
            let group = group_in(&groups, mount.version == 1)?;
            let folder = mount.mount.join(group.trim_start_matches('/'));
            let clock = match mount.version {
                1 if v1 => Self::V1(folder.join("cpuacct.usage")),
                2 => Self::V2(folder.join("cpu.stat")),
                _ => return None,
            };
            clock.read().is_ok().then_some(clock)
        });
        let none = || {
            io::Error::new(
                io::ErrorKind::NotFound,
                "no control group tells its CPU time",
            )
        };
        found.ok_or_else(none)
    }

    fn read(&self) -> io::Result<Duration> {
        let wrong = || io::Error::new(io::ErrorKind::InvalidData, "the CPU time is no number");
        let number = |text: &str| text.trim().parse().map_err(|_| wrong());
        match self {
            Self::V1(path) => Ok(Duration::from_nanos(number(&fs::read_to_string(path)?)?)),
            Self::V2(path) => {
                let text = fs::read_to_string(path)?;
                let line = text
                    .lines()
                    .find_map(|line| line.strip_prefix("usage_usec "));
                Ok(Duration::from_micros(number(line.ok_or_else(wrong)?)?))
            }
        }
    }
}

/// The path of a process's group, from its `/proc/PID/cgroup`: in the hierarchy with the
/// controller `cpuacct`, or in that of version 2.
fn group_in(groups: &str, v1: bool) -> Option<&str> {
    let mut fields = groups.lines().map(|line| line.splitn(3, ':'));
    fields.find_map(|mut it| match (it.next()?, it.next()?, it.next()?) {
        ("0", "", path) if !v1 => Some(path),
        (_, controllers, path) if v1 && controllers.split(',').any(|it| it == "cpuacct") => {
            Some(path)
        }
        _ => None,
    })
}

/// How idle a node was of late.
#[derive(Debug)]
struct Idle {
    share: f64,
    samples: VecDeque<(Timestamp, Duration)>,
}

impl Idle {
    fn new(share: f64) -> Self {
        Self {
            share,
            samples: VecDeque::new(),
        }
    }

    fn note(&mut self, now: Timestamp, used: Duration) {
        match self.samples.back() {
            Some((last, _)) if now < *last + SAMPLE && self.samples.len() > 1 => {}
            _ => self.samples.push_back((now, used)),
        }
        // One sample at or before the window's begin stays.
        while self
            .samples
            .get(1)
            .is_some_and(|(at, _)| *at + WINDOW <= now)
        {
            self.samples.pop_front();
        }
    }

    fn percent(&self) -> u32 {
        let (Some((from, before)), Some((to, after))) = (self.samples.front(), self.samples.back())
        else {
            return 100;
        };
        let wall = to.seconds_since(*from);
        if wall <= 0.0 {
            return 100;
        }
        let busy = after.saturating_sub(*before).as_secs_f64() / (wall * self.share);
        ((1.0 - busy) * 100.0).clamp(1.0, 100.0) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    #[test]
    fn an_idle_node_is_up_in_full_and_a_busy_one_at_one_percent() {
        let mut idle = Idle::new(0.1);
        assert_eq!(idle.percent(), 100);
        idle.note(at(0), Duration::ZERO);
        assert_eq!(idle.percent(), 100);
        idle.note(at(1000), Duration::from_millis(25));
        assert_eq!(idle.percent(), 75);
        idle.note(at(2000), Duration::from_millis(500));
        assert_eq!(idle.percent(), 1);
    }

    #[test]
    fn the_own_group_is_found_in_either_version() {
        let hybrid = "12:cpuacct:/a\n3:cpu,cpuset:/b\n0::/c\n";
        assert_eq!(group_in(hybrid, true), Some("/a"));
        assert_eq!(group_in(hybrid, false), Some("/c"));
        assert_eq!(group_in("0::/only\n", true), None);
    }

    #[test]
    fn what_lies_before_the_window_is_forgotten() {
        let mut idle = Idle::new(1.0);
        idle.note(at(0), Duration::ZERO);
        idle.note(at(2000), Duration::from_secs(2));
        idle.note(at(4000), Duration::from_secs(3));
        assert_eq!(idle.percent(), 50);
        idle.note(at(6000), Duration::from_secs(3));
        assert_eq!(idle.percent(), 100);
    }
}
