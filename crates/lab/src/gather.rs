//! The two-sided way to read load, as Reconfiguration-2004 and Admission-2008 compare with: a daemon at the node, over
//! TCP, that reads the kernel's files for every question (Admission-2008 §III-B: the load gathering daemon).
//!
//! ```text
//! question   one byte
//! answer     /proc/stat's first line: NUMBERS counters of eight bytes, little endian; or
//!            with --scope: the aggregate lines of a load record of that control group
//! ```
//!
//! A connection is served by a thread of its own, at the priority that the daemon was started with.
//! [`crate::monitor`] is the other half.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use tidegate_core::load::Rung;
use tidegate_core::record::{AGGREGATE_LINES, LINE_BYTES, LoadRecord, RECORD_BYTES_MAX};
use tidegate_core::units::parse_duration;
use tidegate_node::{Sampler, SamplerConfig, Scope};

/// Counters in an answer: user, nice, system, idle, iowait, irq, softirq, steal.
pub const NUMBERS: usize = 8;
/// The first line of `/proc/stat` and some of the next.
const READ_BYTES: usize = 512;
/// A record without the lines of single CPUs.
const RECORD_BYTES: usize = AGGREGATE_LINES * LINE_BYTES;

/// Options of the hidden `tidegate-lab gather`.
#[derive(Clone, Debug, Args)]
pub struct GatherArgs {
    /// Where it listens.
    #[arg(long, value_name = "ADDRESS")]
    pub listen: SocketAddr,
    /// Answers with load records of this control group.
    #[arg(long, value_name = "PATH")]
    pub scope: Option<PathBuf>,
    /// How often it will be asked, as its records say.
    #[arg(long, value_name = "DURATION", default_value = "1ms", value_parser = parse_duration)]
    pub interval: Duration,
}

/// Answers until it is killed.
///
/// # Errors
/// If it cannot listen, or if there is no such control group.
pub fn run(args: &GatherArgs) -> io::Result<()> {
    Source::new(args)?;
    for stream in TcpListener::bind(args.listen)?.incoming() {
        let args = args.clone();
        // A connection that ends badly is the front-end's to make again.
        std::thread::spawn(move || serve(stream?, Source::new(&args)?));
    }
    Ok(())
}

/// What the answers are made of, for one connection.
enum Source {
    Counters(File),
    Records(Box<Sampler>, u32),
}

impl Source {
    fn new(args: &GatherArgs) -> io::Result<Self> {
        match &args.scope {
            None => Ok(Self::Counters(File::open("/proc/stat")?)),
            Some(path) => Self::records(SamplerConfig {
                interval: args.interval,
                scope: Scope::Cgroup(path.clone()),
                ..SamplerConfig::default()
            }),
        }
    }

    fn records(config: SamplerConfig) -> io::Result<Self> {
        let sampler = Sampler::new(config).map_err(io::Error::other)?;
        Ok(Self::Records(Box::new(sampler), 0))
    }

    /// Sends what the kernel says now.
    fn answer(&mut self, stream: &mut TcpStream) -> io::Result<()> {
        match self {
            Self::Counters(file) => {
                let mut text = [0; READ_BYTES];
                let length = file.read_at(&mut text, 0)?;
                stream.write_all(&counters(&text[..length]))
            }
            Self::Records(sampler, answers) => {
                *answers = answers.checked_add(1).unwrap_or(1);
                let (record, _) = sampler.sample();
                let record = LoadRecord {
                    sequence: *answers,
                    rung: Rung::Agent as u8,
                    ..record
                };
                let mut bytes = [0; RECORD_BYTES_MAX];
                record.encode(&[], &mut bytes);
                stream.write_all(&bytes[..RECORD_BYTES])
            }
        }
    }
}

fn serve(mut stream: TcpStream, mut source: Source) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut question = [0];
    loop {
        stream.read_exact(&mut question)?;
        source.answer(&mut stream)?;
    }
}

fn counters(text: &[u8]) -> [u8; 8 * NUMBERS] {
    let first = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let words = first
        .split(|byte| *byte == b' ')
        .filter(|it| !it.is_empty());
    let numbers = words.skip(1).map(|word| {
        let text = std::str::from_utf8(word).unwrap_or_default();
        text.parse::<u64>().unwrap_or_default()
    });
    let mut bytes = [0; 8 * NUMBERS];
    for (place, number) in bytes.chunks_exact_mut(8).zip(numbers) {
        place.copy_from_slice(&number.to_le_bytes());
    }
    bytes
}

/// A front-end's connection to the daemon.
#[derive(Debug)]
pub struct Gatherer(TcpStream);

impl Gatherer {
    /// Connects.
    ///
    /// # Errors
    /// If nothing listens.
    pub fn connect(address: SocketAddr, timeout: Duration) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, timeout)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(timeout))?;
        Ok(Self(stream))
    }

    /// Asks a daemon without a scope once.
    ///
    /// # Errors
    /// If no answer comes in time.
    pub fn ask(&mut self) -> io::Result<[u8; 8 * NUMBERS]> {
        self.exchange()
    }

    /// Asks a daemon with a scope once.
    ///
    /// # Errors
    /// If no answer comes in time, or if it is no record.
    pub fn record(&mut self) -> io::Result<LoadRecord> {
        let bytes: [u8; RECORD_BYTES] = self.exchange()?;
        let wrong = |error| io::Error::new(io::ErrorKind::InvalidData, error);
        LoadRecord::decode(&bytes).map_err(wrong)
    }

    fn exchange<const BYTES: usize>(&mut self) -> io::Result<[u8; BYTES]> {
        self.0.write_all(&[1])?;
        let mut bytes = [0; BYTES];
        self.0.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A daemon for one connection.
    fn start(source: impl FnOnce() -> io::Result<Source> + Send + 'static) -> Gatherer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || serve(listener.accept()?.0, source()?));
        Gatherer::connect(address, Duration::from_secs(5)).unwrap()
    }

    /// One that answers with records of this machine.
    pub(crate) fn of_host() -> Gatherer {
        start(|| Source::records(SamplerConfig::default()))
    }

    #[test]
    fn the_first_lines_counters_are_the_answer() {
        let bytes = counters(b"cpu  10 2 3 4000000000000 5 6 7 8 0 0\ncpu0 1 1 1 1\n");
        let numbers: Vec<_> = bytes
            .chunks_exact(8)
            .map(|it| u64::from_le_bytes(it.try_into().unwrap()))
            .collect();
        assert_eq!(numbers, [10, 2, 3, 4_000_000_000_000, 5, 6, 7, 8]);
        assert_eq!(counters(b""), [0; 8 * NUMBERS]);
    }

    #[test]
    fn a_question_is_answered_over_tcp() {
        let mut gatherer = start(|| Ok(Source::Counters(File::open("/proc/stat")?)));
        let (one, other) = (gatherer.ask().unwrap(), gatherer.ask().unwrap());
        assert!(one[..8] <= other[..8] || one != other, "counters grow");
        assert_ne!(one, [0; 8 * NUMBERS]);
    }

    #[test]
    fn each_question_is_answered_with_a_record_of_its_own() {
        let mut gatherer = of_host();
        let (one, other) = (gatherer.record().unwrap(), gatherer.record().unwrap());
        assert_eq!((one.sequence, other.sequence), (1, 2));
        assert_eq!(one.generation, other.generation);
        assert!(one.t_ns < other.t_ns && one.busy_ns <= other.busy_ns);
        assert_eq!(one.rung, Rung::Agent as u8);
    }

    #[test]
    fn no_group_is_no_daemon() {
        let args = GatherArgs {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            scope: Some("/no/such/group".into()),
            interval: Duration::from_millis(1),
        };
        let why = run(&args).unwrap_err().to_string();
        assert!(why.contains("/no/such/group"), "{why}");
    }
}
