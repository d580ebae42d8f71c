//! Replays the fuzz corpora of what other programs ask, and makes their first seeds. The fuzzer itself is run by hand.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on panics"
)]

use std::path::Path;

use tidegate_node::report::mib::ROOT;

#[path = "../../../fuzz/invariants/agent_check.rs"]
mod agent_check;
#[path = "../../../fuzz/invariants/agentx.rs"]
mod agentx;
#[path = "../../../fuzz/invariants/orca.rs"]
mod orca;
#[path = "../../../fuzz/replay.rs"]
mod replay;

/// Writes the seeds where that is asked for; they are there.
fn seeds(corpus: &str, seeds: &[(&str, Vec<u8>)]) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(corpus);
    for (name, bytes) in seeds {
        let file = folder.join(name);
        if std::env::var("UPDATE_EXPECT").is_ok() {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(&file, bytes).unwrap();
        }
        let known = std::fs::read(&file).ok();
        assert!(
            known.as_ref() == Some(bytes),
            "seed {name}: run with UPDATE_EXPECT=1"
        );
    }
}

/// A PDU in network order.
fn pdu(kind: u8, packet: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![1, kind, 0x10, 0];
    for number in [5, 6, packet, payload.len() as u32] {
        bytes.extend(number.to_be_bytes());
    }
    [bytes, payload.to_vec()].concat()
}

/// A range from below the root to the end.
fn range(rest: &[u32]) -> Vec<u8> {
    let name = [&ROOT[..], rest].concat();
    let mut bytes = vec![name.len() as u8, 0, 0, 0];
    name.iter().for_each(|it| bytes.extend(it.to_be_bytes()));
    bytes.extend([0; 4]);
    bytes
}

#[test]
fn the_corpus_of_a_master_keeps_the_invariants() {
    let answers = [pdu(18, 1, &[0; 8]), pdu(18, 2, &[0; 8])].concat();
    let after = |pdu: Vec<u8>| [answers.clone(), pdu].concat();
    let bulk = [vec![0, 1, 0, 20], range(&[1]), range(&[1, 2])].concat();
    let mut little = pdu(5, 9, &[]);
    little[2] = 0;
    seeds(
        "agentx",
        &[
            ("opened_and_registered", answers.clone()),
            (
                "refused",
                [pdu(18, 1, &[0; 8]), pdu(18, 2, &[0, 0, 0, 0, 1, 6, 0, 0])].concat(),
            ),
            ("get", after(pdu(5, 9, &range(&[1, 1, 1, 0])))),
            ("get_next", after(pdu(6, 9, &range(&[])))),
            ("get_bulk", after(pdu(7, 9, &bulk))),
            (
                "set",
                after([pdu(8, 9, &[]), pdu(9, 10, &[]), pdu(11, 11, &[])].concat()),
            ),
            ("close", after(pdu(2, 9, &[1, 0, 0, 0]))),
            ("little_end_first", after(little)),
        ],
    );
    let odd: Vec<u8> = (0..=u8::MAX).collect();
    replay::replay("agentx", &odd, agentx::check);
}

#[test]
fn the_corpus_of_questions_keeps_the_invariants() {
    let asked = |load: u8, sent: &str| [&[load], sent.as_bytes()].concat();
    seeds(
        "agent_check",
        &[
            ("nothing", asked(100, "")),
            ("weight", asked(50, "weight\n")),
            ("maxconn", asked(120, "shop/n1 maxconn=200, weight\r\n")),
            ("at_limit", asked(150, "at_limit=down\n")),
            ("most", asked(0, "maxconn=4294967295\n")),
            ("unknown", asked(0xff, "maxconn=1\n")),
        ],
    );
    let odd = b"0123456789=%:,# \t\r\nweight\xff\0";
    replay::replay("agent_check", odd, agent_check::check);
}

#[test]
fn the_corpus_of_questions_of_orca_keeps_the_invariants() {
    let framed = |message: &[u8]| {
        let length = (message.len() as u32).to_be_bytes();
        [&[0], &length[..], message].concat()
    };
    seeds(
        "orca",
        &[
            ("no_interval", framed(&[])),
            ("ten_seconds", framed(&[0x0a, 2, 8, 10])),
            (
                "tenth_of_a_second",
                framed(&[0x0a, 5, 0x10, 0x80, 0xc2, 0xd7, 0x2f]),
            ),
            ("name_of_a_cost", framed(&[0x12, 2, b'd', b'b', 0x0a, 0])),
            (
                "later_fields",
                framed(&[0x18, 1, 0x21, 0, 0, 0, 0, 0, 0, 0, 0, 0x2d, 0, 0, 0, 0]),
            ),
            ("longer_than_it_is", framed(&[0x0a, 9, 8])),
            ("compressed", vec![1, 0, 0, 0, 0]),
        ],
    );
    let odd: Vec<u8> = (0..=u8::MAX).collect();
    replay::replay("orca", &odd, orca::check);
}
