//! What the target in `fuzz/` calls, and the replay of its corpus.

/// Any bytes as a configuration.
pub fn config(bytes: &[u8]) {
    crate::config::invariants::check(bytes);
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
}
