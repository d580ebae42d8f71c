//! Tickets, counting, retries, and what happens to requests that find no room.

use super::*;
use crate::admission::{AdmissionConfig, AdmissionKind, Rank, StaticLimits};
use crate::director::Director;
use crate::load::LimitBy;
use crate::policy::{PolicyConfig, PolicyKind};
use crate::testing::cluster;

const SITE: SiteId = SiteId(0);
const LOW: Priority = Priority::ALL[1];
const NOW: Timestamp = Timestamp::from_millis(1000);

fn picker(nodes: u32) -> Picker {
    let spec = cluster(nodes, PolicyConfig::new(PolicyKind::Random));
    let table = Arc::new(LoadTable::new(nodes as usize, 1));
    let topology = Director::new(spec, 1).topology();
    Picker::new(table, topology, 1)
}

fn forward(picker: &mut Picker) -> Ticket {
    sent(picker.handle_request(&of(0, 0), NOW))
}

fn sent(decision: Decision) -> Ticket {
    let Decision::Forward(ticket) = decision else {
        panic!("not sent: {decision:?}");
    };
    ticket
}

#[test]
fn a_dropped_ticket_leaves_nothing_in_flight() {
    let mut picker = picker(1);
    let tickets: Vec<_> = (0..1000).map(|_| forward(&mut picker)).collect();
    assert_eq!(picker.table().in_flight(NodeId(0)), 1000);
    assert_eq!(tickets.last().unwrap().why.in_flight, 1000);
    drop(tickets);
    assert_eq!(picker.table().in_flight(NodeId(0)), 0);
}

#[test]
fn an_outcome_is_counted_once_and_the_ticket_stays_in_flight() {
    let mut picker = picker(1);
    let ticket = forward(&mut picker);
    picker.handle_outcome(&ticket, Outcome::Success, NOW + Duration::from_millis(5));
    assert_eq!(picker.table().in_flight(NodeId(0)), 1);
    let outcomes = picker.table().outcomes(NodeId(0));
    assert_eq!((outcomes.successes, outcomes.failures), (1, 0));
    assert!((outcomes.sum_seconds - 0.005).abs() < 1e-9);
}

/// Those that were sent, and those that have ended.
fn firsts(picker: &Picker) -> (u64, u64) {
    let firsts = picker.table().firsts(SITE);
    (firsts.sent, firsts.ended)
}

#[test]
fn a_request_that_found_a_server_empty_ends_once_whether_it_is_answered_or_not() {
    let mut picker = picker(1);
    let (left, answered) = (forward(&mut picker), forward(&mut picker));
    let third = forward(&mut picker);
    assert_eq!(firsts(&picker), (2, 0), "the third one did not");
    drop((left, third));
    assert_eq!(firsts(&picker), (2, 1));
    picker.handle_outcome(&answered, Outcome::Success, NOW);
    assert_eq!(firsts(&picker), (2, 2));
    drop(answered);
    assert_eq!(firsts(&picker), (2, 2));
}

#[test]
fn a_retry_goes_elsewhere_until_nobody_is_left() {
    let mut picker = picker(3);
    let mut tried = Vec::new();
    for _ in 0..3 {
        let Ok(ticket) = picker.handle_retry(SITE, &tried, Retried::Failure, NOW) else {
            panic!("an untried node was left");
        };
        assert!(!tried.contains(&ticket.node));
        tried.push(ticket.node);
    }
    let last = picker.handle_retry(SITE, &tried, Retried::Failure, NOW);
    assert_eq!(last.err(), Some(RejectReason::NoNode));
}

#[test]
fn a_site_without_nodes_rejects() {
    let mut picker = picker(0);
    let decision = picker.handle_request(&of(0, 0), NOW);
    assert!(matches!(decision, Decision::Reject(RejectReason::NoNode)));
}

fn admitting(nodes: u32, admission: AdmissionConfig) -> Picker {
    let mut spec = cluster(nodes, PolicyConfig::new(PolicyKind::Random));
    spec.sites[0].admission = admission;
    let table = Arc::new(LoadTable::new(nodes as usize, 1));
    let topology = Director::new(spec, 1).topology();
    Picker::new(table, topology, 1)
}

fn of(priority: u8, id: u64) -> Arrival {
    Arrival {
        priority: Priority::new(priority).unwrap(),
        id: WaitId(id),
        ..Arrival::at(SITE)
    }
}

#[test]
fn a_static_limit_refuses_at_both_stages() {
    let mut picker = admitting(
        1,
        AdmissionConfig {
            limits: StaticLimits {
                connections: Some(1),
                ..StaticLimits::default()
            },
            ..AdmissionConfig::new(AdmissionKind::Static)
        },
    );
    assert_eq!(picker.handle_accept(NOW), AdmissionVerdict::Admit);
    let ticket = forward(&mut picker);
    let refused = picker.handle_request(&of(0, 1), NOW);
    assert!(matches!(refused, Decision::Reject(RejectReason::Overload)));
    let closed = AdmissionVerdict::Reject(RejectReason::Overload);
    assert_eq!(picker.handle_accept(NOW), closed);
    let later = NOW + Duration::from_millis(1);
    assert_eq!(
        picker.handle_accept(later),
        AdmissionVerdict::Admit,
        "looked at again"
    );
    drop(ticket);
    drop(forward(&mut picker));
    assert_eq!(picker.table().own(NodeId(0)).dispatched, 2);
}

#[test]
fn a_refusal_by_chance_leaves_the_door_open() {
    let config = AdmissionConfig::new(AdmissionKind::EnvoyAdmissionControl);
    let mut picker = admitting(1, config);
    for _ in 0..100 {
        let ticket = forward(&mut picker);
        picker.handle_outcome(&ticket, Outcome::Success, NOW);
    }
    // Half of them have failed; so nearly one in two is refused.
    let tickets: Vec<_> = (0..100).map(|_| forward(&mut picker)).collect();
    for ticket in &tickets {
        picker.handle_outcome(ticket, Outcome::ServerError, NOW);
    }
    let all = (0..1000).map(|id| picker.handle_request(&of(0, id), NOW));
    let refused = all.filter(|it| matches!(it, Decision::Reject(RejectReason::Overload)));
    let refused = refused.count();
    assert!((400..550).contains(&refused), "{refused} of 1000");
    assert_eq!(picker.handle_accept(NOW), AdmissionVerdict::Admit);
}

#[test]
fn whoever_finds_no_room_waits_and_goes_in_order_of_priority() {
    let config = AdmissionConfig {
        priorities: 2,
        ..AdmissionConfig::new(AdmissionKind::Adaptive)
    };
    let mut picker = admitting(2, config);
    // The higher priority finds room a little longer.
    let limits = Rank::ALL.map(|rank| if rank < Rank::of(LOW) { 2.0 } else { 1.0 });
    for node in [0, 1] {
        picker.table().set_limits(NodeId(node), limits);
    }
    let tickets: Vec<_> = (0..2)
        .map(|id| sent(picker.handle_request(&of(1, id), NOW)))
        .collect();
    assert_ne!(
        tickets[0].node, tickets[1].node,
        "a full node is passed over"
    );
    for (priority, id) in [(1, 10), (1, 11)] {
        let decision = picker.handle_request(&of(priority, id), NOW);
        assert!(matches!(decision, Decision::Wait), "{decision:?}");
    }
    assert_eq!(picker.table().waiting(SITE, LOW), 2);
    assert!(picker.poll_waiting(NOW).is_none());
    let high = picker.handle_request(&of(0, 12), NOW);
    let Decision::Forward(high) = high else {
        panic!("the higher priority has room left: {high:?}");
    };
    drop((tickets, high));
    for wanted in [10, 11] {
        let (id, decision) = picker.poll_waiting(NOW).unwrap();
        assert_eq!(id, WaitId(wanted));
        assert!(matches!(decision, Decision::Forward(_)));
        std::mem::forget(decision);
    }
    assert_eq!(picker.table().found_no_room(SITE), 2);
}

#[test]
fn whoever_waits_too_long_or_must_make_room_is_told() {
    let config = AdmissionConfig {
        priorities: 2,
        queue: 1,
        ..AdmissionConfig::new(AdmissionKind::Adaptive)
    };
    let mut picker = admitting(1, config);
    picker.table().set_limits(NodeId(0), [0.0; Rank::COUNT]);
    for (priority, id) in [(1, 1), (0, 2)] {
        let decision = picker.handle_request(&of(priority, id), NOW);
        assert!(matches!(decision, Decision::Wait), "{decision:?}");
    }
    let full = picker.handle_request(&of(1, 3), NOW);
    assert!(matches!(full, Decision::Reject(RejectReason::QueueFull)));
    let told = |told: Option<(WaitId, Decision)>| match told {
        Some((id, Decision::Reject(reason))) => Some((id.0, reason)),
        _ => None,
    };
    assert_eq!(
        told(picker.poll_waiting(NOW)),
        Some((1, RejectReason::QueueFull))
    );
    let later = NOW + config.slo;
    assert_eq!(
        told(picker.poll_waiting(later)),
        Some((2, RejectReason::QueueTimeout))
    );
    assert_eq!(picker.waiting(), 0);
}

#[test]
fn connections_are_not_read_when_even_the_highest_priority_finds_the_queue_full() {
    let config = AdmissionConfig {
        priorities: 2,
        queue: 2,
        ..AdmissionConfig::new(AdmissionKind::Adaptive)
    };
    let mut picker = admitting(1, config);
    picker.table().set_limits(NodeId(0), [0.0; Rank::COUNT]);
    let closed = AdmissionVerdict::Reject(RejectReason::Overload);
    for (priority, id, accept) in [
        (1, 1, AdmissionVerdict::Admit),
        (1, 2, AdmissionVerdict::Admit),
        (1, 3, AdmissionVerdict::Admit),
        (0, 4, AdmissionVerdict::Admit),
        (0, 5, closed),
    ] {
        let decision = picker.handle_request(&of(priority, id), NOW);
        assert!(matches!(decision, Decision::Wait), "{id}: {decision:?}");
        assert_eq!(picker.handle_accept(NOW), accept, "{id}");
    }
    picker.handle_left(SITE, WaitId(5));
    assert_eq!(picker.handle_accept(NOW), AdmissionVerdict::Admit);
}

#[test]
fn an_established_session_has_room_and_a_turn_before_others_of_its_priority() {
    let config = AdmissionConfig::new(AdmissionKind::Adaptive);
    let mut picker = admitting(1, config);
    let limits = Rank::ALL.map(|rank| {
        if rank.priority().is_established() {
            2.0
        } else {
            1.0
        }
    });
    picker.table().set_limits(NodeId(0), limits);
    let known = |id| Arrival {
        priority: Priority::HIGHEST.with_established(true),
        ..of(0, id)
    };
    let ticket = sent(picker.handle_request(&of(0, 1), NOW));
    let waits = picker.handle_request(&of(0, 2), NOW);
    assert!(matches!(waits, Decision::Wait), "{waits:?}");
    let above = sent(picker.handle_request(&known(3), NOW));
    let waits = picker.handle_request(&known(4), NOW);
    assert!(matches!(waits, Decision::Wait), "{waits:?}");
    drop((ticket, above));
    let (id, decision) = picker.poll_waiting(NOW).unwrap();
    assert_eq!(id, WaitId(4));
    assert!(matches!(decision, Decision::Forward(_)), "{decision:?}");
}

/// A picker of one node that is full, and a request of a kind that has surged and one of another.
fn surged(sessions: bool) -> (Picker, impl Fn(&str, u64) -> Arrival) {
    let config = AdmissionConfig {
        sessions,
        ..AdmissionConfig::new(AdmissionKind::Adaptive)
    };
    let picker = admitting(1, config);
    let table = picker.table();
    table.set_limits(NodeId(0), [0.0; Rank::COUNT]);
    let kind = |path| picker.kind_of(SITE, "GET", path);
    let (search, page) = (kind("/search"), kind("/page"));
    table.kinds(SITE).set_judged(0, search.bit());
    let arrival = move |path: &str, id| Arrival {
        kind: if path == "/search" { search } else { page },
        ..of(0, id)
    };
    (picker, arrival)
}

fn waits(picker: &mut Picker, arrival: &Arrival) {
    let decision = picker.handle_request(arrival, NOW);
    assert!(matches!(decision, Decision::Wait), "{decision:?}");
}

/// The requests that go next, until none waits.
fn order(picker: &mut Picker) -> Vec<u64> {
    picker.table().set_limits(NodeId(0), [1.0; Rank::COUNT]);
    let next = || picker.poll_waiting(NOW).map(|(id, _)| id.0);
    std::iter::from_fn(next).collect()
}

#[test]
fn a_kind_that_has_surged_goes_last_within_its_priority() {
    let (mut picker, arrival) = surged(false);
    let lower = Arrival {
        priority: LOW,
        ..arrival("/page", 4)
    };
    for it in [
        lower,
        arrival("/search", 1),
        arrival("/page", 2),
        arrival("/page", 3),
    ] {
        waits(&mut picker, &it);
    }
    assert_eq!(order(&mut picker), [2, 3, 1, 4]);
}

#[test]
fn a_kind_that_has_surged_goes_behind_established_sessions_of_others() {
    let (mut picker, arrival) = surged(true);
    let known = |path, id| Arrival {
        priority: Priority::HIGHEST.with_established(true),
        ..arrival(path, id)
    };
    for it in [known("/search", 1), arrival("/page", 2), known("/page", 3)] {
        waits(&mut picker, &it);
    }
    assert_eq!(order(&mut picker), [3, 1, 2]);
}

#[test]
fn connections_are_read_while_all_that_wait_are_of_a_kind_that_has_surged() {
    let (mut picker, arrival) = surged(false);
    for id in 0..u64::from(AdmissionConfig::QUEUE) {
        waits(&mut picker, &arrival("/search", id));
    }
    assert_eq!(picker.handle_accept(NOW), AdmissionVerdict::Admit);
    let more = picker.handle_request(&arrival("/search", 5000), NOW);
    assert!(
        matches!(more, Decision::Wait),
        "instead of the oldest: {more:?}"
    );
    waits(&mut picker, &arrival("/page", 5001));
    assert_eq!(picker.handle_accept(NOW), AdmissionVerdict::Admit);
}

#[test]
fn what_waits_for_an_answer_is_counted_by_kind_until_its_head() {
    let mut picker = picker(1);
    let ask = |picker: &mut Picker, path| {
        let kind = picker.kind_of(SITE, "GET", path);
        let arrival = Arrival { kind, ..of(0, 0) };
        sent(picker.handle_request(&arrival, NOW))
    };
    let unanswered = |picker: &Picker, path| {
        let kind = picker.kind_of(SITE, "GET", path);
        picker.table().kinds(SITE).waiting_of(kind)
    };
    let mut answered = ask(&mut picker, "/page");
    let failed = ask(&mut picker, "/page");
    let cancelled = ask(&mut picker, "/page");
    let other = ask(&mut picker, "/search");
    assert_eq!(unanswered(&picker, "/page"), 3);
    assert_eq!(unanswered(&picker, "/search"), 1);
    picker.handle_head(&mut answered, NOW);
    picker.handle_outcome(&failed, Outcome::Broken, NOW);
    assert_eq!(unanswered(&picker, "/page"), 1);
    // A second try says nothing of its kind.
    let again = picker
        .handle_retry(SITE, &[], Retried::Failure, NOW)
        .unwrap();
    drop((answered, failed, cancelled, other, again));
    assert_eq!(unanswered(&picker, "/page"), 0);
    assert_eq!(unanswered(&picker, "/search"), 0);
}

/// A node that bears three requests, at a site of which one is let in while it is held back for what is behind;
/// two throttled ones may have an account of their own.
fn held_back() -> (Picker, Arrival) {
    let picker = admitting(1, AdmissionConfig::new(AdmissionKind::Adaptive));
    let table = picker.table();
    table.set_limits(NodeId(0), [1.0; Rank::COUNT]);
    table.accounts().set_limit(NodeId(0), 3.0);
    table.accounts().set_most(SITE, 2);
    table.set_limited_by(SITE, LimitBy::Downstream);
    let throttled = Arrival {
        kind: picker.kind_of(SITE, "GET", "/search"),
        throttled: true,
        ..of(3, 9)
    };
    (picker, throttled)
}

/// At work at the node, and those of them that need a slot.
fn at_work(picker: &Picker) -> (u64, u64) {
    let table = picker.table();
    (table.at_work(NodeId(0)), table.in_slots(NodeId(0)))
}

#[test]
fn a_throttled_request_is_let_on_beside_those_that_are_held_back_and_takes_no_slot() {
    let (mut picker, throttled) = held_back();
    let page = forward(&mut picker);
    waits(&mut picker, &of(0, 1));
    let mut search = sent(picker.handle_request(&throttled, NOW));
    assert!(search.is_throttled());
    assert_eq!(at_work(&picker), (2, 1));
    let kind = throttled.kind;
    assert_eq!(picker.table().kinds(SITE).waiting_of(kind), 0);
    // The slot is for the request that waits for it.
    drop(page);
    let told = picker.poll_waiting(NOW);
    let Some((WaitId(1), Decision::Forward(page))) = told else {
        panic!("{told:?}");
    };
    assert_eq!(at_work(&picker), (2, 1));
    // From the head of its answer on it counts as any other.
    picker.handle_head(&mut search, NOW);
    assert_eq!(at_work(&picker), (2, 2));
    assert_eq!(picker.table().accounts().ended(NodeId(0)), 0);
    drop((search, page));
    assert_eq!(at_work(&picker), (0, 0));
    drop(sent(picker.handle_request(&throttled, NOW)));
    assert_eq!(picker.table().accounts().ended(NodeId(0)), 1);
}

#[test]
fn throttled_requests_beyond_a_few_are_held_back_like_all_others() {
    let (mut picker, throttled) = held_back();
    let few = [0, 1].map(|_| sent(picker.handle_request(&throttled, NOW)));
    let page = forward(&mut picker);
    assert_eq!(at_work(&picker), (3, 1));
    waits(&mut picker, &throttled);
    drop(few);
    // The next one is again one of a few, but not more than the server itself bears.
    picker.table().accounts().set_limit(NodeId(0), 1.0);
    waits(&mut picker, &throttled);
    drop(page);
}

#[test]
fn a_throttled_request_goes_last_where_it_is_the_server_that_is_full() {
    let (mut picker, throttled) = held_back();
    picker.table().set_limited_by(SITE, LimitBy::Record);
    let page = forward(&mut picker);
    waits(&mut picker, &of(0, 1));
    waits(&mut picker, &throttled);
    drop(page);
    let next = || picker.poll_waiting(NOW).map(|(id, _)| id.0);
    assert_eq!(std::iter::from_fn(next).collect::<Vec<_>>(), [1, 9]);
}

#[test]
fn a_throttled_request_that_has_waited_too_long_is_let_on_if_it_may_be_by_now() {
    let (mut picker, throttled) = held_back();
    let page = forward(&mut picker);
    picker.table().set_limited_by(SITE, LimitBy::Record);
    waits(&mut picker, &throttled);
    picker.table().set_limited_by(SITE, LimitBy::ProbePhase);
    let told = picker.poll_waiting(NOW + AdmissionConfig::SLO);
    assert!(
        matches!(&told, Some((_, Decision::Forward(it))) if it.is_throttled()),
        "{told:?}"
    );
    drop(page);
}

#[test]
fn a_dry_run_lets_all_in_and_counts() {
    let config = AdmissionConfig {
        dry_run: true,
        ..AdmissionConfig::new(AdmissionKind::Adaptive)
    };
    let mut picker = admitting(1, config);
    picker.table().set_limits(NodeId(0), [1.0; Rank::COUNT]);
    let _tickets: Vec<_> = (0..3).map(|_| forward(&mut picker)).collect();
    assert_eq!(picker.table().found_no_room(SITE), 2);
}
