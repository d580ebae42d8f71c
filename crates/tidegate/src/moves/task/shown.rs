//! What onlookers see of moves: sites, moves under way and over, nodes on their way.
//!
//! Failure case: it is up to [`SHOWN_EVERY`](super::SHOWN_EVERY) old, so a node that has just arrived may be shown on its
//! way.

use std::collections::BTreeMap;

use tidegate_core::moves::choice::ChosenMove;
use tidegate_core::moves::numbering::Constitution;
use tidegate_core::moves::words::{
    AgentStep, Assignment, AssignmentState, LockState, NodeNumber, SiteNumber,
};
use tidegate_core::topology::Topology;
use tidegate_remote::clock;

use super::MovesTask;
use crate::models::{BestMove, NodeMove};
use crate::moves::models::{MoveCount, MoveUnderWay, MovesSite};
use crate::moves::party::Party;
use crate::moves::record::{cause, verdict};

const DRAINS: &str = "drains";
const SWITCHES: &str = "switches";

impl MovesTask {
    /// Moves that are not over, as onlookers see them.
    fn shown_under_way(&self) -> Vec<MoveUnderWay> {
        let (Some(party), now) = (&self.party, clock::now()) else {
            return Vec::new();
        };
        let shown = self.under_way.by_node.iter().map(|(node, begun)| {
            let record = begun.record.clone();
            let state = party.mover.assignment(*node).and_then(on_its_way);
            let place = party.places.node(*node);
            MoveUnderWay {
                number: record.number,
                node: record.node,
                from: record.from,
                to: record.to,
                cause: record.cause,
                state: state.unwrap_or(DRAINS).into(),
                seconds: now.since(begun.since).as_secs_f64(),
                connections: party
                    .agent(*node)
                    .filter(|it| it.step == AgentStep::Begun)
                    .map(|it| it.connections),
                in_flight: place.map_or(0, |id| self.shared.table.in_flight(id)),
            }
        });
        shown.collect()
    }

    /// Shows onlookers what is known.
    pub(super) fn show(&self) {
        let on_their_way = self.party.as_ref().map_or_else(BTreeMap::new, on_their_way);
        let sites = self.party.as_ref();
        let topology = self.shared.topology.load();
        let sites = sites.map_or_else(Vec::new, |it| site_rows(it, &topology));
        let unfollowed = self.party.as_ref().map(Party::unfollowed);
        let under_way = self.shown_under_way();
        let held_back = self.held_back();
        let mut shown = self.orders.board.shown();
        shown.on_their_way = on_their_way;
        let status = &mut shown.status;
        status.trouble = self.trouble.as_ref().map(|it| it.text().to_owned());
        status.sites = sites;
        status.unfollowed = unfollowed.unwrap_or_default();
        status.waiting = self.under_way.waiting();
        status.held_back = held_back;
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

/// The sites as onlookers see them. A node whose word is not known counts where it is here.
fn site_rows(party: &Party, topology: &Topology) -> Vec<MovesSite> {
    let constitution = party.constitution();
    let numbers = (0..constitution.sites()).map(|number| SiteNumber(number as u8));
    let shown = numbers.filter_map(|number| {
        let (rules, mind) = (constitution.site(number)?, party.mover.site(number)?);
        let nodes = (0..constitution.nodes()).map(|node| NodeNumber(node as u16));
        let of_it = |node: &NodeNumber| {
            let word = party.mover.assignment(*node).map(|it| it.site);
            word.or_else(|| party.places.site_of(*node, topology)) == Some(number)
        };
        let pressure = mind.load.pressure();
        Some(MovesSite {
            site: rules.name.clone(),
            nodes: nodes.filter(of_it).count() as u32,
            min: u32::from(rules.floor),
            max: u32::from(rules.ceiling),
            priority: u32::from(rules.priority),
            frozen: (party.lock(number)).is_some_and(|it| it.state == LockState::Frozen),
            demand: mind.load.demand,
            cpus: mind.load.cpus,
            pressure: (mind.load.cpus > 0.0).then_some(pressure),
            verdict: verdict(mind),
            best: mind.best.and_then(|it| best(constitution, &it)),
        })
    });
    shown.collect()
}

/// A move as it would be.
fn best(constitution: &Constitution, chosen: &ChosenMove) -> Option<BestMove> {
    let site = |number| constitution.site(number).map(|it| it.name.clone());
    let intention = chosen.plan.intention;
    Some(BestMove {
        node: constitution.node_name(intention.node)?.to_owned(),
        from: site(intention.donor)?,
        to: site(chosen.plan.receiver)?,
        cause: cause(intention.cause).into(),
        expected: chosen.after,
        giver_expected: Some(chosen.donor_after).filter(|it| it.is_finite()),
    })
}

/// What a node does between two sites.
fn on_its_way(assignment: Assignment) -> Option<&'static str> {
    match assignment.state {
        AssignmentState::Serving => None,
        AssignmentState::Draining { .. } => Some(DRAINS),
        AssignmentState::Switching { .. } => Some(SWITCHES),
    }
}

/// Nodes between two sites, by name.
fn on_their_way(party: &Party) -> BTreeMap<String, NodeMove> {
    let constitution = party.constitution();
    let numbers = (0..constitution.nodes()).map(|number| NodeNumber(number as u16));
    let found = numbers.filter_map(|node| {
        let assignment = party.mover.assignment(node)?;
        let moves_to = NodeMove {
            site: constitution.site(assignment.site)?.name.clone(),
            state: on_its_way(assignment)?.into(),
        };
        Some((constitution.node_name(node)?.to_owned(), moves_to))
    });
    found.collect()
}
