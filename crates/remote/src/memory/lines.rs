//! The record area: one writer, any number of readers, no lock, and every tear shows.
//!
//! A line is eight words of 64 bits. Its first word holds the sequence in its low half (the
//! head), its last word holds the same sequence in its high half (the tail).
//!
//! ```text
//!  writer                                  reader
//!  word 0 (head)      relaxed              word 7 (tail)      acquire
//!  fence              release              words 6 .. 1       relaxed
//!  words 1 .. 6       relaxed              fence              acquire
//!  word 7 (tail)      release              word 0 (head)      relaxed
//! ```
//!
//! Why a line with equal ends `s` is whole:
//! * The tail `s` was stored with release after all of write `s`, and loaded with acquire: so
//!   no word is older than write `s`.
//! * Suppose that one of words 1 .. 6 came from a later write `s'`. Its store stands after the
//!   writer's release fence, and our load before our acquire fence: so what the writer stored
//!   before its fence, the head `s'`, is visible to our load of the head, which would then not
//!   be `s`. Word 7 carries its own sequence, and word 0 too.
//!
//! Lines whose ends all hold the same sequence were thus written by the same publication, in
//! whatever order the lines themselves were copied. A sequence comes round after 2^32
//! publications, 49 days at 1 kHz; a read would have to stand still for exactly that long.
//!
//! The same holds for a reader that moves whole lines over a network, as long as it does not
//! split a line: that is why each line has ends of its own.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use tidegate_core::record::{AGGREGATE_LINES, LINE_BYTES, LINES_MAX, MAGIC};

/// Words of a line.
pub(crate) const LINE_WORDS: usize = LINE_BYTES / size_of::<u64>();
/// Words of the record area.
pub(crate) const RECORD_WORDS: usize = LINES_MAX * LINE_WORDS;
/// Tries of a read that meets a writer. A write takes some hundred nanoseconds; a writer that
/// lost its CPU in the middle of one is not waited for.
const READ_TRIES: usize = 16;

/// Why lines could not be copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopyError {
    /// Every try met a writer.
    Torn,
    /// Nothing was ever published.
    Absent,
}

/// Writes lines that carry their sequence at both ends. One writer at a time.
pub(crate) fn write(area: &[AtomicU64], lines: &[u8]) {
    for (line, bytes) in area
        .chunks_exact(LINE_WORDS)
        .zip(lines.chunks_exact(LINE_BYTES))
    {
        let mut words = [0; LINE_WORDS];
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
            *word = u64::from_ne_bytes(*bytes);
        }
        line[0].store(words[0], Ordering::Relaxed);
        fence(Ordering::Release);
        for (at, word) in line[1..LINE_WORDS - 1].iter().zip(&words[1..]) {
            at.store(*word, Ordering::Relaxed);
        }
        line[LINE_WORDS - 1].store(words[LINE_WORDS - 1], Ordering::Release);
    }
}

/// Copies whole lines of one publication; those that it does not have are zero. Gives its
/// sequence.
pub(crate) fn copy(area: &[AtomicU64], out: &mut [u8]) -> Result<u32, CopyError> {
    let mut refused = CopyError::Torn;
    for _ in 0..READ_TRIES {
        match try_copy(area, out) {
            Ok(sequence) => return Ok(sequence),
            // The first publication may be under way: look again.
            Err(why) => refused = why,
        }
        std::hint::spin_loop();
    }
    Err(refused)
}

fn try_copy(area: &[AtomicU64], out: &mut [u8]) -> Result<u32, CopyError> {
    let mut area = area.chunks_exact(LINE_WORDS);
    let mut rest = out.chunks_exact_mut(LINE_BYTES);
    let (Some(line), Some(first)) = (area.next(), rest.next()) else {
        return Err(CopyError::Absent);
    };
    let sequence = copy_line(line, first)?;
    if sequence == 0 {
        return Err(CopyError::Absent);
    }
    let held = lines_held(first);
    for (number, out) in rest.enumerate() {
        match area.next() {
            Some(line) if number + 1 < held => {
                if copy_line(line, out)? != sequence {
                    return Err(CopyError::Torn);
                }
            }
            // Left from a longer record of the past, or never written.
            Some(_) | None => out.fill(0),
        }
    }
    Ok(sequence)
}

/// Zeroes what lies behind the record whose lines these are: left from a longer one of the past.
pub(crate) fn clear_behind(lines: &mut [u8]) {
    if let Some((first, _)) = lines.split_at_checked(LINE_BYTES) {
        let end = lines_held(first).max(1) * LINE_BYTES;
        if let Some(behind) = lines.get_mut(end..) {
            behind.fill(0);
        }
    }
}

/// Lines of the record whose first line this is. Something that is no record is handed on as
/// it lies there, for the decoder to refuse.
fn lines_held(first: &[u8]) -> usize {
    if first[4..8] == MAGIC.to_le_bytes() {
        usize::from(u16::from_le_bytes([first[10], first[11]]))
    } else {
        AGGREGATE_LINES
    }
}

/// Copies one line from its tail to its head; gives its sequence.
fn copy_line(line: &[AtomicU64], out: &mut [u8]) -> Result<u32, CopyError> {
    let mut words = [0; LINE_WORDS];
    words[LINE_WORDS - 1] = line[LINE_WORDS - 1].load(Ordering::Acquire);
    for at in (1..LINE_WORDS - 1).rev() {
        words[at] = line[at].load(Ordering::Relaxed);
    }
    fence(Ordering::Acquire);
    words[0] = line[0].load(Ordering::Relaxed);
    for (bytes, word) in out.as_chunks_mut().0.iter_mut().zip(words) {
        *bytes = word.to_ne_bytes();
    }
    let end = |at: usize| u32::from_le_bytes([out[at], out[at + 1], out[at + 2], out[at + 3]]);
    let (head, tail) = (end(0), end(LINE_BYTES - 4));
    if head == tail {
        Ok(head)
    } else {
        Err(CopyError::Torn)
    }
}
