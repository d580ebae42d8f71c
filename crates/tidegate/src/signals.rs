//! Signals that ask the process to stop, or to look at its configuration again.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::Failure;

/// Waits for a kind of signal from now on.
pub(crate) fn listen(kind: SignalKind) -> Result<Signal, Failure> {
    signal(kind).map_err(|error| Failure::Failed(format!("cannot wait for signals: {error}")))
}

/// The signals that mean: stop.
#[derive(Debug)]
pub(crate) struct Stop {
    terminate: Signal,
    interrupt: Signal,
}

impl Stop {
    /// From here on the signals are seen.
    pub(crate) fn new() -> Result<Self, Failure> {
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
        })
    }

    /// Returns with the next one.
    pub(crate) async fn wait(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
