//! Watched processes: open files against the limit of each.
//!
//! The system's limit of open files is in the millions today, while a server process gets
//! `EMFILE` at its own `RLIMIT_NOFILE`, so the record carries the watched process that is
//! nearest to its limit. Processes are found by name again and again, a few per sample, because
//! a walk over all of them would hold the sampler up.

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tidegate_core::record::Sources;

use super::Context;
use crate::config::SamplerConfig;
use crate::file::{Buffer, Shape, read_once, under};
use crate::pace::Pace;
use crate::parse::{number32, process, saturated};

/// A new walk over all processes begins this often.
const WALK_PERIOD: Duration = Duration::from_secs(1);
/// Open files are counted this often, or as often as that costs little: a limit that is reached is acted on within 20 ms.
const COUNT_PERIOD: Duration = Duration::from_millis(5);
/// Processes looked at per millisecond of the interval, at least.
const STEP: usize = 4;
/// Most processes that are walked over.
const PROCESSES_MAX: usize = 65_536;
/// Most processes that are watched.
const WATCHED_MAX: usize = 256;
/// Most open files of a process that are counted one by one (kernels before 6.2).
const FILES_MAX: usize = 65_536;
/// `/proc/PID/comm` holds no more of a name.
const NAME_BYTES: usize = 15;
/// `f_type` of procfs.
const PROC_SUPER_MAGIC: rustix::fs::FsWord = 0x9fa0;

struct Watched {
    process: u32,
    files: PathBuf,
    max: u32,
}

pub(super) struct OpenFilesWatch {
    root: PathBuf,
    names: Vec<Vec<u8>>,
    pid_files: Vec<PathBuf>,
    walk_pace: Pace,
    count_pace: Pace,
    /// Processes that the present walk has still to look at.
    ahead: Vec<u32>,
    /// Whether `/proc` is the kernel's, so that a directory's size may be a count.
    kernels: bool,
    found: Vec<Watched>,
    watched: Vec<Watched>,
    walked: bool,
}

impl OpenFilesWatch {
    pub(super) fn new(config: &SamplerConfig) -> Self {
        let (pid_files, names): (Vec<_>, Vec<_>) =
            config.watch.iter().partition(|name| name.contains('/'));
        let short = |name: &&String| {
            let name = name.as_bytes();
            name[..name.len().min(NAME_BYTES)].to_vec()
        };
        Self {
            root: config.root.clone(),
            names: names.iter().map(short).collect(),
            pid_files: pid_files
                .iter()
                .map(|path| under(&config.root, path))
                .collect(),
            walk_pace: Pace::new(WALK_PERIOD, 0),
            count_pace: Pace::new(COUNT_PERIOD, 11),
            ahead: Vec::new(),
            kernels: rustix::fs::statfs(under(&config.root, "proc"))
                .is_ok_and(|system| system.f_type == PROC_SUPER_MAGIC),
            found: Vec::new(),
            watched: Vec::new(),
            walked: false,
        }
    }

    pub(super) fn sample(&mut self, context: &mut Context<'_>) {
        if self.names.is_empty() && self.pid_files.is_empty() {
            context.missing(Sources::PROCESS_FILES, "no process is watched");
            return;
        }
        self.walk(context);
        if !self.walked {
            return;
        }
        if let Some(turn) = self.count_pace.begin(context.now) {
            self.count(context);
            self.count_pace.end(turn);
        }
    }

    /// Begins a walk, or goes on with it.
    fn walk(&mut self, context: &mut Context<'_>) {
        if self.ahead.is_empty() {
            let Some(turn) = self.walk_pace.begin(context.now) else {
                return;
            };
            self.found.clear();
            for index in 0..self.pid_files.len() {
                let path = self.pid_files[index].clone();
                let process =
                    read_once(path, Shape::Whole, context.buffer).and_then(process::pid_file);
                if let Some(process) = process {
                    self.find(process, context.buffer);
                }
            }
            if !self.names.is_empty() {
                self.ahead = processes(&self.root);
            }
            self.walk_pace.end(turn);
        }
        let millis = usize::try_from(context.interval.as_millis()).unwrap_or(PROCESSES_MAX);
        for _ in 0..millis.clamp(1, PROCESSES_MAX / STEP) * STEP {
            let Some(process) = self.ahead.pop() else {
                break;
            };
            let comm = under(&self.root, format!("proc/{process}/comm"));
            let name = read_once(comm, Shape::Whole, context.buffer).unwrap_or_default();
            let name = name.strip_suffix(b"\n").unwrap_or(name);
            if self.names.iter().any(|watched| watched == name) {
                self.find(process, context.buffer);
            }
        }
        if self.ahead.is_empty() {
            std::mem::swap(&mut self.watched, &mut self.found);
            self.walked = true;
        }
    }

    fn find(&mut self, process: u32, buffer: &mut Buffer) {
        if self.found.len() >= WATCHED_MAX {
            return;
        }
        let directory = under(&self.root, format!("proc/{process}"));
        let max =
            read_once(directory.join("limits"), Shape::Whole, buffer).and_then(process::files_max);
        if let Some(max) = max {
            self.found.push(Watched {
                process,
                files: directory.join("fd"),
                max,
            });
        }
    }

    fn count(&mut self, context: &mut Context<'_>) {
        let mut worst: Option<(u32, &Watched)> = None;
        for watched in &self.watched {
            let Some(open) = open_files(&watched.files, self.kernels) else {
                continue;
            };
            // a/b < c/d without dividing.
            let fuller = worst.is_none_or(|(most, than)| {
                u64::from(open) * u64::from(than.max) > u64::from(most) * u64::from(watched.max)
            });
            if fuller {
                worst = Some((open, watched));
            }
        }
        match worst {
            Some((open, watched)) => {
                context.record.process_files_open = open;
                context.record.process_files_max = watched.max;
                context.record.process_id = watched.process;
                context.findings.measured(
                    Sources::PROCESS_FILES,
                    "from /proc/PID/fd and limits, the watched process nearest to its limit",
                );
            }
            None => context.missing(
                Sources::PROCESS_FILES,
                "no watched process runs, or its files may not be seen",
            ),
        }
    }
}

/// Open files of a process. Since 6.2 the kernel gives the count as the directory's size.
fn open_files(directory: &Path, kernels: bool) -> Option<u32> {
    let size = rustix::fs::stat(directory).ok()?.st_size;
    match u64::try_from(size) {
        Ok(count) if count > 0 && kernels => Some(saturated(count)),
        _ => {
            let entries = std::fs::read_dir(directory).ok()?;
            Some(saturated(entries.take(FILES_MAX).count() as u64))
        }
    }
}

/// What `/proc/PID/comm` keeps of a process's name.
pub fn short_name(name: &str) -> &str {
    &name[..name.floor_char_boundary(NAME_BYTES)]
}

/// Names of the processes that run now, as they are watched.
pub fn process_names(root: &Path) -> BTreeSet<String> {
    let name = |process| {
        let comm = std::fs::read_to_string(under(root, format!("proc/{process}/comm")));
        Some(comm.ok()?.trim_end_matches('\n').to_owned())
    };
    processes(root).into_iter().filter_map(name).collect()
}

/// All processes, as far as they are walked over.
fn processes(root: &Path) -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir(under(root, "proc")) else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| number32(entry.ok()?.file_name().as_bytes()))
        .take(PROCESSES_MAX)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_processes_are_walked_over_and_open_files_counted_and_no_more() {
        let root = Path::new("/dev/shm").join(format!("tidegate-watch-{}", std::process::id()));
        let folder = root.join("proc");
        std::fs::create_dir_all(&folder).unwrap();
        let there =
            |number: u32| drop(std::fs::File::create(folder.join(number.to_string())).unwrap());
        (1..65_536).for_each(there);
        let counted = || (processes(&root).len(), open_files(&folder, false));
        assert_eq!(counted(), (65_535, Some(65_535)));
        there(65_536);
        assert_eq!(counted(), (65_536, Some(65_536)));
        there(65_537);
        assert_eq!(counted(), (65_536, Some(65_536)));
        std::fs::remove_dir_all(&root).unwrap();
    }
}
