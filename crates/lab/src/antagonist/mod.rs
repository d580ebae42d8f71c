//! Neighbours: what else wants a node's CPU, memory or file descriptors.
//!
//! | kind | what it does | where it is from |
//! |---|---|---|
//! | hogs | threads that always want CPU | |
//! | ping-pong | pairs of processes that send each other messages without a pause, over TCP on the node's loopback interface | KLM-2005 §5.3: 16 processes, 4 KiB |
//! | memory | takes memory and gives it back, again and again | SLBL-ARPN |
//! | files | clients that hold connections of the node's server, and so its file descriptors, and let them go, again and again | SLBL-ARPN |
//! | alternators | hogs that all run for half of a period and sleep for the other | KLM-2005 §5.1: load for some time, sleep for some time |
//! | bursty | hogs that come and go: on-times bounded Pareto, off-times exponential | `tidegate_sim::model` |
//!
//! Each is a process in the node's namespace and control group: what it takes, it takes from
//! the node. The emulation of loopback mode follows the same spells.

mod act;
mod ping_pong;

use std::net::SocketAddr;

use clap::Args;
use serde::{Deserialize, Serialize};

pub use tidegate_emulator::antagonist::{Antagonist, Spell, Spells};

/// Options of the hidden `tidegate-lab antagonist`.
#[derive(Clone, Debug, Args)]
pub struct AntagonistArgs {
    /// The antagonist as JSON, or the end of a ping-pong on standard input.
    #[arg(value_parser = parse)]
    role: Role,
    /// The node's server.
    #[arg(long, value_name = "ADDRESS")]
    server: Option<SocketAddr>,
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
        Role::Antagonist(other) => act::run(other, args.server),
        Role::End { bytes, begins } => ping_pong::end(*bytes, *begins),
    }
}
