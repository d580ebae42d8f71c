//! Nodes that go back to the site from which they came.
//!
//! One whose move this front-end could not follow has its word changed at once. One that does not pass its new site's check
//! goes back by a move like any other, with its drain and hook, also while moves are paused: it serves nothing where it is.
//! Failure case: a rule, like the old site's ceiling, may stand in its way; then it stays.

use tidegate_core::moves::carry::BARRED;
use tidegate_core::moves::plan::MovePlan;
use tidegate_core::moves::steps::AttemptEnd;
use tidegate_core::moves::words::{Assignment, AssignmentState, MoveCause, NodeNumber};
use tidegate_core::time::Timestamp;
use tidegate_remote::clock;

use super::super::record::unfinished;
use super::{MovesTask, swap};

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

    /// A node that takes no requests of its new site.
    pub(super) async fn give_back(&mut self, plan: &MovePlan, now: Timestamp) {
        let Some(record) = self.record(plan, None) else {
            return;
        };
        if let Some(party) = &mut self.party {
            party.mover.bar(plan.intention.node, now + BARRED);
        }
        self.say("move_unfit", "gives back", &record);
        if let Err((record, why)) = self.attempt(plan, record, now).await
            && why != AttemptEnd::Overtaken
        {
            self.end(record, Some(unfinished(why)));
        }
    }
}
