//! Which node moves: the one after which the worse off of both sites is best off.
//!
//! ```text
//! p_x    = demand_x / C_x              demand: runnable tasks + accept queue + waiting here * front-ends; C: CPUs
//! p'_x   = demand_x / (C_x + C_n)      after n has moved from y to x
//! p'_y   = max(demand_y / (C_y - C_n), r / (1 - r))      infinite where requests are left and no CPU is
//! r      = what y keeps / (C_y - C_n)  (`usual.rs`; less if n goes home); r / (1 - r), infinite from 1 on, is what queues make of it
//! w_xy   = 2^-(priority_y - priority_x), 1 at most      a site of a lower priority bears more
//! score  = max(p'_x, p'_y w_xy)        the least wins; of equal ones the least p'_y w_xy
//! worth  p'_y w_xy < 0.8 p_x           else y would soon want it back. p'_x may be anything below p_x: one node of many moves it
//!                                      little, and what a move costs is weighed in `evidence.rs`
//! `least_loaded`: the node with the least load per CPU of any other site, whatever comes of it; the paper's choice
//! y may give  if its priority is not higher than that of x; to x as n's own site, one step higher too
//! chain  no y may give, for its floor or because no node of its suits x: first m moves from z to y, so that n can follow
//! ```
//!
//! Inputs: loads of sites and nodes, what the plan allows, when nodes last moved. Failure case: demand that a move
//! changes (a cache that n has for y) shows only afterwards; a database behind x that is full takes a node in vain,
//! since p_x falls without x being faster. Two steps are as far as a chain looks.
//! Source: Reconfiguration-2004, section 3.1.2 (`least_loaded`); its several sites with priorities and steps are its
//! future work.

use std::time::Duration;

use super::plan::{EventWindow, MovePlan, MoveView, MoveWish, NoMove, NodeReading};
use super::usual::KeptCpus;
use super::words::{Assignment, MoveCause, NodeNumber, SITES_MAX, SiteNumber};
use crate::time::Timestamp;

/// A move must leave the donor below this part of the receiver's pressure.
const DONOR_SHARE: f64 = 0.8;
/// CPUs below which a mean that falls counts as nothing.
const USED_MIN: f64 = 0.01;

/// What is known of a site's load.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SiteLoad {
    /// Runnable tasks, accept queues, and requests that wait at front-ends.
    pub demand: f64,
    /// CPUs of its nodes.
    pub cpus: f64,
}

/// What is known of a node, for moves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NodeOffer {
    /// Its CPUs.
    pub cpus: f64,
    /// Its runnable tasks and its accept queue.
    pub load: f64,
    /// Whether its load record is fresh.
    pub fresh: bool,
    /// When it was last moved, by the front-end's own clock; when it was first seen, if no move was.
    pub moved_at: Timestamp,
    /// Bits of the sites that it can serve, by number.
    pub suits: u128,
    /// It failed to switch, and rests until then.
    pub barred_until: Timestamp,
}

const _: () = assert!(SITES_MAX <= u128::BITS as usize);

/// How a node is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MoveChoice {
    /// By what becomes of both sites.
    #[default]
    BestOff,
    /// The paper's.
    LeastLoaded,
}

/// What a front-end chooses from.
#[derive(Clone, Debug)]
pub struct Offers<'a> {
    /// The words, and the rules.
    pub view: MoveView<'a>,
    /// By site number.
    pub sites: &'a [SiteLoad],
    /// CPUs that each site keeps.
    pub keeps: &'a [KeptCpus],
    /// By node number.
    pub nodes: &'a [NodeOffer],
    /// How long a node stays where it has come.
    pub dwell: Duration,
    /// Four bits of this front-end, for people.
    pub owner: u8,
}

/// A move that is worth while.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChosenMove {
    /// Its plan.
    pub plan: MovePlan,
    /// The pressure of the site in need.
    pub before: f64,
    /// Its pressure afterwards.
    pub after: f64,
    /// That of the site that gives.
    pub donor_after: f64,
    /// CPUs of the node.
    pub cpus: f64,
}

/// Why nothing is chosen: what stood in the way of the most nodes that do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NothingChosen {
    /// Nodes that a rule of the plan keeps.
    pub not_allowed: usize,
    /// The rule that kept the last of them.
    pub last_rule: Option<NoMove>,
    /// Nodes of a site with a higher priority.
    pub priority: usize,
    /// Nodes that have moved a short while ago, are barred, or have no fresh record.
    pub resting: usize,
    /// Nodes that do not suit the site.
    pub unsuited: usize,
    /// Nodes that their site would soon want back.
    pub no_gain: usize,
}

/// The least wins; the second decides between equal ones.
type Score = [f64; 2];

impl SiteLoad {
    /// p: demand per CPU.
    pub fn pressure(self) -> f64 {
        pressure(self.demand, self.cpus)
    }
}

fn pressure(demand: f64, cpus: f64) -> f64 {
    match (demand > 0.0, cpus > 0.0) {
        (false, _) => 0.0,
        (true, true) => demand / cpus,
        (true, false) => f64::INFINITY,
    }
}

/// Demand per CPU that comes of so much use, at random.
fn queues(used: f64, cpus: f64) -> f64 {
    match (used < USED_MIN, used < cpus) {
        (true, _) => 0.0,
        (false, true) => used / (cpus - used),
        (false, false) => f64::INFINITY,
    }
}

impl Offers<'_> {
    /// The best node for a site, if its move is worth while.
    ///
    /// # Errors
    /// Why there is none.
    pub fn choose(
        &self,
        window: &EventWindow,
        receiver: SiteNumber,
        choice: MoveChoice,
        now: Timestamp,
    ) -> Result<ChosenMove, NothingChosen> {
        let mut best: Option<(Score, ChosenMove)> = None;
        let mut nothing = NothingChosen::default();
        for (number, reading) in self.view.nodes().iter().enumerate() {
            let NodeReading::Read { assignment, .. } = reading else {
                continue;
            };
            if assignment.site == receiver {
                continue;
            }
            let node = NodeNumber(number as u16);
            let Some(offer) = self.offer(node, *assignment, receiver, now, &mut nothing) else {
                continue;
            };
            let wish = self.wish(node, *assignment, receiver);
            let plan = match self.view.plan(window, wish) {
                Ok(plan) => plan,
                Err(rule) => {
                    nothing.not_allowed += 1;
                    nothing.last_rule = Some(rule);
                    continue;
                }
            };
            let chosen = self.chosen(plan, receiver, offer);
            let score = match choice {
                MoveChoice::BestOff => self.score(&chosen, receiver, assignment.site),
                MoveChoice::LeastLoaded => [pressure(offer.load, offer.cpus), 0.0],
            };
            let is_worth_while = score[1] < DONOR_SHARE * chosen.before;
            if choice == MoveChoice::BestOff && !is_worth_while {
                nothing.no_gain += 1;
            } else if best.is_none_or(|(least, _)| score < least) {
                best = Some((score, chosen));
            }
        }
        best.map(|(_, chosen)| chosen).ok_or(nothing)
    }

    /// The first move of two: m from z to y, after which n of y can go to the site in need. `None` while one is under way.
    pub fn chain(&self, receiver: SiteNumber, now: Timestamp) -> Option<ChosenMove> {
        let on_its_way = |it: &NodeReading| {
            matches!(it, NodeReading::Read { assignment, .. }
                if !assignment.is_serving() && assignment.cause == MoveCause::Chain)
        };
        if self.view.nodes().iter().any(on_its_way) {
            return None;
        }
        let mut best: Option<(Score, ChosenMove)> = None;
        let mut nothing = NothingChosen::default();
        for (second, middle) in self.readings() {
            let Some(follower) = self.offer(second, middle, receiver, now, &mut nothing) else {
                continue;
            };
            for (first, from) in self.readings() {
                let middle = middle.site;
                let over = [receiver, middle].contains(&from.site) || middle == receiver;
                let outranks = !self.may_give(from, first, receiver);
                if over || outranks {
                    continue;
                }
                let Some(offer) = self.offer(first, from, middle, now, &mut nothing) else {
                    continue;
                };
                let Some(step) = self.step(first, middle, offer) else {
                    continue;
                };
                let (score, chosen) =
                    self.both(step, receiver, (middle, from.site), follower, offer);
                let better = best.is_none_or(|(least, _)| score < least);
                if score[1] < DONOR_SHARE * chosen.before && better {
                    best = Some((score, chosen));
                }
            }
        }
        best.map(|(_, chosen)| chosen)
    }

    fn readings(&self) -> impl Iterator<Item = (NodeNumber, Assignment)> {
        let numbered = self.view.nodes().iter().enumerate();
        numbered.filter_map(|(number, reading)| match reading {
            NodeReading::Read { assignment, .. } => Some((NodeNumber(number as u16), *assignment)),
            NodeReading::Silent | NodeReading::Unread => None,
        })
    }

    /// A node that suits the site, is rested and may be given, whatever the plan says.
    fn offer(
        &self,
        node: NodeNumber,
        assignment: Assignment,
        receiver: SiteNumber,
        now: Timestamp,
        nothing: &mut NothingChosen,
    ) -> Option<NodeOffer> {
        let offer = *self.nodes.get(node.index())?;
        let rested = now.since(offer.moved_at) >= self.dwell && now >= offer.barred_until;
        if offer.suits >> receiver.0 & 1 == 0 {
            nothing.unsuited += 1;
        } else if !self.may_give(assignment, node, receiver) {
            nothing.priority += 1;
        } else if !(rested && offer.fresh) {
            nothing.resting += 1;
        } else {
            return Some(offer);
        }
        None
    }

    fn priority(&self, site: SiteNumber) -> i32 {
        let rules = self.view.constitution().site(site);
        rules.map_or(i32::MAX, |it| i32::from(it.priority))
    }

    /// Whether a site's priority lets it give a node. One that the node is lent to gives way to the node's own site.
    fn may_give(&self, of: Assignment, node: NodeNumber, receiver: SiteNumber) -> bool {
        let comes_home = self.comes_home(of, node, receiver);
        self.priority(of.site) + i32::from(comes_home) >= self.priority(receiver)
    }

    fn comes_home(&self, of: Assignment, node: NodeNumber, receiver: SiteNumber) -> bool {
        of.lent && self.view.constitution().home(node) == Some(receiver)
    }

    fn wish(&self, node: NodeNumber, of: Assignment, receiver: SiteNumber) -> MoveWish {
        MoveWish {
            node,
            receiver,
            cause: match self.comes_home(of, node, receiver) {
                true => MoveCause::HomeComing,
                false => MoveCause::Load,
            },
            owner: self.owner,
            force: false,
        }
    }

    /// The first step of a chain: its evidence is that of the site in need, so the window is what was read last.
    fn step(&self, node: NodeNumber, receiver: SiteNumber, offer: NodeOffer) -> Option<MovePlan> {
        let reading = self.view.site(receiver)?;
        let window = EventWindow {
            lock: reading.lock,
            updates: reading.updates,
            began_at: reading.at,
        };
        let wish = MoveWish {
            node,
            receiver,
            cause: MoveCause::Chain,
            owner: self.owner,
            force: false,
        };
        debug_assert!(offer.fresh, "it was offered");
        self.view.plan(&window, wish).ok()
    }

    fn load(&self, site: SiteNumber) -> SiteLoad {
        self.sites.get(site.index()).copied().unwrap_or_default()
    }

    fn chosen(&self, plan: MovePlan, receiver: SiteNumber, offer: NodeOffer) -> ChosenMove {
        let (load, donor) = (self.load(receiver), self.load(plan.intention.donor));
        ChosenMove {
            plan,
            before: load.pressure(),
            after: pressure(load.demand, load.cpus + offer.cpus),
            donor_after: self.left_with(
                plan.intention.donor,
                donor.cpus - offer.cpus,
                plan.intention.cause == MoveCause::HomeComing,
            ),
            cpus: offer.cpus,
        }
    }

    /// p'_y of a site that is left with so many CPUs after a node went home or elsewhere.
    fn left_with(&self, site: SiteNumber, cpus: f64, goes_home: bool) -> f64 {
        let keeps = self.keeps.get(site.index()).copied().unwrap_or_default();
        let keeps = if goes_home { keeps.lent } else { keeps.own };
        pressure(self.load(site).demand, cpus).max(queues(keeps, cpus))
    }

    fn score(&self, chosen: &ChosenMove, receiver: SiteNumber, donor: SiteNumber) -> Score {
        let donor_after = chosen.donor_after * self.weight(receiver, donor);
        [chosen.after.max(donor_after), donor_after]
    }

    fn weight(&self, receiver: SiteNumber, donor: SiteNumber) -> f64 {
        let steps = self.priority(receiver) - self.priority(donor);
        f64::from(steps.min(0)).exp2()
    }

    /// What both steps of a chain come to.
    fn both(
        &self,
        step: MovePlan,
        receiver: SiteNumber,
        (middle, donor): (SiteNumber, SiteNumber),
        follower: NodeOffer,
        offer: NodeOffer,
    ) -> (Score, ChosenMove) {
        let loads = [receiver, middle, donor].map(|site| self.load(site));
        let after = pressure(loads[0].demand, loads[0].cpus + follower.cpus);
        let cpus = loads[1].cpus + offer.cpus - follower.cpus;
        let middle_after = self.left_with(middle, cpus, false);
        let donor_after = self.left_with(donor, loads[2].cpus - offer.cpus, false);
        let donors = (middle_after * self.weight(receiver, middle))
            .max(donor_after * self.weight(receiver, donor));
        let chosen = ChosenMove {
            plan: step,
            before: loads[0].pressure(),
            after,
            donor_after,
            cpus: offer.cpus,
        };
        ([after.max(donors), donors], chosen)
    }
}

#[cfg(test)]
#[path = "choice_tests.rs"]
mod tests;
