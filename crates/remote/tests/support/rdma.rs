//! A node that serves its record and its words over RDMA, where there is a device: a card, or the emulated machine's.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tidegate_remote::rdma::{RdmaDevice, RdmaNode, RdmaNodeOptions, RdmaOptions, RdmaRegion};
use tidegate_remote::udp::{Connect, Responder, ResponderOptions, UdpOptions, UdpRegion};
use tidegate_remote::{Region, RegionMemory};

use super::{Node, PATIENCE, PATIENT, UdpNode, key};

pub(crate) const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// An emulated machine may take its time, and a silent card is one that has had all of it.
pub(crate) const CARD: RdmaOptions = RdmaOptions {
    wait: Duration::from_millis(500),
};

/// Whether this machine has a device; says so if not.
#[expect(clippy::print_stdout, reason = "how a test says that it could not run")]
pub(crate) fn has_device() -> bool {
    let device = RdmaDevice::open(Some(ADDRESS));
    device.map_err(|why| println!("SKIPPED: {why}")).is_ok()
}

pub(crate) fn options(words: bool) -> RdmaNodeOptions {
    RdmaNodeOptions {
        address: Some(ADDRESS),
        words,
        words_wait: PATIENCE,
        ..RdmaNodeOptions::default()
    }
}

/// A front-end's handle to the node whose responder listens there.
pub(crate) fn handle(address: SocketAddr, udp: UdpOptions) -> RdmaRegion {
    RdmaRegion::new(UdpRegion::connect(address, key(), udp).unwrap(), CARD)
}

/// A responder that connects front-ends by this.
pub(crate) fn respond(
    memory: &Arc<RegionMemory>,
    listen: SocketAddr,
    connect: impl Connect + 'static,
) -> Responder {
    let options = ResponderOptions {
        connect: Some(Box::new(connect)),
        ..UdpNode::options(listen)
    };
    Responder::spawn(Arc::clone(memory), options).unwrap()
}

pub(crate) struct RdmaServer {
    address: SocketAddr,
    memory: Option<Arc<RegionMemory>>,
    responder: Option<Responder>,
}

impl RdmaServer {
    fn at(listen: SocketAddr) -> Self {
        let memory = Arc::new(RegionMemory::anonymous().unwrap());
        let node = RdmaNode::new(&memory, &options(true)).unwrap();
        Self::with(memory, listen, node)
    }

    pub(crate) fn with(
        memory: Arc<RegionMemory>,
        listen: SocketAddr,
        connect: impl Connect + 'static,
    ) -> Self {
        let responder = respond(&memory, listen, connect);
        Self {
            address: responder.address(),
            memory: Some(memory),
            responder: Some(responder),
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn responder(&self) -> &Responder {
        self.responder.as_ref().unwrap()
    }
}

impl Node for RdmaServer {
    fn is_possible() -> bool {
        has_device()
    }
    fn start() -> Self {
        Self::at(super::ANY_PORT.parse().unwrap())
    }
    fn handle(&self) -> Box<dyn Region + Send> {
        Box::new(handle(self.address, PATIENT))
    }
    fn memory(&self) -> &RegionMemory {
        self.memory.as_ref().unwrap()
    }
    fn restart(&mut self) {
        self.stop();
        *self = Self::at(self.address);
    }
    fn stop(&mut self) {
        self.responder = None;
        self.memory = None;
    }
}

/// The same, by datagrams: the node's card carries their atomics out.
pub(crate) struct BesideRdma(RdmaServer);

impl Node for BesideRdma {
    fn is_possible() -> bool {
        has_device()
    }
    fn start() -> Self {
        Self(RdmaServer::start())
    }
    fn handle(&self) -> Box<dyn Region + Send> {
        Box::new(UdpRegion::connect(self.0.address, key(), PATIENT).unwrap())
    }
    fn memory(&self) -> &RegionMemory {
        self.0.memory()
    }
    fn restart(&mut self) {
        self.0.restart();
    }
    fn stop(&mut self) {
        self.0.stop();
    }
}
