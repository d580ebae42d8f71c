//! A client of a front-end.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Asks over one connection until the test says enough; how often, and what was wrong.
pub(crate) fn ask_for_ever(
    front_end: SocketAddr,
    host: &str,
    enough: &AtomicBool,
    asked: &AtomicUsize,
) {
    let mut stream = TcpStream::connect(front_end).unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let request = format!("GET / HTTP/1.1\r\nhost: {host}\r\n\r\n");
    while !enough.load(Ordering::Relaxed) {
        stream.write_all(request.as_bytes()).unwrap();
        let (mut head, mut length) = (String::new(), 0);
        while !head.ends_with("\r\n\r\n") {
            let before = head.len();
            assert_ne!(reader.read_line(&mut head).unwrap(), 0, "cut: {head}");
            let line = head[before..].to_ascii_lowercase();
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        assert!(head.starts_with("HTTP/1.1 200 "), "{host}: {head}");
        asked.fetch_add(1, Ordering::Relaxed);
    }
}
