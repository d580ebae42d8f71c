//! What front-ends say of moves, put together.
//!
//! ```text
//! one move    the same node and generation of its word, at all front-ends
//! visible     decided_us of the front-end that has decided it ──> the last assigned_us of all front-ends
//! ```
//!
//! The instants are the front-ends' own, so it does not matter when they are asked, as long as their lists, of the latest
//! hundred, still have a move. All run on one host, with one time of day. Failure case: a front-end that has not seen a
//! move, since a later one of the same node came first; such a move counts as unseen.

use std::collections::BTreeMap;

use serde_json::Value;

/// One move.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SeenMove {
    /// The site that the node came to.
    pub(super) to: String,
    /// Why, as its decider says.
    pub(super) cause: String,
    /// When it was decided, microseconds since 1970.
    pub(super) decided_us: Option<u64>,
    /// Since when its decider goes by it.
    own_us: Option<u64>,
    /// Since when each front-end goes by it.
    assigned_us: BTreeMap<usize, u64>,
}

/// Moves by node and generation.
#[derive(Clone, Debug, Default)]
pub(super) struct MovesSeen {
    moves: BTreeMap<(String, u64), SeenMove>,
}

impl SeenMove {
    /// Whether load was why.
    pub(super) fn is_by_load(&self) -> bool {
        matches!(self.cause.as_str(), "load" | "chain" | "home")
    }

    /// Milliseconds until its decider went by it.
    pub(super) fn own_ms(&self) -> Option<f64> {
        Some(ms(self.decided_us?, self.own_us?))
    }

    /// Milliseconds until all of so many front-ends went by it.
    pub(super) fn visible_ms(&self, front_ends: usize) -> Option<f64> {
        let last = self.assigned_us.values().max();
        let all = last.filter(|_| self.assigned_us.len() == front_ends);
        Some(ms(self.decided_us?, *all?))
    }
}

impl MovesSeen {
    /// Takes in what a front-end answers to `GET /api/moves`. Moves that it did not carry through are none.
    pub(super) fn take(&mut self, front_end: usize, answer: &Value) {
        let moves = answer["moves"].as_array();
        for entry in moves.into_iter().flatten() {
            let key = entry["node"].as_str().zip(entry["generation"].as_u64());
            let (Some((node, generation)), Some(assigned)) = (key, entry["assigned_us"].as_u64())
            else {
                continue;
            };
            let seen = self.moves.entry((node.to_owned(), generation));
            let seen = seen.or_default();
            let text = |field: &str| entry[field].as_str().unwrap_or_default().to_owned();
            seen.assigned_us.insert(front_end, assigned);
            if let Some(decided) = entry["decided_us"].as_u64() {
                seen.decided_us = Some(decided);
                seen.own_us = Some(assigned);
                seen.cause = text("cause");
            }
            seen.to = text("to");
        }
    }

    /// All of them.
    pub(super) fn all(&self) -> impl Iterator<Item = &SeenMove> {
        self.moves.values()
    }
}

/// From one instant in microseconds to a later one; the clock may have been set back in between.
pub(super) fn ms(from_us: u64, to_us: u64) -> f64 {
    to_us.saturating_sub(from_us) as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_move_is_visible_once_the_last_front_end_goes_by_it() {
        let entry = |decided: Option<u64>, assigned: Option<u64>| {
            json!({ "moves": [{
                "node": "n1", "generation": 7, "to": "shop", "cause": "operator",
                "decided_us": decided, "assigned_us": assigned,
            }]})
        };
        let mut seen = MovesSeen::default();
        seen.take(0, &entry(Some(1_000_000), Some(1_004_000)));
        // Lists overlap when they are read again.
        seen.take(0, &entry(Some(1_000_000), Some(1_004_000)));
        let first = |seen: &MovesSeen| seen.all().next().unwrap().clone();
        assert_eq!(first(&seen).visible_ms(2), None, "not everywhere yet");
        seen.take(1, &entry(None, Some(1_009_500)));
        // One that was overtaken there says the same generation, and is none.
        seen.take(2, &entry(Some(1_000_500), None));
        assert_eq!(seen.all().count(), 1);
        assert_eq!(first(&seen).own_ms(), Some(4.0));
        assert_eq!(first(&seen).visible_ms(2), Some(9.5));
        assert!(!first(&seen).is_by_load());
    }
}
