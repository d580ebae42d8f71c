//! The front's half of the two-sided way to read load (Admission-2008 §III-B: the load monitoring daemon
//! on the proxy, and the memory that it shares with it).
//!
//! ```text
//! question ──TCP──> daemon at the node (see `gather`): reads the kernel's files, answers
//! answer   ──────> region in a file ──> front-ends, as any agent's record
//! ```
//!
//! Each node is asked at the interval (Admission-2008: 1 ms), one question at a time: when an answer takes
//! longer, the next question follows at once. So a record is as old as its node is slow, which is what the
//! papers hold against this way. Threads are at real-time priority where permitted, as the
//! product's reader is: only the node's side is slow.
//!
//! Inputs: the daemons' addresses, a file for each. A daemon that is not there is asked again each
//! 20 ms. One host only: ages of records count by the clock that both sides share.
//!
//! Limits: 256 nodes; a daemon that is silent for ten seconds is given up and connected to anew.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use tidegate_core::units::parse_duration;
use tidegate_remote::realtime::{PRIORITY, try_fifo};
use tidegate_remote::{RegionMemory, clock};

use crate::gather::Gatherer;

/// A thread each.
const NODES_MAX: usize = 256;
/// Between two attempts to connect.
const RETRY: Duration = Duration::from_millis(20);
/// Longest wait for an answer.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// Options of the hidden `tidegate-lab monitor`.
#[derive(Clone, Debug, Args)]
pub struct MonitorArgs {
    /// Time between two questions to a node.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub interval: Duration,
    /// A daemon, and the file in which its answers are published.
    #[arg(long = "node", value_name = "ADDRESS=FILE", required = true, value_parser = parse_target)]
    pub nodes: Vec<Target>,
}

/// A node's daemon, and the region for its records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    address: SocketAddr,
    file: PathBuf,
}

fn parse_target(text: &str) -> Result<Target, String> {
    let (address, file) = text.split_once('=').ok_or("ADDRESS=FILE is needed")?;
    let address = address.parse();
    Ok(Target {
        address: address.map_err(|error| format!("{text}: {error}"))?,
        file: file.into(),
    })
}

/// Asks all nodes until it is killed.
///
/// # Errors
/// If there are too many, or if a region cannot be made.
pub fn run(args: &MonitorArgs) -> io::Result<()> {
    if args.nodes.len() > NODES_MAX {
        let many = format!("{} nodes; {NODES_MAX} are possible", args.nodes.len());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, many));
    }
    let region = |target: &Target| {
        let memory = RegionMemory::create(&target.file).map_err(io::Error::other);
        Ok::<_, io::Error>((target.address, memory?))
    };
    let regions: Vec<_> = args.nodes.iter().map(region).collect::<Result<_, _>>()?;
    std::thread::scope(|scope| {
        for (address, memory) in &regions {
            scope.spawn(move || follow(*address, memory, args.interval));
        }
    });
    Ok(())
}

/// Asks one node for ever.
fn follow(address: SocketAddr, memory: &RegionMemory, interval: Duration) {
    // Where that is refused it is as late as anybody.
    try_fifo(PRIORITY).ok();
    loop {
        if let Ok(mut gatherer) = Gatherer::connect(address, SILENCE_MAX) {
            let mut due = clock::now();
            while gather(&mut gatherer, memory).is_ok() {
                due = (due + interval).max(clock::now());
                clock::sleep_until(due);
            }
        }
        clock::sleep_until(clock::now() + RETRY);
    }
}

/// One question, and its answer to all that look.
fn gather(gatherer: &mut Gatherer, memory: &RegionMemory) -> io::Result<()> {
    let record = gatherer.record()?;
    memory.publish(&record, &[]);
    Ok(())
}

#[cfg(test)]
mod tests {
    use tidegate_core::record::AGGREGATE_LINES;
    use tidegate_remote::Region;
    use tidegate_remote::shm::ShmRegion;

    use super::*;

    #[test]
    fn an_answer_is_what_front_ends_read() {
        let file = std::env::temp_dir().join(format!("tglab-test-{}-monitor", std::process::id()));
        let memory = RegionMemory::create(&file).unwrap();
        let mut gatherer = crate::gather::tests::of_host();
        let mut region = ShmRegion::new(&file);
        let mut read = || region.read(AGGREGATE_LINES).unwrap().record().unwrap();
        gather(&mut gatherer, &memory).unwrap();
        let one = read();
        gather(&mut gatherer, &memory).unwrap();
        let other = read();
        assert!(one.t_ns < other.t_ns, "the record's time is the daemon's");
        assert_eq!(one.generation, other.generation);
        assert_ne!(one.generation, memory.generation());
        assert_eq!(other.sequence, one.sequence + 1);
        drop(memory);
        assert!(!file.exists());
    }

    #[test]
    fn a_target_is_an_address_and_a_file() {
        let target = parse_target("10.77.0.10:9941=/run/n1").unwrap();
        assert_eq!(target.address, SocketAddr::from(([10, 77, 0, 10], 9941)));
        assert_eq!(target.file, PathBuf::from("/run/n1"));
        for wrong in ["10.77.0.10:9941", "n1=/run/n1", ""] {
            assert!(parse_target(wrong).is_err(), "{wrong}");
        }
    }
}
