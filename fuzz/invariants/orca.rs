//! What must hold for any question of a client of ORCA. Shared by the fuzz target and by the test that replays its corpus.
//!
//! 1. Reading never panics.
//! 2. A start of it is unfinished, or says the same as all of it: nothing is decided too early.
//! 3. What is as long as a question may be is finished.

use tidegate_node::report::orca::{QUESTION_BYTES_MAX, Question};

/// Takes a request's body.
pub(crate) fn check(bytes: &[u8]) {
    let whole = Question::parse(bytes);
    for length in 0..bytes.len() {
        let start = Question::parse(&bytes[..length]);
        assert!(start == Question::Unfinished || start == whole, "{length}");
    }
    if bytes.len() >= QUESTION_BYTES_MAX + 5 {
        assert_ne!(whole, Question::Unfinished);
    }
}
