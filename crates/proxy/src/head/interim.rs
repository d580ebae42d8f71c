//! Interim responses of a node as they go to the client: without what belongs to the hop, and never a body.
//! What has come of them is collected where the bytes come in (`wire::interim`).

use bytes::BytesMut;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Version};

/// Most fields of one that is forwarded.
const FIELDS_MAX: usize = 128;

/// Appends what of these heads goes to a client; `via` is the name of this hop, if it is shown.
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
    super::prepare_response(&mut headers, status, version, via).ok()?;
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
    fn a_head_has_so_many_fields_and_no_more() {
        let head = |fields| format!("HTTP/1.1 103 x\r\n{}\r\n", "a: b\r\n".repeat(fields));
        assert_eq!(
            forwarded(&head(FIELDS_MAX)).matches("a: b").count(),
            FIELDS_MAX
        );
        assert_eq!(forwarded(&head(FIELDS_MAX + 1)), "");
    }
}
