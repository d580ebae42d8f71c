//! A TCP server of the lab's own: each connection is served by a function, on a thread of its own.
//!
//! What it does not know: what is spoken.

use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use crate::cluster::Place;

use super::super::ExperimentError;

/// Longest head that is read.
const HEAD_MAX: usize = 4096;

/// See the module. It ends when this is dropped; connections that are open end by themselves.
#[derive(Debug)]
pub(super) struct Service {
    address: SocketAddr,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    place: Place,
}

impl Service {
    /// One at this address of a place; an error of a connection ends that connection only.
    pub(super) fn start(
        place: &Place,
        ip: IpAddr,
        serve: impl Fn(TcpStream) -> io::Result<()> + Clone + Send + 'static,
    ) -> Result<Self, ExperimentError> {
        let unfit = |error: io::Error| ExperimentError::Unfit(format!("a server: {error}"));
        let bind = || TcpListener::bind((ip, 0));
        let listener = place.inside(bind)?.map_err(unfit)?;
        let address = listener.local_addr().map_err(unfit)?;
        let over = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&over);
        let accept = move || {
            for stream in listener.incoming() {
                if until.load(Ordering::Acquire) {
                    return;
                }
                // A client that goes away ends its own connection only.
                if let Ok(stream) = stream {
                    let serve = serve.clone();
                    std::thread::spawn(move || serve(stream));
                }
            }
        };
        Ok(Self {
            address,
            over,
            thread: Some(std::thread::spawn(accept)),
            place: place.clone(),
        })
    }

    /// Where it is.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        let wake = || TcpStream::connect(self.address).is_ok();
        if matches!(self.place.inside(wake), Ok(true))
            && let Some(thread) = self.thread.take()
        {
            // It ends at this connection; a panic of its own was reported already.
            thread.join().ok();
        }
    }
}

/// A head of HTTP/1.1 to its empty line, byte by byte: what follows belongs to others.
pub(super) fn head(stream: &mut impl Read) -> io::Result<String> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() == HEAD_MAX {
            return Err(io::Error::other("the head is too long"));
        }
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}
