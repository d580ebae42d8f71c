//! Throttled classes whose connections the network slows: `contrib/tc/shape.sh` between two network
//! namespaces, with Tidegate in one and a server in the other.
//!
//! That a class is shaped is shown by order and by the kernel's own counters: what is slowed has not all
//! come when four times its rate's worth of others has, and no more of it went out than its rate
//! allows, which a slow machine only makes easier.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "test code, which says what it skips"
)]

mod support;

use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use support::{FrontEnd, eventually, folder};

/// Bytes per second that what is slowed gets: `RATE` of the script.
const RATE: f64 = 125_000.0;
/// Bytes of a body that is slowed, and of one that is not.
const SLOW: usize = 4 << 20;
const FAST: usize = 1 << 20;

/// Two hosts with a cable between them; gone when dropped.
struct Hosts {
    front: String,
    node: String,
}

impl Hosts {
    fn new() -> Result<Self, String> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = |end: &str| format!("tgs{}-{number}{end}", std::process::id());
        let hosts = Self {
            front: name("f"),
            node: name("n"),
        };
        let (front, node) = (hosts.front.as_str(), hosts.node.as_str());
        ip(&["netns", "add", front])?;
        ip(&["netns", "add", node])?;
        ip(&[
            "-n", front, "link", "add", "front0", "type", "veth", "peer", "name", "node0", "netns",
            node,
        ])?;
        for (host, device, address) in [
            (front, "front0", "192.0.2.1/24"),
            (node, "node0", "192.0.2.2/24"),
        ] {
            ip(&["-n", host, "link", "set", "lo", "up"])?;
            ip(&["-n", host, "addr", "add", address, "dev", device])?;
            ip(&["-n", host, "link", "set", device, "up"])?;
        }
        Ok(hosts)
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for host in [&self.front, &self.node] {
            ip(&["netns", "del", host]).ok();
        }
    }
}

fn done(output: std::io::Result<Output>) -> Result<String, String> {
    let output = output.map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}

fn ip(arguments: &[&str]) -> Result<String, String> {
    done(Command::new("ip").args(arguments).output())
}

/// Does something at one of the hosts: threads and processes that it starts are there too.
fn inside<T: Send>(host: &str, work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let namespace = File::open(format!("/run/netns/{host}")).unwrap();
            let network = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(namespace.as_fd(), network).unwrap();
            work()
        });
        worker.join().unwrap()
    })
}

/// The script with these settings; nothing and why where the kernel lacks something.
fn shape(
    host: &str,
    device: &str,
    order: &str,
    settings: &[(&str, &str)],
) -> Result<String, String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/tc/shape.sh");
    let mut command = Command::new("ip");
    command.args(["netns", "exec", host]).arg(script);
    command.args([order, device]).envs(settings.iter().copied());
    command.env("RATE", "1mbit").env("LINK", "10gbit");
    done(command.output())
}

/// What has come of the slow body.
type Progress = Arc<AtomicUsize>;

/// Takes in so many bytes.
fn take(stream: &mut TcpStream, mut left: usize, progress: Option<&Progress>) {
    let mut buffer = vec![0; 64 << 10];
    while left > 0 {
        let most = left.min(buffer.len());
        let read = stream.read(&mut buffer[..most]).unwrap();
        assert!(read > 0, "the other side has closed");
        left -= read;
        if let Some(progress) = progress {
            progress.fetch_add(read, Ordering::SeqCst);
        }
    }
}

fn head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).unwrap_or(0) == 0 {
            break;
        }
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap()
}

fn size(path: &str) -> usize {
    if path.contains("/slow") { SLOW } else { FAST }
}

/// A server that sends bodies to GET and takes in those of POST.
fn serve(listener: &TcpListener, progress: &Progress) {
    for stream in listener.incoming() {
        let (mut stream, progress) = (stream.unwrap(), Arc::clone(progress));
        thread::spawn(move || {
            loop {
                let request = head(&mut stream);
                let path = request.split(' ').nth(1).unwrap_or("");
                let sends = match request.get(..4) {
                    Some("GET ") => size(path),
                    Some("POST" | "PUT ") => {
                        let slow = path.contains("/slow").then_some(&progress);
                        take(&mut stream, size(path), slow);
                        0
                    }
                    _ => return,
                };
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {sends}\r\n\r\n");
                let body = vec![b'x'; sends];
                if stream
                    .write_all(&[head.as_bytes(), &body].concat())
                    .is_err()
                {
                    return;
                }
            }
        });
    }
}

/// Asks and takes the whole answer.
fn exchange(front_end: SocketAddr, method: &str, path: &str, progress: Option<&Progress>) {
    let mut stream = TcpStream::connect(front_end).unwrap();
    let (up, down) = match method {
        "POST" | "PUT" => (size(path), 0),
        _ => (0, size(path)),
    };
    let head_sent =
        format!("{method} {path} HTTP/1.1\r\nHost: shop\r\nContent-Length: {up}\r\n\r\n");
    stream.write_all(head_sent.as_bytes()).unwrap();
    stream.write_all(&vec![b'x'; up]).unwrap();
    let answer = head(&mut stream);
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let progress = progress.filter(|_| down > 0);
    take(&mut stream, down, progress);
}

/// Bytes that a class has sent, and how often its rate held it back.
fn sent(shown: &str, class: &str) -> (f64, f64) {
    let mut lines = shown.lines().skip_while(|line| !line.contains(class));
    let counts = lines.nth(1).unwrap();
    let words: Vec<_> = counts.split([' ', ',', ')']).collect();
    let after = |name: &str| {
        let place = words.iter().position(|word| *word == name).unwrap();
        words[place + 1].parse().unwrap()
    };
    (after("Sent"), after("overlimits"))
}

/// Where the script works, and on what.
struct Shaped<'a> {
    host: &'a str,
    device: &'a str,
    settings: &'a [(&'a str, &'a str)],
}

/// A slow body and a fast one at once: the fast one is there first, and the slow one comes whole.
#[expect(clippy::disallowed_methods, reason = "it measures real time")]
fn both(hosts: &Hosts, shaped: &Shaped<'_>, address: &str, method: &str, order: &str) {
    let progress = Progress::default();
    let node: SocketAddr = address.parse().unwrap();
    let listener = inside(&hosts.node, || TcpListener::bind(node).unwrap());
    let counted = Arc::clone(&progress);
    // It ends with the process.
    thread::spawn(move || serve(&listener, &counted));
    let text = format!(
        "[[site]]\nname = \"shop\"\n[[node]]\nname = \"n1\"\naddress = \"{node}\"\nsite = \"shop\"\n\
         [[throttle]]\nclass = \"{method} /slow\"\n{order}\n"
    );
    let folder = folder(&format!("shaping-{method}"));
    let show = || shape(shaped.host, shaped.device, "show", shaped.settings).unwrap();
    inside(&hosts.front, || {
        let front_end = FrontEnd::start(&folder, &text);
        let web = front_end.address;
        let begun = Instant::now();
        thread::scope(|scope| {
            let slow = scope.spawn(|| exchange(web, method, "/slow", Some(&progress)));
            eventually("some of the slow body has come", || {
                (progress.load(Ordering::SeqCst) > 0).then_some(())
            });
            exchange(web, method, "/fast", None);
            assert!(
                progress.load(Ordering::SeqCst) < SLOW,
                "the fast one comes first"
            );
            let shown = show();
            let ((slowed, held), (passed, _)) = (sent(&shown, "1:14 "), sent(&shown, "1:a "));
            // The script lets 15 kB go at once; a packet that has begun goes whole.
            let most = RATE * begun.elapsed().as_secs_f64() + 100_000.0;
            assert!(
                slowed > 0.0 && slowed <= most,
                "{slowed} of {most}: {shown}"
            );
            assert!(held > 0.0 && passed >= FAST as f64, "{shown}");
            // Without the rate it need not be waited for.
            let device = shaped_device(shaped);
            let change = format!(
                "-n {} class change dev {device} classid 1:14 htb rate 10gbit ceil 10gbit quantum 1514",
                shaped.host
            );
            done(Command::new("tc").args(change.split(' ')).output()).unwrap();
            slow.join().unwrap();
        });
        assert_eq!(progress.load(Ordering::SeqCst), SLOW, "and it comes whole");
        let listed = front_end.api("/api/throttles");
        assert_eq!(listed["unmarked"], serde_json::Value::Null);
    });
}

fn shaped_device(shaped: &Shaped<'_>) -> String {
    let vlan = shaped.settings.iter().find(|(name, _)| *name == "VLAN");
    vlan.map_or(shaped.device.into(), |(_, vlan)| {
        format!("{}.{vlan}", shaped.device)
    })
}

fn skipped(why: &str) {
    println!("SKIPPED: {why}");
}

#[test]
fn answers_of_a_marked_class_are_shaped_at_the_node() {
    // `both` asserts that the marked class, and it alone, is held to the rate.
    let hosts = match Hosts::new() {
        Ok(hosts) => hosts,
        Err(why) => return skipped(&why),
    };
    let shaped = Shaped {
        host: &hosts.node,
        device: "node0",
        settings: &[],
    };
    if let Err(why) = shape(shaped.host, shaped.device, "start", shaped.settings) {
        return skipped(&why);
    }
    let reflect = "/proc/sys/net/ipv4/tcp_reflect_tos";
    if let Err(why) = inside(&hosts.node, || std::fs::write(reflect, "1")) {
        return skipped(&format!("{reflect}: {why}"));
    }
    both(&hosts, &shaped, "192.0.2.2:8080", "GET", "dscp = 8");
}

/// The front-end's side: no filter, since HTB takes the priority for its class.
#[test]
fn requests_of_a_marked_class_are_shaped_at_the_front_end() {
    // `both` asserts that the marked class, and it alone, is held to the rate.
    let hosts = match Hosts::new() {
        Ok(hosts) => hosts,
        Err(why) => return skipped(&why),
    };
    let shaped = Shaped {
        host: &hosts.front,
        device: "front0",
        settings: &[("DSCP", "")],
    };
    if let Err(why) = shape(shaped.host, shaped.device, "start", shaped.settings) {
        return skipped(&why);
    }
    both(
        &hosts,
        &shaped,
        "192.0.2.2:8080",
        "POST",
        "so_priority = 65556",
    );
}

#[test]
fn a_vlan_is_shaped_like_an_interface() {
    let hosts = match Hosts::new() {
        Ok(hosts) => hosts,
        Err(why) => return skipped(&why),
    };
    let shaped = Shaped {
        host: &hosts.front,
        device: "front0",
        settings: &[("VLAN", "100")],
    };
    if let Err(why) = shape(shaped.host, shaped.device, "start", shaped.settings) {
        return skipped(&why);
    }
    let (front, node) = (hosts.front.as_str(), hosts.node.as_str());
    for arguments in [
        format!("-n {front} addr add 198.51.100.1/24 dev front0.100"),
        format!("-n {node} link add link node0 name node0.100 type vlan id 100"),
        format!("-n {node} addr add 198.51.100.2/24 dev node0.100"),
        format!("-n {node} link set node0.100 up"),
    ] {
        let arguments: Vec<_> = arguments.split(' ').collect();
        ip(&arguments).unwrap();
    }
    both(
        &hosts,
        &shaped,
        "198.51.100.2:8080",
        "PUT",
        "so_priority = 65556",
    );
}
