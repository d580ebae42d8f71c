//! What must hold for any bytes that are taken for what was learned before a restart. Shared by the fuzz target
//! and by the test that replays its corpus.
//!
//! 1. Decoding never panics, and what it accepts is within the limits.
//! 2. What was decoded, encoded and decoded again is the same.
//! 3. Discovery that has it names what it sees in numbers that are none of nonsense.
//!
//! The last eight bytes are a sum, which no change of the others would pass: so the bytes are also checked with the
//! sum that they should have.

use std::time::Duration;

use tidegate_core::culprits::{
    AGE_MAX_SECONDS, BYTES_MAX, ClassId, Discovery, Learned, LearnedError, Limits, Request,
    ResourceId, UsagePoint,
};
use tidegate_core::time::Timestamp;

/// Where the moment stands at which the bytes were saved.
const SAVED: std::ops::Range<usize> = 10..18;
/// A resource and classes that the corpus knows, with as many cores.
const RESOURCE: (&str, f64) = ("db", 2.0);
const CLASSES: [&str; 3] = ["/", "/a", "/b"];
/// Time between two readings, milliseconds, and how many there are.
const STEP_MS: u64 = 100;
const STEPS: u64 = 100;

/// Checks all of them.
pub(crate) fn check(bytes: &[u8]) {
    check_whole(bytes);
    if let Some((body, _)) = bytes.split_last_chunk::<8>() {
        let sum = body.iter().fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| {
            (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
        check_whole(&[body, &sum.to_le_bytes()].concat());
    }
}

fn check_whole(bytes: &[u8]) {
    let saved = bytes.get(SAVED).and_then(|it| it.try_into().ok());
    let saved = u64::from_le_bytes(saved.unwrap_or_default());
    let now = saved.saturating_add(60);
    let (learned, age) = match Learned::decode(bytes, now) {
        Ok(found) => found,
        Err(LearnedError::Old(age)) => return assert!(age > AGE_MAX_SECONDS),
        Err(_) => return,
    };
    assert!(age <= AGE_MAX_SECONDS && bytes.len() <= BYTES_MAX);
    let again = learned.encode(now);
    assert!(again.len() <= bytes.len(), "only what is too old goes");
    assert_eq!(Learned::decode(&again, now), Ok((learned.clone(), 0)));
    is_used(&learned);
}

fn is_used(learned: &Learned) {
    let (name, cores) = RESOURCE;
    let Some(known) = learned.of(name, cores) else {
        return;
    };
    let (mut discovery, resource) = (Discovery::new(Limits::default()), ResourceId(0));
    for (class, name) in (0..).map(ClassId).zip(CLASSES) {
        if let Some(class_learned) = known(name) {
            assert!(discovery.recall(resource, class, class_learned));
        }
    }
    let at = |ms| Timestamp::from_millis(10_000 + ms);
    for step in 0..STEPS {
        // Full, so that what was known with room decides.
        let point = UsagePoint {
            at: at(STEP_MS * step),
            busy_ns: 200_000_000 * step,
            cores,
        };
        discovery.on_usage(resource, point);
        for class in (0..3).map(ClassId) {
            let sent = at(STEP_MS * step);
            let ended = Some(sent + Duration::from_millis(50));
            discovery.on_request(&Request { class, sent, ended });
        }
    }
    let verdicts = discovery.evaluate(at(STEP_MS * STEPS), resource);
    for verdict in &verdicts.classes {
        let numbers = [
            verdict.share,
            verdict.cost_seconds,
            verdict.cost_range[0],
            verdict.cost_range[1],
        ];
        assert!(
            numbers.iter().all(|it| it.is_finite() && *it >= 0.0),
            "{verdict:?}"
        );
    }
}
