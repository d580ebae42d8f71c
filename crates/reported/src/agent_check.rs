//! HAProxy's agent check, from the balancer's side: a connection, a question as it is configured, one line as the answer.
//!
//! ```text
//! line  = words with spaces, tabs or commas between them, in any order, up to the first CR or LF; `#` begins a reason,
//!         which goes to the end of the line
//! words = NN%  weight:NN%              share of the configured weight, 25600% at most
//!         weight:NN                    weight, 0 to 256
//!         maxconn:NN                   most requests in flight
//!         ready  drain  maint          state
//!         up  down  fail  stopped      health
//! ```
//!
//! Letters count alike in either case, and of two words of a kind the last one counts. Other words are left out of account and
//! counted. What the words do stands in `tidegate_core::topology::AgentState`: what is not said stays as it was.
//!
//! Failure case: a line without its end may be half of one (`weight:2` of `weight:25`), so nothing of it is believed.
//! Source: HAProxy's manual, `agent-check`, and what its parser does.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::topology::{AdminState, AgentAnswer, AgentHealth, AgentWeight};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::source::PollFault;

/// Longest line that is read, bytes.
pub const LINE_BYTES_MAX: usize = 1024;
/// Longest reason, and longest word that is shown, characters.
const REASON_CHARS_MAX: usize = 128;
const WORD_CHARS_MAX: usize = 32;
/// Longest wait for an answer.
const WAIT_MAX: Duration = Duration::from_secs(2);
/// Most that a share is, as HAProxy has it, and the greatest weight.
const SHARE_PERCENT_MAX: u32 = 25_600;
const WEIGHT_MAX: u32 = 256;

const SILENT: &str = "does an agent answer there within a period, and within 2 s?";
const HALF: &str = "its line has no end (CR or LF, within 1024 bytes), and is not believed";
const NOTHING: &str = "it closes the connection without an answer";
const NO_LISTENER: &str = "nothing listens at the address";

/// How a node's agent is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentCheckConfig {
    /// Where it answers.
    pub address: SocketAddr,
    /// What is sent first, as it is; it may be empty.
    pub send: String,
    /// Time between two questions. An answer may take as long, two seconds at most.
    pub period: Duration,
}

/// What a line says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AgentLine {
    /// What is understood.
    pub answer: AgentAnswer,
    /// Words that are not.
    pub ignored: u32,
    /// The first of them.
    pub ignored_word: Option<String>,
}

impl AgentLine {
    /// Reads the first line; none if its end is not there, or comes too late.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let line = bytes.get(..line_end(bytes)?)?;
        let (words, reason) = split_reason(line);
        let mut said = Self::default();
        for word in words.split(is_blank).filter(|word| !word.is_empty()) {
            said.take(&shown(word, LINE_BYTES_MAX));
        }
        if let Some(AgentHealth::Down { reason: why, .. }) = &mut said.answer.health {
            *why = Arc::from(shown(reason.trim_ascii(), REASON_CHARS_MAX).trim());
        }
        Some(said)
    }

    /// The line that says this, with its end.
    pub fn write(answer: &AgentAnswer) -> String {
        let mut words = Vec::new();
        words.extend(answer.weight.map(|it| match it {
            AgentWeight::Share(share) => format!("{:.0}%", share * 100.0),
            AgentWeight::Absolute(weight) => format!("weight:{weight:.0}"),
        }));
        words.extend(answer.state.map(|it| it.label().to_owned()));
        words.extend(answer.most.map(|it| format!("maxconn:{it}")));
        match &answer.health {
            None => {}
            Some(AgentHealth::Up) => words.push("up".into()),
            Some(AgentHealth::Down { word, reason }) => words.push(format!("{word} #{reason}")),
        }
        words.join(" ") + "\n"
    }

    fn take(&mut self, word: &str) {
        let answer = &mut self.answer;
        let lower = word.to_ascii_lowercase();
        match &*lower {
            "ready" => answer.state = Some(AdminState::Ready),
            "drain" => answer.state = Some(AdminState::Drain),
            "maint" => answer.state = Some(AdminState::Maint),
            "up" => answer.health = Some(AgentHealth::Up),
            "down" => answer.health = Some(down("down")),
            "fail" => answer.health = Some(down("fail")),
            "stopped" => answer.health = Some(down("stopped")),
            other => {
                if let Some(weight) = weight(other) {
                    answer.weight = Some(weight);
                } else if let Some(most) = other.strip_prefix("maxconn:").and_then(number) {
                    answer.most = Some(most);
                } else {
                    self.ignored += 1;
                    let shown = || word.chars().take(WORD_CHARS_MAX).collect();
                    self.ignored_word.get_or_insert_with(shown);
                }
            }
        }
    }
}

fn down(word: &'static str) -> AgentHealth {
    AgentHealth::Down {
        word,
        reason: Arc::default(),
    }
}

fn weight(word: &str) -> Option<AgentWeight> {
    let named = word.strip_prefix("weight:");
    let value = named.unwrap_or(word);
    match (value.strip_suffix('%'), named) {
        (Some(percent), _) => {
            let percent = number(percent)?.min(SHARE_PERCENT_MAX);
            Some(AgentWeight::Share(percent as f32 / 100.0))
        }
        (None, Some(_)) => {
            let weight = number(value).filter(|it| *it <= WEIGHT_MAX)?;
            Some(AgentWeight::Absolute(weight as f32))
        }
        (None, None) => None,
    }
}

/// A number in digits; one that is too great is the greatest.
fn number(text: &str) -> Option<u32> {
    let all_digits = !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
    all_digits.then(|| text.parse().unwrap_or(u32::MAX))
}

/// Where the first line ends, if that is there in time.
fn line_end(bytes: &[u8]) -> Option<usize> {
    let read = &bytes[..bytes.len().min(LINE_BYTES_MAX)];
    read.iter().position(|byte| matches!(byte, b'\r' | b'\n'))
}

fn is_blank(byte: &u8) -> bool {
    matches!(byte, b' ' | b'\t' | b',')
}

/// A line's words, and what stands behind a word's `#`.
fn split_reason(line: &[u8]) -> (&[u8], &[u8]) {
    let begins = |at: &usize| line[*at] == b'#' && (*at == 0 || is_blank(&line[*at - 1]));
    match (0..line.len()).find(begins) {
        Some(at) => (&line[..at], &line[at + 1..]),
        None => (line, &[]),
    }
}

/// Bytes of others as a text of one line, cut to so many characters.
fn shown(bytes: &[u8], chars: usize) -> String {
    let text = String::from_utf8_lossy(bytes);
    let printable = text
        .chars()
        .map(|it| if it.is_control() { ' ' } else { it });
    printable.take(chars).collect()
}

/// Asks once.
pub(crate) async fn ask(config: &AgentCheckConfig) -> Result<AgentLine, PollFault> {
    let answered = timeout(config.period.min(WAIT_MAX), exchange(config)).await;
    answered.unwrap_or(Err(PollFault::NoAnswer(SILENT)))
}

async fn exchange(config: &AgentCheckConfig) -> Result<AgentLine, PollFault> {
    let connected = TcpStream::connect(config.address).await;
    let mut stream = connected.map_err(|error| unconnected(&error))?;
    // An agent may answer and close before it has read this: then its line is there all the same.
    stream.write_all(config.send.as_bytes()).await.ok();
    let mut read = [0; LINE_BYTES_MAX];
    let mut count = 0;
    while count < read.len() && line_end(&read[..count]).is_none() {
        match stream.read(&mut read[count..]).await {
            Ok(0) | Err(_) => break,
            Ok(more) => count += more,
        }
    }
    let fault = if count == 0 { NOTHING } else { HALF };
    AgentLine::parse(&read[..count]).ok_or(PollFault::NothingThere(fault))
}

/// Why there is no connection.
pub(crate) fn unconnected(error: &std::io::Error) -> PollFault {
    match error.kind() == std::io::ErrorKind::ConnectionRefused {
        true => PollFault::Refused(NO_LISTENER),
        false => PollFault::Unsent(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> AgentLine {
        AgentLine::parse(line.as_bytes()).expect("a line with its end")
    }

    fn weight_of(line: &str) -> Option<AgentWeight> {
        parse(line).answer.weight
    }

    fn is_down(line: &str, wanted_word: &str, wanted_reason: &str) {
        match parse(line).answer.health {
            Some(AgentHealth::Down { word, reason }) => {
                assert_eq!((word, &*reason), (wanted_word, wanted_reason), "{line}");
            }
            health @ (None | Some(AgentHealth::Up)) => panic!("{line}: {health:?}"),
        }
    }

    #[test]
    fn words_stand_in_any_order_with_any_blanks() {
        for line in [
            "up 75% maxconn:30 drain\n",
            "DRAIN,,75%\tMAXCONN:30,Up\r\n",
            "  maint drain down up 1% weight:75% maxconn:30\nready 3%\n",
        ] {
            let said = parse(line);
            assert_eq!(said.answer.weight, Some(AgentWeight::Share(0.75)), "{line}");
            assert_eq!(said.answer.most, Some(30));
            assert_eq!(said.answer.state, Some(AdminState::Drain));
            assert_eq!(said.answer.health, Some(AgentHealth::Up));
            assert_eq!(said.ignored, 0);
        }
        assert_eq!(parse("\n"), AgentLine::default());
    }

    #[test]
    fn a_weight_is_a_share_or_a_number() {
        assert_eq!(weight_of("0%\n"), Some(AgentWeight::Share(0.0)));
        assert_eq!(weight_of("weight:150%\n"), Some(AgentWeight::Share(1.5)));
        assert_eq!(weight_of("99999999999%\n"), Some(AgentWeight::Share(256.0)));
        assert_eq!(weight_of("weight:0\n"), Some(AgentWeight::Absolute(0.0)));
        assert_eq!(
            weight_of("weight:256\n"),
            Some(AgentWeight::Absolute(256.0))
        );
        for line in [
            "weight:257\n",
            "75\n",
            "%\n",
            "-1%\n",
            "1.5%\n",
            "75%x\n",
            "weight:\n",
        ] {
            let said = parse(line);
            assert_eq!((said.answer.weight, said.ignored), (None, 1), "{line}");
        }
    }

    #[test]
    fn a_reason_begins_with_a_word_and_goes_to_the_end_of_the_line() {
        is_down(
            "down #disk full, 3 % left\r\n",
            "down",
            "disk full, 3 % left",
        );
        is_down("50% fail\t#  up ready 7%\n", "fail", "up ready 7%");
        is_down("stopped\n", "stopped", "");
        is_down("down #\u{7}a\n", "down", "a");
        is_down(
            &format!("down #{}\n", "ä".repeat(400)),
            "down",
            &"ä".repeat(128),
        );
        let glued = parse("down#disk\n");
        assert_eq!(glued.answer.health, None, "as HAProxy has it");
        assert_eq!(glued.ignored_word.as_deref(), Some("down#disk"));
        let up = parse("up #all is well\n");
        assert_eq!(up.answer.health, Some(AgentHealth::Up));
        assert_eq!(up.ignored, 0);
    }

    #[test]
    fn words_that_are_not_known_are_counted_and_the_first_is_shown() {
        let said = parse("up weight=3 75% maxconn:x \u{1b}[31mred\n");
        assert_eq!(said.ignored, 3);
        assert_eq!(said.ignored_word.as_deref(), Some("weight=3"));
        assert_eq!(said.answer.weight, Some(AgentWeight::Share(0.75)));
        let long = parse(&format!("{}\n", "x".repeat(1000)));
        assert_eq!(long.ignored_word.map(|it| it.len()), Some(WORD_CHARS_MAX));
    }

    #[test]
    fn a_line_without_its_end_is_none() {
        let long = [b'x'; LINE_BYTES_MAX];
        for half in [&b""[..], b"up 7", b"down", &long] {
            assert_eq!(AgentLine::parse(half), None);
        }
        let late = [&long[..], b"\n"].concat();
        assert_eq!(AgentLine::parse(&late), None);
    }
}
