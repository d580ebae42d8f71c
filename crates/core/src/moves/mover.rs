//! One front-end's part in moves. Each S what was read comes in, and what is to be done goes out.
//!
//! ```text
//! look   words of sites and nodes, loads ──> turns of nodes that others or we have moved
//!                                        ──> carry: the next state of a node on its way
//!                                        ──> help: a lock that stands still
//!                                        ──> begin: at most one move, for the site whose pressure is the highest
//!                                            that may act
//! ```
//!
//! Order: the worst off site first, so that of two that want the same node it goes where it helps more. One move per look:
//! the next is worked out from what is read after it.
//!
//! Inputs: readings, loads, `now`, a seed. What it does not know: where words are, how nodes are reached, names.
//! Failure case: a front-end that looks less often than T never has a window that old in time; its moves are late.
//! Source: Reconfiguration-2004, section 3.1.2: what each of its load balancers does in a turn.

use std::time::Duration;

use super::carry::{Carried, CarryConfig, CarryView, NodeTurn, carry, turns};
use super::choice::{ChosenMove, MoveChoice, NodeOffer, NothingChosen, Offers, SiteLoad};
use super::evidence::{
    Evidence, EvidenceTick, FlapBudget, History, Judgement, SwitchKind, SwitchTime, WindowEnd,
    has_its_turn, settle,
};
use super::lease::{LockCare, LockWatch, Patience};
use super::numbering::Constitution;
use super::plan::{EventWindow, MovePlan, MoveView, MoveWish, NoMove, NodeReading, SiteReading};
use super::probation::Probation;
use super::usual::UsualLoad;
use super::words::{
    AgentStatus, Assignment, MoveCause, NodeNumber, SITES_MAX, SiteLock, SiteNumber,
};
use crate::prng::Prng;
use crate::time::Timestamp;

/// How a front-end moves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MoverConfig {
    /// T.
    pub history: History,
    /// From which pressure on a site is in need.
    pub high: f64,
    /// How a node is chosen.
    pub choice: MoveChoice,
    /// Most moves of a site in a minute.
    pub flap_budget: usize,
    /// How moved nodes are carried forward.
    pub carry: CarryConfig,
    /// How long a node takes to get its full share of a site's requests.
    pub warm_up: Duration,
    /// Front-ends that may move nodes.
    pub front_ends: u32,
    /// When to help.
    pub patience: Patience,
    /// Four bits of this front-end, for people.
    pub owner: u8,
}

/// What is seen of a node besides its word.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NodeSight {
    /// Its CPUs.
    pub cpus: f64,
    /// Its runnable tasks and its accept queue.
    pub load: f64,
    /// Whether it has a fresh load record and takes requests.
    pub fresh: bool,
    /// The site that it is a ready node of here: a move that was just read takes a while.
    pub ready: Option<ReadyNode>,
    /// The agent's word, if it has an agent that writes one.
    pub agent: Option<AgentStatus>,
    /// Since when no front-end has had a request there, as far as is known.
    pub quiet_since: Option<Timestamp>,
}

/// A node that operators and moves let serve a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadyNode {
    /// The site.
    pub site: SiteNumber,
    /// Whether it takes requests: neither a check nor answers have taken it out.
    pub is_up: bool,
}

/// What is seen of a site besides its words.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SiteSight {
    /// Its load.
    pub load: SiteLoad,
    /// How long a request is at a node.
    pub service_time: Duration,
}

/// All that is seen at one look.
#[derive(Clone, Copy, Debug)]
pub struct MoverSight<'a> {
    /// Words by site.
    pub site_words: &'a [Option<SiteReading>],
    /// Words by node, asked for after those of sites.
    pub node_words: &'a [NodeReading],
    /// The rest by site.
    pub sites: &'a [SiteSight],
    /// The rest by node.
    pub nodes: &'a [NodeSight],
}

/// What is to be done after a look.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MoverLook {
    /// Nodes that leave or join a site here, in order.
    pub turns: Vec<(NodeNumber, NodeTurn)>,
    /// Words of nodes to be swapped: what each holds, and what it is to become.
    pub carried: Vec<(NodeNumber, Assignment, Carried)>,
    /// Locks that stand still.
    pub help: Vec<(SiteNumber, SiteLock)>,
    /// A move that is to begin.
    pub begin: Option<ChosenMove>,
    /// A node that cannot serve the site to which it has come: its move back. No move begins beside it.
    pub back: Option<MovePlan>,
    /// Such nodes that may not go back now.
    pub held: Vec<HeldBack>,
}

/// A node that cannot serve its site, and may not go back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldBack {
    /// The node.
    pub node: NodeNumber,
    /// The site that it cannot serve.
    pub site: SiteNumber,
    /// The site that it is to go back to.
    pub back: SiteNumber,
    /// What does not allow it.
    pub why: NoMove,
}

/// What a front-end thinks of a site.
#[derive(Clone, Debug)]
pub struct SiteMind {
    evidence: Evidence,
    budget: FlapBudget,
    watch: Option<LockWatch>,
    usual: UsualLoad,
    began_to_serve: Timestamp,
    /// What its evidence came to at the last look.
    pub judgement: Judgement,
    /// Why no node was chosen, if it is in need.
    pub nothing: Option<NothingChosen>,
    /// The best move for it, if it is in need.
    pub best: Option<ChosenMove>,
    /// Its load.
    pub load: SiteLoad,
}

#[derive(Clone, Copy, Debug, Default)]
struct NodeMind {
    known: Option<Assignment>,
    /// When its word was first seen like that.
    since: Timestamp,
    moved_at: Timestamp,
    barred_until: Timestamp,
    /// When this front-end began to move it.
    begun_at: Option<Timestamp>,
    /// Since it came, until it takes requests.
    probation: Option<Probation>,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Mover {
    constitution: Constitution,
    config: MoverConfig,
    sites: Vec<SiteMind>,
    nodes: Vec<NodeMind>,
    prng: Prng,
}

impl Mover {
    /// One that has seen nothing.
    pub fn new(constitution: Constitution, config: MoverConfig, seed: u64) -> Self {
        let kind = match (config.carry.hook, constitution.drains()) {
            (Some(_), _) => SwitchKind::Hook,
            (None, true) => SwitchKind::Drain,
            (None, false) => SwitchKind::AtOnce,
        };
        let switch = SwitchTime::new(kind, config.warm_up);
        let mind = || SiteMind {
            evidence: Evidence::new(config.history, switch),
            budget: FlapBudget::new(config.flap_budget),
            watch: None,
            usual: UsualLoad::default(),
            began_to_serve: Timestamp::ZERO,
            judgement: Judgement::Anew(WindowEnd::First),
            nothing: None,
            best: None,
            load: SiteLoad::default(),
        };
        Self {
            sites: (0..constitution.sites()).map(|_| mind()).collect(),
            nodes: vec![NodeMind::default(); constitution.nodes()],
            constitution,
            config,
            prng: Prng::new(seed),
        }
    }

    /// What it has in common with other front-ends.
    pub fn constitution(&self) -> &Constitution {
        &self.constitution
    }

    /// What it thinks of a site.
    pub fn site(&self, site: SiteNumber) -> Option<&SiteMind> {
        self.sites.get(site.index())
    }

    /// Where a node is, as of the last look.
    pub fn assignment(&self, node: NodeNumber) -> Option<Assignment> {
        self.nodes.get(node.index())?.known
    }

    /// Takes in what is seen; says what is to be done.
    pub fn look(&mut self, sight: &MoverSight<'_>, now: Timestamp) -> MoverLook {
        let mut look = MoverLook {
            turns: self.notice(sight, now),
            carried: self.carry(sight, now),
            ..MoverLook::default()
        };
        let offers: Vec<_> = self.offers(sight);
        let loads: Vec<_> = sight.sites.iter().map(|it| it.load).collect();
        let minds = self.sites.iter_mut().zip(&loads);
        let keeps = minds.map(|(mind, load)| {
            mind.usual.on_look(*load, now);
            mind.usual.keeps()
        });
        let keeps: Vec<_> = keeps.collect();
        let view = MoveView::new(&self.constitution, sight.site_words, sight.node_words);
        let offers = Offers {
            view,
            sites: &loads,
            keeps: &keeps,
            nodes: &offers,
            dwell: self.config.history.dwell(),
            owner: self.config.owner,
        };
        for (number, mind) in self.sites.iter_mut().enumerate() {
            let site = SiteNumber(number as u8);
            let reading = sight.site_words.get(number).copied().flatten();
            let seen = sight.sites.get(number).copied().unwrap_or_default();
            if let Some(stood) = mind.note(reading, &self.config.patience, now) {
                look.help.push((site, stood));
            }
            let window = mind.judge(site, reading, seen, &offers, &self.config, now);
            let Some(window) = window else { continue };
            let chosen = mind.choose(site, &window, &offers, self.config.choice, now);
            let has_turn = has_its_turn(self.prng.unit(), self.config.front_ends);
            let Some(chosen) = chosen.filter(|_| has_turn && mind.budget.allows(now)) else {
                continue;
            };
            if look.begin.is_none_or(|it| it.before < chosen.before) {
                look.begin = Some(chosen);
            }
        }
        // First: a move that load asks for may be held back, look after look.
        (look.back, look.held) = self.unfit(sight, now);
        look.begin = look.begin.filter(|_| look.back.is_none());
        look
    }

    /// The way back of a node that does not take requests of its new site, and those that have none now.
    fn unfit(
        &mut self,
        sight: &MoverSight<'_>,
        now: Timestamp,
    ) -> (Option<MovePlan>, Vec<HeldBack>) {
        for (mind, seen) in self.nodes.iter_mut().zip(sight.nodes) {
            let Some(probation) = mind.probation else {
                continue;
            };
            let site = mind.known.map(|it| it.site);
            let ready = seen.ready.filter(|it| Some(it.site) == site);
            mind.probation = probation.look(ready.map(|it| it.is_up), now);
        }
        let (mut way, mut held) = (None, Vec::new());
        for (number, mind) in self.nodes.iter().enumerate() {
            let back = mind.probation.and_then(|it| it.back(now));
            let Some((back, known)) = back.zip(mind.known) else {
                continue;
            };
            let node = NodeNumber(number as u16);
            let wish = MoveWish {
                node,
                receiver: back,
                cause: MoveCause::Revert,
                owner: self.config.owner,
                force: false,
            };
            match self.wished(sight, wish) {
                Ok(plan) => way = way.or(Some(plan)),
                // It may be allowed at a later look.
                Err(why) => held.push(HeldBack {
                    node,
                    site: known.site,
                    back,
                    why,
                }),
            }
        }
        (way, held)
    }

    /// A move that it was asked to begin was begun.
    pub fn on_begun(&mut self, node: NodeNumber, now: Timestamp) {
        if let Some(mind) = self.nodes.get_mut(node.index()) {
            mind.begun_at = Some(now);
        }
    }

    /// A node failed to switch, and rests until then.
    pub fn bar(&mut self, node: NodeNumber, until: Timestamp) {
        if let Some(mind) = self.nodes.get_mut(node.index()) {
            mind.barred_until = until;
        }
    }

    /// The plan of a move that an operator asks for: neither load nor budget stand in its way.
    ///
    /// # Errors
    /// A rule of moves does.
    pub fn ordered(
        &self,
        sight: &MoverSight<'_>,
        node: NodeNumber,
        receiver: SiteNumber,
        force: bool,
    ) -> Result<MovePlan, NoMove> {
        let wish = MoveWish {
            node,
            receiver,
            cause: MoveCause::Operator,
            owner: self.config.owner,
            force,
        };
        self.wished(sight, wish)
    }

    /// The plan of a move that needs no evidence.
    fn wished(&self, sight: &MoverSight<'_>, wish: MoveWish) -> Result<MovePlan, NoMove> {
        let reading = sight.site_words.get(wish.receiver.index()).copied();
        let reading = reading.flatten().ok_or(NoMove::NoWords)?;
        let view = MoveView::new(&self.constitution, sight.site_words, sight.node_words);
        view.plan(&window_of(reading), wish)
    }

    /// Takes in the words of nodes: those that have changed since the last look leave or join.
    fn notice(&mut self, sight: &MoverSight<'_>, now: Timestamp) -> Vec<(NodeNumber, NodeTurn)> {
        let mut all = Vec::new();
        for (number, (mind, reading)) in self.nodes.iter_mut().zip(sight.node_words).enumerate() {
            let NodeReading::Read { assignment, .. } = *reading else {
                continue;
            };
            if mind.known == Some(assignment) {
                continue;
            }
            let node = NodeNumber(number as u16);
            let found = turns(mind.known, assignment).into_iter().flatten();
            all.extend(found.map(|turn| (node, turn)));
            let moved = mind.known.is_none_or(|known| known.site != assignment.site);
            if moved {
                mind.moved_at = now;
            }
            let before = mind.known.replace(assignment);
            let is_first = before.is_none();
            mind.since = now;
            mind.probation = match before {
                Some(before) if mind.begun_at.is_some() => {
                    Probation::begin(before, assignment, now)
                }
                Some(_) => None,
                None => Probation::found(assignment, self.constitution.home(node), now),
            };
            let site = self.sites.get_mut(assignment.site.index());
            if let Some(site) = site.filter(|_| assignment.is_serving() && !is_first) {
                site.began_to_serve = now;
                if let Some(begun_at) = mind.begun_at.take() {
                    site.evidence.on_move(now.since(begun_at));
                }
            }
        }
        all
    }

    /// What becomes of nodes on their way.
    fn carry(
        &self,
        sight: &MoverSight<'_>,
        now: Timestamp,
    ) -> Vec<(NodeNumber, Assignment, Carried)> {
        let minds = self.nodes.iter().zip(sight.nodes).enumerate();
        let carried = minds.filter_map(|(number, (mind, seen))| {
            let node = NodeNumber(number as u16);
            let assignment = mind.known.filter(|it| !it.is_serving())?;
            let view = CarryView {
                assignment,
                since: mind.since,
                is_mover: mind.begun_at.is_some(),
                agent: seen.agent,
                quiet_since: seen.quiet_since,
            };
            let carried = carry(&view, node, &self.constitution, &self.config.carry, now)?;
            Some((node, assignment, carried))
        });
        carried.collect()
    }

    fn offers(&self, sight: &MoverSight<'_>) -> Vec<NodeOffer> {
        let minds = self.nodes.iter().zip(sight.nodes);
        let offer = |(mind, seen): (&NodeMind, &NodeSight)| NodeOffer {
            cpus: seen.cpus,
            load: seen.load,
            fresh: seen.fresh,
            moved_at: mind.moved_at,
            suits: u128::MAX,
            barred_until: mind.barred_until,
        };
        minds.map(offer).collect()
    }
}

const _: () = assert!(SITES_MAX <= u128::BITS as usize);

fn window_of(reading: SiteReading) -> EventWindow {
    EventWindow {
        lock: reading.lock,
        updates: reading.updates,
        began_at: reading.at,
    }
}

impl SiteMind {
    /// Takes in the site's words; a lock that is to be helped.
    fn note(
        &mut self,
        reading: Option<SiteReading>,
        patience: &Patience,
        now: Timestamp,
    ) -> Option<SiteLock> {
        let reading = reading?;
        self.budget.on_read(reading.updates, now);
        let word = reading.lock.pack();
        let watch = self.watch.get_or_insert(LockWatch::new(word, now));
        watch.on_read(word, now);
        match watch.care(patience) {
            Ok(LockCare::Help(stood)) => Some(stood),
            // It was read as a lock, so it is one.
            Ok(LockCare::None | LockCare::Begin) | Err(_) => None,
        }
    }

    /// What the site's load comes to; the window, if a move may be made.
    fn judge(
        &mut self,
        site: SiteNumber,
        reading: Option<SiteReading>,
        seen: SiteSight,
        offers: &Offers<'_>,
        config: &MoverConfig,
        now: Timestamp,
    ) -> Option<EventWindow> {
        self.load = seen.load;
        let pressure = seen.load.pressure();
        (self.best, self.nothing) = (None, None);
        if let Some(reading) = reading.filter(|_| pressure >= config.high) {
            self.choose(site, &window_of(reading), offers, config.choice, now);
        }
        let tick = EvidenceTick {
            reading,
            awaited: offers.view.is_awaited(site),
            began_to_serve: self.began_to_serve,
            settle: settle(seen.service_time),
            pressure,
            high: config.high,
            best: self.best.map(|it| it.cpus),
            cpus: seen.load.cpus,
        };
        self.judgement = self.evidence.on_tick(&tick, now);
        match self.judgement {
            Judgement::Acts(window) => Some(window),
            Judgement::Anew(_) | Judgement::Gathers(_) => None,
        }
    }

    /// The best move for the site, of one step or of two.
    fn choose(
        &mut self,
        site: SiteNumber,
        window: &EventWindow,
        offers: &Offers<'_>,
        choice: MoveChoice,
        now: Timestamp,
    ) -> Option<ChosenMove> {
        (self.best, self.nothing) = match offers.choose(window, site, choice, now) {
            Ok(chosen) => (Some(chosen), None),
            Err(nothing) => (offers.chain(site, now), Some(nothing)),
        };
        self.best
    }
}

#[cfg(test)]
#[path = "mover_tests.rs"]
mod tests;
