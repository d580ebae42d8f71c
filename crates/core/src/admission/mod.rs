//! What comes in at all: early refusals, so that what is let in stays fast.
//!
//! | stage | when | by |
//! |---|---|---|
//! | | before accept | whether the worker itself keeps up: [`AcceptGate`] |
//! | 0 | right after accept, before a byte is read | whether any site behind the listener takes anything |
//! | 1 | after the head, when site and class are known | [`Admission`], then room at a node, then the [`WaitQueue`] |
//!
//! The picker asks; it decides from the same [`View`] as a policy. How much room there is follows
//! from limits that the director works out once a millisecond ([`Control`]) and that lie in the load
//! table: `adaptive` is the default. A mode is one file here and one line in [`AdmissionKind`].
//!
//! Inside: `bound` (one server), `hidden` (what lies behind all), `own_latency` (nothing is known).
//!
//! What it does not know: HTTP, answers, who asks.

mod accept_gate;
mod adaptive;
mod bound;
mod control;
mod ewma;
mod fixed;
mod hidden;
mod off;
mod own_latency;
mod sessions;
mod wait_queue;

use std::time::Duration;

pub use accept_gate::AcceptGate;
pub use control::{Control, LimitBy};
pub use sessions::Sessions;
pub use wait_queue::{Pushed, WaitQueue};

use crate::policy::View;
use crate::topology::NodeId;

/// Why a request got no node. The name is the label in metrics, log and the reason header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RejectReason {
    /// No site serves this host and path.
    NoSite,
    /// The site has no node that may take requests.
    NoNode,
    /// A limit was reached.
    Overload,
    /// It could wait no more: the queue was full, of its own class or of higher ones.
    QueueFull,
    /// It waited as long as it made sense.
    QueueTimeout,
}

impl RejectReason {
    /// Every reason.
    pub const ALL: &'static [Self] = &[
        Self::NoSite,
        Self::NoNode,
        Self::Overload,
        Self::QueueFull,
        Self::QueueTimeout,
    ];

    /// Its label.
    pub const fn label(self) -> &'static str {
        match self {
            Self::NoSite => "no_site",
            Self::NoNode => "no_node",
            Self::Overload => "overload",
            Self::QueueFull => "queue_full",
            Self::QueueTimeout => "queue_timeout",
        }
    }
}

/// A priority: 0 is the highest, sheds last. A request of a session that was let in a moment ago
/// stands half a step above the others of its class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Class {
    number: u8,
    known: bool,
}

impl Class {
    /// How many there can be.
    pub const COUNT: usize = 4;
    /// The highest.
    pub const HIGHEST: Self = Self::numbered(0);

    const fn numbered(number: u8) -> Self {
        Self {
            number,
            known: false,
        }
    }

    /// The class of this number, if there is one.
    pub const fn new(number: u8) -> Option<Self> {
        if (number as usize) < Self::COUNT {
            Some(Self::numbered(number))
        } else {
            None
        }
    }

    /// The same for a request whose session is known, or is not; see [`Sessions`].
    pub const fn with_known(self, known: bool) -> Self {
        Self { known, ..self }
    }

    /// Whether its session is known.
    pub const fn is_known(self) -> bool {
        self.known
    }

    /// As an index.
    pub const fn index(self) -> usize {
        self.number as usize
    }

    /// From the highest to the lowest.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..Self::COUNT as u8).map(Self::numbered)
    }
}

/// An admission's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Let it in.
    Admit,
    /// Refuse it.
    Reject(RejectReason),
}

/// Decides what may come in.
pub trait Admission: std::fmt::Debug + Send {
    /// A request for this view's site has arrived; no node was looked for yet.
    fn on_request(&mut self, view: &View<'_>, class: Class) -> Verdict;

    /// Whether the node may take one more request of this class.
    fn has_room(&self, view: &View<'_>, node: NodeId, class: Class) -> bool;

    /// Whether another node is looked for if the policy's choice has no room; else its refusal
    /// stands.
    fn looks_further(&self) -> bool;

    /// Whether requests that find no room wait for it.
    fn queues(&self) -> bool;
}

/// The admission modes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AdmissionKind {
    /// Everything is let in.
    #[default]
    Off,
    /// Limits that the operator sets.
    Static,
    /// Limits that follow from what the servers can use.
    Adaptive,
}

impl AdmissionKind {
    /// Every mode with its name.
    pub const ALL: &'static [(Self, &'static str)] = &[
        (Self::Off, "off"),
        (Self::Static, "static"),
        (Self::Adaptive, "adaptive"),
    ];

    /// Its name in the configuration.
    pub fn label(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Static => "static",
            Self::Adaptive => "adaptive",
        }
    }
}

/// Whose limit counts in the static mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StaticScope {
    /// One server over its limit is enough to refuse.
    #[default]
    Any,
    /// Every server must be over.
    All,
    /// The server that the policy chose.
    Chosen,
}

impl StaticScope {
    /// Every scope with its name.
    pub const ALL: &'static [(Self, &'static str)] = &[
        (Self::Any, "any"),
        (Self::All, "all"),
        (Self::Chosen, "chosen"),
    ];
}

/// The limits of the static mode, each at one server.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StaticLimits {
    /// Own requests in flight.
    pub connections: Option<u32>,
    /// Used share of the CPUs.
    pub cpu: Option<f32>,
    /// Used share of the memory.
    pub memory: Option<f32>,
    /// Network bytes per second, both directions.
    pub network: Option<f32>,
    /// Whose limit counts.
    pub scope: StaticScope,
}

/// How a site admits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdmissionConfig {
    /// The mode.
    pub kind: AdmissionKind,
    /// Answers are wanted within this time.
    pub slo: Duration,
    /// Classes in use, 1 to [`Class::COUNT`].
    pub classes: u8,
    /// Most requests that wait at one picker.
    pub queue: u32,
    /// What the static mode limits.
    pub limits: StaticLimits,
    /// Whether everything is let in and only counted what would have been refused.
    pub dry_run: bool,
}

impl Default for AdmissionConfig {
    fn default() -> Self {
        Self {
            kind: AdmissionKind::default(),
            slo: Self::SLO,
            classes: 1,
            queue: Self::QUEUE,
            limits: StaticLimits::default(),
            dry_run: false,
        }
    }
}

impl AdmissionConfig {
    /// If nobody says.
    pub const SLO: Duration = Duration::from_millis(500);
    /// If nobody says.
    pub const QUEUE: u32 = 1024;

    /// Of a mode, with defaults.
    pub fn new(kind: AdmissionKind) -> Self {
        Self {
            kind,
            ..Self::default()
        }
    }

    /// A fresh instance for one picker.
    pub fn build(&self) -> Box<dyn Admission> {
        match self.kind {
            AdmissionKind::Off => Box::new(off::Off),
            AdmissionKind::Static => Box::new(fixed::Fixed::new(self.limits)),
            AdmissionKind::Adaptive => Box::new(adaptive::Adaptive::new(self.classes)),
        }
    }
}
