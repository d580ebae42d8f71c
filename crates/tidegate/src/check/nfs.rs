//! `nfs`: the NULL procedure of NFS over TCP, which does nothing and is answered by every server that has the program in
//! this version (RFC 5531: ONC RPC; RFC 1813 and RFC 7530: its procedure 0).
//!
//! Failure case: the call is denied or not accepted, with the code.

use std::net::SocketAddr;

use tidegate_core::topology::{CheckFailure, NfsVersion};
use tokio::io::AsyncWriteExt;

use super::{Unwell, connect, read_answer};

/// The number of NFS among programs.
const PROGRAM: u32 = 100_003;
const RPC_VERSION: u32 = 2;
const CALL: u32 = 0;
const REPLY: u32 = 1;
const ACCEPTED: u32 = 0;
const SUCCESS: u32 = 0;
/// The last fragment of a record.
const LAST: u32 = 1 << 31;
/// Bytes of a verifier.
const VERIFIER_BYTES_MAX: usize = 400;
/// Bytes of an answer: the most that a NULL call can have, and room.
const ANSWER_BYTES_MAX: usize = 1024;
const MALFORMED: CheckFailure = CheckFailure::Malformed("RPC");
/// Calls are one a connection, so any number will do.
const ID: u32 = 0x7469_6465;

pub(super) async fn ask(address: SocketAddr, version: NfsVersion) -> Result<(), Unwell> {
    let mut stream = connect(address).await?;
    let sent = stream.write_all(&call(version.number())).await;
    sent.map_err(|_| CheckFailure::Broken)?;
    let most = (ANSWER_BYTES_MAX, MALFORMED);
    read_answer(&mut stream, &mut Vec::new(), most, answer).await
}

/// A call without credentials, as one fragment.
fn call(version: u32) -> Vec<u8> {
    let null = [0; 4];
    let words = [ID, CALL, RPC_VERSION, PROGRAM, version, 0];
    let words = words.iter().chain(&null).flat_map(|it| it.to_be_bytes());
    let body: Vec<u8> = words.collect();
    let mut bytes = (LAST | body.len() as u32).to_be_bytes().to_vec();
    bytes.extend_from_slice(&body);
    bytes
}

/// Whether the call was done; nothing if the answer is not whole.
pub(super) fn answer(stream: &[u8]) -> Result<Option<()>, CheckFailure> {
    match record(stream)? {
        None => Ok(None),
        Some(record) => accepted(&record).map(Some),
    }
}

/// The first record of a stream: fragments, each behind its length, of which the last one is marked.
fn record(mut stream: &[u8]) -> Result<Option<Vec<u8>>, CheckFailure> {
    let mut whole = Vec::new();
    while let Some((mark, rest)) = stream.split_first_chunk() {
        let mark = u32::from_be_bytes(*mark);
        let (last, length) = (mark & LAST != 0, (mark & !LAST) as usize);
        // Empty fragments could go on for ever.
        if length > ANSWER_BYTES_MAX - whole.len() || (length == 0 && !last) {
            return Err(MALFORMED);
        }
        let Some((fragment, rest)) = rest.split_at_checked(length) else {
            return Ok(None);
        };
        whole.extend_from_slice(fragment);
        if last {
            return Ok(Some(whole));
        }
        stream = rest;
    }
    Ok(None)
}

fn accepted(mut record: &[u8]) -> Result<(), CheckFailure> {
    let mut word = || {
        let (word, rest) = record.split_first_chunk().ok_or(MALFORMED)?;
        record = rest;
        Ok(u32::from_be_bytes(*word))
    };
    if word()? != ID || word()? != REPLY {
        return Err(MALFORMED);
    }
    match word()? {
        ACCEPTED => {}
        1 => return Err(CheckFailure::Code("RPC reject status", word()?)),
        _ => return Err(MALFORMED),
    }
    let (_flavor, length) = (word()?, word()? as usize);
    if length > VERIFIER_BYTES_MAX {
        return Err(MALFORMED);
    }
    for _ in 0..length.div_ceil(4) {
        word()?;
    }
    match word()? {
        SUCCESS => Ok(()),
        status => Err(CheckFailure::Code("RPC accept status", status)),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;

    use super::*;
    use crate::testing;

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|it| it.to_be_bytes()).collect()
    }

    /// As one fragment.
    fn framed(record: &[u32]) -> Vec<u8> {
        let length = LAST | (record.len() * 4) as u32;
        words(&[&[length], record].concat())
    }

    const DONE: [u32; 6] = [ID, REPLY, 0, 0, 0, 0];

    #[test]
    fn a_call_is_as_the_standard_has_it() {
        // RFC 5531 §9 and §11: 40 bytes in one fragment, no credentials.
        let expected = [0x8000_0028, ID, 0, 2, 0x0001_86a3, 4, 0, 0, 0, 0, 0];
        assert_eq!(call(4), words(&expected));
    }

    #[test]
    fn a_call_that_was_done_passes() {
        assert_eq!(answer(&framed(&DONE)), Ok(Some(())));
        let verified = [ID, REPLY, 0, 1, 5, 0x6162_6364, 0x6500_0000, 0];
        assert_eq!(answer(&framed(&verified)), Ok(Some(())));
        let mut fragments = words(&[8, ID, REPLY]);
        fragments.extend(framed(&DONE[2..]));
        assert_eq!(answer(&fragments), Ok(Some(())));
    }

    #[test]
    fn a_call_that_was_not_done_fails_with_its_code() {
        let unavailable = framed(&[ID, REPLY, 0, 0, 0, 1]);
        let failed = Err(CheckFailure::Code("RPC accept status", 1));
        assert_eq!(answer(&unavailable), failed);
        let mismatch = framed(&[ID, REPLY, 0, 0, 0, 2, 3, 4]);
        let failed = Err(CheckFailure::Code("RPC accept status", 2));
        assert_eq!(answer(&mismatch), failed);
        let denied = framed(&[ID, REPLY, 1, 1, 5]);
        let failed = Err(CheckFailure::Code("RPC reject status", 1));
        assert_eq!(answer(&denied), failed);
    }

    #[test]
    fn half_an_answer_is_waited_for_and_what_is_none_is_not() {
        let whole = framed(&DONE);
        for length in 0..whole.len() {
            assert_eq!(answer(&whole[..length]), Ok(None), "{length}");
        }
        for odd in [
            framed(&DONE[..5]),
            framed(&[ID + 1, REPLY, 0, 0, 0, 0]),
            framed(&[ID, CALL, 0, 0, 0, 0]),
            framed(&[ID, REPLY, 2, 0, 0, 0]),
            framed(&[ID, REPLY, 0, 0, 401, 0]),
            framed(&[]),
            words(&[0, 0, 0]),
            b"HTTP/1.1 400 Bad Request\r\n".to_vec(),
            b"SSH-2.0-OpenSSH_9.2\r\n".to_vec(),
        ] {
            assert_eq!(answer(&odd), Err(MALFORMED), "{odd:?}");
        }
    }

    #[test]
    fn a_server_is_called() {
        testing::runtime().block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let server = async {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut called = [0; 44];
                stream.read_exact(&mut called).await.unwrap();
                assert_eq!(called.as_slice(), call(3));
                stream.write_all(&framed(&DONE)).await.unwrap();
            };
            let asked = ask(address, NfsVersion::Three);
            assert_eq!(tokio::join!(asked, server).0, Ok(()));
        });
    }
}
