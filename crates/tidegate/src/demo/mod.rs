//! `tidegate demo`: a cluster in one process, and the policies one after the other on the same
//! arrivals.
//!
//! ```text
//!  Load ──open loop──> front-ends ──> emulated nodes (HTTP; virtual CPUs)
//!   same arrivals        six, each      unequal, antagonists come and go
//!   for each policy      as in `run`    └─ load records ──> the front-ends' readers
//! ```
//!
//! Front-ends start anew for each run, so no policy finds what another one has learned. With
//! enough time there are two rounds, the second one backwards and on other arrivals, and the
//! table shows both p99. The machine calibrates itself first: demands are stretched and
//! requests made rarer until the real CPU that all this costs is well below what there is. What
//! a policy must cope with, the load relative to the emulated CPUs, stays the same.
//!
//! What it is not: a benchmark of the proxy. The latencies are those of queues at the nodes.

mod calibration;
mod cluster;
mod elephant;
mod front_ends;
mod live;
mod load;
mod machines;
mod moves;
mod open_loop;
mod page;
mod report;
mod visitors;

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tidegate_core::policy::PolicyKind;
use tidegate_core::time::Timestamp;
use tidegate_remote::clock;

use crate::admin::plane::Plane;
use crate::failure::Failure;
use crate::output::Output;
use crate::signals::Stop;
use calibration::{Cost, cpu_time, cpus};
use cluster::{Cluster, POLICIES};
use front_ends::FrontEnds;
use live::Live;
use load::{Load, Plan};
use machines::Machines;
use page::Page;
use report::{DemoRuns, Run};

/// From this much time on there are two rounds.
const TWO_ROUNDS_FROM: Duration = Duration::from_secs(40);
/// For front-ends to start and last requests to end, each run.
const AROUND_RUN: Duration = Duration::from_millis(700);
/// Shortest run.
const RUN_MIN: Duration = Duration::from_millis(500);
/// The part of a run that is not measured, and its limit.
const WARM_UP_SHARE: u32 = 5;
const WARM_UP_MAX: Duration = Duration::from_millis(800);
/// For readers to have read every node, and for the machine to calm down, before a run.
const SETTLE: Duration = Duration::from_millis(200);
/// Between two looks at a run, and between two tables.
const LOOK: Duration = Duration::from_millis(50);
const SHOW: Duration = Duration::from_millis(500);
/// Sockets and files that the demo may need open.
const FILES: u64 = 16_384;

/// Options of `tidegate demo`.
#[derive(Clone, Debug, Args)]
pub(crate) struct DemoArgs {
    /// End after about so many seconds; fewer than ten tell little.
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub(crate) seconds: u32,
    /// Another seed gives other arrivals and antagonists.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Show one class of requests that costs all others: it is found, and slowed down at a click.
    #[arg(long)]
    pub(crate) elephant: bool,
    /// Show nodes that move to a site with a flash crowd, and back, beside the same load without moves.
    #[arg(long, conflicts_with = "elephant")]
    pub(crate) moves: bool,
    /// Port of the live page; 0 is any free one.
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    pub(crate) port: u16,
}

/// How the time is used.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Schedule {
    rounds: u32,
    /// Of the arrivals of one run.
    length: Duration,
    warm_up: Duration,
}

impl Schedule {
    fn of(left: Duration) -> Self {
        let rounds = if left >= TWO_ROUNDS_FROM { 2 } else { 1 };
        let each = left / (rounds * POLICIES.len() as u32);
        let length = each.saturating_sub(AROUND_RUN).max(RUN_MIN);
        Self {
            rounds,
            length,
            warm_up: (length / WARM_UP_SHARE).min(WARM_UP_MAX),
        }
    }

    /// The policies of a round: the second one backwards, against drift of the machine.
    fn order(round: u32) -> Vec<PolicyKind> {
        let mut order = POLICIES.to_vec();
        if !round.is_multiple_of(2) {
            order.reverse();
        }
        order
    }
}

/// Runs the demo and prints what it found.
pub(crate) fn run(args: &DemoArgs, output: Output) -> Result<(), Failure> {
    let started = clock::now();
    raise_file_limit();
    let failed = |error: std::io::Error| Failure::Failed(format!("cannot start: {error}"));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(failed)?;
    if args.moves {
        let ended = runtime.block_on(moves::run(args, output, started));
        runtime.shutdown_background();
        return ended;
    }
    if args.elephant {
        let ended = runtime.block_on(elephant::run(args, output, started));
        runtime.shutdown_background();
        return ended;
    }
    let findings = runtime.block_on(async {
        let mut demo = Demo::start(args, output)?;
        demo.run(started).await
    });
    // Open pages are not waited for.
    runtime.shutdown_background();
    let findings = findings?;
    if output.json {
        output.event("machine", &findings.machine());
    }
    Ok(output.result(&output.fit(&findings.table()), &findings.summary())?)
}

struct Demo {
    seconds: u32,
    seed: u64,
    port: u16,
    cluster: Cluster,
    machines: Machines,
    /// What the live page looks at: the first front-end of the run at hand.
    page: Option<Page>,
    live: Live,
    stop: Stop,
}

/// One run to be made.
struct Task<'a> {
    policy: PolicyKind,
    seed: u64,
    length: Duration,
    warm_up: Duration,
    /// What it is, for the head of the live table.
    title: &'a str,
}

impl Demo {
    /// Starts the nodes. Needs the runtime around it.
    fn start(args: &DemoArgs, output: Output) -> Result<Self, Failure> {
        let stop = Stop::new()?;
        let cluster = Cluster::new();
        let nodes = cluster.nodes.iter();
        let machines = Machines::start(nodes.map(|node| (node.name.as_str(), node.cores)));
        Ok(Self {
            seconds: args.seconds,
            seed: args.seed,
            port: args.port,
            machines: machines.map_err(|error| Failure::Failed(error.to_string()))?,
            cluster,
            page: None,
            live: Live::new(output),
            stop,
        })
    }

    async fn run(&mut self, started: Timestamp) -> Result<DemoRuns, Failure> {
        let calibrated = self.calibrate().await?;
        self.live
            .say("cluster", &self.cluster.describe(self.seed))?;
        if let Some(text) = calibrated {
            self.live.say("calibrated", &text)?;
        }
        let left =
            Duration::from_secs(self.seconds.into()).saturating_sub(clock::now().since(started));
        let schedule = Schedule::of(left);
        let text = format!(
            "runs:    each policy {} of {:.1} s on the same arrivals, after {:.1} s that are not \
             measured\npage:    {} (of the first front-end; it goes when the demo ends)\n",
            if schedule.rounds == 1 {
                "once"
            } else {
                "twice"
            },
            schedule.length.as_secs_f64(),
            schedule.warm_up.as_secs_f64(),
            self.page_address()
        );
        self.live.say("runs", &text)?;
        let mut findings = DemoRuns {
            nodes: self.cluster.nodes.len(),
            offered_rps: self.cluster.rate(),
            mean_demand: self.cluster.mean_demand(),
            runs: Vec::new(),
        };
        'rounds: for round in 0..schedule.rounds {
            for policy in Schedule::order(round) {
                let title = format!(
                    "{}, round {} of {}",
                    policy.name(),
                    round + 1,
                    schedule.rounds
                );
                let task = Task {
                    policy,
                    seed: self.seed.wrapping_add(round.into()),
                    length: schedule.length,
                    warm_up: schedule.warm_up,
                    title: &title,
                };
                let (run, interrupted) = self.one(&task).await?;
                self.live.say("run", &run.line())?;
                findings.runs.push(run);
                if interrupted {
                    self.live
                        .say("interrupted", "interrupted: this is what there is so far")?;
                    break 'rounds;
                }
            }
        }
        self.live.say("end", "")?;
        Ok(findings)
    }

    /// One policy on its arrivals; whether it was interrupted.
    async fn one(&mut self, task: &Task<'_>) -> Result<(Run, bool), Failure> {
        let front_ends = FrontEnds::start(&self.cluster, task.policy, &self.machines, task.seed)?;
        self.turn_page(front_ends.plane())?;
        tokio::time::sleep(SETTLE).await;
        let start = clock::now();
        let antagonists = self.cluster.antagonists(task.seed);
        self.machines.nodes.begin(&antagonists, start);
        self.live.begin();
        let cpu = cpu_time();
        let load = Load::start(Plan {
            arrivals: self.cluster.arrivals(task.seed, task.length).into(),
            addresses: front_ends.addresses(),
            hosts: self.cluster.sites.iter().map(|site| site.host).collect(),
            start,
            warm_up: task.warm_up,
            length: task.length,
        });
        let load = load.map_err(cannot_send)?;
        let interrupted = self.watch(&load, task, start).await?;
        let elapsed = clock::now().since(start);
        let busy = (cpu_time() - cpu).as_secs_f64() / elapsed.as_secs_f64() / cpus();
        let tally = load.finish();
        if tally.sent != tally.ended {
            return Err(Failure::Failed(format!(
                "requests are not conserved: {} sent, {} ended",
                tally.sent, tally.ended
            )));
        }
        let run = Run {
            policy: task.policy,
            tally,
            measured: task.length - task.warm_up,
            load_age: front_ends.load_age(),
            elapsed,
            busy,
        };
        Ok((run, interrupted))
    }

    /// Shows the run until all requests have ended, or someone interrupts.
    async fn watch(
        &mut self,
        load: &Load,
        task: &Task<'_>,
        start: Timestamp,
    ) -> Result<bool, Failure> {
        let mut shown = start;
        while !load.is_done() {
            tokio::select! {
                () = self.stop.wait() => return Ok(true),
                () = tokio::time::sleep(LOOK) => {}
            }
            let now = clock::now();
            if now.since(shown) < SHOW {
                continue;
            }
            let (sent, ended) = {
                let tally = load.tally();
                (tally.sent, tally.ended)
            };
            let head = format!(
                "{}: {:.1} of {:.1} s, {sent} sent, {} in flight\npage {}",
                task.title,
                now.since(start).min(task.length).as_secs_f64(),
                task.length.as_secs_f64(),
                sent.saturating_sub(ended),
                self.page_address()
            );
            let nodes = self.cluster.nodes.iter().zip(self.machines.nodes.now());
            let nodes: Vec<_> = nodes
                .map(|(node, now)| (node.name.as_str(), node.cores, now))
                .collect();
            let seconds = now.since(shown).as_secs_f64();
            self.live.show(&head, &nodes, seconds)?;
            shown = now;
        }
        Ok(false)
    }

    /// Stretches the load until this machine can carry it; says so if it had to.
    async fn calibrate(&mut self) -> Result<Option<String>, Failure> {
        self.cluster.stretch = calibration::STRETCH;
        let idle_front_ends = FrontEnds::start(
            &self.cluster,
            PolicyKind::LeastRequest,
            &self.machines,
            self.seed,
        )?;
        tokio::time::sleep(SETTLE).await;
        let begin = (clock::now(), cpu_time());
        tokio::time::sleep(calibration::IDLE).await;
        let idle = (cpu_time() - begin.1).as_secs_f64() / clock::now().seconds_since(begin.0);
        drop(idle_front_ends);
        let task = Task {
            policy: PolicyKind::LeastRequest,
            seed: self.seed,
            length: calibration::LOADED,
            warm_up: calibration::WARM_UP,
            title: "measuring this machine",
        };
        let (run, _) = self.one(&task).await?;
        let cost = Cost {
            idle,
            loaded: run.busy * cpus(),
            elapsed: run.elapsed,
            sent: run.tally.sent,
            overhead: Duration::from_secs_f64(run.tally.overhead_ms() * 1e-3),
        };
        self.cluster.stretch = 1.0;
        let stretch = cost.stretch(self.cluster.rate(), self.cluster.mean_demand(), cpus());
        self.cluster.stretch = stretch;
        Ok(cost.describe(stretch, cpus()))
    }

    /// Lets the live page look at another front-end; the first time, opens it.
    fn turn_page(&mut self, plane: Arc<Plane>) -> Result<(), Failure> {
        match &self.page {
            Some(page) => page.turn(plane),
            None => self.page = Some(Page::open(self.port, plane)?),
        }
        Ok(())
    }

    fn page_address(&self) -> &str {
        self.page.as_ref().map_or("", |page| &page.address)
    }
}

/// Every request in flight takes four sockets of this one process. Where the limit stays low,
/// requests fail under policies that let queues grow, and the table says so.
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(FILES, |maximum| maximum.min(FILES));
    if limit.current.is_some_and(|current| current < wanted) {
        let raised = Rlimit {
            current: Some(wanted),
            maximum: limit.maximum,
        };
        setrlimit(Resource::Nofile, raised).ok();
    }
}

fn cannot_send(error: std::io::Error) -> Failure {
    Failure::Failed(format!("cannot send requests: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_shared_out_among_the_runs() {
        let minute = Schedule::of(Duration::from_secs(58));
        assert_eq!(minute.rounds, 2);
        assert_eq!(minute.length, Duration::from_millis(5100));
        let short = Schedule::of(Duration::from_secs(10));
        assert_eq!(
            (short.rounds, short.length),
            (1, Duration::from_millis(1300))
        );
        let none = Schedule::of(Duration::ZERO);
        assert_eq!(none.length, RUN_MIN);
        assert!(none.warm_up < none.length);
    }

    #[test]
    fn the_second_round_runs_backwards() {
        let (mut first, second) = (Schedule::order(0), Schedule::order(1));
        first.reverse();
        assert_eq!(first, second);
    }
}
