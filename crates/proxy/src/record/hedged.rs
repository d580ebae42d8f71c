//! What becomes of second nodes that are asked for a request whose first one is slow.

/// Of one request whose first node had not answered in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hedged {
    /// The second node answered first, or took the place of the first one, which had failed.
    Won,
    /// The first node answered first, or the request ended before either.
    Lost,
    /// The second node could not be reached, broke off, or gave an answer that is not passed on while the first one is awaited.
    Failed,
    /// No second node was asked: no other one had room to spare, or requests waited or were refused.
    NoRoom,
    /// No second node was asked: the budget did not pay for it.
    NoBudget,
}

impl Hedged {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Won,
        Self::Lost,
        Self::Failed,
        Self::NoRoom,
        Self::NoBudget,
    ];

    /// Its place in [`Hedged::ALL`].
    pub(crate) fn index(self) -> usize {
        self as usize
    }

    /// Its name in metrics and in the log.
    pub fn label(self) -> &'static str {
        match self {
            Self::Won => "won",
            Self::Lost => "lost",
            Self::Failed => "failed",
            Self::NoRoom => "no_room",
            Self::NoBudget => "no_budget",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Hedged;

    #[test]
    fn each_has_its_place() {
        for (place, outcome) in Hedged::ALL.into_iter().enumerate() {
            assert_eq!(outcome.index(), place);
        }
    }
}
