//! Homes that are blank, ours, older and of others.

use std::time::Duration;

use super::super::numbering::SiteRules;
use super::super::words::{Count24, Intention, MoveCause, NodeNumber};
use super::*;

fn constitution(floor: u16, serial: u32) -> Constitution {
    let site = |name: &str| SiteRules {
        name: name.into(),
        floor,
        ceiling: 9,
        priority: 0,
    };
    Constitution::new(vec![site("a"), site("b")], vec![], false, serial).unwrap()
}

fn patience() -> Patience {
    Patience::new(Duration::ZERO, 0.0, Duration::ZERO)
}

fn idle() -> u64 {
    SiteLock::idle(Count24::new(77)).pack()
}

fn taken() -> u64 {
    let intention = Intention {
        node: NodeNumber(0),
        generation_low: 1,
        donor: SiteNumber(1),
        cause: MoveCause::Load,
        owner: 0,
    };
    SiteLock::idle(Count24::new(77)).taken(intention).pack()
}

fn words(constitution: u64, sites: &[(u64, u64)], millis: u64) -> HomeWords {
    HomeWords {
        constitution,
        sites: sites.to_vec(),
        at: Timestamp::from_millis(1000 + millis),
    }
}

/// A home that has what it asks for, read each 10 ms for a second.
fn begins(ours: &Constitution, mut k: u64, mut sites: [(u64, u64); 2]) -> Vec<(u64, WordPlace)> {
    let mut watch = HomeWatch::new(5);
    let mut begun = Vec::new();
    for millis in (0..1000).step_by(10) {
        let look = watch.look(&words(k, &sites, millis), ours, &patience());
        for atomic in look.begin {
            let WordAtomic::Swap {
                place,
                expected: 0,
                new,
                ..
            } = atomic
            else {
                panic!("{atomic:?}");
            };
            begun.push((millis, place));
            match place {
                WordPlace::Home(CONSTITUTION_WORD) => k = new,
                WordPlace::Home(64) => sites[0].0 = new,
                WordPlace::Home(68) => sites[1].0 = new,
                WordPlace::Home(_) | WordPlace::Node(_) => panic!("{place:?}"),
            }
        }
    }
    begun
}

#[test]
fn a_blank_home_begins_once_no_swap_can_be_late() {
    let ours = constitution(1, 1);
    let begun = begins(&ours, 0, [(0, 0); 2]);
    let place = |number| WordPlace::Home(number);
    // Two ages, and the lease.
    assert_eq!(begun, [(420, place(8)), (430, place(64)), (430, place(68))]);
    let k = ours.word().pack();
    let begun = begins(&ours, k, [(idle(), 4), (0, 0)]);
    assert_eq!(begun, [(420, place(68))], "a lock that was never written");
}

#[test]
fn words_are_believed_under_our_constitution_alone() {
    let ours = constitution(1, 1);
    let sites = [(idle(), 4), (taken(), 9)];
    let look = |k: u64| {
        let mut watch = HomeWatch::new(5);
        watch.look(&words(k, &sites, 0), &ours, &patience())
    };
    let joined = look(ours.word().pack());
    assert_eq!(joined.state, HomeState::Joined);
    let updates: Vec<_> = joined.sites.iter().flatten().map(|it| it.updates).collect();
    assert_eq!(updates, [4, 9]);
    for other in [constitution(2, 1), constitution(2, 2)] {
        let there = other.word();
        let look = look(there.pack());
        assert_eq!(look.state, HomeState::Disagrees(there));
        assert_eq!((look.sites, look.begin), (vec![None; 2], vec![]));
    }
    assert_eq!(look(0).state, HomeState::Blank);
    assert_eq!(look(0).sites, vec![None; 2]);
}

#[test]
fn an_older_constitution_is_replaced_when_all_locks_are_free() {
    let (older, ours) = (constitution(1, 1), constitution(2, 2));
    let k = older.word().pack();
    let mut watch = HomeWatch::new(5);
    assert_eq!(watch.sites_to_read(&ours), 2);
    // Its own two sites say nothing of a third one.
    let look = watch.look(&words(k, &[(idle(), 0); 2], 0), &ours, &patience());
    assert_eq!((look.state, look.begin), (HomeState::Older, vec![]));
    assert_eq!(watch.sites_to_read(&ours), SITES_MAX);
    let mut all = vec![(0, 0); SITES_MAX];
    all[7].0 = taken();
    let look = watch.look(&words(k, &all, 10), &ours, &patience());
    assert_eq!((look.state, look.begin), (HomeState::Older, vec![]));
    all[7].0 = idle();
    let look = watch.look(&words(k, &all, 20), &ours, &patience());
    let swap = WordAtomic::Swap {
        place: WordPlace::Home(CONSTITUTION_WORD),
        expected: k,
        new: ours.word().pack(),
        born: None,
    };
    assert_eq!(look.begin, [swap]);
}

#[test]
fn a_lock_that_no_front_end_writes_is_told_and_not_believed() {
    let ours = constitution(1, 1);
    let sites = [(7 << 37 | 1 << 40, 0), (idle(), 0)];
    let mut watch = HomeWatch::new(5);
    let look = watch.look(&words(ours.word().pack(), &sites, 0), &ours, &patience());
    assert_eq!(look.garbled.map(|it| it.field), Some("phase"));
    assert!(look.sites[0].is_none() && look.sites[1].is_some());
}
