//! Nodes to test against, one kind per transport, and a network that misbehaves.

pub(crate) mod kernel;
#[expect(dead_code, reason = "its other users use the rest")]
pub(crate) mod namespaces;
pub(crate) mod rdma;

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use tidegate_core::record::{CpuLine, LoadRecord};
use tidegate_remote::shm::ShmRegion;
use tidegate_remote::udp::wire::Verb;
use tidegate_remote::udp::{Key, Responder, ResponderOptions, UdpOptions, UdpRegion};
use tidegate_remote::{Region, RegionMemory};

pub(crate) use namespaces::PATIENT;

/// For answers that are expected not to come.
pub(crate) const IMPATIENT: UdpOptions = UdpOptions {
    wait: Duration::from_millis(10),
    tries: 2,
};
/// An answer that has not come by then is lost.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
pub(crate) const ANY_PORT: &str = "127.0.0.1:0";

/// A node of one transport.
pub(crate) trait Node {
    /// Whether this kind of node can be here; says why not.
    fn is_possible() -> bool {
        true
    }
    fn start() -> Self;
    /// A handle as a front-end would hold it; each is an initiator of its own.
    fn handle(&self) -> Box<dyn Region + Send>;
    fn memory(&self) -> &RegionMemory;
    /// Ends the owner and starts another one in its place.
    fn restart(&mut self);
    /// Ends the owner for good.
    fn stop(&mut self);
}

/// A node's words, wherever they are kept: all that the kernel's programs share with other transports,
/// whose records are published.
pub(crate) trait Words: Sized {
    /// Nothing where this kind of node cannot be.
    fn begin() -> Option<Self>;
    fn initiator(&self) -> Box<dyn Region + Send>;
    fn word(&self, word: u32) -> u64;
}

impl<N: Node> Words for N {
    fn begin() -> Option<Self> {
        N::is_possible().then(N::start)
    }
    fn initiator(&self) -> Box<dyn Region + Send> {
        self.handle()
    }
    fn word(&self, word: u32) -> u64 {
        self.memory().word(word).unwrap()
    }
}

/// A name that no other test takes.
pub(crate) fn path(kind: &str) -> PathBuf {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let process = std::process::id();
    PathBuf::from(format!("/dev/shm/tidegate-test-{kind}-{process}-{number}"))
}

pub(crate) fn key() -> Key {
    Key::new("n1", 0x000102030405060708090a0b0c0d0e0f_u128.to_be_bytes())
}

/// A record whose fields follow from one number.
pub(crate) fn record(number: u64) -> LoadRecord {
    LoadRecord {
        t_ns: number,
        busy_ns: number * 3,
        completions: number * 7,
        ..LoadRecord::default()
    }
}

pub(crate) fn cpu(number: u64) -> CpuLine {
    CpuLine {
        busy_ns: number,
        ..CpuLine::default()
    }
}

/// Flips a byte of a region, as a writer that stopped half way would leave it.
pub(crate) fn tear(memory: &RegionMemory, at: u64) {
    let file = std::fs::File::from(memory.as_fd().try_clone_to_owned().unwrap());
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0xff], at).unwrap();
}

pub(crate) struct ShmNode {
    path: PathBuf,
    memory: Option<RegionMemory>,
}

impl Node for ShmNode {
    fn start() -> Self {
        let path = path("shm");
        Self {
            memory: Some(RegionMemory::create(&path).unwrap()),
            path,
        }
    }
    fn handle(&self) -> Box<dyn Region + Send> {
        Box::new(ShmRegion::new(&self.path))
    }
    fn memory(&self) -> &RegionMemory {
        self.memory.as_ref().unwrap()
    }
    fn restart(&mut self) {
        self.stop();
        self.memory = Some(RegionMemory::create(&self.path).unwrap());
    }
    fn stop(&mut self) {
        self.memory = None;
    }
}

pub(crate) struct UdpNode {
    address: SocketAddr,
    memory: Option<Arc<RegionMemory>>,
    responder: Option<Responder>,
}

impl UdpNode {
    pub(crate) fn with(options: ResponderOptions) -> Self {
        let memory = Arc::new(RegionMemory::anonymous().unwrap());
        let responder = Responder::spawn(Arc::clone(&memory), options).unwrap();
        Self {
            address: responder.address(),
            memory: Some(memory),
            responder: Some(responder),
        }
    }

    /// Normal priority: tests share the machine.
    pub(crate) fn options(listen: SocketAddr) -> ResponderOptions {
        ResponderOptions {
            realtime: false,
            ..ResponderOptions::new(listen, vec![key()])
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn responder(&self) -> &Responder {
        self.responder.as_ref().unwrap()
    }
}

impl Node for UdpNode {
    fn start() -> Self {
        Self::with(Self::options(ANY_PORT.parse().unwrap()))
    }
    fn handle(&self) -> Box<dyn Region + Send> {
        Box::new(UdpRegion::connect(self.address, key(), PATIENT).unwrap())
    }
    fn memory(&self) -> &RegionMemory {
        self.memory.as_ref().unwrap()
    }
    fn restart(&mut self) {
        self.stop();
        let memory = Arc::new(RegionMemory::anonymous().unwrap());
        let options = Self::options(self.address);
        self.responder = Some(Responder::spawn(Arc::clone(&memory), options).unwrap());
        self.memory = Some(memory);
    }
    fn stop(&mut self) {
        self.responder = None;
        self.memory = None;
    }
}

/// A network between front-ends and one node that delivers every request twice and loses every
/// other answer.
pub(crate) struct BadNetwork {
    front: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl BadNetwork {
    pub(crate) fn before(node: SocketAddr) -> Self {
        let front = UdpSocket::bind(ANY_PORT).unwrap();
        let address = front.local_addr().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || carry(&front, node, &stopped));
        Self {
            front: address,
            stop,
            thread: Some(thread),
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.front
    }
}

impl Drop for BadNetwork {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.thread.take().unwrap().join().unwrap();
    }
}

/// Where a request says what it wants.
const VERB_AT: usize = 5;
/// Wait for the answer to an offer, shorter than that of its sender.
const OFFER_WAIT: Duration = Duration::from_millis(20);

/// Carries one exchange at a time: request twice, both answers back or neither. An offer to connect that is being taken up
/// has none.
fn carry(front: &UdpSocket, node: SocketAddr, stop: &AtomicBool) {
    let back = UdpSocket::bind(ANY_PORT).unwrap();
    back.connect(node).unwrap();
    front
        .set_read_timeout(Some(Duration::from_millis(20)))
        .unwrap();
    let mut bytes = [0; 2048];
    let mut lost = false;
    while !stop.load(Ordering::Acquire) {
        let Ok((length, from)) = front.recv_from(&mut bytes) else {
            continue;
        };
        let is_offer = bytes[VERB_AT] == Verb::Connect as u8;
        let wait = if is_offer { OFFER_WAIT } else { PATIENCE };
        back.set_read_timeout(Some(wait)).unwrap();
        for _ in 0..2 {
            back.send(&bytes[..length]).unwrap();
        }
        lost = !lost;
        for _ in 0..2 {
            let length = match back.recv(&mut bytes) {
                Ok(length) => length,
                Err(_) if is_offer => break,
                Err(error) => panic!("an answer to each request: {error}"),
            };
            if !lost {
                front.send_to(&bytes[..length], from).unwrap();
            }
        }
    }
}
