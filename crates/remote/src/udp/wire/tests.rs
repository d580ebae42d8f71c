//! There and back, every refusal, and any bytes at all.

use tidegate_core::prng::Prng;

use super::*;

fn key(number: u8) -> Key {
    let mut bytes = [7; 16];
    bytes[0] = number;
    Key::new("n1", bytes)
}

fn atomic() -> Request {
    Request {
        verb: Verb::CompareAndSwap,
        sequence: 0x1122_3344,
        word: 63,
        epoch: 0xdead_beef,
        operand: u64::MAX,
        expected: 1,
        ..Request::read(0, 0xabc, 42)
    }
}

fn message(request: &Request, key: &Key) -> Vec<u8> {
    let mut bytes = vec![0; message_bytes(request.lines)];
    request.encode(key, bytes.first_chunk_mut().unwrap());
    bytes
}

fn reply(lines: u8) -> Reply {
    Reply {
        verb: if lines == 0 {
            Verb::FetchAndAdd
        } else {
            Verb::Read
        },
        lines,
        status: Status::Done,
        initiator: 0xabc,
        sequence: 9,
        nonce: 42,
        node_now_ns: 123_456,
        value: 77,
        readers: 3,
        epoch: 0xdead_beef,
    }
}

fn answered(reply: &Reply, key: &Key) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..message_bytes(reply.lines)).map(|at| at as u8).collect();
    reply.encode(key, &mut bytes);
    bytes
}

#[test]
fn golden_request() {
    let key = Key::new("n1", 0x000102030405060708090a0b0c0d0e0f_u128.to_be_bytes());
    let hex: String = message(&atomic(), &key)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    assert_eq!(hex, include_str!("golden_request.txt").trim_end());
}

#[test]
fn requests_come_back_as_they_were_sent() {
    for request in [
        atomic(),
        Request::read(1, 1, 2),
        Request::read(21, u64::MAX, 0),
    ] {
        let decoded = Request::decode(&message(&request, &key(2)), &[key(1), key(2)]);
        assert_eq!(decoded, Ok((request, 1)));
    }
}

/// A request to connect, with an offer of these bytes.
fn connect(offer: u8) -> (Request, Vec<u8>) {
    let request = Request {
        verb: Verb::Connect,
        sequence: 5,
        ..Request::read(CONNECT_LINES, 0xabc, 42)
    };
    let mut bytes = vec![offer; message_bytes(CONNECT_LINES)];
    request.encode_message(&key(1), &mut bytes);
    (request, bytes)
}

#[test]
fn an_offer_to_connect_is_under_the_mac_as_its_header_is() {
    let (request, good) = connect(7);
    assert_eq!(good.len(), HEADER_BYTES + CONNECT_BYTES);
    assert_eq!(good[HEADER_BYTES..], [7; CONNECT_BYTES]);
    assert_eq!(Request::decode(&good, &[key(1)]), Ok((request, 0)));
    for at in HEADER_BYTES..good.len() {
        let mut bytes = good.clone();
        bytes[at] ^= 0x10;
        let refused = Request::decode(&bytes, &[key(1)]);
        assert_eq!(refused, Err(DropReason::Mac), "byte {at}");
    }
    // The padding of a read is not, since it means nothing.
    let read = Request::read(CONNECT_LINES, 0xabc, 42);
    let mut bytes = message(&read, &key(1));
    bytes[HEADER_BYTES] = 1;
    assert_eq!(Request::decode(&bytes, &[key(1)]), Ok((read, 0)));
    // Nor does one become the other.
    bytes[5] = Verb::Connect as u8;
    assert_eq!(Request::decode(&bytes, &[key(1)]), Err(DropReason::Mac));
}

#[test]
fn a_request_that_names_a_known_key_says_whose_it_is_and_which() {
    for request in [atomic(), Request::read(21, u64::MAX, 0)] {
        let bytes = message(&request, &key(2));
        let claimed = |keys: &[Key]| claim(&bytes, keys);
        let whole = Claim {
            initiator: request.initiator,
            sequence: request.sequence,
        };
        assert_eq!(claimed(&[key(1), key(2)]), Ok(whole));
        assert_eq!(claimed(&[key(1)]), Err(DropReason::Key));
        assert_eq!(claimed(&[]), Err(DropReason::Key));
    }
}

#[test]
fn a_trial_is_a_read_that_says_so_whatever_its_key() {
    let is_trial = |request: Request| Request::is_trial(&message(&request, &key(1)));
    let read = |word| Request {
        word,
        epoch: 7,
        ..Request::read(2, 1, 2)
    };
    assert!(is_trial(read(TRIAL)));
    assert!(!is_trial(read(0)));
    assert!(!is_trial(Request {
        word: TRIAL,
        ..atomic()
    }));
    let trial = message(&read(TRIAL), &key(1));
    assert!(!Request::is_trial(&trial[..HEADER_BYTES - 1]));
    assert!(!Request::is_trial(&answered(&reply(2), &key(1))));
}

#[test]
fn the_longest_message_is_a_header_and_a_whole_record() {
    assert_eq!(message_bytes(LINES_MAX as u8), MESSAGE_BYTES_MAX);
    assert_eq!(MESSAGE_BYTES_MAX, 64 + 21 * 64);
}

#[test]
fn answers_come_back_as_they_were_sent() {
    for lines in [0, 1, 5, 21] {
        let bytes = answered(&reply(lines), &key(1));
        let unverified = Reply::parse(&bytes).unwrap();
        let (seen, record) = unverified.verify(&key(1)).unwrap();
        assert_eq!(seen, reply(lines));
        let claims = (unverified.initiator(), unverified.nonce());
        assert_eq!(claims, (seen.initiator, seen.nonce));
        let claims = (unverified.verb(), unverified.sequence());
        assert_eq!(claims, (seen.verb, seen.sequence));
        assert_eq!(record, &bytes[HEADER_BYTES..]);
    }
}

#[test]
fn statuses_are_numbered_without_gaps() {
    for number in 0..=u8::MAX {
        assert_eq!(Status::from_number(number).number(), number);
    }
    assert_eq!(Status::from_number(200), Status::Other(200));
}

#[test]
fn drop_reasons_stand_at_their_place() {
    for (index, (reason, _)) in DropReason::ALL.iter().enumerate() {
        assert_eq!(*reason as usize, index);
    }
}

/// One change to a good request, and why it is thrown away.
#[test]
fn every_refusal_has_its_reason() {
    type Change = fn(&mut Vec<u8>);
    let cases: &[(Change, DropReason)] = &[
        (|bytes| bytes.truncate(63), DropReason::Short),
        (|bytes| bytes.clear(), DropReason::Short),
        (|bytes| bytes[0] ^= 1, DropReason::Magic),
        (
            |bytes| bytes[..4].copy_from_slice(b"TGRP"),
            DropReason::Magic,
        ),
        (|bytes| bytes[4] = 0, DropReason::Version),
        (|bytes| bytes[4] = 1, DropReason::Version),
        (|bytes| bytes[4] = 3, DropReason::Version),
        (|bytes| bytes[7] = 1, DropReason::Version),
        (|bytes| bytes[5] = 0, DropReason::Verb),
        (|bytes| bytes[5] = 5, DropReason::Verb),
        (|bytes| bytes[5] = 4, DropReason::Lines),
        (|bytes| bytes[5] = 2, DropReason::Lines),
        (|bytes| bytes[6] = 0, DropReason::Lines),
        (|bytes| bytes[6] = 22, DropReason::Lines),
        (|bytes| bytes.truncate(64), DropReason::Length),
        (|bytes| bytes.push(0), DropReason::Length),
        (|bytes| bytes[34] ^= 1, DropReason::Key),
        (|bytes| bytes[8] ^= 1, DropReason::Mac),
        (|bytes| bytes[55] ^= 0x80, DropReason::Mac),
        (|bytes| bytes[56] ^= 1, DropReason::Mac),
    ];
    for (number, (change, reason)) in cases.iter().enumerate() {
        let mut bytes = message(&Request::read(5, 1, 2), &key(1));
        change(&mut bytes);
        assert_eq!(
            Request::decode(&bytes, &[key(1)]),
            Err(*reason),
            "case {number}"
        );
        // The same before a MAC is computed, which alone shows the rest.
        let claimed = claim(&bytes, &[key(1)]).err();
        let shows = Some(*reason).filter(|it| *it != DropReason::Mac);
        assert_eq!(claimed, shows, "case {number}");
    }
    let other = message(&Request::read(5, 1, 2), &key(9));
    assert_eq!(Request::decode(&other, &[key(1)]), Err(DropReason::Key));
    assert_eq!(Request::decode(&other, &[]), Err(DropReason::Key));
}

#[test]
fn no_byte_of_an_answer_can_be_changed_unnoticed() {
    let good = answered(&reply(2), &key(1));
    for at in 0..good.len() {
        let mut bytes = good.clone();
        bytes[at] ^= 0x10;
        let accepted = Reply::parse(&bytes).and_then(|reply| reply.verify(&key(1)));
        assert!(accepted.is_err(), "byte {at}");
    }
    let parsed = Reply::parse(&good).unwrap();
    assert_eq!(parsed.verify(&key(2)), Err(DropReason::Mac));
}

#[test]
fn a_request_is_no_answer_and_the_other_way_round() {
    let request = message(&Request::read(1, 1, 2), &key(1));
    assert_eq!(Reply::parse(&request).unwrap_err(), DropReason::Magic);
    let answer = answered(&reply(1), &key(1));
    assert_eq!(Request::decode(&answer, &[key(1)]), Err(DropReason::Magic));
}

#[test]
fn any_bytes_are_decoded_or_dropped_without_a_panic() {
    let mut prng = Prng::new(1);
    let good = [
        message(&Request::read(5, 1, 2), &key(1)),
        answered(&reply(5), &key(1)),
    ];
    let mut accepted = 0;
    for round in 0..40_000 {
        let mut bytes = good[round % 2].clone();
        for _ in 0..prng.below(4) {
            let at = prng.below(bytes.len());
            bytes[at] = prng.bits() as u8;
        }
        if prng.below(4) == 0 {
            bytes.resize(prng.below(MESSAGE_BYTES_MAX + 64), 0);
        }
        accepted += usize::from(Request::decode(&bytes, &[key(1)]).is_ok());
        if let Ok(reply) = Reply::parse(&bytes) {
            accepted += usize::from(reply.verify(&key(1)).is_ok());
        }
    }
    assert!(accepted > 0, "unchanged messages are among them");
}
