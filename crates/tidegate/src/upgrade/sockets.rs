//! Listening sockets that a process is given at its start, by its predecessor or by the service manager.
//!
//! A listener of the configuration has those that were configured with its address (so port 0 keeps the port that it
//! had), or else those that listen at its address. What no listener has is closed.
//!
//! The service manager's are those of `sd_listen_fds(3)`: `LISTEN_FDS` files from 3 on, if `LISTEN_PID` is this
//! process; their names play no part.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use super::channel::{Offered, Role};
use crate::output::Output;

/// The first file that a service manager gives.
const FIRST: i32 = 3;
/// Most of them.
const FILES_MAX: i32 = 1024;
/// What says that there are any, for which process.
const COUNT: &str = "LISTEN_FDS";
const PROCESS: &str = "LISTEN_PID";
/// What a successor must not take for its own.
pub(super) const VARIABLES: [&str; 3] = [COUNT, PROCESS, "LISTEN_FDNAMES"];

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct GivenSockets(Vec<Given>);

#[derive(Debug)]
struct Given {
    offered: Offered,
    socket: OwnedFd,
}

impl GivenSockets {
    /// One more.
    pub(super) fn add(&mut self, offered: Offered, socket: OwnedFd) {
        self.0.push(Given { offered, socket });
    }

    /// Those of the service manager; none where it gave none.
    ///
    /// # Errors
    /// They cannot be used.
    pub(super) fn of_service_manager() -> Result<Self, String> {
        let number = |name| {
            let value = std::env::var(name).ok()?;
            value.parse::<i32>().ok()
        };
        let own = i32::try_from(std::process::id()).ok();
        let Some(count) = number(COUNT).filter(|_| number(PROCESS) == own) else {
            return Ok(Self::default());
        };
        let files = FIRST..FIRST + count.clamp(0, FILES_MAX);
        let files = tidegate_remote::inherited::take(files)
            .map_err(|error| format!("{COUNT}={count}: {error}"))?;
        let mut given = Self::default();
        for (index, socket) in files.into_iter().enumerate() {
            let address = listens_at(&socket)
                .map_err(|why| format!("{COUNT}={count}: file {}: {why}", index + 3))?;
            let offered = Offered {
                role: None,
                configured: address,
                address,
            };
            given.add(offered, socket);
        }
        Ok(given)
    }

    /// Takes those for a listener.
    pub(crate) fn take(&mut self, role: Role, wanted: SocketAddr) -> Vec<OwnedFd> {
        let fits = |it: &Offered| it.role.is_none_or(|given| given == role);
        let mut offered = self.0.iter().map(|it| it.offered).filter(fits);
        let configured = offered.clone().find(|it| it.configured == wanted);
        let Some(found) = configured.or_else(|| offered.find(|it| it.address == wanted)) else {
            return Vec::new();
        };
        let is_one = |it: &mut Given| fits(&it.offered) && it.offered.address == found.address;
        let taken = self.0.extract_if(.., is_one);
        taken.map(|it| it.socket).collect()
    }

    /// Closes what no listener has taken.
    pub(crate) fn close_rest(self, output: Output) {
        let mut last = None;
        for given in self.0 {
            let address = given.offered.address;
            if last.replace(address) != Some(address) {
                let text = format!("no listener is at {address} any more: its socket is not used");
                output.event("socket_unused", &text);
            }
        }
    }
}

/// Where a listening TCP socket listens.
fn listens_at(socket: &OwnedFd) -> Result<SocketAddr, String> {
    use rustix::net::{SocketType, getsockname, sockopt};
    let said = |error: rustix::io::Errno| format!("it is no socket of use: {error}");
    let is_stream = sockopt::socket_type(socket).map_err(said)? == SocketType::STREAM;
    if !is_stream || !sockopt::socket_acceptconn(socket).map_err(said)? {
        return Err("it is no socket that accepts connections".into());
    }
    let address = getsockname(socket).map_err(said)?;
    address
        .try_into()
        .map_err(|_| "it is no TCP socket".to_owned())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn given(role: Role, configured: &str) -> (Given, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let offered = Offered {
            role: Some(role),
            configured: configured.parse().unwrap(),
            address,
        };
        let socket = listener.into();
        (Given { offered, socket }, address)
    }

    #[test]
    fn each_listener_has_the_sockets_of_its_address() {
        const ANY: &str = "127.0.0.1:0";
        let (one, first) = given(Role::Listener, ANY);
        let (two, second) = given(Role::Listener, ANY);
        let (admin, third) = given(Role::Admin, ANY);
        let copy = Given {
            offered: one.offered,
            socket: one.socket.try_clone().unwrap(),
        };
        let mut sockets = GivenSockets(vec![admin, one, two, copy]);
        let any = ANY.parse().unwrap();
        let addresses = |sockets: Vec<OwnedFd>| {
            let found = sockets.iter().map(|it| listens_at(it).unwrap());
            found.collect::<Vec<_>>()
        };
        assert_eq!(addresses(sockets.take(Role::Listener, any)), [first, first]);
        assert_eq!(addresses(sockets.take(Role::Listener, second)), [second]);
        assert_eq!(sockets.take(Role::Listener, any).len(), 0);
        assert_eq!(addresses(sockets.take(Role::Admin, any)), [third]);
    }

    #[test]
    fn what_accepts_nothing_is_refused() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(listens_at(&file.into()).is_err());
        let datagrams = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(listens_at(&datagrams.into()).is_err());
    }
}
