//! Two sites before one thing that bears one request at a time, through the binary itself.

#![allow(clippy::unwrap_used, reason = "test code")]

mod support;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use support::{FrontEnd, Response, eventually, folder};

/// A request at the server, which has read its head.
fn arrived(listener: &TcpListener) -> TcpStream {
    let (mut stream, _) = listener.accept().unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    stream
}

fn answer(mut stream: TcpStream) {
    let text = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";
    stream.write_all(text.as_bytes()).unwrap();
}

#[test]
fn a_group_at_its_limit_lets_the_other_site_wait() {
    let [shop, blog] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let text = format!(
        "[limits]\nworkers = 1\n\
         [[site]]\nname = \"shop\"\nhosts = [\"shop.example\"]\nadmission = {{ slo = \"60s\" }}\n\
         [[site]]\nname = \"blog\"\nhosts = [\"blog.example\"]\nadmission = {{ slo = \"60s\" }}\n\
         [[node]]\nname = \"s1\"\naddress = \"{}\"\nsite = \"shop\"\n\
         [[node]]\nname = \"b1\"\naddress = \"{}\"\nsite = \"blog\"\n\
         [[group]]\nname = \"database\"\nlimit = 1\nsites = {{ shop = 3, blog = 1 }}\n",
        shop.local_addr().unwrap(),
        blog.local_addr().unwrap()
    );
    let front_end = FrontEnd::start(&folder("groups"), &text);
    thread::scope(|scope| {
        let get = |host: &'static str| {
            let front_end = &front_end;
            scope.spawn(move || -> Response { front_end.get(host, "/") })
        };
        let first = get("shop.example");
        let at_shop = arrived(&shop);
        let second = get("blog.example");
        eventually("the other waits", || {
            let waits = front_end.metric("tidegate_site_no_room_total{site=\"blog\"}");
            waits.filter(|count| *count == 1.0)
        });
        let in_flight = "tidegate_group_in_flight{group=\"database\"}";
        assert_eq!(front_end.metric(in_flight), Some(1.0));
        assert!(!second.is_finished());
        answer(at_shop);
        answer(arrived(&blog));
        for request in [first, second] {
            let answer = request.join().unwrap();
            assert_eq!((answer.status, answer.body.as_str()), (200, "ok"));
        }
        eventually("nothing is in flight", || {
            front_end.metric(in_flight).filter(|count| *count == 0.0)
        });
    });
}
