//! Answers to HAProxy's agent check, which keepalived's scripts and others speak too.
//!
//! ```text
//! load    = (w1 * cpu + w2 * memory + w3 * files) / (w1 + w2 + w3)        used shares, 0 to 1
//! answer  = up NN%        NN = 100 * (1 - load), 1 at least
//! ```
//!
//! A balancer multiplies the server's weight by NN: this is SLBL's weight, at a balancer that knows nothing of it. Its
//! `resourcechk` is [`AtLimit`]: what is said while a soft limit is crossed, or a service check fails.
//!
//! A question is a line (`agent-send`) of words in any order, each of which may be missing; words that are not known are
//! left out of account, since balancers send names of their own:
//!
//! ```text
//! weight              say `weight:NN%`, which HAProxy 2.6 does not take, instead of `NN%`
//! maxconn=N           say `maxconn:M` too, M = N * (1 - load), 1 at least
//! at_limit=1%|0%|down what is said at a soft limit, instead of the configured one
//! ```
//!
//! A load that is not known changes nothing: `up` alone, and the balancer keeps the weight that it has. `ready`, `drain` and
//! `maint` are never said: they would undo what an operator has ordered at the balancer.
//! Sources: SLBL-ARPN §5 to §7; the manual of HAProxy 2.6, `agent-check`.

use std::fmt::Write as _;

/// Longest question that is looked at, bytes.
pub const QUESTION_BYTES_MAX: usize = 512;

/// What is said while a soft limit is crossed, or a service check fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AtLimit {
    /// `1%`: nearly no new requests. It cannot take a whole site down.
    #[default]
    Least,
    /// `0%`: no new requests but those of clients that are bound to the server.
    Nothing,
    /// `down`: the balancer takes the server out, and says why.
    Down,
}

impl AtLimit {
    /// Its name in questions and configuration files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Least => "1%",
            Self::Nothing => "0%",
            Self::Down => "down",
        }
    }

    fn of_name(name: &str) -> Option<Self> {
        let all = [Self::Least, Self::Nothing, Self::Down];
        all.into_iter().find(|it| it.name() == name)
    }
}

/// What a balancer wants to know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Question {
    weight_word: bool,
    maxconn: Option<u32>,
    at_limit: Option<AtLimit>,
}

impl Question {
    /// From the first line of what was sent.
    pub fn parse(sent: &[u8]) -> Self {
        let end = sent.iter().position(|byte| matches!(byte, b'\r' | b'\n'));
        let line = &sent[..end.unwrap_or(sent.len()).min(QUESTION_BYTES_MAX)];
        let mut question = Self::default();
        for word in String::from_utf8_lossy(line).split([' ', '\t', ',']) {
            match word.split_once('=') {
                None if word == "weight" => question.weight_word = true,
                Some(("maxconn", number)) => {
                    question.maxconn = number.parse().ok().or(question.maxconn);
                }
                Some(("at_limit", name)) => {
                    question.at_limit = AtLimit::of_name(name).or(question.at_limit);
                }
                _ => {}
            }
        }
        question
    }
}

/// A line, without its end: `load` is the used share, NaN if unknown; `crossed` says in a few words which soft limit is
/// crossed, or which service fails.
pub fn answer(load: f32, crossed: Option<&str>, at_limit: AtLimit, question: Question) -> String {
    let free = 1.0 - load.clamp(0.0, 1.0);
    let percent = match (crossed, question.at_limit.unwrap_or(at_limit)) {
        (Some(why), AtLimit::Down) => return format!("down #{}", one_line(why)),
        (Some(_), AtLimit::Nothing) => Some(0),
        (Some(_), AtLimit::Least) => Some(1),
        (None, _) => (!free.is_nan()).then(|| ((free * 100.0).round() as u32).max(1)),
    };
    let mut line = "up".to_owned();
    if let Some(percent) = percent {
        let word = if question.weight_word { "weight:" } else { "" };
        // Writing to a text cannot fail.
        write!(line, " {word}{percent}%").ok();
    }
    if let Some(maxconn) = question.maxconn.filter(|_| !free.is_nan()) {
        let allowed = (f64::from(maxconn) * f64::from(free)).round().max(1.0);
        write!(line, " maxconn:{allowed}").ok();
    }
    line
}

/// Balancers read up to the end of the line.
fn one_line(why: &str) -> String {
    why.chars()
        .map(|it| if it.is_control() { ' ' } else { it })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(load: f32, crossed: Option<&str>, sent: &str) -> String {
        answer(
            load,
            crossed,
            AtLimit::Least,
            Question::parse(sent.as_bytes()),
        )
    }

    #[test]
    fn the_more_is_free_the_greater_the_weight() {
        for (load, line) in [
            (0.0, "up 100%"),
            (0.375, "up 63%"),
            (0.999, "up 1%"),
            (1.0, "up 1%"),
            (7.0, "up 1%"),
            (-1.0, "up 100%"),
        ] {
            assert_eq!(asked(load, None, ""), line);
        }
    }

    #[test]
    fn what_is_not_known_changes_nothing() {
        assert_eq!(asked(f32::NAN, None, "weight maxconn=100\n"), "up");
        assert_eq!(asked(f32::NAN, Some("files"), ""), "up 1%");
    }

    #[test]
    fn a_balancer_says_what_it_takes() {
        assert_eq!(asked(0.25, None, "weight\n"), "up weight:75%");
        assert_eq!(
            asked(0.25, None, "shop/n1, maxconn=200\r\nweight"),
            "up 75% maxconn:150"
        );
        assert_eq!(
            asked(1.0, None, "maxconn=3\tweight"),
            "up weight:1% maxconn:1"
        );
        assert_eq!(
            asked(0.25, None, "maxconn=-1 maxconn= maxconn=x at_limit=50%"),
            "up 75%"
        );
        let most = format!("maxconn={}", u32::MAX);
        assert_eq!(asked(0.0, None, &most), "up 100% maxconn:4294967295");
        assert_eq!(Question::parse(&[0xff; 2000]), Question::default());
    }

    #[test]
    fn at_a_soft_limit_the_least_is_said_unless_more_is_asked_for() {
        let why = "open files 93 % of\r\n1024";
        assert_eq!(asked(0.2, Some(why), ""), "up 1%");
        assert_eq!(asked(0.2, Some(why), "at_limit=0%"), "up 0%");
        assert_eq!(
            asked(0.2, Some(why), "at_limit=down weight"),
            "down #open files 93 % of  1024"
        );
        let down = answer(0.2, Some("a"), AtLimit::Down, Question::default());
        assert_eq!(down, "down #a");
        let least = answer(
            0.2,
            Some("a"),
            AtLimit::Down,
            Question::parse(b"at_limit=1%"),
        );
        assert_eq!(least, "up 1%");
    }
}
