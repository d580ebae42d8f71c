//! A server of the tests' own that speaks TLS.
//!
//! | path | what it does |
//! |---|---|
//! | with `upgrade: x` | agrees, and echoes what comes |
//! | `/close` | answers, and ends the connection with `close_notify` |
//! | `/until-end` | answers with a body that ends with the connection, by `close_notify` |
//! | `/cut` | the same, by a FIN alone |
//! | any other | answers with its name |

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{
    HandshakeKind, ServerConfig, ServerConnection, StreamOwned, SupportedProtocolVersion, crypto,
    version,
};

use super::tls::Pair;

/// See the module. It is there until the test ends.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    seen: Arc<Visits>,
}

#[derive(Default)]
struct Visits {
    connections: AtomicUsize,
    resumed: AtomicUsize,
    heads: Mutex<Vec<String>>,
}

impl Server {
    pub(crate) fn start(name: &'static str, pair: &Pair) -> Self {
        Self::speaking(&[&version::TLS13, &version::TLS12], name, pair)
    }

    /// The same with these versions alone.
    pub(crate) fn speaking(
        versions: &[&'static SupportedProtocolVersion],
        name: &'static str,
        pair: &Pair,
    ) -> Self {
        let chain = CertificateDer::pem_file_iter(&pair.certificate).unwrap();
        let chain = chain.map(Result::unwrap).collect();
        let key = PrivateKeyDer::from_pem_file(&pair.key).unwrap();
        let provider = Arc::new(crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider);
        let builder = builder.with_protocol_versions(versions).unwrap();
        let config = builder.with_no_client_auth().with_single_cert(chain, key);
        let config = Arc::new(config.unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Self {
            address: listener.local_addr().unwrap(),
            seen: Arc::default(),
        };
        let own = server.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (server, config) = (own.clone(), Arc::clone(&config));
                let stream = stream.unwrap();
                std::thread::spawn(move || server.serve(stream, config, name));
            }
        });
        server
    }

    /// Connections whose handshake was over.
    pub(crate) fn connections(&self) -> usize {
        self.seen.connections.load(Ordering::SeqCst)
    }

    /// Those of them that went on with an earlier session.
    pub(crate) fn resumed(&self) -> usize {
        self.seen.resumed.load(Ordering::SeqCst)
    }

    /// What it was asked so far.
    pub(crate) fn heads(&self) -> Vec<String> {
        self.seen.heads.lock().unwrap().clone()
    }

    /// Until the client has left.
    fn serve(&self, mut stream: TcpStream, config: Arc<ServerConfig>, name: &str) -> Option<()> {
        let mut session = ServerConnection::new(config).ok()?;
        while session.is_handshaking() {
            session.complete_io(&mut stream).ok()?;
        }
        self.seen.connections.fetch_add(1, Ordering::SeqCst);
        if session.handshake_kind() == Some(HandshakeKind::Resumed) {
            self.seen.resumed.fetch_add(1, Ordering::SeqCst);
        }
        let mut stream = StreamOwned::new(session, stream);
        loop {
            let head = head(&mut stream)?;
            self.seen.heads.lock().unwrap().push(head.clone());
            if head.contains("upgrade: x\r\n") {
                let agreed =
                    "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n";
                stream.write_all(agreed.as_bytes()).ok()?;
                echo(&mut stream);
                return end(stream);
            }
            let path = head.split(' ').nth(1)?;
            let length = match path {
                "/until-end" | "/cut" => "connection: close".to_owned(),
                _ => format!("content-length: {}", name.len()),
            };
            let answer = format!("HTTP/1.1 200 OK\r\n{length}\r\n\r\n{name}");
            stream.write_all(answer.as_bytes()).ok()?;
            stream.flush().ok()?;
            match path {
                "/close" | "/until-end" => return end(stream),
                "/cut" => return stream.sock.shutdown(Shutdown::Both).ok(),
                _ => {}
            }
        }
    }
}

type Stream = StreamOwned<ServerConnection, TcpStream>;

fn head(stream: &mut Stream) -> Option<String> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).ok()? == 0 {
            return None;
        }
        head.push(byte[0]);
    }
    String::from_utf8(head).ok()
}

fn echo(stream: &mut Stream) {
    let mut piece = [0; 4096];
    while let Ok(count @ 1..) = stream.read(&mut piece) {
        if stream.write_all(&piece[..count]).is_err() || stream.flush().is_err() {
            return;
        }
    }
}

fn end(mut stream: Stream) -> Option<()> {
    stream.conn.send_close_notify();
    stream.flush().ok()?;
    stream.sock.shutdown(Shutdown::Write).ok()
}
