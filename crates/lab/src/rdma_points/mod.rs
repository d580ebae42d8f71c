//! The points of `rdma-micro`, and those of `one-vs-two-sided` over RDMA: latencies of READ, compare-and-swap and fetch-and-add on a machine with an RDMA device,
//! beside two-sided ways to get the same. It runs where the device is: on this machine, or in the emulated one.
//!
//! ```text
//! CPU 0   the target, a process of its own: its threads, and 0 to 32 hogs
//! CPU 1   the reader, at real-time priority: an operation, 300 us of rest, the next
//! ```
//!
//! | arm | what is asked |
//! |---|---|
//! | `read` | the target's device: one READ of so many bytes; an atomic on a word |
//! | `record` | the same for a record as the front-end reads it: word 0 with it, and three READs where lines may come split |
//! | `kernel` | the same for a record that the kernel makes, while the target is stopped (SIGSTOP) |
//! | `udp_realtime`, `udp` | the target's responder: at real-time priority, at normal priority |
//! | `tcp` | a thread of the target, at normal priority |
//!
//! A point is a line of JSON on standard output, see [`Line`]; an experiment reads them from wherever this ran.

mod observe;
mod target;

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use clap::Args;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use serde::{Deserialize, Serialize};
use tidegate_core::record::LINE_BYTES;
use tidegate_core::stats::quantile_of_sorted;
use tidegate_remote::clock;
use tidegate_remote::realtime::try_fifo;

use crate::antagonist::{self, Antagonist};
use crate::awake::{cpus, pin};

use observe::Asker;
pub use target::{TargetArgs, run as target};

/// The names of this and of the target among the commands of the lab's program.
pub const COMMAND: &str = "rdma-points";
/// See above.
pub const TARGET: &str = "rdma-target";

/// Rest between two operations.
pub const REST: Duration = Duration::from_micros(300);
/// An operation that takes longer counts as this long.
pub const GIVEN_UP: Duration = Duration::from_secs(1);
/// Priority of the reader.
const PRIORITY: u8 = 50;
/// Before anything counts: connects.
const WARM_UP: u32 = 20;
/// Lines of a record that front-ends read.
const RECORD_LINES: usize = tidegate_core::record::AGGREGATE_LINES;

/// Options of the hidden `tidegate-lab rdma-points`.
#[derive(Clone, Debug, Args)]
pub struct PointsArgs {
    /// Threads at the target that always want CPU, one point each.
    #[arg(long, value_delimiter = ',', default_value = "0,32")]
    pub hogs: Vec<u32>,
    /// Lines of 64 bytes that are read, one point each.
    #[arg(long, value_delimiter = ',', default_value = "1,21")]
    pub lines: Vec<usize>,
    /// Operations of a point.
    #[arg(long, default_value_t = 300)]
    pub operations: u32,
    /// Longest time for them, in milliseconds.
    #[arg(long, default_value_t = 1500)]
    pub longest_ms: u64,
    /// Times that each point is measured.
    #[arg(long, default_value_t = 1)]
    pub rounds: u32,
    /// READs without rest in which the target's CPU time is counted.
    #[arg(long, default_value_t = 10_000)]
    pub counted: u32,
    /// Whether atomics are measured.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    pub atomics: bool,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// So many lines.
    Read(usize),
    /// A swap that succeeds.
    CompareAndSwap,
    /// An addition of 1.
    FetchAndAdd,
}

impl Operation {
    /// As in a point's label.
    pub fn label(self) -> String {
        match self {
            Self::Read(lines) => format!("bytes={}", lines * LINE_BYTES),
            Self::CompareAndSwap => "op=cas".into(),
            Self::FetchAndAdd => "op=faa".into(),
        }
    }
}

/// Whose answer is awaited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Read,
    Record,
    Kernel,
    UdpRealtime,
    Udp,
    Tcp,
}

impl Way {
    const ALL: [Self; 6] = [
        Self::Read,
        Self::Record,
        Self::Kernel,
        Self::UdpRealtime,
        Self::Udp,
        Self::Tcp,
    ];

    fn name(self) -> &'static str {
        ARMS[self as usize]
    }
}

/// Names of all arms, in the order of tables.
pub const ARMS: [&str; 6] = ["read", "record", "kernel", "udp_realtime", "udp", "tcp"];

/// A line of the output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "snake_case")]
pub enum Line {
    /// Where this runs.
    Device {
        /// Name of the device.
        name: String,
        /// Whether the kernel's CPUs do its work.
        in_software: bool,
        /// CPUs of the machine.
        cpus: usize,
    },
    /// A point of an arm in a round.
    Point {
        /// Of [`ARMS`].
        arm: String,
        /// `bytes=64 hogs=0`.
        label: String,
        /// From 0.
        round: u32,
        /// Operations that were measured.
        count: usize,
        /// Of these, without an answer.
        failed: usize,
        /// Microseconds.
        p50_us: f64,
        /// Microseconds.
        p99_us: f64,
    },
    /// The CPU time of the target's process, user and system, for so many reads.
    Cpu {
        /// Of [`ARMS`].
        arm: String,
        /// Whether the target was stopped.
        stopped: bool,
        /// Reads that were answered.
        answered: u32,
        /// Reads without an answer.
        failed: u32,
        /// Nanoseconds.
        target_ns: u64,
    },
    /// An arm that cannot be here.
    Without {
        /// Of [`ARMS`].
        arm: String,
        /// Why.
        why: String,
    },
    /// The last one.
    End {
        /// Lines before it.
        lines: u32,
    },
}

/// Why there are no points.
#[derive(Debug, thiserror::Error)]
pub enum PointsError {
    /// RDMA.
    #[error(transparent)]
    Region(#[from] tidegate_remote::RegionError),
    /// Processes, sockets and files.
    #[error("{doing}: {source}")]
    Io {
        /// What was tried.
        doing: &'static str,
        /// Why not.
        source: std::io::Error,
    },
    /// The hogs.
    #[error(transparent)]
    Antagonist(#[from] antagonist::AntagonistError),
    /// What the target says.
    #[error("the target: {0}")]
    Target(String),
}

impl PointsError {
    fn io<E: Into<std::io::Error>>(doing: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::Io {
            doing,
            source: source.into(),
        }
    }
}

/// Measures, and writes its lines.
///
/// # Errors
/// If there is no device, or the target does not come up.
pub fn run(args: &PointsArgs, out: impl Write) -> Result<(), PointsError> {
    let device = tidegate_remote::rdma::RdmaDevice::open(None)?;
    let (first, last) = ends(&cpus());
    let mut out = Output { out, lines: 0 };
    out.line(&Line::Device {
        name: device.name().into(),
        in_software: device.is_in_software(),
        cpus: cpus().len(),
    })?;
    pin(first);
    let target = Target::start(device.address())?;
    drop(device);
    if let Some(why) = &target.says.without_kernel {
        out.line(&Line::Without {
            arm: Way::Kernel.name().into(),
            why: why.clone(),
        })?;
    }
    for round in 0..args.rounds {
        for hogs in &args.hogs {
            pin(first);
            let _hogs = Hogs::start(*hogs)?;
            pin(last);
            for way in Way::ALL {
                for operation in operations(way, args) {
                    if let Some(line) = point(args, &target, way, operation, *hogs, round)? {
                        out.line(&line)?;
                    }
                }
            }
        }
    }
    pin(last);
    let few = args.counted / 10;
    for (way, stopped, reads) in [
        (Way::Read, false, args.counted),
        (Way::Read, true, args.counted),
        (Way::Record, true, few),
        (Way::Udp, false, few),
        (Way::Tcp, false, few),
    ] {
        out.line(&counted(&target, way, stopped, reads)?)?;
    }
    let lines = out.lines;
    out.line(&Line::End { lines })
}

/// What is asked of an arm.
fn operations(way: Way, args: &PointsArgs) -> Vec<Operation> {
    match way {
        Way::Record | Way::Kernel => vec![Operation::Read(RECORD_LINES)],
        Way::Read | Way::UdpRealtime | Way::Udp | Way::Tcp => {
            let atomics = [Operation::CompareAndSwap, Operation::FetchAndAdd];
            let atomics = atomics.into_iter().filter(|_| args.atomics);
            let reads = args.lines.iter().map(|lines| Operation::Read(*lines));
            reads.chain(atomics).collect()
        }
    }
}

fn point(
    args: &PointsArgs,
    target: &Target,
    way: Way,
    operation: Operation,
    hogs: u32,
    round: u32,
) -> Result<Option<Line>, PointsError> {
    let Some(mut asker) = Asker::new(way, &target.says)? else {
        return Ok(None);
    };
    for _ in 0..WARM_UP {
        asker.ask(operation);
    }
    let stopped = (way == Way::Kernel).then(|| target.stop()).transpose()?;
    let longest = Duration::from_millis(args.longest_ms);
    let (mut latencies, failed) = observe(&mut asker, operation, args.operations, longest);
    drop(stopped);
    latencies.sort_by(f64::total_cmp);
    let quantile = |q: f64| quantile_of_sorted(&latencies, q).unwrap_or(f64::NAN);
    Ok(Some(Line::Point {
        arm: way.name().into(),
        label: format!("{} hogs={hogs}", operation.label()),
        round,
        count: latencies.len(),
        failed,
        p50_us: quantile(0.5),
        p99_us: quantile(0.99),
    }))
}

/// Latencies in microseconds, and how many operations had no answer. The thread is at real-time priority meanwhile where
/// that is permitted.
fn observe(
    asker: &mut Asker,
    operation: Operation,
    count: u32,
    longest: Duration,
) -> (Vec<f64>, usize) {
    std::thread::scope(|scope| {
        let observed = scope.spawn(move || {
            // Without it hogs on this CPU, of which there are none, could hold it up.
            try_fifo(PRIORITY).ok();
            let end = clock::now() + longest;
            let (mut latencies, mut failed) = (Vec::with_capacity(count as usize), 0);
            while latencies.len() < count as usize && clock::now() < end {
                let start = clock::now();
                let answered = asker.ask(operation);
                let took = clock::now().since(start);
                failed += usize::from(!answered);
                let took = if answered { took } else { took.max(GIVEN_UP) };
                latencies.push(took.as_secs_f64() * 1e6);
                clock::sleep_until(clock::now() + REST);
            }
            (latencies, failed)
        });
        observed.join().unwrap_or_default()
    })
}

/// Reads so often without a rest, and counts the target's CPU time meanwhile.
fn counted(target: &Target, way: Way, stopped: bool, reads: u32) -> Result<Line, PointsError> {
    let mut asker = Asker::new(way, &target.says)?
        .ok_or_else(|| PointsError::Target(format!("has no {}", way.name())))?;
    let operation = Operation::Read(RECORD_LINES);
    for _ in 0..WARM_UP {
        asker.ask(operation);
    }
    let stopped_until = stopped.then(|| target.stop()).transpose()?;
    let before = target.cpu_time()?;
    let answered = (0..reads).filter(|_| asker.ask(operation)).count() as u32;
    let spent = target.cpu_time()?.saturating_sub(before);
    drop(stopped_until);
    Ok(Line::Cpu {
        arm: way.name().into(),
        stopped,
        answered,
        failed: reads - answered,
        target_ns: spent.as_nanos() as u64,
    })
}

/// The first and the last of these CPUs.
fn ends(cpus: &[usize]) -> (usize, usize) {
    let first = cpus.first().copied().unwrap_or(0);
    (first, cpus.last().copied().unwrap_or(first))
}

struct Output<W> {
    out: W,
    lines: u32,
}

impl<W: Write> Output<W> {
    /// In one piece: the kernel's messages may stand on the same console.
    fn line(&mut self, line: &Line) -> Result<(), PointsError> {
        let text = serde_json::to_string(line).map_err(PointsError::io("write a line"))?;
        let written = self.out.write_all(format!("{text}\n").as_bytes());
        written
            .and_then(|()| self.out.flush())
            .map_err(PointsError::io("write a line"))?;
        self.lines += 1;
        Ok(())
    }
}

fn this() -> Result<PathBuf, PointsError> {
    std::env::current_exe().map_err(PointsError::io("find this program"))
}

/// The target's process, killed when it is dropped.
struct Target {
    process: Child,
    says: target::Says,
}

impl Target {
    fn start(address: std::net::IpAddr) -> Result<Self, PointsError> {
        let process = Command::new(this()?)
            .args([TARGET, "--address", &address.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn();
        let mut process = process.map_err(PointsError::io("start the target"))?;
        let mut line = String::new();
        if let Some(output) = process.stdout.take() {
            let read = BufReader::new(output).read_line(&mut line);
            read.map_err(PointsError::io("read what the target says"))?;
        }
        let says = serde_json::from_str(&line)
            .map_err(|error| PointsError::Target(format!("it says {line:?}: {error}")));
        match says {
            Ok(says) => Ok(Self { process, says }),
            Err(error) => {
                process.kill().ok();
                process.wait().ok();
                Err(error)
            }
        }
    }

    fn cpu_time(&self) -> Result<Duration, PointsError> {
        clock::process_time(self.process.id())
            .ok_or_else(|| PointsError::Target("it has ended".into()))
    }

    /// Lets it stand still until what this gives is dropped; it does when this returns.
    fn stop(&self) -> Result<Stopped, PointsError> {
        let process = Pid::from_child(&self.process);
        kill_process(process, Signal::STOP).map_err(PointsError::io("stop the target"))?;
        waitpid(Some(process), WaitOptions::UNTRACED)
            .map_err(PointsError::io("wait until the target stands still"))?;
        Ok(Stopped(process))
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

/// Goes on when this is dropped.
struct Stopped(Pid);

impl Drop for Stopped {
    fn drop(&mut self) {
        kill_process(self.0, Signal::CONT).ok();
    }
}

/// On the CPU of the thread that starts them.
struct Hogs(Option<Child>);

impl Hogs {
    fn start(threads: u32) -> Result<Self, PointsError> {
        if threads == 0 {
            return Ok(Self(None));
        }
        let argument = antagonist::argument(&Antagonist::Hogs { threads })?;
        let process = Command::new(this()?)
            .args(["antagonist", &argument])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn();
        Ok(Self(Some(process.map_err(PointsError::io("start hogs"))?)))
    }
}

impl Drop for Hogs {
    fn drop(&mut self) {
        if let Some(process) = &mut self.0 {
            process.kill().ok();
            process.wait().ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arms_have_the_names_of_their_ways() {
        for (way, name) in Way::ALL.into_iter().zip(ARMS) {
            assert_eq!(way.name(), name);
        }
    }

    #[test]
    fn a_line_comes_back_as_it_was() {
        let line = Line::Point {
            arm: "read".into(),
            label: format!("{} hogs=32", Operation::Read(21).label()),
            round: 1,
            count: 300,
            failed: 0,
            p50_us: 90.5,
            p99_us: 210.25,
        };
        let text = serde_json::to_string(&line).unwrap();
        assert!(text.contains("bytes=1344 hogs=32"), "{text}");
        assert_eq!(serde_json::from_str::<Line>(&text).unwrap(), line);
    }

    #[test]
    fn target_and_reader_are_apart_where_there_are_cpus() {
        assert_eq!(ends(&[0, 1, 2, 3]), (0, 3));
        assert_eq!(ends(&[5]), (5, 5));
        assert_eq!(ends(&[]), (0, 0));
    }
}
