//! A proxy between raw sockets: clients and nodes that say exactly what a test wants them to.
#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "test code; every test file uses another part of it"
)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use tidegate_core::admission::AdmissionConfig;
use tidegate_core::director::Director;
use tidegate_core::load::LoadTable;
use tidegate_core::policy::{PolicyConfig, PolicyKind};
use tidegate_core::time::{Timestamp, nanos};
use tidegate_core::topology::{Capacity, ClusterSpec, NodeId, NodeSpec, SiteId, SiteSpec};
use tidegate_proxy::{
    DelayExperiments, ListenerConfig, LoadReports, Proxy, ProxyConfig, Shared, SiteConfig,
    Snapshot, Stats, Throttling,
};

/// Long enough for any machine; a test that waits this long has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Most requests that a delay experiment holds at once.
pub(crate) const TEST_HELD_MAX: usize = 32;

#[expect(
    clippy::disallowed_methods,
    reason = "the clock that proxies are given in tests"
)]
pub(crate) fn clock() -> Timestamp {
    static START: OnceLock<Instant> = OnceLock::new();
    let start = START.get_or_init(Instant::now);
    Timestamp::from_nanos(nanos(start.elapsed()) + 1)
}

/// Waits for something that another thread brings about.
#[expect(
    clippy::disallowed_methods,
    reason = "a test gives up on the real clock"
)]
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "in vain: {what}");
        // What is waited for needs the processor more than this loop does.
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

/// A node: every connection gets a thread that runs the handler.
pub(crate) struct Node {
    pub(crate) address: SocketAddr,
    pub(crate) connections: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
}

impl Node {
    pub(crate) fn start(handler: impl Fn(&mut Peer) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        let (counter, stopped, handler) = (
            Arc::clone(&connections),
            Arc::clone(&stop),
            Arc::new(handler),
        );
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stopped.load(Ordering::SeqCst) {
                    break;
                }
                let Ok(stream) = stream else { continue };
                counter.fetch_add(1, Ordering::SeqCst);
                let handler = Arc::clone(&handler);
                std::thread::spawn(move || handler(&mut Peer::new(stream)));
            }
        });
        Self {
            address,
            connections,
            stop,
        }
    }

    /// A node that answers every request with this.
    pub(crate) fn answering(answer: impl Fn(&Message) -> Vec<u8> + Send + Sync + 'static) -> Self {
        Self::start(move |peer| {
            while let Some(request) = peer.read_message() {
                if peer.write(&answer(&request)).is_err() {
                    break;
                }
            }
        })
    }

    /// A node that says `ok`.
    pub(crate) fn ok() -> Self {
        Self::answering(|_| ok("ok"))
    }

    /// An address without a listener.
    pub(crate) fn nobody() -> SocketAddr {
        TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        drop(TcpStream::connect(self.address));
    }
}

pub(crate) fn ok(body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{body}").into_bytes()
}

/// A node that answers `/now` at once, and everything else at the signal.
pub(crate) struct Gated {
    pub(crate) node: Node,
    open: Sender<()>,
}

impl Gated {
    pub(crate) fn new() -> Self {
        let (open, gate) = channel();
        let gate: Arc<Mutex<Receiver<()>>> = Arc::new(Mutex::new(gate));
        let node = Node::answering(move |request: &Message| {
            if !request.start.contains("/now") {
                let gate = gate.lock().unwrap_or_else(PoisonError::into_inner);
                gate.recv().ok();
            }
            ok("served")
        });
        Self { node, open }
    }

    /// Lets one request go.
    pub(crate) fn open(&self) {
        self.open.send(()).ok();
    }
}

/// Asks for a path, and does not wait for the answer.
pub(crate) fn ask(client: &mut Peer, path: &str) {
    client.send(&format!(
        "GET {path} HTTP/1.1\r\nhost: shop.example\r\n\r\n"
    ));
}

/// A message as it came.
#[derive(Clone, Debug, Default)]
pub(crate) struct Message {
    pub(crate) start: String,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Vec<(String, String)>,
}

impl Message {
    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        let found = self.fields.iter().filter(|(it, _)| it == name);
        found.map(|(_, value)| value.as_str()).collect()
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.all(name).first().copied()
    }

    pub(crate) fn status(&self) -> u16 {
        self.start.split(' ').nth(1).unwrap().parse().unwrap()
    }

    pub(crate) fn reason(&self) -> Option<&str> {
        self.get("x-tidegate-reason")
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

/// One end of a connection.
pub(crate) struct Peer {
    pub(crate) reader: BufReader<TcpStream>,
}

impl Peer {
    pub(crate) fn new(stream: TcpStream) -> Self {
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Self {
            reader: BufReader::new(stream),
        }
    }

    pub(crate) fn connect(address: SocketAddr) -> Self {
        Self::new(TcpStream::connect(address).unwrap())
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        self.reader.get_ref()
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.reader.get_mut().write_all(bytes)
    }

    pub(crate) fn send(&mut self, text: &str) {
        self.write(text.as_bytes()).unwrap();
    }

    pub(crate) fn get(&mut self, path: &str) -> Message {
        self.send(&format!(
            "GET {path} HTTP/1.1\r\nhost: shop.example\r\n\r\n"
        ));
        self.read_response(false)
    }

    pub(crate) fn shut(&self) {
        self.stream().shutdown(Shutdown::Write).unwrap();
    }

    /// Whether the other side has closed.
    pub(crate) fn is_closed(&mut self) -> bool {
        let mut rest = Vec::new();
        match self.reader.read_to_end(&mut rest) {
            Ok(_) => rest.is_empty(),
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }

    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        match self.reader.read_line(&mut line) {
            Ok(0) | Err(_) => None,
            Ok(_) => Some(line.trim_end().to_owned()),
        }
    }

    fn fields(&mut self) -> Option<Vec<(String, String)>> {
        let mut fields = Vec::new();
        loop {
            let line = self.line()?;
            if line.is_empty() {
                return Some(fields);
            }
            let (name, value) = line.split_once(':').unwrap_or((&line, ""));
            fields.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
    }

    pub(crate) fn read_head(&mut self) -> Option<Message> {
        Some(Message {
            start: self.line()?,
            fields: self.fields()?,
            ..Message::default()
        })
    }

    fn read_chunks(&mut self, message: &mut Message) -> Option<()> {
        loop {
            let size = usize::from_str_radix(&self.line()?, 16).ok()?;
            if size == 0 {
                message.trailers = self.fields()?;
                return Some(());
            }
            let from = message.body.len();
            message.body.resize(from + size, 0);
            self.reader.read_exact(&mut message.body[from..]).ok()?;
            self.line()?;
        }
    }

    fn read_body(&mut self, message: &mut Message) -> Option<()> {
        if message.get("transfer-encoding").is_some() {
            return self.read_chunks(message);
        }
        let length = message.get("content-length").unwrap_or("0");
        message.body = vec![0; length.parse().ok()?];
        self.reader.read_exact(&mut message.body).ok()
    }

    /// A request, or a response that has a length; None at the end of the stream.
    pub(crate) fn read_message(&mut self) -> Option<Message> {
        let mut message = self.read_head()?;
        self.read_body(&mut message)?;
        Some(message)
    }

    pub(crate) fn read_response(&mut self, bodyless: bool) -> Message {
        let mut message = self.read_head().expect("a response");
        if !bodyless {
            self.read_body(&mut message).expect("a whole response");
        }
        message
    }
}

/// A site whose nodes listen at these addresses.
pub(crate) fn cluster(nodes: &[SocketAddr]) -> ClusterSpec {
    let node = |(index, address): (usize, &SocketAddr)| NodeSpec {
        name: format!("n{index}"),
        address: *address,
        site: SiteId(0),
        weight: 1.0,
        capacity: Capacity::default(),
    };
    ClusterSpec {
        sites: vec![SiteSpec {
            name: "shop".into(),
            hosts: vec!["shop.example".into()],
            paths: Vec::new(),
            policy: PolicyConfig::new(PolicyKind::Random),
            admission: AdmissionConfig::default(),
            health: Default::default(),
        }],
        nodes: nodes.iter().enumerate().map(node).collect(),
        groups: Vec::new(),
        front_ends: 1,
    }
}

pub(crate) fn config() -> ProxyConfig {
    let mut config = ProxyConfig::new(clock);
    let address = "127.0.0.1:0".parse().unwrap();
    config.listeners.push(ListenerConfig::plain(address));
    config.sites.push(SiteConfig::default());
    config
}

/// A proxy before some nodes.
pub(crate) struct Bench {
    pub(crate) proxy: Option<Proxy>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) address: SocketAddr,
}

impl Bench {
    pub(crate) fn new(nodes: &[SocketAddr]) -> Self {
        Self::with(nodes, |_| ())
    }

    pub(crate) fn with(nodes: &[SocketAddr], change: impl FnOnce(&mut ProxyConfig)) -> Self {
        Self::of(cluster(nodes), change)
    }

    /// Before a site that admits like this.
    pub(crate) fn admitting(nodes: &[SocketAddr], admission: AdmissionConfig) -> Self {
        Self::admitting_with(nodes, admission, |_| ())
    }

    /// The same, with more to be said.
    pub(crate) fn admitting_with(
        nodes: &[SocketAddr],
        admission: AdmissionConfig,
        change: impl FnOnce(&mut ProxyConfig),
    ) -> Self {
        let mut spec = cluster(nodes);
        spec.sites[0].admission = admission;
        Self::of(spec, |config| {
            config.workers = 1;
            change(config);
        })
    }

    /// Of this cluster.
    pub(crate) fn of(spec: ClusterSpec, change: impl FnOnce(&mut ProxyConfig)) -> Self {
        let nodes = &spec.nodes;
        let mut config = config();
        change(&mut config);
        let table = Arc::new(LoadTable::new(nodes.len(), 1));
        let shared = Arc::new(Shared {
            load_reports: Arc::new(LoadReports::new(Arc::clone(&table))),
            table,
            topology: Arc::new(ArcSwap::new(Director::new(spec.clone(), 1).topology())),
            room_freed: Arc::default(),
            wake_up: Arc::default(),
            news: Arc::default(),
            throttles: Arc::new(Throttling::new(1000)),
            delay_experiments: Arc::new(DelayExperiments::new(TEST_HELD_MAX)),
            stats: Arc::new(Stats::new(config.workers, 1, nodes.len())),
        });
        let proxy = Proxy::start(config, Arc::clone(&shared)).unwrap();
        let address = proxy.addresses()[0];
        Self {
            proxy: Some(proxy),
            shared,
            address,
        }
    }

    pub(crate) fn client(&self) -> Peer {
        Peer::connect(self.address)
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        self.shared.stats.snapshot()
    }

    pub(crate) fn in_flight(&self) -> u64 {
        let nodes = 0..self.shared.table.nodes();
        nodes
            .map(|node| self.shared.table.in_flight(NodeId(node as u32)))
            .sum()
    }

    /// Waits until nothing is in flight, and looks whether the books balance.
    pub(crate) fn settled(&self) -> Snapshot {
        until("all requests end", || {
            self.snapshot().in_flight() == 0 && self.in_flight() == 0
        });
        let seen = self.snapshot();
        assert_eq!(seen.ended(), seen.requests);
        for site in &seen.sites {
            assert_eq!(site.in_flight(), 0);
        }
        seen
    }
}
