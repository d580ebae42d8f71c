//! What must hold for any answer of an agent of HAProxy's agent check. Shared by the fuzz target and by the test that replays its
//! corpus.
//!
//! 1. Reading never panics, and what stands behind the end of the line changes nothing.
//! 2. A weight is from 0 to 256, be it a share or not.
//! 3. Texts that are shown are short and have no control characters.
//! 4. An answer that comes a second time changes nothing.
//! 5. A line that is written of it reads as the same.

use tidegate_core::time::Timestamp;
use tidegate_core::topology::{AgentHealth, AgentState, AgentWeight};
use tidegate_reported::AgentLine;

/// Takes all for the answer.
pub(crate) fn check(bytes: &[u8]) {
    let Some(line) = AgentLine::parse(bytes) else {
        return;
    };
    let end = bytes.iter().position(|it| matches!(it, b'\r' | b'\n'));
    let first = end.map(|end| &bytes[..=end]);
    assert_eq!(first.and_then(AgentLine::parse).as_ref(), Some(&line));
    if let Some(AgentWeight::Share(number) | AgentWeight::Absolute(number)) = line.answer.weight {
        assert!((0.0..=256.0).contains(&number), "{number}");
    }
    if let Some(AgentHealth::Down { reason, .. }) = &line.answer.health {
        assert!(is_short(reason), "{reason:?}");
    }
    assert_eq!(line.ignored > 0, line.ignored_word.is_some());
    assert!(line.ignored_word.as_deref().is_none_or(is_short));
    let written = AgentLine::write(&line.answer);
    let read = AgentLine::parse(written.as_bytes()).map(|it| it.answer);
    assert_eq!(read.as_ref(), Some(&line.answer), "{written:?}");
    let mut state = AgentState::default();
    state.on_answer(&line.answer, Timestamp::from_millis(1));
    assert!(!state.on_answer(&line.answer, Timestamp::from_millis(2)));
}

fn is_short(text: &str) -> bool {
    text.chars().count() <= 128 && !text.contains(char::is_control)
}
