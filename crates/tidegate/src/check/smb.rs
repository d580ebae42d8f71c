//! `smb`: SMB2 NEGOTIATE, by which a server says which of the dialects it speaks; no session, no share ([MS-SMB2] 2.2.3,
//! 2.2.4, 3.3.5.4).
//!
//! Failure case: a server that has SMB 1 alone, or answers with an error, whose NTSTATUS is shown.

use std::net::SocketAddr;

use tidegate_core::topology::CheckFailure;
use tokio::io::AsyncWriteExt;

use super::{Unwell, connect, read_answer};

/// What a message of SMB 2 and 3 begins with.
const MAGIC: [u8; 4] = [0xfe, b'S', b'M', b'B'];
const HEADER_BYTES: u16 = 64;
const NEGOTIATE: u16 = 0;
/// Header flag of answers.
const IS_ANSWER: u32 = 1;
/// The dialects that are offered: 2.0.2, 2.1, 3.0, 3.0.2 and 3.1.1.
const DIALECTS: [u16; 5] = [0x0202, 0x0210, 0x0300, 0x0302, 0x0311];
const REQUEST_BODY_BYTES: u16 = 36;
const ANSWER_BODY_BYTES: u16 = 65;
const SIGNING_ENABLED: u16 = 1;
/// The context that dialect 3.1.1 takes: how the messages of a session's begin are hashed.
const PREAUTH_INTEGRITY: u16 = 1;
const SHA_512: u16 = 1;
const SALT_BYTES: u16 = 32;
/// Bytes of an answer: a security token is the longest part, of a few hundred.
const ANSWER_BYTES_MAX: usize = 16 << 10;
const MALFORMED: CheckFailure = CheckFailure::Malformed("SMB");

pub(super) async fn ask(address: SocketAddr) -> Result<(), Unwell> {
    let mut stream = connect(address).await?;
    let sent = stream.write_all(&question()).await;
    sent.map_err(|_| CheckFailure::Broken)?;
    let most = (ANSWER_BYTES_MAX, MALFORMED);
    read_answer(&mut stream, &mut Vec::new(), most, answer).await
}

/// NEGOTIATE behind its length, as SMB over TCP has it.
fn question() -> Vec<u8> {
    let mut message = header();
    let mut put = |number: u16| message.extend_from_slice(&number.to_le_bytes());
    put(REQUEST_BODY_BYTES);
    put(DIALECTS.len() as u16);
    put(SIGNING_ENABLED);
    // Reserved, capabilities, and the client's identity: nothing of a session follows.
    (0..1 + 2 + 8).for_each(|_| put(0));
    // Contexts begin at a multiple of eight behind the dialects.
    let end = HEADER_BYTES + REQUEST_BODY_BYTES + 2 * DIALECTS.len() as u16;
    let contexts = end.next_multiple_of(8);
    [contexts, 0, 1, 0].into_iter().for_each(&mut put);
    DIALECTS.into_iter().for_each(&mut put);
    (0..(contexts - end) / 2).for_each(|_| put(0));
    let context = [
        PREAUTH_INTEGRITY,
        6 + SALT_BYTES,
        0,
        0,
        1,
        SALT_BYTES,
        SHA_512,
    ];
    context.into_iter().for_each(&mut put);
    (0..SALT_BYTES / 2).for_each(put);
    let mut bytes = (message.len() as u32).to_be_bytes().to_vec();
    bytes.append(&mut message);
    bytes
}

fn header() -> Vec<u8> {
    let mut header = vec![0; usize::from(HEADER_BYTES)];
    header[..4].copy_from_slice(&MAGIC);
    header[4..6].copy_from_slice(&HEADER_BYTES.to_le_bytes());
    header[12..14].copy_from_slice(&NEGOTIATE.to_le_bytes());
    // One credit is asked for.
    header[14] = 1;
    header
}

/// Whether a dialect was agreed on; nothing if the answer is not whole.
pub(super) fn answer(stream: &[u8]) -> Result<Option<()>, CheckFailure> {
    let Some((length, rest)) = stream.split_first_chunk() else {
        return Ok(None);
    };
    // The first of the four bytes is the kind of message, which is 0 over TCP.
    let length = u32::from_be_bytes(*length) as usize;
    if length > ANSWER_BYTES_MAX - 4 {
        return Err(MALFORMED);
    }
    // What speaks another protocol is found before it has sent so much.
    let begun = rest.len().min(MAGIC.len());
    if rest[..begun] != MAGIC[..begun] {
        return Err(MALFORMED);
    }
    match rest.get(..length) {
        None => Ok(None),
        Some(message) => agreed(message).map(Some),
    }
}

fn agreed(message: &[u8]) -> Result<(), CheckFailure> {
    let short = |at: usize| {
        let bytes = message.get(at..).and_then(|it| it.first_chunk());
        bytes.map(|it| u16::from_le_bytes(*it)).ok_or(MALFORMED)
    };
    let long = |at: usize| Ok(u32::from(short(at)?) | u32::from(short(at + 2)?) << 16);
    let is_answer = long(16)? & IS_ANSWER != 0;
    if !message.starts_with(&MAGIC) || short(4)? != HEADER_BYTES || !is_answer {
        return Err(MALFORMED);
    }
    if short(12)? != NEGOTIATE {
        return Err(MALFORMED);
    }
    match long(8)? {
        0 => {}
        status => return Err(CheckFailure::Code("NTSTATUS", status)),
    }
    let body = usize::from(HEADER_BYTES);
    let agreed = short(body)? == ANSWER_BODY_BYTES && DIALECTS.contains(&short(body + 4)?);
    match agreed && message.len() >= body + usize::from(ANSWER_BODY_BYTES) - 1 {
        true => Ok(()),
        false => Err(MALFORMED),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;

    use super::*;
    use crate::testing;

    /// An answer with this status and dialect.
    fn answered(status: u32, dialect: u16) -> Vec<u8> {
        let mut message = header();
        message[8..12].copy_from_slice(&status.to_le_bytes());
        message[16] = 1;
        message.extend_from_slice(&ANSWER_BODY_BYTES.to_le_bytes());
        message.extend_from_slice(&[1, 0]);
        message.extend_from_slice(&dialect.to_le_bytes());
        message.resize(128, 0);
        let mut bytes = vec![0, 0, 0, 128];
        bytes.append(&mut message);
        bytes
    }

    #[test]
    fn a_question_is_as_the_standard_has_it() {
        let bytes = question();
        // 2.2.3: dialects at 36 of the body; contexts at a multiple of eight; 2.2.3.1: 8 bytes and 38 of data.
        assert_eq!(bytes[..8], [0, 0, 0, 158, 0xfe, b'S', b'M', b'B']);
        let message = &bytes[4..];
        assert_eq!(message.len(), 112 + 8 + 38);
        assert_eq!(message[64..68], [36, 0, 5, 0]);
        assert_eq!(message[92..100], [112, 0, 0, 0, 1, 0, 0, 0]);
        assert_eq!(message[100..110], [2, 2, 0x10, 2, 0, 3, 2, 3, 0x11, 3]);
        assert_eq!(
            message[112..126],
            [1, 0, 38, 0, 0, 0, 0, 0, 1, 0, 32, 0, 1, 0]
        );
    }

    #[test]
    fn a_dialect_that_was_offered_passes() {
        for dialect in DIALECTS {
            assert_eq!(answer(&answered(0, dialect)), Ok(Some(())));
        }
        for other in [0, 0x02ff, 0xffff] {
            assert_eq!(answer(&answered(0, other)), Err(MALFORMED));
        }
    }

    #[test]
    fn an_error_is_shown() {
        let status = 0xc000_00bb;
        let failed = Err(CheckFailure::Code("NTSTATUS", status));
        assert_eq!(answer(&answered(status, 0)), failed);
    }

    #[test]
    fn half_an_answer_is_waited_for_and_what_is_none_is_not() {
        let whole = answered(0, 0x0311);
        for length in 0..whole.len() {
            assert_eq!(answer(&whole[..length]), Ok(None), "{length}");
        }
        let with = |at: usize, byte: u8| {
            let mut bytes = whole.clone();
            bytes[at] = byte;
            bytes
        };
        for odd in [
            with(0, 1),
            with(3, 60),
            with(4, 0xff),
            with(8, 63),
            with(16, 1),
            with(20, 0),
            with(68, 9),
            vec![0, 0, 0, 0],
            question(),
            b"HTTP/1.1 400 Bad Request\r\n".to_vec(),
            b"220 ready\r\n".to_vec(),
        ] {
            assert_eq!(answer(&odd), Err(MALFORMED), "{odd:?}");
        }
        assert_eq!(answer(b"HTTP"), Err(MALFORMED));
        assert_eq!(answer(&question()), Err(MALFORMED), "an echo");
    }

    #[test]
    fn a_server_is_asked() {
        testing::runtime().block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let server = async {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut asked = vec![0; question().len()];
                stream.read_exact(&mut asked).await.unwrap();
                assert_eq!(asked, question());
                stream.write_all(&answered(0, 0x0302)).await.unwrap();
            };
            assert_eq!(tokio::join!(ask(address), server).0, Ok(()));
        });
    }
}
