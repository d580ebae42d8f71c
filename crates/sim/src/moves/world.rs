//! What happens when: requests and answers in between the looks of front-ends.
//!
//! ```text
//! rate of events   arrivals' rate + CPUs / mean demand
//! an event is      an arrival, or a CPU that ends what it does, or nothing if that CPU is idle: each as likely as its rate
//! ```
//!
//! At every look: no node is lost, floors and ceilings hold, requests that came are answered or there.

use std::time::Duration;

use tidegate_core::prng::Prng;
use tidegate_core::time::Timestamp;

use super::cluster::Cluster;
use super::fronts::Fronts;
use super::report::{MovesReport, NodeMoved};
use super::scenario::{Arm, Load, MovesError, MovesScenario};
use crate::model::Stream;

/// Virtual time at the start.
const START: Timestamp = Timestamp::from_millis(1000);
/// Between two looks at nodes where no front-end looks.
const NO_LOOK: Duration = Duration::from_millis(100);

/// Runs it.
///
/// # Errors
/// The scenario makes no sense.
///
/// # Panics
/// What must hold does not.
pub fn run(scenario: &MovesScenario) -> Result<MovesReport, MovesError> {
    scenario.check()?;
    let constitution = scenario.constitution()?;
    let nodes = scenario.first_nodes();
    let fronts = match scenario.arm {
        Arm::Rigid | Arm::OverProvisioned => None,
        Arm::Moves(rule) => {
            let prng = Stream::Picker(0).prng(scenario.seed);
            Some(Fronts::new(scenario, &rule, constitution, START, prng))
        }
    };
    let sites = nodes.len();
    let mut world = World {
        scenario,
        cluster: Cluster::new(&nodes, scenario.cpus),
        fronts,
        prng: Stream::Requests(0).prng(scenario.seed),
        report: MovesReport {
            completed: vec![0; sites],
            arrived: vec![0; sites],
            waited: vec![0.0; sites],
            length: scenario.length,
            ..MovesReport::default()
        },
        burst: (0, 0),
        rates: vec![0.0; sites],
        step: 0,
    };
    world.begin();
    world.go_on();
    let World {
        cluster,
        mut report,
        fronts,
        ..
    } = world;
    let end = START + scenario.length;
    report.locks_free = fronts.is_none_or(|it| it.are_idle(end));
    report.nodes = (0..sites).map(|site| cluster.count(site)).collect();
    report.in_flight = (0..sites).map(|site| cluster.in_flight(site)).collect();
    for site in 0..sites {
        let ended = report.completed[site] + report.in_flight[site];
        assert_eq!(report.arrived[site], ended, "requests of site {site}");
    }
    Ok(report)
}

struct World<'a> {
    scenario: &'a MovesScenario,
    cluster: Cluster,
    fronts: Option<Fronts>,
    prng: Prng,
    report: MovesReport,
    /// The site that all clients ask, and how many requests of the burst have been sent.
    burst: (usize, u64),
    /// Requests per second by site, of open loads.
    rates: Vec<f64>,
    /// Steps of the open load that have begun.
    step: usize,
}

impl World<'_> {
    fn begin(&mut self) {
        if let Load::Bursts { clients, .. } = self.scenario.load {
            for _ in 0..clients {
                self.next_of_burst();
            }
        }
    }

    fn go_on(&mut self) {
        let end = START + self.scenario.length;
        let mut now = START;
        while now < end {
            self.load_at(now);
            let looks = self.fronts.as_ref().and_then(Fronts::due);
            let due = looks.unwrap_or(now + NO_LOOK).min(end);
            let due = self.next_step().map_or(due, |step| due.min(step));
            let passed = due.since(now).as_secs_f64();
            self.requests(passed);
            for (site, waited) in self.report.waited.iter_mut().enumerate() {
                *waited += self.cluster.in_flight(site) as f64 * passed;
            }
            if let Load::Bursts { .. } = self.scenario.load {
                let nodes = self.cluster.count(self.burst.0) as f64;
                self.report.burst_nodes += nodes * passed;
            }
            now = due;
            self.look(now);
        }
    }

    /// The next step of the open load, if there is one.
    fn next_step(&self) -> Option<Timestamp> {
        match &self.scenario.load {
            Load::Open(steps) => steps.get(self.step).map(|(at, _)| START + *at),
            Load::Bursts { .. } => None,
        }
    }

    /// Takes the steps of the open load that are due.
    fn load_at(&mut self, now: Timestamp) {
        let Load::Open(steps) = &self.scenario.load else {
            return;
        };
        let per_cpu = f64::from(self.scenario.cpus) / self.scenario.demand.as_secs_f64();
        while let Some((_, loads)) = steps.get(self.step).filter(|(at, _)| START + *at <= now) {
            let own = loads.iter().zip(&self.scenario.nodes);
            self.rates = own
                .map(|(load, nodes)| load * *nodes as f64 * per_cpu)
                .collect();
            self.step += 1;
        }
    }

    /// Requests and answers of so many seconds.
    fn requests(&mut self, seconds: f64) {
        let arrivals: f64 = self.rates.iter().sum();
        let answers = self.cluster.cpus() as f64 / self.scenario.demand.as_secs_f64();
        let all = arrivals + answers;
        let mut passed = self.prng.exponential(1.0 / all);
        while passed < seconds {
            self.report.events += 1;
            let mut place = self.prng.unit() * all;
            if place < answers {
                if let Some(site) = self.cluster.complete(&mut self.prng) {
                    self.answered(site);
                }
            } else {
                place -= answers;
                let site = self.rates.iter().position(|rate| {
                    place -= rate;
                    place < 0.0
                });
                self.arrive(site.unwrap_or(0));
            }
            passed += self.prng.exponential(1.0 / all);
        }
    }

    fn arrive(&mut self, site: usize) {
        self.report.arrived[site] += 1;
        self.cluster.arrive(site);
    }

    fn answered(&mut self, site: usize) {
        self.report.completed[site] += 1;
        if let Load::Bursts { .. } = self.scenario.load {
            self.next_of_burst();
        }
    }

    fn next_of_burst(&mut self) {
        let Load::Bursts { requests, .. } = self.scenario.load else {
            return;
        };
        let (site, sent) = &mut self.burst;
        if *sent == requests {
            *site = (*site + 1) % self.scenario.nodes.len();
            *sent = 0;
        }
        *sent += 1;
        let site = *site;
        self.arrive(site);
    }

    /// Front-ends look, and nodes go where their words say.
    fn look(&mut self, now: Timestamp) {
        let Some(fronts) = &mut self.fronts else {
            return;
        };
        fronts.go_on(&self.cluster, now, &mut self.report);
        fronts.check(now);
        for (node, to) in fronts.sites(now).into_iter().enumerate() {
            let from = self.cluster.site(node);
            if from != to {
                self.cluster.assign(node, to);
                self.report.moves.push(NodeMoved {
                    at: now.since(START),
                    node,
                    from,
                    to,
                });
            }
        }
        self.check();
    }

    fn check(&self) {
        let (least, most) = self.scenario.bounds;
        for (site, first) in self.scenario.nodes.iter().enumerate() {
            let count = self.cluster.count(site);
            let (least, most) = (least.min(*first), most.max(*first));
            assert!(
                (least..=most).contains(&count),
                "site {site} has {count} nodes, of {least} to {most}"
            );
        }
    }
}
