//! The end by a signal: Ctrl-C, SIGTERM or SIGHUP clean up first.
//!
//! Everything that makes something which would outlive the process passes the gate. The thread
//! that waits for signals closes the gate for good, sweeps what this process has made, and
//! exits: so nothing can be made behind its back. After SIGKILL, `clean` finds the rest by name.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use tokio::signal::unix::{SignalKind, signal};

use super::name::Owner;
use super::{ClusterError, sweep};

/// The code that shells expect of a program that a signal ended is this plus the signal.
const EXIT_BY_SIGNAL: i32 = 128;

static GATE: Mutex<()> = Mutex::new(());
static ARMED: OnceLock<Result<(), String>> = OnceLock::new();

/// Held while something is made.
#[derive(Debug)]
pub(crate) struct Passage {
    _open: MutexGuard<'static, ()>,
}

/// Waits at the gate; after the end has begun no thread passes, and none needs to.
pub(crate) fn pass() -> Passage {
    Passage {
        // A thread that panicked here left behind what the sweep will find.
        _open: GATE.lock().unwrap_or_else(PoisonError::into_inner),
    }
}

/// From here on signals clean up. Once per process.
pub(crate) fn arm() -> Result<(), ClusterError> {
    let armed = ARMED.get_or_init(|| start().map_err(|error| error.to_string()));
    armed
        .clone()
        .map_err(|why| ClusterError::Missing(format!("cannot wait for signals: {why}")))
}

fn start() -> Result<(), std::io::Error> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    let kinds = [
        SignalKind::interrupt(),
        SignalKind::terminate(),
        SignalKind::hangup(),
    ];
    let mut signals = {
        let _inside = runtime.enter();
        let [interrupt, terminate, hangup] = kinds.map(signal);
        (interrupt?, terminate?, hangup?)
    };
    let thread = std::thread::Builder::new().name("lab-ending".into());
    thread.spawn(move || {
        let kind = runtime.block_on(async {
            tokio::select! {
                _ = signals.0.recv() => kinds[0],
                _ = signals.1.recv() => kinds[1],
                _ = signals.2.recv() => kinds[2],
            }
        });
        end(EXIT_BY_SIGNAL + kind.as_raw_value());
    })?;
    Ok(())
}

fn end(code: i32) -> ! {
    let _closed = pass();
    if let Ok(owner) = Owner::this() {
        // An operator that sees something left runs `clean`; no report is possible any more.
        sweep::sweep(&|name| name.starts_with(&owner.to_string()));
    }
    std::process::exit(code)
}
