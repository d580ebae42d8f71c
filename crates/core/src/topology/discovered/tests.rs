//! Random histories of answers, and each rule by itself.

use super::*;
use crate::prng::Prng;

const HOLD: Duration = Duration::from_secs(30);

fn node(number: usize) -> Announced {
    Announced {
        name: format!("n{number}"),
        address: ([10, 0, 0, number as u8], 80).into(),
        weight: 1.0,
    }
}

fn nodes(numbers: &[usize]) -> Result<Vec<Announced>, String> {
    Ok(numbers.iter().copied().map(node).collect())
}

fn at(second: u64) -> Timestamp {
    Timestamp::from_millis(second * 1000)
}

fn names(discovered: &Discovered) -> Vec<&str> {
    discovered.nodes().map(|it| it.name.as_str()).collect()
}

fn of(limits: DiscoveryLimits, first: &[usize]) -> Discovered {
    let mut discovered = Discovered::new(limits);
    discovered.observe(at(0), nodes(first));
    discovered
}

#[test]
fn a_failure_or_an_empty_answer_keeps_the_last_good_set() {
    let mut discovered = of(DiscoveryLimits::default(), &[1, 2, 3]);
    let events = discovered.observe(at(1), Err("timed out".into()));
    assert_eq!(events, [DiscoveryEvent::Failed("timed out".into())]);
    // It is said once.
    for second in 2..1000 {
        assert_eq!(discovered.observe(at(second), Ok(Vec::new())), []);
    }
    let events = discovered.observe(at(1000), nodes(&[1, 2, 3]));
    assert_eq!(events, [DiscoveryEvent::Recovered]);
    assert_eq!(names(&discovered), ["n1", "n2", "n3"]);
}

#[test]
fn a_share_goes_at_once_and_the_rest_when_absent_for_long() {
    let mut discovered = of(DiscoveryLimits::default(), &[1, 2, 3, 4, 5, 6]);
    let events = discovered.observe(at(1), nodes(&[6]));
    let gone = |name: &str, why| DiscoveryEvent::Removed(name.into(), why);
    let wanted = [
        gone("n1", Departure::Absent),
        gone("n2", Departure::Absent),
        DiscoveryEvent::Kept(3),
    ];
    assert_eq!(events, wanted);
    assert_eq!(discovered.observe(at(15), nodes(&[6])), []);
    // A failure is no answer: it neither lets nodes go nor brings them back.
    discovered.observe(at(20), Err("refused".into()));
    assert_eq!(names(&discovered), ["n3", "n4", "n5", "n6"]);
    discovered.observe(at(31), nodes(&[6]));
    assert_eq!(names(&discovered), ["n6"]);
}

#[test]
fn one_node_of_few_may_always_go() {
    let mut discovered = of(DiscoveryLimits::default(), &[1]);
    discovered.observe(at(1), nodes(&[2]));
    assert_eq!(names(&discovered), ["n2"]);
    discovered.observe(at(2), nodes(&[3]));
    assert_eq!(names(&discovered), ["n2", "n3"], "one within `hold`");
}

#[test]
fn nodes_that_end_go_at_once_but_for_the_last_one() {
    let mut discovered = of(DiscoveryLimits::default(), &[1, 2, 3, 4, 5, 6]);
    let addresses = |numbers: &[usize]| -> Vec<_> {
        let nodes = numbers.iter().map(|number| node(*number).address);
        nodes.collect()
    };
    let events = discovered.dismiss(&addresses(&[1, 2, 3, 4, 9]));
    let gone = |name: &str| DiscoveryEvent::Removed(name.into(), Departure::Ends);
    assert_eq!(events, ["n1", "n2", "n3", "n4"].map(gone));
    // They use up nothing of what may go at once.
    let events = discovered.observe(at(1), nodes(&[6]));
    assert_eq!(
        events,
        [DiscoveryEvent::Removed("n5".into(), Departure::Absent)]
    );
    assert_eq!(discovered.dismiss(&addresses(&[6])), []);
    assert_eq!(names(&discovered), ["n6"]);
    // Neither is it held against them when they come back.
    discovered.observe(at(2), nodes(&[1, 6]));
    assert_eq!(names(&discovered), ["n1", "n6"]);
}

#[test]
fn another_address_counts_as_a_departure() {
    let mut discovered = of(DiscoveryLimits::default(), &[1, 2, 3]);
    let mut elsewhere = nodes(&[1, 2, 3]).unwrap();
    for node in &mut elsewhere {
        node.address = ([10, 9, 9, node.address.port() as u8], 80).into();
        node.address.set_port(8000 + node.name.len() as u16);
    }
    elsewhere[1].address.set_port(9001);
    elsewhere[2].address.set_port(9002);
    let moved = |discovered: &Discovered| {
        let moved = discovered.nodes().filter(|it| it.address.port() != 80);
        moved.count()
    };
    discovered.observe(at(1), Ok(elsewhere.clone()));
    assert_eq!(moved(&discovered), 1);
    for second in [10, 20, 32] {
        discovered.observe(at(second), Ok(elsewhere.clone()));
    }
    assert_eq!(moved(&discovered), 3);
}

#[test]
fn a_node_that_flaps_waits_and_comes_in_when_it_is_steady() {
    let mut discovered = of(DiscoveryLimits::default(), &[1, 2, 3, 4]);
    let mut turns = 0;
    for second in 1..200 {
        let here = second % 8 < 4;
        let answer = if here {
            nodes(&[1, 2, 3, 4])
        } else {
            nodes(&[1, 2, 3])
        };
        let events = discovered.observe(at(second), answer);
        let added = |event: &DiscoveryEvent| matches!(event, DiscoveryEvent::Added(_));
        turns += events.iter().filter(|it| added(it)).count();
    }
    // It was away 25 times.
    assert!(turns <= 3, "{turns}");
    for second in 200..350 {
        discovered.observe(at(second), nodes(&[1, 2, 3, 4]));
    }
    assert_eq!(names(&discovered).len(), 4);
}

#[test]
fn what_cannot_be_used_is_left_out_and_named_once() {
    let mut discovered = of(DiscoveryLimits::default(), &[1]);
    let mut answer = nodes(&[1, 2, 3, 4, 5, 6, 7]).unwrap();
    answer[1].name = "a b\n".into();
    answer[2].address = ([0, 0, 0, 0], 80).into();
    answer[3].weight = f32::NAN;
    answer[4].address.set_port(0);
    answer[5].name = "n1".into();
    answer[6].address = answer[0].address;
    let refused = |name: &str, why| DiscoveryEvent::Refused(name.into(), why);
    let wanted = [
        refused("a?b?", Unfit::Name),
        refused("n3", Unfit::Address),
        refused("n4", Unfit::Weight),
        refused("n5", Unfit::Address),
        refused("n1", Unfit::SameName),
        refused("n7", Unfit::SameAddress),
    ];
    assert_eq!(discovered.observe(at(1), Ok(answer.clone())), wanted);
    assert_eq!(discovered.observe(at(2), Ok(answer)), []);
    assert_eq!(names(&discovered), ["n1"]);
}

#[test]
fn too_many_nodes_are_no_answer_and_new_ones_wait_for_room() {
    let limits = DiscoveryLimits {
        nodes_max: 4,
        ..DiscoveryLimits::default()
    };
    let mut discovered = of(limits, &[1, 2, 3, 4]);
    let events = discovered.observe(at(1), nodes(&[5, 6, 7, 8, 9]));
    assert_eq!(
        events,
        [DiscoveryEvent::Failed("5 nodes, more than 4".into())]
    );
    let events = discovered.observe(at(2), nodes(&[5, 6, 7, 8]));
    assert!(events.contains(&DiscoveryEvent::Full(3)), "{events:?}");
    assert_eq!(names(&discovered), ["n2", "n3", "n4", "n5"]);
    for second in [20, 40, 60] {
        discovered.observe(at(second), nodes(&[5, 6, 7, 8]));
    }
    assert_eq!(names(&discovered), ["n5", "n6", "n7", "n8"]);
}

fn random_answer(prng: &mut Prng, most: usize) -> Result<Vec<Announced>, String> {
    if prng.below(5) == 0 {
        return Err("no answer".into());
    }
    let mut nodes = Vec::new();
    for number in 1..=most {
        if prng.below(3) > 0 {
            let mut one = node(number);
            match prng.below(20) {
                0 => one.name = "\u{fffd}".into(),
                1 => one.address.set_port(81),
                2 => one.weight = prng.unit() as f32 * 2.0,
                _ => {}
            }
            nodes.push(one);
        }
    }
    Ok(nodes)
}

/// The nodes that left from one moment to the next: those that are gone or elsewhere.
fn departed(before: &[Announced], after: &Discovered) -> usize {
    let stays = |node: &&Announced| {
        let mut after = after.nodes();
        after.any(|it| it.name == node.name && it.address == node.address)
    };
    before.iter().filter(|node| !stays(node)).count()
}

fn history(seed: u64) {
    let mut prng = Prng::new(seed);
    let limits = DiscoveryLimits {
        max_drop: prng.unit(),
        hold: HOLD,
        nodes_max: 4 + prng.below(20),
    };
    let most = 1 + prng.below(12);
    let mut discovered = Discovered::new(limits);
    let mut now = Timestamp::ZERO;
    for _ in 0..300 {
        now = now + Duration::from_millis(prng.below(8000) as u64);
        let before: Vec<_> = discovered.nodes().cloned().collect();
        let events = discovered.observe(now, random_answer(&mut prng, most));
        let left = departed(&before, &discovered);
        let long = |event: &&DiscoveryEvent| {
            matches!(
                event,
                DiscoveryEvent::Removed(_, Departure::AbsentForLong)
                    | DiscoveryEvent::Moved(_, Departure::AbsentForLong)
            )
        };
        let long = events.iter().filter(long).count();
        let may = share(limits.max_drop, before.len() + discovered.departures.len()).max(1);
        assert!(left - long <= may, "seed {seed}: {left} of {before:?}");
        assert!(before.is_empty() || discovered.nodes().len() > 0, "{seed}");
        assert!(discovered.nodes().len() <= limits.nodes_max, "{seed}");
        let after: Vec<_> = discovered.nodes().cloned().collect();
        let silent = events.is_empty();
        assert!(!silent || before == after, "seed {seed}: a silent change");
    }
    converges(&mut discovered, now, most, seed);
}

/// Once the source is steady its nodes are the members, and nothing changes any more.
fn converges(discovered: &mut Discovered, mut now: Timestamp, most: usize, seed: u64) {
    let numbers: Vec<_> = (1..=most.min(discovered.limits.nodes_max)).collect();
    let steady = nodes(&numbers);
    let until = now + 6 * HOLD;
    while now < until {
        now = now + Duration::from_secs(5);
        discovered.observe(now, steady.clone());
    }
    let mut wanted = steady.clone().unwrap();
    wanted.sort_by(|one, other| one.name.cmp(&other.name));
    assert_eq!(discovered.nodes().cloned().collect::<Vec<_>>(), wanted);
    for _ in 0..20 {
        now = now + Duration::from_secs(5);
        let events = discovered.observe(now, steady.clone());
        assert_eq!(events, [], "seed {seed}");
    }
}

#[test]
fn random_histories_never_empty_a_site_and_end_where_the_source_is() {
    for seed in 0..300 {
        history(seed);
    }
}
