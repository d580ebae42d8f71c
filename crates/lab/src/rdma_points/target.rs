//! The target: one process with everything that can be asked, for as long as it is not killed.
//!
//! Its record has the most lines that there are, and says of itself that it has one: so a READ of one line, too, is a
//! whole record to its reader. Words are served over RDMA in one memory, and by its responders in another, since they
//! never are by both.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};
use tidegate_core::record::{CPU_LINES_MAX, CpuLine, LINE_BYTES, LoadRecord, RECORD_BYTES_MAX};
use tidegate_core::time::Timestamp;
use tidegate_remote::RegionMemory;
use tidegate_remote::kernel::{KernelOptions, KernelPublisher};
use tidegate_remote::rdma::exchange::Grant;
use tidegate_remote::rdma::{RdmaNode, RdmaNodeOptions};
use tidegate_remote::udp::wire::{CONNECT_BYTES, Request, Status};
use tidegate_remote::udp::{Connect, Key, Responder, ResponderOptions};

use super::PointsError;

/// How often the kernel makes its record.
const INTERVAL: Duration = Duration::from_millis(5);
/// Where a record says how many lines it has, and of how many CPUs, 16 bits each.
const LINES_AT: u64 = 10;
/// A question over TCP: what is asked, and how many lines.
pub(super) const QUESTION_BYTES: usize = 2;
/// The word that the arm's atomics change.
pub(super) const WORD: u32 = 7;

/// Options of the hidden `tidegate-lab rdma-target`.
#[derive(Clone, Debug, Args)]
pub struct TargetArgs {
    /// The device's address, where everything listens.
    #[arg(long)]
    pub address: IpAddr,
}

/// Where it answers, as the line that it begins with.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Says {
    pub(super) read: SocketAddr,
    pub(super) record: SocketAddr,
    pub(super) kernel: Option<SocketAddr>,
    pub(super) without_kernel: Option<String>,
    pub(super) udp: SocketAddr,
    pub(super) udp_realtime: SocketAddr,
    pub(super) tcp: SocketAddr,
}

/// The key of all of them.
pub(super) fn key() -> Key {
    Key::new("rdma-micro", *b"0123456789abcdef")
}

/// A node that grants one READ for a record, whatever its device: the latency of the operation by itself.
#[derive(Debug)]
struct Plain(RdmaNode);

impl Connect for Plain {
    fn connect(
        &mut self,
        request: &Request,
        source: IpAddr,
        offer: &[u8; CONNECT_BYTES],
        grant: &mut [u8; CONNECT_BYTES],
        now: Timestamp,
    ) -> Option<Status> {
        let status = self.0.connect(request, source, offer, grant, now);
        match Grant::decode(grant) {
            Ok(mut plain) if status == Some(Status::Done) => {
                plain.lines_split = false;
                plain.words = None;
                plain.encode(grant);
            }
            Ok(_) | Err(_) => {}
        }
        status
    }
}

/// A record of one line, by its own account, with more lines behind.
fn memory() -> Result<Arc<RegionMemory>, PointsError> {
    let memory = RegionMemory::anonymous()?;
    memory.publish(&LoadRecord::default(), &[CpuLine::default(); CPU_LINES_MAX]);
    let file = memory.as_fd().try_clone_to_owned().map(std::fs::File::from);
    file.and_then(|file| file.write_all_at(&[1, 0, 0, 0], LINES_AT))
        .map_err(PointsError::io("write a record of one line"))?;
    Ok(Arc::new(memory))
}

struct Target {
    address: IpAddr,
    memory: Arc<RegionMemory>,
    two_sided: Arc<RegionMemory>,
    /// They answer for as long as they are there.
    responders: Vec<Responder>,
}

impl Target {
    fn node(&self, words: bool) -> RdmaNodeOptions {
        RdmaNodeOptions {
            address: Some(self.address),
            words,
            ..RdmaNodeOptions::default()
        }
    }

    fn respond(
        &mut self,
        memory: &Arc<RegionMemory>,
        realtime: bool,
        connect: Option<Box<dyn Connect>>,
    ) -> Result<SocketAddr, PointsError> {
        let options = ResponderOptions {
            realtime,
            connect,
            ..ResponderOptions::new((self.address, 0).into(), vec![key()])
        };
        let responder = Responder::spawn(Arc::clone(memory), options)?;
        let address = responder.address();
        self.responders.push(responder);
        Ok(address)
    }

    fn one_sided(&mut self, node: impl Connect + 'static) -> Result<SocketAddr, PointsError> {
        let memory = Arc::clone(&self.memory);
        self.respond(&memory, false, Some(Box::new(node)))
    }
}

/// Answers until it is killed.
///
/// # Errors
/// If there is no device, or something cannot listen.
pub fn run(args: &TargetArgs, mut out: impl Write) -> Result<(), PointsError> {
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(PointsError::io("end with the reader"))?;
    let mut target = Target {
        address: args.address,
        memory: memory()?,
        two_sided: memory()?,
        responders: Vec::new(),
    };
    let record = RdmaNode::new(&target.memory, &target.node(true))?;
    let read = Plain(RdmaNode::new(&target.memory, &target.node(false))?);
    let (kernel, without_kernel, _programs) = match by_kernel(&target) {
        Ok((node, programs)) => (Some(target.one_sided(node)?), None, Some(programs)),
        Err(why) => (None, Some(why), None),
    };
    let two_sided = Arc::clone(&target.two_sided);
    let listener = TcpListener::bind((target.address, 0)).map_err(PointsError::io("listen"))?;
    let says = Says {
        record: target.one_sided(record)?,
        read: target.one_sided(read)?,
        kernel,
        without_kernel,
        udp: target.respond(&two_sided, false, None)?,
        udp_realtime: target.respond(&two_sided, true, None)?,
        tcp: listener.local_addr().map_err(PointsError::io("listen"))?,
    };
    let text = serde_json::to_string(&says).map_err(PointsError::io("say where it listens"))?;
    writeln!(out, "{text}")
        .and_then(|()| out.flush())
        .map_err(PointsError::io("say where it listens"))?;
    for stream in listener.incoming() {
        let memory = Arc::clone(&two_sided);
        // A connection that ends is the reader's to make again.
        std::thread::spawn(move || serve(stream?, &memory));
    }
    Ok(())
}

/// A node whose record the kernel makes.
fn by_kernel(target: &Target) -> Result<(RdmaNode, KernelPublisher), String> {
    let options = KernelOptions::new((target.address, 0).into(), vec![key()]);
    let said = |error: &dyn std::fmt::Display| error.to_string();
    let programs = KernelPublisher::start(&options, INTERVAL).map_err(|error| said(&error))?;
    let map = programs.record_map().map_err(|error| said(&error))?;
    let node = RdmaNode::with_records(map, &target.memory, &target.node(false));
    Ok((node.map_err(|error| said(&error))?, programs))
}

/// Answers questions over one connection: lines of a record as they are in memory, or what a word held.
fn serve(mut stream: TcpStream, memory: &RegionMemory) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let file = std::fs::File::from(memory.as_fd().try_clone_to_owned()?);
    let mut question = [0; QUESTION_BYTES];
    let mut record = [0; RECORD_BYTES_MAX];
    let mut held = 0;
    loop {
        stream.read_exact(&mut question)?;
        let [operation, lines] = question;
        if operation == READ {
            let lines = record.get_mut(..usize::from(lines) * LINE_BYTES);
            let lines = lines.ok_or(std::io::ErrorKind::InvalidData)?;
            file.read_exact_at(lines, 0)?;
            stream.write_all(lines)?;
            continue;
        }
        let before = match operation {
            ADD => memory.fetch_and_add(WORD, 1),
            _ => memory.compare_and_swap(WORD, held, held.wrapping_add(1)),
        };
        let before = before.map_err(std::io::Error::other)?;
        // The next swap succeeds too.
        held = if before == held {
            held.wrapping_add(1)
        } else {
            before
        };
        stream.write_all(&before.to_le_bytes())?;
    }
}

/// Operations of a question over TCP.
pub(super) const READ: u8 = 0;
/// See above.
pub(super) const ADD: u8 = 1;
/// See above.
pub(super) const SWAP: u8 = 2;
