//! What a front-end makes of a node's word, as load reads show it: each is later than the one before, or is not believed.
//!
//! ```text
//! not read for 250 ms           silent
//! 0                             the node began without words: 0 -> what is known, or its own site
//! generation as known, or later believed
//! a smaller one                 an old datagram; for 250 ms on end: a front-end that knew less began the node's words anew:
//!                               -> the known generation + 1
//! of no site, or lent to its    written by other numbers: -> generation + 1, its own site
//! own site, or not lent to
//! another
//! ```
//!
//! Inputs: the word with the moment of its read, `now`. Failure case: a word of other numbers that makes sense by ours is
//! believed: the node is at a site that none chose, and load brings it away. Source: not in Reconfiguration-2004, whose
//! nodes keep their words.

use super::atomics::{WordAtomic, WordPlace};
use super::lease::{Arrival, SILENT_AFTER, arrival, first_assignment};
use super::numbering::Constitution;
use super::plan::NodeReading;
use super::words::{Assignment, MoveCause, NodeNumber, SiteNumber, WordError};
use crate::time::Timestamp;

/// What a front-end has seen of a node's word.
#[derive(Clone, Copy, Debug, Default)]
pub struct NodeWatch {
    known: Option<Assignment>,
    /// Since when its generation is smaller than the one that is known.
    smaller_since: Option<Timestamp>,
    /// Since when it is looked for.
    looked_for_since: Option<Timestamp>,
}

/// What is to be made of a node's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeLook {
    /// What moves make of it.
    pub reading: NodeReading,
    /// What the word is to become, if it is not left alone.
    pub mend: Option<WordAtomic>,
    /// What is wrong with it.
    pub garbled: Option<WordError>,
}

impl NodeWatch {
    /// Takes in what a read found, and when that was sent.
    pub fn look(
        &mut self,
        node: NodeNumber,
        seen: Option<(u64, Timestamp)>,
        constitution: &Constitution,
        now: Timestamp,
    ) -> NodeLook {
        let left = |reading| NodeLook {
            reading,
            mend: None,
            garbled: None,
        };
        let since = *self.looked_for_since.get_or_insert(now);
        let Some((word, asked_at)) = seen else {
            return left(match now.since(since) >= SILENT_AFTER {
                true => NodeReading::Silent,
                false => NodeReading::Unread,
            });
        };
        let Some(home) = constitution.home(node) else {
            return left(NodeReading::Unread);
        };
        if now.since(asked_at) >= SILENT_AFTER {
            return left(NodeReading::Silent);
        }
        let mended = |new: Assignment| NodeLook {
            mend: Some(WordAtomic::Swap {
                place: WordPlace::Node(node),
                expected: word,
                new: new.pack(),
                born: Some(now),
            }),
            ..left(NodeReading::Unread)
        };
        let assignment = match Assignment::unpack(word) {
            Ok(Some(assignment)) => assignment,
            Ok(None) => return mended(first_assignment(self.known, home)),
            Err(error) => {
                return NodeLook {
                    garbled: Some(error),
                    ..left(NodeReading::Unread)
                };
            }
        };
        if !is_by_our_numbers(assignment, home, constitution) {
            self.known = None;
            let first = Assignment::first(assignment.generation.next(), home, false);
            return mended(Assignment {
                cause: MoveCause::Start,
                ..first
            });
        }
        let stood = now.since(*self.smaller_since.get_or_insert(now));
        match arrival(self.known, assignment, stood < SILENT_AFTER) {
            Arrival::News => {
                (self.known, self.smaller_since) = (Some(assignment), None);
                left(NodeReading::Read {
                    assignment,
                    asked_at,
                })
            }
            Arrival::Old => left(NodeReading::Unread),
            Arrival::Raise(new) => mended(new),
        }
    }
}

fn is_by_our_numbers(
    assignment: Assignment,
    home: SiteNumber,
    constitution: &Constitution,
) -> bool {
    let sites = [Some(assignment.site), assignment.from()];
    let are_known = sites
        .into_iter()
        .flatten()
        .all(|site| constitution.site(site).is_some());
    are_known && assignment.lent == (assignment.site != home)
}

#[cfg(test)]
#[path = "arrivals_tests.rs"]
mod tests;
