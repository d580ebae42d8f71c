//! Golden bytes, older and newer versions, torn lines, and any bytes at all.

use super::*;
use crate::prng::Prng;

fn sample() -> LoadRecord {
    LoadRecord {
        sequence: 7,
        magic: MAGIC,
        version: VERSION,
        lines: 6,
        cpu_lines: 1,
        generation: 0x1122_3344_5566_7788,
        t_ns: 1_000_000_007,
        sources: Sources::BUSY_SWITCH.with(Sources::RUNNABLE),
        cores_milli: 4000,
        busy_ns: 123_456_789,
        runnable: 3,
        in_flight: 9,
        ..LoadRecord::default()
    }
}

fn cpu() -> CpuLine {
    CpuLine {
        cpu: 1,
        busy_ns: 42,
        runnable: 2,
        ..CpuLine::default()
    }
}

fn encoded() -> ([u8; RECORD_BYTES_MAX], usize) {
    let mut bytes = [0; RECORD_BYTES_MAX];
    let length = sample().encode(&[cpu()], &mut bytes);
    (bytes, length)
}

#[test]
fn golden_bytes() {
    let (bytes, length) = encoded();
    let text: Vec<String> = bytes[..length]
        .chunks(16)
        .map(|row| {
            row.iter()
                .map(|byte| format!("{byte:02x}"))
                .collect::<Vec<_>>()
                .join(" ")
        })
        .collect();
    assert_eq!(text.join("\n"), include_str!("golden_v1.txt").trim_end());
}

#[test]
fn decode_gives_back_what_was_encoded() {
    let (bytes, length) = encoded();
    let record = LoadRecord::decode(&bytes[..length]).unwrap();
    assert_eq!(record, sample());
    assert_eq!(record.cpus(&bytes[..length]).collect::<Vec<_>>(), [cpu()]);
}

#[test]
fn an_older_shorter_record_is_read_with_the_rest_zero() {
    let (mut bytes, _) = encoded();
    // A writer that knew two lines only.
    bytes[10..12].copy_from_slice(&2u16.to_le_bytes());
    bytes[12..14].copy_from_slice(&0u16.to_le_bytes());
    let record = LoadRecord::decode(&bytes[..2 * LINE_BYTES]).unwrap();
    assert_eq!((record.busy_ns, record.in_flight), (123_456_789, 0));
}

#[test]
fn a_newer_longer_record_is_read_as_far_as_we_know_it() {
    let (bytes, length) = encoded();
    let mut newer = bytes[..length].to_vec();
    newer[8..10].copy_from_slice(&9u16.to_le_bytes());
    newer[10..12].copy_from_slice(&7u16.to_le_bytes());
    // Its aggregate has a sixth line, then comes the CPU line.
    let at = AGGREGATE_LINES * LINE_BYTES;
    let extra: Vec<u8> = newer[at..at + LINE_BYTES].to_vec();
    newer.splice(at..at, extra);
    let record = LoadRecord::decode(&newer).unwrap();
    assert_eq!((record.version, record.in_flight), (9, 9));
    assert_eq!(record.cpus(&newer).count(), 1);
}

#[test]
fn readers_and_writers_from_before_service_checks_agree_with_later_ones() {
    let (older, length) = encoded();
    let record = LoadRecord::decode(&older[..length]).unwrap();
    assert_eq!(record.services_checked, 0, "there is none");
    let mut newer = [0; RECORD_BYTES_MAX];
    let checked = LoadRecord {
        services_checked: 0xff,
        ..sample()
    };
    // An older reader finds all that it knows where it was: the field lies in what was free.
    assert_eq!(checked.encode(&[cpu()], &mut newer), length);
    let differ = (0..length).filter(|at| older[*at] != newer[*at]);
    assert_eq!(differ.collect::<Vec<_>>(), [312]);
    assert_eq!(LoadRecord::decode(&newer[..length]), Ok(checked));
}

#[test]
fn every_torn_line_is_refused() {
    let (bytes, length) = encoded();
    for line in 0..AGGREGATE_LINES {
        for end in [0, LINE_BYTES - 4] {
            let mut torn = bytes;
            torn[line * LINE_BYTES + end] ^= 1;
            let refused = LoadRecord::decode(&torn[..length]);
            assert!(
                matches!(refused, Err(RecordError::Torn(_))),
                "line {line} end {end}"
            );
        }
    }
}

#[test]
fn refusals_say_why() {
    let (bytes, _) = encoded();
    assert_eq!(LoadRecord::decode(&[0; 10]), Err(RecordError::Short(10)));
    assert_eq!(LoadRecord::decode(&[0; 320]), Err(RecordError::Absent));
    assert_eq!(
        LoadRecord::decode(&bytes[..LINE_BYTES]),
        Err(RecordError::Lines {
            claimed: 6,
            cpus: 1,
            read: 1
        })
    );
    let mut other = bytes;
    other[4] ^= 0xff;
    assert!(matches!(
        LoadRecord::decode(&other),
        Err(RecordError::Magic(_))
    ));
}

#[test]
fn any_bytes_are_decoded_or_refused_without_a_panic() {
    let mut prng = Prng::new(1);
    let (good, length) = encoded();
    for _ in 0..20_000 {
        let mut bytes = good[..length].to_vec();
        for _ in 0..=prng.below(6) {
            let at = prng.below(bytes.len());
            bytes[at] = prng.bits() as u8;
        }
        bytes.truncate(prng.below(length + 1));
        if let Ok(record) = LoadRecord::decode(&bytes) {
            assert!(record.cpus(&bytes).count() <= length / LINE_BYTES);
        }
    }
}
