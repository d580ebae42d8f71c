//! The protocol of moves, checked over all orders of events within bounds: the core's own functions, on words that
//! front-ends crash on, pause on, lose answers of, and send copies to; nodes that vanish, come back and begin anew.
//!
//! ```text
//! state    words of sites and nodes, what each front-end does, datagrams that may still arrive
//! event    one operation of a front-end, one late datagram, one fault; a pause is that others go first
//! A1 to A4, A7   in every state                    stateright, breadth first
//! L1, L2         from every state, without faults  `rest.rs`
//! ```
//!
//! The controls are protocols that must fail: the paper's lock with a lease, ours without its commit step, without the
//! age limit, with another birth, with floors that count what may go back. A checker that finds nothing in
//! them finds nothing in ours.
//!
//! Not in the model: time (leases and fences end at any moment; that no swap is young enough after a fence is what the model is
//! given), load, more than one home, homes that lose their words, operators. Home words are read one at a time,
//! nodes' words at once.
//! Larger bounds: `cargo xtask model`.
#![expect(
    clippy::print_stdout,
    reason = "what was seen of each model is printed for `cargo xtask model`"
)]

mod model;
mod paper;
mod rest;
mod world;

use stateright::{Checker, HasDiscoveries, Model, UniformChooser};

use world::{Budget, Moves, Protocol};

/// Most states that a search generates within small bounds, and within large ones.
const SMALL: usize = 20_000_000;
const LARGE: usize = 60_000_000;
const REST_STATES_MAX: usize = 20_000_000;

/// One hot site with one node, which asks for three, and a site of three nodes, which keeps one.
const ONE_HOT: (&[u8], &[(u16, u16, usize)]) = (&[0, 1, 1, 1], &[(1, 9, 3), (1, 9, 0)]);

/// Whether large bounds are wanted: `cargo xtask model` does.
fn is_large() -> bool {
    std::env::var_os("TIDEGATE_MODEL").is_some_and(|it| it == "large")
}

fn hot_site(protocol: Protocol, limits: Budget) -> Moves {
    Moves {
        limits,
        sequence_max: bound(5, 6),
        ..Moves::new(protocol, ONE_HOT.0, ONE_HOT.1)
    }
}

/// Looks at all states; what is violated, each with the events that lead there.
fn violations(
    name: &str,
    model: &Moves,
    until: HasDiscoveries,
) -> Vec<(&'static str, Vec<model::Event>)> {
    let states_max = bound(SMALL, LARGE);
    let checker = model.clone().checker();
    let checker = checker.finish_when(until);
    let checker = checker.target_state_count(states_max).spawn_bfs().join();
    let found = checker.discoveries().into_iter();
    let mut found: Vec<_> = found
        .map(|(property, path)| (property, path.into_actions()))
        .collect();
    found.sort_by_key(|(property, _)| *property);
    let seen = match checker.state_count() {
        it if it >= states_max => "cut off",
        _ if found.is_empty() => "all seen",
        _ => "stopped at a violation",
    };
    println!(
        "{name}: {} states, {} generated, depth {}, {seen}",
        checker.unique_state_count(),
        checker.state_count(),
        checker.max_depth(),
    );
    assert!(
        is_large() || seen != "cut off",
        "{name}: more states than {states_max}"
    );
    found
}

#[track_caller]
fn holds(name: &str, model: &Moves) {
    let found = violations(name, model, HasDiscoveries::Any);
    assert!(found.is_empty(), "{name}: {found:#?}");
}

/// This property must be violated.
#[track_caller]
fn fails(name: &str, model: &Moves, property: &str) {
    let properties = model.properties().into_iter().map(|it| it.name);
    let names = properties.filter(|it| it.starts_with(property)).collect();
    let found = violations(name, model, HasDiscoveries::AllOf(names));
    let found = found.iter().find(|(it, _)| it.starts_with(property));
    let (violated, events) = found.expect("the checker finds the violation");
    println!("{name}: {violated}: violated in {} events", events.len());
}

fn search(name: &str, model: &Moves) -> rest::Rest {
    let rest = rest::search(model, REST_STATES_MAX);
    println!(
        "{name}: {} states, {} at rest, {} stuck",
        rest.states, rest.at_rest, rest.stuck
    );
    rest
}

#[track_caller]
fn comes_to_rest(name: &str, model: &Moves) {
    let rest = search(name, model);
    assert!(rest.whole, "{name}: more than {REST_STATES_MAX} states");
    assert_eq!(rest.stuck, 0, "{name}: {rest:?}");
    assert!(rest.at_rest > 1, "{name}: something moves: {rest:?}");
}

fn once() -> Budget {
    Budget {
        crashes: 1,
        losses: 1,
        ..Budget::default()
    }
}

/// The first within small bounds, the second within large ones.
fn bound<T>(small: T, large: T) -> T {
    if is_large() { large } else { small }
}

#[test]
fn crashes_and_lost_answers() {
    let limits = Budget {
        crashes: bound(1, 2),
        ..once()
    };
    holds("crash, lost answer", &hot_site(Protocol::Ours, limits));
}

#[test]
fn datagrams_that_come_twice() {
    let limits = Budget {
        copies: bound(1, 2),
        crashes: 1,
        ..Budget::default()
    };
    holds("copies, crash", &hot_site(Protocol::Ours, limits));
}

#[test]
fn a_node_that_goes_away_and_comes_back() {
    let limits = Budget {
        outages: bound(1, 2),
        restarts: 1,
        crashes: bound(0, 1),
        ..Budget::default()
    };
    holds("outage, restart", &hot_site(Protocol::Ours, limits));
}

#[test]
fn moves_that_are_taken_back() {
    let limits = Budget {
        reverts: bound(1, 2),
        crashes: 1,
        ..Budget::default()
    };
    // The donor of one is the receiver of the other, and both are at their bounds.
    let sites = &[(1, 2, 2), (1, 2, 2), (0, 9, 0)];
    let model = Moves {
        limits,
        sequence_max: bound(3, 6),
        ..Moves::new(Protocol::Ours, &[0, 1, 2], sites)
    };
    holds("revert, crash", &model);
}

#[test]
fn two_hot_sites_that_could_give_to_each_other() {
    let limits = Budget {
        crashes: 1,
        losses: bound(0, 1),
        ..Budget::default()
    };
    let model = Moves {
        limits,
        sequence_max: bound(5, 6),
        ..Moves::new(Protocol::Ours, &[0, 0, 1, 1], &[(1, 9, 3), (1, 9, 3)])
    };
    holds("two hot sites, crash", &model);
}

#[test]
fn update_counters_that_are_words_of_their_own() {
    let limits = Budget {
        losses: 1,
        copies: bound(0, 1),
        ..Budget::default()
    };
    let model = Moves {
        counters: true,
        sequence_max: bound(4, 6),
        ..hot_site(Protocol::Ours, limits)
    };
    holds("counters, lost answer", &model);
}

#[test]
fn three_front_ends() {
    let limits = Budget {
        crashes: bound(0, 1),
        ..Budget::default()
    };
    let model = Moves {
        front_ends: 3,
        sequence_max: bound(4, 6),
        ..hot_site(Protocol::Ours, limits)
    };
    holds("three front-ends", &model);
}

#[test]
fn every_lock_comes_free_and_every_node_serves() {
    let model = Moves {
        sequence_max: bound(4, 6),
        ..hot_site(Protocol::Ours, once())
    };
    comes_to_rest("crash, lost answer", &model);
    let limits = Budget {
        outages: 1,
        crashes: bound(0, 1),
        ..Budget::default()
    };
    comes_to_rest("outage", &hot_site(Protocol::Ours, limits));
}

#[test]
fn the_papers_lock_is_stuck_when_its_owner_dies() {
    let limits = Budget {
        crashes: 1,
        ..Budget::default()
    };
    let model = hot_site(Protocol::Paper, limits);
    holds("the paper's lock, crash", &model);
    let rest = search("the paper's lock, crash", &model);
    assert!(rest.whole && rest.stuck > 0, "{rest:?}");
}

#[test]
fn the_papers_lock_with_a_lease_moves_two_nodes_for_one_event() {
    let model = Moves::new(Protocol::PaperWithLease, ONE_HOT.0, ONE_HOT.1);
    fails("the paper's lock with a lease", &model, "A2");
}

#[test]
fn without_a_commit_step_two_nodes_move_for_one_event() {
    let model = Moves::new(Protocol::NoCommit, ONE_HOT.0, ONE_HOT.1);
    fails("no commit step", &model, "A2");
}

#[test]
fn void_without_an_age_limit_moves_two_nodes_for_one_event() {
    let limits = Budget {
        outages: 1,
        ..Budget::default()
    };
    let model = hot_site(Protocol::NoAgeLimit, limits);
    fails("no age limit", &model, "A2");
}

#[test]
fn orders_as_old_as_they_were_sent_move_two_nodes_for_one_event() {
    let limits = Budget {
        outages: 1,
        ..Budget::default()
    };
    let model = hot_site(Protocol::LateBirth, limits);
    fails("birth at the sending", &model, "A2");
}

#[test]
fn floors_that_count_nodes_on_their_way_break() {
    let limits = Budget {
        reverts: 1,
        ..Budget::default()
    };
    let sites = &[(1, 9, 2), (1, 9, 2), (0, 9, 0)];
    let model = Moves {
        limits,
        ..Moves::new(Protocol::CountsAwaited, &[0, 1, 2], sites)
    };
    fails("awaited nodes count", &model, "A3");
}

/// Orders of events that no breadth-first search reaches, each from a seed.
#[test]
fn random_walks() {
    let limits = Budget {
        crashes: 3,
        losses: 3,
        copies: 2,
        outages: 2,
        restarts: 1,
        reverts: 2,
    };
    let sites = &[(1, 3, 3), (1, 3, 2), (0, 9, 0)];
    let model = Moves {
        limits,
        front_ends: 3,
        sequence_max: 28,
        counters: true,
        ..Moves::new(Protocol::Ours, &[0, 1, 2, 2], sites)
    };
    let states_max = bound(200_000, 50_000_000);
    for seed in [7, 1982] {
        let checker = model.clone().checker().target_max_depth(400);
        let checker = checker.finish_when(HasDiscoveries::Any);
        let checker = checker.target_state_count(states_max);
        let checker = checker.spawn_simulation(seed, UniformChooser).join();
        let found = checker.discoveries().into_iter();
        let found: Vec<_> = found.map(|(it, path)| (it, path.into_actions())).collect();
        println!(
            "random walks, seed {seed}: {} states",
            checker.state_count()
        );
        assert!(found.is_empty(), "seed {seed}: {found:#?}");
    }
}
