//! Floods in the names of front-ends, all within one window of the rates, so that what is left of them at its end is
//! left for good. By way of the TC program: to run an XDP program once, the kernel may wait for milliseconds.

use super::*;

/// 400 in a window, of which each initiator has 8 of its own.
const RATE: u32 = 40_000;
const IMITATED: u64 = 11;
const OTHER: u64 = 12;

/// A frame with a read in this name by this clock of the node.
fn frame(initiator: u64, clock: u64) -> Vec<u8> {
    let request = Request {
        initiator,
        sequence: clock,
        ..read(1)
    };
    PLAIN.frame(&message(&request, &key()))
}

fn clock() -> u64 {
    crate::clock::now().nanos()
}

/// One without the key.
fn forged(initiator: u64) -> Vec<u8> {
    let mut frame = frame(initiator, clock());
    // Of the nonce.
    frame[PLAIN.header_bytes() + 24] ^= 1;
    frame
}

impl Bench {
    /// Both front-ends have read by the node's clock.
    fn with_proven_ones() -> Option<Self> {
        let endless = Setting("set_rate_window", u64::MAX);
        let bench = Self::with(|options| options.rate_max = RATE, &[endless])?;
        for initiator in [IMITATED, OTHER] {
            assert!(bench.is_answered(initiator));
        }
        Some(bench)
    }

    /// Whether a read of now is answered.
    fn is_answered(&self, initiator: u64) -> bool {
        self.run("tc_respond", &frame(initiator, clock())).0 == TC_REDIRECT
    }

    /// Until there are too many of these.
    fn flood(&self, mut next: impl FnMut() -> Vec<u8>) {
        while self.run("tc_respond", &next()).0 != TC_SHOT {}
    }
}

#[test]
fn a_flood_in_the_name_of_one_front_end_leaves_another_its_own_rate() {
    let Some(bench) = Bench::with_proven_ones() else {
        return;
    };
    // With the key, as a captured front-end has it.
    bench.flood(|| frame(IMITATED, clock()));
    assert!(bench.is_answered(OTHER));
    bench.flood(|| forged(IMITATED));
    assert!(bench.is_answered(OTHER));
    let counted = bench.counted();
    assert_eq!((counted.imitated, counted.limited), (2, 0));
}

#[test]
fn a_flood_of_copies_takes_nothing_of_its_front_ends_own_rate() {
    let Some(bench) = Bench::with_proven_ones() else {
        return;
    };
    let copy = frame(IMITATED, clock());
    bench.flood(|| copy.clone());
    assert!(bench.is_answered(IMITATED));
}

#[test]
fn a_flood_in_invented_names_leaves_proven_front_ends_their_own_rate() {
    let Some(bench) = Bench::with_proven_ones() else {
        return;
    };
    let mut invented = 1000..;
    bench.flood(|| frame(invented.next().expect("a number"), 0));
    assert!(bench.is_answered(OTHER));
    let counted = bench.counted();
    assert_eq!((counted.imitated, counted.limited), (0, 1));
}

#[test]
fn atomics_prove_a_front_end_too() {
    let Some(bench) = Bench::with_proven_ones() else {
        return;
    };
    let (answer, _) = bench.ask(PLAIN, &read(1));
    let add = || {
        let add = Request {
            initiator: 13,
            ..atomic(Verb::FetchAndAdd, 3, clock(), answer.epoch)
        };
        let frame = PLAIN.frame(&message(&add, &key()));
        bench.run("tc_respond", &frame).0
    };
    assert_eq!(add(), TC_REDIRECT);
    bench.flood(|| frame(IMITATED, clock()));
    assert_eq!(add(), TC_REDIRECT);
}

#[test]
fn all_that_is_proven_has_a_rate_together() {
    let Some(bench) = Bench::with_proven_ones() else {
        return;
    };
    let names = 100..200;
    for initiator in names.clone() {
        assert!(bench.is_answered(initiator));
    }
    let mut next = names.cycle();
    bench.flood(|| frame(next.next().expect("a cycle"), clock()));
    // That was 700 of them, 7 of each, and all the other one has had is its proof.
    assert!(!bench.is_answered(OTHER));
    let counted = bench.counted();
    assert_eq!((counted.imitated, counted.limited), (2, 0));
    assert_eq!(counted.reads, 800);
}
