//! What becomes of requests of which a copy is to go to another site.

/// Of one request that was drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mirrored {
    /// The copy was answered, and the answer read to its end.
    Answered,
    /// The copy was sent, or was to be, and there was no answer, or no whole one.
    Failed,
    /// The answer was cut: it was longer than is read, or took longer.
    Cut,
    /// The other site had no room to spare, or no node.
    NoRoom,
    /// As many copies were under way as may be.
    TooMany,
    /// Its method may change something: copies are of safe ones alone.
    Unsafe,
    /// It has a body, or is to be a tunnel.
    Body,
    /// It is a copy itself.
    Copy,
}

impl Mirrored {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Answered,
        Self::Failed,
        Self::Cut,
        Self::NoRoom,
        Self::TooMany,
        Self::Unsafe,
        Self::Body,
        Self::Copy,
    ];

    /// Its place in [`Mirrored::ALL`].
    pub(crate) fn index(self) -> usize {
        self as usize
    }

    /// Its name in metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Failed => "failed",
            Self::Cut => "cut",
            Self::NoRoom => "no_room",
            Self::TooMany => "too_many",
            Self::Unsafe => "unsafe",
            Self::Body => "body",
            Self::Copy => "copy",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Mirrored;

    #[test]
    fn each_has_its_place() {
        for (place, outcome) in Mirrored::ALL.into_iter().enumerate() {
            assert_eq!(outcome.index(), place);
        }
    }
}
