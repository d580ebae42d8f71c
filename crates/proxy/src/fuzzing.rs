//! What the targets in `fuzz/` call, and the replay of their corpora.

/// Any bytes as a message's head.
pub fn head(bytes: &[u8]) {
    crate::head::invariants::check(bytes);
}

/// Any bytes of a client of HTTP/2.
pub fn http2(bytes: &[u8]) {
    crate::head::http2::invariants::check(bytes);
}

/// Any bytes as a chunked body.
pub fn chunks(bytes: &[u8]) {
    crate::wire::chunks::invariants::check(bytes);
}

/// Any bytes as a request's target that routes meet.
pub fn route(bytes: &[u8]) {
    crate::route::invariants::check(bytes);
}

/// Any bytes that a connection begins with where a PROXY header is wanted.
pub fn proxy_header(bytes: &[u8]) {
    crate::wire::proxy_header::invariants::check(bytes);
}

/// Any bytes as a value of a header in which a node reports its load.
pub fn load_header(bytes: &[u8]) {
    crate::response::orca::invariants::check(bytes);
}

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;

#[cfg(test)]
mod tests {
    use super::replay::replay;

    /// Bytes that mean something.
    const ODD: &[u8] = b"\r\n:,; 0afA_-/\0\xff";

    #[test]
    fn the_corpus_of_heads_keeps_the_invariants() {
        // `replay` asserts that there is a corpus, and the check its invariants.
        replay("head", ODD, super::head);
    }

    #[test]
    fn the_corpus_of_frames_keeps_the_invariants() {
        // `replay` asserts that there is a corpus, and the check its invariants.
        let odd = b"\0\x01\x03\x04\x05\x08\x09\x25\x82\x84\x86\x87\x41\x44\x0f\x0d\xff:/a";
        replay("http2", odd, super::http2);
    }

    #[test]
    fn the_corpus_of_chunks_keeps_the_invariants() {
        // `replay` asserts that there is a corpus, and the check its invariants.
        replay("chunks", ODD, super::chunks);
    }

    #[test]
    fn the_corpus_of_targets_keeps_the_invariants() {
        // `replay` asserts that there is a corpus, and the check its invariants.
        replay("route", b"/.%2eEfF?&=ab\\*", super::route);
    }

    #[test]
    fn the_corpus_of_proxy_headers_keeps_the_invariants() {
        // `replay` asserts that there is a corpus, and the check its invariants.
        let odd = b"PROXYTCUNKW46 .:\r\n\0\x20\x21\x11019";
        replay("proxy_header", odd, super::proxy_header);
    }

    #[test]
    fn the_corpus_of_load_headers_keeps_the_invariants() {
        // `replay` asserts that there is a corpus, and the check its invariants.
        let odd = b"{}\":,.=-+/ 0179eAQg_\xff";
        replay("load_header", odd, super::load_header);
    }
}
