//! Connections to nodes with marks by which the network tells them from others: `SO_MARK`,
//! `SO_PRIORITY` and the code point, set before the connection is made, so that its first packet has
//! them.
//!
//! What the system does not permit (`SO_MARK` and priorities above 6 need CAP_NET_ADMIN) is noted
//! once, and the connection is used as it is: a mark that is missing must not fail a request.

use std::io;
use std::net::SocketAddr;

use socket2::SockRef;
use tidegate_core::throttle::Marks;
use tokio::net::{TcpSocket, TcpStream};

use crate::gate::throttle::Throttling;

/// A connection to this address with these marks.
pub(crate) async fn connect(
    address: SocketAddr,
    marks: Marks,
    throttling: &Throttling,
) -> io::Result<TcpStream> {
    if marks.is_none() {
        return TcpStream::connect(address).await;
    }
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    mark(&SockRef::from(&socket), address, marks, throttling);
    socket.connect(address).await
}

fn mark(socket: &SockRef<'_>, address: SocketAddr, marks: Marks, throttling: &Throttling) {
    let note = |what: &str, done: io::Result<()>| {
        if let Err(error) = done {
            throttling.note_unmarked(|| format!("{what}: {error}"));
        }
    };
    // The code point sets the priority too, so the priority comes after it.
    if let Some(class) = marks.traffic_class() {
        match address {
            SocketAddr::V4(_) => note("IP_TOS", socket.set_tos_v4(class)),
            SocketAddr::V6(_) => note("IPV6_TCLASS", socket.set_tclass_v6(class)),
        }
    }
    if let Some(priority) = marks.priority {
        note("SO_PRIORITY", socket.set_priority(priority));
    }
    if let Some(mark) = marks.mark {
        note("SO_MARK", socket.set_mark(mark));
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::net::TcpListener;
    use tokio::runtime::Builder;

    use super::*;

    #[test]
    fn a_connection_has_its_marks_or_it_is_said_why_not() {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
            let address = listener.local_addr().unwrap();
            let throttling = Throttling::new(0);
            let marks = Marks {
                mark: Some(7),
                priority: Some(5),
                dscp: Some(8),
            };
            let stream = connect(address, marks, &throttling).await.unwrap();
            let socket = SockRef::from(&stream);
            assert_eq!(socket.tos_v4().unwrap(), 8 << 2);
            assert_eq!(socket.priority().unwrap(), 5);
            match throttling.unmarked() {
                None => assert_eq!(socket.mark().unwrap(), 7),
                Some(why) => {
                    println!("SKIPPED marks: they are not permitted: {why}");
                    assert!(why.starts_with("SO_MARK: "), "{why}");
                }
            }
            let plain = connect(address, Marks::NONE, &throttling).await.unwrap();
            assert_eq!(SockRef::from(&plain).priority().unwrap(), 0);
        });
    }
}
