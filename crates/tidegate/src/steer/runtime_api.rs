//! HAProxy's runtime API: a command by a Unix socket, and the answer to it.

use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::time::timeout;

/// A server takes 150 bytes or so of `show servers state`.
const ANSWER_BYTES_MAX: u64 = 16 << 20;
/// HAProxy answers within a few milliseconds, and closes the connection.
const PATIENCE: Duration = Duration::from_secs(2);

/// Why there is no answer that is of use.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoAnswer {
    /// HAProxy is not there, not yet, or not in time.
    #[error("{0}")]
    Silent(String),
    /// What waiting does not mend.
    #[error("{0}")]
    Wrong(String),
}

/// Where HAProxy takes commands.
#[derive(Clone, Debug)]
pub(super) struct RuntimeApi(PathBuf);

impl RuntimeApi {
    pub(super) fn new(socket: &Path) -> Self {
        Self(socket.into())
    }

    /// The answer to a command, or why there is none.
    pub(super) async fn ask(&self, command: &str) -> Result<String, NoAnswer> {
        let asked = timeout(PATIENCE, self.exchange(command)).await;
        let late = |_| Err(Error::new(ErrorKind::TimedOut, "no answer in time"));
        asked.unwrap_or_else(late).map_err(|error| {
            let text = format!("{}: {error}", self.0.display());
            let lasting = [ErrorKind::PermissionDenied, ErrorKind::InvalidData];
            match lasting.contains(&error.kind()) {
                true => NoAnswer::Wrong(text),
                false => NoAnswer::Silent(text),
            }
        })
    }

    async fn exchange(&self, command: &str) -> Result<String, Error> {
        let mut stream = UnixStream::connect(&self.0).await?;
        let line = format!("{command}\n");
        stream.write_all(line.as_bytes()).await?;
        let mut answer = Vec::new();
        let mut bounded = stream.take(ANSWER_BYTES_MAX + 1);
        bounded.read_to_end(&mut answer).await?;
        if answer.len() as u64 > ANSWER_BYTES_MAX {
            let text = format!("the answer is longer than {ANSWER_BYTES_MAX} bytes");
            return Err(Error::new(ErrorKind::InvalidData, text));
        }
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }

    /// Gives an order; what HAProxy says against it, if it does.
    pub(super) async fn order(&self, command: &str) -> Result<Option<String>, NoAnswer> {
        let answer = self.ask(command).await?;
        let answer = answer.trim();
        Ok((!answer.is_empty()).then(|| answer.to_owned()))
    }
}
