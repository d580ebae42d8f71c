//! Two hosts of a test's own: network namespaces with a cable between them.

use std::fs::File;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tidegate_remote::udp::UdpOptions;

/// Where the node answers.
pub(crate) const PORT: u16 = 9901;
/// Long enough that only a lost datagram is ever sent again, however slow the machine.
pub(crate) const PATIENT: UdpOptions = UdpOptions {
    wait: Duration::from_secs(5),
    tries: 3,
};
/// The node's address at the second cable.
pub(crate) const NODE_SECOND: &str = "198.51.100.2";
/// Addresses of the node, for both families. The front-end has those that end in 1.
pub(crate) const NODE_V4: &str = "192.0.2.2";
pub(crate) const NODE_V6: &str = "fd00:7467::2";

/// Front-end and node, and the switch between them if there is one; gone when dropped.
pub(crate) struct Hosts {
    front: String,
    node: String,
    switch: Option<String>,
}

impl Hosts {
    /// Nothing where namespaces cannot be made, and why.
    pub(crate) fn new() -> Result<Self, String> {
        let hosts = Self::unconnected(false)?;
        hosts.cable((&hosts.front, "front0"), (&hosts.node, "node0"))?;
        hosts.start()?;
        Ok(hosts)
    }

    /// With a switch between: its `port0` is the front-end's, its `port1` the node's.
    pub(crate) fn switched() -> Result<Self, String> {
        let hosts = Self::unconnected(true)?;
        let switch = hosts.switch();
        hosts.cable((&hosts.front, "front0"), (switch, "port0"))?;
        hosts.cable((&hosts.node, "node0"), (switch, "port1"))?;
        hosts.ip(&["-n", switch, "link", "add", "bridge", "type", "bridge"])?;
        hosts.ip(&["-n", switch, "link", "set", "bridge", "up"])?;
        for port in ["port0", "port1"] {
            hosts.ip(&["-n", switch, "link", "set", port, "master", "bridge", "up"])?;
        }
        hosts.start()?;
        Ok(hosts)
    }

    /// With a router between, of whose own addresses none is the node's: its `port0` is the
    /// front-end's gateway, its `port1` the node's.
    pub(crate) fn routed() -> Result<Self, String> {
        let hosts = Self::unconnected(true)?;
        let router = hosts.switch();
        hosts.cable((&hosts.front, "front0"), (router, "port0"))?;
        hosts.cable((&hosts.node, "node0"), (router, "port1"))?;
        for (namespace, interface, v4, v6) in [
            (
                &*hosts.front,
                "front0",
                "198.51.100.1/24",
                "fd00:7468::1/64",
            ),
            (router, "port0", "198.51.100.254/24", "fd00:7468::fe/64"),
            (router, "port1", "192.0.2.254/24", "fd00:7467::fe/64"),
            (&*hosts.node, "node0", "192.0.2.2/24", "fd00:7467::2/64"),
        ] {
            hosts.address(namespace, interface, v4, v6)?;
        }
        for (namespace, v4, v6) in [
            (&*hosts.front, "198.51.100.254", "fd00:7468::fe"),
            (&*hosts.node, "192.0.2.254", "fd00:7467::fe"),
        ] {
            for (family, gateway) in [("-4", v4), ("-6", v6)] {
                hosts.ip(&[
                    "-n", namespace, family, "route", "add", "default", "via", gateway,
                ])?;
            }
        }
        for setting in ["net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"] {
            hosts.ip(&["netns", "exec", router, "sysctl", "-q", "-w", setting])?;
        }
        Ok(hosts)
    }

    fn unconnected(switched: bool) -> Result<Self, String> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = |end: &str| format!("tgk{}-{number}{end}", std::process::id());
        let hosts = Self {
            front: name("f"),
            node: name("n"),
            switch: switched.then(|| name("s")),
        };
        for namespace in hosts.all() {
            hosts.ip(&["netns", "add", namespace])?;
        }
        Ok(hosts)
    }

    fn all(&self) -> impl Iterator<Item = &String> {
        [&self.front, &self.node].into_iter().chain(&self.switch)
    }

    /// A second cable between the two, with addresses of its own.
    pub(crate) fn second_cable(&self) -> Result<(), String> {
        self.cable((&self.front, "front1"), (&self.node, "node1"))?;
        for (namespace, interface, address) in [
            (&*self.front, "front1", "198.51.100.1/24"),
            (&*self.node, "node1", "198.51.100.2/24"),
        ] {
            self.ip(&["-n", namespace, "addr", "add", address, "dev", interface])?;
            self.ip(&["-n", namespace, "link", "set", interface, "up"])?;
        }
        Ok(())
    }

    fn cable(&self, one: (&str, &str), other: (&str, &str)) -> Result<(), String> {
        let ((here, name), (there, peer)) = (one, other);
        self.ip(&[
            "-n", here, "link", "add", name, "type", "veth", "peer", "name", peer, "netns", there,
        ])
        .map(drop)
    }

    fn start(&self) -> Result<(), String> {
        for (namespace, interface, v4, v6) in [
            (&*self.front, "front0", "192.0.2.1/24", "fd00:7467::1/64"),
            (&*self.node, "node0", "192.0.2.2/24", "fd00:7467::2/64"),
        ] {
            self.address(namespace, interface, v4, v6)?;
        }
        Ok(())
    }

    /// Gives an interface its addresses, and turns it on.
    fn address(&self, namespace: &str, interface: &str, v4: &str, v6: &str) -> Result<(), String> {
        self.ip(&["-n", namespace, "addr", "add", v4, "dev", interface])?;
        self.ip(&[
            "-n", namespace, "-6", "addr", "add", v6, "dev", interface, "nodad",
        ])?;
        self.ip(&["-n", namespace, "link", "set", interface, "up"])
            .map(drop)
    }

    /// The namespace of the switch or router between, by name.
    pub(crate) fn switch(&self) -> &str {
        self.switch
            .as_deref()
            .expect("hosts with something between")
    }

    /// Does something at the switch.
    pub(crate) fn at_switch<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        inside(self.switch(), work)
    }

    pub(crate) fn ip(&self, arguments: &[&str]) -> Result<Output, String> {
        let output = Command::new("ip")
            .args(arguments)
            .output()
            .map_err(|error| format!("ip: {error}"))?;
        match output.status.success() {
            true => Ok(output),
            false => Err(format!(
                "ip {}: {}",
                arguments.join(" "),
                String::from_utf8_lossy(&output.stderr).trim()
            )),
        }
    }

    /// The node's namespace, by name.
    pub(crate) fn node(&self) -> &str {
        &self.node
    }

    /// Does something at the front-end.
    pub(crate) fn at_front<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        inside(&self.front, work)
    }

    /// Does something at the node.
    pub(crate) fn at_node<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        inside(&self.node, work)
    }

    /// Keeps something at the node: made there, looked at there, dropped there.
    pub(crate) fn keep_at_node<T: 'static, E: Send + 'static>(
        &self,
        make: impl FnOnce() -> Result<T, E> + Send + 'static,
    ) -> Result<Kept<T>, E> {
        keep(self.node.clone(), make)
    }

    /// The same at the router.
    pub(crate) fn keep_at_switch<T: 'static, E: Send + 'static>(
        &self,
        make: impl FnOnce() -> Result<T, E> + Send + 'static,
    ) -> Result<Kept<T>, E> {
        keep(self.switch().to_owned(), make)
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for namespace in self.all() {
            // One that was never made has nothing to be removed.
            self.ip(&["netns", "del", namespace]).ok();
        }
    }
}

type Job<T> = Box<dyn FnOnce(&mut T) + Send>;

/// See [`Hosts::keep_at_node`].
pub(crate) struct Kept<T> {
    jobs: Option<Sender<Job<T>>>,
    thread: Option<JoinHandle<()>>,
}

impl<T: 'static> Kept<T> {
    pub(crate) fn ask<R: Send + 'static>(
        &self,
        question: impl FnOnce(&mut T) -> R + Send + 'static,
    ) -> R {
        let (told, answer) = channel();
        let job = move |thing: &mut T| told.send(question(thing)).unwrap();
        self.jobs.as_ref().unwrap().send(Box::new(job)).unwrap();
        answer.recv().unwrap()
    }
}

impl<T> Drop for Kept<T> {
    fn drop(&mut self) {
        self.jobs = None;
        self.thread.take().unwrap().join().unwrap();
    }
}

fn keep<T: 'static, E: Send + 'static>(
    namespace: String,
    make: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<Kept<T>, E> {
    let (jobs, taken) = channel::<Job<T>>();
    let (told, made) = channel();
    let thread = std::thread::spawn(move || {
        enter(&namespace);
        match make() {
            Ok(mut thing) => {
                told.send(Ok(())).unwrap();
                while let Ok(job) = taken.recv() {
                    job(&mut thing);
                }
            }
            Err(error) => told.send(Err(error)).unwrap(),
        }
    });
    made.recv().unwrap().map(|()| Kept {
        jobs: Some(jobs),
        thread: Some(thread),
    })
}

fn inside<T: Send>(namespace: &str, work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            enter(namespace);
            work()
        });
        thread.join().unwrap()
    })
}

fn enter(namespace: &str) {
    let file = File::open(format!("/run/netns/{namespace}")).unwrap();
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
}

pub(crate) fn node_address(v6: bool, port: u16) -> SocketAddr {
    let ip: IpAddr = if v6 { NODE_V6 } else { NODE_V4 }.parse().unwrap();
    SocketAddr::new(ip, port)
}
