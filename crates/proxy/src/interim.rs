//! Interim responses of a node (102, 103 and others of 1xx, RFC 9110 §15.2), from its connection to
//! the client's. hyper reads and drops them at the one side and cannot write them at the other, so they
//! go past it: what the node sends is seen on its way into hyper, and what goes to the client is
//! written where hyper has nothing half written.
//!
//! A node may send as many as it likes and never answer, which costs it nothing and us time. So
//! their number and their bytes are limited; their time is that of the answer's head, which none of
//! them prolongs; and between two reads that brought nothing else other requests have their turn.
//!
//! 100 and 101 stay behind: the first is hyper's business with each side, the second is final.

use bytes::BytesMut;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Version};

use crate::head;

/// Most interim responses to a request, and most bytes of all their heads.
const COUNT_MAX: u32 = 100;
const BYTES_MAX: usize = 64 << 10;
/// Most fields of one that is forwarded.
const FIELDS_MAX: usize = 128;

/// A node sends more of them than it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flood;

/// What has come of them for the present request.
#[derive(Debug, Default)]
pub(crate) struct Interims {
    count: u32,
    bytes: usize,
    /// The begin of a head whose end has not come.
    begun: Vec<u8>,
    /// Heads to be forwarded, one after the other.
    whole: Vec<u8>,
    flooded: bool,
    /// The last read brought nothing else.
    yields: bool,
}

impl Interims {
    /// A request goes out.
    pub(crate) fn clear(&mut self) {
        if self.count > 0 || !self.begun.is_empty() {
            *self = Self::default();
        }
    }

    /// Part of a head has come, and not its end.
    pub(crate) fn on_part(&mut self, part: &[u8]) {
        // A head that is longer than all may be is refused by whoever reads it.
        if self.begun.len() + part.len() <= BYTES_MAX {
            self.begun.extend_from_slice(part);
        }
    }

    /// The last part of an interim head has come.
    pub(crate) fn on_interim(&mut self, part: &[u8]) -> Result<(), Flood> {
        self.count += 1;
        self.bytes += self.begun.len() + part.len();
        self.yields = true;
        if self.count > COUNT_MAX || self.bytes > BYTES_MAX {
            self.flooded = true;
            return Err(Flood);
        }
        self.whole.append(&mut self.begun);
        self.whole.extend_from_slice(part);
        Ok(())
    }

    /// The last part of the answer's head has come.
    pub(crate) fn on_final(&mut self) {
        self.begun.clear();
        self.yields = false;
    }

    /// Whether there were more of them than may be.
    pub(crate) fn is_flooded(&self) -> bool {
        self.flooded
    }

    /// Whether others have their turn before the next read.
    pub(crate) fn take_yield(&mut self) -> bool {
        std::mem::take(&mut self.yields)
    }

    /// What has come since this was asked last.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.whole)
    }
}

/// Appends what of these heads goes to a client; `via` is the name of this hop, if it is told.
pub(crate) fn forward(mut heads: &[u8], via: Option<&str>, out: &mut BytesMut) {
    while !heads.is_empty() {
        let Some(length) = forward_one(heads, via, out) else {
            // hyper finds it malformed as well, and there will be no answer.
            return;
        };
        heads = heads.get(length..).unwrap_or_default();
    }
}

/// The first of them. Says how long it is.
fn forward_one(heads: &[u8], via: Option<&str>, out: &mut BytesMut) -> Option<usize> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut parsed = httparse::Response::new(&mut fields);
    let httparse::Status::Complete(length) = parsed.parse(heads).ok()? else {
        return None;
    };
    let status = StatusCode::from_u16(parsed.code?).ok()?;
    if status == StatusCode::CONTINUE {
        return Some(length);
    }
    let version = match parsed.version? {
        0 => Version::HTTP_10,
        _ => Version::HTTP_11,
    };
    let mut headers = HeaderMap::new();
    for field in parsed.headers.iter() {
        let name = HeaderName::from_bytes(field.name.as_bytes()).ok()?;
        headers.append(name, HeaderValue::from_bytes(field.value).ok()?);
    }
    head::prepare_response(&mut headers, status, version, via).ok()?;
    // It has no body, whatever it says (RFC 9110 §8.6).
    headers.remove(http::header::CONTENT_LENGTH);
    headers.remove(http::header::TRANSFER_ENCODING);
    headers.remove(http::header::TRAILER);
    let reason = status.canonical_reason().unwrap_or("Interim");
    out.extend_from_slice(format!("HTTP/1.1 {} {reason}\r\n", status.as_u16()).as_bytes());
    for (name, value) in &headers {
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            out.extend_from_slice(part);
        }
    }
    out.extend_from_slice(b"\r\n");
    Some(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forwarded(heads: &str) -> String {
        let mut out = BytesMut::new();
        forward(heads.as_bytes(), Some("tidegate"), &mut out);
        String::from_utf8(out.to_vec()).unwrap()
    }

    #[test]
    fn what_belongs_to_the_hop_stays_behind() {
        let heads = "HTTP/1.1 100 Continue\r\n\r\n\
            HTTP/1.1 103 Hints\r\nlink: </a>\r\nconnection: x-hop\r\nx-hop: 1\r\ncontent-length: 5\r\nlink: </b>\r\n\r\n\
            HTTP/1.1 102 Processing\r\n\r\n";
        assert_eq!(
            forwarded(heads),
            "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\nlink: </b>\r\nvia: 1.1 tidegate\r\n\r\n\
             HTTP/1.1 102 Processing\r\nvia: 1.1 tidegate\r\n\r\n"
        );
        assert_eq!(forwarded("HTTP/1.1 103 x\r\na b: c\r\n\r\n"), "");
    }

    #[test]
    fn a_head_without_a_body_names_no_trailers() {
        let heads = "HTTP/1.1 103 Hints\r\nlink: </a>\r\nTrailer: x-sum\r\ntransfer-encoding: chunked\r\n\r\n";
        let expected = "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\nvia: 1.1 tidegate\r\n\r\n";
        assert_eq!(forwarded(heads), expected);
    }

    #[test]
    fn number_and_bytes_have_limits() {
        let head = b"HTTP/1.1 102 Processing\r\n\r\n";
        let mut interims = Interims::default();
        for _ in 0..COUNT_MAX {
            assert_eq!(interims.on_interim(head), Ok(()));
        }
        assert_eq!(interims.on_interim(head), Err(Flood));
        assert!(interims.is_flooded());
        interims.clear();
        assert!(!interims.is_flooded());
        for (part, ends) in [
            (BYTES_MAX - head.len(), Ok(())),
            (BYTES_MAX - head.len() + 1, Err(Flood)),
            (BYTES_MAX, Err(Flood)),
        ] {
            interims.clear();
            interims.on_part(&vec![b'x'; part]);
            assert_eq!(interims.on_interim(head), ends, "{part}");
        }
        // What no head may be long is not kept.
        interims.clear();
        interims.on_part(&[b'x'; BYTES_MAX]);
        interims.on_part(b"x");
        assert_eq!(interims.begun.len(), BYTES_MAX);
    }

    #[test]
    fn a_head_has_so_many_fields_and_no_more() {
        let head = |fields| format!("HTTP/1.1 103 x\r\n{}\r\n", "a: b\r\n".repeat(fields));
        assert_eq!(
            forwarded(&head(FIELDS_MAX)).matches("a: b").count(),
            FIELDS_MAX
        );
        assert_eq!(forwarded(&head(FIELDS_MAX + 1)), "");
    }
}
