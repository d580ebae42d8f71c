//! Control groups of the running kernel: made, filled with a busy process, and removed.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tidegate_core::record::{LoadRecord, Sources};
use tidegate_node::{Sampler, SamplerConfig, Scope};
use tidegate_remote::clock;

/// After this long something is stuck.
const PATIENCE: Duration = Duration::from_secs(60);
const MEMORY_LIMIT: u64 = 256 << 20;

/// Mount points of version 1 controllers and of version 2.
fn mounts() -> Vec<(String, PathBuf)> {
    let text = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    text.lines()
        .filter_map(|line| {
            let (head, tail) = line.split_once(" - ")?;
            let mount = PathBuf::from(head.split(' ').nth(4)?);
            match tail.split(' ').next()? {
                "cgroup" => Some((tail.split(' ').nth(2)?.to_owned(), mount)),
                "cgroup2" => Some(("cgroup2".to_owned(), mount)),
                _ => None,
            }
        })
        .collect()
}

/// A group in some hierarchies, and processes in it that never rest.
struct Group {
    name: String,
    directories: Vec<PathBuf>,
    children: Vec<Child>,
}

impl Group {
    fn make(test: &str, mounts: &[PathBuf]) -> Result<Self, String> {
        let name = format!("tidegate-{test}-{}", std::process::id());
        let mut group = Self {
            name,
            directories: Vec::new(),
            children: Vec::new(),
        };
        for mount in mounts {
            let directory = mount.join(&group.name);
            std::fs::create_dir(&directory)
                .map_err(|error| format!("make {}: {error}", directory.display()))?;
            group.directories.push(directory);
        }
        Ok(group)
    }

    fn write(&self, file: &str, text: &str) -> Result<(), String> {
        let holder = self.directories.iter().find(|at| at.join(file).exists());
        let path = holder.ok_or(format!("no {file}"))?.join(file);
        std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
    }

    fn fill(&mut self) -> Result<(), String> {
        let enter: String = self
            .directories
            .iter()
            .map(|at| format!("echo $$ > {}/cgroup.procs && ", at.display()))
            .collect();
        let mut child = Command::new("sh")
            .arg("-c")
            .arg(format!("{enter} echo ready && while :; do :; done"))
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| error.to_string())?;
        let mut line = String::new();
        let stdout = child.stdout.take().ok_or("no output")?;
        self.children.push(child);
        BufReader::new(stdout)
            .read_line(&mut line)
            .map_err(|error| error.to_string())?;
        if line == "ready\n" {
            Ok(())
        } else {
            Err("the process could not enter the group".to_owned())
        }
    }

    fn empty(&mut self) {
        for mut child in self.children.drain(..) {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        for directory in self.directories.drain(..) {
            std::fs::remove_dir(&directory).unwrap();
        }
    }

    fn sampler(&self) -> Sampler {
        self.sampler_each(SamplerConfig::default().interval)
    }

    fn sampler_each(&self, interval: Duration) -> Sampler {
        let config = SamplerConfig {
            scope: Scope::Cgroup(Path::new("/").join(&self.name)),
            interval,
            ..SamplerConfig::default()
        };
        Sampler::new(config).unwrap()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.empty();
    }
}

#[track_caller]
fn sample_until(sampler: &mut Sampler, enough: impl Fn(&LoadRecord) -> bool) -> LoadRecord {
    let deadline = clock::now() + PATIENCE;
    loop {
        let (record, _) = sampler.sample();
        if enough(&record) {
            return record;
        }
        let why = sampler.why().join("\n");
        assert!(clock::now() < deadline, "stuck at {record:?}\n{why}");
    }
}

fn busy_group_reports_itself(mut group: Group, version: u8, limited: bool) {
    let mut sampler = group.sampler();
    let (first, _) = sampler.sample();
    assert_eq!(first.scope, version);
    assert!(first.sources.has(Sources::BUSY_ACCT));
    assert!(!first.sources.has(Sources::NETWORK));
    assert!(first.cores_milli >= 1000);
    // Some CPU time and, at a tenth of a CPU, some throttling, on a crowded machine too.
    let queue = Sources::RUNNABLE.with(Sources::RUNNABLE_INTEGRAL);
    let last = sample_until(&mut sampler, |record| {
        record.sources.has(queue)
            && record.busy_ns >= first.busy_ns + 50_000_000
            && record.runnable >= 1
            && record.runnable_ns >= first.runnable_ns + 20_000_000
            && (!limited || record.throttled_ns > first.throttled_ns)
    });
    if limited {
        assert!(last.sources.has(Sources::QUOTA.with(Sources::MEMORY)));
        assert_eq!(last.quota_milli, 100);
        assert_eq!(last.memory_total, MEMORY_LIMIT);
        assert!(last.memory_available > 0);
        assert!(last.tasks >= 1);
    }
    group.empty();
    let (gone, _) = sampler.sample();
    assert!(!gone.sources.has(Sources::BUSY_ACCT));
    assert_eq!(gone.generation, first.generation);
    assert!(gone.busy_ns >= last.busy_ns);
}

/// A thread that comes while the group is being sampled is seen soon: version 1 would give an
/// open list of threads without it for ever.
fn newcomers_are_seen(mut group: Group) {
    let mut sampler = group.sampler();
    let measured = |record: &LoadRecord| record.sources.has(Sources::RUNNABLE);
    let (first, _) = sampler.sample();
    assert_eq!(first.runnable, 0);
    // Sampled without a pause while the process comes.
    std::thread::scope(|scope| {
        let seen =
            scope.spawn(|| sample_until(&mut sampler, |it| measured(it) && it.runnable >= 1));
        group.fill().unwrap();
        seen.join().unwrap();
    });
}

#[test]
fn a_process_that_comes_later_is_seen() {
    // `newcomers_are_seen` asserts, for each version that is here.
    for (version, places) in [(1, version_1()), (2, version_2())] {
        if places.is_empty() {
            println!("SKIPPED version {version}: no such hierarchy is mounted");
            continue;
        }
        match Group::make(&format!("late-v{version}"), &places) {
            Ok(group) => newcomers_are_seen(group),
            Err(why) => println!("SKIPPED version {version}: no group can be made: {why}"),
        }
    }
}

fn limits_of(group: &Group, version: u8) -> Result<(), String> {
    let limit = MEMORY_LIMIT.to_string();
    if version == 1 {
        group.write("cpu.cfs_period_us", "20000")?;
        group.write("cpu.cfs_quota_us", "2000")?;
        group.write("memory.limit_in_bytes", &limit)
    } else {
        group.write("cpu.max", "2000 20000")?;
        group.write("memory.max", &limit)
    }
}

/// Version 1 hierarchies of use.
fn version_1() -> Vec<PathBuf> {
    let wanted = ["cpu", "cpuacct", "memory", "pids"];
    mounts()
        .into_iter()
        .filter(|(options, _)| options.split(',').any(|option| wanted.contains(&option)))
        .map(|(_, mount)| mount)
        .collect()
}

/// The version 2 hierarchy.
fn version_2() -> Vec<PathBuf> {
    let found = mounts().into_iter().find(|(kind, _)| kind == "cgroup2");
    found.map(|(_, mount)| mount).into_iter().collect()
}

#[test]
fn a_busy_version_1_group_reports_itself() {
    // `busy_group_reports_itself` asserts.
    let places = version_1();
    if places.is_empty() {
        println!("SKIPPED: no version 1 hierarchy is mounted");
        return;
    }
    let made = Group::make("v1", &places).and_then(|mut group| {
        limits_of(&group, 1)?;
        group.fill()?;
        Ok(group)
    });
    match made {
        Ok(group) => busy_group_reports_itself(group, 1, true),
        Err(why) => println!("SKIPPED: no version 1 group can be made: {why}"),
    }
}

#[test]
fn a_busy_version_2_group_reports_itself() {
    // `busy_group_reports_itself` asserts.
    let places = version_2();
    if places.is_empty() {
        println!("SKIPPED: no version 2 hierarchy is mounted");
        return;
    }
    let made = Group::make("v2", &places).and_then(|mut group| {
        let limited = limits_of(&group, 2);
        group.fill()?;
        Ok((group, limited))
    });
    match made {
        Ok((group, limited)) => {
            if let Err(why) = &limited {
                println!("SKIPPED: limits of a version 2 group: {why}");
            }
            busy_group_reports_itself(group, 2, limited.is_ok());
        }
        Err(why) => println!("SKIPPED: no version 2 group can be made: {why}"),
    }
}

/// Three processes, and a hundredth of a CPU: they wait for it nearly always.
fn held_group() -> Result<Group, String> {
    let version = if version_1().is_empty() { 2 } else { 1 };
    let places = if version == 1 {
        version_1()
    } else {
        version_2()
    };
    let mut group = Group::make("held", &places)?;
    for _ in 0..3 {
        group.fill()?;
    }
    if version == 1 {
        group.write("cpu.cfs_period_us", "100000")?;
        group.write("cpu.cfs_quota_us", "1000")?;
    } else {
        group.write("cpu.max", "1000 100000")?;
    }
    Ok(group)
}

/// A quota takes threads off the run queue in newer kernels; they wait for a CPU all the same.
#[test]
fn threads_that_wait_for_the_groups_quota_are_runnable() {
    const READS: usize = 200;
    let group = match held_group() {
        Ok(group) => group,
        Err(why) => {
            println!("SKIPPED: no group with a quota can be made: {why}");
            return;
        }
    };
    // By the threads' states, and by their run and waiting times.
    for interval in [1, 10].map(Duration::from_millis) {
        let mut sampler = group.sampler_each(interval);
        let queue = Sources::RUNNABLE.with(Sources::RUNNABLE_INTEGRAL);
        let first = sample_until(&mut sampler, |record| {
            record.sources.has(queue) && record.tasks >= 3 && record.throttled_ns > 0
        });
        let mut next = clock::now();
        let records: Vec<_> = (0..READS)
            .map(|_| {
                next = next + Duration::from_millis(5);
                clock::sleep_until(next);
                sampler.sample().0
            })
            .collect();
        let last = records.last().unwrap();
        let mut seen: Vec<_> = records.iter().map(|record| record.runnable).collect();
        seen.sort_unstable();
        let grown = (last.runnable_ns - first.runnable_ns) as f64;
        let mean = grown / (last.t_ns - first.t_ns) as f64;
        println!(
            "each {interval:?}: median {}, mean by the integral {mean:.2}",
            seen[READS / 2]
        );
        assert!(seen[READS / 2] >= 2, "{seen:?}");
        assert!(mean >= 2.0, "{mean} {:#?}", sampler.why());
    }
}
