//! How a refused client gets to read its answer: closing a socket with unread bytes makes the kernel
//! reset it, and a reset can overtake the answer. So a refused connection lingers: its sending side
//! is closed, and what still comes is read and thrown away, for a while and up to a size.
//!
//! A client that was refused unread costs no task and no timer: the worker's clock looks at those sockets
//! once per tick.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read};
use std::net::Shutdown;
use std::time::Duration;

use bytes::Bytes;
use socket2::Socket;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// What a refused client may still send before it is cut off.
const BYTES_MAX: usize = 1 << 20;

/// Sends a last answer, if there is one, and lets the client read it.
pub(crate) async fn linger(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    answer: Option<Bytes>,
    limit: Duration,
) {
    let farewell = async {
        if let Some(answer) = answer {
            stream.write_all(&answer).await?;
        }
        stream.shutdown().await?;
        let mut sink = vec![0; 4096];
        let mut left = BYTES_MAX;
        while left > 0 {
            let read = stream.read(&mut sink).await?;
            if read == 0 {
                break;
            }
            left = left.saturating_sub(read);
        }
        std::io::Result::Ok(())
    };
    // Whatever goes wrong here goes wrong for a client that has left.
    tokio::time::timeout(limit, farewell).await.ok();
}

/// Sockets whose answer is out.
#[derive(Debug, Default)]
pub(crate) struct Lingering {
    /// The oldest first.
    sockets: VecDeque<Answered>,
}

#[derive(Debug)]
struct Answered {
    socket: Socket,
    /// The tick at which it is closed, whatever its client does.
    until: u64,
    left: usize,
}

impl Lingering {
    pub(crate) fn len(&self) -> usize {
        self.sockets.len()
    }

    /// A socket whose answer is out.
    pub(crate) fn push(&mut self, socket: Socket, until: u64) {
        // A client that has left has nothing to read any more.
        if socket.shutdown(Shutdown::Write).is_ok() {
            self.sockets.push_back(Answered {
                socket,
                until,
                left: BYTES_MAX,
            });
        }
    }

    /// Closes the oldest one, if there is one. What has come from its client is read before: a reset would
    /// follow otherwise.
    pub(crate) fn evict(&mut self, scratch: &mut [u8]) -> bool {
        let oldest = self.sockets.pop_front();
        oldest.is_some_and(|mut oldest| {
            oldest.is_open(scratch);
            true
        })
    }

    /// Throws away what has come, and closes what is done.
    pub(crate) fn on_tick(&mut self, tick: u64, scratch: &mut [u8]) {
        self.sockets
            .retain_mut(|it| tick < it.until && it.is_open(scratch));
    }
}

impl Answered {
    /// Whether its client has neither closed nor sent too much.
    fn is_open(&mut self, scratch: &mut [u8]) -> bool {
        while self.left > 0 {
            match (&self.socket).read(scratch) {
                Ok(0) => return false,
                Ok(read) => self.left = self.left.saturating_sub(read),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::mem::MaybeUninit;
    use std::net::{TcpListener, TcpStream};

    use super::*;

    fn pair() -> (TcpStream, Socket) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        server.set_nonblocking(true).unwrap();
        (client, server.into())
    }

    #[test]
    fn a_socket_stays_until_its_client_closes_or_its_time_is_over() {
        let mut scratch = [0; 64];
        let mut lingering = Lingering::default();
        let (mut stays, socket) = pair();
        lingering.push(socket, 5);
        let (leaves, socket) = pair();
        lingering.push(socket, 5);
        stays.write_all(&[b'x'; 1000]).unwrap();
        drop(leaves);
        while lingering.len() > 1 {
            lingering.on_tick(1, &mut scratch);
        }
        let mut rest = Vec::new();
        assert_eq!(stays.read_to_end(&mut rest).unwrap(), 0, "an end, no reset");
        lingering.on_tick(4, &mut scratch);
        assert_eq!(lingering.len(), 1);
        lingering.on_tick(5, &mut scratch);
        assert_eq!(lingering.len(), 0);
    }

    #[test]
    fn the_oldest_makes_room_and_its_client_reads_the_end() {
        let mut scratch = [0; 64];
        let mut lingering = Lingering::default();
        assert!(!lingering.evict(&mut scratch));
        let (mut first, socket) = pair();
        lingering.push(socket, 5);
        let (_second, socket) = pair();
        lingering.push(socket, 5);
        first.write_all(&[b'x'; 1000]).unwrap();
        let arrived = |it: &Answered| it.socket.peek(&mut [MaybeUninit::uninit()]).is_ok();
        while !arrived(&lingering.sockets[0]) {}
        assert!(lingering.evict(&mut scratch));
        let mut rest = Vec::new();
        assert_eq!(first.read_to_end(&mut rest).unwrap(), 0, "an end, no reset");
        assert_eq!(lingering.len(), 1);
    }

    #[test]
    fn a_client_may_send_so_much_and_no_more() {
        let mut scratch = vec![0; 1 << 16];
        let mut lingering = Lingering::default();
        let (client, socket) = pair();
        lingering.push(socket, u64::MAX);
        let mut open_after = |bytes: usize| {
            let mut client = client.try_clone().unwrap();
            let sender = std::thread::spawn(move || client.write_all(&vec![0; bytes]));
            let left = |lingering: &Lingering| lingering.sockets.front().map_or(0, |it| it.left);
            let before = left(&lingering);
            while lingering.len() > 0 && before - left(&lingering) < bytes {
                lingering.on_tick(1, &mut scratch);
            }
            sender.join().unwrap().unwrap();
            lingering.len()
        };
        assert_eq!(open_after(BYTES_MAX - 1), 1);
        assert_eq!(open_after(1), 0);
    }

    #[tokio::test]
    async fn a_client_that_has_sent_so_much_is_waited_for_no_longer() {
        let (client, socket) = pair();
        let server = tokio::net::TcpStream::from_std(socket.into()).unwrap();
        let sender = std::thread::spawn(move || {
            (&client).write_all(&[0; BYTES_MAX]).unwrap();
            client
        });
        // It neither closes nor runs out of time.
        let lingers = linger(server, None, Duration::MAX);
        tokio::time::timeout(Duration::from_secs(30), lingers)
            .await
            .unwrap();
        drop(sender.join().unwrap());
    }

    #[test]
    fn a_client_that_never_stops_sending_is_cut_off() {
        let mut scratch = vec![0; 1 << 16];
        let mut lingering = Lingering::default();
        let (client, socket) = pair();
        lingering.push(socket, u64::MAX);
        let sender = std::thread::spawn(move || {
            let bytes = [0; 4096];
            // Ends when the other side is closed.
            while (&client).write_all(&bytes).is_ok() {}
        });
        while lingering.len() > 0 {
            lingering.on_tick(1, &mut scratch);
        }
        sender.join().unwrap();
    }
}
