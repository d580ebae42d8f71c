//! What a front-end or an agent may do once it runs: as which user, with which capabilities.
//!
//! | capability | a front-end keeps it | for |
//! |---|---|---|
//! | `CAP_NET_BIND_SERVICE` | until it listens | ports below 1024 |
//! | `CAP_SYS_NICE` | until it reads loads | real-time priority |
//! | `CAP_NET_ADMIN` | in the thread that closes listening sockets | a filter that keeps new clients out, where the kernel wants it for that |
//! | | in workers, if there are marks | `SO_MARK` and priorities of throttled connections |
//!
//! The capabilities of an agent are listed in `tidegate_node`.

use std::io;

use nix::unistd::{Uid, User};
use tidegate_core::throttle::Marks;
use tidegate_proxy::ProxyThread;
use tidegate_remote::privilege::{self, CapabilitySet, Identity, NONE};

use crate::config::FrontEnd;
use crate::failure::Failure;
use crate::output::Output;

/// For a filter at a listening socket.
const CLOSING: CapabilitySet = CapabilitySet::NET_ADMIN;
/// Priorities up to this one need no capability.
const PRIORITY_FREE: u32 = 6;
/// Ports from this one on need no capability.
const PORT_FREE: u16 = 1024;

/// What a front-end keeps after its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// All that it has: it shares the process with others.
    All,
    /// Nothing.
    Nothing,
    /// Its workers mark connections.
    Marks,
}

impl Kept {
    /// What this front-end keeps.
    pub(crate) fn of(front_end: &FrontEnd, marks_ordered: bool) -> Self {
        let mut throttles = front_end.throttles.iter();
        match marks_ordered || throttles.any(|it| needs_capability(it.limits.marks)) {
            true => Self::Marks,
            false => Self::Nothing,
        }
    }

    /// What it starts with.
    pub(crate) fn starting(self, front_end: &FrontEnd, admin_port: u16) -> CapabilitySet {
        let mut set = match self {
            Self::All => CapabilitySet::all(),
            Self::Nothing | Self::Marks => CLOSING,
        };
        let mut ports = front_end.listeners.iter().map(|it| it.address.port());
        if ports.any(is_privileged) || is_privileged(admin_port) {
            set |= CapabilitySet::NET_BIND_SERVICE;
        }
        if front_end.realtime {
            set |= CapabilitySet::SYS_NICE;
        }
        set
    }

    /// Gives away what only the start took, on the thread that starts all others.
    pub(crate) fn settle(self) -> Result<(), Failure> {
        let settled = match self {
            Self::All => Ok(()),
            Self::Nothing | Self::Marks => none(),
        };
        settled.map_err(|error| Failure::Failed(format!("cannot give privileges away: {error}")))
    }

    /// What a thread of the data plane does first.
    pub(crate) fn in_data_plane(self) -> fn(ProxyThread) -> io::Result<()> {
        match self {
            Self::All => |_| Ok(()),
            Self::Nothing => |thread| match thread {
                ProxyThread::Closer => privilege::keep(CLOSING),
                ProxyThread::Worker | ProxyThread::Log => none(),
            },
            Self::Marks => |thread| match thread {
                ProxyThread::Closer => privilege::keep(CLOSING),
                ProxyThread::Worker => privilege::keep(CapabilitySet::NET_ADMIN),
                ProxyThread::Log => none(),
            },
        }
    }
}

fn none() -> io::Result<()> {
    privilege::keep(NONE)
}

fn is_privileged(port: u16) -> bool {
    (1..PORT_FREE).contains(&port)
}

fn needs_capability(marks: Marks) -> bool {
    marks.mark.is_some() || marks.priority.is_some_and(|it| it > PRIORITY_FREE)
}

/// Becomes the user of this name, if one is given, and keeps at most these capabilities. To be called while the
/// process has one thread.
pub(crate) fn settle(
    user: Option<&str>,
    kept: CapabilitySet,
    output: Output,
) -> Result<(), Failure> {
    let identity = user.map(identity).transpose().map_err(Failure::from)?;
    privilege::settle(identity, kept).map_err(|error| Failure::Failed(error.to_string()))?;
    if user.is_none() && rustix::process::geteuid().is_root() {
        output.event("privileges", AS_ROOT);
    }
    Ok(())
}

/// What is left to root.
const AS_ROOT: &str = "runs as root, without the capabilities that it does not need: root's own files are still \
                       open to it; `user` in [process] or --user names another user";

/// The number of the user that a process becomes with this name, or has already.
pub(crate) fn user_number(name: Option<&str>) -> Result<u32, UserError> {
    match name {
        Some(name) => identity(name).map(|it| it.user),
        None => Ok(rustix::process::geteuid().as_raw()),
    }
}

/// Why a user has no number.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UserError {
    #[error("cannot look user `{0}` up: {1}")]
    Lookup(String, nix::Error),
    #[error("there is no user `{0}` here")]
    Unknown(String),
}

impl From<UserError> for Failure {
    fn from(error: UserError) -> Self {
        match error {
            UserError::Lookup(..) => Self::Failed(error.to_string()),
            UserError::Unknown(_) => Self::Usage(error.to_string()),
        }
    }
}

/// The numbers of a user, by its name or number, and of its own group alone.
fn identity(name: &str) -> Result<Identity, UserError> {
    let failed = |error| UserError::Lookup(name.to_owned(), error);
    let found = match (User::from_name(name).map_err(failed)?, name.parse()) {
        (None, Ok(number)) => User::from_uid(Uid::from_raw(number)).map_err(failed)?,
        (found, _) => found,
    };
    let user = found.ok_or_else(|| UserError::Unknown(name.to_owned()))?;
    Ok(Identity {
        user: user.uid.as_raw(),
        group: user.gid.as_raw(),
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::Config;

    fn front_end(listener: &str, more: &str) -> FrontEnd {
        let text = format!(
            "[[listener]]\naddress = \"127.0.0.1:{listener}\"\n[[site]]\nname = \"a\"\n\
             [[node]]\nname = \"n\"\naddress = \"10.0.0.1:80\"\nsite = \"a\"\n{more}"
        );
        let config = Config::parse(&text, "test.toml", Path::new("")).unwrap();
        config.front_end.unwrap()
    }

    fn throttled(what: &str) -> FrontEnd {
        front_end(
            "8080",
            &format!("[[throttle]]\nclass = \"GET /\"\n{what}\n"),
        )
    }

    #[test]
    fn a_front_end_starts_with_what_its_configuration_takes() {
        let starting =
            |front_end: &FrontEnd, admin| Kept::of(front_end, false).starting(front_end, admin);
        let quiet = front_end("8080", "[load]\nrealtime = false\n");
        assert_eq!(starting(&quiet, 9900), CLOSING);
        assert_eq!(
            starting(&quiet, 99),
            CLOSING | CapabilitySet::NET_BIND_SERVICE
        );
        let http = front_end("80", "");
        let both = CapabilitySet::NET_BIND_SERVICE | CapabilitySet::SYS_NICE;
        assert_eq!(starting(&http, 9900), CLOSING | both);
        let any = starting(&front_end("0", ""), 0);
        assert_eq!(any, CLOSING | CapabilitySet::SYS_NICE);
    }

    #[test]
    fn workers_keep_a_capability_for_marks_alone() {
        let kept = |front_end: &FrontEnd| Kept::of(front_end, false);
        assert_eq!(kept(&throttled("mark = 7")), Kept::Marks);
        assert_eq!(kept(&throttled("so_priority = 7")), Kept::Marks);
        assert_eq!(kept(&throttled("so_priority = 6")), Kept::Nothing);
        assert_eq!(kept(&throttled("dscp = 8")), Kept::Nothing);
        assert_eq!(Kept::of(&throttled("dscp = 8"), true), Kept::Marks);
    }

    #[test]
    fn a_user_that_is_not_there_is_an_error_of_usage() {
        let none = identity("no-such-user-of-tidegate");
        assert!(matches!(none, Err(UserError::Unknown(_))), "{none:?}");
        for root in ["root", "0"] {
            assert_eq!(identity(root).unwrap(), Identity { user: 0, group: 0 });
        }
        assert!(matches!(identity("4294967294"), Err(UserError::Unknown(_))));
    }

    /// The units that are shipped grant what the code asks for, and no more; a front-end's leaves CAP_NET_ADMIN to those
    /// that want it.
    #[test]
    fn the_units_grant_what_the_code_asks_for() {
        let units = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/systemd");
        let granted = |unit: &str, key: &str| {
            let text = std::fs::read_to_string(units.join(unit)).unwrap();
            let mut lines = text.lines().filter_map(|line| line.strip_prefix(key));
            let line = lines.next().unwrap_or_else(|| panic!("{unit}: {key}"));
            let set = line.split_whitespace().map(|name| {
                let (set, _) = CapabilitySet::all()
                    .iter_names()
                    .map(|(it, set)| (set, it))
                    .find(|(_, it)| name.strip_prefix("CAP_") == Some(*it))
                    .unwrap_or_else(|| panic!("{unit}: {name}"));
                set
            });
            set.fold(NONE, CapabilitySet::union)
        };
        let http = front_end("80", "");
        let wanted = Kept::of(&http, false).starting(&http, 9900) - CLOSING;
        for key in ["AmbientCapabilities=", "CapabilityBoundingSet="] {
            assert_eq!(granted("tidegate.service", key), wanted, "{key}");
            let agent = granted("tidegate-agent.service", key);
            assert_eq!(agent, tidegate_node::STARTING_CAPABILITIES, "{key}");
        }
    }
}
