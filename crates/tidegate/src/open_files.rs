//! How many files and sockets the process may have open, and what gets how many of them.
//!
//! The limit (`RLIMIT_NOFILE`) is raised as far as the system permits. If that is still not enough for the
//! configured connections, each with one to a node, clients get fewer: a client that is let in must find
//! a socket to its node, and operators must reach the admin interface when all clients have come.
//!
//! ```text
//! limit ── own ──┬── admin interface   at most a quarter of the rest
//!                ├── refused clients that still read their answer   at most an eighth
//!                └── half for clients, half for nodes
//! ```

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The admin interface's connections, and some files that are opened now and then.
const ADMIN: usize = 80;
/// Refused clients of each worker.
const LINGERING: usize = 1024;
/// What each worker has open besides connections: its reactor and its timers.
const OWN_OF_WORKER: usize = 4;
/// What each worker has open for each listener: a socket, one that is kept for the successor of a worker that
/// fails, one that is kept for the drain, and a spare file, without which no connection could be refused when all others are taken.
const OWN_OF_LISTENER: usize = 4;
/// What the process has open besides: logs, signals, threads of control.
const OWN: usize = 32;

/// What there is and what is wanted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    /// Files that the process may have open.
    pub(crate) limit: usize,
    /// Worker threads.
    pub(crate) workers: usize,
    /// Addresses that each of them listens on.
    pub(crate) listeners: usize,
    /// Nodes, those included that serve nothing.
    pub(crate) nodes: usize,
    /// Client connections.
    pub(crate) connections: usize,
}

/// What gets how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shares {
    /// Client connections.
    pub(crate) connections: usize,
    /// Refused clients that still read their answer, per worker.
    pub(crate) lingering: usize,
    /// The limit from which on all is as it is configured.
    pub(crate) enough: usize,
}

/// Shares out what the limit allows.
pub(crate) fn shares(wanted: Wanted) -> Shares {
    let Wanted {
        limit,
        workers,
        listeners,
        nodes,
        connections,
    } = wanted;
    let workers = workers.max(1);
    // Each node is read through a socket.
    let own = OWN + workers * (OWN_OF_WORKER + OWN_OF_LISTENER * listeners) + nodes;
    let lingering = LINGERING * workers;
    let enough = own + ADMIN + lingering + 2 * connections;
    if limit >= enough {
        return Shares {
            connections,
            lingering: LINGERING,
            enough,
        };
    }
    let left = limit.saturating_sub(own);
    let lingering = lingering.min(left / 8);
    let rest = left - ADMIN.min(left / 4) - lingering;
    Shares {
        connections: connections.min(rest / 2).max(1),
        lingering: lingering / workers,
        enough,
    }
}

/// Raises the limit as far as the system permits; how many files may be open then.
pub(crate) fn raise() -> usize {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: maximum,
        maximum,
    };
    let limit = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => maximum,
        Err(_) => current,
    };
    limit.map_or(usize::MAX, |limit| limit as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(limit: usize) -> Shares {
        shares(Wanted {
            limit,
            workers: 2,
            listeners: 1,
            nodes: 3,
            connections: 7000,
        })
    }

    #[test]
    fn all_get_what_is_configured_where_there_is_enough() {
        let enough = of(0).enough;
        assert_eq!((of(enough).connections, of(enough).lingering), (7000, 1024));
        assert_eq!(of(usize::MAX), of(enough));
        assert!(of(enough - 1).connections <= 7000);
    }

    #[test]
    fn a_client_that_is_let_in_finds_a_socket_to_its_node() {
        for limit in (64..20_000).chain([usize::MAX / 2]) {
            let seen = of(limit);
            let own = OWN + 2 * (OWN_OF_WORKER + OWN_OF_LISTENER) + 3;
            let used = own + 2 * seen.connections + 2 * seen.lingering;
            assert!(used < limit, "{limit}: {seen:?}");
            assert!(
                limit - used >= 80.min((limit - own) / 5),
                "{limit}: {seen:?}"
            );
        }
        let tight = of(128);
        assert!(tight.connections >= 20, "{tight:?}");
        assert_eq!(of(0).connections, 1);
    }
}
