//! A server for tests that answers as it is told to, connection by connection.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::ServerUrl;

/// What a connection gets, in order. It is closed at the end.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// These bytes.
    Send(String),
    /// Nothing more, until the server goes on.
    Wait,
    /// Nothing more.
    Hang,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Server {
    address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
    proceed: Arc<Notify>,
    task: JoinHandle<()>,
}

impl Server {
    /// Each connection gets the next script; one without is closed at once.
    pub(crate) async fn start(scripts: Vec<Vec<Act>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let heads = Arc::new(Mutex::new(Vec::new()));
        let proceed = Arc::new(Notify::new());
        let mut scripts = VecDeque::from(scripts);
        let (said, go_on) = (Arc::clone(&heads), Arc::clone(&proceed));
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                if let Some(script) = scripts.pop_front() {
                    tokio::spawn(play(stream, script, Arc::clone(&said), Arc::clone(&go_on)));
                }
            }
        });
        Self {
            address,
            heads,
            proceed,
            task,
        }
    }

    pub(crate) fn url(&self) -> ServerUrl {
        format!("http://{}", self.address).parse().unwrap()
    }

    /// A script that waits goes on.
    pub(crate) fn proceed(&self) {
        self.proceed.notify_one();
    }

    /// The heads of all requests so far.
    pub(crate) fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn play(
    mut stream: TcpStream,
    script: Vec<Act>,
    heads: Arc<Mutex<Vec<String>>>,
    proceed: Arc<Notify>,
) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return,
        }
    }
    let head = String::from_utf8(head).unwrap();
    heads.lock().unwrap().push(head);
    for act in script {
        match act {
            // The client may leave in the middle.
            Act::Send(text) => drop(stream.write_all(text.as_bytes()).await),
            Act::Wait => proceed.notified().await,
            Act::Hang => std::future::pending().await,
        }
    }
}

/// A whole answer.
pub(crate) fn answer(status: &str, fields: &str, body: &str) -> Vec<Act> {
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\n{fields}content-length: {length}\r\n\r\n");
    vec![Act::Send(head + body)]
}

/// A file of this process with this text.
pub(crate) fn file(name: &str, text: &str) -> PathBuf {
    let name = format!("tidegate-discover-{name}-{}", std::process::id());
    let path = std::env::temp_dir().join(name);
    std::fs::write(&path, text).unwrap();
    path
}
