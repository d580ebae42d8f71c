//! A server that answers with the head that it got, and counts its requests.

use std::io::{BufReader, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::server::head;

/// See the module.
pub(crate) struct Mirror {
    pub(crate) address: SocketAddr,
    requests: Arc<AtomicUsize>,
}

impl Mirror {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&requests);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let counted = Arc::clone(&counted);
                std::thread::spawn(move || {
                    let mut reader = BufReader::new(stream.try_clone().unwrap());
                    while let Some(head) = head(&mut reader) {
                        counted.fetch_add(1, Ordering::Relaxed);
                        let length = head.len();
                        let answer = format!(
                            "HTTP/1.1 200 OK\r\nserver: mirror\r\ncontent-length: {length}\r\n\r\n{head}"
                        );
                        if stream.write_all(answer.as_bytes()).is_err() {
                            return;
                        }
                    }
                });
            }
        });
        Self { address, requests }
    }

    /// How many there were.
    pub(crate) fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }
}
