//! The reader's half: asks a target in one of the ways.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use tidegate_core::record::{LINE_BYTES, RECORD_BYTES_MAX};
use tidegate_remote::Region;
use tidegate_remote::rdma::{RdmaOptions, RdmaRegion};
use tidegate_remote::udp::{UdpOptions, UdpRegion};

use super::target::{ADD, READ, SWAP, Says, WORD, key};
use super::{GIVEN_UP, Operation, PointsError, Way};

/// A device in an emulated machine may take its time.
const CARD: RdmaOptions = RdmaOptions {
    wait: Duration::from_millis(500),
};
/// To be connected takes answers of a process that competes with hogs.
const CONNECTING: UdpOptions = UdpOptions {
    wait: Duration::from_secs(2),
    tries: 5,
};
/// A datagram that is not answered is not sent again.
const ONCE: UdpOptions = UdpOptions {
    wait: GIVEN_UP,
    tries: 1,
};

/// One connection to the target.
pub(super) enum Asker {
    /// RDMA or UDP.
    Region {
        /// For records.
        records: Box<dyn Region + Send>,
        /// For atomics.
        words: Box<dyn Region + Send>,
        /// What the word held last.
        held: u64,
    },
    Tcp(SocketAddr, TcpStream),
}

fn rdma(address: SocketAddr) -> Result<Box<dyn Region + Send>, PointsError> {
    let wire = UdpRegion::connect(address, key(), CONNECTING)?;
    Ok(Box::new(RdmaRegion::new(wire, CARD)))
}

fn udp(address: SocketAddr) -> Result<Box<dyn Region + Send>, PointsError> {
    Ok(Box::new(UdpRegion::connect(address, key(), ONCE)?))
}

impl Asker {
    /// Nothing if the target has no such way.
    pub(super) fn new(way: Way, says: &Says) -> Result<Option<Self>, PointsError> {
        let (records, words) = match way {
            // Its node grants no words.
            Way::Read => (rdma(says.read)?, rdma(says.record)?),
            Way::Record => (rdma(says.record)?, rdma(says.record)?),
            Way::Kernel => match says.kernel {
                Some(kernel) => (rdma(kernel)?, rdma(says.record)?),
                None => return Ok(None),
            },
            Way::UdpRealtime => (udp(says.udp_realtime)?, udp(says.udp_realtime)?),
            Way::Udp => (udp(says.udp)?, udp(says.udp)?),
            Way::Tcp => {
                let stream = connect(says.tcp).map_err(PointsError::io("connect"))?;
                return Ok(Some(Self::Tcp(says.tcp, stream)));
            }
        };
        Ok(Some(Self::Region {
            records,
            words,
            held: 0,
        }))
    }

    /// Asks once; whether there was an answer.
    pub(super) fn ask(&mut self, operation: Operation) -> bool {
        match self {
            Self::Region {
                records,
                words,
                held,
            } => match operation {
                Operation::Read(lines) => records.read(lines).is_ok(),
                Operation::FetchAndAdd => words.fetch_and_add(WORD, 1).is_ok(),
                Operation::CompareAndSwap => {
                    let new = held.wrapping_add(1);
                    let found = words.compare_and_swap(WORD, *held, new);
                    // The next one succeeds too.
                    let after = |found: u64| if found == *held { new } else { found };
                    let next = found.as_ref().map(|found| after(*found)).ok();
                    *held = next.unwrap_or(*held);
                    next.is_some()
                }
            },
            Self::Tcp(address, stream) => {
                let answered = exchange(stream, operation).is_ok();
                if !answered && let Ok(anew) = connect(*address) {
                    *stream = anew;
                }
                answered
            }
        }
    }
}

fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, Duration::from_secs(10))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(GIVEN_UP))?;
    Ok(stream)
}

fn exchange(stream: &mut TcpStream, operation: Operation) -> io::Result<()> {
    let (question, bytes) = match operation {
        Operation::Read(lines) => ([READ, lines as u8], lines * LINE_BYTES),
        Operation::FetchAndAdd => ([ADD, 0], size_of::<u64>()),
        Operation::CompareAndSwap => ([SWAP, 0], size_of::<u64>()),
    };
    stream.write_all(&question)?;
    let mut answer = [0; RECORD_BYTES_MAX];
    let answer = answer.get_mut(..bytes);
    stream.read_exact(answer.ok_or(io::ErrorKind::InvalidInput)?)
}
