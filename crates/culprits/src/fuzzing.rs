//! What the target in `fuzz/` calls, and the replay of its corpus.

/// Any bytes as an access log.
pub fn access_log(bytes: &[u8]) {
    crate::access::invariants::check(bytes);
}

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;

#[cfg(test)]
mod tests {
    use super::replay::replay;

    /// Bytes that mean something.
    const ODD: &[u8] = b"\n\"'[]=.-0f9% ${\xff";

    #[test]
    fn the_corpus_of_access_logs_keeps_the_invariants() {
        // `replay` asserts that there is a corpus, and the check its invariants.
        replay("access_log", ODD, super::access_log);
    }
}
