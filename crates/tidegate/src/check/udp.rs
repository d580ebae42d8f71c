//! `udp`: a datagram that is sent, and the one that answers it.
//!
//! A machine where nothing takes datagrams at the port says so (ICMP), which fails the check at once. If nothing
//! comes at all, the check fails at its time-out: a lost datagram is one failed check, so `fall` should be more than one.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use tidegate_core::topology::{BytesCheck, CheckFailure};
use tidegate_proxy::is_own_fault;
use tokio::net::UdpSocket;

use super::{ANSWER_BYTES_MAX, Unwell, contains};

pub(super) async fn ask(address: SocketAddr, wanted: &BytesCheck) -> Result<(), Unwell> {
    let socket = connect(address).await?;
    socket.send(&wanted.send).await.map_err(unwell)?;
    let mut answer = vec![0; ANSWER_BYTES_MAX];
    let count = socket.recv(&mut answer).await.map_err(unwell)?;
    match contains(&answer[..count], &wanted.expect) {
        true => Ok(()),
        false => Err(CheckFailure::Answer.into()),
    }
}

/// A socket that takes datagrams from there alone.
pub(super) async fn connect(address: SocketAddr) -> Result<UdpSocket, Unwell> {
    let any: SocketAddr = match address {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any).await.map_err(|_| Unwell::Unasked)?;
    socket.connect(address).await.map_err(unwell)?;
    Ok(socket)
}

/// What an error of a socket says of the node.
pub(super) fn unwell(error: std::io::Error) -> Unwell {
    if is_own_fault(&error) {
        return Unwell::Unasked;
    }
    match error.kind() == ErrorKind::ConnectionRefused {
        true => CheckFailure::Refused.into(),
        false => CheckFailure::Connect.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    /// What a check makes of a server that answers so.
    fn answers(expect: &[u8], answer: &[u8]) -> Result<(), Unwell> {
        let wanted = BytesCheck {
            send: b"\0\x01status".into(),
            expect: expect.into(),
        };
        testing::runtime().block_on(async {
            let server = UdpSocket::bind("127.0.0.1:0").await.unwrap();
            let address = server.local_addr().unwrap();
            let server = async {
                let mut asked = [0; 64];
                let (count, from) = server.recv_from(&mut asked).await.unwrap();
                assert_eq!(&asked[..count], b"\0\x01status");
                server.send_to(answer, from).await.unwrap();
            };
            tokio::join!(ask(address, &wanted), server).0
        })
    }

    #[test]
    fn a_datagram_is_answered_as_wanted() {
        assert_eq!(answers(b"well", b"all well"), Ok(()));
        let failed = Err(CheckFailure::Answer.into());
        assert_eq!(answers(b"well", b"wel"), failed);
        assert_eq!(answers(b"well", b""), failed);
        assert_eq!(answers(b"well", &[b'x'; 60_000]), failed);
        assert_eq!(answers(b"", b""), Ok(()), "any answer");
        assert_eq!(answers(b"", b"\xff\0"), Ok(()));
    }

    #[test]
    fn a_port_where_nothing_listens_fails_at_once() {
        testing::runtime().block_on(async {
            let server = UdpSocket::bind("127.0.0.1:0").await.unwrap();
            let address = server.local_addr().unwrap();
            drop(server);
            let wanted = BytesCheck {
                send: b"status".into(),
                ..BytesCheck::NOTHING
            };
            let failed = Err(CheckFailure::Refused.into());
            assert_eq!(ask(address, &wanted).await, failed);
        });
    }
}
