//! A server of the tests' own.

use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};

/// Answers every request with its name, and echoes what comes through a tunnel, until the test ends.
pub(crate) fn server(name: &'static str) -> SocketAddr {
    server_at(Ipv4Addr::LOCALHOST.into(), name)
}

/// The same at an address of this host.
pub(crate) fn server_at(ip: IpAddr, name: &'static str) -> SocketAddr {
    server_that(ip, move |stream| serve(stream, name))
}

/// One that serves each connection so, on a thread of its own: until the client has left.
pub(crate) fn server_that(
    ip: IpAddr,
    serve: impl Fn(TcpStream) -> Option<()> + Copy + Send + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind((ip, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            std::thread::spawn(move || serve(stream));
        }
    });
    address
}

/// Until the client has left.
fn serve(mut stream: TcpStream, name: &str) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    loop {
        let head = head(&mut reader)?;
        if head.contains("upgrade: x") {
            let answer =
                "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n";
            stream.write_all(answer.as_bytes()).ok()?;
            std::io::copy(&mut reader, &mut stream).ok()?;
            return None;
        }
        let length = name.len();
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{name}");
        stream.write_all(answer.as_bytes()).ok()?;
    }
}

/// One that answers every request with its name, once it has read the request's body.
pub(crate) fn patient_server(name: &'static str) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().ok()?);
                while let Some(head) = head(&mut reader) {
                    read_body(&mut reader, &head.to_ascii_lowercase()).ok()?;
                    let length = name.len();
                    let answer =
                        format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{name}");
                    stream.write_all(answer.as_bytes()).ok()?;
                }
                Some(())
            });
        }
    });
    address
}

/// Reads a body with a length, or in chunks without trailers; an error where it ends before.
fn read_body(reader: &mut impl BufRead, head: &str) -> std::io::Result<()> {
    let cut = || std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "));
    if let Some(length) = length {
        let mut body = vec![0; length.parse().map_err(|_| cut())?];
        return reader.read_exact(&mut body);
    }
    let mut left = usize::from(head.contains("transfer-encoding: chunked"));
    while left > 0 {
        let mut size = String::new();
        reader.read_line(&mut size)?;
        left = usize::from_str_radix(size.trim(), 16).map_err(|_| cut())?;
        reader.read_exact(&mut vec![0; left + 2])?;
    }
    Ok(())
}

/// The next head; none once there is no more.
pub(crate) fn head(reader: &mut impl BufRead) -> Option<String> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).unwrap_or(0) == 0 {
            return None;
        }
    }
    Some(head)
}
