//! Front-ends that look and move, and what goes wrong with them.
//!
//! A front-end that moves a node does all of the move's operations at once, unless it ends in the middle; the operation
//! that was under way may then be done much later. A node refuses a swap that is older than the protocol allows.

use std::time::Duration;

use tidegate_core::moves::carry::CarryConfig;
use tidegate_core::moves::choice::SiteLoad;
use tidegate_core::moves::lease::{AGE_MAX, Patience};
use tidegate_core::moves::memory::MemoryWords;
use tidegate_core::moves::mover::{Mover, MoverConfig, MoverSight, NodeSight, SiteSight};
use tidegate_core::moves::numbering::Constitution;
use tidegate_core::moves::plan::NodeReading;
use tidegate_core::moves::steps::{Attempt, AttemptEnd, MoveOp};
use tidegate_core::moves::words::{LockState, NodeNumber};
use tidegate_core::prng::Prng;
use tidegate_core::time::Timestamp;

use super::cluster::Cluster;
use super::report::MovesReport;
use super::scenario::{Faults, MovesScenario, Rule};

/// A front-end, and when it looks next.
#[derive(Debug)]
struct FrontEnd {
    mover: Mover,
    looks_at: Timestamp,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Fronts {
    constitution: Constitution,
    config: MoverConfig,
    begun_at: Timestamp,
    sensitivity: Duration,
    faults: Option<Faults>,
    words: MemoryWords,
    all: Vec<FrontEnd>,
    late: Vec<(Timestamp, MoveOp)>,
    prng: Prng,
}

impl Fronts {
    /// Front-ends that have not looked yet, and words of nodes that are at home.
    pub(super) fn new(
        scenario: &MovesScenario,
        rule: &Rule,
        constitution: Constitution,
        now: Timestamp,
        prng: Prng,
    ) -> Self {
        let home = |node| constitution.home(node).expect("each node has a home");
        let words = MemoryWords::new(&constitution, home);
        let config = mover_config(rule, scenario.front_ends);
        let mut fronts = Self {
            words,
            config,
            sensitivity: rule.sensitivity,
            begun_at: now,
            faults: scenario.faults,
            all: Vec::new(),
            late: Vec::new(),
            constitution,
            prng,
        };
        for _ in 0..scenario.front_ends {
            let looks_at = now + fronts.sensitivity.mul_f64(fronts.prng.unit());
            let mover = fronts.mover();
            fronts.all.push(FrontEnd { mover, looks_at });
        }
        fronts
    }

    fn mover(&mut self) -> Mover {
        Mover::new(self.constitution.clone(), self.config, self.prng.bits())
    }

    /// When the next of them looks, or what is late is done; none without front-ends.
    pub(super) fn due(&self) -> Option<Timestamp> {
        let looks = self.all.iter().map(|it| it.looks_at);
        let late = self.late.iter().map(|(at, _)| *at);
        looks.chain(late).min()
    }

    /// Does what is due now.
    pub(super) fn go_on(&mut self, cluster: &Cluster, now: Timestamp, report: &mut MovesReport) {
        let due: Vec<_> = self.late.extract_if(.., |(at, _)| *at <= now).collect();
        for (_, op) in due {
            self.done_late(op, now, report);
        }
        for place in 0..self.all.len() {
            if self.all[place].looks_at <= now {
                self.all[place].looks_at = now + self.sensitivity;
                self.look(place, cluster, now, report);
            }
        }
    }

    /// The site that a node's word says.
    pub(super) fn sites(&self, now: Timestamp) -> Vec<usize> {
        let read = self.words.nodes(now).expect("front-ends wrote them");
        let site = |reading: &NodeReading| match reading {
            NodeReading::Read { assignment, .. } => assignment.site.index(),
            NodeReading::Silent | NodeReading::Unread => unreachable!("words in memory are read"),
        };
        read.iter().map(site).collect()
    }

    /// A8: no front-end knows a node's word before the node has it.
    pub(super) fn check(&self, now: Timestamp) {
        let read = self.words.nodes(now).expect("front-ends wrote them");
        for (number, reading) in read.iter().enumerate() {
            let NodeReading::Read { assignment, .. } = reading else {
                unreachable!("words in memory are read");
            };
            for front_end in &self.all {
                let known = front_end.mover.assignment(NodeNumber(number as u16));
                let is_ahead =
                    known.is_some_and(|it| it.generation.is_after(assignment.generation));
                assert!(
                    !is_ahead,
                    "node {number}: {known:?}, and it has {assignment:?}"
                );
            }
        }
    }

    /// Whether all locks are free.
    pub(super) fn are_idle(&self, now: Timestamp) -> bool {
        let read = self.words.sites(now).expect("front-ends wrote them");
        read.iter()
            .flatten()
            .all(|it| matches!(it.lock.state, LockState::Idle))
    }

    /// A swap of a node's word that is too old is refused, as nodes do.
    fn done_late(&mut self, op: MoveOp, now: Timestamp, report: &mut MovesReport) {
        let too_old = matches!(op, MoveOp::SwapNode { born, .. } if now.since(born) > AGE_MAX);
        match too_old {
            true => report.late.1 += 1,
            false => {
                report.late.0 += 1;
                self.words.carry_out(op);
            }
        }
    }

    fn look(&mut self, place: usize, cluster: &Cluster, now: Timestamp, report: &mut MovesReport) {
        let sites = self.words.sites(now).expect("front-ends wrote them");
        let nodes = self.words.nodes(now).expect("front-ends wrote them");
        let (site_sights, node_sights) = sights(cluster, sites.len());
        let sight = MoverSight {
            site_words: &sites,
            node_words: &nodes,
            sites: &site_sights,
            nodes: &node_sights,
        };
        let look = self.all[place].mover.look(&sight, now);
        for (node, expected, carried) in look.carried {
            let new = carried.new;
            self.words.carry_out(MoveOp::SwapNode {
                node,
                expected,
                new,
                born: now,
            });
        }
        for (site, stood) in look.help {
            report.helped += 1;
            if !self.attempt(place, Attempt::help(site, stood, now), now, report) {
                return;
            }
        }
        if let Some(chosen) = look.begin {
            let node: NodeNumber = chosen.plan.intention.node;
            self.all[place].mover.on_begun(node, now);
            self.attempt(place, Attempt::begin(chosen.plan, now), now, report);
        }
    }

    /// Does the operations of a move; whether the front-end lived to its end.
    fn attempt(
        &mut self,
        place: usize,
        attempt: Attempt,
        now: Timestamp,
        report: &mut MovesReport,
    ) -> bool {
        let mut attempt = attempt;
        loop {
            let op = attempt.op(&self.constitution);
            let goes_wrong =
                |it: &Faults| now < self.begun_at + it.until && self.prng.unit() < it.crash;
            if let Some(faults) = self.faults.filter(goes_wrong) {
                self.crash(place, op, &faults, now, report);
                return false;
            }
            match attempt.on_reply(self.words.carry_out(op), now) {
                Ok(next) => attempt = next,
                Err(AttemptEnd::HelpFirst(_) | AttemptEnd::Finished | AttemptEnd::Overtaken) => {
                    return true;
                }
                Err(end) => unreachable!("words in memory lose nothing: {end:?}"),
            }
        }
    }

    fn crash(
        &mut self,
        place: usize,
        op: MoveOp,
        faults: &Faults,
        now: Timestamp,
        report: &mut MovesReport,
    ) {
        report.crashes += 1;
        if self.prng.unit() < faults.late {
            let late = faults.late_max.mul_f64(self.prng.unit());
            self.late.push((now + late, op));
        }
        let down = self.prng.exponential(faults.down.as_secs_f64());
        let mover = self.mover();
        self.all[place] = FrontEnd {
            mover,
            looks_at: now + Duration::from_secs_f64(down),
        };
    }
}

fn sights(cluster: &Cluster, sites: usize) -> (Vec<SiteSight>, Vec<NodeSight>) {
    let cpus = cluster.cpus() as f64 / cluster.nodes() as f64;
    let site = |site| SiteSight {
        load: SiteLoad {
            demand: cluster.demand(site) as f64,
            cpus: cluster.count(site) as f64 * cpus,
        },
        service_time: Duration::ZERO,
    };
    let node = |node| NodeSight {
        cpus,
        load: f64::from(cluster.load(node)),
        fresh: true,
        ready: None,
        agent: None,
        quiet_since: None,
    };
    (
        (0..sites).map(site).collect(),
        (0..cluster.nodes()).map(node).collect(),
    )
}

fn mover_config(rule: &Rule, front_ends: u32) -> MoverConfig {
    MoverConfig {
        history: rule.history,
        high: rule.high,
        choice: rule.choice,
        flap_budget: rule.moves_max,
        carry: CarryConfig {
            // Nodes serve at once.
            drain: Duration::ZERO,
            hook: None,
            lease: Duration::ZERO,
        },
        warm_up: rule.warm_up,
        front_ends,
        patience: Patience::new(Duration::ZERO, 0.0, Duration::ZERO),
        owner: 0,
    }
}
