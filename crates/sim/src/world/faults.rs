//! What operators do and what breaks.

use tidegate_core::topology::{AdminState, ChangeError, NodeId};

use super::{Choosers, Violation, World};
use crate::front_end::FrontEnd;
use crate::node::Condition;
use crate::requests::TryOutcome;

impl World<'_> {
    pub(super) fn on_override(&mut self, index: u32) {
        let change = self.scenario.overrides[index as usize];
        if let Choosers::FrontEnds(front_ends) = &mut self.choosers {
            for front_end in front_ends {
                if let Some(node) = front_end.local(change.node.0) {
                    front_end.director.handle_override(node, change.state);
                    front_end.news = true;
                }
            }
        }
        if change.state == AdminState::Ready {
            self.nodes[change.node.index()].chill();
        }
        self.nodes[change.node.index()].barred = match change.state {
            AdminState::Ready => None,
            AdminState::Drain | AdminState::Maint => Some(self.now),
        };
        self.tell_oracle(change.node.0);
    }

    pub(super) fn on_left(&mut self, index: u32) -> Result<(), Violation> {
        let node = self.scenario.leaves[index as usize].node;
        self.nodes[node.index()].barred = Some(self.now);
        self.tell_oracle(node.0);
        self.change(node, FrontEnd::remove)
    }

    /// A node comes back with empty caches.
    pub(super) fn on_joined(&mut self, index: u32) -> Result<(), Violation> {
        let node = self.scenario.leaves[index as usize].node;
        self.nodes[node.index()].barred = None;
        self.nodes[node.index()].chill();
        self.tell_oracle(node.0);
        self.change(node, FrontEnd::add)
    }

    fn change(
        &mut self,
        node: NodeId,
        change: impl Fn(&mut FrontEnd, NodeId) -> Result<(), ChangeError>,
    ) -> Result<(), Violation> {
        let Choosers::FrontEnds(front_ends) = &mut self.choosers else {
            return Ok(());
        };
        let changed = front_ends.iter_mut().try_for_each(|front_end| {
            let local = front_end.local(node.0);
            local.map_or(Ok(()), |local| change(front_end, local))
        });
        changed.map_err(|error| self.violation(error.to_string()))
    }

    pub(super) fn on_broke(&mut self, index: u32) {
        let (now, spell) = (self.now, self.spells[index as usize]);
        let node = spell.node.0;
        self.settle(node);
        let here = &mut self.nodes[node as usize];
        here.condition = spell.condition;
        match spell.condition {
            Condition::Well | Condition::Failing | Condition::Breaking => {}
            Condition::Slow { times } => {
                let speed = self.scenario.nodes[node as usize].speed;
                here.processor
                    .set_speed(now, speed / f64::from(times.max(1)));
                self.settle(node);
            }
            Condition::Paused => {
                here.set_silent(true, now);
                here.processor.set_stopped(now, true);
                self.settle(node);
            }
            Condition::Dead => {
                here.set_silent(true, now);
                here.restart(&self.scenario.nodes[node as usize], now);
                self.settle(node);
                self.measures.restarted(node);
                for request in self.requests.at_node(node) {
                    self.answer(request, TryOutcome::Lost);
                }
            }
        }
        self.tell_oracle(node);
    }

    pub(super) fn on_mended(&mut self, index: u32) {
        let (now, spell) = (self.now, self.spells[index as usize]);
        let node = spell.node.0;
        let here = &mut self.nodes[node as usize];
        here.condition = Condition::Well;
        match spell.condition {
            Condition::Well | Condition::Failing | Condition::Breaking => {}
            Condition::Slow { .. } => {
                let speed = self.scenario.nodes[node as usize].speed;
                here.processor.set_speed(now, speed);
                self.settle(node);
            }
            Condition::Dead => here.set_silent(false, now),
            Condition::Paused => {
                here.set_silent(false, now);
                here.processor.set_stopped(now, false);
                self.settle(node);
                let held = std::mem::take(&mut self.nodes[node as usize].held);
                for request in held {
                    self.accept(request);
                }
            }
        }
        self.tell_oracle(node);
    }
}
