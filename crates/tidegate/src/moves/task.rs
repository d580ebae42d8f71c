//! The task that looks, moves and says so.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tidegate_core::director::RAMP_SPEED_MAX;
use tidegate_core::moves::carry::{CarryConfig, NodeTurn};
use tidegate_core::moves::choice::ChosenMove;
use tidegate_core::moves::lease::Patience;
use tidegate_core::moves::memory::MemoryWords;
use tidegate_core::moves::mover::{
    Mover, MoverConfig, MoverLook, MoverSight, NodeSight, SiteSight,
};
use tidegate_core::moves::numbering::Constitution;
use tidegate_core::moves::plan::{MovePlan, NodeReading, SiteReading};
use tidegate_core::moves::steps::{Attempt, AttemptEnd, MoveOp};
use tidegate_core::moves::words::{Assignment, MoveCause, NodeNumber, SiteNumber};
use tidegate_core::time::Timestamp;
use tidegate_proxy::Shared;
use tidegate_remote::clock;
use tokio::time::{MissedTickBehavior, interval};

use super::models::{MoveCount, MoveDone, MoveRecord, MoveRequest, MovesSite};
use super::record::{History, cause, verdict};
use super::sight::Places;
use super::{Order, Orders};
use crate::config::Movable;
use crate::models::MovedNodes;
use crate::output::{self, Output};
use crate::reload::LiveCluster;

/// How often onlookers see something new.
const SHOWN_EVERY: Duration = Duration::from_millis(200);

/// What the task works on.
pub(crate) struct MovesTask {
    cluster: Arc<LiveCluster>,
    shared: Arc<Shared>,
    output: Output,
    orders: Orders,
    movable: Movable,
    /// Reloads that are followed.
    reloads: u64,
    /// None while there are no sites to move between.
    party: Option<Party>,
    history: History,
    /// Moves that were begun, by node: what the record of each will say.
    begun: BTreeMap<NodeNumber, MoveRecord>,
    counts: BTreeMap<(&'static str, bool), u64>,
    /// The move that a dry run has said last.
    said: Option<(NodeNumber, SiteNumber)>,
    shown_at: Timestamp,
}

/// What moves with one constitution.
struct Party {
    mover: Mover,
    words: MemoryWords,
    places: Places,
}

/// What is read at one look.
struct Reading {
    sites: Vec<Option<SiteReading>>,
    nodes: Vec<NodeReading>,
    site_sights: Vec<SiteSight>,
    node_sights: Vec<NodeSight>,
}

impl Reading {
    fn sight(&self) -> MoverSight<'_> {
        MoverSight {
            site_words: &self.sites,
            node_words: &self.nodes,
            sites: &self.site_sights,
            nodes: &self.node_sights,
        }
    }
}

impl MovesTask {
    /// A task that has not looked yet.
    pub(crate) fn new(
        cluster: Arc<LiveCluster>,
        shared: Arc<Shared>,
        orders: Orders,
        output: Output,
    ) -> Self {
        Self {
            cluster,
            shared,
            output,
            orders,
            movable: Movable::default(),
            reloads: 0,
            party: None,
            history: History::default(),
            begun: BTreeMap::new(),
            counts: BTreeMap::new(),
            said: None,
            shown_at: Timestamp::ZERO,
        }
    }

    /// Looks at each S until the front-end ends.
    pub(crate) async fn run(mut self) {
        let mut ticks = interval(self.orders.config.sensitivity);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => self.look().await,
                order = self.orders.orders.recv() => match order {
                    Some(order) => self.carry_out(order).await,
                    None => return,
                },
            }
        }
    }

    /// Looks once, and does what is to be done.
    async fn look(&mut self) {
        let now = clock::now();
        self.follow().await;
        let Some(reading) = self.read(now) else {
            return;
        };
        let Some(party) = &mut self.party else { return };
        let MoverLook {
            turns,
            carried,
            begin,
            ..
        } = party.mover.look(&reading.sight(), now);
        for (node, expected, carried) in carried {
            let new = carried.new;
            party.words.carry_out(MoveOp::SwapNode {
                node,
                expected,
                new,
                born: now,
            });
        }
        for (node, turn) in turns {
            if let NodeTurn::Joins(site) = turn {
                self.join(node, site).await;
            }
        }
        if let Some(chosen) = begin {
            self.begin(chosen, now);
        }
        if now.since(self.shown_at) >= SHOWN_EVERY {
            self.shown_at = now;
            self.show();
        }
    }

    /// Follows the configuration: its sites and nodes, and the places that they have.
    async fn follow(&mut self) {
        let topology = self.shared.topology.load_full();
        let reloads = self.cluster.stats().done.load(Ordering::Relaxed);
        let is_current = |party: &Party| party.places.are_of(&topology);
        if self.reloads == reloads && self.party.as_ref().is_some_and(is_current) {
            return;
        }
        self.reloads = reloads;
        let (movable, moved) = self.cluster.movable().await;
        let is_same = self.party.is_some() && movable == self.movable;
        if let Some(party) = self.party.as_mut().filter(|_| is_same) {
            party.places = Places::of(party.mover.constitution(), &topology);
            return;
        }
        match movable.constitution() {
            Ok(constitution) => {
                let places = Places::of(&constitution, &topology);
                let words = words(&constitution, &moved);
                let config = mover_config(&self.orders.config);
                let seed = clock::now().nanos();
                let mover = Mover::new(constitution, config, seed);
                self.party = Some(Party {
                    mover,
                    words,
                    places,
                });
            }
            Err(error) => {
                if self.party.take().is_some() {
                    let text = format!("nodes do not move any more: {error}");
                    self.output.event("moves_stopped", &text);
                }
            }
        }
        self.movable = movable;
    }

    fn read(&self, now: Timestamp) -> Option<Reading> {
        let party = self.party.as_ref()?;
        let topology = self.shared.topology.load();
        let table = &self.shared.table;
        Some(Reading {
            // The words of this process are whole.
            sites: party.words.sites(now).ok()?,
            nodes: party.words.nodes(now).ok()?,
            site_sights: party.places.sites(&topology, table, now),
            node_sights: party.places.nodes(&topology, table, now),
        })
    }

    /// Begins a move that load asks for, or says what a dry run would do.
    fn begin(&mut self, chosen: ChosenMove, now: Timestamp) {
        if self.orders.board.paused.load(Ordering::Relaxed) {
            return;
        }
        let plan = chosen.plan;
        let Some(record) = self.record(&plan, Some(chosen)) else {
            return;
        };
        if self.orders.config.dry_run {
            let move_of = (plan.intention.node, plan.receiver);
            if self.said.replace(move_of) != Some(move_of) {
                self.say("would_move", "would move", &record);
            }
            return;
        }
        self.attempt(&plan, record, now);
    }

    /// Takes a move through its steps.
    fn attempt(&mut self, plan: &MovePlan, record: MoveRecord, now: Timestamp) -> bool {
        let Some(party) = &mut self.party else {
            return false;
        };
        let node = plan.intention.node;
        party.mover.on_begun(node, now);
        let mut attempt = Attempt::begin(*plan, now);
        let end = loop {
            let op = attempt.op(party.mover.constitution());
            match attempt.on_reply(party.words.carry_out(op), now) {
                Ok(next) => attempt = next,
                Err(end) => break end,
            }
        };
        let done = end == AttemptEnd::Finished;
        match done {
            true => drop(self.begun.insert(node, record)),
            false => self.end(record, Some(format!("{end:?}"))),
        }
        done
    }

    /// A node serves a site from now on.
    async fn join(&mut self, node: NodeNumber, site: SiteNumber) {
        let Some(party) = &self.party else { return };
        let constitution = party.mover.constitution();
        let names = constitution.node_name(node).zip(constitution.site(site));
        let Some((name, site)) = names else { return };
        // What is there at the beginning is where it is.
        let Some(record) = self.begun.remove(&node) else {
            return;
        };
        let assigned = BTreeMap::from([(name.to_owned(), site.name.clone())]);
        let refused = self.cluster.assign(assigned).await.err();
        if refused.is_some() {
            self.take_back(node, &record.from);
        }
        self.end(record, refused.map(|why| why.to_string()));
    }

    /// The cluster was not changed: the node's word says so.
    fn take_back(&mut self, node: NodeNumber, from: &str) {
        let Some(party) = &mut self.party else { return };
        let constitution = party.mover.constitution();
        let known = party.mover.assignment(node);
        let (Some(known), Some(site)) = (known, constitution.site_number(from)) else {
            return;
        };
        let new = Assignment {
            generation: known.generation.next(),
            site,
            cause: MoveCause::Revert,
            lent: constitution.home(node) != Some(site),
            ..known
        };
        party.words.carry_out(MoveOp::SwapNode {
            node,
            expected: known,
            new,
            born: clock::now(),
        });
    }

    /// What a record of a move says at its beginning.
    fn record(&self, plan: &MovePlan, chosen: Option<ChosenMove>) -> Option<MoveRecord> {
        let constitution = self.party.as_ref()?.mover.constitution();
        let site = |number| constitution.site(number).map(|it| it.name.clone());
        Some(MoveRecord {
            at: output::now(),
            node: constitution.node_name(plan.intention.node)?.to_owned(),
            from: site(plan.intention.donor)?,
            to: site(plan.receiver)?,
            cause: cause(plan.intention.cause).into(),
            pressure: chosen.map(|it| it.before),
            expected: chosen.map(|it| it.after),
            failed: None,
        })
    }

    /// A move has ended, well or not.
    fn end(&mut self, record: MoveRecord, failed: Option<String>) {
        let record = MoveRecord { failed, ..record };
        let is_done = record.failed.is_none();
        match is_done {
            true => self.say("moved", "moved", &record),
            false => self.say("move_failed", "could not move", &record),
        }
        let causes = MoveCause::ALL.map(cause);
        if let Some(cause) = causes.into_iter().find(|it| *it == record.cause) {
            *self.counts.entry((cause, is_done)).or_default() += 1;
        }
        self.history.push(record);
    }

    fn say(&self, event: &str, verb: &str, record: &MoveRecord) {
        let MoveRecord {
            node,
            from,
            to,
            cause,
            ..
        } = record;
        let mut text = format!("{verb} node {node} from site {from} to {to} ({cause})");
        if let (Some(before), Some(after)) = (record.pressure, record.expected) {
            text.push_str(&format!(
                ": {before:.1} tasks per CPU at {to}, {after:.1} expected"
            ));
        }
        if let Some(why) = &record.failed {
            text.push_str(&format!(": {why}"));
        }
        self.output.event(event, &text);
    }

    /// Does what an operator asks for.
    async fn carry_out(&mut self, order: Order) {
        let Order { request, answer } = order;
        self.look().await;
        let ordered = self.ordered(&request);
        let done = match ordered {
            Ok((plan, done)) if !request.dry_run => self.moved(&plan, done).await,
            Ok((_, done)) => Ok(done),
            Err(why) => Err(why),
        };
        // The asker may have gone; the move stands.
        answer.send(done).ok();
    }

    fn ordered(&self, request: &MoveRequest) -> Result<(MovePlan, MoveDone), String> {
        let now = clock::now();
        let (party, reading) = (self.party.as_ref(), self.read(now));
        let (Some(party), Some(reading)) = (party, reading) else {
            return Err("no site takes part in moves".into());
        };
        let constitution = party.mover.constitution();
        let node = constitution.node_number(&request.node);
        let node = node.ok_or_else(|| {
            let name = &request.node;
            format!("`{name}` is no node that can be moved: it is in no site with `nodes`, or not of the configuration file")
        })?;
        let site = constitution.site_number(&request.site);
        let site = site.ok_or_else(|| {
            let name = &request.site;
            format!("`{name}` is no site that takes part in moves: it has no `nodes`")
        })?;
        let sight = reading.sight();
        let plan = party.mover.ordered(&sight, node, site, request.force);
        let plan = plan.map_err(|rule| rule.to_string())?;
        let record = self.record(&plan, None).ok_or("the node is gone")?;
        let done = MoveDone {
            node: record.node,
            from: record.from,
            to: record.to,
            moved: !request.dry_run,
        };
        Ok((plan, done))
    }

    async fn moved(&mut self, plan: &MovePlan, done: MoveDone) -> Result<MoveDone, String> {
        let record = self.record(plan, None).ok_or("the node is gone")?;
        if !self.attempt(plan, record, clock::now()) {
            return Err("the move ended on its way: see the log".into());
        }
        // What the node's word says now is carried out at the next look.
        self.look().await;
        self.show();
        match self.history.all().first() {
            Some(MoveRecord {
                failed: Some(why), ..
            }) => Err(why.clone()),
            Some(_) | None => Ok(done),
        }
    }

    /// Shows onlookers what is known.
    fn show(&self) {
        let sites = self.party.as_ref().map_or_else(Vec::new, sites);
        let status = self.orders.board.status.lock();
        let mut status = status.unwrap_or_else(PoisonError::into_inner);
        status.sites = sites;
        status.moves = self.history.all();
        let counts = self.counts.iter();
        let counts = counts.map(|((cause, done), count)| MoveCount {
            cause: (*cause).to_owned(),
            done: *done,
            count: *count,
        });
        status.counts = counts.collect();
    }
}

/// Words that begin where the nodes are.
fn words(constitution: &Constitution, moved: &MovedNodes) -> MemoryWords {
    let moved_to = |node: NodeNumber| {
        let site = moved.get(constitution.node_name(node)?)?;
        constitution.site_number(site)
    };
    MemoryWords::new(constitution, |node| {
        let home = constitution.home(node).unwrap_or(SiteNumber(0));
        moved_to(node).unwrap_or(home)
    })
}

/// The sites as onlookers see them.
fn sites(party: &Party) -> Vec<MovesSite> {
    let constitution = party.mover.constitution();
    let numbers = (0..constitution.sites()).map(|number| SiteNumber(number as u8));
    let shown = numbers.filter_map(|number| {
        let (rules, mind) = (constitution.site(number)?, party.mover.site(number)?);
        let nodes = (0..constitution.nodes()).map(|node| NodeNumber(node as u16));
        let of_it = |node: &NodeNumber| {
            let assignment = party.mover.assignment(*node);
            assignment.is_some_and(|it| it.site == number)
        };
        let pressure = mind.load.pressure();
        Some(MovesSite {
            site: rules.name.clone(),
            nodes: nodes.filter(of_it).count() as u32,
            min: u32::from(rules.floor),
            max: u32::from(rules.ceiling),
            priority: u32::from(rules.priority),
            demand: mind.load.demand,
            cpus: mind.load.cpus,
            pressure: (mind.load.cpus > 0.0).then_some(pressure),
            verdict: verdict(mind),
        })
    });
    shown.collect()
}

fn mover_config(config: &crate::config::Reconfigure) -> MoverConfig {
    MoverConfig {
        history: config.history,
        high: config.high,
        choice: config.choice,
        flap_budget: config.moves_max,
        carry: CarryConfig {
            // No node drains: its old site's requests end beside those of the new one.
            drain: Duration::ZERO,
            hook: None,
            lease: Duration::ZERO,
        },
        // A site that is in need has full CPUs, and lets those that come go that much sooner.
        warm_up: config.warm_up / RAMP_SPEED_MAX,
        front_ends: 1,
        patience: Patience::new(Duration::ZERO, 0.0, Duration::ZERO),
        owner: 0,
    }
}
