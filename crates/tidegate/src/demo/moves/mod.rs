//! `tidegate demo --moves`: a crowd comes to one of two sites that share a cluster. Nodes follow it and come back, beside the
//! same load where each site keeps its own nodes.
//!
//! ```text
//!  Visitors ──open loop──> front-end ──> emulated nodes of two sites
//!  (Crowd: what comes when)   as in `run`   └─ load records ──> moves ──> Topology ──> Timeline
//! ```
//!
//! The arms run one after the other on the same arrivals, each with a front-end of its own from the configuration file that a user
//! would write; only `[reconfigure] enabled` differs. Admission is off: it would refuse what the rigid sites cannot serve.

mod crowd;
mod report;
mod timeline;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::time::Timestamp;
use tidegate_emulator::nodes::NodeNow;
use tidegate_remote::clock;
use tidegate_sim::model::Stream;

use super::DemoArgs;
use super::calibration::{self, Cost, cpus};
use super::live::Live;
use super::machines::Machines;
use super::open_loop::OpenLoop;
use super::page::Page;
use super::visitors::Visitors;
use super::{LOOK, SETTLE, SHOW, cannot_send};
use crate::config::Config;
use crate::failure::Failure;
use crate::output::Output;
use crate::reload::Begun;
use crate::run::{Running, Start};
use crate::signals::Stop;
use crowd::{Arrival, Crowd, PHASES, SITES, Schedule};
use report::{Arm, Summary};
use timeline::Timeline;

/// The last seconds, of which the live table tells.
const LAST: Duration = Duration::from_secs(1);
/// Between two lines where no table is redrawn.
const LINE: Duration = Duration::from_secs(3);
/// For a front-end to start and the last requests to end, each arm.
const AROUND_RUN: Duration = Duration::from_millis(1500);
/// Shortest run.
const RUN_MIN: Duration = Duration::from_secs(3);
/// Stretched more, too few requests come in the time that there is.
const STRETCH_MAX: f64 = 4.0;

/// Runs the demo and prints what it found.
pub(super) async fn run(
    args: &DemoArgs,
    output: Output,
    started: Timestamp,
) -> Result<(), Failure> {
    let stop = Stop::new()?;
    let nodes: Vec<_> = crowd::nodes().collect();
    let machines = Machines::start(nodes.iter().map(|(name, cpus)| (name.as_str(), *cpus)));
    let machines = machines.map_err(|error| Failure::Failed(error.to_string()))?;
    let (crowd, stretched) = calibrated(&machines, args.seed).await?;
    let all = Duration::from_secs(args.seconds.into());
    let left = all.saturating_sub(clock::now().since(started)) / 2;
    let schedule = Schedule::of(left.saturating_sub(AROUND_RUN).max(RUN_MIN));
    let mut live = Live::new(output);
    live.say("cluster", &crowd.describe(args.seed, &schedule))?;
    if let Some(text) = stretched {
        live.say("calibrated", &text)?;
    }
    let mut demo = Demo {
        seed: args.seed,
        port: args.port,
        crowd,
        schedule,
        nodes,
        machines,
        page: None,
        live,
        stop,
    };
    let mut summary = Summary {
        mode: "moves",
        nodes: demo.nodes.len(),
        cpus: crowd::cpus(),
        arms: Vec::new(),
    };
    for moves in [false, true] {
        let (arm, interrupted) = demo.arm(moves).await?;
        summary.arms.push(arm);
        if interrupted {
            demo.live
                .say("interrupted", "interrupted: this is what there is so far")?;
            break;
        }
    }
    demo.live.say("end", "")?;
    Ok(output.result(&output.fit(&summary.table()), &summary)?)
}

/// A front-end as `tidegate run` makes it from a file.
fn start(moves: bool, machines: &Machines, seed: u64) -> Result<Running, Failure> {
    let addresses = machines.nodes.addresses().iter().copied();
    let text = crowd::file(moves, addresses.zip(machines.regions()));
    let failed = |why: String| Failure::Failed(format!("cannot start: {why}"));
    let mut config = Config::parse(&text, "the demo's configuration", Path::new(""))
        .map_err(|error| failed(error.render(false)))?;
    let front_end = config.front_end.take();
    let mut front_end = front_end.ok_or_else(|| failed("it is no front-end's".into()))?;
    let begun = Begun::of(None, &config, &front_end);
    front_end.seed = Some(Stream::Picker(0).prng(seed).bits());
    let start = Start {
        begun: Some(begun),
        ..Start::plain()
    };
    // Its events are shown as a timeline.
    Running::start(front_end, start, Output::QUIET)
}

/// The load as this machine can carry it, and what is to be said of that.
async fn calibrated(machines: &Machines, seed: u64) -> Result<(Crowd, Option<String>), Failure> {
    let running = start(false, machines, seed)?;
    tokio::time::sleep(SETTLE).await;
    let mut crowd = Crowd {
        stretch: calibration::STRETCH,
    };
    let arrivals = crowd.arrivals(seed, &Schedule::of(calibration::LOADED));
    let cost = Cost::measure(arrivals, &running.plane.listeners.load()).await;
    let cost = cost.map_err(cannot_send)?;
    crowd.stretch = 1.0;
    let stretch = cost.stretch(crowd.rate_max(), crowd.mean_demand(), cpus());
    crowd.stretch = stretch.min(STRETCH_MAX);
    Ok((crowd, cost.describe(crowd.stretch, cpus())))
}

struct Demo {
    seed: u64,
    port: u16,
    crowd: Crowd,
    schedule: Schedule,
    nodes: Vec<(String, u32)>,
    machines: Machines,
    /// What the live page looks at: the front-end of the arm at hand.
    page: Option<Page>,
    live: Live,
    stop: Stop,
}

/// One arm under way.
struct ArmRun {
    moves: bool,
    start: Timestamp,
    running: Running,
    visitors: Arc<Visitors<Arrival>>,
    timeline: Timeline,
}

impl Demo {
    /// One arm; whether it was interrupted.
    async fn arm(&mut self, moves: bool) -> Result<(Arm, bool), Failure> {
        let running = start(moves, &self.machines, self.seed)?;
        let page = match &self.page {
            Some(page) => {
                page.turn(Arc::clone(&running.plane));
                page
            }
            None => self
                .page
                .insert(Page::open(self.port, Arc::clone(&running.plane))?),
        };
        let what = match moves {
            true => "moves:   nodes follow the load",
            false => "rigid:   each site keeps its own nodes",
        };
        let text = format!("{what}. Page: {}", page.address);
        self.live.say("arm", &text)?;
        tokio::time::sleep(SETTLE).await;
        self.live.begin();
        let start = clock::now();
        let arrivals = self.crowd.arrivals(self.seed, &self.schedule);
        let visitors = Arc::new(Visitors::new(arrivals, start));
        let requests = OpenLoop::start(
            Arc::clone(&visitors),
            &running.plane.listeners.load(),
            start,
        );
        let mut requests = requests.map_err(cannot_send)?;
        let mut run = ArmRun {
            moves,
            start,
            running,
            visitors,
            timeline: Timeline::default(),
        };
        let interrupted = self.watch(&mut run, &requests).await?;
        let until = clock::now().since(start);
        requests.end();
        let book = run.visitors.book();
        let arm = Arm::of(moves, &book, &run.timeline, &self.schedule, until);
        Ok((arm, interrupted))
    }

    /// Follows an arm to its end; whether it was interrupted.
    async fn watch(&mut self, run: &mut ArmRun, requests: &OpenLoop) -> Result<bool, Failure> {
        let mut shown = run.start;
        while !requests.is_done() {
            tokio::select! {
                () = self.stop.wait() => return Ok(true),
                () = tokio::time::sleep(LOOK) => {}
            }
            let now = clock::now();
            run.timeline.see(now.since(run.start), run.nodes());
            let every = if self.live.is_watched() { SHOW } else { LINE };
            if now.since(shown) >= every {
                self.show(run, now.since(run.start), now.since(shown))?;
                shown = now;
            }
        }
        Ok(false)
    }

    fn show(&mut self, run: &ArmRun, now: Duration, since: Duration) -> Result<(), Failure> {
        let phase = PHASES[self.schedule.at(now)];
        let mut text = format!(
            "{}, {phase}, {:.0} of {:.0} s",
            if run.moves { "moves" } else { "rigid" },
            now.as_secs_f64(),
            self.schedule.end().as_secs_f64()
        );
        let from = now.saturating_sub(LAST);
        let nodes = run.timeline.at(now);
        for (site, name) in SITES.iter().enumerate() {
            let sum = run.visitors.book().sum(site, from, now);
            let p99 = sum.p99_ms.map_or("-".into(), |p99| format!("{p99:.0} ms"));
            text.push_str(&format!(
                "; {name} {} nodes, {:.0} requests/s, p99 {p99}",
                nodes[site], sum.per_second
            ));
        }
        if !self.live.is_watched() {
            return Ok(self.live.say("progress", &text)?);
        }
        text = text.replace("; ", "\n");
        let picture = run
            .timeline
            .picture(&self.schedule, now.min(self.schedule.end()));
        text.push_str(&format!("\n{picture}"));
        if let Some(page) = &self.page {
            text.push_str(&format!("\npage {}", page.address));
        }
        let nodes = self.nodes.iter().zip(self.machines.nodes.now());
        let nodes: Vec<(&str, u32, NodeNow)> = nodes
            .map(|((name, cpus), now)| (name.as_str(), *cpus, now))
            .collect();
        Ok(self.live.show(&text, &nodes, since.as_secs_f64())?)
    }
}

impl ArmRun {
    /// Nodes by site, as requests are routed now.
    fn nodes(&self) -> [usize; 2] {
        let topology = self.running.plane.shared.topology.load();
        SITES.map(|site| {
            let site = topology.site_named(site);
            let own = |node: tidegate_core::topology::SiteId| Some(node) == site;
            topology
                .members()
                .filter(|(_, node)| own(node.site))
                .count()
        })
    }
}
