//! The chunked coding, read strictly and written anew (RFC 9112 §7.1).
//!
//! What a peer sends passes through here before hyper decodes it. Malformed coding has an error of its
//! own, every part has a limit, and small chunks that came together go on as one. Extensions end here,
//! as they may at any hop (§7.1.1); trailers pass as they are, and are looked at where the body goes on.
//!
//! | refused | why |
//! |---|---|
//! | a line that ends in a bare LF or CR, digits that are none, a chunk that is longer than its size | §7.1; the next reader may see another message behind it |
//! | spaces behind the size, in requests | §7.1.1 has none; old servers pad the size of their answers |
//! | a size of 2^63 or more, or of more than 16 digits, zeros included | a size fits 63 bits, in which others count; HTTP sets no bound |
//! | an extension of more than 1 KiB, more than 16 KiB of them and as much again as there is data | §7.1.1 asks for a limit; signed uploads have 85 bytes in each chunk |
//! | trailers of more than 4 KiB or 64 fields | a limit as for heads |

use std::ops::ControlFlow;

/// The largest chunk, bytes.
const SIZE_MAX: u64 = i64::MAX as u64;
/// Digits of a chunk's size.
const DIGITS_MAX: u8 = 16;
/// Bytes of one chunk's extensions.
const EXTENSION_BYTES_MAX: u64 = 1 << 10;
/// Bytes of all extensions of a body without data.
const EXTENSIONS_BYTES_MAX: u64 = 16 << 10;
/// Bytes of the trailer section.
const TRAILER_BYTES_MAX: usize = 4 << 10;
/// Fields of the trailer section.
const TRAILER_FIELDS_MAX: usize = 64;
/// The size line of a run of chunks, filled in at its end.
const RUN_LINE: &[u8] = b"00000000\r\n";
const RUN_DIGITS: usize = 8;

/// Why a chunked body is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChunkError {
    /// It does not follow the grammar.
    Malformed,
    /// A size is too large or has too many digits, or extensions have too many bytes.
    LineTooLong,
    /// The trailer section is too large.
    TrailersTooLarge,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Size,
    /// Spaces behind the size.
    Padding,
    /// Behind a semicolon: a name must come.
    ExtensionName,
    Extension,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    TrailerStart,
    TrailerName,
    TrailerValue,
    TrailerLf,
    EndLf,
    Done,
    Failed(ChunkError),
}

/// One body's way through the coding.
#[derive(Clone, Debug)]
pub(crate) struct Chunks {
    state: State,
    /// Spaces may stand between the size and the end of its line.
    padded: bool,
    digits: u8,
    size: u64,
    /// Bytes of the present chunk that are still to come.
    left: u64,
    data: u64,
    extension: u64,
    extensions: u64,
    trailer_bytes: usize,
    trailer_fields: usize,
}

impl Chunks {
    /// What is written may be longer than what is read by less than this.
    pub(crate) const GROWTH_MAX: usize = 32;

    /// The body of a request.
    pub(crate) fn of_request() -> Self {
        Self::new(false)
    }

    /// The body of a response.
    pub(crate) fn of_response() -> Self {
        Self::new(true)
    }

    fn new(padded: bool) -> Self {
        Self {
            state: State::Size,
            padded,
            digits: 0,
            size: 0,
            left: 0,
            data: 0,
            extension: 0,
            extensions: 0,
            trailer_bytes: 0,
            trailer_fields: 0,
        }
    }

    /// Whether the body has ended.
    pub(crate) fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Bytes of the present chunk's data that are still to come: they may pass by unread.
    pub(crate) fn passing(&self) -> u64 {
        if self.state == State::Data {
            self.left
        } else {
            0
        }
    }

    /// So many bytes of data have passed by.
    pub(crate) fn on_passed(&mut self, bytes: u64) {
        self.left = self.left.saturating_sub(bytes);
        self.data = self.data.saturating_add(bytes);
        if self.left == 0 && self.state == State::Data {
            self.state = State::DataCr;
        }
    }

    /// Reads on, and appends to `out` what goes on. Says how many bytes belong to the body: all but
    /// those behind its end. What is written is at most [`GROWTH_MAX`](Self::GROWTH_MAX) bytes longer.
    pub(crate) fn rewrite(&mut self, raw: &[u8], out: &mut Vec<u8>) -> Result<usize, ChunkError> {
        // Where the size line of a run of whole chunks stands, and where its data begin.
        let mut run = None;
        let mut at = 0;
        while at < raw.len() && self.state != State::Done {
            if self.state == State::Data {
                at += self.pass(&raw[at..], out);
                continue;
            }
            let flow = self.step(raw[at], out, &mut run);
            if flow.is_break() {
                if let State::Failed(error) = self.state {
                    return Err(error);
                }
                // A chunk begins behind this byte.
                at += self.begin_chunk(&raw[at + 1..], out, &mut run)?;
            }
            at += 1;
        }
        if let State::Failed(error) = self.state {
            return Err(error);
        }
        end_run(out, &mut run);
        Ok(at)
    }

    /// The part of a chunk's data that is here.
    fn pass(&mut self, rest: &[u8], out: &mut Vec<u8>) -> usize {
        let part = usize::try_from(self.left).map_or(rest.len(), |left| left.min(rest.len()));
        out.extend_from_slice(&rest[..part]);
        self.on_passed(part as u64);
        part
    }

    /// A chunk of data begins. One that is here whole joins the run, and its bytes are read.
    fn begin_chunk(
        &mut self,
        rest: &[u8],
        out: &mut Vec<u8>,
        run: &mut Option<usize>,
    ) -> Result<usize, ChunkError> {
        let whole = usize::try_from(self.size)
            .ok()
            .and_then(|size| Some((rest.get(..size)?, rest.get(size..size.checked_add(2)?)?)));
        let Some((data, end)) = whole else {
            end_run(out, run);
            out.extend_from_slice(format!("{:x}\r\n", self.size).as_bytes());
            self.left = self.size;
            self.state = State::Data;
            return Ok(0);
        };
        if end != b"\r\n" {
            return Err(self.fail(ChunkError::Malformed));
        }
        if run.is_none() {
            *run = Some(out.len());
            out.extend_from_slice(RUN_LINE);
        }
        out.extend_from_slice(data);
        self.data = self.data.saturating_add(self.size);
        self.next_size();
        Ok(data.len() + end.len())
    }

    fn next_size(&mut self) {
        self.state = State::Size;
        (self.digits, self.size, self.extension) = (0, 0, 0);
    }

    fn fail(&mut self, error: ChunkError) -> ChunkError {
        self.state = State::Failed(error);
        error
    }

    /// One byte of framing. Breaks where a chunk's data begin, and where the body is refused.
    fn step(&mut self, byte: u8, out: &mut Vec<u8>, run: &mut Option<usize>) -> ControlFlow<()> {
        let next = match (self.state, byte) {
            (State::Size, _) => return self.size(byte),
            (State::Padding | State::ExtensionName, b' ' | b'\t') => return self.extend(),
            (State::Padding | State::Extension, b';') => {
                self.state = State::ExtensionName;
                return self.extend();
            }
            (State::Padding, b'\r') if self.padded => State::SizeLf,
            (State::ExtensionName, byte) if is_token(byte) => {
                self.state = State::Extension;
                return self.extend();
            }
            (State::Extension, b'\r') => State::SizeLf,
            (State::Extension, byte) if is_text(byte) => return self.extend(),
            (State::SizeLf, b'\n') if self.size > 0 => return ControlFlow::Break(()),
            (State::SizeLf, b'\n') => {
                end_run(out, run);
                out.extend_from_slice(b"0\r\n");
                State::TrailerStart
            }
            (State::DataCr, b'\r') => State::DataLf,
            (State::DataLf, b'\n') => {
                out.extend_from_slice(b"\r\n");
                self.next_size();
                State::Size
            }
            (State::TrailerStart, b'\r') => State::EndLf,
            (State::EndLf, b'\n') => {
                out.extend_from_slice(b"\r\n");
                State::Done
            }
            (State::TrailerStart | State::TrailerName, byte) if is_token(byte) => {
                return self.trailer(State::TrailerName, byte, out);
            }
            (State::TrailerName, b':') => return self.trailer(State::TrailerValue, byte, out),
            (State::TrailerValue, b'\r') => return self.trailer(State::TrailerLf, byte, out),
            (State::TrailerValue, byte) if is_text(byte) => {
                return self.trailer(State::TrailerValue, byte, out);
            }
            (State::TrailerLf, b'\n') => {
                self.trailer_fields += 1;
                return self.trailer(State::TrailerStart, byte, out);
            }
            (State::Failed(error), _) => State::Failed(error),
            _ => State::Failed(ChunkError::Malformed),
        };
        self.go_to(next)
    }

    fn go_to(&mut self, next: State) -> ControlFlow<()> {
        self.state = next;
        if let State::Failed(_) = next {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    fn size(&mut self, byte: u8) -> ControlFlow<()> {
        let next = match byte {
            b'\r' if self.digits > 0 => State::SizeLf,
            b';' if self.digits > 0 => {
                self.state = State::ExtensionName;
                return self.extend();
            }
            b' ' | b'\t' if self.digits > 0 => {
                self.state = State::Padding;
                return self.extend();
            }
            byte => match char::from(byte).to_digit(16) {
                Some(_) if self.digits == DIGITS_MAX || self.size > SIZE_MAX >> 4 => {
                    State::Failed(ChunkError::LineTooLong)
                }
                Some(digit) => {
                    self.digits += 1;
                    self.size = self.size << 4 | u64::from(digit);
                    State::Size
                }
                None => State::Failed(ChunkError::Malformed),
            },
        };
        self.go_to(next)
    }

    /// One byte more of what stands behind the size.
    fn extend(&mut self) -> ControlFlow<()> {
        self.extension += 1;
        self.extensions = self.extensions.saturating_add(1);
        let most = EXTENSIONS_BYTES_MAX.saturating_add(self.data);
        if self.extension > EXTENSION_BYTES_MAX || self.extensions > most {
            return self.go_to(State::Failed(ChunkError::LineTooLong));
        }
        ControlFlow::Continue(())
    }

    /// One byte more of the trailer section.
    fn trailer(&mut self, next: State, byte: u8, out: &mut Vec<u8>) -> ControlFlow<()> {
        self.trailer_bytes += 1;
        if self.trailer_bytes > TRAILER_BYTES_MAX || self.trailer_fields > TRAILER_FIELDS_MAX {
            return self.go_to(State::Failed(ChunkError::TrailersTooLarge));
        }
        out.push(byte);
        self.go_to(next)
    }
}

/// Closes a run of whole chunks: its size is known now.
fn end_run(out: &mut Vec<u8>, run: &mut Option<usize>) {
    let Some(at) = run.take() else { return };
    let size = out.len() - at - RUN_LINE.len();
    let digits = format!("{size:0RUN_DIGITS$x}");
    out[at..at + RUN_DIGITS].copy_from_slice(&digits.as_bytes()[..RUN_DIGITS]);
    out.extend_from_slice(b"\r\n");
}

/// A byte of a field's name (RFC 9110 §5.6.2).
const fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(
            byte,
            b'!' | b'#'
                | b'$'
                | b'%'
                | b'&'
                | b'\''
                | b'*'
                | b'+'
                | b'-'
                | b'.'
                | b'^'
                | b'_'
                | b'`'
                | b'|'
                | b'~'
        )
}

/// A byte of a field's value (RFC 9110 §5.5).
const fn is_text(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}

#[cfg(any(test, feature = "fuzzing"))]
#[path = "../../../../fuzz/invariants/chunks.rs"]
pub(crate) mod invariants;

#[cfg(test)]
mod tests {
    use tidegate_core::prng::Prng;

    use super::*;

    /// Reads it in pieces of so many bytes.
    fn rewritten(raw: &[u8], piece: usize) -> Result<(Vec<u8>, usize), ChunkError> {
        let mut chunks = Chunks::of_request();
        let mut out = Vec::new();
        let mut taken = 0;
        for piece in raw.chunks(piece) {
            taken += chunks.rewrite(piece, &mut out)?;
        }
        assert!(chunks.is_done());
        Ok((out, taken))
    }

    fn error(raw: &[u8]) -> ChunkError {
        for piece in [1, 2, 3, 7] {
            let whole = rewritten(raw, raw.len()).unwrap_err();
            assert_eq!(rewritten(raw, piece).unwrap_err(), whole, "{raw:?}");
        }
        rewritten(raw, raw.len()).unwrap_err()
    }

    #[test]
    fn small_chunks_become_one() {
        let raw = b"1\r\na\r\n02;x=y\r\nbc\r\nA\r\n0123456789\r\n0\r\nx: y\r\n\r\nGET";
        let (out, taken) = rewritten(raw, raw.len()).unwrap();
        assert_eq!(out, b"0000000d\r\nabc0123456789\r\n0\r\nx: y\r\n\r\n");
        assert_eq!(&raw[taken..], b"GET");
        // In pieces the sizes are others, and the data the same.
        let (out, _) = rewritten(raw, 1).unwrap();
        assert_eq!(
            out,
            b"1\r\na\r\n2\r\nbc\r\na\r\n0123456789\r\n0\r\nx: y\r\n\r\n"
        );
    }

    #[test]
    fn a_chunk_that_is_not_whole_passes_as_it_comes() {
        let mut chunks = Chunks::of_request();
        let mut out = Vec::new();
        assert_eq!(chunks.rewrite(b"2\r\nab\r\n0010\r\n0123", &mut out), Ok(17));
        assert_eq!(out, b"00000002\r\nab\r\n10\r\n0123");
        assert_eq!(chunks.passing(), 12);
        chunks.on_passed(12);
        out.clear();
        assert_eq!(chunks.rewrite(b"\r\n0\r\n\r\n", &mut out), Ok(7));
        assert_eq!(out, b"\r\n0\r\n\r\n");
        assert!(chunks.is_done());
    }

    #[test]
    fn what_is_no_chunk_is_refused() {
        let cases: &[&[u8]] = &[
            b"0\r\n\nGET / HTTP/1.1\r\n\r\n",
            b"0\n\r\n",
            b"0\r\n\r\r\n",
            b"1\na\r\n0\r\n\r\n",
            b"1\r\nab\r\n0\r\n\r\n",
            b"1\r\na\n0\r\n\r\n",
            b"1\r\na\rx0\r\n\r\n",
            b"g\r\na\r\n0\r\n\r\n",
            b"0x1\r\na\r\n0\r\n\r\n",
            b"+1\r\na\r\n0\r\n\r\n",
            b"-1\r\na\r\n0\r\n\r\n",
            b" 1\r\na\r\n0\r\n\r\n",
            b"1 \r\na\r\n0\r\n\r\n",
            b"\r\n0\r\n\r\n",
            b";x\r\n\r\n",
            b"1;\r\na\r\n0\r\n\r\n",
            b"1;x\na\r\n0\r\n\r\n",
            b"1;x\0\r\na\r\n0\r\n\r\n",
            b"1;x\rb\r\n\r\n",
            b"1;=x\r\na\r\n0\r\n\r\n",
            b"1;x;\r\na\r\n0\r\n\r\n",
            b"\r\n\r\n",
            b" ;x\r\n\r\n",
            b"0\r\n: x\r\n\r\n",
            b"0\r\nx\r\n\r\n",
            b"0\r\nx : y\r\n\r\n",
            b"0\r\nx: y\n\r\n",
            b"0\r\nx: \0\r\n\r\n",
            b"0\r\n folded\r\n\r\n",
        ];
        for raw in cases {
            assert_eq!(error(raw), ChunkError::Malformed, "{}", raw.escape_ascii());
        }
    }

    #[test]
    fn an_answers_size_has_a_digit_before_its_padding() {
        let mut chunks = Chunks::of_response();
        let refused = chunks.rewrite(b" \r\n\r\n", &mut Vec::new());
        assert_eq!(refused, Err(ChunkError::Malformed));
    }

    #[test]
    fn spaces_may_stand_around_extensions_and_several_may_follow_one_another() {
        let raw = b"1 ; x ;y=\"z\"\r\na\r\n0\t;x\r\n\r\n";
        let (out, _) = rewritten(raw, raw.len()).unwrap();
        assert_eq!(out, b"00000001\r\na\r\n0\r\n\r\n");
    }

    #[test]
    fn what_was_refused_stays_refused_for_the_same_reason() {
        let mut chunks = Chunks::of_request();
        for more in [&b"f".repeat(17)[..], b"0\r\n\r\n"] {
            let refused = chunks.rewrite(more, &mut Vec::new());
            assert_eq!(refused, Err(ChunkError::LineTooLong));
        }
    }

    #[test]
    fn everything_has_a_limit() {
        let sizes = [
            b"0".repeat(17),
            b"f".repeat(16),
            b"8000000000000000".to_vec(),
        ];
        for size in sizes {
            assert_eq!(error(&size), ChunkError::LineTooLong);
        }
        let long = [b"1;".to_vec(), b"x".repeat(1024), b"\r\na\r\n".to_vec()].concat();
        assert_eq!(error(&long), ChunkError::LineTooLong);
        let many = [b"1;", &b"x".repeat(100)[..], b"\r\na\r\n"].concat();
        assert_eq!(error(&many.repeat(200)), ChunkError::LineTooLong);
        let large = [b"0\r\nx: ", &b"y".repeat(5000)[..], b"\r\n\r\n"].concat();
        assert_eq!(error(&large), ChunkError::TrailersTooLarge);
        let fields = [b"0\r\n", &b"x: y\r\n".repeat(66)[..], b"\r\n"].concat();
        assert_eq!(error(&fields), ChunkError::TrailersTooLarge);
    }

    #[test]
    fn each_limit_holds_to_the_byte() {
        let padded = |digits: usize| [&b"0".repeat(digits)[..], b"\r\n\r\n"].concat();
        let one = |bytes: usize| {
            let name = &b"x".repeat(bytes - 1)[..];
            [b"1;", name, b"\r\na\r\n0\r\n\r\n"].concat()
        };
        // Each chunk carries a byte of data, which allows one more.
        let all = |bytes: usize| {
            let chunk = [&b"1;"[..], &b"x".repeat(511), b"\r\na\r\n"].concat();
            let last = [&b"1;"[..], &b"x".repeat(bytes - 1), b"\r\na\r\n0\r\n\r\n"].concat();
            [chunk.repeat(32), last].concat()
        };
        let trailer = |bytes: usize| {
            let field = [&b"x: "[..], &b"y".repeat(bytes - 5), b"\r\n"].concat();
            [b"0\r\n", &field[..], b"\r\n"].concat()
        };
        let fields = |count: usize| [b"0\r\n", &b"x: y\r\n".repeat(count)[..], b"\r\n"].concat();
        let (line, trailers) = (ChunkError::LineTooLong, ChunkError::TrailersTooLarge);
        let extension = EXTENSION_BYTES_MAX as usize;
        for (fits, beyond, refusal) in [
            (
                padded(DIGITS_MAX.into()),
                padded(usize::from(DIGITS_MAX) + 1),
                line,
            ),
            (one(extension), one(extension + 1), line),
            (all(32), all(33), line),
            (
                trailer(TRAILER_BYTES_MAX),
                trailer(TRAILER_BYTES_MAX + 1),
                trailers,
            ),
            (
                fields(TRAILER_FIELDS_MAX),
                fields(TRAILER_FIELDS_MAX + 1),
                trailers,
            ),
        ] {
            for piece in [1, 7, beyond.len()] {
                assert!(rewritten(&fits, piece).is_ok(), "{}", fits.escape_ascii());
            }
            assert_eq!(error(&beyond), refusal, "{}", beyond.escape_ascii());
        }
    }

    #[test]
    fn extensions_may_grow_with_the_data() {
        let chunk = [
            b"400;",
            &b"x".repeat(85)[..],
            b"\r\n",
            &[b'd'; 1024],
            b"\r\n",
        ]
        .concat();
        let raw = [&chunk.repeat(1000)[..], b"0\r\n\r\n"].concat();
        let (out, _) = rewritten(&raw, 16_384).unwrap();
        assert!(out.len() < raw.len());
    }

    #[test]
    fn any_bytes_keep_the_invariants() {
        let parts: &[&[u8]] = &[
            b"1\r\nx\r\n",
            b"a;b=\"c\"\r\n0123456789\r\n",
            b"0005 \r\nhello\r\n",
            b"0\r\n\r\n",
            b"0\r\nx: y\r\n\r\n",
            b"0\r\n\n",
            b"ffffffffffffffff\r\n",
            b"\r\n",
            b"10\r\n0123",
        ];
        let mut ended = 0;
        for seed in 0..20_000 {
            let mut prng = Prng::new(seed);
            let mut bytes = vec![prng.bits() as u8];
            for _ in 0..=prng.below(6) {
                bytes.extend_from_slice(parts[prng.below(parts.len())]);
            }
            for _ in 0..prng.below(3) {
                let at = prng.below(bytes.len());
                bytes[at] = b"\r\n;: 0fx\0\xff"[prng.below(10)];
            }
            invariants::check(&bytes);
            ended += usize::from(
                Chunks::of_request()
                    .rewrite(&bytes[1..], &mut Vec::new())
                    .is_ok(),
            );
        }
        assert!(ended > 1000, "{ended}: hardly any was in order");
    }

    #[test]
    fn old_servers_pad_sizes() {
        let mut chunks = Chunks::of_response();
        let mut out = Vec::new();
        let raw = b"1  \r\na\r\n0 \r\n\r\n";
        assert_eq!(chunks.rewrite(raw, &mut out), Ok(raw.len()));
        assert_eq!(out, b"00000001\r\na\r\n0\r\n\r\n");
    }

    #[test]
    fn what_is_written_hardly_grows() {
        for raw in [&b"\r\na\r\n1\r\nb"[..], b"\n", b"\r\n0\r\n"] {
            for size in ["1", "7fffffffffffffff", "0000000000000001"] {
                let mut chunks = Chunks::of_request();
                let mut out = Vec::new();
                chunks.rewrite(size.as_bytes(), &mut out).unwrap();
                let before = out.len();
                if chunks.rewrite(raw, &mut out).is_ok() {
                    assert!(out.len() - before <= raw.len() + Chunks::GROWTH_MAX);
                }
            }
        }
    }
}
