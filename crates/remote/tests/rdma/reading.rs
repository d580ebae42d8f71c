//! The reader reads nodes over RDMA, and over UDP while that cannot be.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use tidegate_core::load::{LoadTable, Rung};
use tidegate_core::record::{LoadRecord, Sources};
use tidegate_core::time::Timestamp;
use tidegate_core::topology::NodeId;
use tidegate_remote::rdma::RdmaNode;
use tidegate_remote::reader::{
    INTERVAL_MIN, NodeReadStatus, OneSided, Reader, ReaderHandle, ReaderOptions, Target, Transport,
};
use tidegate_remote::udp::Connect;
use tidegate_remote::udp::wire::{CONNECT_BYTES, Request, Status};
use tidegate_remote::{RegionMemory, clock};

use super::any_port;
use super::processes::{Other, is_silent};
use crate::support::key;
use crate::support::rdma::{CARD, RdmaServer, has_device, options};

pub(super) const NODE: NodeId = NodeId(0);
/// READs that are waited for.
const READS: u64 = 100;

/// Longer than the emulated machine stands still where its host is busy.
pub(super) const PATIENT: Duration = Duration::from_secs(10);

fn target(address: SocketAddr) -> Target {
    Target {
        node: NODE,
        generation: 0,
        transport: Transport::Udp {
            address,
            keys: vec![key()],
            rdma: true,
        },
    }
}

/// Reads this node over RDMA where it can; a READ may take so long.
fn read(address: SocketAddr, wait: Duration) -> ReaderHandle {
    read_into(Arc::new(LoadTable::new(1, 1)), address, wait)
}

/// The same, into this table.
pub(super) fn read_into(
    table: Arc<LoadTable>,
    address: SocketAddr,
    wait: Duration,
) -> ReaderHandle {
    let options = ReaderOptions {
        interval: Duration::from_millis(5),
        timeout: CARD.wait,
        one_sided_timeout: wait,
        realtime: false,
        ..ReaderOptions::default()
    };
    Reader::spawn(vec![target(address)], table, options).unwrap()
}

fn status(reader: &ReaderHandle) -> NodeReadStatus {
    reader.status(NODE).unwrap()
}

/// Between two looks: the emulated machine has two CPUs, and connects over RDMA with those that are left.
const LOOK: Duration = Duration::from_millis(1);

/// Waits, as long as the machine needs; the runner of the emulated machine has a limit.
pub(super) fn until(mut come: impl FnMut() -> bool) {
    while !come() {
        clock::sleep_until(clock::now() + LOOK);
    }
}

pub(super) fn until_it_stands(reader: &ReaderHandle) {
    until(|| reader.one_sided(NODE) == Some(OneSided::Stands));
}

/// What is measured while a connection stands. Nothing is measured where it was lost meanwhile, as the emulated machine may
/// stand still for longer than a READ is waited for: then again on the next one.
fn while_it_stands<T>(reader: &ReaderHandle, mut measure: impl FnMut() -> Option<T>) -> T {
    loop {
        until_it_stands(reader);
        until(|| status(reader).rung == Rung::Rdma);
        if let Some(measured) = measure() {
            return measured;
        }
        // Nothing else may have brought a record by datagram.
        until(|| reader.one_sided(NODE) != Some(OneSided::Stands));
    }
}

/// Why it does not go over RDMA, once that is known.
fn reason(reader: &ReaderHandle) -> String {
    let mut text = None;
    until(|| {
        if let Some(OneSided::Lacks(Some(why))) = reader.one_sided(NODE) {
            text = Some(why.to_string());
        }
        text.is_some()
    });
    text.unwrap_or_default()
}

/// Publishes a record each millisecond or so, by the clock.
pub(super) struct Publisher {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Publisher {
    pub(super) fn start(memory: &Arc<RegionMemory>) -> Self {
        let (memory, stop) = (Arc::clone(memory), Arc::new(AtomicBool::new(false)));
        let stopped = Arc::clone(&stop);
        let publish = move || {
            while !stopped.load(Ordering::Relaxed) {
                let now = clock::now();
                let record = LoadRecord {
                    t_ns: now.nanos(),
                    rung: Rung::Agent as u8,
                    sources: Sources::RUNNABLE,
                    ..LoadRecord::default()
                };
                memory.publish(&record, &[]);
                clock::sleep_until(now + Duration::from_millis(1));
            }
        };
        Self {
            stop,
            thread: Some(std::thread::spawn(publish)),
        }
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

/// A node in this process that publishes all the time.
fn served() -> (RdmaServer, Publisher) {
    let memory = Arc::new(RegionMemory::anonymous().unwrap());
    let node = RdmaNode::new(&memory, &options(false)).unwrap();
    let node = RdmaServer::with(Arc::clone(&memory), any_port(), node);
    (node, Publisher::start(&memory))
}

/// A node whose RDMA comes and goes while its agent stays.
#[derive(Clone, Debug, Default)]
pub(super) struct Fickle {
    node: Arc<Mutex<Option<RdmaNode>>>,
    /// When the last was destroyed, ns.
    gone_at: Arc<AtomicU64>,
}

impl Fickle {
    pub(super) fn begin(&self, memory: &RegionMemory, words: bool) {
        *self.node.lock().unwrap() = Some(RdmaNode::new(memory, &options(words)).unwrap());
    }

    /// Destroys its queue pairs.
    pub(super) fn end(&self) {
        let node = self.node.lock().unwrap().take();
        self.gone_at.store(clock::now().nanos(), Ordering::Relaxed);
        drop(node);
    }
}

impl Connect for Fickle {
    fn connect(
        &mut self,
        request: &Request,
        source: IpAddr,
        offer: &[u8; CONNECT_BYTES],
        grant: &mut [u8; CONNECT_BYTES],
        now: Timestamp,
    ) -> Option<Status> {
        match &mut *self.node.lock().unwrap() {
            Some(node) => node.connect(request, source, offer, grant, now),
            None => Some(Status::NoDevice),
        }
    }
}

#[test]
fn a_reader_reads_over_rdma_and_datagrams_only_renew_that() {
    if !has_device() {
        return;
    }
    let (node, _publisher) = served();
    let reader = read(node.address(), PATIENT);
    let (elapsed, datagrams) = while_it_stands(&reader, || {
        let (before, datagrams) = (status(&reader).reads, node.responder().stats().reads);
        let began = clock::now();
        let mut last = status(&reader).progress_at;
        let (mut records, mut stands) = (0, true);
        until(|| {
            let status = status(&reader);
            stands = status.rung == Rung::Rdma;
            records += u64::from(status.progress_at > last);
            last = last.max(status.progress_at);
            !stands || status.reads - before >= READS && records > READS / 4
        });
        let elapsed = clock::now().since(began);
        stands.then(|| (elapsed, node.responder().stats().reads - datagrams))
    });
    println!("{datagrams} datagrams in {elapsed:?}");
    assert!(u128::from(datagrams) <= elapsed.as_millis() / 500 + 2);
    // The node was reminded of it, or will be within half a second.
    until(|| node.responder().stats().connected > 2);
    // And counts it once.
    assert_eq!(node.responder().stats().readers, 1);
}

#[test]
fn reads_over_rdma_that_take_longer_than_an_interval_are_waited_for() {
    if !has_device() {
        return;
    }
    let (node, _publisher) = served();
    let reader = read(node.address(), PATIENT);
    until_it_stands(&reader);
    // Three READs take longer in the emulated machine.
    let targets = vec![target(node.address())];
    reader.set_targets(targets, INTERVAL_MIN, None, 1).unwrap();
    until(|| reader.followed() == 1);
    let datagrams = while_it_stands(&reader, || {
        let (before, datagrams) = (status(&reader).reads, node.responder().stats().reads);
        let mut stands = true;
        until(|| {
            let status = status(&reader);
            stands = status.rung == Rung::Rdma;
            !stands || status.reads - before >= READS
        });
        stands.then(|| node.responder().stats().reads - datagrams)
    });
    // With each datagram all that has come is taken in: it does not take that.
    assert!(datagrams < READS / 2);
}

#[test]
fn a_reader_reads_on_while_the_nodes_process_stands_still() {
    if !has_device() {
        return;
    }
    let node = Other::start(any_port(), true);
    let reader = read(node.address, PATIENT);
    until_it_stands(&reader);
    until(|| status(&reader).rung == Rung::Rdma);
    node.stop();
    assert!(is_silent(node.address));
    let mut last = status(&reader).progress_at;
    let mut records = 0;
    until(|| {
        let progress = status(&reader).progress_at;
        records += u32::from(progress > last);
        last = progress;
        records >= 20
    });
    assert_eq!(reader.one_sided(NODE), Some(OneSided::Stands));
    assert!(is_silent(node.address));
}

#[test]
fn a_reader_goes_back_to_datagrams_and_over_rdma_again() {
    if !has_device() {
        return;
    }
    let memory = Arc::new(RegionMemory::anonymous().unwrap());
    let fickle = Fickle::default();
    let node = RdmaServer::with(Arc::clone(&memory), any_port(), fickle.clone());
    let _publisher = Publisher::start(&memory);
    let reader = read(node.address(), CARD.wait);
    // The node has none yet, and says so, if not to the first question: a busy machine may be slow to answer.
    until(|| reason(&reader).starts_with("the node serves nothing over RDMA"));
    assert_eq!(status(&reader).rung, Rung::Agent);
    for _ in 0..2 {
        fickle.begin(&memory, false);
        until_it_stands(&reader);
        until(|| status(&reader).rung == Rung::Rdma);
        fickle.end();
        until(|| status(&reader).rung == Rung::Agent);
        let gone_at = Timestamp::from_nanos(fickle.gone_at.load(Ordering::Relaxed));
        let gap = status(&reader).progress_at.since(gone_at);
        println!("back to datagrams within {gap:?} (emulated; a card fails within 50 ms)");
        let why = reason(&reader);
        assert!(!why.is_empty());
    }
}

#[test]
fn a_reader_finds_a_node_that_was_killed_again() {
    if !has_device() {
        return;
    }
    let node = Other::start(any_port(), true);
    let address = node.address;
    let reader = read(address, CARD.wait);
    until_it_stands(&reader);
    until(|| status(&reader).rung == Rung::Rdma);
    drop(node);
    // That a read has failed, or what became of an attempt to connect since then.
    assert!(!reason(&reader).is_empty());
    let _next = Other::start(address, true);
    until_it_stands(&reader);
    until(|| status(&reader).rung == Rung::Rdma && status(&reader).consecutive_faults == 0);
}
