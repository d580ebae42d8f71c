//! The task that looks, moves and says so.

mod back;
mod emptied;
mod follow;
mod freeze;
mod shown;
mod withheld;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidegate_core::director::RAMP_SPEED_MAX;
use tidegate_core::moves::atomics::WordAtomic;
use tidegate_core::moves::carry::{CarryConfig, NodeTurn};
use tidegate_core::moves::choice::ChosenMove;
use tidegate_core::moves::follow::Follower;
use tidegate_core::moves::lease::Patience;
use tidegate_core::moves::memory::MemoryWords;
use tidegate_core::moves::mover::{Mover, MoverConfig, MoverLook};
use tidegate_core::moves::numbering::Constitution;
use tidegate_core::moves::plan::{MovePlan, NoMove};
use tidegate_core::moves::steps::{Attempt, AttemptEnd, MoveOp};
use tidegate_core::moves::words::{Assignment, MoveCause, NodeNumber, SiteNumber};
use tidegate_core::time::Timestamp;
use tidegate_core::topology::Topology;
use tidegate_proxy::Shared;
use tidegate_remote::clock;
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::agents::Agents;
use super::engine::{NodeRegions, Reached, WAITS, Words, Worker};
use super::models::{MoveDone, MoveRecord, MoveRequest};
use super::party::{Party, ROUND_TRIP, Trouble};
use super::record::{History, cause, unfinished, unix_us};
use super::sight::Places;
use super::under_way::{MovesUnderWay, why_back};
use super::{Order, Orders};
use crate::config::{Movable, MovesEngine, NodeRead, Reconfigure};
use crate::events::About;
use crate::models::MovedNodes;
use crate::output::{self, Output};
use crate::reload::LiveCluster;
use back::WaysBack;

/// How often onlookers see something new.
const SHOWN_EVERY: Duration = Duration::from_millis(200);
/// How long an operator waits until a move may begin, and until it shows.
const ORDER_MAX: Duration = Duration::from_secs(2);
/// A change of the cluster that was refused is tried again after this.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Why nothing can be asked for.
const NO_PARTY: &str = "no site takes part in moves";
/// Why a move was made and does not show.
const IN_BETWEEN: &str = "another move came in between";

/// What the task works on.
pub(crate) struct MovesTask {
    cluster: Arc<LiveCluster>,
    shared: Arc<Shared>,
    output: Output,
    orders: Orders,
    movable: Movable,
    /// How each of the nodes is read.
    reads: BTreeMap<String, NodeRead>,
    /// Reloads that are followed.
    reloads: u64,
    /// None while there are no sites to move between.
    party: Option<Party>,
    history: History,
    under_way: MovesUnderWay,
    ways_back: WaysBack,
    counts: BTreeMap<(&'static str, bool), u64>,
    /// The move that a dry run has said last.
    said: Option<(NodeNumber, SiteNumber)>,
    trouble: Option<Trouble>,
    shown_at: Timestamp,
    /// No change of the cluster is asked for before.
    again_at: Timestamp,
    follower: Follower,
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
            reads: BTreeMap::new(),
            reloads: 0,
            party: None,
            history: History::default(),
            under_way: MovesUnderWay::default(),
            ways_back: WaysBack::default(),
            counts: BTreeMap::new(),
            said: None,
            trouble: None,
            shown_at: Timestamp::ZERO,
            again_at: Timestamp::ZERO,
            follower: Follower::default(),
        }
    }

    /// Looks at each S, and as soon as a node's word has changed, until the front-end ends.
    pub(crate) async fn run(mut self) {
        let mut ticks = interval(self.orders.config.sensitivity);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let words_changed = Arc::clone(&self.orders.words_changed);
        while !self.orders.board.ended.load(Ordering::Relaxed) {
            tokio::select! {
                _ = ticks.tick() => self.look().await,
                () = words_changed.notified() => self.look().await,
                order = self.orders.orders.recv() => match order {
                    Some(order) => self.carry_out(order, &mut ticks).await,
                    None => return,
                },
            }
        }
    }

    /// Looks once, and does what is to be done.
    async fn look(&mut self) {
        let now = clock::now();
        self.follow(now).await;
        self.release_all().await;
        let Some(party) = &mut self.party else { return };
        party.ask_agents(&self.under_way.to_release).await;
        self.under_way.note_agents(|node| party.agent(node));
        let topology = self.shared.topology.load_full();
        party.note_quiet(&self.shared.table, now);
        let reading = party.reading(&topology, &self.shared.table, now);
        let MoverLook {
            turns,
            carried,
            help,
            begin,
            back,
            held,
        } = party.mover.look(&reading.sight(), now);
        for atomic in reading.mend {
            party.carry_out(atomic).await;
        }
        for (node, expected, carried) in carried {
            let agent = party.agent(node);
            self.under_way.on_carried(node, carried.cause, agent);
            if let Some(until) = carried.barred_until {
                party.mover.bar(node, until);
            }
            let swap = swap(node, expected, carried.new, now);
            party.carry_out(swap).await;
        }
        for (node, turn) in turns {
            match turn {
                NodeTurn::Joins(site) => self.join(node, site).await,
                NodeTurn::Leaves(_) => self.leave(node).await,
            }
        }
        let waiting = self.follow_words(now).await;
        self.withhold_others(&waiting).await;
        if let Some(party) = &mut self.party {
            for (site, stood) in help {
                party.run(Attempt::help(site, stood, now)).await;
            }
        }
        if let Some(chosen) = begin {
            self.begin(chosen, now).await;
        }
        self.note_held(&held, back.as_ref());
        if let Some(plan) = back {
            self.give_back(&plan, now).await;
        }
        if let Some(party) = &mut self.party {
            party.read_home(now).await;
        }
        self.notice_trouble(now);
        if now.since(self.shown_at) >= SHOWN_EVERY {
            self.shown_at = now;
            self.show();
        }
    }

    /// Follows the configuration: its sites and nodes, and the places that they have.
    async fn follow(&mut self, now: Timestamp) {
        let topology = self.shared.topology.load_full();
        let reloads = self.cluster.stats().done.load(Ordering::Relaxed);
        let is_current = |party: &Party| party.places.are_of(&topology);
        if self.reloads == reloads && self.party.as_ref().is_some_and(is_current) {
            return;
        }
        self.reloads = reloads;
        let (movable, moved, reads) = self.cluster.movable().await;
        let is_same = movable == self.movable && reads == self.reads;
        if let Some(party) = self.party.as_mut().filter(|_| is_same) {
            party.places = Places::of(party.mover.constitution(), &topology);
            return;
        }
        self.ways_back = WaysBack::default();
        for record in self.under_way.give_up() {
            self.end(record, Some("the configuration has changed".into()));
        }
        let config = &self.orders.config;
        let made = movable
            .constitution(config.drain.is_some(), config.hook.is_some())
            .map_err(|error| error.to_string())
            .and_then(|it| {
                let words = words(config, &it, &moved, &reads)?;
                Ok((it, words))
            });
        match made {
            Ok((constitution, words)) => {
                let mut party = party(config, constitution, words, &topology, now);
                party.read_home(now).await;
                self.party = Some(party);
            }
            Err(error) => {
                if self.party.take().is_some() {
                    let text = format!("nodes do not move any more: {error}");
                    self.output.event("moves_stopped", &text);
                }
            }
        }
        (self.movable, self.reads) = (movable, reads);
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
                self.take_back(node, &record.from).await;
                self.end(record, Some(why.to_string()));
            }
        }
    }

    /// A node serves a site from now on.
    async fn join(&mut self, node: NodeNumber, site: SiteNumber) {
        let Some(party) = &self.party else { return };
        let constitution = party.constitution();
        let names = constitution.node_name(node).zip(constitution.site(site));
        let Some((name, site)) = names else { return };
        let Some(assignment) = party.mover.assignment(node) else {
            return;
        };
        let is_later = |before| assignment.generation.is_after(before);
        // What is there at the beginning is where it is, also if an operator's move has begun before that was seen.
        let begun = match self.under_way.by_node.entry(node) {
            Entry::Occupied(begun) if is_later(begun.get().before) => begun.remove(),
            Entry::Occupied(_) | Entry::Vacant(_) => return,
        };
        let (name, site) = (name.to_owned(), site.name.clone());
        if site != begun.record.to {
            let drain = self.orders.config.drain.unwrap_or_default();
            let why = why_back(&begun, assignment.cause, drain);
            self.under_way.to_release.insert(name);
            self.release_all().await;
            return self.end(begun.record, Some(why));
        }
        let assigned = BTreeMap::from([(name.clone(), site)]);
        let assigned = match self.orders.config.engine {
            MovesEngine::Memory => self.cluster.assign_alone(assigned).await,
            // Words outlive the process.
            MovesEngine::Region(_) | MovesEngine::Etcd(_) => self.cluster.assign(assigned).await,
        };
        let refused = assigned.err();
        let mut record = begun.record;
        match refused.is_some() {
            true => {
                self.take_back(node, &record.from).await;
                self.under_way.to_release.insert(name);
            }
            false => record.assigned_us = Some(unix_us()),
        }
        self.end(record, refused.map(|why| why.to_string()));
    }

    /// Begins a move that load asks for, or says what a dry run would do.
    async fn begin(&mut self, chosen: ChosenMove, now: Timestamp) {
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
        // That another front-end acts is how it should be.
        if let Err((record, why)) = self.attempt(&plan, record, now).await
            && why != AttemptEnd::Overtaken
        {
            self.end(record, Some(unfinished(why)));
        }
    }

    /// Takes a move through its steps; its number, if that was done.
    ///
    /// # Errors
    /// How else it ended.
    async fn attempt(
        &mut self,
        plan: &MovePlan,
        record: MoveRecord,
        now: Timestamp,
    ) -> Result<u64, (MoveRecord, AttemptEnd)> {
        let Some(party) = &mut self.party else {
            return Err((record, AttemptEnd::Unknown));
        };
        let number = self.under_way.next_number();
        let record = MoveRecord { number, ..record };
        let node = plan.intention.node;
        party.mover.on_begun(node, now);
        let end = party.run(Attempt::begin(*plan, now)).await;
        if end != AttemptEnd::Finished {
            return Err((record, end));
        }
        let before = plan.assignment.generation;
        self.under_way.begin(node, before, record, now);
        // Words of this process need no read to be seen.
        self.orders.words_changed.notify_one();
        Ok(number)
    }

    /// What a record of a move says at its beginning.
    fn record(&self, plan: &MovePlan, chosen: Option<ChosenMove>) -> Option<MoveRecord> {
        let constitution = self.party.as_ref()?.constitution();
        let site = |number| constitution.site(number).map(|it| it.name.clone());
        Some(MoveRecord {
            number: 0,
            at: output::now(),
            own: true,
            node: constitution.node_name(plan.intention.node)?.to_owned(),
            from: site(plan.intention.donor)?,
            to: site(plan.receiver)?,
            cause: cause(plan.intention.cause).into(),
            pressure: chosen.map(|it| it.before),
            expected: chosen.map(|it| it.after),
            failed: None,
            generation: plan.assignment.generation.next().get(),
            decided_us: Some(unix_us()),
            assigned_us: None,
        })
    }

    /// Says what keeps this front-end from moving nodes, once, and that nothing does any more.
    fn notice_trouble(&mut self, now: Timestamp) {
        let trouble = self.party.as_ref().and_then(|it| it.trouble(now));
        let event = |it: &Option<Trouble>| it.as_ref().and_then(Trouble::event);
        let (before, after) = (event(&self.trouble), event(&trouble));
        if before != after {
            match &trouble {
                Some(trouble) if after.is_some() => {
                    self.output.event(after.unwrap_or_default(), trouble.text());
                }
                Some(_) | None => self
                    .output
                    .event("moves_go_on", "nothing keeps nodes from moving any more"),
            }
        }
        self.trouble = trouble;
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
        self.output.event_about(event, About::node(node, to), &text);
    }

    /// Does what an operator asks for.
    async fn carry_out(&mut self, order: Order, ticks: &mut Interval) {
        // The asker may have gone; what was done stands.
        match order {
            Order::Move(request, answer) => {
                let done = self.ordered(&request, ticks).await;
                answer.send(done).ok();
            }
            Order::Freeze(request, frozen, answer) => {
                let done = self.freeze(&request, frozen, ticks).await;
                answer.send(done).ok();
            }
        }
    }

    async fn ordered(
        &mut self,
        request: &MoveRequest,
        ticks: &mut Interval,
    ) -> Result<MoveDone, String> {
        let plan = self.ordered_plan(request, ticks).await?;
        let record = self.record(&plan, None).ok_or("the node is gone")?;
        let done = MoveDone {
            node: record.node.clone(),
            from: record.from.clone(),
            to: record.to.clone(),
            moved: !request.dry_run,
            under_way: false,
            number: None,
            warning: self.emptied(&plan),
        };
        if request.dry_run {
            return Ok(done);
        }
        self.moved(&plan, record, done, ticks).await
    }

    /// The plan of an order, once words and the node's agent allow one.
    async fn ordered_plan(
        &mut self,
        request: &MoveRequest,
        ticks: &mut Interval,
    ) -> Result<MovePlan, String> {
        let deadline = clock::now() + ORDER_MAX;
        self.look().await;
        loop {
            // A look ends with the home's words: nodes' words are later ones from the next tick on.
            ticks.tick().await;
            let (node, site) = self.numbers(request)?;
            let unfollowed = self.party.as_ref().and_then(|it| it.why_unfollowed(node));
            let is_followed = unfollowed.is_none();
            let is_over = clock::now() >= deadline;
            let begins = matches!(self.trouble, Some(Trouble::Begins(_)));
            match self.plan(node, site, request.force)? {
                Ok(plan) if is_followed => return Ok(plan),
                // Words are on their way, or late.
                Err(NoMove::OldView(_) | NoMove::NoWords | NoMove::NotRead) if !is_over => {}
                Ok(_) | Err(_) if (begins || !is_followed) && !is_over => {}
                planned => {
                    let rule = planned.err().map(|it| it.to_string()).unwrap_or_default();
                    let unfollowed = unfollowed.map(|it| format!("{}: {it}", request.node));
                    let why = || unfollowed.unwrap_or(rule);
                    let trouble = self.trouble.as_ref();
                    return Err(trouble.map_or_else(why, |it| it.text().into()));
                }
            }
            self.look().await;
        }
    }

    fn numbers(&self, request: &MoveRequest) -> Result<(NodeNumber, SiteNumber), String> {
        let party = self.party.as_ref();
        let constitution = party.ok_or(NO_PARTY)?.constitution();
        let node = constitution.node_number(&request.node);
        let node = node.ok_or_else(|| {
            let name = &request.node;
            format!("`{name}` is no node that can be moved: it is in no site with `nodes`, or not of the configuration file")
        })?;
        let site = constitution.site_number(&request.site);
        let site = site.ok_or_else(|| unknown_site(&request.site))?;
        Ok((node, site))
    }

    /// The plan of an order, or the rule that does not allow it.
    fn plan(
        &mut self,
        node: NodeNumber,
        site: SiteNumber,
        force: bool,
    ) -> Result<Result<MovePlan, NoMove>, String> {
        let topology = self.shared.topology.load();
        let party = self.party.as_mut().ok_or(NO_PARTY)?;
        let reading = party.reading(&topology, &self.shared.table, clock::now());
        Ok(party.mover.ordered(&reading.sight(), node, site, force))
    }

    /// Makes a move that an operator asks for, and waits until it is made here, or its node drains.
    async fn moved(
        &mut self,
        plan: &MovePlan,
        record: MoveRecord,
        done: MoveDone,
        ticks: &mut Interval,
    ) -> Result<MoveDone, String> {
        let now = clock::now();
        let number = match self.attempt(plan, record, now).await {
            Ok(number) => number,
            Err((record, end)) => {
                let why = unfinished(end);
                self.end(record, Some(why.clone()));
                return Err(why);
            }
        };
        if let Some(warning) = &done.warning {
            self.output.event("site_emptied", warning);
        }
        let done = MoveDone {
            number: Some(number),
            ..done
        };
        let drains = self.orders.config.drain.is_some();
        // What the node's word says now is carried out at a next look.
        loop {
            self.look().await;
            self.show();
            if let Some(ended) = self.history.of(number) {
                return ended.failed.clone().map_or(Ok(done), Err);
            }
            let drains = drains && self.under_way.has(number);
            if drains || clock::now().since(now) >= ORDER_MAX {
                return Ok(MoveDone {
                    moved: false,
                    under_way: true,
                    ..done
                });
            }
            tokio::select! {
                _ = ticks.tick() => {}
                () = self.orders.words_changed.notified() => {}
            }
        }
    }
}

/// Words that begin where the nodes are, or those that front-ends share.
fn words(
    config: &Reconfigure,
    constitution: &Constitution,
    moved: &MovedNodes,
    reads: &BTreeMap<String, NodeRead>,
) -> Result<Words, String> {
    let read = |(name, read): (&String, _)| Some((constitution.node_number(name)?, read));
    let regions = NodeRegions::new(reads.iter().filter_map(read), WAITS);
    let reached = Reached::by(&config.engine, regions, WAITS);
    let no_thread = |error: std::io::Error| format!("no thread to ask for words: {error}");
    if let Some(reached) = reached.map_err(no_thread)? {
        return Ok(Words::Shared(Worker::spawn(reached).map_err(no_thread)?));
    }
    let moved_to = |node: NodeNumber| {
        let site = moved.get(constitution.node_name(node)?)?;
        constitution.site_number(site)
    };
    Ok(Words::Own(MemoryWords::new(constitution, |node| {
        let home = constitution.home(node).unwrap_or(SiteNumber(0));
        moved_to(node).unwrap_or(home)
    })))
}

/// Why a site cannot be meant.
fn unknown_site(name: &str) -> String {
    format!("`{name}` is no site that takes part in moves: it has no `nodes`")
}

/// A swap of a node's word.
fn swap(node: NodeNumber, expected: Assignment, new: Assignment, born: Timestamp) -> WordAtomic {
    let op = MoveOp::SwapNode {
        node,
        expected,
        new,
        born,
    };
    op.atomic()
}

/// What moves by this constitution.
fn party(
    config: &Reconfigure,
    constitution: Constitution,
    words: Words,
    topology: &Topology,
    now: Timestamp,
) -> Party {
    let places = Places::of(&constitution, topology);
    let list = config.hook.map(|_| constitution.site_list());
    let agents = || Agents::new(constitution.nodes(), list);
    let agents = config.needs_agents().then(agents);
    let seed = now.nanos();
    let config = mover_config(config, seed);
    let patience = config.patience;
    let mover = Mover::new(constitution, config, seed);
    Party::new(mover, places, words, patience, agents, seed)
}

fn mover_config(config: &Reconfigure, seed: u64) -> MoverConfig {
    let chance = (seed % 1000) as f64 / 1000.0;
    let patience = Patience::new(ROUND_TRIP, chance, Duration::ZERO);
    MoverConfig {
        history: config.history,
        high: config.high,
        choice: config.choice,
        flap_budget: config.moves_max,
        carry: CarryConfig {
            drain: config.drain.unwrap_or_default(),
            hook: config.hook,
            lease: patience.lease,
        },
        // A site that is in need has full CPUs, and lets those that come go that much sooner.
        warm_up: config.warm_up / RAMP_SPEED_MAX,
        front_ends: config.front_ends,
        patience,
        owner: seed as u8 & 15,
    }
}
