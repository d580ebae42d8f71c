//! The load record: the bytes that a node publishes and a front-end reads.
//!
//! ```text
//!  line 0      line 1   line 2           line 3            line 4               line 5 …
//!  identity    CPU      memory, disk     files, sockets    network, requests    one per CPU
//!  [seq ... 56 bytes of fields ... seq] x 64 bytes, little endian
//! ```
//!
//! * **Counters and integrals, not rates.** The reader differentiates two records by the
//!   record's own clock ([`LoadRecord::t_ns`]), so that any window can be formed and no reader
//!   waits for a node-side interval (the "history problem" of KLM-2005 §3.3).
//! * **Torn reads show.** Every line carries the sequence at both ends; a reader accepts a
//!   record only if all ends agree. Transports that copy a line at a time need no lock.
//! * **It only grows.** A field never moves. A reader takes the fields that the sender's
//!   record is long enough to hold and leaves the others at zero; [`Sources`] says which
//!   fields were truly measured, so zero never passes for "idle".
//!
//! The C header for kernel-side writers is generated from the same tables
//! ([`c_header`]); `cargo xtask generate` writes it and the tests compare it.

mod header;
mod layout;
mod sources;

pub use header::c_header;
pub use layout::{CPU_FIELDS, CpuLine, FIELDS, Field, LoadRecord};
pub use sources::Sources;

/// Bytes of one line: what a cache, a NIC and a BPF copy move as one.
pub const LINE_BYTES: usize = 64;
/// Lines before the per-CPU lines in a record of this version.
pub const AGGREGATE_LINES: usize = 5;
/// Most per-CPU lines in a record: the busiest ones when the node has more CPUs. With them a
/// UDP reply still fits one Ethernet frame.
pub const CPU_LINES_MAX: usize = 16;
/// Most lines of a record.
pub const LINES_MAX: usize = AGGREGATE_LINES + CPU_LINES_MAX;
/// Most bytes of a record.
pub const RECORD_BYTES_MAX: usize = LINES_MAX * LINE_BYTES;
/// "TGLR" read as a little-endian word.
pub const MAGIC: u32 = u32::from_le_bytes(*b"TGLR");
/// The version that this build writes.
pub const VERSION: u16 = 1;

/// Why bytes are not a load record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// Fewer bytes than one line.
    #[error("{0} bytes are fewer than one {LINE_BYTES}-byte line")]
    Short(usize),
    /// Nothing was published here yet.
    #[error("no record was published yet")]
    Absent,
    /// Some other thing lies here.
    #[error("magic {0:#010x} instead of {MAGIC:#010x}")]
    Magic(u32),
    /// Version zero was never given out.
    #[error("version 0 is not a version")]
    Version,
    /// The record says that it is longer than what was read, or has no identity line.
    #[error("record claims {claimed} lines with {cpus} CPU lines, {read} lines were read")]
    Lines {
        /// Lines that the header claims.
        claimed: u16,
        /// CPU lines that the header claims.
        cpus: u16,
        /// Whole lines in the bytes given.
        read: usize,
    },
    /// A writer was at work: read again.
    #[error("line {0} changed while it was read")]
    Torn(usize),
}

impl LoadRecord {
    /// Writes the record and its CPU lines with their sequence ends; returns the length in
    /// bytes. CPU lines beyond [`CPU_LINES_MAX`] are left out: give the busiest first.
    pub fn encode(&self, cpus: &[CpuLine], out: &mut [u8; RECORD_BYTES_MAX]) -> usize {
        let cpus = &cpus[..cpus.len().min(CPU_LINES_MAX)];
        let lines = AGGREGATE_LINES + cpus.len();
        out.fill(0);
        let sized = Self {
            magic: MAGIC,
            version: VERSION,
            lines: lines as u16,
            cpu_lines: cpus.len() as u16,
            ..*self
        };
        sized.put(out);
        for (index, cpu) in cpus.iter().enumerate() {
            let start = (AGGREGATE_LINES + index) * LINE_BYTES;
            cpu.put(&mut out[start..start + LINE_BYTES]);
        }
        for line in out[..lines * LINE_BYTES].chunks_exact_mut(LINE_BYTES) {
            line[..4].copy_from_slice(&self.sequence.to_le_bytes());
            line[LINE_BYTES - 4..].copy_from_slice(&self.sequence.to_le_bytes());
        }
        lines * LINE_BYTES
    }

    /// Reads a record of this or any other version. Fields that the record is too short for
    /// stay zero, as do their bits in [`LoadRecord::sources`] at the sender.
    pub fn decode(bytes: &[u8]) -> Result<Self, RecordError> {
        if bytes.len() < LINE_BYTES {
            return Err(RecordError::Short(bytes.len()));
        }
        let sequence = word(bytes, 0);
        let magic = word(bytes, 4);
        if sequence == 0 && magic == 0 {
            return Err(RecordError::Absent);
        }
        if magic != MAGIC {
            return Err(RecordError::Magic(magic));
        }
        check_ends(bytes, 0, sequence)?;
        let read = bytes.len() / LINE_BYTES;
        let identity = Self::get(&bytes[..LINE_BYTES]);
        if identity.version == 0 {
            return Err(RecordError::Version);
        }
        // The aggregate lines are what is needed; a reader may ask for no CPU lines.
        let claimed = usize::from(identity.lines);
        let aggregate = claimed.saturating_sub(usize::from(identity.cpu_lines));
        if aggregate == 0 || aggregate.min(AGGREGATE_LINES) > read {
            return Err(RecordError::Lines {
                claimed: identity.lines,
                cpus: identity.cpu_lines,
                read,
            });
        }
        let held = aggregate.min(AGGREGATE_LINES);
        for line in 1..held {
            check_ends(bytes, line, sequence)?;
        }
        Ok(Self::get(&bytes[..held * LINE_BYTES]))
    }

    /// The per-CPU lines among `bytes`, as far as they were read whole.
    pub fn cpus<'a>(&self, bytes: &'a [u8]) -> impl Iterator<Item = CpuLine> + use<'a> {
        let first = usize::from(self.lines.saturating_sub(self.cpu_lines));
        let sequence = self.sequence;
        bytes
            .chunks_exact(LINE_BYTES)
            .take(usize::from(self.lines))
            .skip(first)
            .filter(move |line| word(line, 0) == sequence && word(line, LINE_BYTES - 4) == sequence)
            .map(CpuLine::get)
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

fn check_ends(bytes: &[u8], line: usize, sequence: u32) -> Result<(), RecordError> {
    let start = line * LINE_BYTES;
    let whole = word(bytes, start) == sequence && word(bytes, start + LINE_BYTES - 4) == sequence;
    if whole {
        Ok(())
    } else {
        Err(RecordError::Torn(line))
    }
}

#[cfg(test)]
mod tests;
