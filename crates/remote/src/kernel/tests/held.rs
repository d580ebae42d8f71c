//! Tasks that their group's quota holds back wait for a CPU as others do: they are counted.
//! From Linux 6.18 on they leave the run queue meanwhile, before they stayed in it.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use super::*;
use crate::clock;

const SPINNERS: u32 = 3;
/// A hundredth of a CPU: they are held back nearly always.
const QUOTA_US: u32 = 1000;
const PERIOD_US: u32 = 100_000;
/// Reads and the time between two: ten periods, and at no fixed place of them.
const READS: usize = 200;
const PACE: Duration = Duration::from_millis(5);
const PATIENCE: Duration = Duration::from_secs(30);

/// A group with that quota, and processes in it that never rest.
struct Group {
    version: u8,
    directory: PathBuf,
    spinners: Vec<Child>,
}

impl Group {
    /// Or why there is none.
    fn make() -> Result<Self, String> {
        let (version, mount) = cpu_hierarchy()?;
        let write = |path: PathBuf, text: &str| {
            fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
        };
        if version == 2 {
            write(mount.join("cgroup.subtree_control"), "+cpu")?;
        }
        let directory = mount.join(format!("tidegate-held-{}", std::process::id()));
        fs::create_dir(&directory)
            .map_err(|error| format!("make {}: {error}", directory.display()))?;
        let group = Self {
            version,
            directory,
            spinners: Vec::new(),
        };
        let limits = if version == 1 {
            vec![
                ("cpu.cfs_period_us", PERIOD_US.to_string()),
                ("cpu.cfs_quota_us", QUOTA_US.to_string()),
            ]
        } else {
            vec![("cpu.max", format!("{QUOTA_US} {PERIOD_US}"))]
        };
        for (file, text) in limits {
            write(group.directory.join(file), &text)?;
        }
        Ok(group)
    }

    fn spin(&mut self) {
        for _ in 0..SPINNERS {
            let child = Command::new("sh")
                .args(["-c", "while :; do :; done"])
                .stdin(Stdio::null())
                .spawn()
                .expect("a shell");
            let id = child.id().to_string();
            self.spinners.push(child);
            fs::write(self.directory.join("cgroup.procs"), id).expect("it may join");
        }
    }

    fn stop(&mut self) {
        // All at once: a task that is left would take the quota that the killed need to end.
        for child in &mut self.spinners {
            child.kill().expect("a process of ours");
        }
        for mut child in self.spinners.drain(..) {
            child.wait().expect("a process of ours");
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.stop();
        // What was left would be empty, and in no other's way.
        fs::remove_dir(&self.directory).ok();
    }
}

/// Version and mount of the hierarchy that has the cpu controller.
fn cpu_hierarchy() -> Result<(u8, PathBuf), String> {
    let text = fs::read_to_string("/proc/self/mountinfo").map_err(|error| error.to_string())?;
    let mut found = text.lines().filter_map(|line| {
        let (head, tail) = line.split_once(" - ")?;
        let mount = PathBuf::from(head.split(' ').nth(4)?);
        let mut tail = tail.split(' ');
        let kind = tail.next()?;
        let (version, controllers) = match kind {
            "cgroup" => (1, tail.nth(1)?.to_owned()),
            "cgroup2" => {
                let text = fs::read_to_string(mount.join("cgroup.controllers")).ok()?;
                (2, text.trim().replace(' ', ","))
            }
            _ => return None,
        };
        let cpu = controllers.split(',').any(|name| name == "cpu");
        cpu.then_some((version, mount))
    });
    found
        .next()
        .ok_or_else(|| "no hierarchy with the cpu controller is mounted".to_owned())
}

fn record(bench: &Bench) -> LoadRecord {
    let (_, bytes) = bench.ask(PLAIN, &read(AGGREGATE_LINES));
    LoadRecord::decode(&bytes).expect("a record")
}

#[track_caller]
fn record_until(bench: &Bench, enough: impl Fn(&LoadRecord) -> bool) -> LoadRecord {
    let deadline = clock::now() + PATIENCE;
    loop {
        let record = record(bench);
        if enough(&record) {
            return record;
        }
        assert!(clock::now() < deadline, "stuck at {record:?}");
    }
}

#[test]
fn tasks_that_wait_for_their_groups_quota_are_counted() {
    let mut group = match Group::make() {
        Ok(group) => group,
        Err(why) => return skip(&format!("no group with a quota: {why}")),
    };
    let scope = KernelScope::Group {
        version: group.version,
        directory: group.directory.clone(),
    };
    let Some(bench) = Bench::new(|options| options.scope = scope) else {
        return;
    };
    assert_eq!(record(&bench).quota_milli, 10);
    group.spin();
    // Reported when they go on again; with a debt of some ticks that is several periods later.
    let first = record_until(&bench, |record| record.throttled_ns > 0);
    let mut next = clock::now();
    let records: Vec<_> = (0..READS)
        .map(|_| {
            next = next + PACE;
            clock::sleep_until(next);
            record(&bench)
        })
        .collect();
    let last = records.last().expect("reads");
    let mut seen: Vec<_> = records.iter().map(|record| record.runnable).collect();
    seen.sort_unstable();
    let grown = (last.runnable_ns - first.runnable_ns) as f64;
    let mean = grown / (last.t_ns - first.t_ns) as f64;
    println!(
        "runnable: least {}, median {}, most {}, mean by the integral {mean:.2}",
        seen[0],
        seen[READS / 2],
        seen[READS - 1]
    );
    assert!(seen[READS / 2] >= SPINNERS - 1, "{seen:?}");
    assert!(mean >= f64::from(SPINNERS - 1), "{mean} {seen:?}");
    group.stop();
    record_until(&bench, |record| record.runnable == 0);
}
