//! The agent whose words a card serves. Runs where there is a device: `cargo xtask rdma` has one.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::time::Duration;

use tidegate_core::load::Rung;
use tidegate_core::record::AGGREGATE_LINES;
use tidegate_node::{Agent, AgentConfig};
use tidegate_remote::rdma::{RdmaDevice, RdmaOptions, RdmaRegion};
use tidegate_remote::udp::key_file::NodeKey;
use tidegate_remote::udp::{UdpOptions, UdpRegion};
use tidegate_remote::{Refusal, Region, RegionError};

const WORD: u32 = 60;

const PATIENT: UdpOptions = UdpOptions {
    wait: Duration::from_millis(300),
    tries: 3,
};

/// What comes in the end. An emulated machine may stand still for longer than a card is waited for.
fn at_last<T>(mut verb: impl FnMut() -> Result<T, RegionError>) -> T {
    loop {
        match verb() {
            Err(
                RegionError::Timeout { .. }
                | RegionError::Io { .. }
                | RegionError::Refused(Refusal::TooOld),
            ) => {}
            done => return done.unwrap(),
        }
    }
}

#[test]
fn an_agent_shares_its_words_over_rdma_and_by_datagrams() {
    let address = [127, 0, 0, 1].into();
    if let Err(why) = RdmaDevice::open(Some(address)) {
        return println!("SKIPPED: {why}");
    }
    let config = AgentConfig {
        listen: (address, 0).into(),
        rdma: Some(4),
        rdma_words: true,
        rungs: vec![Rung::XdpGeneric, Rung::AgentRealtime, Rung::Agent],
        ..AgentConfig::new(vec![NodeKey::random("n1").unwrap()])
    };
    let agent = Agent::spawn(&config).unwrap();
    let why = agent.status().why.join("\n");
    assert!(
        why.contains("may read it and change its words over RDMA: "),
        "{why}"
    );
    assert!(why.contains("The kernel does not answer: "), "{why}");
    assert_eq!(agent.rdma_fault(), None);
    let wire = || UdpRegion::connect(agent.address(), config.keys[0].key.clone(), PATIENT).unwrap();
    let card = RdmaOptions {
        wait: Duration::from_millis(500),
    };
    let (mut by_udp, mut by_rdma) = (wire(), RdmaRegion::new(wire(), card));
    let mut last = 0;
    for _ in 0..20 {
        for region in [&mut by_udp as &mut dyn Region, &mut by_rdma] {
            let held = at_last(|| region.fetch_and_add(WORD, 1));
            // More, if one was added whose answer was lost.
            assert!(held >= last, "{held} after {last}");
            last = held + 1;
        }
        last = last.max(at_last(|| agent.memory().word(WORD)));
    }
    let read = at_last(|| by_rdma.read(AGGREGATE_LINES));
    assert_eq!(read.first_word, Some(0));
}
