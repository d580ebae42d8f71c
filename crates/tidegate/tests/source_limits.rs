//! Limits of one source, through the binary itself: clients at several addresses of this host.
#![expect(clippy::unwrap_used, reason = "a test ends where something is missing")]

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};

use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use support::server::{head, server};
use support::{FrontEnd, eventually, folder};

const ONE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 1);
const OTHER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

fn start(name: &str, more: &str) -> FrontEnd {
    let node = server("here");
    let configuration = format!(
        "{more}\n[[site]]\nname = \"shop\"\nhosts = [\"shop.example\"]\n\
         [[node]]\nname = \"n1\"\naddress = \"{node}\"\nsite = \"shop\"\n"
    );
    FrontEnd::start(&folder(name), &configuration)
}

struct Client(BufReader<TcpStream>);

impl Client {
    fn connect(from: Ipv4Addr, to: SocketAddr) -> Self {
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&socket, &SocketAddr::from((from, 0))).unwrap();
        connect(&socket, &to).unwrap();
        Self(BufReader::new(socket.into()))
    }

    /// The status of an answer, and why it is none of the node's.
    fn ask(&mut self) -> (u16, Option<String>) {
        let request = b"GET / HTTP/1.1\r\nHost: shop.example\r\n\r\n";
        // One that is refused may be closed already.
        self.0.get_mut().write_all(request).ok();
        let head = head(&mut self.0).unwrap();
        let value = |name: &str| {
            let mut lines = head.lines();
            lines
                .find_map(|line| line.strip_prefix(name))
                .map(str::to_owned)
        };
        let length = value("content-length: ").unwrap().parse().unwrap();
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, value("x-tidegate-reason: "))
    }
}

#[test]
fn a_source_has_so_many_connections_and_others_are_not_touched() {
    let limits = "[limits]\nper_source = { connections = 2 }";
    let front_end = start("source-connections", limits);
    let mut first = Client::connect(ONE, front_end.address);
    let mut second = Client::connect(ONE, front_end.address);
    for client in [&mut first, &mut second] {
        assert_eq!(client.ask(), (200, None));
    }
    let refused = (429, Some("source_connections".to_owned()));
    let mut third = Client::connect(ONE, front_end.address);
    assert_eq!(third.ask(), refused);
    assert!(
        third.0.fill_buf().is_ok_and(<[u8]>::is_empty),
        "it is closed"
    );
    assert_eq!(Client::connect(OTHER, front_end.address).ask(), (200, None));
    let counted =
        "tidegate_requests_unserved_total{ending=\"rejected\",reason=\"source_connections\"}";
    assert_eq!(front_end.metric(counted), Some(1.0));
    drop(first);
    eventually("there is room for another one", || {
        let (status, _) = Client::connect(ONE, front_end.address).ask();
        (status == 200).then_some(())
    });
    assert_eq!(second.ask(), (200, None));
}

#[test]
fn a_source_sends_so_many_requests_and_trusted_ones_all_they_like() {
    let limits = "[limits]\nper_source = { requests_per_second = 0.001, burst = 3 }\n\
                  [forwarded]\ntrusted = [\"127.0.0.2\"]";
    let front_end = start("source-rate", limits);
    let mut client = Client::connect(ONE, front_end.address);
    for _ in 0..3 {
        assert_eq!(client.ask(), (200, None));
    }
    let refused = (429, Some("source_rate".to_owned()));
    let mut again = Client::connect(ONE, front_end.address);
    assert_eq!(again.ask(), refused);
    let mut trusted = Client::connect(OTHER, front_end.address);
    for _ in 0..10 {
        assert_eq!(trusted.ask(), (200, None));
    }
}
