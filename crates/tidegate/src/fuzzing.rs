//! What the targets in `fuzz/` call, and the replay of its corpus.

/// Any bytes as a configuration.
pub fn config(bytes: &[u8]) {
    crate::config::invariants::check(bytes);
}

/// A byte that says of which protocol, and any bytes as what a server answers to a check.
pub fn service_answers(bytes: &[u8]) {
    crate::check::invariants::check(bytes);
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
    fn the_corpus_of_answers_keeps_the_invariants() {
        let odd = b"\0\x01\x80\xff\xfe 0259-\r\n";
        replay("service_answers", odd, super::service_answers);
    }
}
