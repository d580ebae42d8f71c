//! A control group of version 1, version 2 or a hybrid of both.
//!
//! Each controller is looked for in its version 1 hierarchy first and in the version 2 hierarchy
//! then: on a hybrid host a group has a directory in some of them.
//!
//! * CPU time: `cpuacct.usage` (ns) or `usage_usec` of `cpu.stat`; both the scheduler's own.
//! * Quota: the smallest of the group and its ancestors. `throttled_ns` is the kernel's sum over
//!   CPUs of the times in which the group's own quota held it back.
//! * Memory: the smallest limit of the group and its ancestors (the machine's memory if there is
//!   none), less what is in use and is not inactive file cache: what would be had before the
//!   group is killed. Not more than what the machine has to give.
//! * Pressure: version 2 only.
//! * Cores: the group's cpuset, else what its processes may run on, else all.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tidegate_core::record::Sources;

use super::system::Pressure;
use super::tasks::Tasks;
use super::{Context, SamplerError};
use crate::config::SamplerConfig;
use crate::counter::Counter;
use crate::file::{Buffer, KernelFile, Shape, read_once, under};
use crate::pace::Pace;
use crate::parse::mounts::{self, Hierarchy};
use crate::parse::system::Memory;
use crate::parse::{cgroup, cpu, keyed, process, saturated, single, system};

const THROTTLED_PERIOD: Duration = Duration::from_millis(10);
const MEMORY_PERIOD: Duration = Duration::from_millis(100);
const LIMITS_PERIOD: Duration = Duration::from_secs(1);

/// A controller's directory of the group.
#[derive(Clone, Debug)]
struct Place {
    version: u8,
    directory: PathBuf,
    /// Where the hierarchy is mounted: the last ancestor to look at.
    mount: PathBuf,
}

impl Place {
    /// The group's directory and its ancestors', nearest first.
    fn ancestors(&self) -> impl Iterator<Item = &Path> {
        self.directory
            .ancestors()
            .take_while(|directory| directory.starts_with(&self.mount))
    }
}

/// Where the group stands in the mounted hierarchies.
#[derive(Debug)]
struct Places {
    found: Vec<(Hierarchy, Place)>,
}

impl Places {
    fn find(root: &Path, group: &Path, buffer: &mut Buffer) -> Result<Self, SamplerError> {
        let mountinfo = under(root, "proc/self/mountinfo");
        let mountinfo = read_once(mountinfo, Shape::Records, buffer).unwrap_or_default();
        let hierarchies = mounts::hierarchies(mountinfo);
        let looked_in: Vec<String> = hierarchies
            .iter()
            .map(|hierarchy| hierarchy.mount.display().to_string())
            .collect();
        // A directory of one hierarchy names the group in all of them.
        let name = hierarchies
            .iter()
            .filter(|hierarchy| hierarchy.mount != Path::new("/"))
            .find_map(|hierarchy| {
                let inside = group.strip_prefix(&hierarchy.mount).ok()?;
                Some(hierarchy.subtree.join(inside))
            })
            .unwrap_or_else(|| Path::new("/").join(group));
        let found: Vec<_> = hierarchies
            .into_iter()
            .filter_map(|hierarchy| {
                // Below a bind mount the hierarchy's root is some group.
                let inside = name
                    .strip_prefix(&hierarchy.subtree)
                    .or_else(|_| name.strip_prefix("/"))
                    .ok()?;
                let mount = under(root, &hierarchy.mount);
                let place = Place {
                    version: hierarchy.version,
                    directory: mount.join(inside),
                    mount,
                };
                place.directory.is_dir().then_some((hierarchy, place))
            })
            .collect();
        if found.is_empty() {
            let looked_in = match looked_in.as_slice() {
                [] => "no hierarchy of control groups is mounted".to_owned(),
                some => format!("looked in {}", some.join(", ")),
            };
            return Err(SamplerError::NoGroup(group.into(), looked_in));
        }
        Ok(Self { found })
    }

    fn controller(&self, name: &str) -> Option<&Place> {
        self.found
            .iter()
            .find(|(hierarchy, _)| hierarchy.controls(name))
            .map(|(_, place)| place)
            .or_else(|| self.unified())
    }

    fn unified(&self) -> Option<&Place> {
        self.found
            .iter()
            .find(|(hierarchy, _)| hierarchy.version == 2)
            .map(|(_, place)| place)
    }
}

/// The group's directory in the hierarchy that gives it its CPUs, and that one's version.
pub(crate) fn cpu_group(root: &Path, group: &Path) -> Result<(u8, PathBuf), SamplerError> {
    let places = Places::find(root, group, &mut Buffer::new())?;
    let place = places.controller("cpu").ok_or_else(|| {
        SamplerError::NoGroup(group.into(), "hierarchies with a cpu controller".into())
    })?;
    Ok((place.version, place.directory.clone()))
}

pub(super) struct Group {
    root: PathBuf,
    version: u8,
    usage: Option<(u8, KernelFile)>,
    busy: Counter,
    throttled: Option<KernelFile>,
    throttled_total: Counter,
    throttled_pace: Pace,
    quota: Option<Place>,
    cpuset: Option<Place>,
    memory: Option<MemoryFiles>,
    memory_pace: Pace,
    limits_pace: Pace,
    task_count: Option<KernelFile>,
    pressure: Option<Pressure>,
    tasks: Tasks,
}

struct MemoryFiles {
    place: Place,
    usage: KernelFile,
    stat: KernelFile,
    machine: KernelFile,
    limit: Option<u64>,
}

impl Group {
    pub(super) fn new(
        config: &SamplerConfig,
        path: &Path,
        buffer: &mut Buffer,
    ) -> Result<Self, SamplerError> {
        let root = &*config.root;
        let places = Places::find(root, path, buffer)?;
        let file = |place: &Place, v1: &str, v2: &str| {
            let name = if place.version == 1 { v1 } else { v2 };
            KernelFile::new(place.directory.join(name), Shape::Whole)
        };
        let usage = places
            .controller("cpuacct")
            .map(|place| (place.version, file(place, "cpuacct.usage", "cpu.stat")));
        let memory = places.controller("memory").map(|place| MemoryFiles {
            usage: file(place, "memory.usage_in_bytes", "memory.current"),
            stat: file(place, "memory.stat", "memory.stat"),
            machine: KernelFile::new(under(root, "proc/meminfo"), Shape::Whole),
            limit: None,
            place: place.clone(),
        });
        let any = places.found.first().map(|(_, place)| place);
        let members = places.controller("cpuacct").or(any);
        Ok(Self {
            root: root.into(),
            version: usage.as_ref().or(None).map_or(2, |(version, _)| *version),
            busy: Counter::default(),
            throttled: places
                .controller("cpu")
                .map(|place| file(place, "cpu.stat", "cpu.stat")),
            throttled_total: Counter::default(),
            throttled_pace: Pace::new(THROTTLED_PERIOD, 5),
            quota: places.controller("cpu").cloned(),
            cpuset: places.controller("cpuset").cloned(),
            memory,
            memory_pace: Pace::new(MEMORY_PERIOD, 1),
            limits_pace: Pace::new(LIMITS_PERIOD, 0),
            task_count: places
                .controller("pids")
                .map(|place| file(place, "pids.current", "pids.current")),
            pressure: places.unified().map(|place| {
                let directory = place.directory.clone();
                Pressure::new(move |kind| directory.join(format!("{kind}.pressure")))
            }),
            tasks: Tasks::new(
                config,
                members.map(|place| (place.version, &*place.directory)),
            ),
            usage,
        })
    }

    /// As the record's scope.
    pub(super) fn version(&self) -> u8 {
        self.version
    }

    /// Some process of the group.
    pub(super) fn member(&self) -> Option<u32> {
        self.tasks.member()
    }

    pub(super) fn sample(&mut self, context: &mut Context<'_>) {
        self.usage(context);
        self.tasks.sample(context);
        if let Some(turn) = self.limits_pace.begin(context.now) {
            self.limits(context);
            self.limits_pace.end(turn);
        }
        if let Some(turn) = self.throttled_pace.begin(context.now) {
            self.throttled(context);
            self.throttled_pace.end(turn);
        }
        if let Some(turn) = self.memory_pace.begin(context.now) {
            self.memory(context);
            self.count(context);
            self.memory_pace.end(turn);
        }
        match &mut self.pressure {
            Some(pressure) => pressure.sample(context),
            None => context.missing(Sources::PSI, "groups of version 1 have no pressure files"),
        }
    }

    fn usage(&mut self, context: &mut Context<'_>) {
        let Some((version, file)) = &mut self.usage else {
            context.missing(
                Sources::BUSY_ACCT,
                "the group is in no hierarchy that counts CPU time",
            );
            return;
        };
        let parse = if *version == 1 {
            single
        } else {
            cgroup::usage_v2
        };
        match file.read(context.now, context.buffer).and_then(parse) {
            Some(used) => {
                context.record.busy_ns = self.busy.follow(used);
                let how = if *version == 1 {
                    "from cpuacct.usage of the group"
                } else {
                    "from usage_usec in cpu.stat of the group"
                };
                context.findings.measured(Sources::BUSY_ACCT, how);
            }
            None => context
                .findings
                .missing(Sources::BUSY_ACCT, || file.why_not().into()),
        }
    }

    fn throttled(&mut self, context: &mut Context<'_>) {
        let Some(file) = &mut self.throttled else {
            context.missing(Sources::QUOTA, "the CPU controller does not hold the group");
            return;
        };
        match file
            .read(context.now, context.buffer)
            .and_then(cgroup::throttled)
        {
            Some(throttled) => {
                context.record.throttled_ns = self.throttled_total.follow(throttled);
                context.findings.measured(
                    Sources::QUOTA,
                    "the smallest quota of the group and its ancestors",
                );
            }
            None => context
                .findings
                .missing(Sources::QUOTA, || file.why_not().into()),
        }
    }

    /// Quota, memory limit and cores: they change when an operator changes them.
    fn limits(&mut self, context: &mut Context<'_>) {
        let buffer = &mut *context.buffer;
        let quotas = self.quota.iter().flat_map(Place::ancestors);
        let version = self.quota.as_ref().map_or(2, |place| place.version);
        context.record.quota_milli = quotas
            .filter_map(|directory| quota(version, directory, buffer))
            .filter(|quota| *quota > 0)
            .min()
            .unwrap_or(0);
        if let Some(memory) = &mut self.memory {
            let name = match memory.place.version {
                1 => "memory.limit_in_bytes",
                _ => "memory.max",
            };
            memory.limit = memory
                .place
                .ancestors()
                .filter_map(|directory| {
                    read_once(directory.join(name), Shape::Whole, buffer)
                        .and_then(cgroup::memory_limit)?
                })
                .min();
        }
        let cpus = cpus(self.cpuset.as_ref(), buffer)
            .or_else(|| {
                let status = format!("proc/{}/status", self.tasks.member()?);
                read_once(under(&self.root, status), Shape::Whole, buffer)
                    .and_then(process::cpus_allowed)
            })
            .or_else(|| {
                let online = under(&self.root, "sys/devices/system/cpu/online");
                read_once(online, Shape::Whole, buffer).and_then(cpu::cpu_list)
            });
        context.record.cores_milli = cpus.unwrap_or(0).saturating_mul(1000);
    }

    fn memory(&mut self, context: &mut Context<'_>) {
        let Some(files) = &mut self.memory else {
            context.missing(
                Sources::MEMORY,
                "the memory controller does not hold the group",
            );
            return;
        };
        let Some(used) = files
            .usage
            .read(context.now, context.buffer)
            .and_then(single)
        else {
            let file = &files.usage;
            context
                .findings
                .missing(Sources::MEMORY, || file.why_not().into());
            return;
        };
        let cache = files
            .stat
            .read(context.now, context.buffer)
            .and_then(|stat| match keyed(stat, b"total_inactive_file") {
                Some(bytes) => Some(bytes),
                None => keyed(stat, b"inactive_file"),
            })
            .unwrap_or(0);
        let machine = files
            .machine
            .read(context.now, context.buffer)
            .and_then(system::meminfo);
        match room(files.limit, used.saturating_sub(cache), machine) {
            Some(memory) => {
                context.record.memory_total = memory.total;
                context.record.memory_available = memory.available;
                context.findings.measured(
                    Sources::MEMORY,
                    "against the smallest limit of the group and its ancestors",
                );
            }
            None => {
                let file = &files.machine;
                context
                    .findings
                    .missing(Sources::MEMORY, || file.why_not().into());
            }
        }
    }

    fn count(&mut self, context: &mut Context<'_>) {
        let count = self
            .task_count
            .as_mut()
            .and_then(|file| file.read(context.now, context.buffer))
            .and_then(single);
        context.record.tasks = count.map_or_else(|| self.tasks.count(), saturated);
    }
}

/// What the group may use and what is left of it.
fn room(limit: Option<u64>, used: u64, machine: Option<Memory>) -> Option<Memory> {
    let total = match (limit, machine) {
        (Some(limit), Some(machine)) => limit.min(machine.total),
        (Some(limit), None) => limit,
        (None, Some(machine)) => machine.total,
        (None, None) => return None,
    };
    let left = total.saturating_sub(used);
    Some(Memory {
        total,
        available: machine.map_or(left, |machine| left.min(machine.available)),
    })
}

fn quota(version: u8, directory: &Path, buffer: &mut Buffer) -> Option<u32> {
    if version == 2 {
        return read_once(directory.join("cpu.max"), Shape::Whole, buffer)
            .and_then(cgroup::quota_v2);
    }
    // The buffer holds one file at a time, and a quota is a short word.
    let mut quota = [0; 24];
    let bytes = read_once(directory.join("cpu.cfs_quota_us"), Shape::Whole, buffer)?;
    let length = bytes.len();
    quota.get_mut(..length)?.copy_from_slice(bytes);
    let period = read_once(directory.join("cpu.cfs_period_us"), Shape::Whole, buffer)?;
    cgroup::quota_v1(&quota[..length], period)
}

/// How many CPUs the cpuset leaves, from the nearest ancestor that says.
fn cpus(cpuset: Option<&Place>, buffer: &mut Buffer) -> Option<u32> {
    let place = cpuset?;
    let name = OsStr::new(match place.version {
        1 => "cpuset.effective_cpus",
        _ => "cpuset.cpus.effective",
    });
    place.ancestors().find_map(|directory| {
        read_once(directory.join(name), Shape::Whole, buffer).and_then(cpu::cpu_list)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_the_smaller_of_limit_and_machine() {
        let machine = Memory {
            total: 1000,
            available: 300,
        };
        let room = |limit, used, machine| {
            room(limit, used, machine).map(|memory| (memory.total, memory.available))
        };
        assert_eq!(room(Some(500), 100, Some(machine)), Some((500, 300)));
        assert_eq!(room(Some(500), 450, Some(machine)), Some((500, 50)));
        assert_eq!(room(Some(500), 600, Some(machine)), Some((500, 0)));
        assert_eq!(room(None, 100, Some(machine)), Some((1000, 300)));
        assert_eq!(room(Some(500), 100, None), Some((500, 400)));
        assert_eq!(room(None, 100, None), None);
    }
}
