//! The antagonists of emulated nodes: which is on at which time.

use tidegate_core::time::Timestamp;

use crate::antagonist::{Antagonist, Spells};

/// One antagonist of one node.
#[derive(Debug)]
pub(super) struct Resident {
    pub(super) number: u64,
    pub(super) node: usize,
    antagonist: Antagonist,
    spells: Spells,
    on: bool,
    /// When that changes.
    until: Timestamp,
}

/// What antagonists take from a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Taken {
    pub(super) tasks: u32,
    pub(super) memory: u64,
    pub(super) files: u32,
}

impl Resident {
    /// From `start` on.
    pub(super) fn new(number: u64, node: usize, antagonist: &Antagonist, start: Timestamp) -> Self {
        Self {
            number,
            node,
            antagonist: antagonist.clone(),
            spells: antagonist.spells(),
            on: false,
            until: start,
        }
    }

    /// When it comes or goes next.
    pub(super) fn until(&self) -> Timestamp {
        self.until
    }

    /// Whether it has come or gone by now.
    pub(super) fn advance(&mut self, now: Timestamp) -> bool {
        let before = self.until;
        while self.until <= now
            && let Some(spell) = self.spells.next()
        {
            self.on = spell.on;
            self.until = self.until + spell.length;
        }
        self.until != before
    }

    /// What it takes now.
    pub(super) fn takes(&self) -> Taken {
        if !self.on {
            return Taken::default();
        }
        let (memory, files) = match self.antagonist {
            Antagonist::Memory { bytes, .. } => (bytes, 0),
            Antagonist::Files { files, .. } => (0, files),
            Antagonist::Hogs { .. }
            | Antagonist::PingPong { .. }
            | Antagonist::Alternators { .. }
            | Antagonist::Bursty { .. } => (0, 0),
        };
        Taken {
            tasks: self.antagonist.runnable(),
            memory,
            files,
        }
    }
}

impl std::iter::Sum for Taken {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            tasks: sum.tasks.saturating_add(one.tasks),
            memory: sum.memory.saturating_add(one.memory),
            files: sum.files.saturating_add(one.files),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn it_takes_what_it_takes_while_it_is_on() {
        let ms = Duration::from_millis;
        let kind = Antagonist::Memory {
            bytes: 100,
            period: ms(10),
            duty: 0.5,
        };
        let start = Timestamp::from_millis(50);
        let mut resident = Resident::new(1, 0, &kind, start);
        assert!(!resident.advance(Timestamp::from_millis(49)));
        assert_eq!(resident.takes(), Taken::default());
        assert!(resident.advance(start));
        assert_eq!(resident.takes().memory, 100);
        assert_eq!(resident.until(), start + ms(5));
        assert!(resident.advance(start + ms(5)));
        assert_eq!(resident.takes(), Taken::default());
        // However late the look is.
        assert!(resident.advance(start + ms(1002)));
        assert_eq!(resident.takes().memory, 100);
    }
}
