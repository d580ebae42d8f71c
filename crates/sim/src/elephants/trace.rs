//! What is left of a run: what a front-end saw, what the resources' counters said, and the truth.

use tidegate_core::culprits::{ClassId, Request, UsagePoint};
use tidegate_core::time::Timestamp;

use super::world::nanos;

/// Runs begin here, so that clocks can be skewed and windows reach back.
pub const START_MS: u64 = 10_000;

/// The resources, in the order of their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    /// The database's CPUs.
    Database,
    /// The web servers' CPUs.
    Web,
    /// The disk.
    Disk,
}

impl Resource {
    /// All, in order.
    pub const ALL: [Self; 3] = [Self::Database, Self::Web, Self::Disk];

    /// As an index.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Its name.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Database => "database",
            Self::Web => "web",
            Self::Disk => "disk",
        }
    }
}

/// What each class used and asked for in one second, for each resource.
#[derive(Clone, Debug, Default)]
pub(super) struct Second {
    /// Seconds used, by resource and class.
    pub(super) used: [Vec<f32>; 3],
    /// Seconds asked for by requests that came in this second, by resource and class.
    pub(super) asked: [Vec<f32>; 3],
    /// Requests that came, by class.
    pub(super) came: Vec<u32>,
}

/// A run.
#[derive(Clone, Debug)]
pub struct Trace {
    /// Requests in the order in which they were sent; those that had not ended when the run did
    /// have no end.
    pub requests: Vec<Request>,
    /// Readings every 10 ms, by resource; clocks may be skewed.
    pub usage: [Vec<UsagePoint>; 3],
    pub(super) seconds: Vec<Second>,
    /// Cores, by resource.
    pub cores: [f64; 3],
    /// Classes that there are.
    pub classes: usize,
    /// How long it lasted, seconds.
    pub length: f64,
    /// When elephants came, seconds after the start.
    pub onset: f64,
    /// Resources that are judged.
    pub judged: Vec<Resource>,
}

impl Trace {
    /// A moment of the run, by the front-end's clock.
    pub fn at(&self, seconds: f64) -> Timestamp {
        Timestamp::from_nanos(nanos(seconds))
    }

    /// How far the resources' clocks are ahead of the front-end's, seconds.
    pub fn skew(&self) -> f64 {
        let first = self.usage[0].first();
        first.map_or(0.0, |point| {
            (point.at.nanos() as f64 - self.at(0.0).nanos() as f64) * 1e-9
        })
    }

    /// Index of a class.
    pub fn class(index: usize) -> ClassId {
        ClassId(u16::try_from(index).unwrap_or(u16::MAX))
    }
}
