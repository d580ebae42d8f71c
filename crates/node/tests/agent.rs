//! The agent as a front-end sees it: over UDP and through shared memory, against `/proc`.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::time::Duration;

use tidegate_core::load::Rung;
use tidegate_core::record::{LINES_MAX, LoadRecord, Sources};
use tidegate_node::{Agent, AgentConfig, AgentHandle, Scope};
use tidegate_remote::shm::ShmRegion;
use tidegate_remote::udp::key_file::NodeKey;
use tidegate_remote::udp::{UdpOptions, UdpRegion};
use tidegate_remote::{Region, clock};

/// After this long something is stuck.
const PATIENCE: Duration = Duration::from_secs(60);

fn config() -> AgentConfig {
    AgentConfig {
        listen: ([127, 0, 0, 1], 0).into(),
        rungs: vec![Rung::AgentRealtime, Rung::Agent],
        ..AgentConfig::new(vec![NodeKey::random("n1").unwrap()])
    }
}

fn connect(agent: &AgentHandle, config: &AgentConfig) -> UdpRegion {
    let options = UdpOptions {
        wait: Duration::from_secs(5),
        ..UdpOptions::default()
    };
    UdpRegion::connect(agent.address(), config.keys[0].key.clone(), options).unwrap()
}

/// Reads until `enough`.
#[track_caller]
fn read_until(region: &mut dyn Region, enough: impl Fn(&LoadRecord) -> bool) -> LoadRecord {
    let deadline = clock::now() + PATIENCE;
    loop {
        let record = region.read(LINES_MAX).unwrap().record().unwrap();
        if enough(&record) {
            return record;
        }
        assert!(clock::now() < deadline, "stuck at {record:?}");
    }
}

fn first_number(path: &str, key: &str) -> u64 {
    let text = std::fs::read_to_string(path).unwrap();
    let line = text.lines().find(|line| line.starts_with(key)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Uses so much CPU time, however long that takes.
fn burn(time: Duration) {
    let used = || {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Duration::try_from(time).unwrap()
    };
    let start = used();
    while used() - start < time {
        std::hint::black_box(0);
    }
}

#[test]
fn a_front_end_reads_what_proc_says() {
    let config = config();
    let agent = Agent::spawn(&config).unwrap();
    let mut region = connect(&agent, &config);
    let read = region.read(LINES_MAX).unwrap();
    let first = read.record().unwrap();
    assert!(read.node_now_ns.unwrap() >= first.t_ns);
    assert!((1_000_000..=100_000_000).contains(&first.interval_ns));
    assert_eq!(first.scope, 0);
    assert_ne!(first.generation, 0);
    assert!(first.sources.has_busy());
    for source in [
        Sources::RUNNABLE,
        Sources::RUNNABLE_INTEGRAL,
        Sources::MEMORY,
        Sources::FILES,
        Sources::NETWORK,
        Sources::PER_CPU,
        Sources::CONTEXT_SWITCHES,
    ] {
        assert!(first.sources.has(source), "{source:?}");
    }
    let total = first_number("/proc/meminfo", "MemTotal:") * 1024;
    assert_eq!(first.memory_total, total);
    assert!((1..=total).contains(&first.memory_available));
    let cpus = std::fs::read_to_string("/proc/stat").unwrap();
    let cpus = cpus.lines().filter(|line| line.starts_with("cpu")).count() - 1;
    assert_eq!(first.cores_milli as usize, cpus * 1000);
    assert_eq!(first.cpus(read.bytes()).count(), cpus.min(16));
    let per_cpu: u64 = first.cpus(read.bytes()).map(|cpu| cpu.busy_ns).sum();
    if cpus <= 16 {
        assert_eq!(per_cpu, first.busy_ns);
    }

    // The slowest way of counting is off by a tick or two per CPU.
    burn(Duration::from_millis(400));
    let burnt_at = clock::now().nanos();
    let second = read_until(&mut region, |record| {
        record.t_ns > burnt_at && record.busy_ns >= first.busy_ns + 200_000_000
    });
    assert_eq!(second.generation, first.generation);
    assert!(second.sequence > first.sequence);
    assert!(second.runnable_ns > first.runnable_ns);
    assert!(second.context_switches > first.context_switches);

    let status = agent.status();
    assert!(status.running);
    assert_eq!(second.rung, status.rung as u8);
    assert!(status.samples >= u64::from(second.sequence));
    assert!(status.responder.reads >= 2);
    let why = status.why.join("\n");
    assert!(why.contains(status.rung.label()), "{why}");
    assert!(
        why.contains("memory_total and memory_available: measured"),
        "{why}"
    );
    assert!(why.contains("softirqs_pending: not measured"), "{why}");
    if status.rung == Rung::AgentRealtime {
        assert!(why.contains("SCHED_FIFO"), "{why}");
    } else {
        println!("SKIPPED real-time priority: {why}");
    }
}

#[test]
fn an_agent_at_normal_priority_says_so() {
    let config = AgentConfig {
        realtime: false,
        interval: Duration::from_millis(50),
        ..config()
    };
    let agent = Agent::spawn(&config).unwrap();
    let status = agent.status();
    assert_eq!(status.rung, Rung::Agent);
    assert!(
        status
            .why
            .iter()
            .any(|why| why.contains("normal priority: not asked for"))
    );
    let is_read_often = |record: &LoadRecord| record.interval_ns == 50_000_000;
    let record = read_until(&mut connect(&agent, &config), is_read_often);
    assert_eq!(record.rung, Rung::Agent as u8);
}

/// Reads once in so many samples of the agent's until they are as far apart, and then as often as can be.
#[track_caller]
fn rests_and_wakes_up(agent: &AgentHandle, region: &mut dyn Region) {
    let deadline = clock::now() + PATIENCE;
    let each = |ms: u64| move |record: &LoadRecord| record.interval_ns == ms * 1_000_000;
    loop {
        let samples = agent.status().samples;
        while agent.status().samples < samples + 20 {
            assert!(clock::now() < deadline, "no more samples");
            std::thread::yield_now();
        }
        let record = region.read(LINES_MAX).unwrap().record().unwrap();
        if each(100)(&record) {
            break;
        }
        assert!(clock::now() < deadline, "it does not rest: {record:?}");
    }
    read_until(region, each(1));
}

#[test]
fn an_agent_makes_as_many_records_as_are_read() {
    let path = std::env::temp_dir().join(format!("tidegate-demand-{}", std::process::id()));
    let config = AgentConfig {
        shm: Some(path.clone()),
        ..config()
    };
    let agent = Agent::spawn(&config).unwrap();
    rests_and_wakes_up(&agent, &mut connect(&agent, &config));
    rests_and_wakes_up(&agent, &mut ShmRegion::new(&path));
}

#[test]
fn shared_memory_and_udp_show_the_same_region() {
    let path = std::env::temp_dir().join(format!("tidegate-agent-{}", std::process::id()));
    let config = AgentConfig {
        shm: Some(path.clone()),
        ..config()
    };
    let agent = Agent::spawn(&config).unwrap();
    let mut shm = ShmRegion::new(&path);
    let mut udp = connect(&agent, &config);
    let mapped = read_until(&mut shm, |_| true);
    let remote = read_until(&mut udp, |record| record.sequence >= mapped.sequence);
    assert_eq!(mapped.generation, remote.generation);
    shm.fetch_and_add(3, 7).unwrap();
    assert_eq!(udp.fetch_and_add(3, 1).unwrap(), 7);
    assert!(
        agent
            .status()
            .why
            .iter()
            .any(|why| why.contains("rung shm"))
    );
    drop(agent);
    std::fs::remove_file(&path).ok();
}

#[test]
fn two_starts_are_two_generations() {
    let config = config();
    let generation = || {
        let agent = Agent::spawn(&config).unwrap();
        read_until(&mut connect(&agent, &config), |_| true).generation
    };
    assert_ne!(generation(), generation());
}

#[test]
fn what_cannot_be_is_refused() {
    let interval = AgentConfig {
        interval: Duration::ZERO,
        ..config()
    };
    let error = Agent::spawn(&interval).unwrap_err().to_string();
    assert!(error.contains("100µs"), "{error}");
    let group = AgentConfig {
        scope: Scope::Cgroup("/no/such/group".into()),
        ..config()
    };
    let error = Agent::spawn(&group).unwrap_err().to_string();
    assert!(error.contains("/no/such/group"), "{error}");
    let agent = Agent::spawn(&config()).unwrap();
    let taken = AgentConfig {
        listen: agent.address(),
        ..config()
    };
    Agent::spawn(&taken).unwrap_err();
}
