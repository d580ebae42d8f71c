//! What became of moves, for people.

use std::collections::VecDeque;

use tidegate_core::moves::evidence::{Judgement, WindowEnd};
use tidegate_core::moves::mover::SiteMind;
use tidegate_core::moves::steps::AttemptEnd;
use tidegate_core::moves::words::MoveCause;
use tidegate_remote::clock;

use super::models::MoveRecord;

/// Moves that are remembered.
const MOVES_MAX: usize = 100;

/// The latest moves, the newest first.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    moves: VecDeque<MoveRecord>,
}

impl History {
    pub(super) fn push(&mut self, record: MoveRecord) {
        self.moves.push_front(record);
        self.moves.truncate(MOVES_MAX);
    }

    /// The move of this number, if it is over and remembered.
    pub(super) fn of(&self, number: u64) -> Option<&MoveRecord> {
        self.moves.iter().find(|it| it.number == number)
    }

    pub(super) fn all(&self) -> Vec<MoveRecord> {
        self.moves.iter().cloned().collect()
    }
}

/// The time of day in microseconds, as records of moves say it.
pub(super) fn unix_us() -> u64 {
    clock::unix().as_micros() as u64
}

/// Why a node moves, in a word.
pub(super) fn cause(cause: MoveCause) -> &'static str {
    match cause {
        MoveCause::Load => "load",
        MoveCause::Chain => "chain",
        MoveCause::HomeComing => "home",
        MoveCause::Operator => "operator",
        MoveCause::Start => "start",
        MoveCause::Revert => "revert",
    }
}

/// Why a move came to nothing, or is not known to have come to anything.
pub(super) fn unfinished(end: AttemptEnd) -> String {
    match end {
        AttemptEnd::Finished => "it has ended".into(),
        AttemptEnd::Overtaken => "another front-end was faster".into(),
        AttemptEnd::Voided => "the node does not answer".into(),
        AttemptEnd::HelpFirst(_) => "another move has to end first".into(),
        AttemptEnd::Unknown => {
            "an answer was lost: whether it is made shows in half a second".into()
        }
        AttemptEnd::TooOld => "it took too long to reach the node".into(),
        AttemptEnd::Garbled(error) => format!("a word was written by no front-end: {error}"),
    }
}

/// What is thought of a site, in a sentence.
pub(super) fn verdict(mind: &SiteMind) -> String {
    if mind.load.cpus <= 0.0 {
        return "its load is not known: none of its nodes has a fresh load record".into();
    }
    match mind.judgement {
        Judgement::Anew(WindowEnd::NotHigh | WindowEnd::First) => "is not in need".into(),
        Judgement::Anew(WindowEnd::Moved) => "a move of it has just begun or ended".into(),
        Judgement::Anew(WindowEnd::Awaited) => "a node is on its way to it".into(),
        Judgement::Anew(WindowEnd::Settling) => "a node has just begun to serve it".into(),
        Judgement::Anew(WindowEnd::NoWords) => "its words cannot be read".into(),
        Judgement::Gathers(part) => {
            let part = (part * 100.0).round();
            format!(
                "is in need, for {part} % of the time that is asked for{}",
                stands_in_the_way(mind)
            )
        }
        Judgement::Acts(_) => format!("is in need{}", stands_in_the_way(mind)),
    }
}

/// Why no node is there to be moved.
fn stands_in_the_way(mind: &SiteMind) -> String {
    let Some(nothing) = mind.nothing.filter(|_| mind.best.is_none()) else {
        return String::new();
    };
    let counts = [
        (nothing.not_allowed, "that a rule keeps"),
        (nothing.priority, "of a higher priority"),
        (nothing.resting, "that have just come or have no fresh load"),
        (nothing.unsuited, "that do not suit it"),
        (nothing.no_gain, "whose site would soon want them back"),
    ];
    let counts = counts.iter().filter(|(count, _)| *count > 0);
    let counts: Vec<_> = counts
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    let rule = nothing.last_rule.map(|rule| format!(" ({rule})"));
    format!(
        "; no node can come: {}{}",
        match counts.is_empty() {
            true => "no other site has one".into(),
            false => counts.join(", "),
        },
        rule.unwrap_or_default()
    )
}
