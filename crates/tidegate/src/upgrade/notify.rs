//! What the service manager hears (`sd_notify(3)`): a datagram to the socket that `NOTIFY_SOCKET` names. Without that
//! nothing is sent, and none that gets lost matters.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use tidegate_remote::clock;

const SOCKET: &str = "NOTIFY_SOCKET";

/// It serves.
pub(crate) fn ready() {
    tell("READY=1");
}

/// It ends.
pub(crate) fn stopping() {
    tell("STOPPING=1");
}

/// It goes on, which a watchdog waits for.
pub(crate) fn alive() {
    tell("WATCHDOG=1");
}

/// It reads its configuration again; when this is dropped, that is done.
#[derive(Debug)]
#[must_use]
pub(crate) struct Reloading(());

impl Reloading {
    /// Begins. The time says which reload is meant, to service managers that ask for one.
    pub(crate) fn begin() -> Self {
        let micros = clock::now().nanos() / 1000;
        tell(&format!("RELOADING=1\nMONOTONIC_USEC={micros}"));
        Self(())
    }
}

impl Drop for Reloading {
    fn drop(&mut self) {
        ready();
    }
}

/// Another process is the service from now on.
pub(super) fn main_process(number: u32) {
    tell(&format!("MAINPID={number}\nREADY=1"));
}

fn tell(state: &str) {
    if let Some(socket) = std::env::var_os(SOCKET) {
        // It may have none, or not listen.
        send(&socket, state).unwrap_or_default();
    }
}

fn send(socket: &OsStr, state: &str) -> io::Result<()> {
    let address = match socket.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(socket)?,
    };
    let sender = UnixDatagram::unbound()?;
    sender.set_nonblocking(true)?;
    sender.send_to_addr(state.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_manager_hears_by_name_and_by_path() {
        let name = format!("tidegate-notify-{}", std::process::id());
        let path = std::env::temp_dir().join(&name);
        let abstract_name = format!("@{name}");
        let by_name = SocketAddr::from_abstract_name(&name).unwrap();
        let listeners = [
            (
                UnixDatagram::bind_addr(&by_name).unwrap(),
                OsStr::new(&abstract_name),
            ),
            (UnixDatagram::bind(&path).unwrap(), path.as_os_str()),
        ];
        for (listener, socket) in listeners {
            send(socket, "READY=1").unwrap();
            let mut heard = [0; 64];
            let length = listener.recv(&mut heard).unwrap();
            assert_eq!(&heard[..length], b"READY=1");
        }
        std::fs::remove_file(&path).unwrap();
    }
}
