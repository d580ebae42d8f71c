//! Control groups: a CPU quota for a node, its CPU time, and a grip on all its processes.
//!
//! ```text
//!                        version 1 (and hybrid)           pure version 2
//! quota                  cpu.cfs_quota_us, _period_us     cpu.max
//! CPU time               cpuacct.usage                    cpu.stat: usage_usec
//! memory                 memory.limit_in_bytes            memory.max
//! killing everything     cgroup.kill of a version 2       cgroup.kill
//!                        group beside it, else one by one
//! ```
//!
//! On a hybrid host a group has one directory in each hierarchy that is of use here, all of the
//! same name and directly below the mount, so that an agent finds all of them by that name.
//!
//! **Period.** [`PERIOD_US`] is 10 ms: with the kernel's default of 100 ms a node of a tenth of a
//! CPU would stand still for 90 ms after each 10 ms of work, and every latency would be that.
//! The kernel accepts no quota below 1 ms, so nodes below a tenth of a CPU get a longer period.
//! Bandwidth is charged at the scheduler's tick (4 ms at 250 Hz): a node may overdraw by a tick
//! and stands still until it has paid, so shares are exact over some tens of milliseconds.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tidegate_core::time::Timestamp;
use tidegate_remote::clock;

use super::ClusterError;

/// Between two refills of a node's CPU quota, microseconds; see the module.
pub const PERIOD_US: u64 = 10_000;
/// The kernel accepts no quota below this, microseconds.
const QUOTA_MIN_US: u64 = 1_000;
/// The kernel accepts no period above this, microseconds.
const PERIOD_MAX_US: u64 = 1_000_000;
/// How long killed processes may take to be gone.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two looks whether they are.
const LOOK: Duration = Duration::from_millis(2);

/// A share of one CPU as the kernel takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Quota {
    pub(crate) quota_us: u64,
    pub(crate) period_us: u64,
}

impl Quota {
    /// The quota nearest to this share of one CPU.
    pub(crate) fn of(share: f64) -> Result<Self, ClusterError> {
        let smallest = QUOTA_MIN_US as f64 / PERIOD_MAX_US as f64;
        if !(smallest..=1024.0).contains(&share) {
            return Err(ClusterError::Plan(format!(
                "a share of {share} CPUs is not between {smallest} and 1024"
            )));
        }
        let longer = (QUOTA_MIN_US as f64 / share).ceil() as u64;
        let period_us = PERIOD_US.max(longer).min(PERIOD_MAX_US);
        let quota_us = (share * period_us as f64).round() as u64;
        Ok(Self {
            quota_us: quota_us.max(QUOTA_MIN_US),
            period_us,
        })
    }
}

/// One hierarchy that groups are made in.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    version: u8,
    /// Of version 1, those that are mounted together.
    controllers: String,
    mount: PathBuf,
}

impl Place {
    fn has(&self, controller: &str) -> bool {
        self.controllers.split(',').any(|name| name == controller)
    }
}

/// The hierarchies of this machine that are of use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tree {
    places: Vec<Place>,
}

/// What a group is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Quota and accounting.
    Node,
    /// Accounting alone. Outside version 1's cpu hierarchy, because there a group below the
    /// root has no real-time budget and a real-time agent could not start.
    Watch,
}

impl Tree {
    /// The hierarchies as `/proc/self/mountinfo` has them; why no quota is possible.
    pub(crate) fn find() -> Result<Self, String> {
        let path = "/proc/self/mountinfo";
        let mountinfo = fs::read(path).map_err(|error| format!("{path}: {error}"))?;
        Self::of(&mountinfo, Path::new("/"))
    }

    /// The same with all mounts below `root`.
    fn of(mountinfo: &[u8], root: &Path) -> Result<Self, String> {
        let places: Vec<_> = tidegate_node::hierarchies(mountinfo)
            .into_iter()
            .map(|found| {
                let inside = found.mount.strip_prefix("/").unwrap_or(&found.mount);
                let mount = root.join(inside);
                let controllers = if found.version == 2 {
                    read(&mount.join("cgroup.controllers")).replace(' ', ",")
                } else {
                    String::from_utf8_lossy(&found.controllers).into_owned()
                };
                Place {
                    version: found.version,
                    controllers,
                    mount,
                }
            })
            .collect();
        let wanted = ["cpu", "cpuacct", "memory"];
        let of_use = |place: &Place| place.version == 2 || wanted.iter().any(|it| place.has(it));
        let places: Vec<_> = places.into_iter().filter(of_use).collect();
        if !places.iter().any(|place| place.has("cpu")) {
            return Err("no mounted control group hierarchy has the cpu controller".into());
        }
        Ok(Self { places })
    }

    /// Where the groups of all processes are found.
    pub(crate) fn mounts(&self) -> impl Iterator<Item = &Path> {
        self.places.iter().map(|place| place.mount.as_path())
    }

    /// Makes a group. What was made before a failure stays, to be swept by its name.
    pub(crate) fn make(&self, name: &str, purpose: Purpose) -> Result<Group, ClusterError> {
        let mut directories = Vec::new();
        for place in &self.places {
            if purpose == Purpose::Watch && place.version == 1 && place.has("cpu") {
                continue;
            }
            if place.version == 2 && place.has("cpu") {
                delegate(place)?;
            }
            let path = place.mount.join(name);
            fs::create_dir(&path).map_err(ClusterError::file("make", &path))?;
            directories.push(path);
        }
        Ok(Group {
            name: name.to_owned(),
            directories,
        })
    }
}

/// Lets groups below the mount have limits: on most systems they can already.
fn delegate(place: &Place) -> Result<(), ClusterError> {
    let control = place.mount.join("cgroup.subtree_control");
    let delegated = read(&control);
    for controller in ["cpu", "memory"] {
        let is_there = delegated.split(' ').any(|name| name == controller);
        if place.has(controller) && !is_there {
            let text = format!("+{controller}");
            fs::write(&control, text).map_err(ClusterError::file("delegate by", &control))?;
        }
    }
    Ok(())
}

/// A control group, in all hierarchies at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    name: String,
    directories: Vec<PathBuf>,
}

impl Group {
    /// Its path below every mount, as `/proc/PID/cgroup` has it.
    pub(crate) fn scope(&self) -> String {
        format!("/{}", self.name)
    }

    /// A process that writes its number into all of these is in the group.
    pub(crate) fn doors(&self) -> impl Iterator<Item = PathBuf> {
        self.directories
            .iter()
            .map(|path| path.join("cgroup.procs"))
    }

    /// Limits CPU time to this share of one CPU, or not at all.
    pub(crate) fn limit(&self, share: Option<f64>) -> Result<(), ClusterError> {
        let quota = share.map(Quota::of).transpose()?;
        if let Ok(quota_file) = self.file("cpu.cfs_quota_us") {
            let period_file = quota_file.with_file_name("cpu.cfs_period_us");
            // Without a quota any period will do; with the old one it might be refused.
            write(&quota_file, "-1")?;
            let Some(Quota {
                quota_us,
                period_us,
            }) = quota
            else {
                return Ok(());
            };
            write(&period_file, &period_us.to_string())?;
            return write(&quota_file, &quota_us.to_string());
        }
        let text = quota.map_or(
            "max".to_owned(),
            |Quota {
                 quota_us,
                 period_us,
             }| { format!("{quota_us} {period_us}") },
        );
        write(&self.file("cpu.max")?, &text)
    }

    /// Limits memory; whether this machine can.
    pub(crate) fn limit_memory(&self, bytes: u64) -> Result<bool, ClusterError> {
        let names = ["memory.limit_in_bytes", "memory.max"];
        let mut files = names.iter().filter_map(|name| self.file(name).ok());
        let Some(file) = files.next() else {
            return Ok(false);
        };
        write(&file, &bytes.to_string())?;
        Ok(true)
    }

    /// CPU time of all processes that were in it.
    pub(crate) fn cpu_time(&self) -> Result<Duration, ClusterError> {
        if let Ok(usage) = self.file("cpuacct.usage") {
            return number(&usage, &read(&usage)).map(Duration::from_nanos);
        }
        let path = self.file("cpu.stat")?;
        let text = read(&path);
        let usage = text
            .lines()
            .find_map(|line| line.strip_prefix("usage_usec "));
        number(&path, usage.unwrap_or_default()).map(Duration::from_micros)
    }

    /// Processes in it.
    pub(crate) fn members(&self) -> Vec<u32> {
        let first = self.directories.first();
        first.map(|it| processes(it)).unwrap_or_default()
    }

    /// The file, in whichever hierarchy it is.
    fn file(&self, name: &str) -> Result<PathBuf, ClusterError> {
        let mut files = self.directories.iter().map(|path| path.join(name));
        files.find(|file| file.exists()).ok_or_else(|| {
            ClusterError::Missing(format!("the control group {} has no {name}", self.name))
        })
    }
}

/// Processes of the group in this directory.
pub(crate) fn processes(directory: &Path) -> Vec<u32> {
    let text = read(&directory.join("cgroup.procs"));
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

/// Kills what is in the group and removes its directory, groups below it first.
pub(crate) fn remove(directory: &Path) -> io::Result<()> {
    for below in below(directory) {
        remove(&below)?;
    }
    let deadline = clock::now() + PATIENCE;
    loop {
        kill(directory);
        match fs::remove_dir(directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) if clock::now() < deadline && error.raw_os_error() == Some(EBUSY) => {
                look_again();
            }
            ended => return ended,
        }
    }
}

const EBUSY: i32 = rustix::io::Errno::BUSY.raw_os_error();

/// Kills what is in the group now: all at once where the kernel can.
fn kill(directory: &Path) {
    // An old kernel, or version 1: no such file.
    if fs::write(directory.join("cgroup.kill"), "1").is_ok() {
        return;
    }
    for process in processes(directory) {
        kill_one(process);
    }
}

/// Kills a process that may have ended meanwhile.
pub(crate) fn kill_one(process: u32) {
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw);
    if let Some(pid) = pid {
        // It may have ended by itself.
        kill_process(pid, Signal::KILL).ok();
    }
}

/// Waits a little: not every kernel reports when a group becomes empty.
pub(crate) fn look_again() {
    clock::sleep_until(clock::now() + LOOK);
}

/// Whether there is time left for another look.
pub(crate) fn in_time(since: Timestamp) -> bool {
    clock::now().since(since) < PATIENCE
}

fn below(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.map(|entry| entry.path()).collect()
}

/// The file's text without the last line's end; nothing if there is no such file.
fn read(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.trim_end().to_owned()
}

fn write(path: &Path, text: &str) -> Result<(), ClusterError> {
    fs::write(path, text).map_err(ClusterError::file("write", path))
}

fn number(path: &Path, text: &str) -> Result<u64, ClusterError> {
    text.trim()
        .parse()
        .map_err(|_| ClusterError::Missing(format!("{}: `{text}` is not a number", path.display())))
}

#[cfg(test)]
#[path = "group_tests.rs"]
mod tests;
