//! Which requests go first: priorities in order, and the half steps between established sessions and others.

/// A priority: 0 is the highest, sheds last. A request of a session that was let in a moment ago
/// stands half a step above the others of its priority. In order, the highest is the least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Priority {
    number: u8,
    is_new: bool,
}

impl Priority {
    /// How many there can be.
    pub const COUNT: usize = 4;
    /// The highest.
    pub const HIGHEST: Self = Self::numbered(0);
    /// From the highest to the lowest.
    pub const ALL: [Self; Self::COUNT] = [
        Self::numbered(0),
        Self::numbered(1),
        Self::numbered(2),
        Self::numbered(3),
    ];

    const fn numbered(number: u8) -> Self {
        Self {
            number,
            is_new: true,
        }
    }

    /// The priority of this number, if there is one.
    pub const fn new(number: u8) -> Option<Self> {
        if (number as usize) < Self::COUNT {
            Some(Self::numbered(number))
        } else {
            None
        }
    }

    /// The same for a request whose session is established, or is not; see
    /// `admission::Sessions`.
    pub const fn with_established(self, established: bool) -> Self {
        Self {
            is_new: !established,
            ..self
        }
    }

    /// Whether its session is established.
    pub const fn is_established(self) -> bool {
        !self.is_new
    }

    /// As an index.
    pub const fn index(self) -> usize {
        self.number as usize
    }

    /// From the highest to the lowest.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter()
    }
}

/// How long a request still finds room as servers fill up: 0 the longest. Each priority has two, for
/// established sessions and for all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank(u8);

impl Rank {
    /// How many there are.
    pub const COUNT: usize = 2 * Priority::COUNT;
    /// From the highest to the lowest.
    pub const ALL: [Self; Self::COUNT] = [
        Self(0),
        Self(1),
        Self(2),
        Self(3),
        Self(4),
        Self(5),
        Self(6),
        Self(7),
    ];
    /// The lowest: its limit is the server's.
    pub const LOWEST: Self = Self(Self::COUNT as u8 - 1);

    /// A priority's.
    pub const fn of(priority: Priority) -> Self {
        Self(2 * priority.number + priority.is_new as u8)
    }

    /// The priority.
    pub const fn priority(self) -> Priority {
        Priority {
            number: self.0 / 2,
            is_new: self.0 % 2 == 1,
        }
    }

    /// As an index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}
