//! The experiments of SLBL-ARPN §8: servers whose file descriptors run out.
//!
//! ```text
//! 5 nodes with 0.15 of a CPU each       SLBL-ARPN: 5 servers with a CPU each
//! a request = 10 KiB, 5 ms CPU (log-normal, cv 1, fixed per file), one file open until its end
//! 128 descriptors per server            the process's own limit, as of Apache and nginx; the paper's is the system's
//! starved = clients that hold 128 connections to a server for 3 s and let them go for 3 s
//! ```
//!
//! A starved server takes no connection: it waits in the listen queue until a descriptor is free, as before Apache and
//! nginx. What comes over a connection that is there is answered 503 at once, as no file can be opened. The
//! paper's servers are starved for good; then any health check has them out within seconds, and all arms are alike.
//!
//! `slbl` and `auto` read an agent beside the quota. A third of the weight each for CPU, memory and descriptors, as in Table 1.

pub(super) mod normal;
pub(super) mod overload;
pub(super) mod poll_interval;
pub(super) mod reaction;
pub(super) mod scale;

use std::time::Duration;

use crate::antagonist::Antagonist;
use crate::cluster::{AgentPlan, ClusterPlan, NodePlan};
use crate::front::{FrontKind, HaproxyBalance, TidegateArm};
use crate::load::{Arrivals, Pacing, Requests, Size, Spread, Stream};

use super::arms::{self, OWN_AGENT_CHECK_PORT};
use super::plan::Arm;
use super::workload;

/// Servers of the paper's cluster.
const SERVERS: usize = 5;
/// Each one's part of a CPU.
const SHARE: f64 = 0.15;
/// Servers that are starved.
const STARVED: usize = 2;
/// File descriptors that a server may have open.
const FILES: u32 = 128;
/// From one starving to the next; half of it is starved.
const PERIOD: Duration = Duration::from_secs(6);
/// CPU microseconds of a request.
const COST: Size = Size {
    mean: 5000.0,
    spread: Spread::LogNormal { cv: 1.0 },
};
/// Of a whole answer.
const BYTES: f64 = 10_240.0;
/// Distinct files.
const DISTINCT: u32 = 400;
const SLBL: &str = "slbl";
const SLBL_SNMP: &str = "slbl snmp";
/// Between two reads over SNMP, the longest without failures in the paper.
const SNMP_PERIOD: Duration = Duration::from_millis(500);
const ROUND_ROBIN: &str = "haproxy roundrobin";
const LEAST: &str = "haproxy leastconn";
const FED: &str = "haproxy tidegate-agent";
const AGENTS: &[AgentPlan] = &[arms::checked_agent()];

/// Servers with so many descriptors.
fn cluster(servers: usize, share: f64) -> ClusterPlan {
    let mut plan = workload::unequal(&vec![share; servers], AGENTS);
    let limit = |node: NodePlan| NodePlan {
        files: Some(FILES.into()),
        cache: Default::default(),
        // More than there are descriptors for.
        workers: FILES,
        ..node
    };
    plan.nodes = plan.nodes.into_iter().map(limit).collect();
    plan
}

/// What is asked for, at so much CPU time.
fn requests(cost: Size) -> Requests {
    Requests::Zipf {
        alpha: 0.0,
        files: DISTINCT,
        path: "/work?fds=1&cpu={cpu}us&bytes={bytes}".into(),
        size: Size::fixed(BYTES),
        cost,
    }
}

/// So many requests a second, whatever becomes of them.
fn arriving(rate: f64) -> Stream {
    Stream {
        site: "site".into(),
        pacing: Pacing::Open {
            rate,
            arrivals: Arrivals::Poisson,
        },
        requests: requests(COST),
        header: None,
    }
}

/// The first servers without descriptors, again and again.
fn starved() -> Vec<(usize, Antagonist)> {
    let files = |node| {
        let hold = Antagonist::Files {
            files: FILES,
            period: PERIOD,
            duty: 0.5,
        };
        (node, hold)
    };
    (0..STARVED).map(files).collect()
}

/// The paper's three, by Tidegate and by HAProxy, HAProxy with our agent, and `auto`.
fn all_arms() -> Vec<Arm> {
    let haproxy = |balance| Arm::of(FrontKind::Haproxy(balance));
    let port = OWN_AGENT_CHECK_PORT;
    vec![
        arms::blind("round_robin"),
        arms::blind("least_request"),
        by_snmp(),
        arms::fresh(SLBL),
        arms::auto(),
        haproxy(HaproxyBalance::RoundRobin),
        haproxy(HaproxyBalance::LeastConn),
        haproxy(HaproxyBalance::OwnAgent { port }),
    ]
}

/// The paper's own: load by SNMP.
fn by_snmp() -> Arm {
    Arm::of(FrontKind::Tidegate(TidegateArm::by_snmp(
        SLBL_SNMP,
        SLBL,
        SNMP_PERIOD,
    )))
}

/// What every report of these says.
fn notes() -> Vec<String> {
    vec![
        "slbl and auto read Tidegate's own record each millisecond, written beside the quota; slbl snmp asks a stock snmpd twice a \
         second, which runs with our agent behind it in the node's quota, at ordinary priority."
            .into(),
        "Tidegate's round_robin and least_request have its health and soft limits, which the paper's have not: HAProxy's \
         stand for those."
            .into(),
    ]
}
