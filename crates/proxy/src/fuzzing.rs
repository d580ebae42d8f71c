//! What the targets in `fuzz/` call, and the replay of their corpora.

/// Any bytes as a message's head.
pub fn head(bytes: &[u8]) {
    crate::head::invariants::check(bytes);
}

/// Any bytes as a chunked body.
pub fn chunks(bytes: &[u8]) {
    crate::wire::chunks::invariants::check(bytes);
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
    fn the_corpus_of_chunks_keeps_the_invariants() {
        // `replay` asserts that there is a corpus, and the check its invariants.
        replay("chunks", ODD, super::chunks);
    }
}
