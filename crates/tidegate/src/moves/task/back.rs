//! Nodes that go back to the site from which they came.
//!
//! One whose move this front-end could not follow has its word changed at once. One that does not pass its new site's check
//! goes back by a move like any other, with its drain and hook, also while moves are paused: it serves nothing where it is.
//! A rule, like the old site's ceiling, may stand in its way, or the move may not begin: then it stays, each cause is said
//! once, and the move is tried again each second. Failure case: two nodes of which the first one's move never begins; the
//! second one stays as well.

use std::collections::BTreeMap;

use tidegate_core::moves::carry::BARRED;
use tidegate_core::moves::mover::HeldBack;
use tidegate_core::moves::plan::{MovePlan, NoMove};
use tidegate_core::moves::steps::AttemptEnd;
use tidegate_core::moves::words::{Assignment, AssignmentState, MoveCause, NodeNumber, SiteNumber};
use tidegate_core::time::Timestamp;
use tidegate_remote::clock;

use super::super::models::HeldBackNode;
use super::super::record::unfinished;
use super::{AGAIN_AFTER, MovesTask, swap};

/// Why a node that is to go back is where it is.
#[derive(Clone, Debug, PartialEq)]
enum Hindrance {
    /// A rule does not allow its move.
    Rule(NoMove),
    /// Its move did not begin.
    Attempt(AttemptEnd),
}

impl Hindrance {
    fn text(&self) -> String {
        match self {
            Self::Rule(why) => why.to_string(),
            Self::Attempt(end) => unfinished(*end),
        }
    }
}

/// A node that waits to go back.
#[derive(Clone, Debug)]
struct Waits {
    site: SiteNumber,
    back: SiteNumber,
    why: Hindrance,
    /// No move is tried before.
    again_at: Timestamp,
}

/// Nodes that are to go back and do not, with what was said of them.
#[derive(Clone, Debug, Default)]
pub(super) struct WaysBack {
    by_node: BTreeMap<NodeNumber, Waits>,
}

impl WaysBack {
    /// These are held now, and one may go. Those of which it is to be said for the first time.
    fn on_look(&mut self, held: &[HeldBack], may_go: Option<NodeNumber>) -> Vec<HeldBack> {
        let is_due =
            |node: NodeNumber| Some(node) == may_go || held.iter().any(|it| it.node == node);
        self.by_node.retain(|node, _| is_due(*node));
        let rules = held.iter().filter(|it| it.why.is_rule());
        rules
            .filter(|it| {
                let why = Hindrance::Rule(it.why);
                self.note(it.node, (it.site, it.back), why, Timestamp::ZERO)
            })
            .copied()
            .collect()
    }

    /// Whether a move may be tried now.
    fn may_try(&self, node: NodeNumber, now: Timestamp) -> bool {
        self.by_node.get(&node).is_none_or(|it| now >= it.again_at)
    }

    /// Whether a move of it was tried, and did not begin.
    fn has_failed(&self, node: NodeNumber) -> bool {
        let waits = self.by_node.get(&node);
        waits.is_some_and(|it| matches!(it.why, Hindrance::Attempt(_)))
    }

    /// Notes why a node does not go back; whether that is new.
    fn note(
        &mut self,
        node: NodeNumber,
        (site, back): (SiteNumber, SiteNumber),
        why: Hindrance,
        again_at: Timestamp,
    ) -> bool {
        let is_new = self.by_node.get(&node).is_none_or(|it| it.why != why);
        let waits = Waits {
            site,
            back,
            why,
            again_at,
        };
        self.by_node.insert(node, waits);
        is_new
    }
}

impl MovesTask {
    /// The cluster was not changed: the node's word says so.
    pub(super) async fn take_back(&mut self, node: NodeNumber, from: &str) {
        let Some(party) = &mut self.party else { return };
        let constitution = party.constitution();
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
        party.carry_out(swap(node, known, new, clock::now())).await;
    }

    /// Says which nodes are to go back and may not.
    pub(super) fn note_held(&mut self, held: &[HeldBack], back: Option<&MovePlan>) {
        let may_go = back.map(|it| it.intention.node);
        for new in self.ways_back.on_look(held, may_go) {
            let why = Hindrance::Rule(new.why);
            if let Some(shown) = self.named(new.node, (new.site, new.back), &why) {
                let text = format!("node {}", shown.text());
                self.output.event("move_back_held", &text);
            }
        }
    }

    /// A node that takes no requests of its new site.
    pub(super) async fn give_back(&mut self, plan: &MovePlan, now: Timestamp) {
        let node = plan.intention.node;
        let record = self.record(plan, None);
        let Some(record) = record.filter(|_| self.ways_back.may_try(node, now)) else {
            return;
        };
        if let Some(party) = &mut self.party {
            party.mover.bar(node, now + BARRED);
        }
        if !self.ways_back.has_failed(node) {
            self.say("move_unfit", "gives back", &record);
        }
        let Err((record, end)) = self.attempt(plan, record, now).await else {
            self.ways_back.by_node.remove(&node);
            return;
        };
        let sites = (plan.assignment.site, plan.receiver);
        let why = Hindrance::Attempt(end);
        let is_new = self.ways_back.note(node, sites, why, now + AGAIN_AFTER);
        // That another front-end acts is how it should be.
        if is_new && end != AttemptEnd::Overtaken {
            self.end(record, Some(unfinished(end)));
        }
    }

    /// Nodes that are to go back and do not, for onlookers.
    pub(super) fn held_back(&self) -> Vec<HeldBackNode> {
        let all = self.ways_back.by_node.iter();
        let named = all.map(|(node, it)| self.named(*node, (it.site, it.back), &it.why));
        named.flatten().collect()
    }

    fn named(
        &self,
        node: NodeNumber,
        (site, back): (SiteNumber, SiteNumber),
        why: &Hindrance,
    ) -> Option<HeldBackNode> {
        let constitution = self.party.as_ref()?.constitution();
        let name = |site| constitution.site(site).map(|it| it.name.clone());
        Some(HeldBackNode {
            node: constitution.node_name(node)?.to_owned(),
            site: name(site)?,
            back: name(back)?,
            why: why.text(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const N: NodeNumber = NodeNumber(3);

    fn held(why: NoMove) -> HeldBack {
        HeldBack {
            node: N,
            site: SiteNumber(0),
            back: SiteNumber(1),
            why,
        }
    }

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn a_rule_is_said_once_and_again_when_it_is_another_one() {
        let mut ways = WaysBack::default();
        let mut look = |held: &[HeldBack]| ways.on_look(held, None).len();
        assert_eq!(look(&[held(NoMove::OldView(3))]), 0, "over at a next look");
        assert_eq!(look(&[held(NoMove::AtFloor)]), 1);
        for why in [NoMove::AtFloor, NoMove::OldView(3), NoMove::AtFloor] {
            assert_eq!(look(&[held(why)]), 0);
        }
        assert_eq!(look(&[held(NoMove::Frozen)]), 1);
        assert_eq!(look(&[]), 0, "it takes requests, or has gone back");
        assert_eq!(look(&[held(NoMove::Frozen)]), 1);
    }

    #[test]
    fn a_move_that_does_not_begin_is_tried_each_second_and_each_cause_is_said_once() {
        let mut ways = WaysBack::default();
        let sites = (SiteNumber(0), SiteNumber(1));
        let failed = |ways: &mut WaysBack, end: AttemptEnd, now: Timestamp| {
            ways.note(N, sites, Hindrance::Attempt(end), now + AGAIN_AFTER)
        };
        assert!(ways.may_try(N, at(0)) && !ways.has_failed(N));
        assert!(failed(&mut ways, AttemptEnd::Voided, at(0)));
        assert!(ways.has_failed(N) && !ways.may_try(N, at(999)));
        assert!(ways.may_try(N, at(1000)));
        assert_eq!(ways.on_look(&[], Some(N)), []);
        assert!(!failed(&mut ways, AttemptEnd::Voided, at(1000)));
        assert!(failed(&mut ways, AttemptEnd::TooOld, at(2000)));
        ways.on_look(&[], None);
        assert!(ways.may_try(N, at(2001)) && !ways.has_failed(N));
    }
}
