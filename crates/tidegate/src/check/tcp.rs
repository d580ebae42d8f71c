//! `tcp`: a connection; and, where they are set, bytes that are sent and bytes that must come.

use tidegate_core::topology::{BytesCheck, CheckFailure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{ANSWER_BYTES_MAX, PIECE_BYTES, Target, Unwell, connect_by, contains};

pub(super) async fn ask(target: &Target<'_>, wanted: &BytesCheck) -> Result<(), Unwell> {
    let mut stream = connect_by(target).await?;
    if *wanted == BytesCheck::NOTHING {
        return Ok(());
    }
    let broken = |_| CheckFailure::Broken;
    stream.write_all(&wanted.send).await.map_err(broken)?;
    stream.flush().await.map_err(broken)?;
    let (mut read, mut piece) = (Vec::new(), [0; PIECE_BYTES]);
    while read.len() < ANSWER_BYTES_MAX {
        let count = stream.read(&mut piece).await.map_err(broken)?;
        if count == 0 {
            break;
        }
        // What is wanted may begin in the piece before.
        let from = (read.len() + 1).saturating_sub(wanted.expect.len().max(1));
        let room = ANSWER_BYTES_MAX - read.len();
        read.extend_from_slice(&piece[..count.min(room)]);
        if contains(&read[from..], &wanted.expect) {
            return Ok(());
        }
    }
    Err(match read.is_empty() {
        true => CheckFailure::Broken.into(),
        false => CheckFailure::Answer.into(),
    })
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;
    use crate::testing;

    /// What a check makes of a server that writes these pieces, each when the one before was taken, once it has read `send`.
    fn answers(send: &str, expect: &str, pieces: &[&[u8]]) -> Result<(), Unwell> {
        let wanted = BytesCheck {
            send: send.into(),
            expect: expect.into(),
        };
        testing::runtime().block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let server = async {
                let (mut stream, _) = listener.accept().await.unwrap();
                stream.set_nodelay(true).unwrap();
                let mut asked = vec![0; send.len()];
                stream.read_exact(&mut asked).await.unwrap();
                assert_eq!(asked, send.as_bytes());
                for piece in pieces {
                    if stream.write_all(piece).await.is_err() {
                        return;
                    }
                    tokio::task::yield_now().await;
                }
            };
            let target = Target {
                address,
                node: "n1",
                site: None,
                tls: None,
                http2: false,
                proxy: None,
            };
            tokio::join!(ask(&target, &wanted), server).0
        })
    }

    const ANSWER: Result<(), Unwell> = Err(Unwell::Failed(CheckFailure::Answer));
    const BROKEN: Result<(), Unwell> = Err(Unwell::Failed(CheckFailure::Broken));

    #[test]
    fn what_is_sent_is_answered_as_wanted() {
        assert_eq!(answers("PING\r\n", "+PONG", &[b"+PONG\r\n"]), Ok(()));
        assert_eq!(answers("PING\r\n", "+PONG", &[b"+PO", b"NG\r\n"]), Ok(()));
        assert_eq!(answers("PING\r\n", "+PONG", &[b"-LOADING\r\n"]), ANSWER);
        assert_eq!(answers("", "SSH-2.0", &[b"SSH-2.0-OpenSSH\r\n"]), Ok(()));
        assert_eq!(answers("PING\r\n", "", &[b"-"]), Ok(()), "any answer");
    }

    #[test]
    fn nothing_half_and_without_end_fail() {
        assert_eq!(answers("PING\r\n", "", &[]), BROKEN);
        assert_eq!(answers("PING\r\n", "+PONG", &[]), BROKEN);
        assert_eq!(answers("PING\r\n", "+PONG", &[b"+PON"]), ANSWER);
        let endless = [b"+PON+PON".as_slice(); 20_000];
        assert_eq!(answers("PING\r\n", "+PONG", &endless), ANSWER);
    }

    #[test]
    fn what_stands_beyond_the_limit_is_not_seen() {
        let filler = vec![b'x'; ANSWER_BYTES_MAX - 5];
        let at_the_end = answers("", "+PONG", &[&filler, b"+PONG"]);
        assert_eq!(at_the_end, Ok(()));
        let beyond = answers("", "+PONG", &[&filler, b"-+PONG"]);
        assert_eq!(beyond, ANSWER);
    }
}
