//! A name server that can be wrong: it answers questions for addresses, about any name, as it is ordered to.
//!
//! ```text
//! question   ID  flags  1 question  name  type  class            RFC 1035 §4.1
//! answer     ID  0x8580 or with an error code, the question again, one record of 16 bytes per address, TTL 1 s
//! ```
//!
//! Questions for other types than A are answered with no record: there is none. What it does not know: what asks.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::cluster::Place;

use super::super::ExperimentError;
use super::reply::Reply;

/// Length of a message's head.
const HEAD: usize = 12;
/// Longest message.
const BYTES_MAX: usize = 512;
/// Response, authoritative, recursion desired and available.
const FLAGS: u16 = 0x8580;
const NO_SUCH_NAME: u16 = 3;
/// Type A, and class IN behind it.
const A: u16 = 1;
const IN: u16 = 1;
const TTL_S: u32 = 1;
/// A pointer to the name in the question, which is behind the head.
const NAME: u16 = 0xc000 | HEAD as u16;
/// How often it looks whether it is over.
const LOOK: Duration = Duration::from_millis(50);

/// See the module.
#[derive(Debug)]
pub(super) struct NameServer {
    address: SocketAddr,
    reply: Arc<Mutex<Reply>>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl NameServer {
    /// One at this place.
    pub(super) fn start(place: &Place, reply: Reply) -> Result<Self, ExperimentError> {
        let unfit = |error: io::Error| ExperimentError::Unfit(format!("the name server: {error}"));
        let bind = || UdpSocket::bind((place.address(), 0));
        let socket = place.inside(bind)?.map_err(unfit)?;
        socket.set_read_timeout(Some(LOOK)).map_err(unfit)?;
        let address = socket.local_addr().map_err(unfit)?;
        let reply = Arc::new(Mutex::new(reply));
        let over = Arc::new(AtomicBool::new(false));
        let (ordered, until) = (Arc::clone(&reply), Arc::clone(&over));
        let serve = move || {
            let mut question = [0; BYTES_MAX];
            while !until.load(Ordering::Acquire) {
                // Nothing has come, or what was sent before has not arrived.
                let Ok((length, from)) = socket.recv_from(&mut question) else {
                    continue;
                };
                let reply = ordered.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(bytes) = answer(&question[..length], &reply) {
                    // A client that is gone asks no more.
                    socket.send_to(&bytes, from).ok();
                }
            }
        };
        Ok(Self {
            address,
            reply,
            over,
            thread: Some(std::thread::spawn(serve)),
        })
    }

    /// Where it is.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// It answers so from now on.
    pub(super) fn order(&self, reply: Reply) {
        *self.reply.lock().unwrap_or_else(PoisonError::into_inner) = reply;
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // A panic of its own was reported already.
            thread.join().ok();
        }
    }
}

/// The answer to a message, if there is to be one.
fn answer(question: &[u8], reply: &Reply) -> Option<Vec<u8>> {
    let asked = question_of(question)?;
    let (code, addresses): (u16, &[Ipv4Addr]) = match reply {
        Reply::Silence => return None,
        Reply::Garbage => return Some(vec![0xff; BYTES_MAX]),
        Reply::Empty => (NO_SUCH_NAME, &[]),
        Reply::Addresses(all) if asked.ends_with(&[A.to_be_bytes(), IN.to_be_bytes()].concat()) => {
            (0, all)
        }
        Reply::Addresses(_) => (0, &[]),
    };
    let mut bytes = question[..2].to_vec();
    let count = addresses.len() as u16;
    for word in [FLAGS | code, 1, count, 0, 0] {
        bytes.extend(word.to_be_bytes());
    }
    bytes.extend(asked);
    for address in addresses {
        for word in [NAME, A, IN] {
            bytes.extend(word.to_be_bytes());
        }
        bytes.extend(TTL_S.to_be_bytes());
        bytes.extend(4_u16.to_be_bytes());
        bytes.extend(address.octets());
    }
    Some(bytes)
}

/// The first question of a message: name, type and class.
fn question_of(message: &[u8]) -> Option<&[u8]> {
    let body = message.get(HEAD..)?;
    let mut end = 0;
    loop {
        match *body.get(end)? {
            0 => return body.get(..end + 1 + 4),
            length => end += usize::from(length) + 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(kind: u16) -> Vec<u8> {
        let mut bytes = vec![0xab, 0xcd, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        bytes.extend(b"\x04shop\x00");
        bytes.extend(kind.to_be_bytes());
        bytes.extend(IN.to_be_bytes());
        bytes
    }

    #[test]
    fn it_answers_as_ordered() {
        let two = vec![Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)];
        let two = Reply::Addresses(two);
        let found = answer(&question(A), &two).unwrap();
        assert_eq!(found[..8], [0xab, 0xcd, 0x85, 0x80, 0, 1, 0, 2]);
        assert_eq!(found.len(), question(A).len() + 2 * 16);
        assert!(found.ends_with(&[0, 0, 0, 1, 0, 4, 10, 0, 0, 2]));
        let other = answer(&question(28), &two).unwrap();
        assert_eq!(other[6..8], [0, 0]);
        let none = answer(&question(A), &Reply::Empty).unwrap();
        assert_eq!(none[2..4], [0x85, 0x83]);
        assert_eq!(answer(&question(A), &Reply::Silence), None);
        assert_eq!(answer(&question(A)[..14], &two), None, "it is cut off");
    }
}
