//! Neighbours: what else wants a node's CPU, memory or file descriptors, and when.

mod spells;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use spells::{Spell, Spells};

/// See the module.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Antagonist {
    /// Threads that always want CPU.
    Hogs {
        /// How many.
        threads: u32,
    },
    /// Pairs of processes that exchange messages without a pause.
    PingPong {
        /// How many; two make a pair.
        processes: u32,
        /// Length of a message.
        bytes: usize,
    },
    /// Memory that is taken and given back.
    Memory {
        /// How much.
        bytes: u64,
        /// From one taking to the next.
        period: Duration,
        /// The part of the period for which it is held.
        duty: f64,
    },
    /// Files that are opened and closed.
    Files {
        /// How many.
        files: u32,
        /// From one opening to the next.
        period: Duration,
        /// The part of the period for which they are open.
        duty: f64,
    },
    /// Hogs that all run for a time and then all sleep as long.
    Alternators {
        /// How many.
        threads: u32,
        /// From one start to the next.
        period: Duration,
    },
    /// Hogs that come and go.
    Bursty {
        /// How many.
        threads: u32,
        /// The part of the time for which they are there.
        duty: f64,
        /// Their shortest stay.
        shortest: Duration,
        /// Their longest stay.
        longest: Duration,
        /// Another seed, other times.
        seed: u64,
    },
}

impl Antagonist {
    /// Tasks that it adds to the run queue while it is on. Of a pair that plays ping-pong one
    /// runs and the other waits for it.
    pub fn runnable(&self) -> u32 {
        match self {
            Self::Hogs { threads }
            | Self::Alternators { threads, .. }
            | Self::Bursty { threads, .. } => *threads,
            Self::PingPong { processes, .. } => processes / 2,
            Self::Memory { .. } | Self::Files { .. } => 0,
        }
    }

    /// When it is on, and when it is not.
    pub fn spells(&self) -> Spells {
        Spells::of(self)
    }
}
