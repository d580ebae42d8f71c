//! Files as lines: plain or compressed by gzip, or standard input; one line at a time, and none
//! longer than a limit.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;

/// Longest line, bytes; what is longer is a bad line.
pub(super) const LINE_BYTES_MAX: usize = 64 << 10;
/// Read at once.
const BUFFER_BYTES: usize = 128 << 10;
/// What every gzip file begins with.
const GZIP: &[u8] = &[0x1f, 0x8b];

/// A file's lines, with their numbers.
pub(super) struct Lines {
    reader: Box<dyn BufRead>,
    line: Vec<u8>,
    number: u64,
    packed: bool,
    /// Why a compressed file ended before its end.
    broken: Option<String>,
}

/// One line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line<'a> {
    /// Its number, from 1, and its text without the end.
    Text(u64, Cow<'a, str>),
    /// It is longer than [`LINE_BYTES_MAX`]; its beginning.
    Long(u64, Cow<'a, str>),
}

impl Lines {
    /// Opens a file; `-` is standard input.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        if path == Path::new("-") {
            Self::new(io::stdin().lock())
        } else {
            Self::new(File::open(path)?)
        }
    }

    /// The lines of whatever is read.
    pub(super) fn new(source: impl Read + 'static) -> io::Result<Self> {
        let mut plain = BufReader::with_capacity(BUFFER_BYTES, source);
        let packed = plain.fill_buf()?.starts_with(GZIP);
        let reader: Box<dyn BufRead> = if packed {
            let unpacked = MultiGzDecoder::new(plain);
            Box::new(BufReader::with_capacity(BUFFER_BYTES, unpacked))
        } else {
            Box::new(plain)
        };
        Ok(Self {
            reader,
            line: Vec::new(),
            number: 0,
            packed,
            broken: None,
        })
    }

    /// Where and why a compressed file broke off, for people.
    pub(super) fn broken(&self) -> Option<String> {
        let why = self.broken.as_ref()?;
        let line = self.number;
        Some(format!(
            "the file breaks off after line {line} ({why}); what came before is used"
        ))
    }

    /// A compressed file that breaks off has come to its end.
    fn unless_broken(&mut self, error: io::Error) -> io::Result<()> {
        use io::ErrorKind::{InvalidData, InvalidInput, UnexpectedEof};
        if self.packed && matches!(error.kind(), InvalidData | InvalidInput | UnexpectedEof) {
            self.broken = Some(error.to_string());
            return Ok(());
        }
        Err(error)
    }

    /// The next line. What is no UTF-8 is replaced.
    pub(super) fn next(&mut self) -> io::Result<Option<Line<'_>>> {
        self.line.clear();
        if self.broken.is_some() {
            return Ok(None);
        }
        let most = LINE_BYTES_MAX as u64 + 1;
        let mut limited = self.reader.by_ref().take(most);
        match limited.read_until(b'\n', &mut self.line) {
            Ok(0) => return Ok(None),
            Ok(_) => {}
            // A part of a line is not one.
            Err(error) => return self.unless_broken(error).map(|()| None),
        }
        self.number += 1;
        let ended = self.line.last() == Some(&b'\n');
        if !ended && self.line.len() > LINE_BYTES_MAX {
            if let Err(error) = self.skip_line() {
                self.unless_broken(error)?;
            }
            let start = String::from_utf8_lossy(&self.line[..80]);
            return Ok(Some(Line::Long(self.number, start)));
        }
        let text = self.line.trim_ascii_end();
        Ok(Some(Line::Text(self.number, String::from_utf8_lossy(text))))
    }

    /// All that is left, up to so many bytes; none if there is more.
    pub(super) fn rest(&mut self, bytes_max: u64) -> io::Result<Option<String>> {
        let mut bytes = Vec::new();
        let mut limited = self.reader.by_ref().take(bytes_max + 1);
        if let Err(error) = limited.read_to_end(&mut bytes) {
            self.unless_broken(error)?;
        }
        let fits = bytes.len() as u64 <= bytes_max;
        Ok(fits.then(|| String::from_utf8_lossy(&bytes).into_owned()))
    }

    fn skip_line(&mut self) -> io::Result<()> {
        loop {
            let buffer = self.reader.fill_buf()?;
            let end = buffer.iter().position(|byte| *byte == b'\n');
            let (used, done) = match end {
                Some(end) => (end + 1, true),
                None => (buffer.len(), buffer.is_empty()),
            };
            self.reader.consume(used);
            if done {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, Write};

    use super::*;

    fn all(bytes: Vec<u8>) -> Vec<(u64, String, bool)> {
        let mut lines = Lines::new(Cursor::new(bytes)).unwrap();
        let mut found = Vec::new();
        while let Some(line) = lines.next().unwrap() {
            found.push(match line {
                Line::Text(number, text) => (number, text.into_owned(), false),
                Line::Long(number, text) => (number, text.into_owned(), true),
            });
        }
        found
    }

    #[test]
    fn lines_have_numbers_and_no_end() {
        let found = all(b"a\r\n\nc\xff".to_vec());
        let expected = [(1, "a"), (2, ""), (3, "c\u{fffd}")];
        assert_eq!(
            found,
            expected.map(|(number, text)| (number, text.to_owned(), false))
        );
        assert!(all(Vec::new()).is_empty());
    }

    #[test]
    fn a_long_line_is_told_and_the_next_one_read() {
        for length in [LINE_BYTES_MAX + 1, 5 * BUFFER_BYTES] {
            let text = format!("{}\nnext", "x".repeat(length));
            let found = all(text.into_bytes());
            assert_eq!(found.len(), 2);
            assert!(found[0].2 && found[0].1.len() == 80);
            assert_eq!(found[1], (2, "next".to_owned(), false));
        }
        let fits = all("x".repeat(LINE_BYTES_MAX).into_bytes());
        assert!(!fits[0].2);
    }

    #[test]
    fn gzip_is_seen_by_its_first_bytes_and_may_have_several_members() {
        let pack = |text: &str| {
            let level = flate2::Compression::fast();
            let mut packed = flate2::write::GzEncoder::new(Vec::new(), level);
            packed.write_all(text.as_bytes()).unwrap();
            packed.finish().unwrap()
        };
        let bytes = [pack("a\nb\n"), pack("c\n")].concat();
        let texts: Vec<_> = all(bytes).into_iter().map(|(_, text, _)| text).collect();
        assert_eq!(texts, ["a", "b", "c"]);
        // Of a file that was cut off comes what was whole, and it says where it broke off.
        let mut cut = pack(&(0..20_000).map(|it| format!("{it}\n")).collect::<String>());
        cut.truncate(cut.len() / 2);
        let mut lines = Lines::new(Cursor::new(cut)).unwrap();
        let mut last = 0;
        while let Some(line) = lines.next().unwrap() {
            let Line::Text(number, text) = line else {
                panic!("a long line");
            };
            assert_eq!(text, (number - 1).to_string());
            last = number;
        }
        assert!((1000..20_000).contains(&last), "{last}");
        let broken = lines.broken().unwrap();
        assert!(broken.contains(&format!("after line {last} (")), "{broken}");
    }
}
