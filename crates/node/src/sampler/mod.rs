//! Samples the kernel into a load record.
//!
//! Each part below owns some of the record's fields, reads its files at its own pace and says
//! of every source whether it was measured, how, or why not. Nothing here fails: a part that
//! cannot read leaves its source unset and tries again later.
//!
//! | part | host scope | control group scope |
//! |---|---|---|
//! | CPU time, run queue | [`host`] | [`group`], [`tasks`] |
//! | memory, files, disk, pressure | [`system`] | [`group`], [`system`] |
//! | network, accept queues | [`network`] | [`network`], if the group has a network of its own |
//! | watched processes | [`watch`] | [`watch`] |
//!
//! Never visible from user space, so never set: every task switch (`BUSY_SWITCH`) and pending
//! soft interrupts (`SOFTIRQ`). Kept by others: requests in flight and services.

mod group;
mod host;
mod network;
mod system;
mod tasks;
mod watch;

use std::borrow::Cow;
use std::ops::Deref;
use std::path::PathBuf;
use std::time::Duration;

use rustix::rand::GetRandomFlags;
use tidegate_core::record::{CPU_LINES_MAX, CpuLine, LoadRecord, Sources};
use tidegate_core::time::{Timestamp, nanos};
use tidegate_remote::clock;

use crate::config::{SamplerConfig, Scope};
use crate::file::{Buffer, Shape, read_once, under};
use crate::findings::AvailabilityNotes;

pub(crate) use group::cpu_group;
pub use watch::{process_names, short_name};

/// Why there is no sampler.
#[derive(Debug, thiserror::Error)]
pub enum SamplerError {
    /// The group is in no mounted hierarchy.
    #[error("no control group {0}: {1}")]
    NoGroup(PathBuf, String),
    /// The kernel gives no randomness for the generation.
    #[error("no randomness: {0}")]
    Random(rustix::io::Errno),
}

/// The CPU lines of a record, the busiest CPUs if there are more than fit.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuLines {
    lines: [CpuLine; CPU_LINES_MAX],
    count: usize,
}

impl CpuLines {
    fn clear(&mut self) {
        self.count = 0;
    }

    /// Adds a line if there is room.
    fn push(&mut self, line: CpuLine) {
        if let Some(slot) = self.lines.get_mut(self.count) {
            *slot = line;
            self.count += 1;
        }
    }
}

impl Deref for CpuLines {
    type Target = [CpuLine];
    fn deref(&self) -> &[CpuLine] {
        &self.lines[..self.count]
    }
}

/// What the parts work on.
struct Context<'a> {
    now: Timestamp,
    /// When this sample was meant to come, after the one before.
    interval: Duration,
    record: &'a mut LoadRecord,
    findings: &'a mut AvailabilityNotes,
    buffer: &'a mut Buffer,
}

impl Context<'_> {
    fn missing(&mut self, source: Sources, why: &'static str) {
        self.findings.missing(source, || Cow::Borrowed(why));
    }
}

enum Cpu {
    Host(Box<host::Host>),
    Group(Box<group::Group>),
}

/// Makes records; see the module.
pub struct Sampler {
    record: LoadRecord,
    lines: CpuLines,
    findings: AvailabilityNotes,
    buffer: Buffer,
    cpu: Cpu,
    system: system::System,
    network: network::Network,
    watch: watch::OpenFilesWatch,
}

impl Sampler {
    /// A sampler of a new generation. Files are opened at the first sample.
    pub fn new(config: impl Into<SamplerConfig>) -> Result<Self, SamplerError> {
        let config = config.into();
        let mut buffer = Buffer::new();
        let mut record = LoadRecord {
            generation: generation(&config, &mut buffer)?,
            interval_ns: nanos(config.interval),
            ..LoadRecord::default()
        };
        let cpu = match &config.scope {
            Scope::Host => Cpu::Host(Box::new(host::Host::new(&config.root, &mut buffer))),
            Scope::Cgroup(path) => {
                let group = group::Group::new(&config, path, &mut buffer)?;
                record.scope = group.version();
                Cpu::Group(Box::new(group))
            }
        };
        let whole = matches!(config.scope, Scope::Host);
        Ok(Self {
            record,
            lines: CpuLines::default(),
            findings: AvailabilityNotes::new(),
            buffer,
            cpu,
            system: system::System::new(&config.root, whole),
            network: network::Network::new(&config.root, whole),
            watch: watch::OpenFilesWatch::new(&config),
        })
    }

    /// A record of this moment. The publisher gives it its sequence and its rung.
    pub fn sample(&mut self) -> (LoadRecord, CpuLines) {
        self.sample_at(clock::now())
    }

    /// The next record comes this long after the one before, as it will say.
    pub fn set_interval(&mut self, interval: Duration) {
        self.record.interval_ns = nanos(interval);
    }

    fn sample_at(&mut self, now: Timestamp) -> (LoadRecord, CpuLines) {
        self.record.t_ns = now.nanos();
        let mut context = Context {
            now,
            interval: Duration::from_nanos(self.record.interval_ns),
            record: &mut self.record,
            findings: &mut self.findings,
            buffer: &mut self.buffer,
        };
        // CPU time comes first: it is what the record's clock has to fit best.
        match &mut self.cpu {
            Cpu::Host(host) => host.sample(&mut context, &mut self.lines),
            Cpu::Group(group) => {
                group.sample(&mut context);
                self.network.follow(group.member());
            }
        }
        self.network.sample(&mut context);
        self.system.sample(&mut context);
        self.watch.sample(&mut context);
        context.missing(
            Sources::SOFTIRQ,
            "pending soft interrupts cannot be seen from user space",
        );
        self.record.sources = self.findings.sources();
        self.record.on_cpu = u32::try_from(rustix::thread::sched_getcpu()).unwrap_or(u32::MAX);
        (self.record, self.lines)
    }

    /// Grows whenever [`Sampler::why`] changes.
    pub fn why_version(&self) -> u64 {
        self.findings.version()
    }

    /// For every source whether and how it is measured, as sentences.
    pub fn why(&self) -> Vec<String> {
        self.findings.sentences()
    }
}

/// CPU time of the calling thread.
pub(crate) fn own_cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// A number that another start of this agent or of the machine will not have.
fn generation(config: &SamplerConfig, buffer: &mut Buffer) -> Result<u64, SamplerError> {
    let mut random = [0u8; 8];
    rustix::rand::getrandom(&mut random, GetRandomFlags::empty()).map_err(SamplerError::Random)?;
    let boot = under(&config.root, "proc/sys/kernel/random/boot_id");
    let boot = read_once(boot, Shape::Whole, buffer).unwrap_or_default();
    // FNV-1a: mixes what little there is if the random bytes were ever to repeat.
    let started = clock::now().nanos().to_le_bytes();
    let mixed = boot
        .iter()
        .chain(&started)
        .chain(&random)
        .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
    Ok(mixed.max(1))
}

#[cfg(test)]
mod tests;
