//! What must hold for any bytes that a master of subagents sends. Shared by the fuzz target and by the test that replays its
//! corpus.
//!
//! 1. Reading never panics.
//! 2. What is said is one PDU, as long as it says, of the session, transaction and packet that were asked in, and bounded.

use tidegate_core::record::{CpuLine, LoadRecord, Sources};
use tidegate_node::report::OwnLoad;
use tidegate_node::report::agentx::{HEADER_BYTES, Header, PduKind, Session, Step};
use tidegate_node::report::mib::Snapshot;

/// Longest answer: 512 bindings of the longest kind, and those that were named.
const ANSWER_BYTES_MAX: usize = 4 << 20;

/// Checks all of them, PDU by PDU.
pub(crate) fn check(bytes: &[u8]) {
    let (mut session, _) = Session::open("fuzz");
    let mut rest = bytes;
    while let Some((head, behind)) = rest.split_first_chunk::<HEADER_BYTES>() {
        let Ok(header) = Header::parse(head) else {
            return;
        };
        let Some((payload, next)) = behind.split_at_checked(header.length) else {
            return;
        };
        match session.on_pdu(&header, payload, values) {
            Ok(Step::Say(said)) => answered(&header, &said),
            Ok(Step::Registered | Step::Nothing) => {}
            Ok(Step::Ended(_)) | Err(_) => return,
        }
        rest = next;
    }
}

fn answered(asked: &Header, said: &[u8]) {
    assert!(said.len() < ANSWER_BYTES_MAX);
    let Some((head, payload)) = said.split_first_chunk() else {
        panic!("an answer has a header");
    };
    // A bulk of long names may be longer than what this side would read.
    let Ok(header) = Header::parse(head) else {
        return;
    };
    assert_eq!(header.length, payload.len());
    if header.kind == Some(PduKind::Response) {
        assert_eq!(header.session, asked.session);
        assert_eq!(header.transaction, asked.transaction);
        assert_eq!(header.packet, asked.packet);
    }
}

fn values() -> Snapshot {
    let mut own = OwnLoad::default();
    own.note(&LoadRecord {
        t_ns: 1,
        runnable: 3,
        sources: Sources::RUNNABLE,
        ..LoadRecord::default()
    });
    Snapshot::of("n1", &own, &[CpuLine::default()], Some("files"))
}
