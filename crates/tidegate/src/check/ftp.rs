//! `ftp`: the server's greeting, and a login if there is one (RFC 959).
//!
//! ```text
//! 220                                            without a user, that is all
//! USER … -> 331, PASS … -> 230, or USER … -> 230
//! ```
//!
//! Failure case: any other reply, with its code. The password goes over the wire as it is, as always in FTP.

use std::net::SocketAddr;

use tidegate_core::topology::{CheckFailure, FtpLogin};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::{Unwell, connect, read_answer};

const READY: u16 = 220;
const LOGGED_IN: u16 = 230;
const PASSWORD_WANTED: u16 = 331;
/// Bytes of one reply, all its lines.
const REPLY_BYTES_MAX: usize = 8 << 10;
const MALFORMED: CheckFailure = CheckFailure::Malformed("FTP");

/// A reply's code, and how many bytes it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reply {
    pub(super) code: u16,
    pub(super) bytes: usize,
}

struct Session {
    stream: TcpStream,
    /// What has come and was not looked at.
    read: Vec<u8>,
}

pub(super) async fn ask(address: SocketAddr, login: Option<&FtpLogin>) -> Result<(), Unwell> {
    let mut session = Session {
        stream: connect(address).await?,
        read: Vec::new(),
    };
    wanted(session.reply().await?, READY)?;
    if let Some(login) = login {
        let mut code = session.say("USER", &login.user).await?;
        if code == PASSWORD_WANTED {
            code = session.say("PASS", &login.password).await?;
        }
        wanted(code, LOGGED_IN)?;
    }
    // The node is well, whatever becomes of the farewell.
    session.stream.write_all(b"QUIT\r\n").await.ok();
    Ok(())
}

fn wanted(code: u16, wanted: u16) -> Result<(), CheckFailure> {
    match code == wanted {
        true => Ok(()),
        false => Err(CheckFailure::Code("reply", code.into())),
    }
}

impl Session {
    async fn say(&mut self, verb: &str, what: &str) -> Result<u16, Unwell> {
        let line = format!("{verb} {what}\r\n");
        let sent = self.stream.write_all(line.as_bytes()).await;
        sent.map_err(|_| CheckFailure::Broken)?;
        self.reply().await
    }

    async fn reply(&mut self) -> Result<u16, Unwell> {
        let most = (REPLY_BYTES_MAX, MALFORMED);
        let reply = read_answer(&mut self.stream, &mut self.read, most, reply).await?;
        self.read.drain(..reply.bytes);
        Ok(reply.code)
    }
}

/// The reply that these bytes begin with, if it is whole.
///
/// `220 text` ends a reply of one line; one that begins with `220-` ends with a line that begins with `220 `.
pub(super) fn reply(bytes: &[u8]) -> Result<Option<Reply>, CheckFailure> {
    let mut code = None;
    let mut at = 0;
    while let Some(length) = bytes[at..].iter().position(|byte| *byte == b'\n') {
        let line = &bytes[at..at + length];
        at += length + 1;
        let parsed = coded(line);
        let first = match code {
            Some(first) => first,
            None => parsed.ok_or(MALFORMED)?.0,
        };
        code = Some(first);
        if parsed == Some((first, true)) {
            return Ok(Some(Reply {
                code: first,
                bytes: at,
            }));
        }
    }
    // A server of another protocol may wait for its client after a few bytes without an end of line.
    let begun = bytes.len().min(3);
    match code.is_none() && !bytes[..begun].iter().all(u8::is_ascii_digit) {
        true => Err(MALFORMED),
        false => Ok(None),
    }
}

/// The code at the begin of a line, and whether the line ends a reply of it.
fn coded(line: &[u8]) -> Option<(u16, bool)> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let (digits, rest) = line.split_at_checked(3)?;
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let code = digits
        .iter()
        .fold(0, |code, digit| code * 10 + u16::from(digit - b'0'));
    match rest.first() {
        None | Some(b' ') => Some((code, true)),
        Some(b'-') => Some((code, false)),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncBufReadExt, BufReader};
    use tokio::net::TcpListener;

    use super::*;
    use crate::testing;

    fn code(bytes: &[u8]) -> Result<Option<u16>, CheckFailure> {
        reply(bytes).map(|reply| reply.map(|it| it.code))
    }

    #[test]
    fn a_reply_has_a_code_and_one_line_or_several() {
        assert_eq!(code(b"220 ready\r\n"), Ok(Some(220)));
        assert_eq!(code(b"220\r\n"), Ok(Some(220)));
        assert_eq!(
            code(b"530 no\n"),
            Ok(Some(530)),
            "as some servers end lines"
        );
        let several = b"220-Welcome\r\n to\r\n221 all\r\n220-of\r\n220 you\r\n331 x\r\n";
        let whole = Reply {
            code: 220,
            bytes: several.len() - 7,
        };
        assert_eq!(reply(several), Ok(Some(whole)));
    }

    #[test]
    fn half_a_reply_is_waited_for_and_what_is_none_is_not() {
        let whole = b"220-Welcome\r\n220 you\r\n";
        for length in 0..whole.len() {
            assert_eq!(code(&whole[..length]), Ok(None), "{length}");
        }
        for odd in [
            b"SSH-2.0-OpenSSH\r\n".as_slice(),
            b"HTTP",
            b"\xff\xfb\x01",
            b"\r\n",
            b"22x ready\r\n",
            b"2200 ready\r\n",
        ] {
            assert_eq!(code(odd), Err(MALFORMED), "{odd:?}");
        }
    }

    /// What a check makes of a server that greets so, and answers each line with the next of these.
    fn answers(login: Option<FtpLogin>, replies: &[&str]) -> (Result<(), Unwell>, Vec<String>) {
        testing::runtime().block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let server = async {
                let (stream, _) = listener.accept().await.unwrap();
                let (reader, mut writer) = stream.into_split();
                let mut lines = BufReader::new(reader).lines();
                let mut said = Vec::new();
                for reply in replies {
                    writer.write_all(reply.as_bytes()).await.ok();
                    match lines.next_line().await {
                        Ok(Some(line)) => said.push(line),
                        Ok(None) | Err(_) => break,
                    }
                }
                said
            };
            tokio::join!(ask(address, login.as_ref()), server)
        })
    }

    fn login() -> Option<FtpLogin> {
        Some(FtpLogin {
            user: "check".into(),
            password: "a b".into(),
        })
    }

    fn failed(code: u32) -> Result<(), Unwell> {
        Err(CheckFailure::Code("reply", code).into())
    }

    #[test]
    fn a_greeting_is_enough_without_a_user_and_a_login_is_asked_for_with_one() {
        let (result, said) = answers(None, &["220-Hello\r\n220 there\r\n"]);
        assert_eq!((result, said), (Ok(()), vec!["QUIT".into()]));
        let well = ["220 x\r\n", "331 x\r\n", "230 x\r\n"];
        let (result, said) = answers(login(), &well);
        assert_eq!(result, Ok(()));
        assert_eq!(said, ["USER check", "PASS a b", "QUIT"]);
        let (result, said) = answers(login(), &["220 x\r\n", "230 x\r\n"]);
        assert_eq!(result, Ok(()), "no password wanted");
        assert_eq!(said, ["USER check", "QUIT"]);
    }

    #[test]
    fn other_replies_fail_with_their_code() {
        assert_eq!(answers(None, &["421 busy\r\n"]).0, failed(421));
        assert_eq!(answers(None, &["120 soon\r\n"]).0, failed(120));
        let wrong = ["220 x\r\n", "331 x\r\n", "530 no\r\n"];
        assert_eq!(answers(login(), &wrong).0, failed(530));
        assert_eq!(answers(login(), &["220 x\r\n", "332 x\r\n"]).0, failed(332));
    }

    #[test]
    fn nothing_half_and_without_end_fail() {
        let broken = Err(CheckFailure::Broken.into());
        assert_eq!(answers(None, &[]).0, broken);
        let endless = format!("220-{}", "x".repeat(2 * REPLY_BYTES_MAX));
        assert_eq!(answers(None, &[&endless]).0, Err(MALFORMED.into()));
        let lines = "220-x\r\n".repeat(REPLY_BYTES_MAX);
        assert_eq!(answers(None, &[&lines]).0, Err(MALFORMED.into()));
    }
}
