//! The listeners that a reload wants. What is new is bound before anything changes: an address that cannot be had is an
//! error of the file.

use std::net::SocketAddr;
use std::time::Duration;

use tidegate_proxy::{ListenerSetter, ListenersChanged, OpenedListeners, ProxyError};

use crate::config::Problem;
use crate::config::file::ConfigFile;
use crate::output::Output;

/// Opens those of these addresses that are not there yet.
///
/// # Errors
/// One cannot be had; then nothing is open that was not before.
pub(super) async fn open(
    setter: &ListenerSetter,
    wanted: Vec<SocketAddr>,
    keepalive: Duration,
    file: &ConfigFile,
) -> Result<OpenedListeners, Problem> {
    let setter = setter.clone();
    let opening = tokio::task::spawn_blocking(move || setter.open(&wanted, keepalive));
    let opened = opening.await.map_err(|broken| {
        let place = file.listener.place();
        Problem::new(place, format!("cannot listen: {broken}"), "")
    })?;
    opened.map_err(|error| problem(file, &error))
}

/// Why those of these addresses that are not there yet cannot all be opened, as far as that can be seen before: two new
/// ones that overlap are seen when they are opened.
pub(super) fn check(
    setter: &ListenerSetter,
    wanted: &[SocketAddr],
    file: &ConfigFile,
) -> Option<Problem> {
    let error = setter.check(wanted).err()?;
    Some(problem(file, &error))
}

fn problem(file: &ConfigFile, error: &ProxyError) -> Problem {
    let place = match error {
        ProxyError::Listen { address, .. } => {
            let mut listeners = file.listener.iter();
            let listener = listeners.find(|it| it.address.value == *address);
            listener.map(|it| it.address.place())
        }
        ProxyError::Log(_) | ProxyError::Worker(_) | ProxyError::Counters { .. } => None,
    };
    let place = place.unwrap_or_else(|| file.listener.place());
    let label = "an address that is free, and that this process may use, is expected";
    Problem::new(place, error.to_string(), label)
}

/// Says what has changed.
pub(super) fn say(changed: &ListenersChanged, output: Output) {
    for address in &changed.new {
        output.event("listening", &format!("listening on {address}"));
    }
    for address in &changed.gone {
        let text = format!(
            "no more listening on {address}: connections that came there close behind their next answer"
        );
        output.event("not_listening", &text);
    }
}
