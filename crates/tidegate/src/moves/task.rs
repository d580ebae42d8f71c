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
use tidegate_core::moves::quiet::Quiet;
use tidegate_core::moves::steps::{Attempt, AttemptEnd, MoveOp};
use tidegate_core::moves::words::{Assignment, AssignmentState, MoveCause, NodeNumber, SiteNumber};
use tidegate_core::time::Timestamp;
use tidegate_proxy::Shared;
use tidegate_remote::clock;
use tokio::time::{MissedTickBehavior, interval};

use super::models::{MoveCount, MoveDone, MoveRecord, MoveRequest, MoveUnderWay, MovesSite};
use super::record::{History, cause, verdict};
use super::sight::Places;
use super::under_way::{MovesUnderWay, why_back};
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
    under_way: MovesUnderWay,
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
    /// By node.
    quiet: Vec<Quiet>,
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
            under_way: MovesUnderWay::default(),
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
        self.release_all().await;
        if let Some(party) = &mut self.party {
            let table = &self.shared.table;
            party.places.note_quiet(table, &mut party.quiet, now);
        }
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
            self.under_way.on_carried(node, carried.cause);
            if let Some(until) = carried.barred_until {
                party.mover.bar(node, until);
            }
            party.words.carry_out(MoveOp::SwapNode {
                node,
                expected,
                new,
                born: now,
            });
        }
        for (node, turn) in turns {
            match turn {
                NodeTurn::Joins(site) => self.join(node, site).await,
                NodeTurn::Leaves(_) => self.leave(node).await,
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
        for record in self.under_way.give_up() {
            self.end(record, Some("the configuration has changed".into()));
        }
        match movable.constitution(self.orders.config.drain.is_some()) {
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
                    quiet: Vec::new(),
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
            node_sights: party.places.nodes(&topology, table, &party.quiet, now),
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

    /// Takes a move through its steps; its number if that was done.
    fn attempt(&mut self, plan: &MovePlan, record: MoveRecord, now: Timestamp) -> Option<u64> {
        let party = self.party.as_mut()?;
        let number = self.under_way.next_number();
        let record = MoveRecord { number, ..record };
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
        if end != AttemptEnd::Finished {
            self.end(record, Some(format!("{end:?}")));
            return None;
        }
        self.under_way.begin(node, record, now);
        Some(number)
    }

    /// A node gets no requests of its site any more, and none of another one yet.
    async fn leave(&mut self, node: NodeNumber) {
        let Some(party) = &self.party else { return };
        let serves = party
            .mover
            .assignment(node)
            .is_some_and(|it| it.is_serving());
        let Some(begun) = self.under_way.by_node.get_mut(&node).filter(|_| !serves) else {
            // It drains beside what it serves by now.
            return;
        };
        begun.withheld = true;
        let record = begun.record.clone();
        let withheld = self.cluster.withhold(record.node.clone(), true).await;
        match withheld {
            Ok(()) => self.say("move_begun", "drains", &record),
            Err(why) => {
                self.under_way.by_node.remove(&node);
                self.take_back(node, &record.from);
                self.end(record, Some(why.to_string()));
            }
        }
    }

    /// A node serves a site from now on.
    async fn join(&mut self, node: NodeNumber, site: SiteNumber) {
        let Some(party) = &self.party else { return };
        let constitution = party.mover.constitution();
        let names = constitution.node_name(node).zip(constitution.site(site));
        let Some((name, site)) = names else { return };
        // What is there at the beginning is where it is.
        let Some(begun) = self.under_way.by_node.remove(&node) else {
            return;
        };
        let (name, site) = (name.to_owned(), site.name.clone());
        if site != begun.record.to {
            let drain = self.orders.config.drain.unwrap_or_default();
            let why = why_back(&begun, drain);
            self.under_way.to_release.insert(name);
            self.release_all().await;
            return self.end(begun.record, Some(why));
        }
        let assigned = BTreeMap::from([(name.clone(), site)]);
        let refused = self.cluster.assign(assigned).await.err();
        if refused.is_some() {
            self.take_back(node, &begun.record.from);
            self.under_way.to_release.insert(name);
        }
        self.end(begun.record, refused.map(|why| why.to_string()));
    }

    /// Nodes that are not on their way any more get requests again.
    async fn release_all(&mut self) {
        for node in std::mem::take(&mut self.under_way.to_release) {
            let topology = self.shared.topology.load_full();
            let is_withheld = |id| topology.node(id).withheld;
            if !topology.node_named(&node).is_some_and(is_withheld) {
                continue;
            }
            if let Err(why) = self.cluster.withhold(node.clone(), false).await {
                if self.under_way.kept_back.insert(node.clone()) {
                    let text = format!("node {node} gets no requests yet: {why}");
                    self.output.event("move_failed", &text);
                }
                self.under_way.to_release.insert(node);
                continue;
            }
            self.under_way.kept_back.remove(&node);
        }
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
            state: AssignmentState::Serving,
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
            number: 0,
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
            under_way: false,
            number: None,
        };
        Ok((plan, done))
    }

    async fn moved(&mut self, plan: &MovePlan, done: MoveDone) -> Result<MoveDone, String> {
        let record = self.record(plan, None).ok_or("the node is gone")?;
        let number = self.attempt(plan, record, clock::now());
        let number = number.ok_or("the move ended on its way: see the log")?;
        // What the node's word says now is carried out at the next look.
        self.look().await;
        self.show();
        if self.under_way.has(number) {
            return Ok(MoveDone {
                moved: false,
                under_way: true,
                number: Some(number),
                ..done
            });
        }
        match self.history.of(number).and_then(|it| it.failed.clone()) {
            Some(why) => Err(why),
            None => Ok(MoveDone {
                number: Some(number),
                ..done
            }),
        }
    }

    /// Moves that are not over, as onlookers see them.
    fn shown_under_way(&self) -> Vec<MoveUnderWay> {
        let (Some(party), now) = (&self.party, clock::now()) else {
            return Vec::new();
        };
        let shown = self.under_way.by_node.iter().map(|(node, begun)| {
            let record = begun.record.clone();
            let is_switching =
                |it: Assignment| matches!(it.state, AssignmentState::Switching { .. });
            let state = match party.mover.assignment(*node).is_some_and(is_switching) {
                true => "switches",
                false => "drains",
            };
            let place = party.places.node(*node);
            MoveUnderWay {
                number: record.number,
                node: record.node,
                from: record.from,
                to: record.to,
                cause: record.cause,
                state: state.into(),
                seconds: now.since(begun.since).as_secs_f64(),
                in_flight: place.map_or(0, |id| self.shared.table.in_flight(id)),
            }
        });
        shown.collect()
    }

    /// Shows onlookers what is known.
    fn show(&self) {
        let sites = self.party.as_ref().map_or_else(Vec::new, sites);
        let under_way = self.shown_under_way();
        let status = self.orders.board.status.lock();
        let mut status = status.unwrap_or_else(PoisonError::into_inner);
        status.sites = sites;
        status.under_way = under_way;
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
            drain: config.drain.unwrap_or_default(),
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
