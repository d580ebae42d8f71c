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
    /// Its terminal is gone, where that means the same.
    hang_up: Option<Signal>,
}

impl Stop {
    /// From here on the signals are seen.
    pub(crate) fn new() -> Result<Self, Failure> {
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            hang_up: None,
        })
    }

    /// The same, also where a terminal is closed.
    pub(crate) fn with_terminal() -> Result<Self, Failure> {
        Ok(Self {
            hang_up: Some(listen(SignalKind::hangup())?),
            ..Self::new()?
        })
    }

    /// Returns with the next one.
    pub(crate) async fn wait(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
            () = next(&mut self.hang_up) => {}
        }
    }
}

/// Returns with the signal, if it is one that is waited for.
async fn next(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => {
            signal.recv().await;
        }
        None => std::future::pending().await,
    }
}
