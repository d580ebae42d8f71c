//! `elephants`: what pages that are dear to the database do to all others, and what it helps to slow
//! them down (Elephants-2005, "Experimental setup" and "Request time distribution results").
//!
//! ```text
//! site        our own auction (assets/auction): nginx, PHP-FPM, PostgreSQL, each node with a quota
//! clients     1500 that think 7 s on the average (exponential) and walk a table of transitions
//! elephants   searches by category and by region, about me: named beforehand by who knows the site
//! truth       CPU time of the connection's database process, with every answer
//! ```
//!
//! | arm | what it does |
//! |---|---|
//! | `stock` | Tidegate without throttles |
//! | `by hand` | `tidegate throttle` on the known elephants: a few at once, the others wait |
//! | `automatic` | Tidegate that finds culprits and slows them by itself (`[culprits] automatic`) |
//! | `default admission` | the same with the web server's load read, and admission as it is by default; all others admit everything |
//! | `haproxy leastconn` | HAProxy as it is |
//!
//! The database is the bottleneck, as in the paper. Its host is a node with `role = "resource"`, whose CPU
//! time Tidegate reads each 10 ms from memory.
//!
//! In the short form there are a third of the clients, of the think time and of PHP's workers: requests
//! come as often, and all waiting is a third as long. `automatic` and HAProxy are left out, to save their
//! time.
//!
//! Searchers and browsers are separate populations: where all visitors follow one table nothing can be
//! gained that is not saved, see `load/visitors.rs`. The longest requests of `stock` take over a minute,
//! so the full form measures for longer than that.

mod costs;
mod findings;
mod watch;

use std::time::Duration;

use tidegate_remote::clock;

use crate::auction::CPU_HEADER;
use crate::cluster::{AgentPlan, ClusterPlan, NodePlan, ServerKind};
use crate::front::{FrontKind, HaproxyBalance, Throttled, TidegateArm};
use crate::load::visitors::{ELEPHANTS, Visitor, walk};
use crate::load::{Pacing, Requests, Stream};
use crate::results::Report;

use super::arms::{BESIDE, beside_agent};
use super::plan::{Arm, Plan, Point, Stage};
use super::report::report;
use super::runner::Runner;
use super::{Experiment, ExperimentError, Lab, Scale};
use watch::Accounts;

/// See the module.
pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "elephants",
    about: "an auction site whose searches wear its database out: as it is, and with the searches slowed",
    source: "Elephants-2005, the setup and the results",
    needs: "namespaces (root); nginx, php-fpm with pgsql, postgresql; haproxy for its arms",
    estimate: |scale| plan(scale).estimate(),
    run,
    plan: Some(plan),
};

const STOCK: &str = "stock";
const BY_HAND: &str = "by hand";
const AUTOMATIC: &str = "automatic";
const ADMITTING: &str = "default admission";
/// The node that is the database's host, and its place in the cluster.
const DATABASE: &str = "db";
const DATABASE_PLACE: usize = 0;
/// Of the nodes' CPU.
const DATABASE_SHARE: f64 = 0.75;
const WEB_SHARE: f64 = 0.2;
/// For a process and the pages that it sorts in for each connection: with 512 MiB the kernel killed one.
const DATABASE_MEMORY: u64 = 2 << 30;
/// Between two samples of the database's host, and two reads of it.
const INTERVAL: Duration = Duration::from_millis(10);
const SITE: &str = "auction";
/// Clients by what they do; 1500 together. So many search that the database is worn out on the fastest
/// machine that was measured.
const CLIENTS: [(Visitor, u32); 3] = [
    (Visitor::Browser, 1050),
    (Visitor::Searcher, 390),
    (Visitor::Member, 60),
];
#[cfg(test)]
const ALL_CLIENTS: u32 = 1500;
/// Mean think time of the paper's clients.
const THINK: Duration = Duration::from_secs(7);
/// PHP-FPM's workers, and with them connections to the database.
const WORKERS: u32 = 80;
/// What the short form has of clients, think time and workers.
const PART: u32 = 3;
/// No request is given up by its client before it.
const TIMEOUT: Duration = Duration::from_secs(300);

/// Warm-up, measured length, and what the last answers take after that, seconds.
const SHORT: [u64; 3] = [7, 13, 4];
const LONG: [u64; 3] = [40, 85, 15];

/// The database's host, and the web server before it.
fn cluster(part: u32) -> ClusterPlan {
    let agent = AgentPlan {
        interval: INTERVAL,
        ..beside_agent()
    };
    let node = |name: &str, share, server| NodePlan {
        server,
        agents: vec![agent.clone()],
        workers: WORKERS / part,
        ..NodePlan::new(name, share)
    };
    ClusterPlan::new(vec![
        NodePlan {
            memory: DATABASE_MEMORY,
            ..node(DATABASE, DATABASE_SHARE, ServerKind::Database)
        },
        node("web", WEB_SHARE, ServerKind::Auction),
    ])
}

fn stream(visitor: Visitor, clients: u32, part: u32) -> Stream {
    Stream {
        site: SITE.into(),
        pacing: Pacing::Closed {
            clients: clients / part,
            think: THINK / part,
        },
        requests: Requests::Walk(walk(visitor)),
        header: None,
    }
}

fn point(streams: Vec<Stream>, [warm_up, length, tail]: [u64; 3]) -> Option<Point> {
    let first = streams.first()?.clone();
    let [warm_up, length, tail] = [warm_up, length, tail].map(Duration::from_secs);
    Some(Point {
        streams,
        settle: Duration::ZERO,
        timeout: TIMEOUT,
        sum_by: Some(CPU_HEADER.into()),
        tail,
        ..Point::single(String::new(), first, warm_up, length)
    })
}

/// All visitors by kind.
fn stages(scale: Scale) -> Vec<Stage> {
    let part = scale.pick(PART, 1);
    let kinds = CLIENTS.map(|(visitor, clients)| stream(visitor, clients, part));
    let point = point(kinds.into(), scale.pick(SHORT, LONG));
    let stage = point.map(|point| Stage::new(cluster(part), vec![point]));
    stage.into_iter().collect()
}

fn arms() -> Vec<Arm> {
    let tidegate = |name: &str| TidegateArm {
        poll: INTERVAL,
        ..TidegateArm::blind("least_request").watching(name, BESIDE)
    };
    let by_hand = ELEPHANTS.map(|elephant| Throttled {
        class: elephant.class,
        concurrency: elephant.at_once,
    });
    let kinds = [
        FrontKind::Tidegate(tidegate(STOCK)),
        FrontKind::Tidegate(tidegate(BY_HAND).throttling(by_hand.into())),
        FrontKind::Tidegate(tidegate(AUTOMATIC).automatic()),
        FrontKind::Tidegate(
            TidegateArm::reading(ADMITTING, "auto", BESIDE, INTERVAL)
                .watching(ADMITTING, BESIDE)
                .automatic()
                .admitting("{ mode = \"adaptive\" }"),
        ),
        FrontKind::Haproxy(HaproxyBalance::LeastConn),
    ];
    kinds.map(Arm::of).into()
}

fn plan(scale: Scale) -> Plan {
    let mut arms = arms();
    if scale == Scale::Quick {
        arms.retain(|arm| arm.name != AUTOMATIC && !arm.peer());
    }
    Plan {
        stages: stages(scale),
        arms,
        rounds: 2,
    }
}

fn run(lab: &Lab) -> Result<Report, ExperimentError> {
    let started = clock::now();
    let plan = plan(lab.scale);
    let mut accounts = Accounts::default();
    let measured = Runner::run(lab, &plan, &mut accounts)?;
    let findings = findings::findings(&plan, &measured, &accounts);
    let took = clock::now().since(started);
    Ok(report(&EXPERIMENT, lab, &plan, measured, findings, took))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_those_of_the_paper() {
        let all: u32 = CLIENTS.iter().map(|(_, clients)| clients).sum();
        assert_eq!(all, ALL_CLIENTS);
        for stage in stages(Scale::Quick) {
            let rate: f64 = stage.points[0]
                .streams
                .iter()
                .map(|stream| match stream.pacing {
                    Pacing::Closed { clients, think } => f64::from(clients) / think.as_secs_f64(),
                    Pacing::Open { .. } => 0.0,
                })
                .sum();
            let paper = f64::from(ALL_CLIENTS) / THINK.as_secs_f64();
            assert!((rate / paper - 1.0).abs() < 1e-6, "{rate}");
        }
    }
}
