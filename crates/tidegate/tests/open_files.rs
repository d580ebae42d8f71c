//! A front-end that may have only few files open: what clients beyond its limit read, and where they are
//! counted.

#![allow(clippy::unwrap_used, reason = "test code")]

mod support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use support::{FrontEnd, folder, free_address, tidegate};

const REFUSED: usize = 200;

/// All that the front-end sends.
fn answer(stream: &mut TcpStream) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// A connection that is served: it asks, and is kept.
fn served(address: SocketAddr) -> Option<TcpStream> {
    let mut stream = TcpStream::connect(address).unwrap();
    (stream.write_all(b"GET / HTTP/1.1\r\nHost: other.example\r\n\r\n")).unwrap();
    let mut head = [0; 12];
    stream.read_exact(&mut head).unwrap();
    match &head {
        b"HTTP/1.1 404" => Some(stream),
        b"HTTP/1.1 503" => None,
        other => panic!("{}", other.escape_ascii()),
    }
}

#[test]
fn each_client_beyond_the_limit_on_files_is_answered_and_counted() {
    let text = format!(
        "[limits]\nworkers = 2\n[[site]]\nname = \"shop\"\nhosts = [\"shop.example\"]\n\
         [[node]]\nname = \"n1\"\naddress = \"{}\"\nsite = \"shop\"\n",
        free_address()
    );
    let front_end = FrontEnd::start_with_files(&folder("open-files"), &text, 128);
    let kept: Vec<_> = std::iter::from_fn(|| served(front_end.address)).collect();
    assert!(kept.len() >= 20, "{}", kept.len());
    let mut refused: Vec<_> = (1..REFUSED)
        .map(|_| TcpStream::connect(front_end.address).unwrap())
        .collect();
    for stream in &mut refused {
        let answer = answer(stream);
        assert!(answer.starts_with("HTTP/1.1 503 "), "{answer:?}");
        assert!(answer.contains("x-tidegate-reason: too_many_connections\r\n"));
    }
    let status = front_end.api("/api/status");
    assert_eq!(status["connections"], kept.len());
    assert_eq!(
        status["connections_refused"]["too_many_connections"],
        REFUSED
    );
    assert_eq!(status["requests"]["received"], kept.len());
    let metric = "tidegate_client_connections_refused_total{reason=\"too_many_connections\"}";
    assert_eq!(front_end.metric(metric), Some(REFUSED as f64));
    let mut command = tidegate();
    command.args(["status", "--admin", &front_end.admin.to_string()]);
    let said = String::from_utf8(command.output().unwrap().stdout).unwrap();
    let line = format!("connections refused unread: {REFUSED} too_many_connections\n");
    assert!(said.contains(&line), "{said}");
}
