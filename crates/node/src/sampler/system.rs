//! Memory, open files, disks and pressure of the whole machine.
//!
//! **Open files** are the system's in any scope, because every process on the machine runs into
//! that limit; it is so large today that the limits of single processes matter more, see
//! [`super::watch`].
//!
//! **Disk time** is what the busiest device of each [`DISK_PERIOD`] added to its time with work
//! (`io_ticks`), so that the rate between two records is the utilisation of whichever disk was
//! the bottleneck. Partitions and devices on top of others are never busier than what is below
//! them, so all devices may stand in one row.

use std::path::Path;
use std::time::Duration;

use tidegate_core::record::Sources;

use super::Context;
use crate::counter::Counter;
use crate::file::{KernelFile, Shape, under};
use crate::pace::Pace;
use crate::parse::system;

const MEMORY_PERIOD: Duration = Duration::from_millis(100);
const FILES_PERIOD: Duration = Duration::from_millis(100);
const DISK_PERIOD: Duration = Duration::from_millis(100);
const PRESSURE_PERIOD: Duration = Duration::from_millis(10);
const NANOS_PER_MILLI: u64 = 1_000_000;

/// Pressure files: of the machine, or of a version 2 group.
pub(super) struct Pressure {
    files: [KernelFile; 3],
    counters: [Counter; 3],
    pace: Pace,
}

impl Pressure {
    /// The three files named so that `name` makes of "cpu", "memory" and "io".
    pub(super) fn new(name: impl Fn(&str) -> std::path::PathBuf) -> Self {
        Self {
            files: ["cpu", "memory", "io"].map(|kind| KernelFile::new(name(kind), Shape::Whole)),
            counters: Default::default(),
            pace: Pace::new(PRESSURE_PERIOD, 3),
        }
    }

    /// All three or none: the record has one bit for them.
    pub(super) fn sample(&mut self, context: &mut Context<'_>) {
        let Some(turn) = self.pace.begin(context.now) else {
            return;
        };
        for (file, counter) in self.files.iter_mut().zip(&mut self.counters) {
            let stalled = file
                .read(context.now, context.buffer)
                .and_then(system::pressure);
            let Some(stalled) = stalled else {
                context
                    .findings
                    .missing(Sources::PSI, || file.why_not().into());
                self.pace.end(turn);
                return;
            };
            counter.follow(stalled);
        }
        let [cpu, memory, io] = self.counters.map(|counter| counter.total());
        context.record.psi_cpu_ns = cpu;
        context.record.psi_memory_ns = memory;
        context.record.psi_io_ns = io;
        context
            .findings
            .measured(Sources::PSI, "from the pressure files");
        self.pace.end(turn);
    }
}

/// What only the machine as a whole has.
struct Whole {
    memory: KernelFile,
    memory_pace: Pace,
    disks: Disks,
    pressure: Pressure,
}

pub(super) struct System {
    whole: Option<Whole>,
    files: KernelFile,
    files_pace: Pace,
}

impl System {
    /// Files and, if the scope is the whole machine, the rest.
    pub(super) fn new(root: &Path, whole: bool) -> Self {
        let file = |path: &str, shape| KernelFile::new(under(root, path), shape);
        let whole = whole.then(|| Whole {
            memory: file("proc/meminfo", Shape::Whole),
            memory_pace: Pace::new(MEMORY_PERIOD, 1),
            disks: Disks {
                file: file("proc/diskstats", Shape::Records),
                pace: Pace::new(DISK_PERIOD, 5),
                seen: Vec::new(),
                total: Counter::default(),
            },
            pressure: Pressure::new(|kind| under(root, format!("proc/pressure/{kind}"))),
        });
        Self {
            whole,
            files: file("proc/sys/fs/file-nr", Shape::Whole),
            files_pace: Pace::new(FILES_PERIOD, 3),
        }
    }

    pub(super) fn sample(&mut self, context: &mut Context<'_>) {
        self.files(context);
        match &mut self.whole {
            Some(whole) => {
                whole.memory(context);
                whole.disks.sample(context);
                whole.pressure.sample(context);
            }
            None => {
                context.missing(
                    Sources::DISK,
                    "a control group has no counter of the time that a disk worked for it",
                );
                context.missing(
                    Sources::STEAL,
                    "the hypervisor steals from the whole machine",
                );
                context.missing(Sources::PER_CPU, "the lines are of the machine's CPUs");
                context.missing(
                    Sources::CONTEXT_SWITCHES,
                    "a control group has no counter of them",
                );
            }
        }
    }

    fn files(&mut self, context: &mut Context<'_>) {
        let Some(turn) = self.files_pace.begin(context.now) else {
            return;
        };
        let file = &mut self.files;
        let open = file
            .read(context.now, context.buffer)
            .and_then(system::file_nr);
        match open {
            Some((open, max)) => {
                context.record.files_open = open;
                context.record.files_max = max;
                context
                    .findings
                    .measured(Sources::FILES, "from /proc/sys/fs/file-nr");
            }
            None => context
                .findings
                .missing(Sources::FILES, || file.why_not().into()),
        }
        self.files_pace.end(turn);
    }
}

impl Whole {
    fn memory(&mut self, context: &mut Context<'_>) {
        let Some(turn) = self.memory_pace.begin(context.now) else {
            return;
        };
        let file = &mut self.memory;
        let memory = file
            .read(context.now, context.buffer)
            .and_then(system::meminfo);
        match memory {
            Some(memory) => {
                context.record.memory_total = memory.total;
                context.record.memory_available = memory.available;
                context
                    .findings
                    .measured(Sources::MEMORY, "from /proc/meminfo");
            }
            None => context
                .findings
                .missing(Sources::MEMORY, || file.why_not().into()),
        }
        self.memory_pace.end(turn);
    }
}

struct Disks {
    file: KernelFile,
    pace: Pace,
    seen: Vec<((u32, u32), Counter)>,
    total: Counter,
}

impl Disks {
    fn sample(&mut self, context: &mut Context<'_>) {
        let Some(turn) = self.pace.begin(context.now) else {
            return;
        };
        let (file, seen) = (&mut self.file, &mut self.seen);
        let mut busiest_ms = 0;
        let read = file.read(context.now, context.buffer).and_then(|bytes| {
            system::diskstats(bytes, |id, ms| {
                busiest_ms = busiest_ms.max(grown(seen, id, ms));
            })
        });
        match read {
            Some(()) => {
                let busiest = busiest_ms.saturating_mul(NANOS_PER_MILLI);
                context.record.disk_ns = self.total.add(busiest);
                context
                    .findings
                    .measured(Sources::DISK, "from /proc/diskstats, the busiest device");
            }
            None => context
                .findings
                .missing(Sources::DISK, || file.why_not().into()),
        }
        self.pace.end(turn);
    }
}

/// How much the device's time grew since it was last seen; a new one has not grown.
fn grown(seen: &mut Vec<((u32, u32), Counter)>, id: (u32, u32), ms: u64) -> u64 {
    if let Some((_, counter)) = seen.iter_mut().find(|(known, _)| *known == id) {
        let before = counter.total();
        return counter.follow(ms) - before;
    }
    // A machine on which devices come and go for ever forgets the oldest.
    if seen.len() >= system::DISKS_MAX {
        seen.remove(0);
    }
    let mut counter = Counter::default();
    counter.follow(ms);
    seen.push((id, counter));
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_grows_from_when_it_is_first_seen() {
        let mut seen = Vec::new();
        assert_eq!(grown(&mut seen, (8, 0), 5000), 0);
        assert_eq!(grown(&mut seen, (8, 0), 5040), 40);
        assert_eq!(grown(&mut seen, (8, 16), 10), 0);
        assert_eq!(grown(&mut seen, (8, 0), 30), 0);
        assert_eq!(grown(&mut seen, (8, 0), 31), 1);
    }

    #[test]
    fn devices_that_come_and_go_do_not_pile_up() {
        let mut seen = Vec::new();
        for minor in 0..10_000 {
            grown(&mut seen, (8, minor), 1);
        }
        assert_eq!(seen.len(), system::DISKS_MAX);
    }
}
