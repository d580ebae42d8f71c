//! Replays the fuzz corpora of datagrams and of the exchange over RDMA, and makes their first seeds. The fuzzer itself
//! is run by hand.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::path::{Path, PathBuf};

use tidegate_core::record::{LoadRecord, RECORD_BYTES_MAX, Sources};
use tidegate_remote::WORDS;
use tidegate_remote::rdma::exchange::Grant;
use tidegate_remote::rdma::{Endpoint, RemoteMemory};
use tidegate_remote::udp::Key;
use tidegate_remote::udp::wire::{
    CONNECT_BYTES, CONNECT_LINES, HEADER_BYTES, Reply, Request, Status, Verb, message_bytes,
};

#[path = "../../../fuzz/invariants/rdma_exchange.rs"]
mod rdma_exchange;
#[path = "../../../fuzz/replay.rs"]
mod replay;
#[path = "../../../fuzz/invariants/wire.rs"]
mod wire;

fn folder(corpus: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(corpus)
}

/// The seeds are what stands in the corpus.
fn seeded(corpus: &str, seeds: impl Iterator<Item = (&'static str, Vec<u8>)>) {
    let rewrite = std::env::var("UPDATE_EXPECT").is_ok();
    for (name, bytes) in seeds {
        let file = folder(corpus).join(name);
        if rewrite {
            std::fs::write(&file, &bytes).unwrap();
        }
        let known = std::fs::read(&file);
        assert_eq!(
            known.ok(),
            Some(bytes),
            "seed {corpus}/{name}: run with UPDATE_EXPECT=1"
        );
    }
}

const ENDPOINT: Endpoint = Endpoint {
    queue_pair: 17,
    first_packet: 0x00ab_cdef,
    gid: [7; 16],
    mtu: 5,
    local_id: 0,
};

fn asked(request: &Request, key: &Key) -> Vec<u8> {
    let mut message = vec![0; message_bytes(request.lines)];
    if request.verb == Verb::Connect {
        ENDPOINT.encode(message[HEADER_BYTES..].first_chunk_mut().unwrap());
    }
    request.encode_message(key, &mut message);
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
    let connect = Request {
        verb: Verb::Connect,
        lines: CONNECT_LINES,
        ..read()
    };
    let connected = Reply {
        verb: Verb::Connect,
        lines: CONNECT_LINES,
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
        ("connect", asked(&connect, &own)),
        ("connected", answered(&connected, &own)),
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

/// Offers and answers, good ones and such with one thing wrong.
fn exchanged() -> Vec<(&'static str, Vec<u8>)> {
    let memory = |bytes: usize| RemoteMemory {
        address: 0x7f00_1234_5000,
        key: 0xdead_beef,
        bytes: bytes as u32,
    };
    let granted = |change: fn(&mut Grant)| {
        let mut grant = Grant {
            endpoint: ENDPOINT,
            records: memory(RECORD_BYTES_MAX),
            words: Some(memory(WORDS * size_of::<u64>())),
            generation: 0x0123_4567_89ab_cdef,
            lines_split: true,
        };
        change(&mut grant);
        let mut bytes = [0; CONNECT_BYTES];
        grant.encode(&mut bytes);
        bytes.to_vec()
    };
    let mut offer = [0; CONNECT_BYTES];
    ENDPOINT.encode(&mut offer);
    let mut newer_offer = offer.to_vec();
    newer_offer[40] = 1;
    let mut newer = granted(|_| {});
    newer[25] = 2;
    vec![
        ("offer", offer.to_vec()),
        ("newer_offer", newer_offer),
        ("granted", granted(|_| {})),
        ("granted_without_words", granted(|it| it.words = None)),
        ("granted_by_a_card", granted(|it| it.lines_split = false)),
        ("before_the_first_record", granted(|it| it.generation = 0)),
        ("newer", newer),
        (
            "queue_pair_of_the_fabric",
            granted(|it| it.endpoint.queue_pair = 1),
        ),
        (
            "wide_number_of_a_packet",
            granted(|it| it.endpoint.first_packet = 1 << 24),
        ),
        ("frames_too_large", granted(|it| it.endpoint.mtu = 6)),
        ("half_a_line", granted(|it| it.records.bytes -= 32)),
        (
            "past_the_last_address",
            granted(|it| it.records.address = u64::MAX - 100),
        ),
        ("short", offer[..CONNECT_BYTES - 1].to_vec()),
    ]
}

#[test]
fn the_corpus_of_datagrams_keeps_the_invariants() {
    seeded("wire", keyed().into_iter().chain(spoiled()));
    let odd: Vec<u8> = (0..=u8::MAX).collect();
    replay::replay("wire", &odd, wire::check);
}

#[test]
fn the_corpus_of_the_exchange_over_rdma_keeps_the_invariants() {
    seeded("rdma_exchange", exchanged().into_iter());
    let odd: Vec<u8> = (0..=u8::MAX).collect();
    replay::replay("rdma_exchange", &odd, rdma_exchange::check);
}
