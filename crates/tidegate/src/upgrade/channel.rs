//! Messages between a process and its successor, each with the files that go with it: a pair of Unix sockets that keep
//! messages apart (`SOCK_SEQPACKET`), and `SCM_RIGHTS`.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, SocketFlags, SocketType, recvmsg, sendmsg,
    socketpair,
};
use serde::{Deserialize, Serialize};

/// Files that go with one message; the kernel takes 253.
pub(super) const FILES_MAX: usize = 64;
/// Bytes of a message: a few addresses, or a text.
const BYTES_MAX: usize = 64 << 10;

/// What the two say to each other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Word {
    /// Listening sockets come with this message, one for each.
    Sockets(Vec<Offered>),
    /// There are no more. What was learned comes with it, if `learned` says so.
    Whole {
        /// Of these words.
        version: u32,
        /// Hand-overs before this one.
        upgrades: u64,
        /// A file with what was learned comes with this message.
        learned: bool,
        /// Another one comes behind it, with what requests cost.
        #[serde(default)]
        costs: bool,
    },
    /// The successor serves, with the sockets at these addresses.
    Ready(Vec<SocketAddr>),
    /// It does not, for this reason.
    Failed(String),
    /// The sockets are the successor's now.
    Yours,
    /// They are not: it is to end.
    Withdrawn,
}

/// What a listening socket is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Role {
    /// Clients.
    Listener,
    /// Operators.
    Admin,
}

/// A listening socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Offered {
    /// None: not said.
    pub(super) role: Option<Role>,
    /// The address as it was configured, maybe with port 0.
    pub(super) configured: SocketAddr,
    /// Where it listens.
    pub(super) address: SocketAddr,
}

/// A message that came.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) word: Word,
    pub(super) files: Vec<OwnedFd>,
}

/// One end.
#[derive(Debug)]
pub(super) struct Channel(OwnedFd);

impl Channel {
    /// Both ends: one to keep, one to give away.
    pub(super) fn pair() -> io::Result<(Self, OwnedFd)> {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let (ours, theirs) = socketpair(family, kind, SocketFlags::CLOEXEC, None)?;
        Ok((Self(ours), theirs))
    }

    /// An end that was given.
    pub(super) fn of(end: OwnedFd) -> Self {
        Self(end)
    }

    /// The same end once more.
    pub(super) fn try_clone(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }

    /// Nothing is received here any more, and what waits for something is woken.
    pub(super) fn stop_listening(&self) {
        // It fails only where the other end has gone, which wakes as well.
        rustix::net::shutdown(&self.0, Shutdown::Read).unwrap_or_default();
    }

    /// From now on it waits so long at most, in either direction.
    pub(super) fn wait_at_most(&self, patience: Duration) -> io::Result<()> {
        // Zero would be for ever.
        let patience = Some(patience.max(Duration::from_millis(1)));
        set_socket_timeout(&self.0, Timeout::Send, patience)?;
        Ok(set_socket_timeout(&self.0, Timeout::Recv, patience)?)
    }

    /// From now on it waits for ever.
    pub(super) fn wait(&self) -> io::Result<()> {
        Ok(set_socket_timeout(&self.0, Timeout::Recv, None)?)
    }

    /// Sends a message and the files that go with it.
    pub(super) fn send(&self, word: &Word, files: &[BorrowedFd<'_>]) -> io::Result<()> {
        let bytes = serde_json::to_vec(word)?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(files)) {
            return Err(io::Error::other("too many files for one message"));
        }
        let parts = [IoSlice::new(&bytes)];
        loop {
            match sendmsg(&self.0, &parts, &mut control, SendFlags::NOSIGNAL) {
                Err(rustix::io::Errno::INTR) => {}
                sent => return sent.map(drop).map_err(io::Error::from),
            }
        }
    }

    /// The next message; none once the other end is closed.
    ///
    /// # Errors
    /// Nothing came in time ([`ErrorKind::WouldBlock`]), or it is not understood.
    pub(super) fn receive(&self) -> io::Result<Option<Received>> {
        let mut bytes = vec![0; BYTES_MAX];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        // An end that closes with messages unread is an error once, ahead of what it has sent.
        let mut was_reset = false;
        let received = loop {
            let mut parts = [IoSliceMut::new(&mut bytes)];
            match recvmsg(&self.0, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::CONNRESET) if !was_reset => was_reset = true,
                Err(rustix::io::Errno::CONNRESET) => return Ok(None),
                received => break received?,
            }
        };
        let mut files = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(given) = message {
                files.extend(given);
            }
        }
        if received.bytes == 0 {
            return Ok(None);
        }
        let word = serde_json::from_slice(&bytes[..received.bytes]);
        let word = word.map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
        Ok(Some(Received { word, files }))
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn ends() -> (Channel, Channel) {
        let (one, other) = Channel::pair().unwrap();
        (one, Channel::of(other))
    }

    #[test]
    fn a_socket_arrives_that_goes_on_listening() {
        let (here, there) = ends();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let offered = Offered {
            role: Some(Role::Listener),
            configured: address,
            address,
        };
        let word = Word::Sockets(vec![offered]);
        here.send(&word, &[listener.as_fd()]).unwrap();
        drop(listener);
        let came = there.receive().unwrap().unwrap();
        assert_eq!(came.word, word);
        let [file] = <[OwnedFd; 1]>::try_from(came.files).unwrap();
        assert_eq!(TcpListener::from(file).local_addr().unwrap(), address);
    }

    #[test]
    fn messages_stay_apart_and_an_end_is_told_from_silence() {
        let (here, there) = ends();
        there.wait_at_most(Duration::from_millis(1)).unwrap();
        let silence = there.receive().unwrap_err();
        assert_eq!(silence.kind(), ErrorKind::WouldBlock);
        here.send(&Word::Yours, &[]).unwrap();
        here.send(&Word::Failed("why".into()), &[]).unwrap();
        drop(here);
        for word in [Word::Yours, Word::Failed("why".into())] {
            assert_eq!(there.receive().unwrap().unwrap().word, word);
        }
        assert!(there.receive().unwrap().is_none());
        assert!(there.send(&Word::Yours, &[]).is_err());
    }
}
