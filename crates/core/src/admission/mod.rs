//! What comes in at all: early refusals, so that what is let in stays fast.
//!
//! | stage | when | by |
//! |---|---|---|
//! | | before accept | whether the worker itself keeps up: [`AcceptGate`] |
//! | 0 | right after accept, before a byte is read | whether any site behind the listener takes anything |
//! | 1 | after the head, when site and priority are known | [`Admission`], then room at a node, then the [`WaitQueue`] |
//!
//! The picker asks; it decides from the same [`View`] as a policy. In `adaptive` how much room there
//! is follows from limits that the director works out once a millisecond ([`Control`]) and that lie in
//! the load table; any other mode has its limits, or what it learns, to itself, in each picker. A mode
//! is one file and one line in the table below; it takes no lock and allocates nothing while it decides.
//!
//! Inside: `server` (one server: `bound`, or `own_latency` where nothing is known), `downstream` (what lies
//! behind all), `kinds` (which kinds of requests are slower than with room), `surge` (which are new or have grown), `inherent_latency`
//! (whether the SLO is any measure), `slots` (how front-ends agree), `baselines` (what others do, to compare with).
//!
//! What it does not know: HTTP, answers, clients.

mod accept_gate;
mod adaptive;
mod baselines;
mod bound;
mod control;
mod downstream;
mod ewma;
mod fair_share;
mod fixed;
mod inherent_latency;
mod kinds;
mod off;
mod own_latency;
mod server;
mod sessions;
mod slots;
mod surge;
mod wait_queue;

use std::time::Duration;

pub use crate::load::LimitBy;
pub use crate::request::{Kind, KindPlaces, Priority, Rank, SurgedKind};
pub use accept_gate::AcceptGate;
pub use control::{Control, LearnedAdmission, Tick};
pub use fair_share::FairShare;
pub use sessions::Sessions;
pub use slots::SLOT_WORDS;
pub use wait_queue::{Pushed, Standing, WaitQueue, WaitRules};

use crate::ids::NodeId;
use crate::policy::{Sample, View};
use crate::prng::Prng;
use crate::time::Timestamp;

/// Part of the SLO that a request may spend in service.
const SLO_PART: f64 = 0.5;

/// Why a request got no node. The name is the label in metrics, log and the reason header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RejectReason {
    /// No site serves this host and path.
    NoSite,
    /// The site has no node that may take requests.
    NoNode,
    /// A limit was reached.
    Overload,
    /// It could wait no more: the queue was full, of its own priority or of higher ones.
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

/// An admission's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdmissionVerdict {
    /// Let it in.
    Admit,
    /// Refuse it.
    Reject(RejectReason),
}

/// The most own requests in flight for which a mode lets one more in, where it holds itself to a
/// number; infinite where it does not. What `adaptive` holds to is in the load table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// At each node.
    pub node: f64,
    /// At all nodes of the site together.
    pub site: f64,
}

impl Limits {
    /// None.
    pub const NONE: Self = Self {
        node: f64::INFINITY,
        site: f64::INFINITY,
    };
}

/// Decides what may come in.
pub trait Admission: std::fmt::Debug + Send {
    /// A request for this view's site has arrived; no node was looked for yet.
    fn on_request(
        &mut self,
        view: &View<'_>,
        priority: Priority,
        prng: &mut Prng,
    ) -> AdmissionVerdict;

    /// Whether the node may take one more request of this priority; any may, where no node is limited.
    fn has_room(&self, _view: &View<'_>, _node: NodeId, _priority: Priority) -> bool {
        true
    }

    /// Whether another node is looked for if the policy's choice has no room; else its refusal
    /// stands.
    fn looks_further(&self) -> bool {
        false
    }

    /// How requests that find no room wait for it; nothing: they do not.
    fn waits(&self) -> Option<WaitRules> {
        None
    }

    /// Whether a refusal is for all requests: connections need not be read until it has passed.
    fn refuses_all(&self) -> bool {
        true
    }

    /// A request that this picker dispatched has ended.
    fn on_sample(&mut self, _sample: &Sample, _now: Timestamp, _prng: &mut Prng) {}

    /// The numbers that it holds itself to now.
    fn limits(&self) -> Limits {
        Limits::NONE
    }
}

/// What the limits of a mode follow from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// There are none.
    Nothing,
    /// The operator's settings.
    Configuration,
    /// How long answers take.
    Latency,
    /// How many requests succeed.
    Success,
    /// Loads: [`LimitBy`] says which, and changes.
    Load,
}

macro_rules! modes {
    ($( $(#[$attribute:meta])* $kind:ident = $name:literal, $new:expr, $basis:ident, [$($has:ident)*], $what:literal; )*) => {
        /// The admission modes.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub enum AdmissionKind { $( $(#[$attribute])* #[doc = $what] $kind, )* }

        impl AdmissionKind {
            /// Every mode with its name.
            pub const ALL: &'static [(Self, &'static str)] = &[$((Self::$kind, $name)),*];

            /// Its name in the configuration.
            pub const fn label(self) -> &'static str {
                match self { $( Self::$kind => $name, )* }
            }

            /// What it does, in a line.
            pub const fn what(self) -> &'static str {
                match self { $( Self::$kind => $what, )* }
            }

            /// What its limits follow from.
            pub const fn basis(self) -> Basis {
                match self { $( Self::$kind => Basis::$basis, )* }
            }

            /// What else it looks at or needs.
            const fn traits(self) -> &'static [Trait] {
                match self { $( Self::$kind => &[$(Trait::$has),*], )* }
            }

            fn build(self, config: &AdmissionConfig) -> Box<dyn Admission> {
                match self { $( Self::$kind => Box::new(($new)(config)), )* }
            }
        }
    };
}

/// A mode that has no settings.
fn plain<T: Default>(_: &AdmissionConfig) -> T {
    T::default()
}

modes! {
    #[default]
    Off = "off", plain::<off::Off>, Nothing, [],
        "everything is let in";
    Static = "static", fixed::Fixed::new, Configuration, [],
        "limits that the operator sets, as in Admission-2008: own requests in flight, CPU, memory, network";
    Adaptive = "adaptive", adaptive::Adaptive::new, Load, [Priorities],
        "limits that follow from what the servers can use, and a queue";
    MaxConn = "maxconn", baselines::MaxConn::new, Configuration, [Priorities Connections],
        "so many own requests in flight at a server and a queue in order, as HAProxy has it";
    Codel = "codel", baselines::Codel::new, Configuration, [Priorities Connections],
        "the same with a queue that is newest first and soon given up when it stands: adaptive LIFO with CoDel";
    Gradient2 = "gradient2", plain::<baselines::Gradient2>, Latency, [],
        "a limit for the site, by how much slower the latest answer is than the mean of many: Netflix";
    Vegas = "vegas", plain::<baselines::Vegas>, Latency, [],
        "a limit for the site, by how much slower answers are than the fastest: TCP Vegas, Netflix";
    EnvoyAdaptiveConcurrency = "envoy_adaptive_concurrency", plain::<baselines::EnvoyAdaptiveConcurrency>, Latency, [],
        "a limit for the site, by how much slower answers are than with three requests in flight: Envoy";
    EnvoyAdmissionControl = "envoy_admission_control", plain::<baselines::EnvoyAdmissionControl>, Success, [],
        "refusals at random, the more of them the fewer requests succeed: Envoy";
    Dagor = "dagor", plain::<baselines::Dagor>, Latency, [Priorities],
        "refusals by priority and chance, ever more while answers take 20 ms too long: WeChat";
}

/// What a mode looks at or needs beyond what all do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trait {
    /// It lets higher priorities go first.
    Priorities,
    /// It is nothing without [`StaticLimits::connections`].
    Connections,
}

impl AdmissionKind {
    /// Whether it lets higher priorities go first; others take all requests for equal.
    pub fn has_priorities(self) -> bool {
        self.traits().contains(&Trait::Priorities)
    }

    /// Whether it is nothing without [`StaticLimits::connections`].
    pub fn needs_connections(self) -> bool {
        self.traits().contains(&Trait::Connections)
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
    /// Own requests in flight; other modes that are given them have them from here.
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

/// What a server gets of which no load record tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WithoutRecords {
    /// Whatever comes.
    Admit,
    /// What follows from how long answers take.
    #[default]
    Limit,
}

/// How a site admits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdmissionConfig {
    /// The mode.
    pub kind: AdmissionKind,
    /// Answers are wanted within this time.
    pub slo: Duration,
    /// Priorities in use, 1 to [`Priority::COUNT`].
    pub priorities: u8,
    /// `adaptive`: what a server gets that has no load record.
    pub without_records: WithoutRecords,
    /// Whether some requests are of established sessions.
    pub sessions: bool,
    /// Most requests that wait at one picker.
    pub queue: u32,
    /// `maxconn`: how long they wait; by default so much of the SLO as serves it best.
    pub queue_timeout: Option<Duration>,
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
            priorities: 1,
            without_records: WithoutRecords::default(),
            sessions: false,
            queue: Self::QUEUE,
            queue_timeout: None,
            limits: StaticLimits::default(),
            dry_run: false,
        }
    }
}

impl AdmissionConfig {
    /// The default.
    pub const SLO: Duration = Duration::from_millis(500);
    /// The default.
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
        self.kind.build(self)
    }
}
