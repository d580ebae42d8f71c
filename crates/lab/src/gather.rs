//! The two-sided way to read load, as papers 001 and 003 compare with: a daemon at the node, over
//! TCP, that reads `/proc/stat` for every question.
//!
//! A question is one byte; the answer is the first line's counters as eight-byte numbers, little
//! endian, [`NUMBERS`] of them. A connection is served by a thread of its own, at the priority
//! of whoever started the daemon.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use clap::Args;

/// Counters in an answer: user, nice, system, idle, iowait, irq, softirq, steal.
pub const NUMBERS: usize = 8;
/// The first line of `/proc/stat` and some of the next.
const READ_BYTES: usize = 512;

/// Options of the hidden `tidegate-lab gather`.
#[derive(Clone, Debug, Args)]
pub struct GatherArgs {
    /// Where it listens.
    #[arg(long, value_name = "ADDRESS")]
    pub listen: SocketAddr,
}

/// Answers until it is killed.
///
/// # Errors
/// If it cannot listen.
pub fn run(args: &GatherArgs) -> io::Result<()> {
    for stream in TcpListener::bind(args.listen)?.incoming() {
        // A connection that ends badly is the front-end's to make again.
        std::thread::spawn(move || stream.and_then(serve));
    }
    Ok(())
}

fn serve(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let file = File::open("/proc/stat")?;
    let mut question = [0];
    loop {
        stream.read_exact(&mut question)?;
        let mut text = [0; READ_BYTES];
        let length = file.read_at(&mut text, 0)?;
        stream.write_all(&answer(&text[..length]))?;
    }
}

fn answer(text: &[u8]) -> [u8; 8 * NUMBERS] {
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
    /// If nobody listens.
    pub fn connect(address: SocketAddr, timeout: Duration) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, timeout)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(timeout))?;
        Ok(Self(stream))
    }

    /// Asks once.
    ///
    /// # Errors
    /// If no answer comes in time.
    pub fn ask(&mut self) -> io::Result<[u8; 8 * NUMBERS]> {
        self.0.write_all(&[1])?;
        let mut bytes = [0; 8 * NUMBERS];
        self.0.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_lines_counters_are_the_answer() {
        let bytes = answer(b"cpu  10 2 3 4000000000000 5 6 7 8 0 0\ncpu0 1 1 1 1\n");
        let numbers: Vec<_> = bytes
            .chunks_exact(8)
            .map(|it| u64::from_le_bytes(it.try_into().unwrap()))
            .collect();
        assert_eq!(numbers, [10, 2, 3, 4_000_000_000_000, 5, 6, 7, 8]);
        assert_eq!(answer(b""), [0; 8 * NUMBERS]);
    }

    #[test]
    fn a_question_is_answered_over_tcp() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || listener.accept().and_then(|(stream, _)| serve(stream)));
        let mut gatherer = Gatherer::connect(address, Duration::from_secs(5)).unwrap();
        let (one, other) = (gatherer.ask().unwrap(), gatherer.ask().unwrap());
        assert!(one[..8] <= other[..8] || one != other, "counters grow");
        assert_ne!(one, [0; 8 * NUMBERS]);
    }
}
