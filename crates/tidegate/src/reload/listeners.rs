//! The listeners that a reload wants. What is new is bound before anything changes: an address that cannot be had is an
//! error of the file.

use std::net::SocketAddr;
use std::time::Duration;

use tidegate_proxy::{
    ListenerConfig, ListenerSetter, ListenersChanged, OpenedListeners, ProxyError,
};

use crate::config::Problem;
use crate::config::address::overlap;
use crate::config::file::ConfigFile;
use crate::config::setting::At;
use crate::output::Output;

/// Opens those of these addresses that are not there yet.
///
/// # Errors
/// One cannot be had; then nothing is open that was not before.
pub(super) async fn open(
    setter: &ListenerSetter,
    wanted: Vec<ListenerConfig>,
    keepalive: Duration,
    file: &ConfigFile,
) -> Result<OpenedListeners, Problem> {
    let (setter, in_force) = (setter.clone(), setter.addresses());
    let opening = tokio::task::spawn_blocking(move || setter.open(&wanted, keepalive));
    let opened = opening.await.map_err(|broken| {
        let place = file.listener.place();
        Problem::new(place, format!("cannot listen: {broken}"), "")
    })?;
    let in_force = in_force.load_full();
    opened.map_err(|error| problem(file, &error, &in_force))
}

/// Why those of these addresses that are not there yet cannot all be opened, as far as that can be seen before: two new
/// ones that overlap are seen when they are opened.
pub(super) fn check(
    setter: &ListenerSetter,
    wanted: &[ListenerConfig],
    file: &ConfigFile,
) -> Option<Problem> {
    let error = setter.check(wanted).err()?;
    Some(problem(file, &error, &setter.addresses().load()))
}

fn problem(file: &ConfigFile, error: &ProxyError, in_force: &[SocketAddr]) -> Problem {
    let address = match error {
        ProxyError::Listen { address, .. } => Some(*address),
        ProxyError::Log(_) | ProxyError::Worker(_) | ProxyError::Counters { .. } => None,
    };
    let mut listeners = file.listener.iter().map(|it| &it.address);
    let listener = listeners.find(|it| Some(it.value) == address);
    let place = listener.map_or_else(|| file.listener.place(), At::place);
    let label = "an address that is free, and that this process may use, is expected";
    let problem = Problem::new(place, error.to_string(), label);
    let mut own = in_force.iter();
    match address.and_then(|wanted| own.find(|it| overlap(**it, wanted))) {
        None => problem,
        Some(own) => problem.help(format!(
            "this front-end itself listens on {own}, which overlaps it, until the reload is done: take that listener out by a \
             reload of its own first, or restart"
        )),
    }
}

/// What a reload that is done has to say of certificates.
pub(super) fn shown_anew(changed: &ListenersChanged) -> impl Iterator<Item = String> {
    let each = changed.shown_anew.iter();
    each.map(|address| {
        format!("new connections to {address} are shown other certificates, or meet TLS where there was none, or the other way round")
    })
}

/// Says what has changed.
pub(super) fn say(changed: &ListenersChanged, output: Output) {
    for address in &changed.new {
        output.event("listening", &format!("listening on {address}"));
    }
    for text in shown_anew(changed) {
        output.event("certificates", &text);
    }
    for address in &changed.gone {
        let text = format!(
            "no more listening on {address}: connections that came there close behind their next answer"
        );
        output.event("not_listening", &text);
    }
}
