//! What must hold for any bytes that are taken for a chunked body. Shared by the fuzz target and
//! by the tests of `tidegate-proxy`.
//!
//! 1. Reading never panics, takes no byte behind the body's end, and writes little more than it reads.
//! 2. In whatever pieces a body comes, the verdict, the data and the end are the same.
//! 3. What is written is a chunked body of the same data and trailers, that a reader accepts that knows
//!    nothing but the plainest form; written anew it stays the same body.
//! 4. What is refused in an answer is refused in a request.

use super::{ChunkError, Chunks};

/// What a body says, and how many bytes it has; none if it does not end.
type Body = Option<(Vec<u8>, Vec<u8>, usize)>;

/// Checks all of them. The first byte says into which pieces the others are cut.
pub(crate) fn check(bytes: &[u8]) {
    let Some((piece, raw)) = bytes.split_first() else {
        return;
    };
    let piece = usize::from(*piece).max(1);
    for new in [Chunks::of_request, Chunks::of_response] {
        let whole = body(new(), raw, raw.len().max(1));
        for piece in [1, 2, piece] {
            assert_eq!(body(new(), raw, piece), whole);
        }
        assert_eq!(passed_by(new(), raw, piece), whole);
    }
    let request = body(Chunks::of_request(), raw, piece);
    let response = body(Chunks::of_response(), raw, piece);
    assert!(response.is_ok() || request.is_err());
}

fn body(mut chunks: Chunks, raw: &[u8], piece: usize) -> Result<Body, ChunkError> {
    let mut written = Vec::new();
    let mut taken = 0;
    for piece in raw.chunks(piece) {
        let before = written.len();
        let here = chunks.rewrite(piece, &mut written)?;
        assert!(here <= piece.len());
        assert!(written.len() - before <= piece.len() + Chunks::GROWTH_MAX);
        assert!(here == piece.len() || chunks.is_done());
        taken += here;
    }
    Ok(chunks.is_done().then(|| plain(&written, taken)))
}

/// The same, with data that pass by unread.
fn passed_by(mut chunks: Chunks, raw: &[u8], piece: usize) -> Result<Body, ChunkError> {
    let mut written = Vec::new();
    let mut taken = 0;
    while taken < raw.len() && !chunks.is_done() {
        let rest = &raw[taken..raw.len().min(taken + piece)];
        if chunks.passing() >= rest.len() as u64 {
            written.extend_from_slice(rest);
            chunks.on_passed(rest.len() as u64);
            taken += rest.len();
        } else {
            taken += chunks.rewrite(rest, &mut written)?;
        }
    }
    Ok(chunks.is_done().then(|| plain(&written, taken)))
}

/// Reads the plainest form: sizes in hexadecimal digits, lines that end in CRLF.
fn plain(written: &[u8], taken: usize) -> (Vec<u8>, Vec<u8>, usize) {
    let mut data = Vec::new();
    let mut rest = written;
    loop {
        let (line, behind) = line(rest);
        assert!(!line.is_empty() && line.iter().all(u8::is_ascii_hexdigit));
        let size = u64::from_str_radix(std::str::from_utf8(line).expect("digits"), 16);
        let size = usize::try_from(size.expect("a size")).expect("a size of what is here");
        if size == 0 {
            rest = behind;
            break;
        }
        data.extend_from_slice(&behind[..size]);
        assert_eq!(&behind[size..size + 2], b"\r\n");
        rest = &behind[size + 2..];
    }
    let trailers = rest.to_vec();
    loop {
        let (field, behind) = line(rest);
        rest = behind;
        if field.is_empty() {
            break;
        }
        assert!(field.contains(&b':') && !field.contains(&b'\n'));
    }
    assert!(rest.is_empty(), "the body ends with its last line");
    (data, trailers, taken)
}

fn line(rest: &[u8]) -> (&[u8], &[u8]) {
    let end = rest
        .windows(2)
        .position(|it| it == b"\r\n")
        .expect("a line");
    (&rest[..end], &rest[end + 2..])
}
