//! The arms that experiments share, and the agents that they read.
//!
//! The schemes of KLM-2005: `ulm` reads an agent inside the node's own CPU quota, at ordinary
//! priority, which measures each 50 ms; `pklm` and `klm` read the node's kernel, whose program at
//! the network interface answers with what it counts. All three are read each 50 ms, as in the
//! paper, and any of the k least loaded nodes is taken, k being half of the nodes: the paper does
//! not tell its k. (With 2 or 3 of 8 klm did the same in `single-site`, within its ranges; ulm lost
//! 5 to 10 % with 2.)
//!
//! `auto` and every other arm that wants fresh load read an agent beside the quota each
//! millisecond, from memory of the host: sixteen front-ends before eight nodes ask 128 000 times
//! a second, which as datagrams would take more than the CPU that all front-ends share here.

use std::time::Duration;

use crate::cluster::{AgentPlan, Placed};
use crate::front::{EnvoyFilter, FrontKind, HaproxyBalance, NginxBalance, TidegateArm};

use super::plan::Arm;

/// The name of Tidegate's default policy, and of its arm.
pub const AUTO: &str = "auto";
/// The arms that KLM-2005 compares.
pub const PAPER: [&str; 5] = ["random", "round_robin", "ulm", "pklm", "klm"];
/// The agent in the node's quota, and its measuring interval in the paper.
pub const ULM: &str = "ulm";
/// The node's kernel.
pub const KLM: &str = "klm";
/// The node's kernel, one rung lower.
pub const TC: &str = "tc";
/// The agent that is the kernel's program in the network driver.
pub const NATIVE: &str = "xdp_native";
/// The kernel's timer, and a process that sends its record.
pub const RECORD: &str = "kernel_record";
/// The agent beside the node's quota.
pub const BESIDE: &str = "beside";
/// Polling and measuring interval of KLM-2005.
pub const PAPER_INTERVAL: Duration = Duration::from_millis(50);
/// How often the agent beside the quota measures, and `auto` reads it.
pub const FRESH: Duration = Duration::from_millis(1);
/// Port of each agent.
const ULM_PORT: u16 = 9901;
const BESIDE_PORT: u16 = 9911;
const KLM_PORT: u16 = 9921;
/// Where agents of ours answer HAProxy's agent check.
pub const OWN_AGENT_CHECK_PORT: u16 = 9922;
const TC_PORT: u16 = 9932;
const RECORD_PORT: u16 = 9933;

/// The agent of the paper's ULM, at an interval.
#[must_use]
pub const fn ulm_agent(interval: Duration) -> AgentPlan {
    AgentPlan {
        name: ULM,
        interval,
        place: Placed::Inside,
        port: ULM_PORT,
        rungs: Placed::Inside.rungs(),
        agent_check: None,
    }
}

/// The agent beside the quota.
#[must_use]
pub const fn beside_agent() -> AgentPlan {
    AgentPlan {
        name: BESIDE,
        interval: FRESH,
        place: Placed::Beside,
        port: BESIDE_PORT,
        rungs: Placed::Beside.rungs(),
        agent_check: None,
    }
}

/// The same, which answers HAProxy's agent check as well.
#[must_use]
pub const fn checked_agent() -> AgentPlan {
    AgentPlan {
        agent_check: Some(OWN_AGENT_CHECK_PORT),
        ..beside_agent()
    }
}

/// The kernel.
#[must_use]
pub const fn klm_agent() -> AgentPlan {
    AgentPlan {
        name: KLM,
        interval: FRESH,
        place: Placed::Kernel,
        port: KLM_PORT,
        rungs: Placed::Kernel.rungs(),
        agent_check: None,
    }
}

/// The kernel at the next rung, where packets come in behind XDP.
#[must_use]
pub const fn tc_agent() -> AgentPlan {
    AgentPlan {
        name: TC,
        port: TC_PORT,
        rungs: &["tc"],
        ..klm_agent()
    }
}

/// The kernel before all else, in the driver of the network interface; excludes generic XDP there.
#[must_use]
pub const fn native_agent() -> AgentPlan {
    AgentPlan {
        name: NATIVE,
        rungs: &[NATIVE],
        ..klm_agent()
    }
}

/// An agent at real-time priority on the nodes' CPU that sends what a timer in the kernel has
/// made.
#[must_use]
pub const fn record_agent() -> AgentPlan {
    AgentPlan {
        name: RECORD,
        place: Placed::Unlimited,
        port: RECORD_PORT,
        rungs: &["kernel_record"],
        ..klm_agent()
    }
}

/// What experiments without the paper's schemes need.
pub const AGENTS: &[AgentPlan] = &[ulm_agent(PAPER_INTERVAL), beside_agent()];
/// What the paper's experiments need.
pub const PAPER_AGENTS: &[AgentPlan] = &[ulm_agent(PAPER_INTERVAL), klm_agent(), beside_agent()];

/// What a report says about how load is read.
pub const RUNG: &str = "ulm reads rung 6, an agent inside the node's CPU quota; pklm and klm read the node's kernel over UDP (rung 2, \
     generic XDP; in loopback mode there is none, and an agent that is never late stands for it); auto reads rung 5, an agent at \
     real-time priority beside the quota. Agents' records are read from memory of the host, one-sidedly as by RDMA.";

/// A policy of Tidegate that looks at no load.
#[must_use]
pub fn blind(policy: &str) -> Arm {
    Arm::of(FrontKind::Tidegate(TidegateArm::blind(policy)))
}

/// An arm that is a name: of what is measured without a front-end.
#[must_use]
pub fn named(name: &str) -> Arm {
    Arm {
        name: name.into(),
        ..blind("random")
    }
}

/// A policy of Tidegate that reads fresh load.
#[must_use]
pub fn fresh(policy: &str) -> Arm {
    let arm = TidegateArm::reading(policy, policy, BESIDE, FRESH);
    Arm::of(FrontKind::Tidegate(arm))
}

/// Tidegate's default policy.
#[must_use]
pub fn auto() -> Arm {
    fresh(AUTO)
}

/// `k_least_loaded` with an index of KLM-2005, read at an interval.
#[must_use]
pub fn scheme(index: &str, poll: Duration) -> Arm {
    let agent = if index == "ulm" { ULM } else { KLM };
    scheme_of(index, index, agent, poll)
}

/// The same from another agent, by a name of its own.
#[must_use]
pub fn scheme_of(name: &str, index: &str, agent: &'static str, poll: Duration) -> Arm {
    let arm = TidegateArm::reading(name, "k_least_loaded", agent, poll);
    Arm::of(FrontKind::Tidegate(
        arm.with("index", &format!("\"{index}\"")),
    ))
}

/// Random, round robin and the paper's three schemes, as it configures them.
#[must_use]
pub fn paper() -> Vec<Arm> {
    let mut arms = vec![blind("random"), blind("round_robin")];
    arms.extend(["ulm", "pklm", "klm"].map(|index| scheme(index, PAPER_INTERVAL)));
    arms
}

/// Every peer in every way of balancing.
#[must_use]
pub fn peers() -> Vec<Arm> {
    vec![
        Arm::of(FrontKind::Haproxy(HaproxyBalance::RoundRobin)),
        Arm::of(FrontKind::Haproxy(HaproxyBalance::LeastConn)),
        Arm::of(FrontKind::Haproxy(HaproxyBalance::RandomTwo)),
        Arm::of(FrontKind::Haproxy(HaproxyBalance::AgentCheck)),
        Arm::of(FrontKind::Nginx(NginxBalance::RoundRobin)),
        Arm::of(FrontKind::Nginx(NginxBalance::LeastConn)),
        Arm::of(FrontKind::Apache),
        Arm::of(FrontKind::Envoy(EnvoyFilter::None)),
    ]
}

/// Every peer, without ways of balancing that another of its ways stands for.
#[must_use]
pub fn some_peers() -> Vec<Arm> {
    let left_out = [
        FrontKind::Haproxy(HaproxyBalance::RandomTwo),
        FrontKind::Nginx(NginxBalance::RoundRobin),
    ];
    let mut peers = peers();
    peers.retain(|arm| !left_out.contains(&arm.kind));
    peers
}

/// The best of each peer, for short runs.
#[must_use]
pub fn best_peers() -> Vec<Arm> {
    vec![
        Arm::of(FrontKind::Haproxy(HaproxyBalance::LeastConn)),
        Arm::of(FrontKind::Nginx(NginxBalance::LeastConn)),
        Arm::of(FrontKind::Envoy(EnvoyFilter::None)),
    ]
}
