//! Front-ends' atomics on words of the nodes' memory.
//!
//! A question takes one delay to the node, where it is carried out at once, and the answer one
//! back. A node that is silent is asked again; one that has no records has no words either.

use std::time::Duration;

use tidegate_core::load::{WordReply, WordRequest};
use tidegate_core::topology::NodeId;

use super::{Choosers, World};
use crate::node::Condition;
use crate::queue::Event;

/// A question without an answer is sent again after this long.
const AGAIN: Duration = Duration::from_millis(2);

impl World<'_> {
    /// Sends what a front-end's director asked for at its last tick.
    pub(super) fn send_questions(&mut self, number: u32) {
        let Choosers::FrontEnds(front_ends) = &mut self.choosers else {
            return;
        };
        let asked: Vec<(NodeId, u32)> = front_ends[number as usize].questions().collect();
        for (local, ticket) in asked {
            let node = self.global(number, local);
            let has = self.scenario.nodes[node as usize].records.is_some();
            if !has || !self.scenario.front_ends.words {
                continue;
            }
            let at = self.after_delay();
            let event = Event::WordAsked {
                front_end: number,
                node: local.0,
                ticket,
            };
            self.queue.schedule(at, event);
        }
    }

    pub(super) fn on_word_asked(&mut self, number: u32, local: NodeId, ticket: u32) {
        let node = self.global(number, local);
        let Choosers::FrontEnds(front_ends) = &self.choosers else {
            return;
        };
        let Some(WordRequest { op, .. }) = front_ends[number as usize].question(local, ticket)
        else {
            return;
        };
        let here = &mut self.nodes[node as usize];
        let event = match here.condition {
            Condition::Dead | Condition::Paused => {
                let event = Event::WordAsked {
                    front_end: number,
                    node: local.0,
                    ticket,
                };
                self.queue.schedule(self.now + AGAIN, event);
                return;
            }
            Condition::Well | Condition::Failing | Condition::Breaking | Condition::Slow { .. } => {
                Event::WordAnswered {
                    front_end: number,
                    node: local.0,
                    ticket,
                    held: here.words.carry_out(op),
                    node_now: self.now,
                }
            }
        };
        let at = self.after_delay();
        self.queue.schedule(at, event);
    }

    pub(super) fn on_word_answered(
        &mut self,
        number: u32,
        (node, ticket): (NodeId, u32),
        reply: WordReply,
    ) {
        if let Choosers::FrontEnds(front_ends) = &mut self.choosers {
            front_ends[number as usize].answer(node, ticket, reply);
        }
    }
}
