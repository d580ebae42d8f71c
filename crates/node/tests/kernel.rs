//! An agent at a host of its own: the kernel answers, and the agent when the kernel does not.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

#[path = "../../remote/tests/support/namespaces.rs"]
#[expect(dead_code, reason = "its other users use the rest")]
mod namespaces;

use std::time::Duration;

use namespaces::{Hosts, Kept, PATIENT, PORT, node_address};
use tidegate_core::load::Rung;
use tidegate_core::record::{AGGREGATE_LINES, LoadRecord, Sources};
use tidegate_node::{Agent, AgentConfig, AgentError, AgentHandle, RUNGS};
use tidegate_remote::Region;
use tidegate_remote::udp::UdpRegion;
use tidegate_remote::udp::key_file::NodeKey;

/// After this long something is stuck.
const PATIENCE: Duration = Duration::from_secs(30);

#[expect(clippy::print_stdout, reason = "how a test says that it could not run")]
fn skip(why: &str) {
    println!("SKIPPED: {why}");
}

struct World {
    agent: Kept<AgentHandle>,
    region: UdpRegion,
    hosts: Hosts,
}

/// An agent that may try these rungs; nothing where the test cannot be.
fn world(rungs: &[Rung]) -> Option<World> {
    let world = try_world(rungs)?;
    Some(world.unwrap_or_else(|error| panic!("{error}")))
}

fn try_world(rungs: &[Rung]) -> Option<Result<World, AgentError>> {
    if !rustix::process::geteuid().is_root()
        || !std::path::Path::new("/sys/kernel/btf/vmlinux").exists()
    {
        skip("it takes root and a kernel that describes itself");
        return None;
    }
    let hosts = Hosts::new().map_err(|why| skip(&why)).ok()?;
    let key = NodeKey::random("n1").unwrap();
    let config = AgentConfig {
        listen: ([0, 0, 0, 0], PORT).into(),
        rungs: rungs.to_vec(),
        ..AgentConfig::new(vec![key.clone()])
    };
    let agent = hosts.keep_at_node(move || {
        // As `tidegate agent` does.
        tidegate_remote::privilege::keep(tidegate_node::STARTING_CAPABILITIES).unwrap();
        Agent::spawn(&config)
    });
    let agent = match agent {
        Ok(agent) => agent,
        Err(error) => return Some(Err(error)),
    };
    let region =
        hosts.at_front(|| UdpRegion::connect(node_address(false, PORT), key.key, PATIENT).unwrap());
    Some(Ok(World {
        agent,
        region,
        hosts,
    }))
}

impl World {
    fn read(&mut self) -> LoadRecord {
        self.region.read(AGGREGATE_LINES).unwrap().record().unwrap()
    }

    /// Reads until `enough`.
    #[expect(
        clippy::disallowed_methods,
        reason = "a test gives up on the real clock"
    )]
    #[track_caller]
    fn read_until(&mut self, enough: impl Fn(&LoadRecord) -> bool) -> LoadRecord {
        let deadline = std::time::Instant::now() + PATIENCE;
        loop {
            let record = self.read();
            if enough(&record) {
                return record;
            }
            assert!(std::time::Instant::now() < deadline, "stuck at {record:?}");
        }
    }
}

#[test]
fn the_kernel_answers_and_the_agent_adds_what_it_sees() {
    let Some(mut world) = world(&RUNGS) else {
        return;
    };
    let status = world.agent.ask(|agent| agent.status());
    assert_eq!(status.rung, Rung::XdpGeneric, "{:#?}", status.why);
    let why = status.why.join("\n");
    assert!(
        why.contains("The kernel answers at node0 (xdp_generic)."),
        "{why}"
    );
    assert!(why.contains("virtual cable"), "why not better: {why}");
    let record = world.read_until(|record| record.sources.has(Sources::FILES));
    assert_eq!(record.rung, Rung::XdpGeneric as u8);
    assert!(
        record
            .sources
            .has(Sources::BUSY_SWITCH.with(Sources::MEMORY))
    );
    assert!(!record.sources.has(Sources::BUSY_TICK));
    assert!(record.files_open > 0 && record.interval_ns == 0);
    let kernel = world.agent.ask(|agent| agent.status()).kernel.unwrap();
    assert!(kernel.reads > 0);
}

#[test]
fn the_agent_answers_when_somebody_removed_the_program() {
    let Some(mut world) = world(&[Rung::Tc, Rung::Agent]) else {
        return;
    };
    assert_eq!(world.read().rung, Rung::Tc as u8);
    let node = world.hosts.node().to_owned();
    let remove = ["netns", "exec", &node, "tc", "filter", "del"];
    world
        .hosts
        .ip(&[&remove[..], &["dev", "node0", "ingress"]].concat())
        .unwrap();
    let record = world.read_until(|record| record.rung != Rung::Tc as u8);
    assert!(matches!(record.rung, 5 | 6), "{record:?}");
    let said = world.agent.ask(|agent| agent.look()).join("\n");
    assert!(said.contains("removed by somebody else"), "{said}");
    assert!(said.contains("answers on rung agent"), "{said}");
    assert_eq!(world.agent.ask(|agent| agent.look()), Vec::<String>::new());
    // As often as without the kernel.
    let status = world.agent.ask(|agent| agent.status());
    assert_eq!(status.interval, Duration::from_millis(1));
}

#[test]
fn an_agent_without_any_rung_that_it_may_try_does_not_start() {
    let Some(world) = try_world(&[Rung::XdpNative]) else {
        return;
    };
    let Err(error) = world else {
        panic!("native XDP at a virtual cable answers nobody");
    };
    let error = error.to_string();
    assert!(
        error.starts_with("none of the rungs that may be tried (xdp_native)"),
        "{error}"
    );
    assert!(error.contains("virtual cable"), "the reason: {error}");
}

#[test]
fn a_timers_record_is_sent_by_the_agent() {
    let Some(mut world) = world(&[Rung::KernelRecord]) else {
        return;
    };
    let status = world.agent.ask(|agent| agent.status());
    assert_eq!(status.rung, Rung::KernelRecord, "{:#?}", status.why);
    let first = world.read_until(|record| record.sources.has(Sources::FILES));
    assert_eq!(first.rung, Rung::KernelRecord as u8);
    let next = world.read_until(|record| record.t_ns > first.t_ns);
    assert!(next.sources.has(Sources::BUSY_SWITCH));
    assert_eq!(next.generation, first.generation);
}
