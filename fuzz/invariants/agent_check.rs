//! What must hold for any question of a balancer. Shared by the fuzz target and by the test that replays its corpus.
//!
//! 1. Reading never panics, whatever the load is.
//! 2. What is said is one line without control characters, `up` with words that HAProxy knows, or `down` with a reason.

use tidegate_node::report::agent_check::{AtLimit, Question, answer};

/// Takes the first byte for the load, and the rest for the question.
pub(crate) fn check(bytes: &[u8]) {
    let Some((load, sent)) = bytes.split_first() else {
        return;
    };
    let load = match load {
        0xff => f32::NAN,
        0xfe => f32::INFINITY,
        load => f32::from(*load) / 100.0 - 0.5,
    };
    let question = Question::parse(sent);
    let why = String::from_utf8_lossy(sent);
    for at_limit in [AtLimit::Least, AtLimit::Nothing, AtLimit::Down] {
        for crossed in [None, Some(&*why)] {
            let line = answer(load, crossed, at_limit, question);
            assert!(!line.contains(char::is_control), "{line:?}");
            if line.starts_with("down #") {
                continue;
            }
            let mut words = line.split(' ');
            assert_eq!(words.next(), Some("up"));
            assert!(words.all(is_known), "{line}");
        }
    }
}

fn is_known(word: &str) -> bool {
    if let Some(number) = word.strip_prefix("maxconn:") {
        return number.parse::<u32>().is_ok_and(|it| it > 0);
    }
    let percent = word
        .strip_prefix("weight:")
        .unwrap_or(word)
        .strip_suffix('%');
    percent.is_some_and(|it| it.parse::<u8>().is_ok_and(|it| it <= 100))
}
