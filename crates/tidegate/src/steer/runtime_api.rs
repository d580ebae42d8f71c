//! HAProxy's runtime API: a command by a Unix socket, and the answer to it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::time::timeout;

/// A server takes 150 bytes or so of `show servers state`.
const ANSWER_BYTES_MAX: u64 = 16 << 20;
/// HAProxy answers within a few milliseconds, and closes the connection.
const PATIENCE: Duration = Duration::from_secs(2);

/// Where HAProxy takes commands.
#[derive(Clone, Debug)]
pub(super) struct RuntimeApi(PathBuf);

impl RuntimeApi {
    pub(super) fn new(socket: &Path) -> Self {
        Self(socket.into())
    }

    /// The answer to a command, or why there is none.
    pub(super) async fn ask(&self, command: &str) -> Result<String, String> {
        let asked = timeout(PATIENCE, self.exchange(command)).await;
        let answer = asked.unwrap_or_else(|_| Err("no answer in time".into()));
        answer.map_err(|why| format!("{}: {why}", self.0.display()))
    }

    async fn exchange(&self, command: &str) -> Result<String, String> {
        let failed = |error: std::io::Error| error.to_string();
        let mut stream = UnixStream::connect(&self.0).await.map_err(failed)?;
        let line = format!("{command}\n");
        stream.write_all(line.as_bytes()).await.map_err(failed)?;
        let mut answer = Vec::new();
        let mut bounded = stream.take(ANSWER_BYTES_MAX + 1);
        bounded.read_to_end(&mut answer).await.map_err(failed)?;
        if answer.len() as u64 > ANSWER_BYTES_MAX {
            return Err(format!(
                "the answer is longer than {ANSWER_BYTES_MAX} bytes"
            ));
        }
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }

    /// Sets a weight; what HAProxy says against it, if it does.
    pub(super) async fn set_weight(
        &self,
        backend: &str,
        server: &str,
        weight: u32,
    ) -> Result<Option<String>, String> {
        let command = format!("set server {backend}/{server} weight {weight}");
        let answer = self.ask(&command).await?;
        let answer = answer.trim();
        Ok((!answer.is_empty()).then(|| answer.to_owned()))
    }
}
