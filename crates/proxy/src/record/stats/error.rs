//! The last error of a node, in a word that a worker writes and anybody reads.

use std::fmt;

use tidegate_core::time::Timestamp;

use crate::record::reason::Reason;

/// What a node did wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeError {
    /// It answered with this status.
    Status(u16),
    /// It did not answer, or not to the end, or with what is no answer.
    Reason(Reason),
}

impl fmt::Display for NodeError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status) => write!(formatter, "status {status}"),
            Self::Reason(reason) => formatter.write_str(reason.label()),
        }
    }
}

/// An error and its time, to the microsecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastError {
    /// What it was.
    pub what: NodeError,
    /// When.
    pub at: Timestamp,
}

/// Bits of what it was; the time is above them, so of two the later one is larger.
const WHAT_BITS: u32 = 16;
/// What is above this is a reason's place in [`Reason::ALL`].
const REASONS: u64 = 1 << 15;

impl LastError {
    pub(crate) fn packed(self) -> u64 {
        let what = match self.what {
            NodeError::Status(status) => u64::from(status),
            NodeError::Reason(reason) => REASONS + reason.index() as u64,
        };
        (self.at.nanos() / 1000) << WHAT_BITS | what
    }

    /// None of the word that was never written.
    pub(crate) fn unpacked(word: u64) -> Option<Self> {
        let what = word % (1 << WHAT_BITS);
        let what = match what.checked_sub(REASONS) {
            Some(index) => NodeError::Reason(*Reason::ALL.get(index as usize)?),
            None => NodeError::Status(what as u16),
        };
        let at = Timestamp::from_nanos((word >> WHAT_BITS) * 1000);
        (word > 0).then_some(Self { what, at })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_holds_all_of_it_and_later_ones_are_larger() {
        assert_eq!(LastError::unpacked(0), None);
        let at = Timestamp::from_millis(5_000_000);
        let all = Reason::ALL.iter().map(|reason| NodeError::Reason(*reason));
        for what in all.chain([NodeError::Status(500), NodeError::Status(599)]) {
            let error = LastError { what, at };
            assert_eq!(LastError::unpacked(error.packed()), Some(error));
            let later = LastError {
                what: NodeError::Status(500),
                at: Timestamp::from_millis(5_000_001),
            };
            assert!(later.packed() > error.packed());
        }
    }
}
