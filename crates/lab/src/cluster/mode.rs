//! Which mode works on this machine.

use rustix::process::geteuid;

use super::group::{Purpose, Tree};
use super::name::Owner;
use super::run::{installed, ip};
use super::{ClusterError, Mode, ending, sweep};

/// Programs that namespaces mode needs.
const PROGRAMS: [&str; 5] = ["ip", "nsenter", "setpriv", "taskset", "sh"];

/// The mode that is wanted if it works; else the best one, and why it is not the better one.
pub(super) fn choose(wanted: Option<Mode>) -> Result<(Mode, Option<String>), ClusterError> {
    let why = match wanted {
        Some(Mode::Loopback) => "it was asked for".to_owned(),
        None | Some(Mode::Namespaces) => match namespaces() {
            Ok(()) => return Ok((Mode::Namespaces, None)),
            Err(why) if wanted.is_some() => {
                return Err(ClusterError::Missing(format!("no namespaces mode: {why}")));
            }
            Err(why) => why,
        },
    };
    Ok((Mode::Loopback, Some(why)))
}

/// Whether namespaces and quotas can be had; both are tried.
fn namespaces() -> Result<(), String> {
    if !geteuid().is_root() {
        return Err("it needs root".into());
    }
    if let Some(program) = PROGRAMS
        .into_iter()
        .find(|program| installed(program).is_none())
    {
        return Err(format!("`{program}` is not installed"));
    }
    let tree = Tree::find()?;
    let stem = Owner::this().map_err(|error| error.to_string())?.next();
    let name = stem.name("probe");
    let _passage = ending::pass();
    let tried = tree
        .make(&name, Purpose::Node)
        .and_then(|group| group.limit(Some(0.5)))
        .and_then(|()| ip(&name, &["netns", "add", &name]));
    let swept = sweep::sweep(&|name| name.starts_with(stem.text()));
    tried.map_err(|error| error.to_string())?;
    match swept.left.first() {
        Some(left) => Err(left.clone()),
        None => Ok(()),
    }
}
