//! The words that front-ends share to move nodes between sites, as bits and as values.
//!
//! ```text
//! S[x] lock of a site       sequence 24 | phase 3 | node 12 | generation 10 | other site 7 | tag 8
//! A[n] assignment of a node generation 24 | state 4 | site 8 | from 8 | cause 4 | flags 4 | by 12
//! B[n] the agent's status   generation 24 | step 4 | connections 20 | exit code 8 | spare 7 | has hooks 1
//! L[n] list of sites        digest 32 | count 32 (`numbering.rs`)
//! K    constitution         digest 32 | serial 32
//! U[x] update counter       64, only ever added to
//! tag  GIVE: low 8 bits of the receiver's sequence; TAKE, COMMIT, VOID: cause 4 | owner 4
//! by   low 12 bits of S[x].sequence that moved the node
//! order of sequences and generations: a is after b if (a - b) mod 2^24 is 1 to 2^23 - 1
//! ```
//!
//! The highest bits come first. A lock carries the intention (which node, from where, at which generation) and not
//! just an owner, so whichever front-end finds it may finish it. No value of a lock or an assignment ever comes back:
//! each change of meaning counts the sequence or the generation up, so a compare-and-swap that comes late fails.
//!
//! Inputs: words as they were read. Failure case: bits that no front-end writes, which is an error with the word and
//! the field, never a guess. A count that comes round after 2^24 steps while a front-end sleeps is taken for an
//! old one; that is 8 million moves of one site. 0 means "never written", so counts leave it out.
//! Source: Reconfiguration-2004, section 3.1.2 (two levels of locks, update counters); the order is that of RFC 1982.

/// Most sites that take part in moves: their words lie at a home from word 64 on, four places each.
pub const SITES_MAX: usize = 112;
/// Most nodes that can be moved: 12 bits.
pub const NODES_MAX: usize = 1 << 12;

/// A site's place in the list of sites sorted by name. All front-ends have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SiteNumber(pub u8);

/// A node's place in the list of movable nodes sorted by name. All front-ends have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeNumber(pub u16);

impl SiteNumber {
    /// As an index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Which word of the home is the site's lock, S.
    pub const fn lock_word(self) -> u32 {
        64 + 4 * self.0 as u32
    }

    /// Which word of the home is the site's update counter, U.
    pub const fn updates_word(self) -> u32 {
        self.lock_word() + 1
    }
}

impl NodeNumber {
    /// As an index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The word of a home that holds the constitution, K.
pub const CONSTITUTION_WORD: u32 = 8;
/// The word of a node's region that holds its assignment, A.
pub const ASSIGNMENT_WORD: u32 = 0;
/// The word of a node's region that holds its agent's status, B.
pub const AGENT_WORD: u32 = 1;
/// The word of a node's region that says of which list the numbers of sites are, L.
pub const SITE_LIST_WORD: u32 = 2;

/// A count of 24 bits that comes round, and leaves out 0 on the way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Count24(u32);

impl Count24 {
    /// Never counted.
    pub const ZERO: Self = Self(0);
    /// The first one.
    pub const FIRST: Self = Self(1);
    const MASK: u32 = (1 << 24) - 1;

    /// The low 24 bits of a number.
    pub const fn new(number: u32) -> Self {
        Self(number & Self::MASK)
    }

    /// The number.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The one after it.
    #[must_use]
    pub const fn next(self) -> Self {
        match self.0 {
            Self::MASK => Self::FIRST,
            number => Self(number + 1),
        }
    }

    /// Whether it was counted after the other one.
    pub const fn is_after(self, other: Self) -> bool {
        let ahead = self.0.wrapping_sub(other.0) & Self::MASK;
        ahead != 0 && ahead < 1 << 23
    }

    /// Its low bits.
    const fn low(self, bits: u32) -> u64 {
        (self.0 & ((1 << bits) - 1)) as u64
    }
}

/// What is wrong with a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("word {word:#018x}: {field} is {value}, expected {expected}")]
pub struct WordError {
    /// The whole word.
    pub word: u64,
    /// Which of its fields.
    pub field: &'static str,
    /// What the field holds.
    pub value: u64,
    /// What it may hold.
    pub expected: &'static str,
}

/// So many bits of a word, from this one up.
const fn field(word: u64, low: u32, bits: u32) -> u64 {
    (word >> low) & ((1 << bits) - 1)
}

/// An error unless it holds.
const fn check(
    holds: bool,
    word: u64,
    field: &'static str,
    value: u64,
    expected: &'static str,
) -> Result<(), WordError> {
    match holds {
        true => Ok(()),
        false => Err(WordError {
            word,
            field,
            value,
            expected,
        }),
    }
}

/// Why a node changes its site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MoveCause {
    /// The receiver's load.
    Load,
    /// The first step of two, for a third site.
    Chain,
    /// A lent node goes back to its own site.
    HomeComing,
    /// An operator asked for it.
    Operator,
    /// The node began without words.
    Start,
    /// A move was taken back.
    Revert,
}

impl MoveCause {
    /// All of them, each at its number.
    pub const ALL: [Self; 6] = [
        Self::Load,
        Self::Chain,
        Self::HomeComing,
        Self::Operator,
        Self::Start,
        Self::Revert,
    ];

    fn from_bits(word: u64, bits: u64) -> Result<Self, WordError> {
        let cause = Self::ALL.get(bits as usize).copied();
        cause.ok_or(WordError {
            word,
            field: "cause",
            value: bits,
            expected: "0 to 5",
        })
    }
}

/// How far a site's taken lock is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LockPhase {
    /// Wanted: may still be given up.
    Take,
    /// Decided: the node is to move, and nothing takes that back but [`LockPhase::Void`].
    Commit,
    /// The node did not answer. Once every order to it is too old, the lock is free.
    Void,
}

/// Which move a receiver's lock stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Intention {
    /// The node.
    pub node: NodeNumber,
    /// The low 10 bits of its assignment's generation.
    pub generation_low: u16,
    /// The site that gives it.
    pub donor: SiteNumber,
    /// Why.
    pub cause: MoveCause,
    /// Four bits of the front-end that wants it, for people.
    pub owner: u8,
}

/// Which move a donor's lock stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Gift {
    /// The node.
    pub node: NodeNumber,
    /// The low 10 bits of its assignment's generation.
    pub generation_low: u16,
    /// The site that gets it.
    pub receiver: SiteNumber,
    /// The low 8 bits of that site's sequence.
    pub receiver_sequence_low: u8,
}

/// What a site's lock says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LockState {
    /// Free.
    Idle,
    /// It gets a node.
    Receives(LockPhase, Intention),
    /// It gives a node.
    Gives(Gift),
    /// An operator lets it neither get nor give.
    Frozen,
}

/// `S[x]`: the lock of a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SiteLock {
    /// Counts up when the lock is taken and when it is free again.
    pub sequence: Count24,
    /// What it says.
    pub state: LockState,
}

const IDLE: u64 = 0;
const TAKE: u64 = 1;
const COMMIT: u64 = 2;
const VOID: u64 = 3;
const GIVE: u64 = 4;
const FROZEN: u64 = 5;

impl SiteLock {
    /// Free, at this sequence.
    pub const fn idle(sequence: Count24) -> Self {
        Self {
            sequence,
            state: LockState::Idle,
        }
    }

    /// Free, as the next value after this one.
    #[must_use]
    pub const fn released(self) -> Self {
        Self::idle(self.sequence.next())
    }

    /// Kept from moves by operators, if it is free. [`SiteLock::released`] ends that.
    pub fn frozen(self) -> Option<Self> {
        let state = LockState::Frozen;
        (self.state == LockState::Idle).then_some(Self { state, ..self })
    }

    /// Taken to receive, as the next value after this one.
    #[must_use]
    pub const fn taken(self, intention: Intention) -> Self {
        Self {
            sequence: self.sequence.next(),
            state: LockState::Receives(LockPhase::Take, intention),
        }
    }

    /// Taken to give, as the next value after this one.
    #[must_use]
    pub const fn giving(self, gift: Gift) -> Self {
        Self {
            sequence: self.sequence.next(),
            state: LockState::Gives(gift),
        }
    }

    /// The same intention in another phase, at the same sequence. A lock that receives nothing stays as it is.
    #[must_use]
    pub const fn in_phase(self, phase: LockPhase) -> Self {
        match self.state {
            LockState::Receives(_, intention) => Self {
                sequence: self.sequence,
                state: LockState::Receives(phase, intention),
            },
            LockState::Idle | LockState::Gives(_) | LockState::Frozen => self,
        }
    }

    /// Whether a donor's lock stands for what this site, a receiver, has taken its lock for.
    pub fn is_given_to(self, receiver: SiteNumber, taken: Self) -> bool {
        let (LockState::Gives(gift), LockState::Receives(_, intention)) = (self.state, taken.state)
        else {
            return false;
        };
        gift.receiver == receiver
            && gift.node == intention.node
            && gift.generation_low == intention.generation_low
            && u64::from(gift.receiver_sequence_low) == taken.sequence.low(8)
    }

    /// As bits.
    pub fn pack(self) -> u64 {
        let (phase, node, generation_low, other, tag) = match self.state {
            LockState::Idle => (IDLE, 0, 0, 0, 0),
            LockState::Frozen => (FROZEN, 0, 0, 0, 0),
            LockState::Gives(it) => (
                GIVE,
                it.node.0,
                it.generation_low,
                it.receiver.0,
                it.receiver_sequence_low,
            ),
            LockState::Receives(phase, it) => {
                let phase = match phase {
                    LockPhase::Take => TAKE,
                    LockPhase::Commit => COMMIT,
                    LockPhase::Void => VOID,
                };
                let tag = (it.cause as u8) << 4 | it.owner & 15;
                (phase, it.node.0, it.generation_low, it.donor.0, tag)
            }
        };
        debug_assert!(node < 1 << 12 && generation_low < 1 << 10 && other < 1 << 7);
        u64::from(self.sequence.get()) << 40
            | phase << 37
            | u64::from(node) << 25
            | u64::from(generation_low) << 15
            | u64::from(other) << 8
            | u64::from(tag)
    }

    /// From bits. `None` is a word that was never written.
    ///
    /// # Errors
    /// A phase or a cause that does not exist, a free lock with an intention, a site beyond the last.
    pub fn unpack(word: u64) -> Result<Option<Self>, WordError> {
        if word == 0 {
            return Ok(None);
        }
        let sequence = Count24::new(field(word, 40, 24) as u32);
        check(sequence != Count24::ZERO, word, "sequence", 0, "1 or more")?;
        let node = NodeNumber(field(word, 25, 12) as u16);
        let generation_low = field(word, 15, 10) as u16;
        let (other, tag) = (field(word, 8, 7), field(word, 0, 8));
        check(other < SITES_MAX as u64, word, "site", other, "0 to 111")?;
        let other = SiteNumber(other as u8);
        let receives = |phase| {
            let intention = Intention {
                node,
                generation_low,
                donor: other,
                cause: MoveCause::from_bits(word, tag >> 4)?,
                owner: tag as u8 & 15,
            };
            Ok(LockState::Receives(phase, intention))
        };
        let empty = |state| {
            let rest = field(word, 0, 37);
            check(
                rest == 0,
                word,
                "intention",
                rest,
                "0 in a lock without one",
            )
            .map(|()| state)
        };
        let state = match field(word, 37, 3) {
            IDLE => empty(LockState::Idle)?,
            FROZEN => empty(LockState::Frozen)?,
            TAKE => receives(LockPhase::Take)?,
            COMMIT => receives(LockPhase::Commit)?,
            VOID => receives(LockPhase::Void)?,
            GIVE => LockState::Gives(Gift {
                node,
                generation_low,
                receiver: other,
                receiver_sequence_low: tag as u8,
            }),
            phase => {
                check(false, word, "phase", phase, "0 to 5")?;
                LockState::Idle
            }
        };
        Ok(Some(Self { sequence, state }))
    }
}

/// Where a node is between its sites.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AssignmentState {
    /// It serves its site.
    Serving,
    /// It ends the requests of the site that it leaves.
    Draining {
        /// That site.
        from: SiteNumber,
    },
    /// Its servers are being set up for the new site.
    Switching {
        /// The site that it has left.
        from: SiteNumber,
    },
}

/// `A[n]`: whose a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Assignment {
    /// Counts up with each change of site, each revert and each start of the node.
    pub generation: Count24,
    /// Where it is between sites.
    pub state: AssignmentState,
    /// Its site: the new one as soon as it is moved.
    pub site: SiteNumber,
    /// Why it is there.
    pub cause: MoveCause,
    /// Operators keep it there: drained, in maintenance, or by order.
    pub pinned: bool,
    /// It serves another site than the one of the configuration.
    pub lent: bool,
    /// The low 12 bits of the site's sequence that moved it.
    pub by: u16,
}

const SERVING: u64 = 1;
const DRAINING: u64 = 2;
const SWITCHING: u64 = 3;
/// `from` of a node that serves.
const FROM_NONE: u8 = 0xff;
const PINNED: u64 = 1;
const LENT: u64 = 2;

impl Assignment {
    /// What a node without words begins with.
    pub const fn first(generation: Count24, site: SiteNumber, lent: bool) -> Self {
        Self {
            generation,
            state: AssignmentState::Serving,
            site,
            cause: MoveCause::Start,
            pinned: false,
            lent,
            by: 0,
        }
    }

    /// Where it comes from, while it is between sites.
    pub const fn from(self) -> Option<SiteNumber> {
        match self.state {
            AssignmentState::Serving => None,
            AssignmentState::Draining { from } | AssignmentState::Switching { from } => Some(from),
        }
    }

    /// Whether it serves.
    pub const fn is_serving(self) -> bool {
        matches!(self.state, AssignmentState::Serving)
    }

    /// The same move, once the node serves its new site.
    #[must_use]
    pub const fn served(self) -> Self {
        Self {
            state: AssignmentState::Serving,
            ..self
        }
    }

    /// The same move, once the node has ended the requests of the site that it leaves.
    #[must_use]
    pub const fn switching(self) -> Self {
        match self.state {
            AssignmentState::Draining { from } => Self {
                state: AssignmentState::Switching { from },
                ..self
            },
            AssignmentState::Serving | AssignmentState::Switching { .. } => self,
        }
    }

    /// Back at the site that it was to leave, as a move of its own. A node that serves stays as it is.
    #[must_use]
    pub fn reverted(self, home: Option<SiteNumber>) -> Self {
        match self.from() {
            Some(from) => Self {
                generation: self.generation.next(),
                state: AssignmentState::Serving,
                site: from,
                cause: MoveCause::Revert,
                lent: home != Some(from),
                ..self
            },
            None => self,
        }
    }

    /// The same in a later generation, as a word that begins.
    #[must_use]
    pub fn renumbered(self) -> Self {
        Self {
            generation: self.generation.next(),
            cause: MoveCause::Start,
            ..self
        }
    }

    /// The same node, kept where it is by operators or not. A change like any other: no value comes back.
    #[must_use]
    pub const fn with_pin(self, pinned: bool) -> Self {
        Self {
            generation: self.generation.next(),
            pinned,
            ..self
        }
    }

    /// The low 10 bits of its generation, as locks have them.
    pub const fn generation_low(self) -> u16 {
        self.generation.low(10) as u16
    }

    /// Whether it is as it was when this move was wanted.
    pub fn is_wanted_by(self, intention: Intention) -> bool {
        self.is_serving()
            && self.site == intention.donor
            && self.generation_low() == intention.generation_low
    }

    /// Whether this lock of this site has moved it.
    pub fn was_moved_by(self, site: SiteNumber, lock: SiteLock) -> bool {
        self.site == site && self.by == sequence_low(lock)
    }

    /// As bits.
    pub fn pack(self) -> u64 {
        let (state, from) = match self.state {
            AssignmentState::Serving => (SERVING, FROM_NONE),
            AssignmentState::Draining { from } => (DRAINING, from.0),
            AssignmentState::Switching { from } => (SWITCHING, from.0),
        };
        let flags = (u64::from(self.pinned) * PINNED) | (u64::from(self.lent) * LENT);
        debug_assert!(self.by < 1 << 12);
        u64::from(self.generation.get()) << 40
            | state << 36
            | u64::from(self.site.0) << 28
            | u64::from(from) << 20
            | (self.cause as u64) << 16
            | flags << 12
            | u64::from(self.by)
    }

    /// From bits. `None` is a word that was never written.
    ///
    /// # Errors
    /// A state, cause or flag that does not exist, a site beyond the last, a node that serves and is on its way.
    pub fn unpack(word: u64) -> Result<Option<Self>, WordError> {
        if word == 0 {
            return Ok(None);
        }
        let generation = Count24::new(field(word, 40, 24) as u32);
        let none = generation == Count24::ZERO;
        check(!none, word, "generation", 0, "1 or more")?;
        let (site, from) = (field(word, 28, 8), field(word, 20, 8));
        check(site < SITES_MAX as u64, word, "site", site, "0 to 111")?;
        let flags = field(word, 12, 4);
        check(
            flags & !(PINNED | LENT) == 0,
            word,
            "flags",
            flags,
            "0 to 3",
        )?;
        let on_its_way = || {
            check(from < SITES_MAX as u64, word, "from", from, "0 to 111")
                .map(|()| SiteNumber(from as u8))
        };
        let state = match field(word, 36, 4) {
            SERVING => {
                let none = from == u64::from(FROM_NONE);
                check(none, word, "from", from, "255 where a node serves")?;
                AssignmentState::Serving
            }
            DRAINING => AssignmentState::Draining {
                from: on_its_way()?,
            },
            SWITCHING => AssignmentState::Switching {
                from: on_its_way()?,
            },
            state => {
                check(false, word, "state", state, "1 to 3")?;
                AssignmentState::Serving
            }
        };
        Ok(Some(Self {
            generation,
            state,
            site: SiteNumber(site as u8),
            cause: MoveCause::from_bits(word, field(word, 16, 4))?,
            pinned: flags & PINNED != 0,
            lent: flags & LENT != 0,
            by: field(word, 0, 12) as u16,
        }))
    }
}

/// The low 12 bits of a lock's sequence, as assignments have them.
pub fn sequence_low(lock: SiteLock) -> u16 {
    lock.sequence.low(12) as u16
}

/// The low 8 bits of a lock's sequence, as gifts have them.
pub fn gift_low(lock: SiteLock) -> u8 {
    lock.sequence.low(8) as u8
}

/// How far a node's agent is with a move.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AgentStep {
    /// Nothing was done.
    #[default]
    Begun,
    /// No connection to the service is left.
    Drained,
    /// The hook runs.
    HookRuns,
    /// The hook ended well.
    HookDone,
    /// The hook failed.
    HookFailed,
}

impl AgentStep {
    /// All of them, each at its number.
    pub const ALL: [Self; 5] = [
        Self::Begun,
        Self::Drained,
        Self::HookRuns,
        Self::HookDone,
        Self::HookFailed,
    ];
}

/// `B[n]`: what a node's agent says of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AgentStatus {
    /// Of which generation of the assignment.
    pub generation: Count24,
    /// How far it is.
    pub step: AgentStep,
    /// Connections on the service's port, the greatest number for more.
    pub connections: u32,
    /// What the hook ended with; until one runs again, what that of the generation before failed with.
    pub exit_code: u8,
    /// Whether the agent has hooks.
    pub has_hooks: bool,
}

/// Most connections that B can say.
pub const CONNECTIONS_MAX: u32 = (1 << 20) - 1;

impl AgentStatus {
    /// What the hook of this generation failed with, if it did: the agent may be one generation further, which took it back.
    pub fn failed(&self, generation: Count24) -> Option<u8> {
        let is_after = self.generation == generation.next();
        let failed = match self.step {
            AgentStep::HookFailed => self.generation == generation,
            AgentStep::Begun | AgentStep::Drained => is_after && self.exit_code != 0,
            AgentStep::HookRuns | AgentStep::HookDone => false,
        };
        failed.then_some(self.exit_code)
    }

    /// As bits.
    pub fn pack(self) -> u64 {
        u64::from(self.generation.get()) << 40
            | (self.step as u64) << 36
            | u64::from(self.connections.min(CONNECTIONS_MAX)) << 16
            | u64::from(self.exit_code) << 8
            | u64::from(self.has_hooks)
    }

    /// From bits. `None` is a word that was never written.
    ///
    /// # Errors
    /// A step that does not exist, spare bits that are in use.
    pub fn unpack(word: u64) -> Result<Option<Self>, WordError> {
        if word == 0 {
            return Ok(None);
        }
        let (step, spare) = (field(word, 36, 4), field(word, 1, 7));
        check(spare == 0, word, "spare", spare, "0")?;
        let known = AgentStep::ALL.get(step as usize).copied();
        let Some(known) = known else {
            check(false, word, "step", step, "0 to 4")?;
            return Ok(None);
        };
        Ok(Some(Self {
            generation: Count24::new(field(word, 40, 24) as u32),
            step: known,
            connections: field(word, 16, 20) as u32,
            exit_code: field(word, 8, 8) as u8,
            has_hooks: field(word, 0, 1) != 0,
        }))
    }
}

#[cfg(test)]
#[path = "words_tests.rs"]
mod tests;
