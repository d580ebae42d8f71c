//! Replays the fuzz corpora, and makes their first seeds. The fuzzer itself is run by hand.

use std::path::{Path, PathBuf};

use tidegate_core::culprits::Learned;
use tidegate_core::prng::Prng;
use tidegate_core::record::{CpuLine, LINE_BYTES, LoadRecord, RECORD_BYTES_MAX, Sources};

#[path = "../../../fuzz/invariants/classes.rs"]
mod classes;
#[path = "../../../fuzz/invariants/learned.rs"]
mod learned;
#[path = "../../../fuzz/invariants/load_record.rs"]
mod load_record;
#[path = "../../../fuzz/replay.rs"]
mod replay;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/load_record")
}

/// What a fuzzer would take long to find: whole records, and records with one thing wrong.
fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let record = |t_ns, busy_ns| LoadRecord {
        sequence: 7,
        generation: 1,
        t_ns,
        busy_ns,
        interval_ns: 1_000_000,
        sources: Sources::from_bits(u64::MAX),
        cores_milli: 4000,
        runnable: 3,
        memory_total: 1000,
        memory_available: 400,
        process_files_open: 10,
        process_files_max: 100,
        completions: t_ns / 1000,
        in_flight: 9,
        ..LoadRecord::default()
    };
    let encode = |record: &LoadRecord, cpus: usize| {
        let mut bytes = [0; RECORD_BYTES_MAX];
        let length = record.encode(&vec![CpuLine::default(); cpus], &mut bytes);
        bytes[..length].to_vec()
    };
    let changed = |at: usize, to: &[u8]| {
        let mut bytes = encode(&record(1_000_000, 500), 1);
        bytes[at..at + to.len()].copy_from_slice(to);
        bytes
    };
    // Every field at its maximum, the header aside.
    let mut full = encode(&record(1_000_000, 500), 0);
    for (line, bytes) in full.chunks_exact_mut(LINE_BYTES).enumerate() {
        let first = if line == 0 { 16 } else { 4 };
        bytes[first..LINE_BYTES - 4].fill(0xff);
    }
    let first = encode(&record(1_000_000, 500), 0);
    let second = encode(&record(51_000_000, 40_000_500), 0);
    vec![
        ("whole", encode(&record(1_000_000, 500), 0)),
        ("cpus", encode(&record(1_000_000, 500), 16)),
        ("pair", [first.clone(), second].concat()),
        (
            "restarted",
            [first.clone(), changed(16, &[9])[..320].to_vec()].concat(),
        ),
        ("absent", vec![0; 5 * LINE_BYTES]),
        ("short", first[..LINE_BYTES - 1].to_vec()),
        ("truncated", first[..3 * LINE_BYTES].to_vec()),
        (
            "two_lines",
            changed(10, &[2, 0, 0, 0])[..2 * LINE_BYTES].to_vec(),
        ),
        ("newer", changed(8, &[9, 0, 6, 0, 0, 0])),
        ("magic", changed(4, b"NOPE")),
        ("version_zero", changed(8, &[0, 0])),
        ("torn_head", changed(2 * LINE_BYTES, &[8])),
        ("torn_tail", changed(LINE_BYTES - 4, &[8])),
        ("no_lines", changed(10, &[0, 0, 0, 0])),
        ("more_cpus_than_lines", changed(10, &[2, 0, 9, 0])),
        ("too_many_lines", changed(10, &[0xff, 0xff, 1, 0])),
        ("full", full),
    ]
}

#[test]
fn the_corpus_of_load_records_keeps_the_invariants() {
    #[expect(
        clippy::disallowed_methods,
        reason = "a test may be told to rewrite the files that it reads"
    )]
    let rewrite = std::env::var("UPDATE_EXPECT").is_ok();
    if rewrite {
        for (name, bytes) in seeds() {
            std::fs::write(folder().join(name), bytes).unwrap();
        }
    }
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder()).unwrap() {
        let entry = entry.unwrap();
        load_record::check(&std::fs::read(entry.path()).unwrap());
        names.push(entry.file_name().into_string().unwrap());
    }
    for (name, bytes) in seeds() {
        assert!(
            names.iter().any(|known| known == name),
            "seed {name} is missing: run with UPDATE_EXPECT=1"
        );
        load_record::check(&bytes);
    }
}

/// A poor man's fuzzer, the same each time: a few bytes of a seed changed, cut or doubled.
#[test]
fn changed_seeds_keep_the_invariants() {
    // `load_record::check` asserts the invariants.
    let mut prng = Prng::new(13);
    let seeds = seeds();
    for _ in 0..5000 {
        let (_, seed) = &seeds[prng.below(seeds.len())];
        let mut bytes = seed.clone();
        for _ in 0..prng.below(5) {
            let at = prng.below(bytes.len());
            bytes[at] = [0, 1, 0x7f, 0xff, prng.bits() as u8][prng.below(5)];
        }
        match prng.below(4) {
            0 => bytes.truncate(prng.below(bytes.len() + 1)),
            1 => bytes.extend_from_within(..),
            _ => {}
        }
        load_record::check(&bytes);
    }
}

#[test]
fn the_corpus_of_classes_keeps_the_invariants() {
    // `classes::check` asserts the invariants.
    replay::replay("classes", b"/?&=;%{} \n0a-.\xff", classes::check);
}

#[test]
fn the_corpus_of_what_was_learned_keeps_the_invariants() {
    // `learned::check` asserts the invariants.
    let whole = include_bytes!("../../../fuzz/corpus/learned/whole");
    let (learned, _) = Learned::decode(whole, 1_800_000_060).unwrap();
    assert_eq!(learned.counts(), (3, 1), "the corpus is of this version");
    replay::replay(
        "learned",
        b"\0\x01\x02\x04\x07\x7f\x80\xf0\xff/a",
        learned::check,
    );
}

/// Segments and names of queries that a hostile client may send, and harmless ones beside them.
const WORDS: &[&str] = &[
    "*",
    "**",
    "{*}",
    "{n}",
    "{id}",
    "{uuid}",
    "{*^a}",
    "{*.*}",
    "*.png",
    "{^}",
    "%2A",
    "%2a",
    "%7Bn%7D",
    "?",
    "a?b",
    "a b",
    "a\tb",
    "a\nb",
    "\u{7f}",
    "\"",
    "'",
    "\\",
    "|",
    "^",
    "a|b",
    "",
    ".",
    "..",
    ";",
    "a;b",
    ";.png",
    "#",
    "=",
    "&",
    "GET",
    "{other}",
    "other",
    "a",
    "b",
    "new",
    "17",
    "2024-05-31",
    "2024-05-31T.png",
    "deadbee1",
    "a.png",
    "b.css",
    "B.PNG",
    "caf\u{e9}",
    "\u{202e}",
    "\u{a0}",
    "0123456789012345678901234567890123456789012345678-",
    "a-long-name-that-is-cut-somewhere-in-the-middle-******",
    "Abcdefghijklm123",
];

/// A request of a hostile client.
fn hostile(prng: &mut Prng) -> String {
    let word = |prng: &mut Prng| WORDS[prng.below(WORDS.len())].replace('\n', "\r");
    let mut target = String::from(["GET ", "POST ", " "][prng.below(8).saturating_sub(5)]);
    for _ in 0..prng.below(4) {
        target.push('/');
        target.push_str(&word(prng));
    }
    for nth in 0..prng.below(3) {
        target.push(if nth == 0 { '?' } else { '&' });
        target.push_str(&word(prng));
    }
    target
}

#[test]
fn a_throttle_from_a_class_has_the_requests_of_the_class_and_no_others() {
    // `classes::check` asserts it, of a tree that is full and of one that is not.
    for seed in 0..20 {
        let mut prng = Prng::new(seed);
        let lines: Vec<_> = (0..200).map(|_| hostile(&mut prng)).collect();
        classes::check(lines.join("\n").as_bytes());
    }
}
