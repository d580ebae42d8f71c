//! What must hold for any bytes that are taken for a request or an answer. Shared by the fuzz target
//! and by the test that replays its corpus.
//!
//! 1. Reading never panics, and no bytes are both a request and an answer.
//! 2. What is accepted is as long as it says, and made with one of the keys; written anew it is the same
//!    header.
//! 3. The same header made with a key (the work of its holder) is accepted if the number of lines goes with
//!    the verb, comes back as it was, and means nothing to another key, nor to the same bytes of another node.
//! 4. A header, a line or an offer to connect with one bit changed is not accepted.

use tidegate_core::record::{LINE_BYTES, LINES_MAX, LoadRecord};
use tidegate_remote::udp::Key;
use tidegate_remote::udp::wire::{
    CONNECT_LINES, DropReason, HEADER_BYTES, Reply, Request, Status, Verb, message_bytes,
};

/// Bytes of the keys.
const SECRET: [u8; 16] = *b"0123456789abcdef";

/// The keys that the corpus is made with: of this node, and of another with the same bytes.
pub(crate) fn keys() -> [Key; 2] {
    ["n1", "n2"].map(|node| Key::new(node, SECRET))
}

/// Checks all of them.
pub(crate) fn check(bytes: &[u8]) {
    let keys = keys();
    let request = Request::decode(bytes, &keys);
    let reply = Reply::parse(bytes);
    assert!(request.is_err() || reply.is_err());
    if let Ok((request, place)) = request {
        assert_eq!(bytes.len(), message_bytes(request.lines));
        let mut anew = bytes.to_vec();
        request.encode_message(&keys[place], &mut anew);
        assert_eq!(bytes, anew);
    }
    if let Ok(reply) = reply {
        for key in &keys {
            if let Ok((reply, lines)) = reply.verify(key) {
                assert_eq!(bytes.len(), message_bytes(reply.lines));
                let mut anew = bytes.to_vec();
                reply.encode(key, &mut anew);
                assert_eq!(bytes, anew);
                // What follows is any record, as a front-end reads it.
                LoadRecord::decode(lines).ok();
            }
        }
    }
    if let Some((header, rest)) = bytes.split_first_chunk() {
        keyed_request(header, &keys);
        keyed_reply(header, rest, &keys);
    }
}

fn keyed_request(header: &[u8; HEADER_BYTES], keys: &[Key; 2]) {
    let request = Request {
        verb: verb(header[5]),
        lines: header[6],
        initiator: word(header, 8),
        sequence: word(header, 16),
        nonce: word(header, 24),
        word: word(header, 32) as u16,
        epoch: (word(header, 32) >> 32) as u32,
        operand: word(header, 40),
        expected: word(header, 48),
    };
    let mut message = vec![0; message_bytes(request.lines)];
    for (place, key) in keys.iter().enumerate() {
        request.encode_message(key, &mut message);
        let decoded = Request::decode(&message, keys);
        if goes_with(request.verb, request.lines) {
            assert_eq!(decoded, Ok((request, place)));
        } else {
            assert_eq!(decoded, Err(DropReason::Lines));
        }
        let others = &keys[1 - place..][..1];
        assert!(Request::decode(&message, others).is_err());
        let mut changed = message.clone();
        // Padding means nothing.
        let signed = match request.verb {
            Verb::Connect => message.len(),
            Verb::Read | Verb::CompareAndSwap | Verb::FetchAndAdd => HEADER_BYTES,
        };
        flip(&mut changed[..signed], word(header, 56));
        assert!(Request::decode(&changed, keys).is_err());
    }
}

fn keyed_reply(header: &[u8; HEADER_BYTES], rest: &[u8], keys: &[Key; 2]) {
    let lines = (rest.len() / LINE_BYTES).min(LINES_MAX) as u8;
    let reply = Reply {
        verb: match lines {
            0 | CONNECT_LINES => verb(header[5]),
            _ => Verb::Read,
        },
        lines,
        status: status(header[7]),
        initiator: word(header, 8),
        sequence: word(header, 16),
        nonce: word(header, 24),
        node_now_ns: word(header, 32),
        value: word(header, 40),
        readers: word(header, 48) as u32,
        epoch: (word(header, 48) >> 32) as u32,
    };
    let mut message = [header, rest].concat();
    message.truncate(message_bytes(lines));
    for (place, key) in keys.iter().enumerate() {
        reply.encode(key, &mut message);
        match Reply::parse(&message) {
            Ok(unverified) => {
                assert!(goes_with(reply.verb, lines));
                assert_eq!(
                    unverified.verify(key),
                    Ok((reply, &message[HEADER_BYTES..]))
                );
                assert!(unverified.verify(&keys[1 - place]).is_err());
            }
            Err(reason) => {
                assert_eq!(reason, DropReason::Lines);
                assert!(!goes_with(reply.verb, lines));
            }
        }
        let mut changed = message.clone();
        flip(&mut changed, word(header, 56));
        let accepted = Reply::parse(&changed).and_then(|reply| reply.verify(key));
        assert!(accepted.is_err());
    }
}

fn goes_with(verb: Verb, lines: u8) -> bool {
    match verb {
        Verb::Read => (1..=LINES_MAX).contains(&lines.into()),
        Verb::CompareAndSwap | Verb::FetchAndAdd => lines == 0,
        Verb::Connect => lines == CONNECT_LINES,
    }
}

fn verb(number: u8) -> Verb {
    match number % 4 {
        0 => Verb::FetchAndAdd,
        1 => Verb::Read,
        2 => Verb::CompareAndSwap,
        _ => Verb::Connect,
    }
}

/// The status of this number, by its known ones first.
fn status(number: u8) -> Status {
    let known = [
        Status::Done,
        Status::NoWord,
        Status::Stale,
        Status::Epoch,
        Status::Full,
        Status::Absent,
        Status::Torn,
        Status::TooOld,
        Status::TooNew,
        Status::NoDevice,
        Status::NoQueuePair,
        Status::WordsElsewhere,
        Status::BadOffer,
    ];
    let place = usize::from(number);
    known.get(place).copied().unwrap_or(Status::Other(number))
}

fn flip(bytes: &mut [u8], which: u64) {
    let bit = which as usize % (bytes.len() * 8);
    bytes[bit / 8] ^= 1 << (bit % 8);
}

fn word(header: &[u8; HEADER_BYTES], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&header[at..at + 8]);
    u64::from_le_bytes(word)
}
