//! What an agent of a node costs, by its interval and by where it runs: CPU time by the control
//! groups' own accounts, in per cent of one CPU. Needs root.
//!
//! `cargo run --profile fast -p tidegate-lab --example agents`, with `tidegate` built beside it
//! or named in TIDEGATE_BIN. On two virtual CPUs that others used too:
//!
//! ```text
//! interval  inside, idle  beside, idle  beside, 8 hogs
//!     1 ms        4.52 %        5.73 %          6.03 %
//!     5 ms        2.00 %        1.81 %          2.35 %
//!    10 ms        1.61 %        1.33 %          2.13 %
//!    50 ms        0.59 %        0.65 %          1.02 %
//! ```

#![expect(clippy::print_stdout, reason = "an example prints")]

use std::time::Duration;

use tidegate_lab::antagonist::Antagonist;
use tidegate_lab::cluster::{
    AgentPlan, Cluster, ClusterError, ClusterPlan, Mode, NodePlan, Placed,
};
use tidegate_remote::clock;

const INTERVALS_MS: [u64; 4] = [1, 5, 10, 50];
/// How long each is measured.
const LENGTH: Duration = Duration::from_secs(4);
/// The node's share, and the threads that fill it when it is to be busy.
const SHARE: f64 = 0.5;
const HOGS: u32 = 8;

fn main() -> Result<(), ClusterError> {
    println!("interval  inside, idle  beside, idle  beside, {HOGS} hogs");
    for interval in INTERVALS_MS {
        let shares = [
            share(interval, Placed::Inside, false)?,
            share(interval, Placed::Beside, false)?,
            share(interval, Placed::Beside, true)?,
        ];
        let [inside, beside, busy] = shares.map(|share| format!("{:.2} %", share * 100.0));
        println!("{:>5} ms  {inside:>12}  {beside:>12}  {busy:>14}", interval);
    }
    Ok(())
}

/// Share of one CPU that the agent takes.
fn share(interval: u64, place: Placed, busy: bool) -> Result<f64, ClusterError> {
    let agent = AgentPlan {
        name: "agent",
        interval: Duration::from_millis(interval),
        place,
        port: 9901,
        rungs: place.rungs(),
        agent_check: None,
    };
    let node = NodePlan {
        agents: vec![agent],
        ..NodePlan::new("n", SHARE)
    };
    let plan = ClusterPlan {
        mode: Some(Mode::Namespaces),
        ..ClusterPlan::new(vec![node])
    };
    let cluster = Cluster::start(&plan)?;
    let hogs = Antagonist::Hogs { threads: HOGS };
    let _guard = busy.then(|| cluster.antagonist(0, &hogs)).transpose()?;
    let used = || match place {
        Placed::Inside => cluster.cpu_time(0),
        Placed::Beside | Placed::Unlimited | Placed::Kernel => cluster.beside_cpu_time(0),
    };
    let (start, before) = (clock::now(), used());
    clock::sleep_until(start + LENGTH);
    let passed = clock::now().since(start);
    Ok((used() - before).as_secs_f64() / passed.as_secs_f64())
}
