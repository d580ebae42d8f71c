//! What must hold for any bytes that are taken for a load record. Shared by the fuzz target
//! and by the test that replays its corpus.
//!
//! 1. Decoding never panics, and what it accepts has the magic, a version, whole lines and
//!    CPU lines that lie within the bytes.
//! 2. Bytes after the record change nothing.
//! 3. A record that was read, encoded and read again is the same record.
//! 4. Two records that follow each other make rates and loads that are unknown (NaN) or in
//!    range: no share above its bound, nothing negative, no time in the future.

use std::time::Duration;

use tidegate_core::load::{History, NodeLoad, OwnTraffic, Progress, Reading};
use tidegate_core::record::{
    AGGREGATE_LINES, CPU_LINES_MAX, LINE_BYTES, LoadRecord, MAGIC, RECORD_BYTES_MAX, VERSION,
};
use tidegate_core::time::Timestamp;

/// Checks all of them.
pub(crate) fn check(bytes: &[u8]) {
    let (one, other) = bytes.split_at(bytes.len() / 2);
    let whole = LoadRecord::decode(bytes);
    if let Ok(record) = &whole {
        keeps_its_word(record, bytes);
        ignores_what_follows(record, bytes);
        comes_back(record, bytes);
        makes_sane_loads(&[
            *record,
            LoadRecord {
                t_ns: record.t_ns.saturating_add(1),
                ..*record
            },
        ]);
    }
    if let (Ok(one), Ok(other)) = (LoadRecord::decode(one), LoadRecord::decode(other)) {
        makes_sane_loads(&[one, other]);
        makes_sane_loads(&[other, one]);
    }
}

fn keeps_its_word(record: &LoadRecord, bytes: &[u8]) {
    assert_eq!(record.magic, MAGIC);
    assert!(record.version > 0);
    let aggregate = usize::from(record.lines - record.cpu_lines).min(AGGREGATE_LINES);
    for line in bytes.chunks_exact(LINE_BYTES).take(aggregate) {
        let ends = [&line[..4], &line[LINE_BYTES - 4..]];
        assert_eq!(ends, [&record.sequence.to_le_bytes()[..]; 2]);
    }
    let cpus = record.cpus(bytes).count();
    assert!(cpus <= usize::from(record.cpu_lines) && cpus <= bytes.len() / LINE_BYTES);
}

fn ignores_what_follows(record: &LoadRecord, bytes: &[u8]) {
    let length = bytes.len().min(usize::from(record.lines) * LINE_BYTES);
    assert_eq!(LoadRecord::decode(&bytes[..length]).as_ref(), Ok(record));
    let mut longer = bytes.to_vec();
    longer.extend_from_slice(&[0xa5; LINE_BYTES + 3]);
    assert_eq!(LoadRecord::decode(&longer).as_ref(), Ok(record));
}

fn comes_back(record: &LoadRecord, bytes: &[u8]) {
    let cpus: Vec<_> = record.cpus(bytes).take(CPU_LINES_MAX).collect();
    let mut bytes = [0; RECORD_BYTES_MAX];
    let length = record.encode(&cpus, &mut bytes);
    let sized = LoadRecord {
        version: VERSION,
        lines: (AGGREGATE_LINES + cpus.len()) as u16,
        cpu_lines: cpus.len() as u16,
        ..*record
    };
    // Sequence zero with this magic is no empty region, so it comes back as well.
    assert_eq!(LoadRecord::decode(&bytes[..length]), Ok(sized));
    assert_eq!(sized.cpus(&bytes[..length]).collect::<Vec<_>>(), cpus);
}

fn makes_sane_loads(records: &[LoadRecord]) {
    let mut history = History::default();
    let mut now = Timestamp::from_millis(1_000_000);
    for record in records {
        history.note_poll(now, OwnTraffic::default());
        let reading = Reading {
            record,
            sent_at: now,
            received_at: now + Duration::from_micros(201),
            node_now_ns: Some(record.t_ns.wrapping_mul(3)),
        };
        if let Progress::Advanced(load) = history.accept(&reading, OwnTraffic::default()) {
            in_range(&load, reading.received_at);
        }
        now = now + Duration::from_millis(1);
    }
}

fn in_range(load: &NodeLoad, now: Timestamp) {
    assert!(load.observed_at <= now);
    assert!(load.capacity > 0.0 && load.capacity.is_finite());
    for value in [
        load.runnable,
        load.utilization,
        load.utilization_ulm,
        load.in_flight,
        load.request_time,
        load.memory,
        load.files,
        load.softirqs,
        load.one_way,
    ] {
        assert!(value.is_nan() || value >= 0.0, "{load:?}");
    }
    for share in [load.memory, load.files] {
        assert!(share.is_nan() || share <= 1.0, "{load:?}");
    }
    assert!(load.freshness() <= Duration::from_secs(60));
}
