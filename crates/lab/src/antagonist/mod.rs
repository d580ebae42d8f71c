//! Neighbours: what else wants a node's CPU, memory or file descriptors.
//!
//! | kind | what it does | where it is from |
//! |---|---|---|
//! | hogs | threads that always want CPU | |
//! | ping-pong | pairs of processes that send each other messages without a pause, over TCP on the node's loopback interface | paper 000 §5.3: 16 processes, 4 KiB |
//! | memory | takes memory and gives it back, again and again | paper 002 |
//! | files | opens files and closes them, again and again | paper 002 |
//! | alternators | hogs that all run for half of a period and sleep for the other | paper 000 §5.1: load for some time, sleep for some time |
//! | bursty | hogs that come and go: on-times bounded Pareto, off-times exponential | `tidegate_sim::model` |
//!
//! Each is a process in the node's namespace and control group: what it takes, it takes from
//! the node. The emulation of loopback mode follows the same spells.

mod act;
mod ping_pong;
mod spells;

use std::time::Duration;

use clap::Args;
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

/// Options of the hidden `tidegate-lab antagonist`.
#[derive(Clone, Debug, Args)]
pub struct AntagonistArgs {
    /// The antagonist as JSON, or the end of a ping-pong on standard input.
    #[arg(value_parser = parse)]
    role: Role,
}

/// What the process is.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Role {
    Antagonist(Antagonist),
    /// One end of a ping-pong, on a socket that is its standard input.
    End {
        bytes: usize,
        begins: bool,
    },
}

impl Role {
    /// As the argument that [`parse`] reads.
    fn argument(&self) -> Result<String, AntagonistError> {
        serde_json::to_string(self).map_err(AntagonistError::Json)
    }
}

fn parse(text: &str) -> Result<Role, serde_json::Error> {
    serde_json::from_str(text)
}

/// Why there is no antagonist.
#[derive(Debug, thiserror::Error)]
pub enum AntagonistError {
    /// Threads, processes, sockets or files.
    #[error("antagonist: {doing}: {source}")]
    Io {
        /// What was tried.
        doing: &'static str,
        /// Why not.
        source: std::io::Error,
    },
    /// It cannot be written down.
    #[error("antagonist: {0}")]
    Json(serde_json::Error),
}

impl AntagonistError {
    fn io(doing: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Io { doing, source }
    }
}

/// The argument that makes `tidegate-lab antagonist` this one.
pub(crate) fn argument(antagonist: &Antagonist) -> Result<String, AntagonistError> {
    Role::Antagonist(antagonist.clone()).argument()
}

/// Antagonises until the process is killed.
pub fn run(args: &AntagonistArgs) -> Result<(), AntagonistError> {
    match &args.role {
        Role::Antagonist(Antagonist::PingPong { processes, bytes }) => {
            ping_pong::start(*processes / 2, *bytes)
        }
        Role::Antagonist(other) => act::run(other),
        Role::End { bytes, begins } => ping_pong::end(*bytes, *begins),
    }
}
