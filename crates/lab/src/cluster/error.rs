//! Why there is no cluster, or why something with it did not work.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use tidegate_emulator::nodes::EmulatedError;

/// See the module.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// A file or folder.
    #[error("cannot {doing} {}: {source}", path.display())]
    File {
        /// What was tried, as a verb.
        doing: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A program that is not there or may not run.
    #[error("cannot run `{command}`: {source}")]
    Start {
        /// Program and arguments.
        command: String,
        /// Why not.
        source: io::Error,
    },
    /// A program that failed.
    #[error("`{command}` ended with {status}; it said: {told}")]
    Failed {
        /// Program and arguments.
        command: String,
        /// How it ended.
        status: ExitStatus,
        /// The end of its output.
        told: String,
    },
    /// A server or an agent that does not answer.
    #[error("{what} does not answer at {address} after {waited:?}: {why}; it said: {told}")]
    Silent {
        /// Which one.
        what: String,
        /// Where.
        address: SocketAddr,
        /// How long it was given.
        waited: Duration,
        /// The last attempt.
        why: String,
        /// The end of its output.
        told: String,
    },
    /// Something that was set up and is not as it should be.
    #[error("{0}")]
    Missing(String),
    /// A plan that cannot be.
    #[error("the plan of the cluster: {0}")]
    Plan(String),
    /// Something that this mode does not have.
    #[error("{0} needs namespaces: the cluster runs in loopback mode")]
    Loopback(&'static str),
    /// No emulation.
    #[error(transparent)]
    Emulated(#[from] EmulatedError),
}

impl ClusterError {
    /// For `map_err`.
    pub(crate) fn file(
        doing: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File {
            doing,
            path,
            source,
        }
    }
}
