//! When evidence is enough, and what ends it, tick by tick.

use super::super::words::{Count24, SiteLock};
use super::*;

const HIGH: f64 = 2.0;

fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(1000 + millis)
}

fn reading(sequence: u32, updates: u64) -> Option<SiteReading> {
    Some(SiteReading {
        lock: SiteLock::idle(Count24::new(sequence)),
        updates,
        at: at(0),
    })
}

/// A site of 4 CPUs at twice what is high, which a node of 4 CPUs would halve.
fn tick() -> EvidenceTick {
    EvidenceTick {
        reading: reading(3, 7),
        awaited: false,
        began_to_serve: Timestamp::ZERO,
        settle: Duration::from_millis(50),
        pressure: 4.0,
        high: HIGH,
        best: Some(4.0),
        cpus: 4.0,
    }
}

fn evidence(history: History) -> Evidence {
    Evidence::new(history, switch(SwitchKind::Drain))
}

fn switch(kind: SwitchKind) -> SwitchTime {
    SwitchTime::new(kind, Duration::from_millis(500))
}

/// Milliseconds until it acts, each S the same.
fn acts_after(mut evidence: Evidence, tick: &EvidenceTick) -> Option<u64> {
    (0..1200).map(|it| 10 * it).find(|millis| {
        let judgement = evidence.on_tick(tick, at(*millis));
        matches!(judgement, Judgement::Acts(_))
    })
}

fn fixed(millis: u64) -> History {
    History::Fixed(Duration::from_millis(millis))
}

fn gathers(judgement: Judgement, part: f64) -> bool {
    matches!(judgement, Judgement::Gathers(it) if (it - part).abs() < 1e-9)
}

#[test]
fn a_fixed_history_is_how_long_the_load_must_be_high() {
    assert_eq!(acts_after(evidence(fixed(50)), &tick()), Some(50));
    assert_eq!(acts_after(evidence(fixed(0)), &tick()), Some(10));
    let nothing = EvidenceTick {
        best: None,
        ..tick()
    };
    assert_eq!(acts_after(evidence(fixed(50)), &nothing), None);
}

#[test]
fn auto_waits_until_waiting_has_cost_what_a_move_does() {
    // 12 tasks wait; 8 CPUs times 1.25 s are 10 task seconds.
    assert_eq!(acts_after(evidence(History::Auto), &tick()), Some(840));
    let at_once = Evidence::new(History::Auto, switch(SwitchKind::AtOnce));
    assert_eq!(acts_after(at_once, &tick()), Some(300));
    let hook = Evidence::new(History::Auto, switch(SwitchKind::Hook));
    assert_eq!(acts_after(hook, &tick()), Some(1510));
    let mut fast = evidence(History::Auto);
    for _ in 0..100 {
        fast.on_move(Duration::from_millis(105));
    }
    assert_eq!(acts_after(fast, &tick()), Some(300));
    let mild = EvidenceTick {
        pressure: 2.2,
        ..tick()
    };
    assert_eq!(acts_after(evidence(History::Auto), &mild), Some(2090));
}

#[test]
fn auto_acts_within_ten_seconds_and_not_before_s() {
    let vast_node = EvidenceTick {
        best: Some(1e9),
        ..tick()
    };
    assert_eq!(
        acts_after(evidence(History::Auto), &vast_node),
        Some(10_000)
    );
    let vast = EvidenceTick {
        pressure: 1e9,
        ..tick()
    };
    assert_eq!(acts_after(evidence(History::Auto), &vast), Some(10));
}

#[test]
fn auto_pays_twice_what_a_burst_costs_at_most() {
    // Offline: what waits in the burst for want of the node, or the move. Online: what waits until it acts, and then the move.
    let price = 4.0 * switch(SwitchKind::Drain).price();
    let acts = acts_after(evidence(History::Auto), &tick()).unwrap();
    for burst_ms in (10..5000).step_by(10) {
        let waits = |millis: u64| 6.0 * millis as f64 / 1e3;
        let offline = waits(burst_ms).min(price);
        let online = if burst_ms < acts {
            waits(burst_ms)
        } else {
            waits(acts) + price
        };
        assert!(
            online <= 2.0 * offline + 6.0 * 0.01 + 1e-9,
            "{burst_ms}: {online} {offline}"
        );
    }
}

/// A site that gets each node that it asks for, while so many CPUs' worth of tasks are there, and never fewer.
fn nodes_come_after(demand: f64, nodes: usize) -> Vec<u64> {
    let mut evidence = Evidence::new(History::Auto, switch(SwitchKind::AtOnce));
    let mut seen = EvidenceTick {
        best: Some(2.0),
        cpus: 4.0,
        ..tick()
    };
    let mut came = Vec::new();
    for millis in (0..5000).step_by(10) {
        seen.pressure = demand / seen.cpus;
        if let Judgement::Acts(window) = evidence.on_tick(&seen, at(millis)) {
            came.push(millis);
            seen.cpus += 2.0;
            seen.began_to_serve = at(millis);
            seen.reading = reading(3, window.updates + 1);
        }
        if came.len() == nodes {
            break;
        }
    }
    came
}

#[test]
fn where_demand_is_far_off_nodes_follow_each_other_without_a_history_of_their_own() {
    // 6, 8, 10 and 12 CPUs times 0.45 s are 2.7 to 5.4 task seconds, and 36 to 30 of 40 tasks wait. The site settles for 50 ms.
    assert_eq!(nodes_come_after(40.0, 4), [80, 130, 180, 230]);
    // Of 12 tasks 8 wait, then 6: the account decides, and with 8 CPUs the site is no longer in need.
    assert_eq!(nodes_come_after(12.0, 4), [340, 490]);
}

#[test]
fn load_that_was_not_high_once_and_time_that_was_not_seen_do_not_count() {
    let mut evidence = evidence(History::Auto);
    for millis in (0..620).step_by(10) {
        evidence.on_tick(&tick(), at(millis));
    }
    let calm = EvidenceTick {
        pressure: 1.9,
        ..tick()
    };
    evidence.on_tick(&calm, at(620));
    evidence.on_tick(&tick(), at(630));
    assert!(gathers(evidence.on_tick(&tick(), at(640)), 0.024));
    assert!(
        gathers(evidence.on_tick(&tick(), at(5640)), 0.502),
        "it was paused: 5 s of 10 are over, and one look counts"
    );
}

#[test]
fn a_window_ends_with_what_makes_its_evidence_old() {
    let ends = |edit: &dyn Fn(&mut EvidenceTick)| {
        let mut evidence = evidence(fixed(50));
        assert_eq!(
            evidence.on_tick(&tick(), at(0)),
            Judgement::Anew(WindowEnd::First)
        );
        assert!(gathers(evidence.on_tick(&tick(), at(10)), 0.2));
        let mut other = tick();
        edit(&mut other);
        let judgement = evidence.on_tick(&other, at(20));
        let Judgement::Anew(end) = judgement else {
            panic!("{judgement:?}");
        };
        let began = evidence.window().map(|it| it.began_at);
        assert!(began.is_none_or(|it| it == at(20)));
        end
    };
    assert_eq!(ends(&|it| it.reading = reading(4, 7)), WindowEnd::Moved);
    assert_eq!(ends(&|it| it.reading = reading(3, 8)), WindowEnd::Moved);
    assert_eq!(ends(&|it| it.awaited = true), WindowEnd::Awaited);
    assert_eq!(ends(&|it| it.began_to_serve = at(0)), WindowEnd::Settling);
    assert_eq!(ends(&|it| it.reading = None), WindowEnd::NoWords);
    assert_eq!(ends(&|it| it.pressure = 1.9), WindowEnd::NotHigh);
    assert_eq!(ends(&|it| it.pressure = f64::NAN), WindowEnd::NotHigh);
}

#[test]
fn a_front_end_whose_counter_is_behind_skips_the_event_and_catches_up() {
    let mut evidence = evidence(fixed(50));
    evidence.on_tick(&tick(), at(0));
    let moved = EvidenceTick {
        reading: reading(5, 8),
        ..tick()
    };
    let judgements: Vec<_> = (1..=7)
        .map(|it| {
            let seen = if it < 5 { tick() } else { moved };
            evidence.on_tick(&seen, at(10 * it))
        })
        .collect();
    assert_eq!(judgements[4], Judgement::Anew(WindowEnd::Moved));
    assert!(gathers(judgements[6], 0.4), "{judgements:?}");
    assert_eq!(evidence.window().map(|it| it.updates), Some(8));
}

#[test]
fn a_node_that_has_settled_ends_no_window() {
    let settled = EvidenceTick {
        began_to_serve: Timestamp::from_millis(950),
        ..tick()
    };
    assert_eq!(acts_after(evidence(fixed(50)), &settled), Some(50));
    assert_eq!(settle(Duration::from_millis(10)), Duration::from_millis(50));
    assert_eq!(settle(Duration::from_millis(40)), Duration::from_millis(80));
}

#[test]
fn one_front_end_of_all_has_its_turn_on_average() {
    assert!(has_its_turn(0.24, 4) && !has_its_turn(0.26, 4));
    assert!(has_its_turn(0.999, 1) && has_its_turn(0.999, 0));
}

#[test]
fn dwell_is_the_history_and_a_second_at_least() {
    assert_eq!(fixed(50).dwell(), Duration::from_secs(1));
    assert_eq!(fixed(3000).dwell(), Duration::from_secs(3));
    assert_eq!(History::Auto.dwell(), Duration::from_secs(1));
}

#[test]
fn a_budget_counts_moves_of_a_minute() {
    let mut budget = FlapBudget::new(2);
    budget.on_read(40, at(0));
    assert!(budget.allows(at(0)), "what was before is not known");
    budget.on_read(41, at(1000));
    assert!(budget.allows(at(1000)));
    budget.on_read(42, at(2000));
    assert!(!budget.allows(at(60_999)));
    assert!(budget.allows(at(61_000)));
    budget.on_read(1_000_000, at(62_000));
    assert!(!budget.allows(at(62_000)));
    budget.on_read(0, at(130_000));
    assert!(
        budget.allows(at(130_000)),
        "a counter that began anew is no move"
    );
    assert!(!FlapBudget::new(0).allows(at(0)));
}
