//! Where requests may be refused: two hooks, asked by the picker and the listener.
//!
//! * Stage 0, [`Admission::on_accept`]: right after accept, before a byte is read.
//! * Stage 1, [`Admission::on_request`]: after the head, when site and class are known.
//!
//! An admission decides from the same [`View`] as a policy and is told of every end by
//! [`Admission::on_end`], so that it can count what it let in. Only `off` exists so far; a mode
//! is one file here and one line in [`AdmissionKind`].

mod off;

use crate::policy::View;
use crate::time::Timestamp;

/// Why a request got no node. The name is the label in metrics, log and the reason header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RejectReason {
    /// No site serves this host and path.
    NoSite,
    /// The site has no node that may take requests.
    NoNode,
    /// A limit was reached.
    Overload,
}

impl RejectReason {
    /// Every reason.
    pub const ALL: &'static [Self] = &[Self::NoSite, Self::NoNode, Self::Overload];

    /// Its label.
    pub const fn label(self) -> &'static str {
        match self {
            Self::NoSite => "no_site",
            Self::NoNode => "no_node",
            Self::Overload => "overload",
        }
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
    /// A connection was accepted; nothing of it was read.
    fn on_accept(&mut self, now: Timestamp) -> Verdict;

    /// A request for this view's site has arrived.
    fn on_request(&mut self, view: &View<'_>) -> Verdict;

    /// A request that was let in has ended.
    fn on_end(&mut self, now: Timestamp);
}

/// The admission modes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AdmissionKind {
    /// Everything is let in.
    #[default]
    Off,
}

impl AdmissionKind {
    /// A fresh instance for one picker.
    pub fn build(self) -> Box<dyn Admission> {
        match self {
            Self::Off => Box::new(off::Off),
        }
    }
}
