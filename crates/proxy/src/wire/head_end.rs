//! Where a head ends: at the first empty line behind one that is not, as the parser has it. So a
//! head can be handed on without what follows it, whose form only the head can tell. What the parser
//! does not hand on is noted on the way ([`HeadNotes`]).

use std::ops::ControlFlow;

/// Enough of a line to know its name, and a length of any reasonable form.
const KEPT: usize = 64;
/// The longest body that hyper can count.
const LENGTH_MAX: u64 = u64::MAX - 2;
/// The field that names a body's codings, and the one of them that is understood.
const CODING: &str = "transfer-encoding";
const CHUNKED: &[u8] = b"chunked";
/// How a client begins that speaks TLS: a record of the handshake, of whatever minor version (RFC 8446 §5.1).
const TLS: &[u8] = &[22, 3];
/// How a client begins that speaks HTTP/2 unasked (RFC 9113 §3.4), as far as it takes to know it.
const PREFACE: &[u8] = b"PRI * HTTP/2";
/// How a request begins that may be one for a whole server.
const OPTIONS: &[u8] = b"OPTIONS ";
/// Slashes in `OPTIONS http://host HTTP/1.1`; a path has another one.
const SLASHES_WITHOUT_PATH: usize = 3;

/// What a head has that its reader does not tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HeadNotes {
    /// A field of the name that is looked for.
    pub(crate) found: bool,
    /// Its value is a number beyond all lengths.
    pub(crate) too_long: bool,
    /// It names a coding of the body that is not understood. Noted of requests only.
    pub(crate) other_coding: bool,
    /// It is none: this is TLS.
    pub(crate) tls: bool,
    /// It is none: this is HTTP/2.
    pub(crate) preface: bool,
    /// The request is an OPTIONS for a URL without a path; it may have a query.
    pub(crate) options_without_path: bool,
}

/// Looks for the end of a head, and whether a field of this name stands in it.
#[derive(Clone, Debug)]
pub(crate) struct HeadEnd {
    name: &'static str,
    seen: HeadNotes,
    /// Slashes in what came of the first line in earlier pieces.
    slashes: usize,
    /// How the present line begins, if it began in an earlier piece.
    line: [u8; KEPT],
    kept: usize,
    /// How the first line begins that is not empty.
    first: Option<[u8; FIRST]>,
}

/// Bytes of a first line that are kept: those of `HTTP/1.1 200`.
const FIRST: usize = 12;

impl HeadEnd {
    /// Of a head in which a field of this name matters; in lower case.
    pub(crate) fn new(name: &'static str) -> Self {
        Self {
            name,
            seen: HeadNotes::default(),
            slashes: 0,
            line: [0; KEPT],
            kept: 0,
            first: None,
        }
    }

    /// What was seen of a head that has ended.
    pub(crate) fn seen(&self) -> HeadNotes {
        self.seen
    }

    /// What was seen so far.
    pub(crate) fn seen_so_far(&self) -> HeadNotes {
        let begins = |with| self.first.is_none() && self.line[..self.kept].starts_with(with);
        HeadNotes {
            tls: self.seen.tls || begins(TLS),
            preface: self.seen.preface || begins(PREFACE),
            ..self.seen
        }
    }

    /// Whether the head is a response's that another one follows: 100 to 199 without 101.
    pub(crate) fn is_interim(&self) -> bool {
        let status = self.first.as_ref().and_then(|first| first.get(9..12));
        matches!(status, Some([b'1', ..])) && status != Some(b"101")
    }

    /// Reads on. Says how many bytes belong to the head, once it has ended.
    pub(crate) fn find(&mut self, bytes: &[u8]) -> Option<usize> {
        let before = match self.kept {
            0 => 0,
            _ => match self.end_kept(bytes) {
                ControlFlow::Continue(before) => before,
                ControlFlow::Break(found) => return found,
            },
        };
        let mut from = before;
        let mut begun = self.first.is_some();
        // Lines of heads are short: eight bytes at a time need less work than a search for each end.
        let (words, rest) = bytes[before..].as_chunks::<WORD>();
        for (index, word) in words.iter().enumerate() {
            let mut feeds = line_feeds(*word);
            while feeds != 0 {
                let at = before + index * WORD + feeds.trailing_zeros() as usize / WORD;
                if self.on_line(&bytes[from..at], &mut begun) {
                    return Some(at + 1);
                }
                from = at + 1;
                feeds &= feeds - 1;
            }
        }
        let before = bytes.len() - rest.len();
        for (index, byte) in rest.iter().enumerate() {
            let at = before + index;
            if *byte == b'\n' {
                if self.on_line(&bytes[from..at], &mut begun) {
                    return Some(at + 1);
                }
                from = at + 1;
            }
        }
        self.keep(&bytes[from..]);
        None
    }

    /// Ends the line that began in an earlier piece. Says where the next one begins, or what was found.
    #[cold]
    fn end_kept(&mut self, bytes: &[u8]) -> ControlFlow<Option<usize>, usize> {
        let end = bytes.iter().position(|byte| *byte == b'\n');
        self.keep(&bytes[..end.unwrap_or(bytes.len())]);
        let Some(end) = end else {
            return ControlFlow::Break(None);
        };
        let (line, kept) = (self.line, std::mem::take(&mut self.kept));
        let mut begun = self.first.is_some();
        match self.on_line(&line[..kept], &mut begun) {
            true => ControlFlow::Break(Some(end + 1)),
            false => ControlFlow::Continue(end + 1),
        }
    }

    /// A line without its end, or how it begins; whether a line that is not empty has begun the head.
    /// Says whether the head ends with it.
    #[inline(always)]
    fn on_line(&mut self, line: &[u8], begun: &mut bool) -> bool {
        if let [] | [b'\r'] = line {
            return *begun;
        }
        if !*begun {
            *begun = true;
            self.first = Some(first_of(line));
            self.seen.tls = line.starts_with(TLS);
            self.seen.preface = line.starts_with(PREFACE);
            if line.starts_with(OPTIONS) {
                self.on_options(line);
            }
        } else if let Some(b':') = line.get(self.name.len()) {
            self.on_named(line);
        } else if let Some(b':') = line.get(CODING.len()) {
            self.on_coding(line);
        }
        false
    }

    /// The first line of an OPTIONS request, or how it begins.
    #[cold]
    fn on_options(&mut self, line: &[u8]) {
        let slashes = match self.slashes {
            0 => slashes(line),
            all => all,
        };
        let is_url = !matches!(line.get(OPTIONS.len()), Some(b'/' | b'*'));
        self.seen.options_without_path = is_url && slashes == SLASHES_WITHOUT_PATH;
    }

    /// A field whose name is as long as the one that is looked for.
    #[cold]
    fn on_named(&mut self, line: &[u8]) {
        let (name, value) = line.split_at(self.name.len());
        if name.eq_ignore_ascii_case(self.name.as_bytes()) {
            self.seen.found = true;
            // Of a longer line the end may be missing.
            self.seen.too_long |= line.len() < KEPT && is_too_long(&value[1..]);
        }
    }

    /// A field whose name is as long as the one that names codings.
    #[cold]
    fn on_coding(&mut self, line: &[u8]) {
        let (name, value) = line.split_at(CODING.len());
        if name.eq_ignore_ascii_case(CODING.as_bytes()) {
            let is_chunked = value[1..].trim_ascii().eq_ignore_ascii_case(CHUNKED);
            // Of a longer line the end may be missing.
            self.seen.other_coding |= line.len() < KEPT && !is_chunked;
        }
    }

    fn keep(&mut self, part: &[u8]) {
        if self.first.is_none() {
            self.slashes += slashes(part);
        }
        let length = part.len().min(KEPT - self.kept);
        self.line[self.kept..self.kept + length].copy_from_slice(&part[..length]);
        self.kept += length;
    }
}

fn slashes(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| **byte == b'/').count()
}

/// Whether a field's value is a number beyond all lengths.
fn is_too_long(value: &[u8]) -> bool {
    let digits = value.trim_ascii();
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let length = || std::str::from_utf8(digits).ok()?.parse::<u64>().ok();
    is_number && length().is_none_or(|length| length > LENGTH_MAX)
}

/// How a line begins; zeros behind a shorter one.
fn first_of(line: &[u8]) -> [u8; FIRST] {
    line.first_chunk().copied().unwrap_or_else(|| {
        let mut first = [0; FIRST];
        first[..line.len()].copy_from_slice(line);
        first
    })
}

/// Bytes that are looked at in one go.
const WORD: usize = size_of::<u64>();

/// The highest bit of each byte that ends a line, the first byte lowest.
fn line_feeds(word: [u8; WORD]) -> u64 {
    const FEEDS: u64 = u64::from_ne_bytes([b'\n'; WORD]);
    const LOW: u64 = u64::from_ne_bytes([0x7f; WORD]);
    let differs = u64::from_le_bytes(word) ^ FEEDS;
    !(((differs & LOW) + LOW) | differs | LOW)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How long the head is, what was seen, whether another follows; the same in any pieces.
    fn found(raw: &[u8]) -> Option<(usize, HeadNotes, bool)> {
        let whole = in_pieces(raw, raw.len().max(1));
        for piece in 1..raw.len() {
            assert_eq!(in_pieces(raw, piece), whole, "{}", raw.escape_ascii());
        }
        whole
    }

    fn in_pieces(raw: &[u8], piece: usize) -> Option<(usize, HeadNotes, bool)> {
        let mut end = HeadEnd::new("content-length");
        let mut before = 0;
        for part in raw.chunks(piece) {
            if let Some(at) = end.find(part) {
                return Some((before + at, end.seen(), end.is_interim()));
            }
            before += part.len();
        }
        None
    }

    #[test]
    fn a_head_ends_where_the_parser_ends_it() {
        let cases: &[&[u8]] = &[
            b"GET / HTTP/1.1\r\na: b\r\n\r\nrest\r\n\r\n",
            b"\r\n\n\r\nGET / HTTP/1.1\r\na: b\r\n\r\nrest",
            b"GET / HTTP/1.1\na: b\n\nrest",
            b"GET / HTTP/1.1\na: b\n\r\nrest",
            b"GET / HTTP/1.1\r\na: b\r\n\nrest",
            b"GET / HTTP/1.1\r\n\r\n\r\n\r\n",
            b"GET / HTTP/1.1\r\na: b\r\n",
            b"GET / HTTP/1.1\r\na: b\r\n\r",
            b"\r\n\r\n",
            b"",
        ];
        for raw in cases {
            let mut headers = [httparse::EMPTY_HEADER; 4];
            let mut request = httparse::Request::new(&mut headers);
            let parsed = match request.parse(raw).unwrap() {
                httparse::Status::Complete(length) => Some(length),
                httparse::Status::Partial => None,
            };
            let ours = found(raw).map(|(length, ..)| length);
            assert_eq!(ours, parsed, "{}", raw.escape_ascii());
        }
    }

    #[test]
    fn every_line_end_is_seen() {
        for byte in 0..=u8::MAX {
            for ends in 0..=u8::MAX {
                let is_end = |at: usize| (ends >> at) & 1 == 1;
                let word = std::array::from_fn(|at| if is_end(at) { b'\n' } else { byte });
                let feeds = line_feeds(word);
                for at in 0..WORD {
                    let found = (feeds >> (at * WORD)) & 0xff == 0x80;
                    assert_eq!(found, is_end(at) || byte == b'\n', "{word:?}");
                }
            }
        }
    }

    #[test]
    fn a_field_is_found_by_its_whole_name() {
        let cases = [
            ("content-length: 5", true),
            ("CONTENT-length:5", true),
            ("x-content-length: 5", false),
            ("content-lengths: 5", false),
            ("content-length", false),
            ("a: content-length: 5", false),
        ];
        for (field, has) in cases {
            let raw = format!("GET content-length: HTTP/1.1\r\n{field}\r\nb: c\r\n\r\n");
            let seen = HeadNotes {
                found: has,
                ..HeadNotes::default()
            };
            assert_eq!(found(raw.as_bytes()), Some((raw.len(), seen, false)));
        }
        // What stands behind the head is not in it.
        let raw = b"GET / HTTP/1.1\r\n\r\ncontent-length: 5\r\n\r\n";
        assert_eq!(found(raw), Some((18, HeadNotes::default(), false)));
    }

    #[test]
    fn lengths_beyond_all_numbers_are_seen() {
        let cases = [
            ("18446744073709551613", false),
            ("18446744073709551614", true),
            (" 18446744073709551615 ", true),
            ("18446744073709551616", true),
            ("99999999999999999999999999999999", true),
            ("00000000000000000000000000000005", false),
            ("-18446744073709551616", false),
            ("18446744073709551616,5", false),
            ("", false),
        ];
        // The longest line that is kept in pieces, and a longer one.
        let room = KEPT - "Content-Length:\r".len();
        let (longest, longer) = ("9".repeat(room - 1), "9".repeat(room));
        let cases = cases
            .into_iter()
            .chain([(&*longest, true), (&*longer, false)]);
        for (value, too_long) in cases {
            let raw = format!("POST / HTTP/1.1\r\nContent-Length:{value}\r\na: b\r\n\r\n");
            let (_, seen, _) = found(raw.as_bytes()).unwrap();
            assert_eq!((seen.found, seen.too_long), (true, too_long), "{value}");
        }
    }

    #[test]
    fn options_for_a_whole_server_is_told_from_options_for_its_root() {
        let cases = [
            ("OPTIONS http://h HTTP/1.1", true),
            ("OPTIONS https://h:80 HTTP/1.0", true),
            // The query is seen by the reader.
            ("OPTIONS http://h?a HTTP/1.1", true),
            ("OPTIONS http://h/ HTTP/1.1", false),
            ("OPTIONS http://h/a HTTP/1.1", false),
            ("OPTIONS http://h?a/b HTTP/1.1", false),
            ("OPTIONS /a/ HTTP/1.1", false),
            ("OPTIONS * HTTP/1.1", false),
            ("GET http://h HTTP/1.1", false),
        ];
        for (line, without_path) in cases {
            for raw in [format!("{line}\r\n\r\n"), format!("\r\n{line}\na: /\n\n")] {
                let (_, seen, _) = found(raw.as_bytes()).unwrap();
                assert_eq!(seen.options_without_path, without_path, "{line}");
            }
        }
    }

    #[test]
    fn codings_of_a_request_are_seen_that_are_not_chunked() {
        let cases = [
            ("Transfer-Encoding: gzip", true),
            ("transfer-encoding:gzip, chunked", true),
            ("transfer-encoding:", true),
            ("transfer-encoding: chunked", false),
            ("TRANSFER-ENCODING:\tChunked ", false),
            ("transfer-encodinG: chunked\r\ntransfer-encoding: x", true),
            ("x-transfer-encode: gzip", false),
            ("transfer-encoding", false),
            ("transfer-encoding : gzip", false),
        ];
        // The longest line that is kept in pieces, and a longer one.
        let room = KEPT - "transfer-encoding:\r".len();
        let lines = [room - 1, room].map(|length| "x".repeat(length));
        let lines = lines.map(|value| format!("transfer-encoding:{value}"));
        let lines = lines.iter().map(|line| &**line).zip([true, false]);
        for (line, is_other) in cases.into_iter().chain(lines) {
            let raw = format!("POST / HTTP/1.1\r\n{line}\r\na: b\r\n\r\n");
            let (_, seen, _) = found(raw.as_bytes()).unwrap();
            assert_eq!((seen.other_coding, seen.found), (is_other, false), "{line}");
        }
    }

    #[test]
    fn tls_is_known_by_its_first_bytes_whatever_follows() {
        let cases: [(&[u8], bool); 7] = [
            (&[22, 3, 1, 2, 0, 1], true),
            (&[22, 3, 3], true),
            (b"\x16\x03\x01\x02\n\x01a", true),
            (b"\x16\x03\n\r\n", true),
            (&[22, 2], false),
            (&[22], false),
            (b"GET / HTTP/1.1\r\n\x16\x03", false),
        ];
        for (raw, is_tls) in cases {
            for piece in 1..=raw.len() {
                let mut end = HeadEnd::new("content-length");
                for part in raw.chunks(piece) {
                    end.find(part);
                }
                assert_eq!(end.seen_so_far().tls, is_tls, "{}", raw.escape_ascii());
            }
        }
    }

    #[test]
    fn interim_heads_are_known() {
        for (status, interim) in [("100", true), ("103", true), ("101", false), ("200", false)] {
            let raw = format!("HTTP/1.1 {status} x\r\n\r\n");
            assert_eq!(
                found(raw.as_bytes()),
                Some((raw.len(), HeadNotes::default(), interim)),
                "{status}"
            );
        }
    }
}
