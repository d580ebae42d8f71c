//! What the targets in `fuzz/` call, and the replay of their corpora.

/// Any bytes as a configuration.
pub fn config(bytes: &[u8]) {
    crate::config::invariants::check(bytes);
}

/// Any bytes as an access log.
pub fn access_log(bytes: &[u8]) {
    crate::culprits::access::invariants::check(bytes);
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
    fn the_corpus_of_configurations_keeps_the_invariants() {
        // `replay` asserts that there is a corpus, and the check its invariants.
        replay("config", ODD, super::config);
    }

    #[test]
    fn the_corpus_of_access_logs_keeps_the_invariants() {
        // `replay` asserts that there is a corpus, and the check its invariants.
        replay("access_log", ODD, super::access_log);
    }
}
