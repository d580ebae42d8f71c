//! Network traffic, connections and accept queues.
//!
//! Interfaces: those with a device behind them are counted, so that bridges, bonds and the host
//! ends of containers do not count a byte twice; where there is none (in a container) all but
//! the loopback are.
//!
//! Accept queues are asked for over netlink (see [`diag`]) and summed over all listening
//! sockets; the integral is over the sampled sum. `accept_overflows` is the kernel's
//! `ListenOverflows`.
//!
//! A control group has these numbers of its own only if its processes have a network namespace
//! of their own: then the files are read through one of its processes. Netlink speaks of the
//! agent's own namespace alone, so accept queues of another one stay unmeasured.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};
use tidegate_core::record::Sources;
use tidegate_core::time::Timestamp;

use super::Context;
use crate::counter::{Counter, Integral};
use crate::file::{Buffer, KernelFile, RETRY, Shape, under};
use crate::pace::Pace;
use crate::parse::diag::{self, Answer, Family};
use crate::parse::{network, saturated};

const TRAFFIC_PERIOD: Duration = Duration::from_millis(20);
const CONNECTIONS_PERIOD: Duration = Duration::from_millis(100);
/// Most interfaces that are counted.
const INTERFACES_MAX: usize = 256;
/// Longest name of an interface (IFNAMSIZ).
const NAME_BYTES: usize = 16;
/// Most datagrams of one answer: more than 20 000 listening sockets.
const DATAGRAMS_MAX: usize = 128;

/// What the files of a network namespace tell.
const FROM_FILES: [Sources; 3] = [
    Sources::NETWORK,
    Sources::SOCKETS,
    Sources::ACCEPT_OVERFLOWS,
];

struct Interface {
    name: [u8; NAME_BYTES],
    device: bool,
    received: Counter,
    sent: Counter,
}

/// The files of one network namespace.
struct Files {
    dev: KernelFile,
    sockstat: KernelFile,
    snmp: KernelFile,
    netstat: KernelFile,
    /// Where devices of the agent's own namespace are seen.
    devices: Option<PathBuf>,
}

impl Files {
    fn new(directory: &Path, devices: Option<PathBuf>) -> Self {
        let file = |name, shape| KernelFile::new(directory.join(name), shape);
        Self {
            dev: file("dev", Shape::Records),
            sockstat: file("sockstat", Shape::Whole),
            snmp: file("snmp", Shape::Whole),
            netstat: file("netstat", Shape::Whole),
            devices,
        }
    }
}

pub(super) struct Network {
    root: PathBuf,
    files: Option<Files>,
    /// The process of the group through which the files are read.
    member: Option<u32>,
    why_not: &'static str,
    interfaces: Vec<Interface>,
    received: Counter,
    sent: Counter,
    overflows: Counter,
    traffic_pace: Pace,
    connections_pace: Pace,
    overflows_pace: Pace,
    listeners: Result<Listeners, &'static str>,
}

impl Network {
    pub(super) fn new(root: &Path, whole: bool) -> Self {
        let files =
            whole.then(|| Files::new(&under(root, "proc/net"), Some(under(root, "sys/class/net"))));
        let listeners = if !whole {
            Err("netlink shows the listening sockets of the agent's own network namespace")
        } else if root != Path::new("/") {
            Err("netlink speaks of this machine, not of files below another root")
        } else {
            Ok(Listeners::new())
        };
        Self {
            root: root.into(),
            files,
            member: None,
            why_not: "the group has no process yet",
            interfaces: Vec::new(),
            received: Counter::default(),
            sent: Counter::default(),
            overflows: Counter::default(),
            traffic_pace: Pace::new(TRAFFIC_PERIOD, 2),
            connections_pace: Pace::new(CONNECTIONS_PERIOD, 7),
            overflows_pace: Pace::new(CONNECTIONS_PERIOD, 9),
            listeners,
        }
    }

    /// Reads through that process of a control group from now on.
    pub(super) fn follow(&mut self, member: Option<u32>) {
        if member == self.member {
            return;
        }
        self.member = member;
        self.files = None;
        self.interfaces.clear();
        self.overflows.change_source();
        let Some(member) = member else {
            self.why_not = "the group has no process";
            return;
        };
        let space = |process: &str| {
            std::fs::read_link(under(&self.root, format!("proc/{process}/ns/net"))).ok()
        };
        let theirs = space(&member.to_string());
        if theirs.is_none() {
            self.why_not = "the network namespace of the group's processes cannot be read";
        } else if theirs == space("self") {
            self.why_not = "the group's processes share their network with the agent";
        } else {
            let directory = under(&self.root, format!("proc/{member}/net"));
            self.files = Some(Files::new(&directory, None));
        }
    }

    pub(super) fn sample(&mut self, context: &mut Context<'_>) {
        if self.files.is_some() {
            self.traffic(context);
            self.connections(context);
            self.dropped(context);
        } else {
            for source in FROM_FILES {
                context.missing(source, self.why_not);
            }
        }
        match &mut self.listeners {
            Ok(listeners) => listeners.sample(context),
            Err(why) => {
                context.missing(Sources::ACCEPT_QUEUE, why);
                context.missing(Sources::ACCEPT_INTEGRAL, why);
            }
        }
    }

    fn traffic(&mut self, context: &mut Context<'_>) {
        let Some(files) = &mut self.files else { return };
        let Some(turn) = self.traffic_pace.begin(context.now) else {
            return;
        };
        let (interfaces, devices) = (&mut self.interfaces, files.devices.as_deref());
        let mut by_device = (0u64, 0u64);
        let mut by_all = (0u64, 0u64);
        let read = files
            .dev
            .read(context.now, context.buffer)
            .and_then(|bytes| {
                network::dev(bytes, |name, traffic| {
                    let Some((device, received, sent)) = grown(interfaces, devices, name, traffic)
                    else {
                        return;
                    };
                    by_all = (by_all.0 + received, by_all.1 + sent);
                    if device {
                        by_device = (by_device.0 + received, by_device.1 + sent);
                    }
                })
            });
        let devices = self.interfaces.iter().any(|interface| interface.device);
        let (received, sent) = if devices { by_device } else { by_all };
        match read {
            Some(()) => {
                context.record.received_bytes = self.received.add(received);
                context.record.sent_bytes = self.sent.add(sent);
                let how = if devices {
                    "from /proc/net/dev, interfaces with a device"
                } else {
                    "from /proc/net/dev, all interfaces but the loopback"
                };
                context.findings.measured(Sources::NETWORK, how);
            }
            None => context
                .findings
                .missing(Sources::NETWORK, || files.dev.why_not().into()),
        }
        self.traffic_pace.end(turn);
    }

    fn connections(&mut self, context: &mut Context<'_>) {
        let Some(files) = &mut self.files else { return };
        let Some(turn) = self.connections_pace.begin(context.now) else {
            return;
        };
        let established = files
            .snmp
            .read(context.now, context.buffer)
            .and_then(|bytes| network::mib(bytes, b"Tcp: ", b"CurrEstab"));
        let time_wait = files
            .sockstat
            .read(context.now, context.buffer)
            .and_then(network::time_wait);
        match (established, time_wait) {
            (Some(established), Some(time_wait)) => {
                context.record.tcp_established = saturated(established);
                context.record.time_wait = time_wait;
                context
                    .findings
                    .measured(Sources::SOCKETS, "from /proc/net/snmp and sockstat");
            }
            (None, _) => context
                .findings
                .missing(Sources::SOCKETS, || files.snmp.why_not().into()),
            (_, None) => context
                .findings
                .missing(Sources::SOCKETS, || files.sockstat.why_not().into()),
        }
        self.connections_pace.end(turn);
    }

    fn dropped(&mut self, context: &mut Context<'_>) {
        let Some(files) = &mut self.files else { return };
        let Some(turn) = self.overflows_pace.begin(context.now) else {
            return;
        };
        let overflows = files
            .netstat
            .read(context.now, context.buffer)
            .and_then(|bytes| network::mib(bytes, b"TcpExt: ", b"ListenOverflows"));
        match overflows {
            Some(overflows) => {
                context.record.accept_overflows = self.overflows.follow(overflows);
                context
                    .findings
                    .measured(Sources::ACCEPT_OVERFLOWS, "from /proc/net/netstat");
            }
            None => context
                .findings
                .missing(Sources::ACCEPT_OVERFLOWS, || files.netstat.why_not().into()),
        }
        self.overflows_pace.end(turn);
    }
}

/// Whether the interface has a device, and how much it received and sent since it was last
/// seen; nothing for the loopback. A new interface has not grown.
fn grown(
    interfaces: &mut Vec<Interface>,
    devices: Option<&Path>,
    name: &[u8],
    traffic: network::Traffic,
) -> Option<(bool, u64, u64)> {
    if name == b"lo" || name.len() > NAME_BYTES {
        return None;
    }
    let mut padded = [0; NAME_BYTES];
    padded[..name.len()].copy_from_slice(name);
    let at = interfaces
        .iter()
        .position(|interface| interface.name == padded);
    let index = match at {
        Some(index) => index,
        None => {
            if interfaces.len() >= INTERFACES_MAX {
                interfaces.remove(0);
            }
            let device = devices
                .zip(str::from_utf8(name).ok())
                .is_some_and(|(devices, name)| devices.join(name).join("device").exists());
            interfaces.push(Interface {
                name: padded,
                device,
                received: Counter::default(),
                sent: Counter::default(),
            });
            let new = interfaces.len() - 1;
            interfaces[new].received.follow(traffic.received);
            interfaces[new].sent.follow(traffic.sent);
            new
        }
    };
    let interface = &mut interfaces[index];
    let before = (interface.received.total(), interface.sent.total());
    let received = interface.received.follow(traffic.received) - before.0;
    let sent = interface.sent.follow(traffic.sent) - before.1;
    Some((interface.device, received, sent))
}

/// The accept queues of the agent's own network namespace.
struct Listeners {
    socket: Option<OwnedFd>,
    retry_at: Timestamp,
    pace: Pace,
    integral: Integral,
    with_v6: bool,
}

impl Listeners {
    fn new() -> Self {
        Self {
            socket: None,
            retry_at: Timestamp::ZERO,
            pace: Pace::new(Duration::ZERO, 0),
            integral: Integral::default(),
            with_v6: true,
        }
    }

    fn sample(&mut self, context: &mut Context<'_>) {
        let Some(turn) = self.pace.begin(context.now) else {
            return;
        };
        match self.waiting(context.now, context.buffer) {
            Some(waiting) => {
                context.record.accept_queue = saturated(waiting);
                context.record.accept_queue_ns = self.integral.sample(context.now, waiting);
                context
                    .findings
                    .measured(Sources::ACCEPT_QUEUE, "over netlink, all listening sockets");
                context.findings.measured(
                    Sources::ACCEPT_INTEGRAL,
                    "by integrating the sampled accept queue",
                );
            }
            None => {
                self.integral.interrupt();
                for source in [Sources::ACCEPT_QUEUE, Sources::ACCEPT_INTEGRAL] {
                    context.missing(source, "the kernel refuses NETLINK_SOCK_DIAG");
                }
            }
        }
        self.pace.end(turn);
    }

    fn waiting(&mut self, now: Timestamp, buffer: &mut Buffer) -> Option<u64> {
        if self.socket.is_none() {
            if now < self.retry_at {
                return None;
            }
            self.retry_at = now + RETRY;
            self.socket = socket_with(
                AddressFamily::NETLINK,
                SocketType::RAW,
                SocketFlags::CLOEXEC,
                Some(netlink::SOCK_DIAG),
            )
            .ok();
        }
        let socket = self.socket.as_ref()?;
        let Some(v4) = ask(socket, Family::V4, buffer) else {
            // What is left of a broken answer must not be taken for the next one.
            self.socket = None;
            return None;
        };
        if !self.with_v6 {
            return Some(v4);
        }
        match ask(socket, Family::V6, buffer) {
            Some(v6) => Some(v4.saturating_add(v6)),
            None => {
                // A kernel without IPv6 refuses; IPv4 is then all there is.
                self.with_v6 = false;
                self.socket = None;
                Some(v4)
            }
        }
    }
}

/// Connections that wait in the accept queues of one family. The kernel fills the answer in
/// while it is asked and read, so nothing here waits.
fn ask(socket: &OwnedFd, family: Family, buffer: &mut Buffer) -> Option<u64> {
    send(socket, &diag::request(family), SendFlags::empty()).ok()?;
    let mut waiting = 0u64;
    for _ in 0..DATAGRAMS_MAX {
        let (length, whole) = recv(socket, &mut *buffer.space(), RecvFlags::DONTWAIT).ok()?;
        if whole > length {
            return None;
        }
        match diag::answer(buffer.space().get(..length)?) {
            Answer::More(more) => waiting = waiting.saturating_add(more),
            Answer::Done(more) => return Some(waiting.saturating_add(more)),
            Answer::Refused => return None,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_that_nobody_accepts_are_seen() {
        let mut listeners = Listeners::new();
        let mut buffer = Buffer::new();
        let Some(before) = listeners.waiting(Timestamp::from_millis(1), &mut buffer) else {
            println!("SKIPPED: the kernel refuses NETLINK_SOCK_DIAG");
            return;
        };
        let v4 = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let _first = std::net::TcpStream::connect(v4.local_addr().unwrap()).unwrap();
        let _second = std::net::TcpStream::connect(v4.local_addr().unwrap()).unwrap();
        let after = listeners
            .waiting(Timestamp::from_millis(2), &mut buffer)
            .unwrap();
        // Others on this machine may be accepting at the same time, but these two stay.
        assert!(after >= 2, "{before} before, {after} after");
    }

    #[test]
    fn interfaces_grow_from_when_they_are_first_seen() {
        let mut interfaces = Vec::new();
        let traffic = |received, sent| network::Traffic { received, sent };
        let mut seen = |name: &[u8], traffic| grown(&mut interfaces, None, name, traffic);
        assert_eq!(seen(b"lo", traffic(5, 5)), None);
        assert_eq!(seen(b"eth0", traffic(100, 10)), Some((false, 0, 0)));
        assert_eq!(seen(b"eth0", traffic(150, 11)), Some((false, 50, 1)));
        assert_eq!(seen(b"eth0", traffic(1, 12)), Some((false, 0, 1)));
        assert_eq!(seen(b"a-name-of-17-byte", traffic(1, 1)), None);
    }
}
