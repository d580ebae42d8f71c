//! Replays the fuzz corpus of datagrams, and makes its first seeds. The fuzzer itself is run by hand.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::path::{Path, PathBuf};

use tidegate_core::record::{LoadRecord, RECORD_BYTES_MAX, Sources};
use tidegate_remote::udp::Key;
use tidegate_remote::udp::wire::{HEADER_BYTES, Reply, Request, Status, Verb, message_bytes};

#[path = "../../../fuzz/replay.rs"]
mod replay;
#[path = "../../../fuzz/invariants/wire.rs"]
mod wire;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/wire")
}

fn asked(request: &Request, key: &Key) -> Vec<u8> {
    let mut message = vec![0; message_bytes(request.lines)];
    request.encode(key, message.first_chunk_mut().unwrap());
    message
}

fn answered(reply: &Reply, key: &Key) -> Vec<u8> {
    let mut message = vec![0; message_bytes(reply.lines)];
    let record = LoadRecord {
        sequence: 7,
        generation: 1,
        t_ns: 1_000_000,
        runnable: 3,
        sources: Sources::RUNNABLE,
        ..LoadRecord::default()
    };
    let mut lines = [0; RECORD_BYTES_MAX];
    record.encode(&[], &mut lines);
    let length = message.len() - HEADER_BYTES;
    message[HEADER_BYTES..].copy_from_slice(&lines[..length]);
    reply.encode(key, &mut message);
    message
}

fn read() -> Request {
    Request {
        sequence: 1_000_000,
        ..Request::read(5, 0x0123_4567_89ab_cdef, 42)
    }
}

fn record() -> Reply {
    let asked = read();
    Reply {
        verb: Verb::Read,
        lines: asked.lines,
        status: Status::Done,
        initiator: asked.initiator,
        sequence: asked.sequence,
        nonce: asked.nonce,
        node_now_ns: 2_000_000,
        value: 77,
        readers: 3,
        epoch: 0xdead_beef,
    }
}

/// What a fuzzer without the keys would never find.
fn keyed() -> Vec<(&'static str, Vec<u8>)> {
    let [own, other] = wire::keys();
    let short = Request { lines: 1, ..read() };
    let swap = Request {
        verb: Verb::CompareAndSwap,
        lines: 0,
        word: 511,
        epoch: 0xdead_beef,
        operand: u64::MAX,
        expected: 1,
        ..read()
    };
    let add = Request {
        verb: Verb::FetchAndAdd,
        ..swap
    };
    let added = Reply {
        verb: Verb::FetchAndAdd,
        lines: 0,
        status: Status::TooNew,
        ..record()
    };
    let whole = Reply {
        lines: 21,
        status: Status::Other(200),
        ..record()
    };
    vec![
        ("read", asked(&read(), &own)),
        ("read_one_line", asked(&short, &own)),
        ("read_of_another_node", asked(&read(), &other)),
        ("swap", asked(&swap, &own)),
        ("add", asked(&add, &own)),
        ("record", answered(&record(), &own)),
        ("record_of_another_node", answered(&record(), &other)),
        ("record_whole", answered(&whole, &own)),
        ("added", answered(&added, &own)),
    ]
}

/// Messages with one thing wrong.
fn spoiled() -> Vec<(&'static str, Vec<u8>)> {
    let [own, _] = wire::keys();
    let good = asked(&read(), &own);
    let changed = |at: usize, to: u8| {
        let mut bytes = good.clone();
        bytes[at] = to;
        bytes
    };
    let mut unsigned = answered(&record(), &own);
    unsigned[56..64].fill(0);
    vec![
        ("unsigned", unsigned),
        ("newer", changed(4, 3)),
        ("no_such_verb", changed(5, 9)),
        ("no_lines", changed(6, 0)),
        ("flag", changed(7, 1)),
        ("not_padded", good[..HEADER_BYTES].to_vec()),
        ("short", good[..HEADER_BYTES - 1].to_vec()),
    ]
}

#[test]
fn the_corpus_of_datagrams_keeps_the_invariants() {
    let rewrite = std::env::var("UPDATE_EXPECT").is_ok();
    for (name, bytes) in keyed().into_iter().chain(spoiled()) {
        let file = folder().join(name);
        if rewrite {
            std::fs::write(&file, &bytes).unwrap();
        }
        let known = std::fs::read(&file);
        assert_eq!(
            known.ok(),
            Some(bytes),
            "seed {name}: run with UPDATE_EXPECT=1"
        );
    }
    let odd: Vec<u8> = (0..=u8::MAX).collect();
    replay::replay("wire", &odd, wire::check);
}
