//! Nodes in processes of their own, which stand still and die.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{
    Pid, Signal, WaitOptions, kill_process, set_parent_process_death_signal, waitpid,
};
use tidegate_core::record::AGGREGATE_LINES;
use tidegate_remote::kernel::{KernelOptions, KernelPublisher};
use tidegate_remote::rdma::RdmaNode;
use tidegate_remote::udp::{Responder, UdpOptions, UdpRegion};
use tidegate_remote::{Region, RegionError, RegionMemory};

use super::any_port;
use crate::support::rdma::{handle, has_device, options, respond};
use crate::support::{IMPATIENT, PATIENT, key, record};

/// Where the other process listens, and whether the kernel makes its record.
const LISTEN: &str = "TIDEGATE_TEST_LISTEN";
const BY_KERNEL: &str = "TIDEGATE_TEST_BY_KERNEL";
/// Before its address.
const READY: &str = "listens at ";
/// How often the kernel makes a record.
const INTERVAL: Duration = Duration::from_millis(5);
/// A node that is alive answers within this time, and one that is dead is waited for no longer.
const SURE: UdpOptions = UdpOptions {
    wait: Duration::from_millis(500),
    tries: 2,
};
/// Records of the kernel that are waited for.
const RECORDS: usize = 20;

/// A node in another process, which ends with this.
pub(super) struct Other {
    process: Child,
    pub(super) address: SocketAddr,
}

impl Other {
    pub(super) fn start(listen: SocketAddr, by_kernel: bool) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "rdma::processes::the_other_process"])
            .arg("--nocapture")
            .env(LISTEN, listen.to_string())
            .stdout(Stdio::piped());
        if by_kernel {
            command.env(BY_KERNEL, "1");
        }
        let mut process = command.spawn().unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap()).lines();
        let address = output.find_map(|line| {
            let line = line.unwrap();
            Some(line.split_once(READY)?.1.parse().unwrap())
        });
        Self {
            process,
            address: address.expect("the other process says where it listens"),
        }
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.process)
    }

    /// Lets it stand still; it does when this returns.
    pub(super) fn stop(&self) {
        kill_process(self.pid(), Signal::STOP).unwrap();
        let status = waitpid(Some(self.pid()), WaitOptions::UNTRACED).unwrap();
        assert!(status.is_some_and(|(_, status)| status.stopped()));
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// Keeps whatever answers until the process is killed.
fn serve(memory: &Arc<RegionMemory>, connect: RdmaNode) -> Responder {
    let listen = std::env::var(LISTEN).unwrap().parse().unwrap();
    respond(memory, listen, connect)
}

/// The other process of the tests beside it, and nothing where none of them has started it.
#[test]
fn the_other_process() {
    if std::env::var_os(LISTEN).is_none() {
        return;
    }
    set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
    let memory = Arc::new(RegionMemory::anonymous().unwrap());
    memory.publish(&record(1), &[]);
    let programs = std::env::var_os(BY_KERNEL).map(|_| {
        let options = KernelOptions::new(any_port(), vec![key()]);
        KernelPublisher::start(&options, INTERVAL).unwrap()
    });
    let node = match &programs {
        Some(programs) => {
            let map = programs.record_map().unwrap();
            RdmaNode::with_records(map, &memory, &options(true)).unwrap()
        }
        None => RdmaNode::new(&memory, &options(true)).unwrap(),
    };
    let responder = serve(&memory, node);
    println!("{READY}{}", responder.address());
    loop {
        std::thread::park();
    }
}

/// Its process gives no answer.
pub(super) fn is_silent(address: SocketAddr) -> bool {
    let read = UdpRegion::connect(address, key(), IMPATIENT)
        .unwrap()
        .read(1);
    matches!(read, Err(RegionError::Timeout { .. }))
}

#[test]
fn a_node_that_stands_still_is_read_and_its_words_are_changed() {
    if !has_device() {
        return;
    }
    let node = Other::start(any_port(), false);
    let mut handle = handle(node.address, PATIENT);
    let before = handle.read(AGGREGATE_LINES).unwrap();
    node.stop();
    assert!(is_silent(node.address));
    for number in 0..50 {
        let read = handle.read(AGGREGATE_LINES).unwrap();
        assert_eq!(read.bytes(), before.bytes());
        assert_eq!(handle.fetch_and_add(0, 1).unwrap(), number);
        assert_eq!(read.first_word, Some(number));
    }
}

#[test]
fn the_kernels_record_goes_on_while_its_process_stands_still() {
    if !has_device() {
        return;
    }
    let node = Other::start(any_port(), true);
    let mut handle = handle(node.address, PATIENT);
    // The first one is made some milliseconds after the start.
    while matches!(handle.read(AGGREGATE_LINES), Err(RegionError::Absent)) {
        std::thread::yield_now();
    }
    node.stop();
    assert!(is_silent(node.address));
    let mut last = 0;
    let mut records = 0;
    while records < RECORDS {
        match handle.read(AGGREGATE_LINES) {
            Ok(read) => {
                let record = read.record().unwrap();
                assert!(record.t_ns >= last);
                records += usize::from(record.t_ns > last);
                last = record.t_ns;
            }
            Err(error) => assert!(matches!(error, RegionError::Torn), "{error}"),
        }
    }
    assert!(is_silent(node.address));
}

#[test]
fn a_node_that_is_killed_is_missed_and_the_next_one_is_found() {
    if !has_device() {
        return;
    }
    let node = Other::start(any_port(), false);
    let address = node.address;
    let mut handle = handle(address, SURE);
    handle.read(AGGREGATE_LINES).unwrap();
    assert_eq!(handle.fetch_and_add(0, 7).unwrap(), 0);
    drop(node);
    for _ in 0..2 {
        // Neither the card nor the port answers.
        handle.read(AGGREGATE_LINES).unwrap_err();
        handle.fetch_and_add(0, 1).unwrap_err();
    }
    let _next = Other::start(address, false);
    handle.read(AGGREGATE_LINES).unwrap();
    let refused = handle.fetch_and_add(0, 1).unwrap_err();
    assert!(matches!(refused, RegionError::Restarted), "{refused}");
    assert_eq!(handle.fetch_and_add(0, 1).unwrap(), 0);
}
