//! The sampler over files as kernels of several ages write them.

use std::path::{Path, PathBuf};

use super::*;

/// A tick of `/proc/stat`, whatever the kernel's own timer does.
const TICK_NS: u64 = 10_000_000;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(name)
}

fn config(name: &str, scope: Scope) -> SamplerConfig {
    SamplerConfig {
        root: fixture(name),
        scope,
        ..SamplerConfig::default()
    }
}

fn host(name: &str) -> (Sampler, LoadRecord, CpuLines) {
    let mut sampler = Sampler::new(config(name, Scope::Host)).unwrap();
    let (record, lines) = sampler.sample_at(Timestamp::from_millis(1000));
    (sampler, record, lines)
}

fn group(name: &str, path: &str) -> (Sampler, LoadRecord) {
    let mut sampler = Sampler::new(config(name, Scope::Cgroup(path.into()))).unwrap();
    let (record, lines) = sampler.sample_at(Timestamp::from_millis(1000));
    assert!(lines.is_empty(), "the CPU lines are the machine's");
    (sampler, record)
}

#[track_caller]
fn check_sources(record: &LoadRecord, set: &[Sources], unset: &[Sources]) {
    for source in set {
        assert!(record.sources.has(*source), "{source:?} is not set");
    }
    for source in unset {
        assert!(!record.sources.has(*source), "{source:?} is set");
    }
}

#[test]
fn a_version_1_host_has_exact_cpu_time() {
    let (_, record, lines) = host("5.10-v1");
    check_sources(
        &record,
        &[
            Sources::BUSY_ACCT,
            Sources::RUNNABLE,
            Sources::RUNNABLE_INTEGRAL,
            Sources::UNINTERRUPTIBLE,
            Sources::STEAL,
            Sources::MEMORY,
            Sources::FILES,
            Sources::SOCKETS,
            Sources::ACCEPT_OVERFLOWS,
            Sources::NETWORK,
            Sources::DISK,
            Sources::PER_CPU,
            Sources::CONTEXT_SWITCHES,
        ],
        &[
            Sources::BUSY_TICK,
            Sources::BUSY_SWITCH,
            Sources::SOFTIRQ,
            Sources::PSI,
            Sources::PROCESS_FILES,
            Sources::ACCEPT_QUEUE,
            Sources::QUOTA,
            Sources::IN_FLIGHT,
        ],
    );
    assert_eq!(record.scope, 0);
    assert_eq!(record.cores_milli, 4000);
    assert_eq!(record.busy_ns, 59_014_000_000);
    // Four tasks run, one of them the agent.
    assert_eq!((record.runnable, record.tasks), (3, 311));
    assert_eq!(record.uninterruptible, 2);
    assert_eq!(record.steal_ns, 12 * TICK_NS);
    assert_eq!(record.softirq_ns, 150 * TICK_NS);
    assert_eq!(record.memory_available, 11_200_300 * 1024);
    assert_eq!((record.files_open, record.files_max), (2912, 1_625_084));
    assert_eq!((record.tcp_established, record.time_wait), (48, 1203));
    assert_eq!(record.accept_overflows, 17);
    assert_eq!(record.context_switches, 498_169);
    assert_eq!(record.runnable_ns, 0, "one sample has no area below it");
    assert_eq!(lines.len(), 4);
    assert_eq!(lines[2].busy_ns, 13_004_000_000);
    assert_eq!(lines[1].softirq_ns, 30 * TICK_NS);
    assert_eq!(lines[0].runnable_ns, 19_502_000_000);
}

#[test]
fn the_run_queue_is_integrated_by_times_if_samples_are_few() {
    let of = |interval| {
        let config = SamplerConfig {
            interval: Duration::from_millis(interval),
            ..config("5.10-v1", Scope::Host)
        };
        let mut sampler = Sampler::new(config).unwrap();
        sampler.sample_at(Timestamp::from_millis(1000));
        sampler
            .sample_at(Timestamp::from_millis(1000 + interval))
            .0
            .runnable_ns
    };
    // Three tasks over the interval.
    assert_eq!(of(10), 30_000_000);
    assert_eq!(
        of(50),
        0,
        "run and waiting times stand still in these files"
    );
}

#[test]
fn going_over_from_samples_to_times_and_back_loses_nothing() {
    let mut sampler = Sampler::new(config("5.10-v1", Scope::Host)).unwrap();
    let mut integral_at = |ms| sampler.sample_at(Timestamp::from_millis(ms)).0.runnable_ns;
    assert_eq!(integral_at(1000), 0);
    assert_eq!(integral_at(1001), 3_000_000);
    sampler.set_interval(Duration::from_millis(100));
    let mut integral_at = |ms| sampler.sample_at(Timestamp::from_millis(ms)).0.runnable_ns;
    assert_eq!(
        integral_at(1101),
        3_000_000,
        "times stand still in these files"
    );
    sampler.set_interval(Duration::from_millis(1));
    let mut integral_at = |ms| sampler.sample_at(Timestamp::from_millis(ms)).0.runnable_ns;
    assert_eq!(
        integral_at(1102),
        6_000_000,
        "a millisecond of samples, and no more"
    );
}

#[test]
fn a_version_2_host_has_schedstat() {
    let (_, record, lines) = host("6.1-v2");
    check_sources(
        &record,
        &[Sources::BUSY_TICK, Sources::RUNNABLE_INTEGRAL, Sources::PSI],
        &[Sources::BUSY_ACCT],
    );
    assert_eq!(record.busy_ns, 156_000_000_000);
    assert_eq!(record.steal_ns, 10 * TICK_NS);
    assert_eq!(record.psi_cpu_ns, 16_556_660_000);
    assert_eq!(record.psi_io_ns, 998_877_000);
    assert_eq!(record.files_max, i64::MAX as u64);
    assert_eq!(lines[1].runnable_ns, 78_500_000_000);
}

#[test]
fn a_host_with_neither_counts_ticks_and_says_so() {
    let (sampler, record, lines) = host("6.18-ticks");
    check_sources(
        &record,
        &[Sources::BUSY_TICK, Sources::RUNNABLE_INTEGRAL],
        &[Sources::BUSY_ACCT, Sources::PSI, Sources::DISK],
    );
    // User, system, irq and softirq of both CPUs; neither idle nor steal.
    assert_eq!(record.busy_ns, 17_472 * TICK_NS);
    assert_eq!(record.steal_ns, 3_821 * TICK_NS);
    assert_eq!(lines.len(), 2);
    let why = sampler.why().join("\n");
    assert!(
        why.contains("busy_ns from the timer tick: good from 100 ms: measured"),
        "{why}"
    );
    assert!(
        why.contains("by integrating the sampled run queue"),
        "{why}"
    );
    assert!(why.contains("proc/diskstats: No such file"), "{why}");
}

#[test]
fn a_root_without_any_file_measures_nothing() {
    let mut sampler = Sampler::new(config("absent", Scope::Host)).unwrap();
    for ms in [1, 2, 3000] {
        let (record, lines) = sampler.sample_at(Timestamp::from_millis(ms));
        assert_eq!(record.sources, Sources::NONE);
        assert!(lines.is_empty());
        assert_ne!(record.generation, 0);
    }
    assert!(
        sampler
            .why()
            .iter()
            .all(|sentence| sentence.contains("not measured"))
    );
}

#[test]
fn a_version_1_group_reports_itself() {
    let (_, record) = group("5.10-v1", "/docker/web");
    check_sources(
        &record,
        &[
            Sources::BUSY_ACCT,
            Sources::RUNNABLE,
            Sources::RUNNABLE_INTEGRAL,
            Sources::UNINTERRUPTIBLE,
            Sources::QUOTA,
            Sources::MEMORY,
            Sources::FILES,
        ],
        &[
            Sources::PSI,
            Sources::NETWORK,
            Sources::SOCKETS,
            Sources::ACCEPT_QUEUE,
            Sources::DISK,
            Sources::STEAL,
            Sources::PER_CPU,
            Sources::CONTEXT_SWITCHES,
        ],
    );
    assert_eq!(record.scope, 1);
    assert_eq!(record.busy_ns, 7_123_456_789);
    assert_eq!(record.quota_milli, 1500);
    assert_eq!(record.throttled_ns, 345_678_901);
    assert_eq!(record.cores_milli, 3000);
    assert_eq!(record.memory_total, 536_870_912);
    assert_eq!(record.memory_available, 536_870_912 - 300_000_000);
    assert_eq!(record.tasks, 3);
    assert_eq!((record.runnable, record.uninterruptible), (1, 1));
}

#[test]
fn a_version_2_group_is_bound_by_its_ancestors() {
    for path in [
        "/system.slice/nginx.service",
        "system.slice/nginx.service",
        "/sys/fs/cgroup/system.slice/nginx.service",
    ] {
        let (_, record) = group("6.1-v2", path);
        check_sources(
            &record,
            &[Sources::PSI, Sources::QUOTA, Sources::MEMORY],
            &[],
        );
        assert_eq!(record.scope, 2);
        assert_eq!(record.busy_ns, 7_654_321_000);
        assert_eq!(record.quota_milli, 4000);
        assert_eq!(record.throttled_ns, 4_321_000);
        assert_eq!(record.cores_milli, 2000);
        assert_eq!(record.memory_total, 2_147_483_648);
        assert_eq!(record.memory_available, 2_147_483_648 - 600_000_000);
        assert_eq!(record.psi_cpu_ns, 4_000_000);
        assert_eq!(record.tasks, 5);
    }
}

#[test]
fn a_group_that_is_nowhere_is_an_error_that_names_the_places() {
    let scope = Scope::Cgroup("/no/such/group".into());
    let Err(error) = Sampler::new(config("5.10-v1", scope)) else {
        panic!("there is no such group");
    };
    let text = error.to_string();
    assert!(text.contains("/no/such/group"), "{text}");
    assert!(text.contains("/sys/fs/cgroup/cpu,cpuacct"), "{text}");
}

#[test]
fn the_process_nearest_to_its_limit_is_reported() {
    let watched = |watch: &[&str]| {
        let config = SamplerConfig {
            watch: watch.iter().map(|name| (*name).to_owned()).collect(),
            ..config("6.1-v2", Scope::Host)
        };
        let mut sampler = Sampler::new(config).unwrap();
        let (record, _) = sampler.sample_at(Timestamp::from_millis(1000));
        (
            record.process_id,
            record.process_files_open,
            record.process_files_max,
        )
    };
    assert_eq!(watched(&["nginx"]), (702, 7, 16));
    assert_eq!(watched(&["nginx", "/run/postgres.pid"]), (703, 9, 10));
    assert_eq!(watched(&["no-such-thing"]), (0, 0, 0));
}

#[test]
fn generations_differ() {
    let generation = |_| host("6.18-ticks").1.generation;
    let generations: Vec<u64> = (0..4).map(generation).collect();
    for (index, generation) in generations.iter().enumerate() {
        assert!(!generations[..index].contains(generation));
    }
}

/// A copy of a fixture whose files a test may change.
struct Copy(PathBuf);

impl Copy {
    fn new(name: &str, test: &str) -> Self {
        let to = std::env::temp_dir().join(format!("tidegate-{test}-{}", std::process::id()));
        copy(&fixture(name), &to);
        Self(to)
    }

    fn write(&self, path: &str, text: &str) {
        std::fs::write(self.0.join(path), text).unwrap();
    }

    fn sampler(&self) -> Sampler {
        let config = SamplerConfig {
            root: self.0.clone(),
            ..SamplerConfig::default()
        };
        Sampler::new(config).unwrap()
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &target);
        } else {
            std::fs::copy(&path, &target).unwrap();
        }
    }
}

fn schedstat(ran: [u64; 2]) -> String {
    let line = |(cpu, ran): (usize, &u64)| format!("cpu{cpu} 0 0 0 0 0 0 {ran} 0 1\n");
    let lines: String = ran.iter().enumerate().map(line).collect();
    format!("version 15\ntimestamp 1\n{lines}")
}

fn stat(busy: [u64; 2]) -> String {
    let [first, second] = busy;
    format!(
        "cpu  {} 0 0 9\ncpu0 {first} 0 0 9\ncpu1 {second} 0 0 9\n",
        first + second
    )
}

#[test]
fn ticks_fill_up_what_schedstat_lacks_until_a_switch() {
    let files = Copy::new("6.1-v2", "switch");
    let mut sampler = files.sampler();
    let mut busy = |ms, ran, ticks| {
        files.write("proc/schedstat", &schedstat(ran));
        files.write("proc/stat", &stat(ticks));
        let (record, _) = sampler.sample_at(Timestamp::from_millis(ms));
        record.busy_ns / 1_000_000
    };
    let ms = 1_000_000;
    assert_eq!(busy(10_000, [100 * ms, 0], [10, 0]), 100);
    // One task runs on: no switch, but ticks. Files are read again after their pace's rest.
    assert_eq!(busy(20_000, [100 * ms, 0], [13, 0]), 130);
    // It is switched away: the run time is exact again, and never less than what was said.
    assert_eq!(busy(30_000, [125 * ms, 0], [14, 0]), 130);
    assert_eq!(busy(40_000, [140 * ms, 5 * ms], [14, 0]), 145);
}

#[test]
fn the_busiest_cpus_have_the_lines() {
    let files = Copy::new("6.18-ticks", "many");
    let mut sampler = files.sampler();
    let write = |busy: fn(u64) -> u64| {
        let line = |cpu| format!("cpu{cpu} {} 0 0 9\n", busy(cpu));
        let text: String = (0..40).map(line).collect();
        files.write("proc/stat", &format!("cpu  1 0 0 9\n{text}"));
    };
    write(|_| 1000);
    let (record, lines) = sampler.sample_at(Timestamp::from_millis(10_000));
    assert_eq!(record.cores_milli, 40_000);
    assert_eq!(lines.len(), CPU_LINES_MAX);
    // Now the last CPUs are the busiest, whatever was before.
    write(|cpu| 1000 + cpu);
    let (_, lines) = sampler.sample_at(Timestamp::from_millis(30_000));
    let cpus: Vec<u32> = lines.iter().map(|line| line.cpu).collect();
    assert_eq!(cpus, (24..40).rev().collect::<Vec<_>>());
}

#[test]
fn counters_go_on_when_a_better_source_goes() {
    let files = Copy::new("5.10-v1", "source");
    let mut sampler = files.sampler();
    let (first, _) = sampler.sample_at(Timestamp::from_millis(10_000));
    assert!(first.sources.has(Sources::BUSY_ACCT));
    files.write("sys/fs/cgroup/cpu,cpuacct/cpuacct.usage_percpu", "gone\n");
    files.write("proc/schedstat", "gone\n");
    let (second, _) = sampler.sample_at(Timestamp::from_millis(20_000));
    assert!(second.sources.has(Sources::BUSY_TICK));
    assert!(!second.sources.has(Sources::BUSY_ACCT));
    assert_eq!(second.busy_ns, first.busy_ns);
    assert!(second.runnable_ns >= first.runnable_ns);
    assert_eq!(second.generation, first.generation);
}

#[test]
fn no_counter_falls_while_files_change_at_random() {
    let mut prng = tidegate_core::prng::Prng::new(7);
    let files = Copy::new("5.10-v1", "random");
    let mut sampler = files.sampler();
    let mut last = LoadRecord::default();
    for round in 1..200u64 {
        let mut number = || prng.bits() >> (prng.below(50) as u32 + 8);
        let (a, b, c, d) = (number(), number(), number(), number());
        files.write(
            "sys/fs/cgroup/cpu,cpuacct/cpuacct.usage_percpu",
            &format!("{a} {b}\n"),
        );
        files.write("proc/schedstat", &schedstat([c, d]));
        files.write("proc/stat", &stat([a >> 24, d >> 24]));
        files.write(
            "proc/loadavg",
            &format!("0 0 0 {}/{} 1\n", b % 1000, c % 1000),
        );
        let (record, _) = sampler.sample_at(Timestamp::from_millis(round * 20_000));
        for (before, after) in [
            (last.busy_ns, record.busy_ns),
            (last.runnable_ns, record.runnable_ns),
            (last.uninterruptible_ns, record.uninterruptible_ns),
            (last.steal_ns, record.steal_ns),
            (last.softirq_ns, record.softirq_ns),
        ] {
            assert!(after >= before, "round {round}");
        }
        last = record;
    }
}

#[test]
fn so_many_threads_of_a_group_are_looked_at_and_no_more() {
    for (threads, too_many) in [(256, false), (257, true)] {
        let files = Copy::new("6.1-v2", &format!("threads-{threads}"));
        let mut ids = String::new();
        for id in 1_000_000..1_000_000 + threads {
            let folder = format!("proc/{id}/task/{id}");
            std::fs::create_dir_all(files.0.join(&folder)).unwrap();
            files.write(&format!("{folder}/schedstat"), "1 2 3\n");
            ids += &format!("{id}\n");
        }
        let group = "system.slice/nginx.service";
        files.write(&format!("sys/fs/cgroup/{group}/cgroup.threads"), &ids);
        let mut sampler = Sampler::new(SamplerConfig {
            root: files.0.clone(),
            scope: Scope::Cgroup(group.into()),
            ..SamplerConfig::default()
        })
        .unwrap();
        sampler.sample_at(Timestamp::from_millis(1000));
        let why = sampler.why().concat();
        assert_eq!(why.contains("too many threads to look at each"), too_many);
    }
}

#[test]
fn slow_sources_are_not_read_at_every_sample() {
    let files = Copy::new("6.1-v2", "pace");
    let mut sampler = files.sampler();
    let at = Timestamp::from_millis(1000);
    let (first, _) = sampler.sample_at(at);
    files.write("proc/meminfo", "MemTotal: 4 kB\nMemAvailable: 2 kB\n");
    let (soon, _) = sampler.sample_at(at + Duration::from_millis(1));
    assert_eq!(soon.memory_total, first.memory_total);
    // Later than any period that its cost could have made of it.
    let (late, _) = sampler.sample_at(at + Duration::from_secs(20));
    assert_eq!(late.memory_total, 4096);
}
