//! Soft limits: from which used share of a resource on a node gets no requests, before it must refuse them. Plain data;
//! the director follows it.

use std::fmt;
use std::time::Duration;

use crate::load::NodeLoad;

/// What a node can run out of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeResource {
    /// File descriptors, of the system or of the watched process nearest to its limit: the fuller of both.
    Files,
    /// Memory that can be had without swapping.
    Memory,
    /// CPU time.
    Cpu,
}

impl NodeResource {
    /// Every resource with its name in the configuration, the API and the metrics.
    pub const ALL: [(Self, &'static str); 3] = [
        (Self::Files, "files"),
        (Self::Memory, "memory"),
        (Self::Cpu, "cpu"),
    ];

    /// Its name in the configuration, the API and the metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Files => "files",
            Self::Memory => "memory",
            Self::Cpu => "cpu",
        }
    }

    /// Its name in sentences.
    pub fn what(self) -> &'static str {
        match self {
            Self::Files => "file descriptors",
            Self::Memory => "memory",
            Self::Cpu => "CPU",
        }
    }

    /// Its used share, 0 to 1; none if it is not known, as where the capacity is not.
    pub fn used(self, load: &NodeLoad) -> Option<f32> {
        let used = match self {
            Self::Files => load.files,
            Self::Memory => load.memory,
            Self::Cpu => load.utilization,
        };
        used.is_finite().then(|| used.clamp(0.0, 1.0))
    }
}

/// The soft limits of a site's nodes, as used shares; none: no limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SoftLimits {
    /// Of file descriptors.
    pub files: Option<f32>,
    /// Of memory.
    pub memory: Option<f32>,
    /// Of the CPU.
    pub cpu: Option<f32>,
}

impl SoftLimits {
    /// No limit at all.
    pub const NONE: Self = Self {
        files: None,
        memory: None,
        cpu: None,
    };
    /// Of file descriptors, unless it is set: what a server without descriptors refuses, it refuses however idle it is.
    pub const FILES: f32 = 0.9;

    /// The limit of a resource.
    pub fn of(&self, resource: NodeResource) -> Option<f32> {
        match resource {
            NodeResource::Files => self.files,
            NodeResource::Memory => self.memory,
            NodeResource::Cpu => self.cpu,
        }
    }
}

impl Default for SoftLimits {
    fn default() -> Self {
        Self {
            files: Some(Self::FILES),
            ..Self::NONE
        }
    }
}

/// How a node came to its soft limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Crossing {
    /// What it has little left of.
    pub resource: NodeResource,
    /// The used share at that moment.
    pub used: f32,
    /// The limit.
    pub limit: f32,
    /// It was below the limit, and at its pace would have had nothing left after this time.
    pub full_in: Option<Duration>,
}

impl fmt::Display for Crossing {
    /// What the node has little left of.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |share: f32| f64::from(share * 100.0).round();
        let (what, used) = (self.resource.what(), percent(self.used));
        write!(f, "{used} % of its {what} is used, and ")?;
        match self.full_in {
            None => write!(f, "{} % is its soft limit", percent(self.limit)),
            Some(left) => write!(f, "all of it in {:.1} s at this pace", left.as_secs_f64()),
        }
    }
}
