//! Replays the fuzz corpora of what others report. The fuzzer itself is run by hand.

#[path = "../../../fuzz/invariants/agent_line.rs"]
mod agent_line;
#[path = "../../../fuzz/replay.rs"]
mod replay;

#[test]
fn the_corpus_of_agents_answers_keeps_the_invariants() {
    // `replay` asserts that there is a corpus, and the check its invariants.
    let odd = b"0129%:,# \t\r\nuweight\xff\x07\0";
    replay::replay("agent_line", odd, agent_line::check);
}
