//! What is stored is read, and what is counted is counted once.

use super::*;
use crate::ids::CheckSet;
use crate::load::{Rung, Services};

const NODE: NodeId = NodeId(0);

fn load(value: f32) -> NodeLoad {
    NodeLoad {
        observed_at: Timestamp::from_millis(1000),
        capacity: value,
        runnable: value,
        run_queue: value,
        accept_queue: value,
        network: value,
        utilization: value,
        utilization_ulm: value,
        in_flight: value,
        request_time: value,
        base_time: value,
        completions: value,
        memory: value,
        files: value,
        softirqs: value,
        services: Some(Services {
            checked: CheckSet::from_bits(0xb5),
            failing: CheckSet::from_bits(0x81),
        }),
        one_way: value,
        rung: Rung::Tc,
        interval: Duration::from_millis(1),
        unseen_from: OwnTraffic {
            dispatched: 7,
            completed: 5,
        },
    }
}

#[test]
fn what_is_stored_is_read() {
    let table = LoadTable::new(1, 1);
    table.store(NODE, &load(0.5));
    assert_eq!(table.last(NODE), load(0.5));
    assert_eq!(table.brief(NODE), load(0.5).brief());
    let silent = NodeLoad {
        services: None,
        ..load(0.5)
    };
    table.store(NODE, &silent);
    assert_eq!(table.last(NODE), silent);
}

#[test]
fn never_read_and_stale_are_unknown() {
    let table = LoadTable::new(1, 1);
    assert_eq!(table.fresh(NODE, Timestamp::from_millis(1)), None);
    table.store(NODE, &load(0.0));
    assert!(table.fresh(NODE, Timestamp::from_millis(1250)).is_some());
    assert_eq!(table.fresh(NODE, Timestamp::from_millis(1251)), None);
    assert!(table.brief(NODE).is_fresh(Timestamp::from_millis(1250)));
    assert!(!table.brief(NODE).is_fresh(Timestamp::from_millis(1251)));
    assert!(!NodeLoad::UNKNOWN.brief().is_fresh(Timestamp::ZERO));
    // A slow publisher is given four of its intervals.
    table.store(
        NODE,
        &NodeLoad {
            interval: Duration::from_secs(1),
            ..load(0.0)
        },
    );
    assert!(table.fresh(NODE, Timestamp::from_millis(5000)).is_some());
    // But not for as long as it likes.
    table.store(
        NODE,
        &NodeLoad {
            interval: Duration::MAX,
            ..load(0.0)
        },
    );
    assert_eq!(table.fresh(NODE, Timestamp::from_millis(62_000)), None);
}

#[test]
fn a_reader_never_sees_half_of_a_write() {
    let table = LoadTable::new(1, 1);
    table.store(NODE, &load(0.0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..50_000u32 {
                table.store(NODE, &load((round % 1000) as f32));
            }
        });
        for _ in 0..50_000 {
            let seen = table.last(NODE);
            if seen.observed_at != Timestamp::ZERO {
                assert_eq!(seen, load(seen.capacity));
            }
            let seen = table.brief(NODE);
            if seen.observed_at != Timestamp::ZERO {
                assert_eq!(seen, load(seen.runnable).brief());
            }
        }
    });
}

#[test]
fn terms_come_back() {
    let table = LoadTable::new(1, 1);
    let terms = NodeTerms {
        factor: 2.0,
        penalty: 1000.0,
        per_core: 0.25,
        ..NodeTerms::default()
    };
    table.set_terms(NODE, &terms);
    assert_eq!(table.terms(NODE), terms);
    let site = SiteTerms {
        draws: 10,
        decay: 12.5,
    };
    table.set_site_terms(SiteId(0), site);
    assert_eq!(table.site_terms(SiteId(0)), site);
}
